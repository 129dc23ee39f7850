# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One look at a node's GPUs: bounded in time, reads only, raises nothing about GPUs."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Optional

from ..commands import CommandError, NoAnswerError, Runner
from ..hardware import survey
from . import nvml, smi
from .driver import read_driver, read_services
from .found import SIMULATED, Gpu, Gpus, Nvml, Xid
from .smi import Smi

# Errors that the driver wrote to the kernel log since the boot (`NVRM: Xid`).

COMMAND = (
    *("journalctl", "-k", "-b", "-o", "json", "--no-pager", "--output-fields=MESSAGE"),
    "--quiet",
)
RECORDED = "var/log/kernel.json"
"""The kernel log of a stand-in, below its hardware root: journalctl would show the host's."""

_XID = re.compile(
    r"NVRM: Xid \(PCI:([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?\): "
    r"(\d+)[,:]?\s*(.*)",
    re.IGNORECASE | re.DOTALL,
)


def read_xids(run: Runner, root: Path) -> tuple[tuple[Xid, ...], str]:
    """Every Xid of this boot; or none, and why that is not known."""
    if root != Path("/"):
        path = root / RECORDED
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            return (), f"{path}: {error.strerror}"
    else:
        try:
            text = run(COMMAND).stdout
        except CommandError as error:
            return (), str(error)
    messages = list(_messages(text))
    if not messages:
        return (), "the journal has no kernel message of this boot"
    found = (xid_of(message) for message in messages)
    return tuple(xid for xid in found if xid is not None), ""


def _messages(text: str) -> Iterator[str]:
    for line in text.splitlines():
        try:
            message: Any = json.loads(line)["MESSAGE"]
        except (ValueError, KeyError, TypeError):
            continue
        if isinstance(message, list):  # not UTF-8: journalctl gives the bytes
            message = bytes(byte for byte in message if isinstance(byte, int) and byte < 256)
            message = message.decode("utf-8", "replace")
        yield str(message)


def xid_of(message: str) -> Optional[Xid]:
    """The Xid of one line of the kernel log, or None."""
    match = _XID.search(message)
    if match is None:
        return None
    domain, bus, device, function, number, text = match.groups()
    pci = f"{int(domain, 16):04x}:{bus}:{device}.{function or '0'}".lower()
    return Xid(int(number), pci, " ".join(text.split())[:200])


FABRIC_MANAGER = "nvidia-fabricmanager.service"
PERSISTENCED = "nvidia-persistenced.service"


def read(run: Runner, hardware_root: Path, pynvml: Path) -> Gpus:
    """Read every GPU. What does not answer is in the result, for `judge` to say.

    `run` bounds each command; `pynvml` is the file pynvml.py of nvidia-ml-py on this node.
    `hardware_root` has `sys` and `proc` below it: `/`, or the tree of a stand-in; SurveyError says
    when it has not.
    """
    machine = survey(hardware_root / "sys")
    driver = read_driver(run, hardware_root)
    said, hung = _smi(run)
    if hung:
        answer = Nvml(error="not asked, as nvidia-smi does not answer")
    else:
        answer = nvml.ask(run, pynvml)
    fabric_manager, persistenced = read_services(run, (FABRIC_MANAGER, PERSISTENCED))
    xids, xid_error = read_xids(run, hardware_root)
    return Gpus(
        machine=machine,
        driver=driver,
        gpus=said.gpus,
        error=said.error,
        hung=hung,
        mismatch=said.mismatch,
        unreachable=said.unreachable,
        warnings=said.warnings,
        nvml=answer,
        fabric_manager=fabric_manager,
        persistenced=persistenced,
        xids=xids,
        xid_error=xid_error,
        simulated=tuple(_simulated(hardware_root, said.gpus)),
    )


def _smi(run: Runner) -> tuple[Smi, bool]:
    """What nvidia-smi said, and whether it hung."""
    try:
        result = run(smi.COMMAND, check=False)
    except NoAnswerError as error:
        return Smi(error=str(error)), True
    except CommandError as error:
        return Smi(error=str(error)), False
    return smi.parse(result.rc, result.stdout or result.stderr), False


def _simulated(root: Path, gpus: Sequence[Gpu]) -> Iterator[str]:
    if root != Path("/"):
        yield f"GPU hardware is read below {root}, not from this machine"
    products = Counter(gpu.product for gpu in gpus if gpu.product.endswith(SIMULATED))
    for product, count in sorted(products.items()):
        yield f"nvidia-smi is a stand-in: {count} x {product}"
