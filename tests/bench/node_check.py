#!/usr/bin/env python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Measure `node-check` on a simulated node with 256 CPU threads, 8 rails and 8 GPUs.

In one column every program responds with nothing, in the other every program hangs, and so do a
file of sysfs and a look at it. Prints the slowest of several runs of each mode, with the start of
Python. Exits with 1 if a limit is exceeded.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "collections"), str(ROOT)]

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.node_check import (  # noqa: E402
    SETTINGS,
    install,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.node_check import (  # noqa: E402
    program as entry,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.node_check.settings import (  # noqa: E402
    Settings,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails.boot_program import (  # noqa: E402
    STATE,
)

from tests.hardware.gpu_states import GPUS, NICS, VERSION  # noqa: E402
from tests.hardware.trees import MEMORY, build_sys  # noqa: E402
from tests.unit.nic_host import options  # noqa: E402

THREADS = 256
PROCESSES = 16 * THREADS
"""Kernel threads and processes of such a node, about."""
MESSAGES = 100_000
RUNS = 3
LIMITS_S = {
    ("prolog", False): 2.0,
    ("prolog", True): 8.0,
    ("periodic", True): 20.0,
    ("epilog", True): 5.0,
}
"""By mode and consent to drain, which costs a prolog with a fault the calls of Slurm."""
PROGRAMS = (
    *("ip", "systemctl", "networkctl", "nmcli", "dcb", "nvidia-smi", "modinfo", "chronyc"),
    *("nv-fabricmanager", "timedatectl", "journalctl", "scontrol", "sinfo", "rdma", "devlink"),
)
START = """\
import os, sys
sys.path.insert(0, {archive!r})
os.environ["PATH"] = {path!r}
from {entry} import main
sys.exit(main(["node-check", *sys.argv[1:]]))
"""


def settings(*, drain: bool) -> Settings:
    rails = [
        {
            "rail": n,
            "plane": 0,
            "interface": f"rail{n}",
            "pci": pci,
            "address": f"10.100.{n}.11",
            "prefix": 24,
            "network": f"10.100.{n}.0/24",
            "gateway": f"10.100.{n}.1",
            "mtu": 9000,
            "speed_gbps": 800,
            "gpu": n,
        }
        for n, pci in enumerate(NICS)
    ]
    gpus = [{"index": n, "pci": pci} for n, pci in enumerate(GPUS)]
    return Settings(
        host="node01", rails=rails, gpus=gpus, gpu_driver={"version": VERSION}, drain=drain
    )


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def node(root: Path) -> None:
    """Write the files of the node; CPUs as in /sys/devices/system/cpu of a two-socket server."""
    build_sys("b300-8x800g", root / "sys")
    for cpu in range(THREADS):
        top = root / f"sys/devices/system/cpu/cpu{cpu}"
        for name in ("topology/core_id", "topology/thread_siblings", "cpufreq/scaling_governor"):
            write(top / name, f"{cpu}\n")
        for index in range(4):
            for name in ("size", "level", "shared_cpu_map", "type"):
                write(top / f"cache/index{index}/{name}", f"{index}\n")
    for pid in range(1, PROCESSES + 1):
        user = pid % 4 == 0
        write(root / f"proc/{pid}/stat", f"{pid} (p{pid}) S 2 0 0" + " 0" * 40)
        write(root / f"proc/{pid}/cmdline", f"program{pid}\0" if user else "")
        write(root / f"proc/{pid}/environ", "A=b\0" * 100 if user else "")
    lines = [f"6,{n},{n * 100},-;usb 1-1: message {n}\n" for n in range(MESSAGES)]
    write(root / "dev/kmsg", "".join(lines))
    write(root / "proc/sys/kernel/random/boot_id", "boot-1\n")
    write(root / "proc/uptime", "90000.00 1.00\n")
    write(root / "proc/self/mountinfo", "1 0 8:1 / / rw - ext4 /dev/sda rw\n")
    rails = [f"rail{n}" for n in range(len(NICS))]
    write(root / STATE, json.dumps({**options(), "rails": rails, "with_rdma": rails}))


def programs(folder: Path, body: str) -> None:
    for name in PROGRAMS:
        write(folder / name, f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)


def seconds(archive: Path, root: Path, path: Path, mode: str) -> float:
    start = START.format(archive=str(archive), path=f"{path}:/usr/bin:/bin", entry=entry.__name__)
    argv = ["/usr/bin/python3", "-IS", "-c", start, f"--{mode}", "--json", "--root", str(root)]
    begin = time.monotonic()
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    taken = time.monotonic() - begin
    if not done.stdout:
        raise SystemExit(f"no verdict: {done.stderr}")
    return taken


def main() -> int:
    over = 0
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        top = Path(folder)
        archive = top / "node-check"
        archive.write_bytes(install.program_text().encode("utf-8", "surrogateescape"))
        programs(top / "responds", "exit 0")
        programs(top / "hangs", "exec sleep 1000")
        node(top / "root")
        stuck = top / "root/sys/class/net/rail3/carrier_down_count"
        sys.stdout.write(f"{'':<18}{'responds':>10}{'hangs':>10}{'limit':>10}  seconds\n")
        for (mode, drain), limit in LIMITS_S.items():
            write(top / "root" / SETTINGS, settings(drain=drain).text())
            cells = []
            for how in ("responds", "hangs"):
                stuck.unlink(missing_ok=True)
                if how == "hangs":
                    os.mkfifo(stuck)
                runs = [seconds(archive, top / "root", top / how, mode) for _n in range(RUNS)]
                cells.append(max(runs))
            over += max(cells) > limit
            shown = "".join(f"{cell:>10.2f}" for cell in (*cells, limit))
            name = f"{mode}, drains" if drain and mode != "epilog" else mode
            sys.stdout.write(f"{name:<18}{shown}{'  over' if max(cells) > limit else ''}\n")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
