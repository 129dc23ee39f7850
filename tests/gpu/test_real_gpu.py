# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Discovery, NVML and parsing on a real GPU, without changes to it."""

from __future__ import annotations

import importlib.util
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import commands
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import STATUSES
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import Node
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.gpu import (
    Gpus,
    GpuTarget,
    evaluate,
    read,
    reading,
    smi,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.gpu.evaluation import NAMES

DEVICE = Path("/dev/nvidiactl")
HERE = Node("gpu", Path("/"), commands.run, None, "this boot")
ELEMENTS = (
    "product_name",
    "uuid",
    "vbios_version",
    "persistence_mode",
    "performance_state",
    "gpu_recovery_action",
    "ecc_mode/current_ecc",
    "mig_mode/current_mig",
    "ecc_errors/volatile/dram_uncorrectable",
    "ecc_errors/aggregate/dram_uncorrectable",
    "clocks_event_reasons",
    "fabric/state",
    "fabric/status",
)
"""Elements of every data-centre GPU, with any value. A new driver that renames one fails here."""

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not DEVICE.exists(), reason=f"no NVIDIA GPU: {DEVICE} does not exist"),
]


def pynvml() -> Path:
    spec = importlib.util.find_spec("pynvml")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin)


@pytest.fixture(scope="module")
def seen() -> Gpus:
    return read(HERE, Path("/"), pynvml())


def test_the_driver_answers_for_every_gpu(seen: Gpus) -> None:
    smi_output = seen.smi
    assert (smi_output.error, smi_output.hung, smi_output.mismatch) == ("", False, False)
    assert smi_output.gpus and not seen.simulated
    for gpu in smi_output.gpus:
        assert gpu.pci and gpu.text("uuid").startswith("GPU-") and not gpu.lost
        assert all(gpu.text(path) for path in ("product_name", "vbios_version"))
        assert gpu.text("performance_state")
        assert gpu.flag("ecc_mode/current_ecc") is not None


def test_gpus_of_the_driver_are_on_the_bus(seen: Gpus) -> None:
    assert {gpu.pci for gpu in seen.smi.gpus} <= {function.pci for function in seen.machine.gpus}


def test_nvml_answers_for_the_same_gpus(seen: Gpus) -> None:
    answer = reading.ask_nvml(commands.run, pynvml())
    assert answer.error == ""
    assert {*answer.links, *answer.errors} == {gpu.pci for gpu in seen.smi.gpus}


def test_kernel_module_and_library_have_the_same_version(seen: Gpus) -> None:
    assert seen.driver.module
    assert seen.nvml.library == seen.driver.module


def test_no_element_was_renamed() -> None:
    text = commands.run(smi.COMMAND).stdout
    log = ET.fromstring(text[text.index("<?xml") :])
    for gpu in log.findall("gpu"):
        assert [path for path in ELEMENTS if gpu.find(path) is None] == []


def test_every_check_is_evaluated(seen: Gpus) -> None:
    model = [{"index": gpu.index, "pci": gpu.pci, "numa": None} for gpu in seen.smi.gpus]
    target = GpuTarget(seen.driver.module, model, fabric=False, nvlinks=0, pcie_gts=0)
    checks = evaluate(seen, target, HERE).checks
    assert {check.name for check in checks} == set(NAMES)
    assert {check.status for check in checks} <= set(STATUSES)
