# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From the options of the module to the parts, with every mistake named at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ..node.part import Part, PlanError
from . import limits
from .clock import Clock
from .governor import Governor
from .hugepages import Hugepages
from .irqbalance import Irqbalance
from .kernel_cmdline import KernelArguments
from .service_limits import ServiceLimits
from .session_limits import SessionLimits
from .swap import SwapOff
from .sysctl import Sysctls
from .sysfs import Subject, SysfsValues
from .thp import TransparentHugepages

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
