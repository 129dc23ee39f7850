# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One look at a node's GPUs: bounded in time, reads only, raises nothing about GPUs."""

from __future__ import annotations

import json
import os
import pkgutil
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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
"""How the product name of a stand-in ends."""
FABRIC_MANAGER = "nvidia-fabricmanager.service"
PERSISTENCED = "nvidia-persistenced.service"
PROPERTIES = ("ActiveState", "LoadState", "UnitFileState", "Result")
ACTIVE = "active"
DMABUF_KERNEL = (5, 12)
OPEN = "Open Kernel Module"
OPEN_LICENCE = "Dual MIT/GPL"
_VERSION = re.compile(r"\d{3}\.\d+(?:\.\d+)?")

JOURNAL = (
    *("journalctl", "-k", "-b", "-o", "json", "--no-pager", "--output-fields=MESSAGE"),
    *("--quiet", "--lines=50000"),
)
RECORDED = "var/log/kernel.json"
"""The kernel log of a stand-in, below its hardware root: journalctl would show the host's."""
_XID = re.compile(
    r"NVRM: Xid \(PCI:([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2})(\.[0-7])?\): (\d+)[,:]?\s*(.*)",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True)
class Driver:
    """The driver's parts. Each may be of another version until the next reboot."""

    module: str
    """Version of the kernel module that runs; empty when none is loaded."""
    open: bool
    """Whether that is the open one."""
    on_disk: str
    """Version of the kernel module that the next boot loads."""
    on_disk_open: bool
    fabric_manager: str
    """Version of the fabric manager on disk, or why it is not known."""
    kernel: str
    """Release of the kernel that runs."""


@dataclass(frozen=True)
class Nvml:
    """What NVML answered. `error` is why it did not."""

    error: str = ""
    absent: bool = False
    """The module that asks NVML is not on the node yet."""
    library: str = ""
    """Version of the library without CUDA's: `580.95.05`."""
    links: Mapping[str, Sequence[bool]] = field(default_factory=dict)
    """PCI address to its NVLinks in order, active or not."""
    errors: Mapping[str, str] = field(default_factory=dict)
    """PCI address, or `GPU 3`, to the error of NVML for its NVLinks."""


class Xid(NamedTuple):
    """One error that the driver wrote to the kernel log (`NVRM: Xid`)."""

    number: int
    pci: str
    text: str


@dataclass(frozen=True)
class Gpus:
    """What one look at a node found."""

    machine: Machine
    driver: Driver
    smi: Smi
    nvml: Nvml
    services: Mapping[str, str]
    """Unit of systemd to `active`, or to what it is instead."""
    xids: Sequence[Xid]
    """Of this boot."""
    xid_error: str
    """Why the kernel log could not be read."""
    simulated: Sequence[str]
    """What shows that the hardware is simulated, one line each; empty for real hardware."""


def read(node: Node, hardware_root: Path, pynvml: Path) -> Gpus:
    """Read every GPU. What does not answer is in the result, for `judge` to report.

    `pynvml` is the file pynvml.py of nvidia-ml-py on this node. `hardware_root` has `sys` and
    `proc` below it: `/`, or the tree of a stand-in. Raises SurveyError where it has not.
    """
    run, machine, found = node.look, survey(hardware_root / "sys"), smi.ask(node.look)
    unasked = Nvml(error="not asked, as nvidia-smi does not answer")
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
            yield f"nvidia-smi is a stand-in: {count} x {product}"


def read_driver(run: Runner, root: Path) -> Driver:
    return Driver(
        module=tree.text(root / "sys/module/nvidia/version"),
        open=OPEN in tree.text(root / "proc/driver/nvidia/version"),
        on_disk=_modinfo(run, "version"),
        on_disk_open=_modinfo(run, "license") == OPEN_LICENCE,
        fabric_manager=_fabric_manager(run),
        kernel=tree.text(root / "proc/sys/kernel/osrelease") or os.uname().release,
    )


def _modinfo(run: Runner, name: str) -> str:
    """A field of the module that modprobe would load; nothing where there is none."""
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
    """Ask NVML in a process that can be ended; whatever goes wrong is part of the answer."""
    if not pynvml.is_file():
        return Nvml(error=f"{pynvml} (nvidia-ml-py) is not there", absent=True)
    # Modules reach a node as an archive with what they import; the probe is not a file there.
    program = pkgutil.get_data(nvml_probe.__name__.rpartition(".")[0], "nvml_probe.py") or b""
    try:
        result = run([sys.executable, "-I", "-c", program.decode(), str(pynvml)], check=False)
    except CommandError as error:
        # Not the whole program that it would quote.
        return Nvml(error=f"asking NVML: {str(error).rsplit(': ', 1)[-1]}")
    try:
        answer = json.loads(result.stdout)
    except ValueError:
        last = (result.stderr.strip() or result.stdout.strip() or "no output").splitlines()[-1]
        return Nvml(error=f"asking NVML through {pynvml}: exit status {result.rc}: {last[:300]}")
    places = {each["index"]: smi.address(each["pci"]) for each in answer["gpus"]}
    return Nvml(
        error=answer["error"],
        library=library_version(answer["library"]),
        links={
            places[each["index"]]: each["links"] for each in answer["gpus"] if not each["error"]
        },
        errors={
            places[each["index"]] or f"GPU {each['index']}": each["error"]
            for each in answer["gpus"]
            if each["error"]
        },
    )


def library_version(text: str) -> str:
    """`580.95.05` of `13.580.95.05`: NVML puts the version of CUDA before its own."""
    first, _dot, rest = text.partition(".")
    return rest if len(first) < 3 else text


def read_xids(run: Runner, root: Path) -> tuple[list[Xid], str]:
    """Every Xid in the last messages of this boot; or none, and why that is not known."""
    try:
        text = run(JOURNAL).stdout if root == Path("/") else (root / RECORDED).read_text("utf-8")
    except (CommandError, OSError) as error:
        return [], str(error)
    # By newlines alone: a message may hold other characters that end lines.
    messages = [_message(line) for line in text.split("\n") if line.strip()]
    if not messages:
        return [], "the journal has no kernel message of this boot"
    return [xid for xid in map(xid_of, messages) if xid], ""


def _message(line: str) -> str:
    try:
        message = json.loads(line).get("MESSAGE")
    except ValueError:  # the last line of a log that is cut
        return ""
    if isinstance(message, list):  # not UTF-8: journalctl gives the bytes
        return bytes(message).decode("utf-8", "replace")
    return str(message)


def xid_of(message: str) -> Optional[Xid]:
    """The Xid of one line of the kernel log, or None."""
    match = _XID.search(message)
    if match is None:
        return None
    domain, card, function, number, text = match.groups()
    pci = f"{int(domain, 16):04x}:{card}{function or '.0'}".lower()
    return Xid(int(number), pci, " ".join(text.split())[:200])


def kernel_version(release: str) -> tuple[int, int]:
    """(6, 8) of `6.8.0-79-generic`."""
    match = re.match(r"(\d+)\.(\d+)", release)
    return (int(match[1]), int(match[2])) if match else (0, 0)
