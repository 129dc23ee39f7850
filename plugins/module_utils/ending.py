# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How a module of a layer ends: with its read-back, and failed when a promise does not hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, Protocol

from .checks import Check, as_dicts, failure_message


class Module(Protocol):
    """What of AnsibleModule is needed here."""

    def exit_json(self, **kwargs: Any) -> NoReturn: ...

    def fail_json(self, msg: str, **kwargs: Any) -> NoReturn: ...


def end(
    module: Module,
    layer: str,
    checks: Sequence[Check],
    remedy: str,
    *,
    errors: Sequence[str] = (),
    **result: Any,
) -> NoReturn:
    """Return `result` with the read-back in it. `errors` are what could not even be tried."""
    message = failure_message(layer, checks, remedy)
    if errors:
        message = "\n  ".join([message or f"{layer}: could not do everything:", *errors])
    result = {"changed": False, **result, "layer": layer, "checks": as_dicts(checks)}
    if message is not None:
        module.fail_json(msg=message, **result)
    module.exit_json(**result)
