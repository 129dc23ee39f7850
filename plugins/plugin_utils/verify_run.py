# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A run of rdma_verify: the plan of its pairs, and the results that hosts have registered so far.

Steps of the action read each other's results only through `VerifyRun`. Results come from hosts, so
every value is limited or replaced before another host or a table gets it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from ..module_utils.core.checks import Check, not_applicable
from .answers import AnswerError, form_of, mapping, sentence, sequence
from .report import verbs as table

MAX_RAILS = 64
"""Maximum number of a host's rails whose problems are passed on."""
MAX_REASON = 300


@dataclass(frozen=True)
class VerifyRun:
    plan: Mapping[str, Any]
    """Result of the step `pairs`."""
    hostvars: Mapping[str, Any]
    served: Sequence[str] = ()
    """Variables that register the steps `serve`."""
    driven: str = ""
    """Variable that registers `drive`."""
    collected: str = ""
    """Variable that registers `collect`."""

    @classmethod
    def of(cls, arguments: Mapping[str, Any], task_vars: Mapping[str, Any]) -> VerifyRun:
        return cls(
            arguments.get("plan") or {},
            task_vars["hostvars"],
            tuple(arguments.get("served") or ()),
            arguments.get("driven") or "",
            arguments.get("collected") or "",
        )

    @property
    def parts(self) -> Mapping[str, Mapping[str, Any]]:
        """`drives`, `serves` and `alone` of rail_pairs.Part, by host."""
        return self.plan.get("parts") or {}

    @property
    def incast(self) -> str:
        """Where the senders of an incast are; empty for pairs of rails."""
        return self.plan.get("incast") or ""

    def part(self, host: str) -> Optional[Mapping[str, Any]]:
        return self.parts.get(host)

    def peers(self, host: str) -> list[str]:
        """Hosts to which `host` sends."""
        return sorted({half["peer"] for half in self.parts[host]["drives"]})

    def without_peer(self, host: str) -> list[Check]:
        name = "incast" if self.incast else "pair"
        return [
            not_applicable(name, "measured", reason, subject=f"{self.incast} {rail}".strip())
            for rail, reason in self.parts[host]["alone"].items()
        ]

    def started(self, host: str) -> bool:
        """Whether servers run on a host. A host that failed to start them has stopped them."""
        return any(self._registered(host, name).get("ports") for name in self.served)

    def unserved(self, host: str) -> dict[str, dict[str, str]]:
        """For each peer of a host, the reason for each rail that the peer cannot serve."""
        reasons: dict[str, dict[str, str]] = {}
        for peer in self.peers(host):
            for name in self.served:
                problems = mapping(self._registered(peer, name).get("problems"))
                if problems:
                    reasons.setdefault(peer, {}).update(_reasons(problems))
        return reasons

    def pairs(self, host: str) -> list[dict[str, Any]]:
        """Figures of a host, once for each of its pairs. Malformed figures fail their pair."""
        planned = [(half["rail"], half["peer"]) for half in self.parts[host]["drives"]]
        pairs: dict[tuple[str, str], dict[str, Any]] = {}
        figures = mapping(self._registered(host, self.driven).get("figures"))
        for given in map(mapping, sequence(figures.get("pairs"))):
            key = given.get("rail"), given.get("peer")
            if key in planned and key not in pairs:
                names = {"rail": key[0], "host": host, "peer": key[1]}
                pairs[key] = _pair(given, names)
        return list(pairs.values())

    def arrived(self, host: str) -> Mapping[str, Any]:
        """Packets that arrived at a host, by rail."""
        return mapping(self._registered(host, self.collected).get("arrived"))

    def _registered(self, host: str, name: str) -> Mapping[str, Any]:
        return mapping(self.hostvars[host].get(name)) if name else {}


def _pair(given: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    try:
        with form_of("the figures of a pair"):
            exchanges = {
                name: {**result, "growth": _growth(result.get("growth"))}
                for name, result in (given.get("exchanges") or {}).items()
            }
            pair = {**given, **names, "exchanges": exchanges}
            table.lines([pair], "")
            table.incasts([pair], "")
            return pair
    except AnswerError as error:
        return {**names, "problem": str(error)}


def _growth(answer: Any) -> dict[str, int]:
    return {
        name: count
        for name, count in mapping(answer).items()
        if isinstance(count, int) and 0 <= count < 1 << 64
    }


def _reasons(problems: Mapping[str, Any]) -> dict[str, str]:
    """Reasons by rail as plain text, for messages of another host."""
    return {
        rail: sentence(reason, MAX_REASON)
        for rail, reason in list(problems.items())[:MAX_RAILS]
        if sentence(rail, 40) == rail
    }
