# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How the modules go that build an image: nothing where it is there, and one build at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import NoReturn, Protocol

from ..core import checks
from .image import one_builder
from .steps import Step


class Module(checks.Module, Protocol):
    """What of AnsibleModule is needed here."""

    check_mode: bool


def build(
    module: Module,
    made: str,
    found: Mapping[str, str],
    *,
    exists: Callable[[], bool],
    make: Callable[[], Sequence[Step]],
    name: str,
    errors: tuple[type[Exception], ...],
) -> NoReturn:
    """Return `found`, after `make` has built what is `made`, unless that `exists`.

    `make` says which steps it took: none where another build came first while it waited.
    """
    diff = {"before": "", "after": f"{made}\n"}
    try:
        if exists():
            module.exit_json(changed=False, build=False, steps=[], **found)
        if module.check_mode:
            module.exit_json(changed=True, build=True, diff=diff, **found)
        with one_builder():
            steps = [asdict(step) for step in make()]
    except errors as error:
        module.fail_json(msg=f"{name}: {error}")
    module.exit_json(changed=bool(steps), build=bool(steps), steps=steps, diff=diff, **found)
