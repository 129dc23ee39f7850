# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Query NVML and print the answer as JSON: `python3 -I -c THIS PYNVML.PY`.

A separate process, because a library call into a hung driver never returns.
"""

from __future__ import annotations

import importlib
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

MOST_LINKS = 36
NO_SUCH_LINK = (2, 3)
"""NVML's errors "invalid argument" and "not supported"."""


def text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def ask(nvml: Any) -> dict[str, Any]:
    """The library's version and the links of every GPU; an error is part of the answer."""
    answer: dict[str, Any] = {"error": "", "library": "", "gpus": []}
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        answer["error"] = text(error)
    with suppress(nvml.NVMLError):  # available even if kernel module and library do not match
        answer["library"] = text(nvml.nvmlSystemGetNVMLVersion())
    if answer["error"]:
        return answer
    try:
        answer["gpus"] = [gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError as error:
        answer["error"] = text(error)
    return answer


def gpu(nvml: Any, index: int) -> dict[str, Any]:
    found: dict[str, Any] = {"index": index, "pci": "", "links": [], "error": ""}
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        found["pci"] = text(nvml.nvmlDeviceGetPciInfo(handle).busId)
        for link in range(MOST_LINKS):
            try:
                found["links"].append(bool(nvml.nvmlDeviceGetNvLinkState(handle, link)))
            except nvml.NVMLError as error:
                if error.value not in NO_SUCH_LINK:
                    raise
                break
    except nvml.NVMLError as error:
        found["error"] = text(error)
    return found


if __name__ == "__main__":
    sys.path.insert(0, str(Path(sys.argv[1]).parent))
    sys.stdout.write(json.dumps(ask(importlib.import_module("pynvml"))))
