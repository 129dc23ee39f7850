# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""With Secure Boot the kernel takes no module that is signed with a key it does not know.

DKMS signs what it builds with a key of this machine, which has to be enrolled at its console.
Until then, modules that DKMS builds are installed and do not load. Only looks.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from .commands import CommandError
from .part import Node

SIGNING_KEYS = ("var/lib/shim-signed/mok/MOK.der", "var/lib/dkms/mok.pub")
"""With which DKMS signs: Ubuntu's, and that of DKMS itself."""
DKMS_SETTINGS = ("etc/dkms/framework.conf", "etc/dkms/framework.conf.d/*.conf")
"""Where a site names a key of its own."""
_EFI = "sys/firmware/efi/efivars"
EFI = f"{_EFI}/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
SHIM = f"{_EFI}/MokSBStateRT-605dab50-e046-4300-abb6-3dd810dd8b23"
"""1 where validation is disabled in shim: the kernel then takes Secure Boot for off, in
efi_get_secureboot of drivers/firmware/efi/libstub/secureboot.c."""
# As mokutil words it (src/mokutil.c of lcp/mokutil: sb_state, test_key, print_skip_message).
ON, OFF = "secureboot enabled", ("secureboot disabled", "validation is disabled in shim")
ENROLLED = re.compile(r"is already (enrolled|in db\b)|trusted keyring")
"""With other words the exit status is the same in some releases."""
REQUESTED = "is already in the enrollment request"
_CERTIFICATE = re.compile(r"^\s*mok_certificate\s*=\s*[\"']?/([^\"'\s#]+)", re.MULTILINE)


def refusal(node: Node, root: Path) -> str:
    """Why this kernel would refuse modules of DKMS, and the ways out; empty where it would not.

    `root` is where the machine's hardware is read.
    """
    if not is_on(node, root):
        return ""
    keys = _keys(node)
    how = (
        "dkms generate_mok (Ubuntu: update-secureboot-policy --new-key), then mokutil --import KEY"
    )
    if keys:
        how = f"mokutil --import /{keys[0]}"
    confirm = "reboot, and confirm the key at the console"
    how += f", {confirm}"
    try:
        for name in keys:
            argv = ["mokutil", "--test-key", str(node.path(name))]
            answer = node.look(argv, check=False)
            text = f"{answer.stdout}{answer.stderr}".lower()
            if ENROLLED.search(text):
                return ""
            if REQUESTED in text:
                how = f"/{name} waits for that: {confirm}"
    except CommandError:
        how = "Install the package mokutil, which shows whether it is"
    return (
        "Secure Boot is on, and the kernel refuses modules that DKMS builds unless its key is "
        f"enrolled. {how}; or turn Secure Boot off in the firmware"
    )


def is_on(node: Node, root: Path) -> bool:
    """By mokutil; where there is none, or it cannot tell, by the variables of firmware and shim."""
    text = ""
    with suppress(CommandError):
        text = node.look(["mokutil", "--sb-state"], check=False).stdout.lower()
    if any(words in text for words in OFF):
        return False
    return ON in text or (_variable(root / EFI) and not _variable(root / SHIM))


def _variable(path: Path) -> bool:
    """Whether a variable of the firmware is 1."""
    try:
        return path.read_bytes()[4:5] == b"\1"  # after four bytes of attributes
    except OSError:
        return False


def _keys(node: Node) -> list[str]:
    """Keys of DKMS that are there, a site's own first."""
    settings = [path for name in DKMS_SETTINGS for path in sorted(node.root.glob(name))]
    texts = [node.read(str(path.relative_to(node.root))) or "" for path in settings]
    own = [name for text in texts for name in _CERTIFICATE.findall(text)]
    return [name for name in (*own, *SIGNING_KEYS) if node.path(name).exists()]
