# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which combinations of a software set and a node are wrong, doubtful or unknown.

Rules about the set alone are in `plugin_utils/model/software_rules.py`: the model applies all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Optional

from ..core.dataclass import dataclass
from . import known_versions as known
from .distribution import REDHAT, Distribution
from .software_set import DOCA, Driver, SoftwareSet

REFUSED, WARNED, UNKNOWN = "refused", "warned", "unknown"
STATUSES = (REFUSED, WARNED, UNKNOWN)


@dataclass(frozen=True)
class Node:
    """What is known of a node; nothing at all where only the inventory is read."""

    distribution: Optional[Distribution] = None
    kernel: str = ""
    """The kernel that has to run, `uname -r`."""


NOWHERE = Node()


@dataclass(frozen=True)
class Judgement:
    """One finding about one set."""

    rule: str
    status: str
    key: tuple[str, ...]
    """The key below `software` that it is about."""
    problem: str
    remedy: str

    def line(self) -> str:
        return f"software.{'.'.join(self.key)}: {self.problem}. {self.remedy}."


Holds = Callable[[SoftwareSet, Node], bool]


@dataclass(frozen=True)
class Rule:
    name: str
    status: str
    key: str
    when: str
    """The combination."""
    reason: str
    remedy: str
    source: str
    holds: Holds


def judge(
    software: SoftwareSet, node: Node = NOWHERE, rules: Optional[Iterable[Rule]] = None
) -> list[Judgement]:
    """Everything that is to be said of the set on such a node, what is refused first."""
    judgements = []
    for rule in RULES if rules is None else rules:
        if rule.holds(software, node):
            found = _value(rule.key, software, node)
            problem = f"{found} ({rule.when}): {rule.reason} ({rule.source})"
            key = tuple(rule.key.split("."))
            judgements.append(Judgement(rule.name, rule.status, key, problem, rule.remedy))
    return sorted(judgements, key=lambda judgement: STATUSES.index(judgement.status))


def _value(key: str, software: SoftwareSet, node: Node) -> str:
    if key == "kernel":
        return _kernel(software, node)
    value: object = software
    for part in key.split("."):
        value = getattr(value, part)
    return value.version if isinstance(value, Driver) else str(value)


def number(version: str) -> tuple[int, ...]:
    """Sorts versions of numbers and dots: `580.95.05` before `580.105.08`, `13` as `13.0`."""
    numbers = [int(part) for part in re.findall(r"\d+", version)]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def older(one: str, other: str) -> bool:
    return number(one) < number(other)


def _kernel(software: SoftwareSet, node: Node) -> str:
    return node.kernel or software.kernel


def _kernel_number(release: str) -> str:
    """`6.8` of `6.8.0-79-generic`."""
    return ".".join(release.split("-")[0].split(".")[:2])


def doca_release(software: SoftwareSet) -> str:
    return ".".join(software.rdma.version.split(".")[:2])


def _doca_folder(software: SoftwareSet, node: Node) -> bool:
    here, folders = node.distribution, known.DOCA_RELEASES.get(doca_release(software))
    if software.rdma.source != DOCA or here is None or folders is None:
        return False
    return here.name != "debian" and here.doca_layout not in folders


def _doca_before_dkms(software: SoftwareSet, node: Node) -> bool:
    rdma, here = software.rdma, node.distribution
    if rdma.source != DOCA or here is None or here.family != REDHAT:
        return False
    filled_in = "{distribution}" in software.repositories["doca"].url
    return filled_in and older(rdma.version, known.DOCA_MAJOR_FOLDERS)


def _unknown_kernel(software: SoftwareSet, node: Node) -> bool:
    kernel = _kernel(software, node)
    known_one = _kernel_number(kernel) in known.DOCA_KERNELS
    return software.rdma.source == DOCA and bool(kernel) and not known_one


def _no_dma_buf(software: SoftwareSet, node: Node) -> bool:
    kernel = _kernel(software, node)
    old = bool(kernel) and older(_kernel_number(kernel), known.DMA_BUF_KERNEL)
    return old and software.driver is not None


def _on_debian(node: Node) -> bool:
    return node.distribution is not None and node.distribution.name == "debian"


PEERMEM = "GPUDirect RDMA has no dma-buf there and needs nvidia_peermem"
RULES: tuple[Rule, ...] = (
    Rule(
        "doca_distribution",
        UNKNOWN,
        "rdma.version",
        "a distribution other than "
        + "; ".join(
            f"{' and '.join(folders)} for DOCA {release}.x"
            for release, folders in known.DOCA_RELEASES.items()
        ),
        "whether its repository has a folder for it is not known",
        "If the layer rdma cannot read it, choose another release, or source: inbox",
        known.DOCA_SUPPORT,
        _doca_folder,
    ),
    Rule(
        "doca_debian",
        REFUSED,
        "rdma.source",
        "DOCA on Debian",
        "the catalogue has no packages for it",
        "Write source: inbox for these nodes",
        "this collection",
        lambda s, node: s.rdma.source == DOCA and _on_debian(node),
    ),
    Rule(
        "doca_before_dkms",
        REFUSED,
        "rdma.version",
        f"DOCA below {known.DOCA_MAJOR_FOLDERS} on EL by {{distribution}} in the URL",
        "its folders are those of minor releases, and its drivers are built for their kernels",
        f"Choose {known.DOCA_MAJOR_FOLDERS} or later, or write the folder into the URL",
        known.DOCA_SUPPORT,
        _doca_before_dkms,
    ),
    Rule(
        "unknown_kernel",
        UNKNOWN,
        "kernel",
        f"DOCA with a kernel other than {', '.join(known.DOCA_KERNELS)}",
        "whether its drivers build for this kernel is not known",
        "Try one node first: the layer rdma checks what DKMS made",
        known.PRACTICE,
        _unknown_kernel,
    ),
    Rule(
        "driver_distribution",
        REFUSED,
        "driver",
        "the NVIDIA driver on Debian",
        "the catalogue has no packages for it",
        "Install Ubuntu 22.04 or 24.04, or EL 9, or leave driver out for these nodes",
        "this collection",
        lambda s, node: s.driver is not None and _on_debian(node),
    ),
    Rule(
        "dma_buf_kernel",
        WARNED,
        "kernel",
        f"a kernel below {known.DMA_BUF_KERNEL}",
        PEERMEM,
        f"Choose a kernel from {known.DMA_BUF_KERNEL} on, or let nvidia_peermem be loaded",
        known.DRIVER_INSTALL,
        _no_dma_buf,
    ),
)
"""Those that a node decides."""
