# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The programs on this node: which are missing, and what the others can do."""

from __future__ import annotations

from collections.abc import Iterable

from ..commands import CommandError, Runner, find_program
from .exchanges import PACKAGE, PERFTEST, PROGRAMS, Features, features
from .wire.sniffer import KERNEL, NOTHING, SNIFFER

ETHTOOL = "ethtool"
"""Reads a real NIC's counters by priority. Of the same name on every distribution."""


def missing(exchanges: Iterable[str], physical: bool = False) -> list[str]:
    """Programs that this node needs and does not have. `physical`: a rail is a real NIC."""
    wanted = [*(PROGRAMS[name] for name in exchanges), *([ETHTOOL] if physical else [])]
    return [program for program in dict.fromkeys(wanted) if find_program(program) is None]


def packages(programs: Iterable[str]) -> list[str]:
    """What has to be installed for them. UCX is not among it: the layer mpi installs that."""
    wanted = set(programs)
    return [
        *([PACKAGE] if wanted & set(PERFTEST.values()) else []),
        *([ETHTOOL] if ETHTOOL in wanted else []),
    ]


def perftest_features(exchanges: Iterable[str], run: Runner) -> Features:
    """What the installed perftest can do; all of its programs share their options."""
    program = next((PERFTEST[name] for name in exchanges if name in PERFTEST), None)
    if program is None:
        return Features(json=False, bind="")
    told = run([program, "--help"], check=False)
    return features(told.stdout + told.stderr)


def sniffed_devices(run: Runner) -> frozenset[str]:
    """RDMA devices whose packets tcpdump can show."""
    try:
        listed = run(["tcpdump", "-D"], check=False).stdout
    except CommandError:
        return frozenset()
    lines = [line for line in listed.splitlines() if "RDMA" in line]
    return frozenset(line.partition(".")[2].split()[0] for line in lines if "." in line)


def watched_by(software: bool, device: str, sniffed: Iterable[str]) -> str:
    """How packets of a device can be seen."""
    if software:
        return KERNEL
    return SNIFFER if device in sniffed else NOTHING
