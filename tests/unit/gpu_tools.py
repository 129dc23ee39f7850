# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A node whose tools answer from the files of a state (tests/hardware/gpu_states.py)."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional
from unittest import mock

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    NoAnswerError,
    Result,
    Runner,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import Node
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.gpu import (
    GpuFindings,
    Gpus,
    GpuTarget,
    evaluate,
    nvml_probe,
    read,
    reading,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware import survey

from tests.hardware.gpu_states import GPUS, HANG, NICS, VERSION, State, save, state
from tests.hardware.trees import MEMORY, scratch
from tools.record_hardware import Directory, build, dump

MODEL_GPUS = [
    {"index": index, "pci": pci, "numa": 0 if index < 4 else 1} for index, pci in enumerate(GPUS)
]
MODEL_RAILS = [
    {"rail": index, "plane": 0, "interface": f"rail{index}", "pci": pci, "gpu": index}
    for index, pci in enumerate(NICS)
]


def unused(argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None) -> Result:
    raise CommandError(f"{argv[0]}: evaluation runs no program")


def wanted(**more: Any) -> GpuTarget:
    """Desired state for a node of the reference cluster."""
    return GpuTarget(**{"driver": VERSION, "gpus": MODEL_GPUS, "rails": MODEL_RAILS, **more})


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


class FakeNvml:
    """The part of pynvml that the probe uses, with answers from nvml.txt."""

    NVMLError = NVMLError

    def __init__(self, path: Path) -> None:
        lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
        self.code = next(int(line[1]) for line in lines if line[0] == "init")
        self.library = next(line[1] for line in lines if line[0] == "library")
        self.gpus = [(line[1], line[3]) for line in lines if line[0] == "gpu"]

    def nvmlInit(self) -> None:
        if self.code:
            raise NVMLError(self.code)

    def nvmlShutdown(self) -> None:
        pass

    def nvmlSystemGetNVMLVersion(self) -> str:
        return self.library

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:
        class Info:
            busId = self.gpus[handle][0].encode()

        return Info

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:
        links = self.gpus[handle][1]
        if link >= len(links):
            raise NVMLError(2)
        return int(links[link])


class Tools:
    """Answers like the tools of the node; runs nothing."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.asked: list[tuple[str, ...]] = []

    def __call__(
        self, argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None
    ) -> Result:
        self.asked.append(tuple(argv))
        rc, stdout = self.answer(tuple(argv))
        if check and rc:
            raise CommandError(f"{argv[0]}: exit status {rc}")
        return Result(tuple(argv), rc, stdout, "")

    def answer(self, argv: tuple[str, ...]) -> tuple[int, str]:
        name = Path(argv[0]).name
        if name == "nvidia-smi":
            rc = self.text("nvidia-smi.rc").strip()
            if rc == HANG:
                raise NoAnswerError(" ".join(argv), 60.0)
            return int(rc), self.text("nvidia-smi.xml")
        if name == "nv-fabricmanager":
            return 0, self.text("nv-fabricmanager.txt")
        if name == "modinfo":
            version, licence = self.text("modinfo.txt").splitlines()
            return 0, f"{version if argv[2] == 'version' else licence}\n"
        if name == "systemctl":
            (line,) = (x for x in self.lines("services.txt") if x.startswith(argv[2]))
            keys = ("Id", "LoadState", "ActiveState", "UnitFileState", "Result")
            return 0, "".join(f"{key}={value}\n" for key, value in zip(keys, line.split()))
        if "-c" in argv:
            return 0, json.dumps(nvml_probe.ask(FakeNvml(self.directory / "nvml.txt")))
        raise CommandError(f"{argv[0]}: not installed")

    def lines(self, name: str) -> list[str]:
        return self.text(name).splitlines()

    def text(self, name: str) -> str:
        return (self.directory / name).read_text(encoding="utf-8")


class Trees:
    """Trees of /sys, built once, as each has two thousand files."""

    def __init__(self) -> None:
        self.below = tempfile.TemporaryDirectory(dir=MEMORY)
        self.built: dict[str, Path] = {}

    def __call__(self, tree: Directory) -> Path:
        key = "\n".join(dump(tree))
        if key not in self.built:
            self.built[key] = Path(self.below.name) / str(len(self.built))
            build(tree, self.built[key])
        return self.built[key]


tree_of = Trees()
surveyed = functools.cache(survey)
"""A reading of an unchanged tree."""


@functools.cache
def look_at(name: str) -> Gpus:
    """The reading of a node in the state with this name."""
    return look(state(name))


def look(found: State | str) -> Gpus:
    """The reading of a node in a state."""
    if isinstance(found, str):
        return look_at(found)
    with scratch() as directory:
        save(found, directory / "state", tree_of(found.sys))
        pynvml = directory / "pynvml.py"
        pynvml.touch()
        with mock.patch.object(reading, "survey", lambda root: surveyed(root.resolve())):
            return read(node(Tools(directory / "state")), directory / "state/root", pynvml)


def node(run: Runner, **more: Any) -> Node:
    given = {"layer": "gpu", "root": Path("/"), "run": run, "container": None, "boot_id": "boot-2"}
    return Node(**{**given, **more})  # type: ignore[arg-type]


def verdict(found: State | str, check_mode: bool = False, **more: Any) -> GpuFindings:
    """Findings about a node in that state."""
    return evaluate(look(found), wanted(**more), node(unused, check_mode=check_mode))
