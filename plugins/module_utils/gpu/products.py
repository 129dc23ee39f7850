# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Multiply matrices of small integers on one GPU, and compare every product with the exact result:
`python3 -I -c THIS '{"precisions": ["bf16"], "order": 8192, "seconds": 60, "library": "/usr/..."}'`

Prints one JSON document. Inputs and partial sums are integers that the format represents exactly,
so the result does not depend on the order of additions, the GPU or the library: every difference is
corruption. cuBLAS of the software set multiplies; PyTorch is not needed. Without `library`, numpy
multiplies on the CPU.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import sys
import time
from typing import Any

LARGEST = {"fp32": 16, "bf16": 8, "fp8": 1}
"""Largest input by precision. Sums stay below 2^24, the integers of FP32. FP8 products are summed
with about 14 bits by Hopper's tensor cores (arXiv 2412.19437, section 3.3.2), so its inputs are
-1, 0 and 1: 8192 of them cannot exceed 2^13."""
MOST_ORDER = 8192
MOST_WRONG = 10
"""Wrong rows listed for each precision; the rest are counted."""
LIMIT = 1 << 24


UNSUPPORTED = (8, 15)
"""cuBLAS documentation, cublasStatus_t: ARCH_MISMATCH, NOT_SUPPORTED."""


class ProductError(Exception):
    """The GPU or its library failed; the text gives the call and its status."""


class UnsupportedError(ProductError):
    """The GPU or its library lacks this precision."""


def inputs(numpy: Any, order: int, largest: int, seed: int) -> Any:
    """Integers in [-largest, largest], the same on every machine and with every numpy."""
    place = numpy.arange(order * order, dtype=numpy.uint64) + numpy.uint64(seed * 7919)
    mixed = place * numpy.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> numpy.uint64(29)
    mixed *= numpy.uint64(0xBF58476D1CE4E5B9)
    values = (mixed >> numpy.uint64(33)) % numpy.uint64(2 * largest + 1)
    return values.astype(numpy.int64).reshape(order, order) - largest


def row_sums(first: Any, second: Any) -> Any:
    """Exact sums of the rows of `first @ second.T`."""
    return first @ second.sum(axis=0)


class Cpu:
    """numpy. The product of FP32 only."""

    precisions = ("fp32",)

    def __init__(self, numpy: Any) -> None:
        self.numpy = numpy
        self.product: Any = None

    def load(self, _precision: str, first: Any, second: Any) -> None:
        self.first = first.astype(self.numpy.float32)
        self.second = second.astype(self.numpy.float32)

    def multiply(self) -> None:
        self.product = self.first @ self.second.T

    def sums(self) -> Any:
        return self.product.astype(self.numpy.float64).sum(axis=1)

    def matrix(self) -> bytes:
        data: bytes = self.product.tobytes()
        return data


CUDA_R_32F, CUDA_R_16BF, CUDA_R_8F_E4M3 = 0, 14, 28
CUBLAS_COMPUTE_32F, CUBLAS_OP_N, CUBLAS_OP_T = 68, 0, 1
DEFAULT = -1
"""cuBLAS chooses the algorithm."""
HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2


class Cuda:
    """cuBLAS on the first visible GPU. cuBLAS stores columns contiguously: with `first` and
    `second` in rows, its product of the transposed `second` and `first` has `first @ second.T`
    in columns. FP8 requires that order of operands."""

    precisions = ("fp32", "bf16", "fp8")

    def __init__(self, numpy: Any, library: str) -> None:
        self.numpy = numpy
        self.runtime = ctypes.CDLL(f"{library}/libcudart.so")
        self.lt = ctypes.CDLL(f"{library}/libcublasLt.so", mode=ctypes.RTLD_GLOBAL)
        self.blas = ctypes.CDLL(f"{library}/libcublas.so")
        self.handle, self.lt_handle = ctypes.c_void_p(), ctypes.c_void_p()
        self.call(self.blas.cublasCreate_v2, ctypes.byref(self.handle))
        self.call(self.lt.cublasLtCreate, ctypes.byref(self.lt_handle))
        self.held: dict[str, ctypes.c_void_p] = {}

    def call(self, function: Any, *arguments: Any) -> None:
        status = function(*arguments)
        if status:
            lacks = function.__name__.startswith("cublas") and status in UNSUPPORTED
            raise (UnsupportedError if lacks else ProductError)(
                f"{function.__name__} returned {status}"
            )

    def reserve(self, name: str, size: int) -> ctypes.c_void_p:
        if name in self.held:
            self.call(self.runtime.cudaFree, self.held.pop(name))
        pointer = ctypes.c_void_p()
        self.call(self.runtime.cudaMalloc, ctypes.byref(pointer), ctypes.c_size_t(size))
        self.held[name] = pointer
        return pointer

    def put(self, name: str, array: Any) -> None:
        pointer = self.reserve(name, array.nbytes)
        source, size = ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes)
        self.call(self.runtime.cudaMemcpy, pointer, source, size, HOST_TO_DEVICE)

    def take(self, name: str, shape: tuple[int, ...]) -> Any:
        """The values; waits for the GPU."""
        array = self.numpy.empty(shape, dtype=self.numpy.float32)
        target, size = ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes)
        self.call(self.runtime.cudaMemcpy, target, self.held[name], size, DEVICE_TO_HOST)
        return array

    def encoded(self, precision: str, values: Any) -> Any:
        if precision == "fp8":  # E4M3: 1.0 is 0x38, and the sign is the first bit
            return self.numpy.array([0xB8, 0x00, 0x38], dtype=self.numpy.uint8)[values + 1]
        exact = values.astype(self.numpy.float32)
        if precision == "bf16":  # the first half of an FP32 value
            return (exact.view(self.numpy.uint32) >> 16).astype(self.numpy.uint16)
        return exact

    def load(self, precision: str, first: Any, second: Any) -> None:
        self.precision, self.order = precision, len(first)
        self.put("first", self.numpy.ascontiguousarray(self.encoded(precision, first)))
        self.put("second", self.numpy.ascontiguousarray(self.encoded(precision, second)))
        self.put("ones", self.numpy.ones(self.order, dtype=self.numpy.float32))
        self.reserve("product", 4 * self.order**2)
        self.reserve("sums", 4 * self.order)
        self.one, self.zero = ctypes.c_float(1), ctypes.c_float(0)
        if precision == "fp8":
            self.describe()

    def describe(self) -> None:
        """Operands of cublasLtMatmul, which FP8 needs (cuBLAS documentation, cublasLtMatmul)."""
        self.operation = ctypes.c_void_p()
        make = self.lt.cublasLtMatmulDescCreate
        self.call(make, ctypes.byref(self.operation), CUBLAS_COMPUTE_32F, CUDA_R_32F)
        transposed = ctypes.c_int32(CUBLAS_OP_T)
        change, transa = self.lt.cublasLtMatmulDescSetAttribute, 3
        size = ctypes.c_size_t(4)
        self.call(change, self.operation, transa, ctypes.byref(transposed), size)
        self.layouts = [self.layout(kind) for kind in (CUDA_R_8F_E4M3, CUDA_R_32F)]

    def layout(self, kind: int) -> ctypes.c_void_p:
        made, side = ctypes.c_void_p(), ctypes.c_uint64(self.order)
        create, step = self.lt.cublasLtMatrixLayoutCreate, ctypes.c_int64(self.order)
        self.call(create, ctypes.byref(made), kind, side, side, step)
        return made

    def multiply(self) -> None:
        one, zero = ctypes.byref(self.one), ctypes.byref(self.zero)
        first, second, product = (self.held[name] for name in ("first", "second", "product"))
        if self.precision == "fp8":
            given, made = self.layouts
            operands = (one, first, given, second, given, zero, product, made, product, made)
            none = ctypes.c_void_p()
            rest = (none, none, ctypes.c_size_t(0), none)  # algorithm, workspace, stream
            self.call(self.lt.cublasLtMatmul, self.lt_handle, self.operation, *operands, *rest)
            return
        kind, side = CUDA_R_16BF if self.precision == "bf16" else CUDA_R_32F, self.order
        before = (self.handle, CUBLAS_OP_T, CUBLAS_OP_N, side, side, side, one)
        matrices = (first, kind, side, second, kind, side, zero, product, CUDA_R_32F, side)
        self.call(self.blas.cublasGemmEx, *before, *matrices, CUBLAS_COMPUTE_32F, DEFAULT)

    def sums(self) -> Any:
        side, step = self.order, 1
        one, zero = ctypes.byref(self.one), ctypes.byref(self.zero)
        product, ones, sums = (self.held[name] for name in ("product", "ones", "sums"))
        operands = (one, product, side, ones, step, zero, sums, step)
        self.call(self.blas.cublasSgemv_v2, self.handle, CUBLAS_OP_N, side, side, *operands)
        return self.take("sums", (side,))

    def matrix(self) -> bytes:
        data: bytes = self.take("product", (self.order, self.order)).T.tobytes()
        return data


def burn(numpy: Any, engine: Any, precision: str, order: int, seconds: float) -> dict[str, Any]:
    """Multiply for a time, at least twice. A wrong element changes the sum of its row; the hash of
    the last product, for comparison with other GPUs, covers the rest."""
    first, second = (inputs(numpy, order, LARGEST[precision], seed) for seed in (1, 2))
    expected = row_sums(first, second)
    if int(abs(expected).max()) >= LIMIT:
        raise ProductError(f"sums of order {order} exceed 2^24 in {precision}: use a smaller order")
    engine.load(precision, first, second)
    found: dict[str, Any] = {"products": 0, "wrong_products": 0, "wrong": []}
    start = time.monotonic()
    while found["products"] < 2 or time.monotonic() - start < seconds:
        engine.multiply()
        sums = engine.sums()
        found["products"] += 1
        rows = numpy.flatnonzero(sums != expected)
        if len(rows):
            found["wrong_products"] += 1
            for row in rows[: MOST_WRONG - len(found["wrong"])]:
                wrong = {
                    "row": int(row),
                    "found": f"{sums[row]:.9g}",
                    "expected": int(expected[row]),
                }
                found["wrong"].append({"product": found["products"], **wrong})
    spent = time.monotonic() - start
    found["seconds"] = spent
    found["tflops"] = found["products"] * 2 * order**3 / spent / 1e12
    found["sha256"] = hashlib.sha256(engine.matrix()).hexdigest()
    return found


def main(numpy: Any, asked: dict[str, Any]) -> dict[str, Any]:
    library = asked.get("library")
    answer: dict[str, Any] = {"engine": "cuda" if library else "cpu", "precisions": {}}
    try:
        engine = Cuda(numpy, library) if library else Cpu(numpy)
    except (OSError, ProductError) as error:
        return {**answer, "error": str(error)}
    for precision in asked["precisions"]:
        if precision not in engine.precisions:
            of = {"error": f"not on the {answer['engine']}", "unsupported": True}
            answer["precisions"][precision] = of
            continue
        try:
            of = burn(numpy, engine, precision, asked["order"], asked["seconds"])
        except ProductError as error:
            of = {"error": str(error), "unsupported": isinstance(error, UnsupportedError)}
        answer["precisions"][precision] = of
    return answer


if __name__ == "__main__":
    import numpy

    sys.stdout.write(json.dumps(main(numpy, json.loads(sys.argv[1]))))
