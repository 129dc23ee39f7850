# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The program of the look: reads a request from standard input, and prints an answer.

The look stops at a layer whose module would change something or fails, or that has no record with
the key of the request: the play of that layer runs on this host as without a look, and so do those
of all later layers, since they build on it.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core import asked, program
from ..core.checks import NOT_APPLICABLE, STRICT
from ..core.commands import run
from ..core.files import write_atomically
from ..packages.installed import CHECK
from .module import AnsibleModule, Answer

MODULES = f"{__name__.rpartition('.module_utils.')[0]}.modules"
LARGEST = 16 << 20
"""Size limit of a request, in characters."""
INSTALLED = "look-*"
"""The programs of former versions, next to this one."""
INSTALL_S = 120.0

NEW, DIFFERS = "new", "differs"
"""Why a look stops: no record with this key, or the module would change or refuse something."""


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["--install"]:
        install(Path(sys.argv[0]), Path(arguments[1]))
        return 0
    print(json.dumps(look(json.loads(sys.stdin.read(LARGEST)))))
    return 0


def install(source: Path, target: Path) -> None:
    """Make the program of this node's Python from `source`, and remove former ones."""

    def patient(argv: Sequence[str], **options: Any) -> Any:
        return run(argv, timeout_s=INSTALL_S, **options)

    text = source.read_bytes().decode("utf-8", "surrogateescape")
    write_atomically(target, program.compiled(text, patient), 0o755, 0, 0)
    for former in target.parent.glob(INSTALLED):
        if former != target:
            former.unlink(missing_ok=True)


def look(request: Mapping[str, Any], root: Path = Path("/")) -> dict[str, Any]:
    """The answer: results by layer, up to the first layer that has something to do.

    `request` has `layers` (tag, name of the module and key, in order), `now` (the controller's
    time, in seconds since 1970), `strict` (pending checks fail, as in playbooks/verify.yml), and
    perhaps `current` by tag: values of this run for options that were recorded with another value
    than nothing.
    """
    asked_at = time.monotonic()
    if request.get("strict"):
        os.environ[STRICT] = "1"
    found: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    stopped = None
    for tag, module, key in request["layers"]:
        began = time.monotonic()
        options = asked.recall(tag, key, root)
        if options is None:
            stopped = [tag, NEW]
            break
        current = request.get("current", {}).get(tag, {})
        options.update((name, value) for name, value in current.items() if options.get(name))
        if options.get("now") is not None:  # to compare the clocks
            options["now"] = request["now"] + time.monotonic() - asked_at
        result = of_module(module, options)
        seconds[tag] = round(time.monotonic() - began, 3)
        if not unchanged(result):
            stopped = [tag, DIFFERS]
            break
        found[tag] = result
    return {"layers": found, "seconds": seconds, "stopped": stopped}


def of_module(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a module in check mode. Any error is a failure: the layer's play repeats it."""
    AnsibleModule.given = options
    try:
        importlib.import_module(f"{MODULES}.{name}").main()
    except Answer as answer:
        return answer.result
    except Exception as error:
        return {"failed": True, "msg": repr(error)}
    return {"failed": True, "msg": f"{name} returned no result"}


def unchanged(result: Mapping[str, Any]) -> bool:
    """Whether a layer has nothing to do. A package under a name that only the package manager
    understands (a group, a file) is for the layer's play, as are certificates to be signed."""
    checks = result.get("checks")
    return (
        not result.get("failed")
        and not result.get("changed")
        and not result.get("sign")
        and isinstance(checks, list)
        and not any(
            check["name"] == CHECK and check["status"] == NOT_APPLICABLE for check in checks
        )
    )
