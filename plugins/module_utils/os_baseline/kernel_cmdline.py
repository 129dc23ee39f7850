# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Arguments of the kernel command line: configured for the next boot, compared with this one.

Where they are configured is GRUB's drop-in, or grubby's entries.

Nothing reboots here: an argument that is configured but not running yet is recorded as a reason to
reboot. Several layers have arguments. Only those that a layer added are ever removed again, and
only when no other layer has them too; one file has the owners.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Optional, Union

from ..core.checks import FAILED, OK, PENDING, Check, not_applicable
from ..core.files import FilePlan
from ..core.part import NAME, Node, Plan, PlanError, Step, Verdict
from ..core.reboots import Reason

OWNED = "var/lib/baremetal-mpi-roce/kernel-arguments.json"
ABSENT = "absent"
SEVERAL = frozenset({"console", "earlycon", "hugepages", "hugepagesz"})
"""Arguments that the kernel takes more than once; of any other, two layers need one value."""

_ARGUMENT = re.compile(r"[A-Za-z0-9_.-]+(=[A-Za-z0-9_.,:/@+=-]*)?")
GRUB_DROP_IN = f"etc/default/grub.d/90-{NAME}.cfg"
GRUB_CONFIG = "boot/grub/grub.cfg"
OWN_KERNELS = "/etc/grub.d/10_linux"
"""The script whose entries start this system; it marks its section of GRUB_CONFIG."""


def key_of(argument: str) -> str:
    return argument.split("=", 1)[0]


def running(node: Node) -> list[str]:
    """The arguments this kernel was started with."""
    return (node.read("proc/cmdline") or "").split()


@dataclass(frozen=True)
class Grub:
    """Debian and Ubuntu: a drop-in after all others, then update-grub.

    It appends to the variable that stands last on the command line, so ours win, and that recovery
    entries leave out, so a bad argument does not take the way back.
    """

    node: Node
    exclusive: bool = True
    """Its arguments stand in a place of their own."""

    def entries(self) -> list[list[str]]:
        """Those of this system's own kernels: neither memory tests nor other systems found."""
        found = []
        section = OWN_KERNELS
        for line in (self.node.read(GRUB_CONFIG) or "").splitlines():
            words = line.split()
            if words[:2] == ["###", "BEGIN"] and len(words) > 2:
                section = words[2]
            elif words[:1] == ["linux"] and section.startswith(OWN_KERNELS) and "vmlinu" in line:
                found.append(words[2:])
        return [words for words in found if not {"single", "recovery"} & set(words)]

    def holds(self, argument: str) -> bool:
        return argument in re.findall(r'[^\s"]+', self.node.read(GRUB_DROP_IN) or "")

    def files(self, arguments: Sequence[str]) -> list[FilePlan]:
        path = self.node.path(GRUB_DROP_IN)
        if not arguments and not path.exists():
            return []
        name = "GRUB_CMDLINE_LINUX_DEFAULT"
        line = f'{name}="${name} {" ".join(arguments)}"\n' if arguments else ""
        return [self.node.file(GRUB_DROP_IN, line)]

    def stale(self) -> bool:
        drop_in = self.node.path(GRUB_DROP_IN)
        config = self.node.path(GRUB_CONFIG)
        if not drop_in.exists():
            return False
        return not config.exists() or config.stat().st_mtime < drop_in.stat().st_mtime

    def configure(self, add: Sequence[str], remove: Sequence[str]) -> None:
        self.node.run(["update-grub"])


@dataclass(frozen=True)
class Grubby:
    """RHEL and Rocky: grubby changes every entry, and what kernels to come start from."""

    node: Node
    exclusive: bool = False

    def entries(self) -> list[list[str]]:
        text = self.node.run(["grubby", "--info=ALL"]).stdout
        found = re.findall(r'^args="(.*)"$', text, re.MULTILINE)
        return [line.split() for line in found]

    def holds(self, argument: str) -> bool:
        entries = self.entries()
        return bool(entries) and all(argument in entry for entry in entries)

    def files(self, arguments: Sequence[str]) -> list[FilePlan]:
        return []

    def stale(self) -> bool:
        return False

    def configure(self, add: Sequence[str], remove: Sequence[str]) -> None:
        words = ["grubby", "--update-kernel=ALL"]
        words += [f"--remove-args={' '.join(remove)}"] if remove else []
        words += [f"--args={' '.join(add)}"] if add else []
        self.node.run(words)


BootLoader = Union[Grub, Grubby]


def boot_loader(node: Node) -> Optional[BootLoader]:
    """The tool this node configures its boot with, or None (a diskless node, for instance)."""
    if node.path("usr/sbin/grubby").exists():
        return Grubby(node)
    if node.path("usr/sbin/update-grub").exists():
        return Grub(node)
    return None


@dataclass
class KernelArguments:
    """The arguments of one layer."""

    arguments: Sequence[str] = ()
    dropped: list[str] = field(default_factory=list)
    """Of this layer, no longer wanted, and taken off the next command line by this run."""

    def plan(self, node: Node) -> Plan:
        bad = [argument for argument in self.arguments if not _ARGUMENT.fullmatch(argument)]
        if bad:
            raise PlanError(f"kernel_arguments: {bad}: one argument per entry, without blanks")
        loader = None if node.container is not None else boot_loader(node)
        owners = owned_by_layer(node)
        owned = owners.get(node.layer, [])
        if loader is None or not (self.arguments or owned):
            return Plan()
        others = _others(owners, node.layer, loader)
        self._agree(node.layer, others)
        kept = {each for arguments in others.values() for each in arguments}
        entries = loader.entries()
        missing = [each for each in self.arguments if not all(each in entry for entry in entries)]
        ours = {*owned, *kept, *missing}
        added = [each for each in self.arguments if each in ours or loader.exclusive]
        self.dropped = [each for each in owned if each not in self.arguments and each not in kept]
        left = [each for each in self.dropped if any(each in entry for entry in entries)]
        files = loader.files(_line({**others, node.layer: self.arguments}))
        steps = []
        if missing or left or loader.stale() or any(planned.changed for planned in files):

            def configure() -> None:
                # An interrupted run must know its own: they are recorded before the change.
                _write_owned(node, [*owned, *added])
                loader.configure(missing, left)

            before, after = " ".join(left) or "(without them)", " ".join(self.arguments)
            steps.append(Step("kernel arguments of the next boot", before, after, configure))
        if added != owned:
            what, act = "kernel arguments added by this layer", partial(_write_owned, node, added)
            steps.append(Step(what, " ".join(owned) or "none", " ".join(added) or "none", act))
        return Plan(files, steps)

    def _agree(self, layer: str, others: Mapping[str, Sequence[str]]) -> None:
        """Raises PlanError where another layer has another value of a wanted argument."""
        findings = [
            f"kernel_arguments: {wanted} is wanted here, and the layer {other} has {theirs} on the "
            f"kernel command line: leave it out of the variables of {other} or of {layer}, then "
            "run that layer first"
            for other, arguments in others.items()
            for theirs in arguments
            for wanted in self.arguments
            if key_of(wanted) == key_of(theirs) and key_of(wanted) not in SEVERAL
            if wanted != theirs and theirs not in self.arguments
        ]
        if findings:
            raise PlanError("\n".join(findings))

    def verify(self, node: Node) -> Verdict:
        if node.container is not None:
            why = node.not_here("the kernel command line is the host's")
            checks = [
                not_applicable("kernel_argument", each, why, subject=each)
                for each in self.arguments
            ]
            return Verdict(checks)
        verdict = Verdict()
        loader = boot_loader(node)
        for argument in self.arguments:
            self._judge(node, loader, argument, verdict)
        others = {} if loader is None else _others(owned_by_layer(node), node.layer, loader)
        kept = {each for arguments in others.values() for each in arguments}
        awaited = [each.running for each in node.rebooted_for if each.wanted == ABSENT]
        for argument in dict.fromkeys([*self.dropped, *awaited]):
            if argument not in {*self.arguments, *kept} and argument in running(node):
                status, why = _await_reboot(node, argument, ABSENT, argument, verdict)
                check = Check("kernel_argument", ABSENT, argument, status, argument, why)
                verdict.checks.append(check)
        return verdict

    def _judge(
        self, node: Node, loader: Optional[BootLoader], argument: str, verdict: Verdict
    ) -> None:
        found = [each for each in running(node) if key_of(each) == key_of(argument)]
        shown = " ".join(found) or ABSENT
        rivals = [each for each in found if each not in self.arguments]
        if argument in found and (not rivals or found.index(argument) > found.index(rivals[-1])):
            verdict.checks.append(Check("kernel_argument", argument, shown, OK, argument))
            return
        entries = [] if loader is None else loader.entries()
        configured = bool(entries) and all(argument in each for each in entries)
        if argument in found:
            status, why = FAILED, f"{rivals[-1]} comes later and wins: remove it where it is set"
        elif loader is None:
            status = FAILED
            why = "neither GRUB nor grubby is here: add it where this node boots from"
        elif not configured:
            status, why = (
                (PENDING, "") if node.check_mode else (FAILED, "the boot loader has it not")
            )
        else:
            status, why = _await_reboot(node, argument, argument, shown, verdict)
        verdict.checks.append(Check("kernel_argument", argument, shown, status, argument, why))


def _await_reboot(
    node: Node, argument: str, wanted: str, found: str, verdict: Verdict
) -> tuple[str, str]:
    subject = f"kernel argument {argument if wanted == ABSENT else key_of(argument)}"
    reason = Reason(subject, wanted, found, "the kernel reads its command line at boot only")
    verdict.reasons.append(reason)
    return node.reboot_due(reason)


def owned_by_layer(node: Node) -> dict[str, list[str]]:
    """The arguments that each layer added. Raises PlanError for a file that cannot be read."""
    text = node.read(OWNED)
    try:
        return {} if text is None else dict(json.loads(text)["owned"])
    except (ValueError, KeyError, TypeError) as error:
        raise PlanError(f"/{OWNED}: cannot be read ({error}); remove it") from error


def _others(
    owners: Mapping[str, Sequence[str]], layer: str, loader: BootLoader
) -> dict[str, list[str]]:
    """What other layers have on the command line of the next boot, and the boot loader has."""
    return {
        other: [each for each in arguments if loader.holds(each)]
        for other, arguments in owners.items()
        if other != layer
    }


def _line(layers: Mapping[str, Sequence[str]]) -> list[str]:
    """The arguments of all layers, in an order that does not depend on which one runs."""
    return [*dict.fromkeys(each for layer in sorted(layers) for each in layers[layer])]


def _write_owned(node: Node, arguments: Sequence[str]) -> None:
    owners = {**owned_by_layer(node), node.layer: [*dict.fromkeys(arguments)]}
    owned = {layer: owners[layer] for layer in sorted(owners) if owners[layer]}
    text = json.dumps({"owned": owned}) + "\n" if owned else None
    node.record(OWNED, text).apply()
