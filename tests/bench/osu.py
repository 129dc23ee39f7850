#!/usr/bin/env python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compare figures of mpi4py with those of the same loops in C, on the same ranks and transport.

    ./test --bench osu [BENCHMARK...]

Two ranks run both in turns, each in one process: roles/mpi_stack/files/sweep.py unchanged, and
tests/bench/osu.c compiled with mpicc. Exits with 1 if the ratio of medians of bandwidth or
allreduce, mpi4py to C, is below the limit from 64 KiB to 16 MiB. When other programs share the
cores, some turns include a time slice of theirs. The median of the ratios of adjacent turns, which
is also printed, is less sensitive to this.
"""

from __future__ import annotations

import ctypes
import importlib.util
import operator
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SWEEP = HERE.parents[1] / "roles/mpi_stack/files/sweep.py"
LIMIT = 0.97
LIMITED = ("bw", "bibw", "allreduce")
LARGE = 64 << 10
SIZES = [8, 1 << 10, 8 << 10, *(LARGE << step for step in range(9))]
TURNS = 1001
TURN_S, SIZE_S = 0.0002, 3.0
"""Seconds of a turn, at least one iteration, and of all turns of a size. Turns are short so that
most of them, and therefore the median, include no time slice of another program."""
MIN_TURNS = 21
"""Minimum number of turns of a size, regardless of their duration."""
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
ROOT.update({name.replace("OMPI", "PRTE"): value for name, value in ROOT.items()})


def of_ranks(library: str, names: list[str]) -> int:
    """Run both programs in turns with the same buffers. Rank 0 prints and compares the figures."""
    import numpy
    from mpi4py import MPI

    spec = importlib.util.spec_from_file_location("sweep", SWEEP)
    sweep = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sweep)
    loops, world = ctypes.CDLL(library), MPI.COMM_WORLD
    first, missed = world.Get_rank() == 0, 0
    handle = ctypes.c_void_p(MPI._addressof(world))
    for name in names or sweep.TITLES:
        in_c = getattr(loops, name)
        in_c.restype = ctypes.c_double
        for size in SIZES:
            out, back, _wanted = sweep.messages(MPI, numpy, name, world, size)
            places = [ctypes.c_void_p(each[0].ctypes.data) for each in (out, back)]

            def by_c(count: int, skip: int, in_c=in_c, places=places, size=size) -> float:
                return float(in_c(handle, *places, size, count, skip))

            def by_python(count: int, skip: int, name=name, out=out, back=back) -> float:
                return float(sweep.RUN[name](MPI, world, out, back, count, skip))

            paces = [by_c(2, 1) / 2 for _try in range(5)]
            count = max(1, int(TURN_S / world.bcast(min(paces))))
            found: dict[str, list[float]] = {"c": [], "mpi4py": []}
            begin = time.monotonic()
            for turn in range(TURNS):
                if world.bcast(turn >= MIN_TURNS and time.monotonic() - begin > SIZE_S):
                    break
                both = [("c", by_c), ("mpi4py", by_python)]
                for which, run in both if turn % 2 else reversed(both):
                    world.Barrier()
                    seconds = run(count, 1)
                    found[which].append(world.allreduce(seconds) / world.Get_size() / count)
            c, python = (statistics.median(found[which]) for which in ("c", "mpi4py"))
            ratio, limited = c / python, size >= LARGE and name in LIMITED
            adjacent = statistics.median(map(operator.truediv, found["c"], found["mpi4py"]))
            missed += limited and ratio < LIMIT
            if first:
                values = [sweep.figure(name, size, seconds, 1) for seconds in (c, python)]
                unit = sweep.TITLES[name][1].partition("(")[2].rstrip(")")
                shown = " ".join(f"{value:.2f}" for value in values)
                messages = {"latency": 2, "bw": sweep.WINDOW, "bibw": 2 * sweep.WINDOW}
                extra = (python - c) / messages.get(name, 1) * 1e6
                if limited:
                    against = f"limit {LIMIT}{'  missed' if ratio < LIMIT else ''}"
                else:
                    against = f"{extra:+.2f} us per message"
                print(
                    f"{name}_{size}: {shown} {unit} in C and with mpi4py; ratio {ratio:.3f} "
                    f"(turn by turn {adjacent:.3f}), {against}",
                    flush=True,
                )
    return 1 if world.bcast(missed) else 0


def main(arguments: list[str]) -> int:
    lacking = [
        f"{program} not found: apt-get install {package}"
        for program, package in (("mpicc", "libopenmpi-dev"), ("mpirun", "openmpi-bin"))
        if not shutil.which(program)
    ]
    pythons = [sys.executable, shutil.which("python3") or "", "/usr/bin/python3"]
    able = [
        python
        for python in filter(None, pythons)
        if not subprocess.run(
            [python, "-c", "import mpi4py.MPI, numpy"], capture_output=True, check=False
        ).returncode
    ]
    if not able:
        lacking.append("no Python with mpi4py and numpy: apt-get install python3-mpi4py")
    if lacking:
        print("\n".join(lacking), file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/osu.so"
        flags = ["-O2", "-shared", "-fPIC", "-o", library]
        subprocess.run(["mpicc", *flags, str(HERE / "osu.c")], check=True)
        ranks = ["mpirun", "-np", "2", able[0], str(HERE / "osu.py"), "--ranks", library]
        ranks += arguments
        return subprocess.run(ranks, env={**os.environ, **ROOT}, check=False).returncode


if __name__ == "__main__":
    if sys.argv[1:2] == ["--ranks"]:
        sys.exit(of_ranks(sys.argv[2], sys.argv[3:]))
    sys.exit(main(sys.argv[1:]))
