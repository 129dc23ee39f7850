# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compare the GPUs of all nodes: the hashes of equal products, and outliers in speed, bandwidth,
clock, power and temperature. Results of nodes are kept for a run that continues."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Optional

from ...module_utils.core.checks import FAILED, Check
from ...module_utils.core.part import PlanError
from ...module_utils.core.text import one_line, some
from ..answers import PCI, SHA256, amount, finite, form_of, mapping, sequence, whole
from ..answers import checks as checks_of
from ..report.reports import save
from .outliers import FLOOR, spread_of, z_of

PRECISIONS = ("fp32", "bf16", "fp8")
MOST_GPUS = 16
"""GPUs of a node."""
MOST = 1e9
"""No figure of a GPU is larger, in any unit."""
HIGH = "celsius"
"""The figure of which a high value is wrong; of the others, a low one."""
UNITS = {"sm_mhz": "MHz", "watts": "W", "celsius": "°C"}
LOAD_FLOOR = 0.15
"""For the figures of UNITS, which depend on the place in the chassis. A guess."""
FEWEST = 4
"""GPUs of which one can be an outlier."""

FOLDER = "acceptance-burn"
"""In the directory of reports, until there is a certificate."""
MAX_BYTES = 4 << 20
"""Of the file of a node."""
DIAG_S: Mapping[int, float] = {0: 0.0, 1: 60.0, 2: 150.0, 3: 900.0, 4: 7200.0}
"""Usual duration of a level of diagnostics (docs.nvidia.com/datacenter/dcgm, dcgmi diag)."""
REST_S = 300.0
"""For copies, NCCL, and the inputs of products: a guess."""


def seconds(options: Mapping[str, Any], nodes: int, forks: int) -> float:
    """Estimated duration of the load, of as many nodes simultaneously as Ansible has forks.
    Raises PlanError."""
    try:
        level, precisions = int(options["diag_level"]), options["precisions"]
        names = precisions.split(",") if isinstance(precisions, str) else precisions
        each = DIAG_S[level] + len(names) * float(options["duration_s"]) + REST_S
    except (ValueError, LookupError, TypeError) as error:
        raise PlanError(f"gpu_burn_*: {error!r}: see the role gpu_burn") from error
    return each * math.ceil(nodes / max(1, forks))


@dataclass(frozen=True)
class Kept:
    """Results of the nodes that were loaded in a run, a file for each: nodes end separately, in
    other processes."""

    directory: Path
    """That of the reports."""

    def _path(self, node: str) -> Path:
        return self.directory / FOLDER / f"{node}.json"

    def save(self, node: str, on: Sequence[Any], result: Mapping[str, Any], now: float) -> None:
        """`on`: what the result depends on, such as the boot of the node. Raises OSError."""
        own = {name: result[name] for name in ("checks", "figures")}
        save(self._path(node), json.dumps(finite({"on": on, "end": now, **own})) + "\n")

    def read(self, node: str, on: Sequence[Any]) -> Optional[dict[str, Any]]:
        """The result; None if there is none, or one of another boot, driver or run."""
        found = self._read(self._path(node))
        if not found or found.get("on") != json.loads(json.dumps(on)):
            return None
        return {
            "checks": checks_of(found.get("checks")),
            "figures": dict(mapping(found.get("figures"))),
        }

    def spent(self, began: float) -> float:
        """Seconds from a time to the end of the last result."""
        files = (self.directory / FOLDER).glob("*.json")
        ends = [amount(self._read(path).get("end"), MOST * 10) or 0.0 for path in files]
        return max([0.0, *(end - began for end in ends)])

    @staticmethod
    def _read(path: Path) -> Mapping[str, Any]:
        try:
            if path.stat().st_size > MAX_BYTES:
                return {}
            return mapping(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, RecursionError):
            return {}

    def remove(self) -> None:
        shutil.rmtree(self.directory / FOLDER, ignore_errors=True)


@dataclass(frozen=True)
class Loaded:
    """A GPU after the load, as far as its node is to be believed."""

    host: str
    index: int
    pci: str
    serial: str
    product: str
    hashes: Mapping[str, str]
    """SHA-256 of the last product by precision."""
    figures: Mapping[str, float]
    """`bf16` (TFLOP/s), `host_to_device` (10^9 bytes per second), `watts`, ..."""

    @property
    def name(self) -> str:
        return f"GPU {self.index} ({self.pci or 'CPU'}, serial {self.serial or 'unknown'})"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def read(host: str, answer: Any) -> list[Loaded]:
    """Parse a node's figures. Raises AnswerError."""
    with form_of(f"{host}: figures of GPUs"):
        rows = sequence(mapping(answer).get("gpus"))
        if len(rows) > MOST_GPUS:
            raise ValueError(f"{len(rows)} GPUs")
        return [_loaded(host, mapping(row)) for row in rows]


def _loaded(host: str, row: Mapping[str, Any]) -> Loaded:
    figures, hashes = {}, {}
    for precision in PRECISIONS:
        of = mapping(mapping(row.get("precisions")).get(precision))
        if "sha256" in of:
            hashes[precision] = SHA256.of(of["sha256"], f"{host}: sha256")
            figures[precision] = amount(of.get("tflops"), MOST)
    for part, names in (
        ("copies", ("host_to_device", "device_to_host", "peer")),
        ("load", tuple(UNITS)),
    ):
        figures.update({name: amount(mapping(row.get(part)).get(name), MOST) for name in names})
    return Loaded(
        host,
        whole(row.get("index"), f"{host}: index", MOST_GPUS),
        PCI.known(row.get("pci")),
        one_line(str(row.get("serial", "")))[:40],
        one_line(str(row.get("product", "")))[:80],
        hashes,
        {name: value for name, value in figures.items() if value is not None},
    )


def compare(loaded: Sequence[Loaded]) -> Iterator[tuple[str, Check]]:
    """Findings with the host of the GPU. GPUs are compared with others of the same product."""
    for precision in PRECISIONS:
        yield from _corrupt(precision, [one for one in loaded if precision in one.hashes])
    for product in dict.fromkeys(one.product for one in loaded):
        alike = [one for one in loaded if one.product == product]
        for figure in dict.fromkeys(name for one in alike for name in one.figures):
            yield from _outliers(figure, [one for one in alike if figure in one.figures])


def _corrupt(precision: str, loaded: Sequence[Loaded]) -> Iterator[tuple[str, Check]]:
    """GPUs whose last product differs from the majority's, whatever their model: it is exact."""
    counts = Counter(one.hashes[precision] for one in loaded).most_common()
    if len(counts) < 2:
        return
    right, most = counts[0]
    tie = counts[1][1] == most
    for one in loaded:
        if one.hashes[precision] == right and not tie:
            continue
        others = [other.host for other in loaded if other.hashes[precision] == right]
        reason = (
            "as many GPUs have this result as another one: repeat with a third GPU"
            if tie
            else f"{most} of {len(loaded)} GPUs have another result (on {some(others, 3)}): this "
            "GPU corrupts data. Drain the node, and replace the GPU if it repeats after a reset"
        )
        found = f"product {one.hashes[precision][:12]}"
        subject = f"{one.host} {one.name} {precision}"
        yield one.host, Check("burn_products", "equal on all", found, FAILED, subject, reason)


def _outliers(figure: str, loaded: Sequence[Loaded]) -> Iterator[tuple[str, Check]]:
    unit = _unit(figure)
    sign = -1 if figure == HIGH else 1
    logarithms = [sign * math.log(one.figures[figure] or 1e-9) for one in loaded]
    if len(loaded) < FEWEST:
        return
    middle = median(logarithms)
    floor = -math.log1p(-(LOAD_FLOOR if figure in UNITS else FLOOR))
    cut = middle - max(z_of(len(loaded)) * spread_of(logarithms), floor)
    typical = math.exp(sign * middle)
    for one, value in zip(loaded, logarithms):
        if value >= cut:
            continue
        reason = (
            f"median of {len(loaded)} GPUs of this kind: {typical:.4g} {unit}. Look at power cap, "
            "cooling, clocks and PCIe slot of this GPU: nvidia-smi -q -d PERFORMANCE,POWER"
        )
        found = f"{one.figures[figure]:.4g} {unit}"
        subject = f"{one.host} {one.name} {figure}"
        wanted = f"as the others, {typical:.4g} {unit}"
        yield one.host, Check("burn_outlier", wanted, found, FAILED, subject, reason)


def _unit(figure: str) -> str:
    return UNITS.get(figure) or ("TFLOP/s" if figure in PRECISIONS else "GB/s")


def lines(loaded: Sequence[Loaded]) -> list[str]:
    """One line per figure: the lowest, the median and the highest GPU."""
    if not loaded:
        return ["burn: no GPU was loaded"]
    nodes = len({one.host for one in loaded})
    text = [f"burn: {len(loaded)} GPUs on {nodes} nodes"]
    for figure in dict.fromkeys(name for one in loaded for name in one.figures):
        known = sorted(
            (one for one in loaded if figure in one.figures), key=lambda one: one.figures[figure]
        )
        unit = _unit(figure)
        low, middle, high = known[0], known[len(known) // 2], known[-1]
        text.append(
            f"  {figure:<15} {low.figures[figure]:>9.4g} {middle.figures[figure]:>9.4g} "
            f"{high.figures[figure]:>9.4g} {unit}  lowest: {low.host} GPU {low.index}, highest: "
            f"{high.host} GPU {high.index}"
        )
    return text
