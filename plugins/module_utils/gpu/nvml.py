# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What NVML says, asked through nvidia-ml-py in a process that can be ended."""

from __future__ import annotations

import json
import pkgutil
import sys
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..commands import CommandError, Runner
from . import nvml_probe
from .found import Nvml
from .smi import address


def program() -> str:
    """The source of the probe; modules reach a node as an archive, where it is no file."""
    package = nvml_probe.__name__.rpartition(".")[0]
    source = pkgutil.get_data(package, "nvml_probe.py")
    if source is None:
        raise OSError("the source of nvml_probe cannot be read")
    return source.decode("utf-8")


def ask(run: Runner, pynvml: Path) -> Nvml:
    """Ask; whatever goes wrong is part of the answer."""
    if not pynvml.is_file():
        return Nvml(error=f"{pynvml} (nvidia-ml-py) is not there", absent=True)
    try:
        result = run([sys.executable, "-I", "-c", program(), str(pynvml)], check=False)
    except CommandError as error:
        # Not the whole program that it would quote.
        return Nvml(error=f"asking NVML: {str(error).rsplit(': ', 1)[-1]}")
    if result.rc != 0:
        last = (result.stderr.strip() or "it printed nothing").splitlines()[-1]
        return Nvml(error=f"asking NVML through {pynvml}: exit status {result.rc}: {last[:300]}")
    try:
        return understood(json.loads(result.stdout))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return Nvml(error=f"asking NVML through {pynvml}: no answer to understand ({error!r})")


def understood(answer: Any) -> Nvml:
    """The probe's JSON."""
    links, errors = {}, {}
    for each in answer["gpus"]:
        pci = address(each["pci"])
        if pci and not each["error"]:
            links[pci] = tuple(bool(link) for link in each["links"])
        else:
            errors[pci or f"GPU {each['index']}"] = str(each["error"])
    return Nvml(
        error=str(answer["error"]),
        code=int(answer["code"]),
        library=library_version(str(answer["library"])),
        links=MappingProxyType(links),
        errors=MappingProxyType(errors),
    )


def library_version(text: str) -> str:
    """`580.95.05` of `13.580.95.05`: NVML puts the version of CUDA before its own."""
    parts = text.split(".")
    return ".".join(parts[1:]) if len(parts) > 2 and len(parts[0]) < 3 else text
