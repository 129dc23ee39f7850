# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether machines run on KVM, or their instructions are translated by QEMU.

That /dev/kvm opens says little: some hosts have one that cannot run an ordinary kernel. So the
image's own kernel is started on it, without a disk: where KVM works it gives up after a second, for
want of a root file system, and where it does not the time runs out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from ..core.commands import CommandError, run
from ..core.files import write_atomically

KVM = ("-accel", "kvm", "-cpu", "host")
# Each vector instruction is translated: what a guest does not see, its libraries do not use.
TCG = (
    "-accel", "tcg,thread=multi",
    "-cpu", "qemu64,+rdrand,+ssse3,+sse4.1,+sse4.2,+popcnt",
)  # fmt: skip
DEVICE = "dev/kvm"
RECORD = Path("/run/baremetal-mpi-roce/kvm.json")
PROBE_S = 12.0


class AcceleratorError(Exception):
    """KVM was asked for and does not work here; the text says what was seen."""


def choose(
    wanted: str,
    emulator: Sequence[str],
    kernel: Path,
    *,
    root: Path = Path("/"),
    record: Optional[Path] = None,
) -> tuple[str, ...]:
    """QEMU's words for the accelerator: `wanted` is auto, kvm or tcg."""
    if wanted == "tcg":
        return TCG
    problem = kvm_problem(emulator, kernel, root=root, record=record or RECORD)
    if not problem:
        return KVM
    if wanted == "kvm":
        raise AcceleratorError(
            f"virtual_nodes_accelerator is kvm, which does not work here: {problem}. Set it to "
            "auto or tcg: slower, and it works anywhere."
        )
    return TCG


def kvm_problem(emulator: Sequence[str], kernel: Path, *, root: Path, record: Path) -> str:
    """Why KVM cannot be used, or nothing. Tried once per boot of the host, emulator and kernel."""
    if not (root / DEVICE).exists():
        return f"there is no /{DEVICE}"
    subject = f"{' '.join(emulator)} {kernel.name}"
    known = _remembered(record)
    if subject not in known:
        known[subject] = _try(emulator, kernel)
        record.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(record, json.dumps(known, indent=2) + "\n", 0o644, 0, 0)
    return known[subject]


def _remembered(record: Path) -> dict[str, str]:
    try:
        return dict(json.loads(record.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError):
        return {}


def _try(emulator: Sequence[str], kernel: Path) -> str:
    command = [
        *emulator, *KVM, "-machine", "q35", "-m", "256", "-nodefaults", "-no-user-config",
        "-display", "none", "-serial", "stdio", "-no-reboot",
        "-kernel", str(kernel), "-append", "console=ttyS0 panic=-1",
    ]  # fmt: skip
    try:
        printed = run(command, timeout_s=PROBE_S).stdout
    except CommandError as error:
        return str(error).splitlines()[0].replace(" ".join(command), "a kernel started on it")
    return "" if "Linux version" in printed else "a kernel started on it printed nothing"
