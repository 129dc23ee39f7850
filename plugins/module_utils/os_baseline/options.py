# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From the options of the module to the parts, with every mistake named at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional, TypeVar

from ..core import systemd
from ..core.checks import FAILED, OK, PENDING, Check, not_applicable
from ..core.dataclass import dataclass
from ..core.part import Node, Part, Plan, PlanError, Step, Verdict
from . import limits
from .clock import Clock
from .kernel_cmdline import KernelArguments
from .limits import ServiceLimits, SessionLimits
from .swap import SwapOff
from .sysctl import Sysctls
from .sysfs import Subject, SysfsValues, Unable, Wish, Write

# Hugepages, per NUMA node or in all; those of 1 GiB by the kernel command line as well.

KIB = {"2M": 2048, "1G": 1048576}


@dataclass(frozen=True)
class Pool:
    """So many pages of one size, on one NUMA node or (None) wherever the kernel puts them."""

    size: str
    count: int
    node: Optional[int] = None

    @property
    def directory(self) -> str:
        place = "kernel/mm" if self.node is None else f"devices/system/node/node{self.node}"
        return f"sys/{place}/hugepages/hugepages-{KIB[self.size]}kB"

    @property
    def subject(self) -> str:
        return self.size if self.node is None else f"{self.size} on NUMA node {self.node}"


@dataclass(frozen=True)
class Hugepages:
    pools: Sequence[Pool] = ()

    @classmethod
    def from_options(cls, entries: Sequence[Mapping[str, Any]]) -> Hugepages:
        pools = [Pool(each["size"], each["count"], each.get("node")) for each in entries]
        findings = [
            f"hugepages {pool.subject}: {pool.count} is not a count"
            for pool in pools
            if pool.count < 0
        ]
        for size in KIB:
            places = [pool.node for pool in pools if pool.size == size]
            if len(set(places)) != len(places):
                findings.append(f"hugepages {size}: the same place is given twice")
            if None in places and len(places) > 1:
                findings.append(f"hugepages {size}: give one total, or one count per NUMA node")
        if findings:
            raise PlanError("\n".join(findings))
        return cls(tuple(pools))

    def kernel_arguments(self) -> list[str]:
        """1 GiB pages need memory that only the boot still has in one piece."""
        large = [pool for pool in self.pools if pool.size == "1G"]
        if not large:
            return []
        if large[0].node is None:
            return ["hugepagesz=1G", f"hugepages={large[0].count}"]
        counts = ",".join(f"{pool.node}:{pool.count}" for pool in large)
        return ["hugepagesz=1G", f"hugepages={counts}"]

    def wishes(self, node: Node) -> list[Wish]:
        return [self._wish(node, pool) for pool in self.pools]

    def _wish(self, node: Node, pool: Pool) -> Wish:
        value = str(pool.count)
        if node.container is not None:
            why = node.not_here("hugepages are the host kernel's")
            return Unable("hugepages", value, why, pool.subject)
        if not node.path(pool.directory).is_dir():
            why = f"there is no /{pool.directory}: no such NUMA node, or no such page size"
            return Unable("hugepages", value, why, pool.subject, fault=True)
        return Write(
            "hugepages", f"{pool.directory}/nr_hugepages", value, pool.subject, boot_helps=True
        )


# Transparent hugepages: always, for programs that ask (madvise), or never.

FILE = "sys/kernel/mm/transparent_hugepage/enabled"


@dataclass(frozen=True)
class TransparentHugepages:
    mode: str

    def wishes(self, node: Node) -> list[Wish]:
        if node.container is not None:
            why = node.not_here("the kernel is the host's")
            return [Unable("transparent_hugepages", self.mode, why)]
        if not node.path(FILE).exists():
            why = "this kernel is built without them"
            return [Unable("transparent_hugepages", self.mode, why)]
        return [Write("transparent_hugepages", FILE, self.mode)]


# irqbalance: on, or off where NIC interrupts are pinned by hand.

UNIT = "irqbalance.service"
ON = "enabled, active"
OFF = "disabled, inactive"
ABSENT = "not installed"


@dataclass(frozen=True)
class Irqbalance:
    running: bool

    @property
    def wanted(self) -> str:
        return ON if self.running else OFF

    def plan(self, node: Node) -> Plan:
        if node.container is not None or self._satisfied(node):
            return Plan()
        verb = "enable" if self.running else "disable"

        def act() -> None:
            node.run(["systemctl", verb, "--now", UNIT])

        return Plan([], [Step(UNIT, _found(node), self.wanted, act)])

    def verify(self, node: Node) -> Verdict:
        if node.container is not None:
            why = node.not_here("interrupts are the host's")
            return Verdict([not_applicable("irqbalance", self.wanted, why)])
        status = OK if self._satisfied(node) else PENDING if node.check_mode else FAILED
        return Verdict([Check("irqbalance", self.wanted, _found(node), status)])

    def _satisfied(self, node: Node) -> bool:
        found = _found(node)
        return found == self.wanted or (found in (ABSENT, "masked, inactive") and not self.running)


def _found(node: Node) -> str:
    if (
        systemd.installed(node, [UNIT]) is None
        and not node.path(f"etc/systemd/system/{UNIT}").is_symlink()
    ):
        return ABSENT
    return systemd.state(node, UNIT)


# The CPU frequency governor: one word for every CPU of the machine.

POLICIES = "sys/devices/system/cpu/cpufreq/policy*"


@dataclass(frozen=True)
class Governor:
    """`name` for every CPU, as long as the kernel steers the frequency at all."""

    name: str

    def wishes(self, node: Node) -> list[Wish]:
        if node.container is not None:
            return [self._unable(node.not_here("the CPUs are the host's"))]
        policies = sorted(node.root.glob(POLICIES))
        if not policies:
            return [self._unable("no cpufreq: firmware or hypervisor steers the frequency")]
        for policy in policies:
            offered = node.read(str(policy.relative_to(node.root) / "scaling_available_governors"))
            if offered is not None and self.name not in offered.split():
                why = f"{policy.name} offers {', '.join(offered.split())}"
                return [self._unable(why, fault=True)]
        return [Write("cpu_governor", f"{POLICIES}/scaling_governor", self.name)]

    def _unable(self, why: str, fault: bool = False) -> Unable:
        return Unable("cpu_governor", self.name, why, fault=fault)


KEEP = "keep"

T = TypeVar("T")


def parts(options: Mapping[str, Any]) -> list[Part]:
    """The parts, in the order in which they are done. Raises PlanError with all findings."""
    findings: list[str] = []

    def attempt(make: Callable[[], T], otherwise: T) -> T:
        try:
            return make()
        except PlanError as error:
            findings.append(str(error))
            return otherwise

    sysctls = attempt(
        lambda: Sysctls.from_options(options["sysctls"], options["optional_sysctls"]), Sysctls({})
    )
    wanted: list[limits.Limit] = attempt(lambda: limits.from_options(options["limits"]), [])
    of_services: list[limits.Limit] = attempt(
        lambda: limits.chosen(wanted, options["service_limits"]), []
    )
    hugepages = attempt(lambda: Hugepages.from_options(options["hugepages"]), Hugepages())
    arguments = [*options["kernel_arguments"], *hugepages.kernel_arguments()]
    kernel = attempt(lambda: KernelArguments.from_options(arguments), KernelArguments())
    if findings:
        raise PlanError("\n".join(findings))

    sysfs: list[Subject] = [hugepages]
    if options["transparent_hugepages"] != KEEP:
        sysfs.append(TransparentHugepages(options["transparent_hugepages"]))
    if options["governor"] != KEEP:
        sysfs.append(Governor(options["governor"]))

    chosen: list[Part] = [
        sysctls,
        SessionLimits(wanted, options["limits_user"]),
        ServiceLimits(of_services),
        SysfsValues(sysfs),
    ]
    if options["swap"] != KEEP:
        chosen.append(SwapOff())
    if options["irqbalance"] != KEEP:
        chosen.append(Irqbalance(options["irqbalance"] == "on"))
    if options["time"]:
        chosen.append(
            Clock(options["time_servers"], options["time_max_offset"], options["time_wait"])
        )
    chosen.append(kernel)
    return chosen
