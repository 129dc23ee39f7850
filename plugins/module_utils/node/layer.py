# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How the module of a layer goes: it has this node, brings it to what is wanted, and ends.

Each module says what is its own: how long its programs take, what it refuses and its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Optional, Protocol

from .. import ending, machine, reboots
from ..commands import CommandError, run
from ..dataclass import dataclass
from .part import Node, PlanError
from .settle import Outcome

REMEDY = "Correct what the lines name, then run again with --tags {}; nothing else is needed."


class Module(ending.Module, Protocol):
    """What of AnsibleModule is needed here."""

    check_mode: bool

    def warn(self, warning: str) -> None: ...


@dataclass(frozen=True)
class Layer:
    """`refusals` are raised before anything is changed, `failures` at any time.

    Both come on top of those that every layer has.
    """

    tag: str
    command_s: float
    """Time for one program that changes something."""
    look_s: Optional[float] = None
    """Time for one that only looks, where it has less."""
    refusals: tuple[type[Exception], ...] = ()
    failures: tuple[type[Exception], ...] = ()
    simulates: bool = True
    """Whether its results tell what of them is not this machine's own."""

    def node(self, check_mode: bool) -> Node:
        """Raises RecordError and OSError."""
        return Node(
            layer=self.tag,
            root=Path("/"),
            run=partial(run, timeout_s=self.command_s),
            looks=None if self.look_s is None else partial(run, timeout_s=self.look_s),
            container=machine.container(),
            boot_id=machine.boot_id(),
            check_mode=check_mode,
            rebooted_for=tuple(reboots.recorded(self.tag)),
        )


@dataclass(frozen=True)
class Settled:
    """What came of it. `returned` is what only this layer returns."""

    outcome: Outcome
    simulated: Sequence[str] = ()
    warnings: Sequence[str] = ()
    returned: Mapping[str, Any] = field(default_factory=dict)


def carry_out(module: Module, layer: Layer, converge: Callable[[Node], Settled]) -> NoReturn:
    """Return what `converge` made of this node; a refusal says that nothing was changed."""
    nothing: dict[str, Any] = {"layer": layer.tag, "checks": []}
    if layer.simulates:
        nothing["simulated"] = []
    refusals: tuple[type[Exception], ...] = (PlanError, reboots.RecordError, *layer.refusals)
    failures: tuple[type[Exception], ...] = (CommandError, OSError, *layer.failures)
    try:
        node = layer.node(module.check_mode)
        settled = converge(node)
    except refusals as error:
        module.fail_json(msg=f"{layer.tag}: nothing was changed:\n{error}", **nothing)
    except failures as error:
        module.fail_json(msg=f"{layer.tag}: {error}", **nothing)

    for line in settled.warnings:
        module.warn(line)
    outcome = settled.outcome
    told = {"simulated": list(settled.simulated)} if layer.simulates else {}
    ending.end(
        module,
        layer.tag,
        outcome.checks,
        REMEDY.format(layer.tag),
        errors=outcome.errors,
        changed=outcome.changed,
        diff=outcome.diff,
        container=node.container,
        reboot_required=bool(outcome.reasons),
        reboot_reasons=[asdict(reason) for reason in outcome.reasons],
        **told,
        **settled.returned,
    )
