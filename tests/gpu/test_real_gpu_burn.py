# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Products of matrices on a real GPU, and the programs that load it where they are installed."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

import numpy
import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import commands
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.gpu import burn, products

DEVICE = Path("/dev/nvidiactl")
LIBRARY = burn.libraries(Path("/"), os.environ.get("CUDA_LIBRARIES", ""))
ORDER = 2048

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not DEVICE.exists(), reason=f"no NVIDIA GPU: {DEVICE} does not exist"),
    pytest.mark.skipif(not LIBRARY, reason="no libcublas.so; CUDA_LIBRARIES names its directory"),
]


class Corrupting(products.Cuda):
    """Flips the sign of one element of the first product."""

    def multiply(self) -> None:
        super().multiply()
        if not hasattr(self, "done"):
            self.done = True
            place = 4 * (5 * self.order + 7)  # column 5, row 7
            one = self.take("product", (self.order, self.order))
            one[5, 7] = -one[5, 7] - 1
            source = ctypes.c_void_p(one.ctypes.data + place)
            target = ctypes.c_void_p(self.held["product"].value + place)
            self.call(self.runtime.cudaMemcpy, target, source, ctypes.c_size_t(4), 1)


@pytest.fixture(scope="module")
def engine() -> products.Cuda:
    return products.Cuda(numpy, LIBRARY)


@pytest.mark.parametrize("precision", burn.PRECISIONS)
def test_products_are_exact_and_equal_to_those_of_a_cpu(
    engine: products.Cuda, precision: str
) -> None:
    try:
        found = products.burn(numpy, engine, precision, ORDER, 2)
    except products.ProductError as error:
        if precision == "fp8":
            pytest.skip(f"this GPU has no FP8: {error}")
        raise
    assert found["wrong_products"] == 0 and found["products"] > 2
    right = products.burn(numpy, products.Cpu(numpy), precision, ORDER, 0)
    assert found["sha256"] == right["sha256"]
    print(f"{precision}: {found['tflops']:.1f} TFLOP/s in {found['products']} products")


def test_a_changed_element_is_found() -> None:
    found = products.burn(numpy, Corrupting(numpy, LIBRARY), "bf16", ORDER, 0)
    assert found["wrong_products"] == 1
    assert [(wrong["product"], wrong["row"]) for wrong in found["wrong"]] == [(1, 7)]


def test_all_gpus_are_loaded() -> None:
    options = burn.Options(seconds=2, order=ORDER, diag_level=1, python=sys.executable)
    checks, figures = burn.measure(options, commands.run, Path("/"))
    assert [check.line() for check in checks if check.status == "failed"] == []
    for gpu in figures["gpus"]:
        assert {"fp32", "bf16"} <= set(gpu["precisions"])
        assert gpu["load"]["watts"] > 0
