# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Sweeps as tables, and as plots with line rate and threshold if matplotlib is installed."""

from __future__ import annotations

import importlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from ...module_utils.core.text import bytes_text, columns
from ..mpi.bench import SMALL, Sweep
from .reports import save
from .units import rate_text, time_text

NOMINAL = "nominal: on virtual nodes, only the definitions are meaningful"
WITHOUT = (
    "bench: not drawn: matplotlib is not installed. Into the Python that runs ansible-playbook: "
    "pip install matplotlib"
)
WHAT = {"latency": "latency", "bw": "bandwidth", "bibw": "bandwidth, both directions together"}


def by_benchmark(sweeps: Sequence[Sweep]) -> dict[str, list[Sweep]]:
    found: dict[str, list[Sweep]] = {}
    for sweep in sweeps:
        found.setdefault(sweep.benchmark, []).append(sweep)
    return found


def lines(program: str, sweeps: Sequence[Sweep], virtual: bool) -> list[str]:
    """One table per benchmark, with a column per pair, and the reference values."""
    shown = [f"bench: by {program}"]
    for benchmark, found in by_benchmark(sweeps).items():
        sizes = sorted({row[0] for sweep in found for row in sweep.rows})
        rows: list[list[str]] = [[benchmark]]
        rows += [[bytes_text(size)] for size in sizes]
        for sweep in found:
            by_size = {row[0]: row for row in sweep.rows}
            timed = any(row[1] for row in sweep.rows)
            rows[0] += [sweep.where] if timed else []
            rows[0] += ["busbw"] if timed and sweep.benchmark != "latency" else []
            rows[0] += [] if timed else [sweep.where]
            for line, size in zip(rows[1:], sizes):
                _size, time, rate = by_size.get(size, (size, None, 0.0))
                if timed:
                    line.append(_time(time) if time else "-")
                if sweep.benchmark != "latency":
                    line.append(rate_text(rate) if rate else "-")
        shown += ["", *(f"  {line}" for line in columns(rows))]
        shown += [f"  {sweep.where}: {against(sweep, virtual)}" for sweep in found]
    return shown


def _time(microseconds: float) -> str:
    short = microseconds < 100
    return f"{microseconds:.2f} us" if short else time_text(microseconds)


def against(sweep: Sweep, virtual: bool) -> str:
    """The best figure, with line rate and threshold."""
    best, rate = sweep.best, sweep.line_rate_gbytes_s
    if best is None:
        return "no figure"
    if sweep.benchmark == "latency":
        text = f"least {_time(best)}"
        limit = None if sweep.threshold is None else f"at most {sweep.threshold:g} us"
    else:
        text = f"best {rate_text(best)}"
        if rate:
            text += f"; line rate {rate:g} GB/s"
            text += f" is {NOMINAL}" if virtual else f" ({100 * best / rate:.1f} %)"
        limit = None if sweep.threshold is None else f"at least {sweep.threshold:g} GB/s"
    if not rate:
        return f"{text}; no rail between these ranks"
    return f"{text}; threshold: {limit or 'none'}"


def draw(directory: Path, stem: str, sweeps: Sequence[Sweep], virtual: bool) -> Optional[list[str]]:
    """Write one SVG per benchmark; return their paths, or None without matplotlib."""
    try:
        matplotlib = importlib.import_module("matplotlib")
        make_figure = importlib.import_module("matplotlib.figure").Figure
    except ImportError:
        return None
    paths = []
    # Text is stored as text, and equal figures give equal files.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": stem}):
        for benchmark, found in by_benchmark(sweeps).items():
            figure = make_figure(figsize=(8, 5), layout="constrained")
            _curves(figure.add_subplot(), benchmark, found, virtual)
            text = io.StringIO()
            figure.savefig(text, format="svg", metadata={"Date": None})
            path = directory / f"{stem}-{benchmark}.svg"
            save(path, text.getvalue())
            paths.append(str(path))
    return paths


def _curves(axes: Any, benchmark: str, sweeps: Sequence[Sweep], virtual: bool) -> None:
    late = benchmark == "latency"
    axes.set_xscale("log", base=2)
    axes.set_yscale("log" if late else "linear")
    for sweep in sweeps:
        values = [(size, time if late else rate) for size, time, rate in sweep.rows]
        axes.plot(*zip(*values), marker=".", label=sweep.where)
    sizes = sorted({row[0] for sweep in sweeps for row in sweep.rows})
    least = min((row[1] or 0.0 for sweep in sweeps for row in sweep.rows), default=0.0)
    rates = sorted({sweep.line_rate_gbytes_s for sweep in sweeps if sweep.line_rate_gbytes_s})
    for rate in rates:
        label = f"line rate {rate:g} GB/s" + (" (nominal: virtual nodes)" if virtual else "")
        if late:
            # Omit the start of the curve, which would only stretch the axis.
            drawn = [size for size in sizes if size / rate / 1e3 > least / 2] or sizes[-1:]
            times = [size / rate / 1e3 for size in drawn]
            axes.plot(drawn, times, color="0.4", linestyle="--", label=label)
        else:
            axes.axhline(rate, color="0.4", linestyle="--", label=label)
    for limit in sorted({sweep.threshold for sweep in sweeps if sweep.threshold}):
        label = f"threshold {limit:g} " + (f"us, up to {SMALL} B" if late else "GB/s")
        axes.axhline(limit, color="tab:red", linestyle=":", label=label)
    what = WHAT.get(benchmark, f"bus bandwidth of {benchmark}")
    axes.set_title(benchmark)
    axes.set_xlabel("message size")
    axes.set_ylabel(f"{what} ({'us' if late else 'GB/s'})")
    axes.set_xticks(sizes[::4], [bytes_text(size) for size in sizes[::4]])
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize="small")
