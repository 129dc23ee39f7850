# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Exact products of matrices, and the programs that load GPUs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, ClassVar, Optional

import numpy
import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import Check
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.gpu import burn, products
from ansible_collections.baremetal.mpi_roce.plugins.modules import gpu_burn as module
from hypothesis import given, settings
from hypothesis import strategies as st

GPUS = [
    burn.Gpu(index, f"0000:{index + 1}b:00.0", f"GPU-{index}", f"16500{index}", "NVIDIA B300")
    for index in range(2)
]
ORDER = 64


class Flipping(products.Cpu):
    """A processor that flips one bit of one product."""

    def __init__(self, product: int, place: tuple[int, int], bit: int) -> None:
        super().__init__(numpy)
        self.count, self.at, self.place, self.bit = 0, product, place, bit

    def multiply(self) -> None:
        super().multiply()
        self.count += 1
        if self.count == self.at:
            self.product.view(numpy.uint32)[self.place] ^= 1 << self.bit


@pytest.mark.parametrize("precision", products.LARGEST)
def test_products_are_exact(precision: str) -> None:
    largest = products.LARGEST[precision]
    first, second = (products.inputs(numpy, ORDER, largest, seed) for seed in (1, 2))
    assert {int(first.min()), int(first.max())} == {-largest, largest}
    assert (first != second).any()
    engine = products.Cpu(numpy)
    engine.load(precision, first, second)
    engine.multiply()
    whole = first @ second.T
    assert (engine.product.astype(numpy.int64) == whole).all()
    assert (products.row_sums(first, second) == whole.sum(axis=1)).all()
    assert engine.matrix() == whole.astype(numpy.float32).tobytes()


def test_inputs_are_the_same_everywhere() -> None:
    values = products.inputs(numpy, 4, 8, 1)
    assert values.tolist() == [[-1, 6, 0, 0], [-2, 3, -7, -2], [1, 3, 2, -5], [2, 5, 3, 4]]


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 2),
    st.tuples(st.integers(0, ORDER - 1), st.integers(0, ORDER - 1)),
    st.integers(0, 31),
)
def test_a_flipped_bit_is_found(product: int, place: tuple[int, int], bit: int) -> None:
    engine = Flipping(product, place, bit)
    found = products.burn(numpy, engine, "fp32", ORDER, 0)
    assert (found["products"], found["wrong_products"]) == (2, 1)
    assert [(wrong["product"], wrong["row"]) for wrong in found["wrong"]] == [(product, place[0])]


def test_a_change_that_a_sum_hides_changes_the_hash() -> None:
    right = products.burn(numpy, products.Cpu(numpy), "fp32", ORDER, 0)

    class Exchanging(products.Cpu):
        def multiply(self) -> None:
            super().multiply()
            self.product[4, [7, 8]] = self.product[4, [8, 7]]

    found = products.burn(numpy, Exchanging(numpy), "fp32", ORDER, 0)
    assert found["wrong_products"] == right["wrong_products"] == 0
    assert found["sha256"] != right["sha256"]


def test_an_order_whose_sums_are_not_exact_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "LIMIT", 10)
    answer = products.main(numpy, {"precisions": ["fp32"], "order": ORDER, "seconds": 0})
    assert "2^24" in answer["precisions"]["fp32"]["error"]


@pytest.mark.parametrize(
    ("function", "status", "expected"),
    [
        ("cublasLtMatmul", 15, "not_applicable"),
        ("cublasGemmEx", 8, "not_applicable"),
        ("cublasGemmEx", 13, "failed"),
        ("cudaMemcpy", 15, "failed"),
        ("cudaMemcpy", 214, "failed"),  # cudaErrorECCUncorrectable
    ],
)
def test_a_gpu_that_fails_is_not_one_without_the_precision(
    monkeypatch: pytest.MonkeyPatch, function: str, status: int, expected: str
) -> None:
    def call(*_given: Any) -> int:
        return status

    call.__name__ = function
    gpu = products.Cuda.__new__(products.Cuda)
    monkeypatch.setattr(gpu, "load", lambda *_given: gpu.call(call), raising=False)
    monkeypatch.setattr(products, "Cuda", lambda *_given: gpu)
    gpu.precisions = ("bf16",)
    asked = {"precisions": ["bf16", "fp8"], "order": ORDER, "seconds": 0, "library": "/x"}
    checks = list(burn.products_checks("GPU 1", products.main(numpy, asked)))
    assert [check.status for check in checks] == [expected, "not_applicable"]


def test_a_missing_library_is_an_answer(tmp_path: Path) -> None:
    asked = {"precisions": ["bf16"], "order": ORDER, "seconds": 0, "library": str(tmp_path)}
    answer = products.main(numpy, asked)
    assert answer["engine"] == "cuda" and "libcudart.so" in answer["error"]


def on_cpu(**options: Any) -> tuple[list[Check], dict[str, Any]]:
    return burn.on_cpu(burn.Options(seconds=0, order=ORDER, python=sys.executable, **options))


def test_the_program_runs_as_text() -> None:
    checks, figures = on_cpu()
    assert [(check.name, check.status, check.subject) for check in checks] == [
        ("burn_products", "ok", "CPU fp32")
    ]
    assert figures["gpus"][0]["precisions"]["fp32"]["products"] == 2


def test_a_python_without_numpy_is_named(tmp_path: Path) -> None:
    python = tmp_path / "python3"
    python.write_text("#!/bin/sh\necho 'No module named numpy' >&2; exit 1\n")
    python.chmod(0o755)
    checks, _figures = burn.on_cpu(burn.Options(order=ORDER, python=str(python)))
    assert [(check.status, "numpy" in check.reason) for check in checks] == [("failed", True)]


def test_a_wrong_product_is_corruption() -> None:
    wrong = {"product": 7, "row": 12, "found": 5, "expected": 4}
    of = {"products": 9, "wrong_products": 1, "wrong": [wrong], "tflops": 1.0}
    (check,) = burn.products_checks("GPU 1", {"precisions": {"bf16": of}})
    assert (check.status, check.subject) == ("failed", "GPU 1 bf16")
    assert check.found == "1 of 9 products differ"


@pytest.mark.parametrize(("loaded", "statuses"), [(8, []), (7, ["failed"]), (0, ["failed"])])
def test_a_gpu_that_fell_off_the_bus_is_missed(loaded: int, statuses: list[str]) -> None:
    assert [(check.name, check.status) for check in burn.absent(8, loaded)] == [
        ("burn_products", status) for status in statuses
    ]


def diag(*results: tuple[str, dict[str, Any]], version: int = 4) -> str:
    tests = [{"name": name, "results": [result]} for name, result in results]
    root = "DCGM Diagnostic" if version == 4 else "DCGM GPU Diagnostic"
    return "noise\n" + json.dumps({root: {"test_categories": [{"tests": tests}]}})


PASS = {"entity_group": "GPU", "entity_id": 0, "status": "Pass"}
WARNING = {"warning": "row remapping failure", "error_id": 1, "error_severity": 2}


@pytest.mark.parametrize(
    ("result", "version", "subject", "reason"),
    [
        (
            {"entity_group": "GPU", "entity_id": 1, "status": "Fail", "warnings": [WARNING]},
            4,
            "memory GPU 1 (0000:2b:00.0, serial 165001)",
            "row remapping failure",
        ),
        (
            {"gpu_ids": "1", "status": "Fail", "warnings": ["row remapping failure"]},
            3,
            "memory GPU 1 (0000:2b:00.0, serial 165001)",
            "row remapping failure",
        ),
        (
            {"entity_group": "CPU", "entity_id": 1, "status": "Warn"},
            4,
            "memory CPU 1",
            "DCGM gives no reason",
        ),
    ],
)
def test_a_failed_diagnostic_names_the_gpu(
    result: dict[str, Any], version: int, subject: str, reason: str
) -> None:
    by_index = {gpu.index: gpu for gpu in GPUS}
    text = diag(("software", PASS), ("memory", result), version=version)
    (check,), figures = burn.read_diag(3, 226, text, by_index)
    assert (check.status, check.subject, check.reason) == ("failed", subject, reason)
    assert figures["passed"] == 1


def test_skipped_diagnostics_do_not_pass_the_level() -> None:
    text = diag(("memory", {**PASS, "status": "Skip"}))
    (check,), _figures = burn.read_diag(3, 0, text, {})
    assert check.status == "failed"
    (check,), _figures = burn.read_diag(
        3, 0, diag(("memory", PASS), ("eud", {**PASS, "status": "Skip"})), {}
    )
    assert (check.status, check.found) == ("ok", "1 results pass; skipped: eud")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Error: unable to establish a connection to the specified host: localhost",
        json.dumps({"DCGM Diagnostic": {"runtime_error": "needs a homogeneous group"}}),
        json.dumps({"DCGM Diagnostic": {"test_categories": [{"tests": 4}]}}),
        json.dumps([]),
    ],
)
def test_a_diagnostic_that_cannot_be_read_fails(text: str) -> None:
    (check,), _figures = burn.read_diag(3, 255, text, {})
    assert (check.name, check.status, check.found) == ("burn_diag", "failed", "not read")


def copies(**cases: Any) -> str:
    listed = [{"name": name, **case} for name, case in cases.items()]
    return json.dumps({"nvbandwidth": {"testcases": listed}})


def test_copies_are_read_by_gpu() -> None:
    text = copies(
        host_to_device_memcpy_ce={"status": "Passed", "bandwidth_matrix": [["55.1", "27.4"]]},
        device_to_device_memcpy_read_ce={
            "status": "Passed",
            "bandwidth_matrix": [["N/A", "390.5"], ["388", "N/A"]],
        },
    )
    (check,), figures = burn.read_copies(0, text, 2)
    assert figures == {"host_to_device": [55.1, 27.4], "peer": [388.0, 390.5]}
    assert check.status == "not_applicable"


@pytest.mark.parametrize(
    "text",
    [
        "",
        copies(host_to_device_memcpy_ce={"status": "Error", "error": "CUDA_ERROR_ECC"}),
        copies(host_to_device_memcpy_ce={"status": "Passed", "bandwidth_matrix": [["N/A", "1"]]}),
        copies(unknown={"status": "Passed", "bandwidth_matrix": [["1", "1"]]}),
        json.dumps({"nvbandwidth": {"error": "no GPU"}}),
    ],
)
def test_copies_that_cannot_be_read_fail(text: str) -> None:
    (check,), _figures = burn.read_copies(1, text, 2)
    assert (check.name, check.status) == ("burn_copies", "failed")


def test_load_is_the_median_and_the_highest_temperature() -> None:
    text = "GPU-0, 1900, 700.1, 60\nGPU-0, 1920, 710, 71\nGPU-0, [N/A], 705, 65\nbroken\n"
    assert burn.load(text) == {"GPU-0": {"sm_mhz": 1910, "watts": 705, "celsius": 71}}


def test_the_newest_cuda_is_used(tmp_path: Path) -> None:
    for name in ("cuda-12.9", "cuda-13.1", "cuda"):
        folder = tmp_path / "usr/local" / name / "lib64"
        folder.mkdir(parents=True)
        (folder / "libcublas.so").touch()
    assert burn.libraries(tmp_path, "").endswith("cuda-13.1/lib64")
    assert burn.libraries(tmp_path, "/opt/cuda") == "/opt/cuda"
    assert burn.libraries(tmp_path / "none", "") == ""


@pytest.mark.parametrize(
    ("engine", "gpus", "status"),
    [("podman", 8, "not_applicable"), (None, 8, "failed"), (None, 0, "not_applicable")],
)
def test_a_node_without_a_driver(
    engine: Optional[str], gpus: int, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GPUs of the model of virtual nodes exist only in the model."""
    found: list[Check] = []

    class Module:
        check_mode = False
        params: ClassVar[dict[str, Any]] = {
            name: each.get("default") for name, each in module.ARGUMENTS.items()
        }

        def __init__(self, **_given: Any) -> None:
            self.params["gpus"] = [{"index": index} for index in range(gpus)]

    def end(_module: Any, _layer: str, checks: list[Check], *_rest: Any, **_more: Any) -> None:
        found.extend(checks)
        raise SystemExit

    monkeypatch.setattr(module, "AnsibleModule", Module)
    monkeypatch.setattr(module, "container", lambda _root: engine)
    monkeypatch.setattr(module.burn, "present", lambda _root: False)
    monkeypatch.setattr(module, "end", end)
    with pytest.raises(SystemExit):
        module.main()
    assert [(check.name, check.status) for check in found] == [("burn_products", status)]
