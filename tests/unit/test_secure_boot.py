# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether the kernel accepts modules that DKMS signs, for all outputs of mokutil and the
firmware.
"""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import secure_boot

from tests.unit.host import Host

ENABLED = "SecureBoot enabled\n"
KEY = "var/lib/shim-signed/mok/MOK.der"


class Machine(Host):
    """`state` and `key`: mokutil's output about Secure Boot, and about a key after its name."""

    layer = "gpu"

    def __init__(self, root: Path, state: str = ENABLED, key: str = "is not enrolled") -> None:
        super().__init__(root)
        self.state, self.key = state, key
        self.write(KEY, "key")

    def program(self, words: list[str]) -> tuple[int, str]:
        return (0, self.state) if words[1] == "--sb-state" else (0, f"{words[2]} {self.key}\n")

    def variable(self, path: str, value: int) -> None:
        self.write(path, "").write_bytes(b"\6\0\0\0" + bytes([value]))

    def refusal(self) -> str:
        return secure_boot.refusal(self.node(), self.root)


# Of sb_state in src/mokutil.c; the second one also as users report it: the guide of AJA's cards in
# nvidia-holoscan/holoscan-sdk.
STATES = [
    (ENABLED, True),
    (f"{ENABLED}SecureBoot validation is disabled in shim\n", False),
    ("SecureBoot disabled\n", False),
    ("SecureBoot disabled\nPlatform is in Setup Mode\n", False),
]


@pytest.mark.parametrize(("state", "refused"), STATES)
def test_the_whole_answer_about_secure_boot_is_read(tmp_path: Path, state: str, refused: bool):
    machine = Machine(tmp_path, state)
    machine.variable(secure_boot.EFI, 1)  # does not show the setting of shim
    assert bool(machine.refusal()) is refused


@pytest.mark.parametrize(
    ("firmware", "shim", "refused"),
    [(1, None, True), (1, 0, True), (1, 1, False), (0, None, False), (None, None, False)],
)
@pytest.mark.parametrize("state", ["", "Cannot determine secure boot state.\n"])
def test_where_mokutil_cannot_tell_the_firmware_does(
    tmp_path: Path, state: str, firmware: Optional[int], shim: Optional[int], refused: bool
):
    machine = Machine(tmp_path, state)
    machine.gone = set() if state else {"mokutil"}
    for path, value in ((secure_boot.EFI, firmware), (secure_boot.SHIM, shim)):
        if value is not None:
            machine.variable(path, value)
    assert bool(machine.refusal()) is refused


@pytest.mark.parametrize(
    ("key", "words"),
    [
        # print_skip_message and test_key of mokutil 0.3 to 0.7.
        ("is already enrolled", ""),
        ("is already in db", ""),
        ("is already in the built-in trusted keyring", ""),
        ("is not enrolled", f"mokutil --import /{KEY}, reboot"),
        ("is already in the enrollment request", f"/{KEY} waits for that: reboot"),
        ("is already in dbx", f"mokutil --import /{KEY}"),
    ],
)
def test_a_key_that_the_kernel_trusts_already_is_fine(tmp_path: Path, key: str, words: str):
    refusal = Machine(tmp_path, key=key).refusal()
    assert words in refusal and bool(refusal) is bool(words)
