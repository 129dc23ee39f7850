# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How the modules of virtual nodes end: with what they did, or would do, as lines and as a diff."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from ..core import checks


def diff(header: str, lines: Iterable[str]) -> dict[str, str]:
    """What is done, a line for each action."""
    return {
        "before_header": header,
        "after_header": header,
        "before": "",
        "after": "".join(f"{line}\n" for line in lines),
    }


def act(
    module: checks.Module,
    action: Callable[[], dict[str, Any]],
    name: str,
    header: str,
    errors: tuple[type[Exception], ...],
) -> NoReturn:
    """Return what `action` does, its lines under `actions`, and the seconds that it takes."""
    started = time.monotonic()
    try:
        result = action()
    except errors as error:
        module.fail_json(msg=f"{name}: {error}")
    module.exit_json(
        changed=bool(result["actions"]),
        diff=diff(header, result["actions"]),
        seconds=round(time.monotonic() - started, 1),
        **result,
    )
