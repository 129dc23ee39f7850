# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""scontrol and sinfo on a host: what slurmctld reports, and draining by the model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Optional

from ..core.commands import CommandError
from ..core.part import Node, Step
from ..core.text import one_line, shortened
from .cluster import SlurmNode
from .hostlist import compress
from .state import (
    NodeState,
    SlurmError,
    SwitchState,
    parse_config,
    parse_nodes,
    parse_topology,
)
from .texts import DRAIN_REASON, MODEL_DRAIN

MOST_REASONS = 100
MOST_CHARACTERS = 300
"""Limit of a reason: any operator may write one."""
_UP = re.compile(r"^Slurmctld\(primary\)[^\n]* is UP", re.MULTILINE)


@dataclass(frozen=True)
class Control:
    """Raises SlurmError with the output of the program that failed."""

    node: Node

    def up(self) -> bool:
        """Whether slurmctld responds."""
        try:
            answer = self.node.look(["scontrol", "ping"], check=False)
        except CommandError:
            return False
        return _UP.search(answer.stdout) is not None

    def nodes(self, name: str = "") -> dict[str, NodeState]:
        """Nodes by name; with `name`, only that one."""
        return parse_nodes(self._show("--oneliner", "show", "node", *([name] if name else [])))

    def registered(self, name: str) -> bool:
        """Whether slurmctld has heard from the slurmd of a node."""
        try:
            found = self.nodes(name).get(name)
        except SlurmError:
            return False
        return found is not None and found.responds

    def topology(self) -> dict[str, SwitchState]:
        return parse_topology(self._show("show", "topology"))

    def config(self) -> dict[str, str]:
        """Settings of slurmctld, with keys in lower case."""
        return parse_config(self._show("show", "config"))

    def reasons(self) -> list[dict[str, str]]:
        """Nodes that are out of service, as `sinfo -R` lists them."""
        form = "%N|%H|%u|%E"
        found: list[dict[str, str]] = []
        for line in self._run("sinfo", "-R", "--noheader", f"--format={form}").splitlines():
            words = [one_line(word) for word in line.split("|", 3)]
            if len(words) == 4 and len(found) < MOST_REASONS:
                values = [shortened(word, MOST_CHARACTERS) for word in words]
                found.append(dict(zip(("nodes", "since", "by", "reason"), values)))
        return found

    def drain(self, names: Iterable[str]) -> None:
        words = ("state=drain", f"reason={MODEL_DRAIN}")
        self._run("scontrol", "update", f"nodename={compress(names)}", *words)

    def resume(self, names: Iterable[str]) -> None:
        self._run("scontrol", "update", f"nodename={compress(names)}", "state=resume")

    def _show(self, *words: str) -> str:
        return self._run("scontrol", *words)

    def _run(self, *argv: str) -> str:
        """The output. slurmctld's refusals may end with status 0 and text on standard error."""
        what = " ".join(argv[:3])
        try:
            done = self.node.look(argv, check=False)
        except CommandError as error:
            raise SlurmError(f"{what}: {error}") from error
        if done.rc or (done.stderr.strip() and not done.stdout.strip()):
            said = one_line(f"{done.stderr} {done.stdout}")[:MOST_CHARACTERS]
            raise SlurmError(f"{what}: exit status {done.rc}: {said}")
        return done.stdout


@dataclass(frozen=True)
class Drains:
    """Differences between the model and slurmctld: nodes to drain, and those to resume because
    they were drained for the model and no longer are."""

    drain: tuple[str, ...] = ()
    resume: tuple[str, ...] = ()

    @classmethod
    def between(cls, nodes: Iterable[SlurmNode], found: Mapping[str, NodeState]) -> Drains:
        drain, resume = [], []
        for node in nodes:
            state = found.get(node.name)
            if state is None:
                continue
            if node.drained and not state.drained:
                drain.append(node.name)
            elif not node.drained and state.drained and by_model(state):
                resume.append(node.name)
        return cls(tuple(drain), tuple(resume))

    @property
    def verbs(self) -> list[str]:
        """Names of the differences and of the methods of Control that remove them."""
        return [verb for verb in ("drain", "resume") if getattr(self, verb)]

    def step(self, verb: str, act: Callable[[], None]) -> Step:
        before, after = ("in service", "drained") if verb == "drain" else ("drained", "in service")
        what = f"{compress(getattr(self, verb))} in Slurm"
        return Step(what, before, f"{after}, as in the model", act)

    def apply(self, control: Control) -> None:
        for verb in self.verbs:
            getattr(control, verb)(getattr(self, verb))


def by_model(state: Optional[NodeState]) -> bool:
    """Whether the role drained the node, because the model does."""
    return state is not None and state.drained and state.reason.startswith(DRAIN_REASON)
