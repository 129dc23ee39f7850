# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The conclusion of a finished run: figures of pairs, cables, collectives, storage and GPUs, with
their checks, and everything that was not measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from ...module_utils.core.checks import as_dicts
from ...module_utils.core.text import some
from . import cables, certificate, evaluation, plan, readings
from .figures import Topology, Verdict
from .state import (
    COUNTED,
    LEFT_OUT,
    MEASURED,
    READING,
    SWEEPS,
    VERDICTS,
    VIRTUAL,
    State,
    figures_of,
)


@dataclass
class Conclusion:
    measured: Mapping[str, Any]
    """Nodes, versions and coverage, as they were kept when everything was measured."""
    seconds: float
    virtual: bool
    software: Any
    evaluation: evaluation.Evaluation
    pairs: dict[str, Any]
    """Figures of all pairs, as evaluation.matrices returns them."""
    topology: dict[str, Any]
    """Hosts and cables, in the form of reports of runs."""
    cables: list[dict[str, str]]
    sweeps: dict[str, Any]
    storage: dict[str, Any]
    gpus: dict[str, Any]
    missing: list[dict[str, Any]]
    checks: list[dict[str, Any]]

    @property
    def verdict(self) -> str:
        return certificate.verdict_of(self.checks, self.missing)

    def content(self) -> dict[str, Any]:
        """Of the certificate."""
        return {
            "verdict": self.verdict,
            "virtual": self.virtual,
            "software": self.software,
            "versions": self.measured["versions"],
            "coverage": self.measured["coverage"],
            "seconds": round(self.seconds),
            **self.evaluation.as_dict(),
            "pairs": self.pairs,
            "topology": self.topology,
            "cables": self.cables,
            "sweeps": self.sweeps,
            "storage": self.storage,
            "gpus": self.gpus,
            "not_measured": self.missing,
            "checks": self.checks,
        }


def conclude(
    found: State,
    topology: Topology,
    *,
    variables: Mapping[str, Mapping[str, Any]],
    launchers: Mapping[str, Mapping[str, Any]],
    routing: readings.Routing,
    directory: Path,
    min_share: Optional[float],
    max_latency_us: Optional[float],
    queue_pairs: int,
) -> Conclusion:
    """`variables`: of each measured node, and of the `launchers`, which also use the storage.
    `routing`: with the cables that `topology` lacks, as they are down. `directory`: that of the
    reports of other layers."""
    measured, figures = found.of(MEASURED), figures_of(found, topology)
    evaluated = evaluation.evaluate(
        figures,
        topology,
        verdicts=[Verdict(**each) for each in found.steps.get(VERDICTS, ())],
        min_share=min_share,
        max_latency_us=max_latency_us,
        virtual=VIRTUAL in found.steps,
    )
    sweeps = {
        step.removeprefix(SWEEPS): result
        for step, result in found.steps.items()
        if step.startswith(SWEEPS)
    }
    missing = [*measured["missing"]]
    for program, result in sweeps.items():
        if "error" in result:
            missing.append({"what": f"{SWEEPS}{program}", "why": result["error"]})
    last = found.of(COUNTED)["reading"]
    unread = {**found.of(COUNTED)["unread"]}
    unread.update(readings.unpaired(found.of(READING), last))
    ports = readings.growths(found.of(READING), last)
    flows = cables.Flows.of(topology, figures, queue_pairs)
    listed, faults = readings.evaluate(cables.findings(topology, ports, flows) if ports else [])
    for what, why in readings.missing(unread, listed, topology):
        missing.append({"what": what, "why": why})
    for why, names in readings.by_reason(routing.unread).items():
        missing.append({"what": f"routing of {some(names, plan.MAX_LISTED)}", "why": why})
    users = {**variables, **launchers}
    late = found.steps.get(LEFT_OUT, ())
    lost, used = certificate.failed(users, certificate.STORED)
    stored = certificate.storage(directory) if used else {}
    unused = certificate.unused(users, used)
    if unused:
        what = f"storage on {some(unused, plan.MAX_LISTED)}"
        why = plan.NO_TIME if plan.STORAGE in late else plan.NO_STORAGE
        missing.append({"what": what, "why": why})
    burned, corrupt, skipped = certificate.burned(directory, variables)
    for (what, why), nodes in skipped.items():
        why = why or (plan.NO_TIME if plan.BURN in late else plan.NOT_BURNED)
        missing.append({"what": f"{what} of {some(nodes, plan.MAX_LISTED)}", "why": why})
    congested, driven = certificate.failed(variables, certificate.INCASTS)
    missing += [{"what": what, "why": plan.NO_TIME} for what in plan.INCASTS if what in late]
    if not driven and not {*plan.INCASTS} & {*late}:
        asked = any(own.get("rdma_verify_incast") for own in variables.values())
        why = plan.NO_INCAST if asked else plan.NOT_ASKED.format("rdma_verify_incast")
        missing.append(plan.Missing("congestion", why, partial=not asked).as_dict())
    checks = [*as_dicts([*routing.checks, *evaluated.checks, *faults]), *corrupt, *congested, *lost]
    for result in sweeps.values():
        checks += result.get("checks", [])
    first = next(iter(variables.values()))
    return Conclusion(
        measured,
        found.elapsed_s,
        VIRTUAL in found.steps,
        first.get("cluster_software"),
        evaluated,
        evaluation.matrices(figures, topology),
        topology.as_dict(),
        [*routing.listed(), *listed],
        sweeps,
        stored,
        burned,
        missing,
        checks,
    )
