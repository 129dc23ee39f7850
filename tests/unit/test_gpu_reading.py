# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Reading GPUs: output of healthy, failing and interrupted tools."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import commands
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    NoAnswerError,
    Result,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.gpu import reading, smi

from tests.hardware.gpu_states import GPUS, save, state
from tests.unit.gpu_tools import look


def printed(tmp_path: Path, name: str) -> str:
    save(state(name), tmp_path / name)
    return (tmp_path / name / "nvidia-smi.xml").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> str:
    return printed(tmp_path_factory.mktemp("smi"), "healthy")


def test_every_gpu_is_read_in_full(healthy: str) -> None:
    found = smi.parse(0, healthy)
    assert (found.error, found.warnings, found.unreachable) == ("", (), {})
    assert [gpu.pci for gpu in found.gpus] == list(GPUS)
    assert [gpu.index for gpu in found.gpus] == list(range(8))
    gpu = found.gpus[7]
    assert (gpu.text("product_name"), gpu.lost) == ("NVIDIA B300 SXM6 AC", "")
    assert (gpu.persistence, gpu.flag("remapped_rows/remapped_row_failure")) == (True, False)
    assert gpu.number("pci/pci_gpu_link_info/link_widths/current_link_width") == 16


@pytest.mark.parametrize(
    "line, address",
    [
        ("Unable to determine the device handle for GPU5: 0000:AD:00.0: Unknown Error", GPUS[5]),
        ("Unable to determine the device handle for GPU 0000:AD:00.0: GPU is lost.", GPUS[5]),
        ("Unable to determine the device handle for GPU1: Unknown Error", "GPU1"),
    ],
)
def test_a_gpu_that_cannot_be_opened_is_named(healthy: str, line: str, address: str) -> None:
    for text in (line, f"{line}\n{healthy}"):
        assert smi.parse(255, text).unreachable == {address: line}


def test_nvml_that_hangs_is_an_answer_too(tmp_path: Path) -> None:
    def hang(argv: Any, **_more: Any) -> Result:
        raise NoAnswerError("x" * 5000, 60.0)

    path = tmp_path / "pynvml.py"
    path.touch()
    assert reading.ask_nvml(hang, path).error == "asking NVML: no answer within 60 s"


def test_nvml_is_not_asked_when_nvidia_smi_hangs() -> None:
    seen = look("hung")
    assert seen.smi.hung and "nvidia-smi does not respond" in seen.nvml.error


@pytest.mark.parametrize(
    "line, number, pci",
    [
        ("NVRM: Xid (PCI:0000:AD:00): 79, pid=1, GPU has fallen off the bus.", 79, GPUS[5]),
        ("[ 12.3] NVRM: Xid (PCI:0000:ad:00.0): 48, DBE", 48, GPUS[5]),
        ("NVRM: Xid (PCI:00000001:ad:00): 63", 63, "0001:ad:00.0"),
    ],
)
def test_xids_are_found(line: str, number: int, pci: str) -> None:
    found = reading.xid_of(line)
    assert found is not None and (found.number, found.pci) == (number, pci)


def test_journal_with_bytes_line_separators_and_truncation() -> None:
    """Python ends a line at U+2028, journalctl does not."""
    messages = [
        list("NVRM: Xid (PCI:0000:ad:00): 62, \xff".encode("latin-1")),
        f"NVRM: Xid (PCI:{GPUS[5][:-2]}): 63, of\u2028two lines",
        None,
    ]
    lines = [json.dumps({"MESSAGE": each}, ensure_ascii=False) for each in messages]
    answer = Result((), 0, "\n".join([*lines, '{"MESSAGE": "cut']), "")
    found, error = reading.read_xids(lambda argv, **_more: answer, Path("/"))
    assert error == ""
    assert [(xid.number, xid.pci) for xid in found] == [(62, GPUS[5]), (63, GPUS[5])]


def test_a_journal_that_fails_or_is_empty_is_an_error() -> None:
    def missing(argv: Any, **_more: Any) -> Result:
        raise CommandError("journalctl: not installed")

    assert reading.read_xids(missing, Path("/"))[1] == "journalctl: not installed"
    nothing = Result((), 0, "", "")
    assert "no kernel message" in reading.read_xids(lambda argv, **_more: nothing, Path("/"))[1]


def test_the_pinned_module_loads_as_a_file() -> None:
    """With a driver it responds, without one it returns an error; it never raises."""
    found = importlib.util.find_spec("pynvml")
    assert found is not None and found.origin is not None
    answer = reading.ask_nvml(commands.run, Path(found.origin))
    assert "exit status" not in answer.error and "understand" not in answer.error
