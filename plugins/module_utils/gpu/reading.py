# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One reading of a node's GPUs: bounded in time, read-only; GPU faults are part of the result."""

from __future__ import annotations

import json
import os
import pkgutil
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Optional

from ..core import systemd
from ..core.commands import CommandError, Runner
from ..core.part import Node
from ..hardware import Machine, survey, tree
from . import nvml_probe, smi
from .smi import Smi

SIMULATED = "(simulated)"
FABRIC_MANAGER = "nvidia-fabricmanager.service"
PERSISTENCED = "nvidia-persistenced.service"
PROPERTIES = ("ActiveState", "LoadState", "UnitFileState", "Result")
ACTIVE = "active"
DMABUF_KERNEL = (5, 12)
OPEN = "Open Kernel Module"
OPEN_LICENCE = "Dual MIT/GPL"
_VERSION = re.compile(r"\d{3}\.\d+(?:\.\d+)?")

RESET_TAG = "nvsentinel-gpu-reset"
"""Syslog tag of NVSentinel's reset job (NVIDIA/NVSentinel pull 1240 and 1475): _RESET."""
JOURNAL = (
    *("journalctl", "-b", "-o", "json", "--no-pager", "--output-fields=MESSAGE", "--quiet"),
    *("--lines=50000", "_TRANSPORT=kernel", "+", f"SYSLOG_IDENTIFIER={RESET_TAG}", "_UID=0"),
)
RECORDED = "var/log/kernel.json"
# Lines of NVIDIA/open-gpu-kernel-modules 595.45.04 (df1c9a3d): kernel_rc.c, gpu.c,
# kern_gpu_error_cont_ga100.c, common_nvswitch.h.
_AT = r"(?:PCI:)?([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2})(\.[0-7])?"
_XID = re.compile(
    rf"\b(S?)Xid \({_AT}(?: GPU-I:\d+)?(?: GPU-CI:\d+)?\): (\d{{1,6}})[,:]?\s*(.*)",
    re.IGNORECASE | re.DOTALL,
)
_LOADED = re.compile(r"NVRM: loading NVIDIA UNIX .*Kernel Module")
_NEW = re.compile(rf"NVRM: GPU at {_AT}: (GPU-[0-9a-f-]+)", re.IGNORECASE)
"""Logged when the driver initialises a GPU, before its first Xid."""
_RESET = re.compile(
    r"GPU reset executed: (GPU-[0-9a-f-]+|all)\b(?:, success: (\w+))?", re.IGNORECASE
)
"""Operators write `all` (docs/gpu.md): NVSwitches have no UUID, and are reset with all GPUs."""
LONGEST = 300


@dataclass(frozen=True)
class DriverState:
    module: str
    open: bool
    on_disk: str
    """Version of the kernel module that the next boot loads."""
    on_disk_open: bool
    fabric_manager: str
    """Version of the fabric manager on disk, or the reason why it is unknown."""
    kernel: str


@dataclass(frozen=True)
class Nvml:
    """NVML's answer, or the `error` that prevented it."""

    error: str = ""
    absent: bool = False
    """pynvml.py is not on the node yet."""
    library: str = ""
    links: Mapping[str, Sequence[bool]] = field(default_factory=dict)
    """PCI address to its NVLinks in order, active or not."""
    errors: Mapping[str, str] = field(default_factory=dict)
    """PCI address, or `GPU 3`, to NVML's error."""


class Xid(NamedTuple):
    number: int
    pci: str
    text: str
    switch: bool = False
    """An SXid; `pci` is the NVSwitch's address."""


@dataclass(frozen=True)
class Gpus:
    machine: Machine
    driver: DriverState
    smi: Smi
    nvml: Nvml
    services: Mapping[str, str]
    xids: Sequence[Xid]
    xid_error: str
    simulated: Sequence[str]
    """Evidence that the hardware is simulated, one line each."""


def read(node: Node, hardware_root: Path, pynvml: Path) -> Gpus:
    """Read every GPU; missing answers are part of the result.

    `hardware_root` contains `sys` and `proc`, of simulated hardware if it is not `/`. Raises
    SurveyError if it does not.
    """
    run, machine, found = node.look, survey(hardware_root / "sys"), smi.ask(node.look)
    unasked = Nvml(error="not asked, as nvidia-smi does not respond")
    xids, xid_error = read_xids(run, hardware_root)
    return Gpus(
        machine=machine,
        driver=read_driver(run, hardware_root),
        smi=found,
        nvml=unasked if found.hung else ask_nvml(run, pynvml),
        services={unit: _service(node, unit) for unit in (FABRIC_MANAGER, PERSISTENCED)},
        xids=xids,
        xid_error=xid_error,
        simulated=list(_simulated(hardware_root, found)),
    )


def _service(node: Node, unit: str) -> str:
    values = systemd.show(node, unit, PROPERTIES)
    active, *more = (values.get(key, "") for key in PROPERTIES)
    return active if active == ACTIVE else f"{active} ({', '.join(more)})"


def _simulated(root: Path, found: Smi) -> Iterator[str]:
    if root != Path("/"):
        yield f"GPU hardware is read below {root}, not from this machine"
    products = Counter(gpu.text("product_name") for gpu in found.gpus)
    for product, count in sorted(products.items()):
        if product.endswith(SIMULATED):
            yield f"nvidia-smi is simulated: {count} x {product}"


def read_driver(run: Runner, root: Path) -> DriverState:
    return DriverState(
        module=tree.text(root / "sys/module/nvidia/version"),
        open=OPEN in tree.text(root / "proc/driver/nvidia/version"),
        on_disk=_modinfo(run, "version"),
        on_disk_open=_modinfo(run, "license") == OPEN_LICENCE,
        fabric_manager=_fabric_manager(run),
        kernel=tree.text(root / "proc/sys/kernel/osrelease") or os.uname().release,
    )


def _modinfo(run: Runner, name: str) -> str:
    """A field of the module that modprobe would load, or nothing."""
    try:
        return run(["modinfo", "-F", name, "nvidia"]).stdout.strip().partition("\n")[0]
    except CommandError:
        return ""


def _fabric_manager(run: Runner) -> str:
    try:
        result = run(["nv-fabricmanager", "--version"], check=False)
    except CommandError as error:
        return str(error)
    output = " ".join((result.stdout + result.stderr).split())
    match = _VERSION.search(output)
    return match.group() if match else f"exit status {result.rc}: {output[:200]}"


def ask_nvml(run: Runner, pynvml: Path) -> Nvml:
    if not pynvml.is_file():
        return Nvml(error=f"{pynvml} (nvidia-ml-py) is missing", absent=True)
    # Modules reach a node in an archive, so the probe is not a file there.
    program = pkgutil.get_data(nvml_probe.__name__.rpartition(".")[0], "nvml_probe.py") or b""
    try:
        result = run([sys.executable, "-I", "-c", program.decode(), str(pynvml)], check=False)
    except CommandError as error:
        # Drop the program's text, which the error quotes.
        return Nvml(error=f"asking NVML: {str(error).rsplit(': ', 1)[-1]}")
    try:
        answer = json.loads(result.stdout)
    except ValueError:
        last = (result.stderr.strip() or result.stdout.strip() or "no output").splitlines()[-1]
        return Nvml(error=f"asking NVML through {pynvml}: exit status {result.rc}: {last[:300]}")
    at = {smi.address(each["pci"]) or f"GPU {each['index']}": each for each in answer["gpus"]}
    return Nvml(
        error=answer["error"],
        library=re.sub(r"^\d{1,2}\.", "", answer["library"]),  # CUDA's version is its prefix
        links={pci: each["links"] for pci, each in at.items() if not each["error"]},
        errors={pci: each["error"] for pci, each in at.items() if each["error"]},
    )


def read_xids(run: Runner, root: Path) -> tuple[list[Xid], str]:
    """Errors since boot that no reset has cleared, or the reason why they are unknown."""
    try:
        text = run(JOURNAL).stdout if root == Path("/") else (root / RECORDED).read_text("utf-8")
    except (CommandError, OSError) as error:
        return [], str(error)
    # Split only at newlines: messages may contain other line separators.
    messages = [_message(line) for line in text.split("\n") if line.strip()]
    if not messages:
        return [], "the journal has no kernel message of this boot"
    return of_log(messages), ""


def _message(line: str) -> str:
    try:
        message = json.loads(line).get("MESSAGE")
    except ValueError:  # the last line of a truncated log
        return ""
    if isinstance(message, list):  # not UTF-8: journalctl prints bytes
        return bytes(message).decode("utf-8", "replace")
    return str(message)


def xid_of(message: str) -> Optional[Xid]:
    match = _XID.search(message)
    if match is None:
        return None
    switch, domain, card, function, number, text = match.groups()
    said = " ".join(text.split())[:LONGEST]
    return Xid(int(number), _pci(domain, card, function), said, bool(switch))


def _pci(domain: str, card: str, function: Optional[str]) -> str:
    return f"{int(domain, 16):04x}:{card}{function or '.0'}".lower()


def of_log(messages: Iterable[str]) -> list[Xid]:
    """Errors since the driver was loaded, except those of a GPU before its last reset."""
    found: list[Xid] = []
    known: dict[str, str] = {}
    for message in messages:
        xid, new, reset = xid_of(message), _NEW.search(message), _RESET.search(message)
        gone = None
        if xid:
            found.append(xid)
        elif _LOADED.search(message):
            found.clear()
        elif new:
            gone = known[new[4].lower()] = _pci(*new.group(1, 2, 3))
        elif reset and (reset[2] or "true").lower() == "true":
            gone = known.get(reset[1].lower())
            if reset[1].lower() == "all":
                found.clear()
        if gone:
            found = [each for each in found if each.pci != gone or each.switch]
    return found


def kernel_version(release: str) -> tuple[int, int]:
    match = re.match(r"(\d+)\.(\d+)", release)
    return (int(match[1]), int(match[2])) if match else (0, 0)
