# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Arguments of the kernel command line, configured for the next boot by a GRUB drop-in or grubby.

An argument that is configured but not in effect is recorded as a reason to reboot. One is removed
only if a layer added it and no other layer needs it; one file records who added which.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
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
"""Arguments that may occur more than once. Layers must agree on the value of any other."""

_ARGUMENT = re.compile(r"[A-Za-z0-9_.-]+(=[A-Za-z0-9_.,:/@+=-]*)?")
GRUB_DROP_IN = f"etc/default/grub.d/90-{NAME}.cfg"
GRUB_CONFIG = "boot/grub/grub.cfg"
OWN_KERNELS = "/etc/grub.d/10_linux"
"""The script that generates this system's entries; it marks its section of GRUB_CONFIG."""


def key_of(argument: str) -> str:
    return argument.split("=", 1)[0]


def running(node: Node) -> list[str]:
    return (node.read("proc/cmdline") or "").split()


@dataclass(frozen=True)
class Grub:
    """Debian and Ubuntu: a drop-in that sorts after all others, then update-grub. It appends to the
    variable that comes last on the command line; recovery entries do not use that variable."""

    node: Node
    exclusive: bool = True
    """Whether the collection's arguments are separate from the operator's."""

    def entries(self) -> list[list[str]]:
        """Return the arguments of each entry, except memory tests, recovery, and other systems."""
        own = rf"^### BEGIN {OWN_KERNELS}.*?^### END "  # also of 10_linux_zfs
        found = re.findall(own, self.node.read(GRUB_CONFIG) or "", re.MULTILINE | re.DOTALL)
        lines = map(str.split, "".join(found).splitlines())
        return [x[2:] for x in lines if x[:1] == ["linux"] and not {"single", "recovery"} & set(x)]

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
        """Whether the entries are older than the drop-in, as after an interrupted run."""
        drop_in, config = self.node.path(GRUB_DROP_IN), self.node.path(GRUB_CONFIG)
        if not drop_in.exists():
            return False
        return not config.exists() or config.stat().st_mtime < drop_in.stat().st_mtime

    def configure(self, add: Sequence[str], remove: Sequence[str]) -> None:
        self.node.run(["update-grub"])


@dataclass(frozen=True)
class Grubby:
    """EL: grubby changes every entry, and the default of future kernels."""

    node: Node
    exclusive: bool = False

    def entries(self) -> list[list[str]]:
        text = self.node.run(["grubby", "--info=ALL"]).stdout
        found = re.findall(r'^args="(.*)"$', text, re.MULTILINE)
        return [line.split() for line in found]

    def holds(self, argument: str) -> bool:
        return _in_all(self.entries(), argument)

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
BOOT_LOADERS: Mapping[str, Callable[[Node], BootLoader]] = {
    "usr/sbin/grubby": Grubby,
    "usr/sbin/update-grub": Grub,
}
"""Boot loaders by the program that configures them; the first program found decides."""


def boot_loader(node: Node) -> Optional[BootLoader]:
    """Return the node's boot loader, or None, for instance on a diskless node."""
    for program, loader in BOOT_LOADERS.items():
        if node.path(program).exists():
            return loader(node)
    return None


@dataclass
class KernelArguments:
    arguments: Sequence[str] = ()
    dropped: list[str] = field(default_factory=list)
    """Arguments that this layer added before, and that this run removes from the next boot."""

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
        shared = {argument for arguments in others.values() for argument in arguments}
        entries = loader.entries()
        missing = [x for x in self.arguments if not all(x in entry for entry in entries)]
        self.dropped = [x for x in owned if x not in self.arguments and x not in shared]
        leaving = [x for x in self.dropped if any(x in entry for entry in entries)]
        # An argument configured by the operator is not managed here.
        ours = {*owned, *shared, *missing}
        added = [x for x in self.arguments if x in ours or loader.exclusive]
        files = loader.files(_line({**others, node.layer: self.arguments}))

        def configure() -> None:
            # Recorded first, so that the next run knows them if this one is interrupted.
            _write_owned(node, [*owned, *added])
            loader.configure(missing, leaving)

        steps = []
        if missing or leaving or loader.stale() or any(planned.changed for planned in files):
            before, after = " ".join(leaving) or "(without them)", " ".join(self.arguments)
            steps.append(Step("kernel arguments of the next boot", before, after, configure))
        if added != owned:
            name, act = "kernel arguments added by this layer", partial(_write_owned, node, added)
            steps.append(Step(name, " ".join(owned) or "none", " ".join(added) or "none", act))
        return Plan(files, steps)

    def _agree(self, layer: str, others: Mapping[str, Sequence[str]]) -> None:
        """Raise PlanError if another layer requires a different value of an argument."""
        findings = [
            f"kernel_arguments: {wanted} is wanted here, and the layer {other} has {theirs}: leave "
            f"it out of the variables of {other} or of {layer}, then run that layer first"
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
            reason = node.not_here("the kernel command line is the host's")
            return Verdict(
                [not_applicable("kernel_argument", x, reason, subject=x) for x in self.arguments]
            )
        verdict = Verdict()
        loader = boot_loader(node)
        for argument in self.arguments:
            self._check(node, loader, argument, verdict)
        others = {} if loader is None else _others(owned_by_layer(node), node.layer, loader)
        needed = {*self.arguments, *(x for arguments in others.values() for x in arguments)}
        awaited = [reason.running for reason in node.rebooted_for if reason.wanted == ABSENT]
        for argument in dict.fromkeys([*self.dropped, *awaited]):
            if argument not in needed and argument in running(node):
                status, reason = _await_reboot(node, argument, ABSENT, argument, verdict)
                check = Check("kernel_argument", ABSENT, argument, status, argument, reason)
                verdict.checks.append(check)
        return verdict

    def _check(
        self, node: Node, loader: Optional[BootLoader], argument: str, verdict: Verdict
    ) -> None:
        found = [x for x in running(node) if key_of(x) == key_of(argument)]
        shown = " ".join(found) or ABSENT
        rivals = [x for x in found if x not in self.arguments]
        if argument in found and (not rivals or found.index(argument) > found.index(rivals[-1])):
            verdict.checks.append(Check("kernel_argument", argument, shown, OK, argument))
            return
        status, reason = FAILED, ""
        if argument in found:
            reason = f"{rivals[-1]} comes later and wins: remove it where it is set"
        elif loader is None:
            reason = "this node has neither GRUB nor grubby: add it where the node boots from"
        elif _in_all(loader.entries(), argument):
            status, reason = _await_reboot(node, argument, argument, shown, verdict)
        elif node.check_mode:
            status = PENDING
        else:
            reason = "it is missing in the boot loader's entries"
        verdict.checks.append(Check("kernel_argument", argument, shown, status, argument, reason))


def _in_all(entries: Sequence[Sequence[str]], argument: str) -> bool:
    return bool(entries) and all(argument in entry for entry in entries)


def _await_reboot(
    node: Node, argument: str, wanted: str, found: str, verdict: Verdict
) -> tuple[str, str]:
    subject = f"kernel argument {argument if wanted == ABSENT else key_of(argument)}"
    reason = Reason(subject, wanted, found, "the kernel reads its command line at boot only")
    verdict.reasons.append(reason)
    return node.reboot_due(reason)


def owned_by_layer(node: Node) -> dict[str, list[str]]:
    """Return the arguments that each layer added. Raises PlanError for an unreadable file."""
    text = node.read(OWNED)
    try:
        return {} if text is None else dict(json.loads(text)["owned"])
    except (ValueError, KeyError, TypeError) as error:
        raise PlanError(f"/{OWNED}: cannot be read ({error}); remove it") from error


def _others(
    owners: Mapping[str, Sequence[str]], layer: str, loader: BootLoader
) -> dict[str, list[str]]:
    """Return the other layers' arguments that the boot loader has."""
    return {
        other: [argument for argument in arguments if loader.holds(argument)]
        for other, arguments in owners.items()
        if other != layer
    }


def _line(layers: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the arguments of all layers, in the same order whichever layer asks."""
    return [*dict.fromkeys(argument for layer in sorted(layers) for argument in layers[layer])]


def _write_owned(node: Node, arguments: Sequence[str]) -> None:
    owners = {**owned_by_layer(node), node.layer: [*dict.fromkeys(arguments)]}
    owned = {layer: owners[layer] for layer in sorted(owners) if owners[layer]}
    text = json.dumps({"owned": owned}) + "\n" if owned else None
    node.record(OWNED, text).apply()
