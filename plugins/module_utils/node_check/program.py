# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The program `node-check`, which needs neither Ansible nor the network.

Exit status: 0 without faults, 1 with faults, 2 if the settings cannot be read; with `--nagios` that
of the plugin interface. Called by Slurm, it is 1 only in a prolog that has drained the node: Slurm
drains a node whose prolog or epilog fails, and starts no slurmd whose health check fails, and would
so take out nodes without consent and without a limit.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

from ..core import machine
from ..core.checks import FAILED, OK, Check, as_dicts
from ..core.commands import run
from ..core.files import directory_of_trust, write_atomically, write_beside
from ..core.part import Node
from . import CHECK, EPILOG, LINKS, PERIODIC, PROLOG, SETTINGS, STATE, counters, parallel, rates
from . import verdict as verdicts
from .looks import SAMPLES, Sight, looks
from .settings import Settings, SettingsError
from .verdict import NodeVerdict

HEALTHY, FAULTS, UNREADABLE = 0, 1, 2
KEPT = ("SLURM_JOB_ID", "SLURMD_NODENAME", "SLURM_CONF")
"""Variables of Slurm that it reads or that Slurm's programs need."""
LIMIT_S: Mapping[str, float] = {PROLOG: 1.0, EPILOG: 4.0, PERIODIC: 14.0, CHECK: 60.0}
"""Time for all looks of a mode, in seconds."""
SLURM_S: Mapping[str, float] = {PROLOG: 6.0, EPILOG: 0.0, PERIODIC: 4.5, CHECK: 0.0}
"""Time for Slurm, used in a prolog only if there is a fault and consent to drain."""
RATES, KERNEL, LAST = "rates.json", "kernel.json", "last.json"
REMEMBERED: Mapping[str, str] = {"rates": RATES, "kernel": KERNEL}
"""Looks with a state."""
SAMPLED = ("counters", "certificates")
"""Looks whose state is samples for the metrics, which no run remembers."""
RECENT = 3
"""Intervals for which a periodic run speaks for looks that a prolog has no time for."""
_LEVELS = {verdicts.FAULT: "<3>", verdicts.WARNING: "<4>", verdicts.HEALTHY: "<6>"}


def main(
    arguments: Sequence[str],
    environment: Optional[Mapping[str, str]] = None,
    limit_s: Mapping[str, float] = LIMIT_S,
    change: Callable[[Sight], Sight] = lambda sight: sight,
) -> int:
    """`arguments` begin with the name of the program, which may set the mode. Tests change the
    sight and the limits."""
    called, given = Path(arguments[0]).name, _arguments(arguments[1:])
    environment = os.environ if environment is None else environment
    if called not in LINKS:
        return _main(given.mode or CHECK, given, environment, limit_s, change)
    try:
        return _main(LINKS[called], given, environment, limit_s, change, by_slurm=True)
    except Exception:  # of whatever kind: every node may have the same fault
        import traceback

        traceback.print_exc()
        return HEALTHY


def _main(
    mode: str,
    given: Any,
    environment: Mapping[str, str],
    limit_s: Mapping[str, float],
    change: Callable[[Sight], Sight],
    *,
    by_slurm: bool = False,
) -> int:
    begin = time.monotonic()
    root = Path(given.root)
    try:
        settings = Settings.parse((root / SETTINGS).read_text(encoding="utf-8"))
        node = Node("node_check", root, run, machine.container(root), machine.boot_id(root))
        node = replace(node, uid=os.getuid(), gid=os.getgid())
        verdict = checked(node, settings, mode, environment, limit_s[mode], change)
    except (OSError, UnicodeError, RecursionError, SettingsError) as error:
        sys.stderr.write(f"node-check: {error}. If /{SETTINGS} is wrong, run the role node_check\n")
        unknown = 3 if given.nagios else UNREADABLE
        return HEALTHY if by_slurm else unknown
    drained = False
    if settings.drain and mode in (PROLOG, PERIODIC):
        verdict, drained = in_slurm(verdict, settings, environment, SLURM_S[mode])
    verdict = replace(verdict, seconds=time.monotonic() - begin)
    status = FAULTS if verdict.faults else HEALTHY
    if by_slurm:
        status = FAULTS if mode == PROLOG and drained else HEALTHY
    target = given.textfile or (settings.textfile if mode == PERIODIC else "")
    if target:
        _publish(Path.cwd() / target, verdicts.metrics(verdict, totals(node)))
    return _show(verdict, status, given, by_slurm=by_slurm)


def _arguments(words: Sequence[str]) -> Any:
    import argparse

    parser = argparse.ArgumentParser(prog="node-check", description="Health of this node")
    mode = parser.add_mutually_exclusive_group()
    for name, what in (
        (PROLOG, "before a job: what takes no time"),
        (PERIODIC, "everything; remember rates, drain or resume the node if settings allow it"),
        (EPILOG, "after a job: what it left behind"),
    ):
        mode.add_argument(f"--{name}", action="store_const", const=name, dest="mode", help=what)
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true")
    shape.add_argument("--nagios", action="store_true", help="the interface of Nagios plugins")
    parser.add_argument("--textfile", metavar="PATH", help="metrics for node_exporter")
    parser.add_argument("--root", default="/", help=argparse.SUPPRESS)
    return parser.parse_args(words)


def checked(
    node: Node,
    settings: Settings,
    mode: str,
    environment: Mapping[str, str],
    limit_s: float,
    change: Callable[[Sight], Sight] = lambda sight: sight,
) -> NodeVerdict:
    """Look at the node, and give a verdict. Only a periodic run remembers what it saw; a run by
    hand, or by the role in check mode, writes nothing."""
    directory = node.path(STATE)
    state = {name: parallel.load(directory / file) for name, file in REMEMBERED.items()}
    job = environment.get("SLURM_JOB_ID", "") if mode == EPILOG else ""
    sight = change(Sight(node, settings, mode, state, job))
    wanted = looks(sight)
    hanging = parallel.hanging(directory)
    seen = parallel.look_all(wanted, limit_s, hanging)
    late = {name for name, each in seen.items() if each.late} if mode == PROLOG else set()
    checks = [check for look in wanted for check in of_look(seen[look.name], look.name in late)]
    left = parallel.leftovers(seen)
    known = parallel.load(directory / parallel.LEFT)
    still = {name: known[name] for name in hanging if name in known}
    if mode != CHECK and {**still, **left} != known:
        _remember(directory / parallel.LEFT, {**still, **left}, node)
    if mode == PERIODIC:
        for name, file in REMEMBERED.items():
            if name in seen and seen[name].state:
                _remember(directory / file, seen[name].state, node)
        last = {name: as_dicts(each.checks) for name, each in seen.items()}
        content = {"boot": node.boot_id, "at": sight.now(), "looks": last}
        _remember(directory / LAST, content, node)
    elif mode == PROLOG:
        names = {look.name for look in wanted} - late
        checks += standing(parallel.load(directory / LAST), names, sight)
    samples = [each for name in SAMPLED if name in seen for each in _samples(seen[name])]
    at = int(sight.now())
    return verdicts.judge(settings.host, mode, checks, settings.warnings, at=at, samples=samples)


def _samples(seen: parallel.Seen) -> list[counters.Sample]:
    return counters.parsed(seen.state.get(SAMPLES))


def of_look(seen: parallel.Seen, late: bool) -> Sequence[Check]:
    """A prolog has a second: what it could not read then is no fault, as all nodes of a large job
    may be busy. What hangs, the next periodic run finds."""
    if not late:
        return seen.checks
    return [
        Check(
            parallel.UNREAD, each.wanted, each.found, FAILED, each.subject or each.name, each.reason
        )
        for each in seen.checks
    ]


def standing(last: Mapping[str, Any], names: set[str], sight: Sight) -> list[Check]:
    """Failed checks of the last periodic run, of looks that this run did not repeat."""
    at, of_looks = last.get("at"), last.get("looks")
    if last.get("boot") != sight.node.boot_id or not isinstance(of_looks, dict):
        return []
    if not isinstance(at, (int, float)):
        return []
    age_s = sight.now() - at
    if not 0 <= age_s <= RECENT * sight.settings.interval_s:
        return []
    return [
        replace(check, reason=f"found {age_s:.0f} s ago; {check.reason}".rstrip("; "))
        for name, rows in of_looks.items()
        if name not in names
        for check in parallel.checks_of(rows)
        if check.status != OK
    ]


def in_slurm(
    verdict: NodeVerdict, settings: Settings, environment: Mapping[str, str], limit_s: float
) -> tuple[NodeVerdict, bool]:
    """Drain or resume the node; return the verdict with a note, and whether it is drained."""
    if not verdict.faults and verdict.mode == PROLOG:
        return verdict, False
    from . import drain

    name = environment.get("SLURMD_NODENAME") or settings.host
    ask = parallel.bounded_runner(time.monotonic() + limit_s, lambda _step: None)
    if verdict.faults:
        done = drain.drain(ask, name, verdicts.reason(verdict.faults), settings)
        return replace(verdict, notes=[done.note]), done.drained
    # What a look could not read may be what the node was drained for.
    sees_all = all(each.check.name != parallel.UNREAD for each in verdict.findings)
    resumed = drain.resume(ask, name) if sees_all else None
    return (replace(verdict, notes=[resumed.note]) if resumed else verdict), False


def totals(node: Node) -> dict[tuple[str, str], int]:
    """Growth of each counter since its series began, by rail and check."""
    found = {}
    for key, row in parallel.load(node.path(STATE) / RATES).items():
        series, (rail, _blank, name) = rates.parsed(row), key.partition(" ")
        if series is not None and name in (rates.LINK_DOWNS, rates.ERRORS):
            found[rail, name] = series.total
    return found


def _remember(path: Path, content: Mapping[str, Any], node: Node) -> None:
    _write(node, path, json.dumps(content, sort_keys=True) + "\n")


def _write(node: Node, path: Path, text: str) -> None:
    """A full disk is a finding, and no reason to report nothing."""
    try:
        write_atomically(path, text, 0o644, node.uid, node.gid)
    except OSError as error:
        sys.stderr.write(f"node-check: {error}\n")


def _publish(path: Path, text: str) -> None:
    """Its directory may belong to node_exporter, or by mistake to every user."""
    try:
        directory = directory_of_trust(path.parent)
        try:
            write_beside(directory, path.name, text)
        finally:
            os.close(directory)
    except OSError as error:
        sys.stderr.write(f"node-check: no metrics: {error}\n")


def _show(verdict: NodeVerdict, status: int, given: Any, *, by_slurm: bool) -> int:
    if given.nagios:
        status, text = verdicts.nagios(verdict)
    elif given.json:
        text = verdicts.as_json(verdict, status)
    else:
        text = verdicts.text(verdict)
        if not by_slurm and not sys.stdout.isatty() and verdict.mode == PERIODIC:
            # For the journal; the priority of each line.
            text = "".join(f"{_LEVELS[verdict.word]}{line}\n" for line in text.splitlines())
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except (OSError, ValueError):  # a closed pipe, or an encoding without these characters
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, as it flushes at exit
    return status
