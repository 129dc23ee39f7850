# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A two-socket chassis as files, and a copy of `rail-bind` that reads them.

The copy cannot bind to CPUs that this machine lacks. A fake `taskset` records the CPUs, and SHOW,
which the copy starts as its program, prints them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

TOP = Path(__file__).parents[1]
B300 = ("14", "32", "49", "60", "8e", "ad", "c5", "dd")
"""Buses of the GPUs (oracle-quickstart/oci-hpc, B300MP.xml)."""
CHASSIS: Mapping[str, Sequence[str]] = {"B300": B300, "4 GPUs": (*B300[:2], *B300[4:6])}
CORES = 56
"""Cores per socket, with two hyperthreads each."""
CPUS = ("0-55,112-167", "56-111,168-223")
"""CPUs of each NUMA node, numbered as Linux does."""
TASKSET = '#!/bin/sh\necho "$2" > "@ROOT@/bound.$3"\n'
SHOW = '#!/bin/sh\necho "rank $1 $(cat "@ROOT@/bound.$$" 2>/dev/null || echo unbound)"\n'


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def threads(cpu: int) -> str:
    """Return both hyperthreads of a core, numbered as Linux does: all first ones, then all
    second ones."""
    first = cpu % (2 * CORES)
    return f"{first},{first + 2 * CORES}"


def build(
    root: Path, gpus: Sequence[str] = B300, allowed: str = "0-223", reads: Path | None = None
) -> Path:
    """Create the directory with `rail-bind` and `show`. `reads`: its path on the node."""
    reads = reads or root
    for index, bus in enumerate(gpus):
        pci = f"0000:{bus}:00.0"
        write(root / f"proc/driver/nvidia/gpus/{pci}/information", "Model: NVIDIA B300\n")
        numa = index * 2 // len(gpus)
        write(root / f"sys/bus/pci/devices/{pci}/numa_node", f"{numa}\n")
        # The order of rails is reversed: the GPU determines the binding.
        write(root / f"sys/class/net/rail{index}/device/numa_node", f"{1 - numa}\n")
    for numa, cpus in enumerate(CPUS):
        write(root / f"sys/devices/system/node/node{numa}/cpulist", f"{cpus}\n")
    for cpu in range(4 * CORES):
        numa = cpu % (2 * CORES) // CORES
        node = root / f"sys/devices/system/node/node{numa}"
        write(node / f"cpu{cpu}/topology/thread_siblings_list", f"{threads(cpu)}\n")
    write(root / "proc/status", f"Name:\torted\nCpus_allowed_list:\t{allowed}\n")
    script = (TOP / "roles/mpi_stack/files/rail-bind").read_text(encoding="utf-8")
    script = script.replace("/proc/$process/status", f"{reads}/proc/status")
    for prefix in ("/sys/", "/proc/driver/"):
        script = script.replace(prefix, f"{reads}{prefix}")
    programs = {"rail-bind": script, "show": SHOW, "taskset": TASKSET}
    for name, text in programs.items():
        write(root / name, text.replace("@ROOT@", str(reads)))
        (root / name).chmod(0o755)
    return root
