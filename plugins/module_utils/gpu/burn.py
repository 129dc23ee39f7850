# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Load every GPU of a node: DCGM's diagnostics, copy bandwidths, exact products of matrices, and
NCCL within the node with and without NVLink.

Each program is optional but for the products, runs under a time limit, and is read, not trusted.
"""

from __future__ import annotations

import json
import math
import os
import pkgutil
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Optional

from ..core.checks import FAILED, NOT_APPLICABLE, OK, Check, not_applicable
from ..core.commands import CommandError, NoAnswerError, Runner, find_program, run, search_path
from ..core.text import some
from ..mpi.allreduce.gpu import read_nccl
from . import products, smi

PRECISIONS = ("fp32", "bf16", "fp8")
MINUTES = {1: 5, 2: 15, 3: 60, 4: 300}
"""Time limit of a level of diagnostics. Level 2 normally takes 2 minutes and level 3 takes 15
(docs.nvidia.com/datacenter/dcgm, dcgmi diag); the limits are guesses, several times as long."""
COPIES = {
    "host_to_device": "host_to_device_memcpy_ce",
    "device_to_host": "device_to_host_memcpy_ce",
    "peer": "device_to_device_memcpy_read_ce",
}
"""Test cases of nvbandwidth (its README)."""
LOAD = {"sm_mhz": "clocks.sm", "watts": "power.draw", "celsius": "temperature.gpu"}
"""Fields of `nvidia-smi --help-query-gpu`."""
MARGIN_S = 120
"""To generate inputs, and to load the library, in addition to the products."""
NO_TIME = "the time limit of the whole load was reached"
COPIES_S = 900.0
"""Time limit of nvbandwidth."""
ALLREDUCE_S = 300.0
"""Time limit of each allreduce by nccl-tests."""
MAX_TEXT = 300
MAX_LISTED = 5


@dataclass(frozen=True)
class Options:
    """Options of the module gpu_burn, which documents them."""

    seconds: float = 60.0
    order: int = 8192
    precisions: tuple[str, ...] = PRECISIONS
    diag_level: int = 3
    nvbandwidth: str = "nvbandwidth"
    nccl_tests: str = "all_reduce_perf"
    nccl_bytes: int = 1 << 30
    python: str = "/usr/bin/python3"
    libraries: str = ""
    """Directory with libcublas.so; empty for that of the newest CUDA."""
    limit_s: float = math.inf
    """Seconds for everything."""

    @property
    def products_s(self) -> float:
        return len(self.precisions) * self.seconds + MARGIN_S


@dataclass(frozen=True)
class Gpu:
    index: int
    pci: str
    uuid: str
    serial: str
    product: str

    @property
    def name(self) -> str:
        return f"GPU {self.index} ({self.pci}, serial {self.serial or 'unknown'})"


def gpus(run_program: Runner) -> list[Gpu]:
    """Raises CommandError if the driver does not answer."""
    seen = smi.ask(run_program)
    if seen.error:
        raise CommandError(f"nvidia-smi: {seen.error}")
    return [
        Gpu(one.index, one.pci, one.text("uuid"), one.text("serial"), one.text("product_name"))
        for one in seen.gpus
    ]


def libraries(root: Path, wanted: str) -> str:
    """Directory of cuBLAS; empty if there is none."""
    if wanted:
        return wanted
    found = [
        path.parent
        for pattern in ("usr/local/cuda*/lib64", "usr/local/cuda*/targets/x86_64-linux/lib")
        for path in root.glob(f"{pattern}/libcublas.so")
    ]
    return str(max(found, key=lambda path: _version(path.relative_to(root)), default=""))


def _version(folder: Path) -> list[int]:
    """Of a path such as usr/local/cuda-13.1/lib64; `cuda`, a link to any of them, is the lowest."""
    return [int(number) for number in re.findall(r"\d+", folder.parts[2])]


# Exact products, on all GPUs simultaneously.


def multiply(
    of: Sequence[Gpu], options: Options, library: str, limit_s: float = math.inf
) -> list[dict[str, Any]]:
    """The answer of each GPU, in order; without a library, one answer of the CPU."""
    source = pkgutil.get_data(products.__name__.rpartition(".")[0], "products.py") or b""
    asked = {
        "precisions": options.precisions if library else ["fp32"],
        **{"order": options.order, "seconds": options.seconds, "library": library},
    }
    argv = [options.python, "-I", "-c", source.decode(), json.dumps(asked)]
    limit_s = min(len(options.precisions) * (options.seconds + MARGIN_S), limit_s)

    def one(uuid: str) -> dict[str, Any]:
        try:
            done = run(argv, check=False, timeout_s=limit_s, env={"CUDA_VISIBLE_DEVICES": uuid})
            answer: dict[str, Any] = json.loads(done.stdout)
            return answer
        except CommandError as error:  # its text quotes the program
            return {"error": str(error).rsplit(": ", 1)[-1], "precisions": {}}
        except ValueError:
            lines = (done.stderr or done.stdout).strip().splitlines() or ["it printed nothing"]
            text = f"{options.python}, exit status {done.rc}: {lines[-1][:MAX_TEXT]}"
            return {"error": text, "precisions": {}}

    with ThreadPoolExecutor(max(len(of), 1)) as pool:
        return list(pool.map(one, [gpu.uuid for gpu in of] or [""]))


class Telemetry:
    """Clocks, power and temperature of every GPU once a second, during the products."""

    def __init__(self) -> None:
        self.file: IO[str] = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        fields = ",".join(("uuid", *LOAD.values()))
        argv = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits", "-l", "1"]
        self.process: Optional[subprocess.Popen[bytes]] = None
        try:
            self.process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=self.file,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PATH": search_path(), "LC_ALL": "C"},
            )
        except OSError:
            return  # nothing is recorded, which the figures show

    def read(self) -> dict[str, dict[str, float]]:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.file.seek(0)
        with self.file:
            return load(self.file.read(16 << 20))


def load(text: str) -> dict[str, dict[str, float]]:
    """Median clock and power and the highest temperature of each GPU, by UUID."""
    samples: dict[str, list[list[Optional[float]]]] = {}
    for line in text.splitlines():
        uuid, *cells = (cell.strip() for cell in line.split(","))
        if len(cells) == len(LOAD):
            samples.setdefault(uuid, []).append([_number(cell) for cell in cells])
    found: dict[str, dict[str, float]] = {}
    for uuid, rows in samples.items():
        for name, column in zip(LOAD, zip(*rows)):
            values = [value for value in column if value is not None]
            if values:
                middle = max(values) if name == "celsius" else statistics.median(values)
                found.setdefault(uuid, {})[name] = middle
    return found


def _number(text: str) -> Optional[float]:
    return float(text) if re.fullmatch(r"\d{1,6}(\.\d{1,6})?", text) else None


def products_checks(gpu: str, answer: Mapping[str, Any]) -> Iterable[Check]:
    """Corruption is a failure; a precision that the GPU lacks is not applicable."""
    if answer.get("error"):
        reason = f"{answer['error']}: check CUDA of the software set (--tags gpu), and numpy"
        yield Check("burn_products", "exact", "not measured", FAILED, gpu, reason)
    for precision, of in answer["precisions"].items():
        subject = f"{gpu} {precision}"
        if of.get("unsupported"):
            yield not_applicable("burn_products", "exact", of["error"], subject=subject)
        elif of.get("error"):
            reason = f"{of['error']}: dmesg (Xid), nvidia-smi -q -d ECC,PAGE_RETIREMENT"
            yield Check("burn_products", "exact", "not measured", FAILED, subject, reason)
        elif of["wrong_products"]:
            first = of["wrong"][0]
            found = f"{of['wrong_products']} of {of['products']} products differ"
            reason = (
                f"first: product {first['product']}, row {first['row']}: sum {first['found']}, "
                f"exactly {first['expected']}. This GPU corrupts data: drain the node, and replace "
                "the GPU if it repeats after a reset"
            )
            yield Check("burn_products", "exact", found, FAILED, subject, reason)
        else:
            found = f"{of['products']} products, {of['tflops']:.3g} TFLOP/s"
            yield Check("burn_products", "exact", found, OK, subject)


def absent(wanted: int, loaded: int) -> list[Check]:
    """GPUs of the model that the driver does not list, so that nothing loaded them."""
    if loaded >= wanted:
        return []
    reason = "the others were not loaded: --tags gpu, dmesg (Xid 79), nvidia-smi -L"
    return [Check("burn_products", f"{wanted} GPUs", loaded, FAILED, "", reason)]


# DCGM's diagnostics.


def diagnose(
    level: int, of: Sequence[Gpu], limit_s: float = math.inf
) -> tuple[list[Check], dict[str, Any]]:
    if not level:
        return [not_applicable("burn_diag", "passes", "gpu_burn_diag_level is 0")], {}
    if find_program("dcgmi") is None:
        return [not_applicable("burn_diag", "passes", "dcgmi is missing: software.dcgm")], {}
    own_s = 60.0 * MINUTES[level]
    try:
        done = run(
            ["dcgmi", "diag", "-r", str(level), "--json"],
            check=False,
            timeout_s=min(own_s, limit_s),
        )
    except CommandError as error:
        if limit_s < own_s and isinstance(error, NoAnswerError):
            return [not_applicable("burn_diag", f"level {level} passes", NO_TIME)], {}
        return [Check("burn_diag", f"level {level}", "not run", FAILED, "", str(error))], {}
    return read_diag(level, done.rc, done.stdout or done.stderr, {gpu.index: gpu for gpu in of})


def read_diag(
    level: int, rc: int, text: str, by_index: Mapping[int, Gpu]
) -> tuple[list[Check], dict[str, Any]]:
    """The JSON of DCGM 4 (testing/python3/dcgm_diag_schema.json in NVIDIA/DCGM 686e1024) and of
    DCGM 3, whose results name `gpu_ids` and whose root is `DCGM GPU Diagnostic`."""
    wanted = f"level {level} passes"
    try:
        document = json.loads(text[text.index("{") : text.rindex("}") + 1])
        root = document.get("DCGM Diagnostic") or document["DCGM GPU Diagnostic"]
        if root.get("runtime_error"):
            raise ValueError(root["runtime_error"])
        tests = [test for part in root["test_categories"] for test in part["tests"]]
        results = [(test["name"], result) for test in tests for result in test["results"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        tail = " ".join(text.split())[-MAX_TEXT:]
        reason = f"dcgmi diag, exit status {rc}: {error}: {tail or 'it printed nothing'}"
        return [Check("burn_diag", wanted, "not read", FAILED, "", reason)], {}
    checks, skipped = [], set()
    for name, result in results:
        status = str(result.get("status", ""))
        if status.lower().startswith("skip") or status == "Not Run":
            skipped.add(name)
        elif status != "Pass":
            checks.append(_failed(name, result, wanted, by_index))
    passed = sum(str(result.get("status")) == "Pass" for _name, result in results)
    found = f"{passed} results pass" + (f"; skipped: {some(sorted(skipped))}" if skipped else "")
    if not checks:
        reason = "" if passed else "no test ran"
        checks = [Check("burn_diag", wanted, found, OK if passed else FAILED, "", reason)]
    version = (document.get("metadata") or {}).get("version") or root.get("version") or ""
    return checks, {"level": level, "version": str(version), "passed": passed}


def _failed(
    name: str, result: Mapping[str, Any], wanted: str, by_index: Mapping[int, Gpu]
) -> Check:
    warnings = result.get("warnings") or []
    texts = [str(one.get("warning", one) if isinstance(one, dict) else one) for one in warnings]
    where = str(result.get("entity_id", result.get("gpu_ids", "")))
    group = str(result.get("entity_group", "GPU"))
    known = by_index.get(int(where)) if where.isdigit() and group.upper() == "GPU" else None
    subject = f"{name} {known.name if known else f'{group} {where}'.strip()}"
    reason = "; ".join(text[:MAX_TEXT] for text in texts[:MAX_LISTED]) or "DCGM gives no reason"
    return Check("burn_diag", wanted, str(result.get("status")), FAILED, subject, reason)


# Copies by nvbandwidth.


def copy(
    program: str, of: Sequence[Gpu], limit_s: float = math.inf
) -> tuple[list[Check], dict[str, list[float]]]:
    """Gigabytes per second of each copy by GPU; a GPU's slowest peer."""
    if find_program(program) is None:
        reason = f"{program} is not installed: build github.com/NVIDIA/nvbandwidth"
        return [not_applicable("burn_copies", "measured", reason)], {}
    tests = [name for kind, name in COPIES.items() if len(of) > 1 or kind != "peer"]
    try:
        done = run([program, "-j", "-t", *tests], check=False, timeout_s=min(COPIES_S, limit_s))
    except CommandError as error:
        if limit_s < COPIES_S and isinstance(error, NoAnswerError):
            return [not_applicable("burn_copies", "measured", NO_TIME)], {}
        return [Check("burn_copies", "measured", "not", FAILED, "", str(error))], {}
    return read_copies(done.rc, done.stdout or done.stderr, len(of))


def read_copies(rc: int, text: str, count: int) -> tuple[list[Check], dict[str, list[float]]]:
    """Keys: json_output.cpp in NVIDIA/nvbandwidth 4a346807; figures are text, or `N/A`."""
    kinds = {name: kind for kind, name in COPIES.items()}
    figures: dict[str, list[float]] = {}
    problems: list[str] = []
    try:
        root = json.loads(text[text.index("{") : text.rindex("}") + 1])["nvbandwidth"]
        problems += [str(root["error"])] if root.get("error") else []
        for case in root.get("testcases") or []:
            if case["status"] != "Passed":
                problems.append(f"{case['name']}: {case.get('error') or case['status']}")
                continue
            rows = [[_number(str(cell)) for cell in row] for row in case["bandwidth_matrix"]]
            columns = [[cell for cell in column if cell] for column in zip(*rows)]
            if len(columns) == count and all(columns):
                figures[kinds[case["name"]]] = [min(map(float, column)) for column in columns]
            else:
                problems.append(f"{case['name']}: {len(columns)} columns for {count} GPUs")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        problems.append(f"{error!r} in {' '.join(text.split())[-MAX_TEXT:]}")
    if problems or not figures:
        reason = f"nvbandwidth, exit status {rc}: " + "; ".join(problems[:MAX_LISTED])
        return [Check("burn_copies", "measured", "not", FAILED, "", reason)], figures
    found = ", ".join(f"{kind} {min(values):g} GB/s" for kind, values in figures.items())
    reason = "compared over all GPUs by the step compare"
    return [
        Check("burn_copies", "measured", f"at least {found}", NOT_APPLICABLE, "", reason)
    ], figures


# NCCL within the node.


def nccl(
    options: Options, count: int, limit_s: float = math.inf
) -> tuple[list[Check], dict[str, float]]:
    """Bus bandwidth of allreduce over all GPUs of the node in 10^9 bytes per second, with NVLink
    and without it (`NCCL_P2P_DISABLE`: NCCL's documentation of environment variables)."""
    if count < 2 or find_program(options.nccl_tests) is None:
        reason = f"{options.nccl_tests} is not installed" if count > 1 else "a single GPU"
        return [not_applicable("burn_nccl", "measured", reason)], {}
    size = str(options.nccl_bytes)
    argv = [options.nccl_tests, "-b", size, "-e", size, "-g", str(count)]
    figures, checks = {}, []
    for name, env in (("nvlink", {}), ("host", {"NCCL_P2P_DISABLE": "1"})):
        try:
            done = run(argv, check=False, timeout_s=min(ALLREDUCE_S, limit_s / 2), env=env)
        except CommandError as error:
            if limit_s / 2 < ALLREDUCE_S and isinstance(error, NoAnswerError):
                checks.append(not_applicable("burn_nccl", "measured", NO_TIME, subject=name))
                continue
            checks.append(Check("burn_nccl", "measured", "not", FAILED, name, str(error)))
            continue
        seen = read_nccl(done.stdout)
        if done.rc or seen["wrong"] or seen["busbw_gbytes_s"] is None:
            wrong = f"{seen['wrong']} wrong values" if seen["wrong"] else ""
            last = (done.stderr or done.stdout).strip().splitlines()[-1:]
            reason = wrong or f"exit status {done.rc}: {' '.join(last)[:MAX_TEXT]}"
            checks.append(Check("burn_nccl", "measured", "not", FAILED, name, reason))
            continue
        figures[name] = seen["busbw_gbytes_s"]
        found = f"{figures[name]:g} GB/s"
        checks.append(Check("burn_nccl", "no wrong value", found, OK, name))
    return checks, figures


def measure(
    options: Options, run_program: Runner, root: Path
) -> tuple[list[Check], dict[str, Any]]:
    """Everything in turn; the products load all GPUs simultaneously, and the time limit leaves
    them theirs. Raises CommandError if the driver does not answer."""
    end = time.monotonic() + options.limit_s

    def left_s(reserved_s: float = 0.0) -> float:
        return max(1.0, end - time.monotonic() - reserved_s)

    found = gpus(run_program)
    checks, diag = diagnose(options.diag_level, found, left_s(options.products_s))
    copied, copies = copy(options.nvbandwidth, found, left_s(options.products_s))
    connected, busbw = nccl(options, len(found), left_s(options.products_s))
    telemetry = Telemetry()
    try:
        answers = multiply(found, options, libraries(root, options.libraries), left_s())
    finally:
        loaded = telemetry.read()
    checks += [*copied, *connected]
    rows = []
    for position, (gpu, answer) in enumerate(zip(found, answers)):
        checks += products_checks(gpu.name, answer)
        row = {**vars(gpu), "precisions": answer["precisions"], "load": loaded.get(gpu.uuid, {})}
        row["copies"] = {kind: values[position] for kind, values in copies.items()}
        rows.append(row)
    return checks, {"gpus": rows, "diag": diag, "nccl": busbw}


def present(root: Path) -> bool:
    return (root / "dev/nvidiactl").exists()


def on_cpu(options: Options) -> tuple[list[Check], dict[str, Any]]:
    """The products of a node without GPUs; for tests, and for a check of the node's memory."""
    (answer,) = multiply([], options, "")
    row = {"index": 0, "pci": "", "uuid": "", "serial": "", "product": "CPU", "copies": {}}
    checks = list(products_checks("CPU", answer))
    return checks, {"gpus": [{**row, "precisions": answer["precisions"], "load": {}}]}
