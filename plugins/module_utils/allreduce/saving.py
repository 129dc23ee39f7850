# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The result of a smoke test on the file system for checkpoints, where the whole cluster has it."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Callable, Mapping
from typing import Any, Optional

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.allreduce.hosts import (
    PROBE,
    SSH,
    as_user,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.allreduce.plan import (
    Checkpoint,
    Node,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.checks import (
    FAILED,
    OK,
    Check,
    not_applicable,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.commands import (
    CommandError,
    NoAnswerError,
    Runner,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi_environment import (
    PROGRAM_DIRECTORY,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.use import bounded, probe

NAME = "checkpoint_results"
FILE = "smoke-latest.json"
"""One file, written over by each run; what controllers keep is under its time."""

PROGRAM = f"{PROGRAM_DIRECTORY}/{PROBE}"
CONNECT_S = 20.0
"""Seconds for logging in to a node, beyond the limit of what it does there."""

Within = Callable[..., bounded.Answer]


def save(
    result: Mapping[str, Any],
    mount: str,
    cluster: str,
    limit_s: float,
    *,
    become: Optional[Callable[[], None]] = None,
    container: Optional[str] = None,
    plain: bool = False,
    within: Within = bounded.within,
) -> Check:
    """Save a result as the MPI user. `mount`: where this host has checkpoints.
    `plain`: it serves them from this very path, where nothing is mounted."""
    place = f"{mount}/{probe.DIRECTORY}/{cluster}/{FILE}"
    task = _task(result, mount, cluster, plain)
    record = bounded.LEFT_BEHIND / "smoke-results.pid"
    answer = within(limit_s, lambda tell: probe.perform(task, tell), become=become, record=record)
    return _judged(answer, place, mount, container)


def save_by(
    node: Node,
    result: Mapping[str, Any],
    checkpoint: Checkpoint,
    mount: str,
    *,
    user: str,
    python: str,
    run_id: str,
    run: Runner,
) -> Check:
    """Save a result from a node that has just written there: the launcher mounts no such thing.
    `run` waits for CONNECT_S longer than the limit of the checkpoint."""
    plain = checkpoint.plain_on == node.name
    task = {**_task(result, mount, checkpoint.cluster, plain), "limit_s": checkpoint.limit_s}
    program = shlex.join([python, PROGRAM, "--run-id", run_id, "--task", "-"])
    argv = as_user(user, [*SSH, node.host, program])
    place = f"{node.name}:{mount}/{probe.DIRECTORY}/{checkpoint.cluster}/{FILE}"
    try:
        told = run(argv, check=False, stdin=json.dumps(task))
    except NoAnswerError as error:
        why = f"{node.name}: no answer within {error.timeout_s:g} s; run --tags storage"
        return Check(NAME, place, "not saved", FAILED, "", why)
    except CommandError as error:
        return Check(NAME, place, "not saved", FAILED, "", f"{node.name}: {error}")
    answer = _answer(told.stdout)
    if not answer.answered and told.rc:
        said = told.stderr.strip().rpartition("\n")[2] or f"exit status {told.rc}"
        why = f"{node.name}: {said}, while {answer.step or 'starting'}; run --tags ssh,mpi"
        return Check(NAME, place, "not saved", FAILED, "", why)
    return _judged(answer, place, mount, None)


def _answer(text: str) -> bounded.Answer:
    """What a probe has printed, between whatever login files print."""
    found: dict[str, Any] = {}
    for line in text.splitlines():
        with contextlib.suppress(ValueError, TypeError):
            found.update(json.loads(line))
    step = str(found.pop("step", ""))
    return bounded.Answer(found, step, bool({"end", "error", "wrong"} & set(found)))


def _judged(answer: bounded.Answer, place: str, mount: str, container: Optional[str]) -> Check:
    if answer.found.get("saved"):
        return Check(NAME, place, place, OK)
    refused = answer.found.get("refused") or answer.found.get("error", {}).get("number") == 2
    if refused and container:
        why = f"{mount} is not mounted: this host is a container, which can mount nothing"
        return not_applicable(NAME, place, why)
    return Check(NAME, place, "not saved", FAILED, "", _why(answer, mount))


def _task(result: Mapping[str, Any], mount: str, cluster: str, plain: bool) -> dict[str, Any]:
    task = {"do": "save", "mount": mount, "plain": plain, "cluster": cluster, "name": FILE}
    return {**task, "text": json.dumps(result, indent=1) + "\n"}


def _why(answer: bounded.Answer, mount: str) -> str:
    if not answer.answered:
        stays = f"; process {answer.left_behind} waits on" if answer.left_behind else ""
        return f"{mount} does not answer, while {answer.step or 'starting'}{stays}; --tags storage"
    if answer.found.get("refused"):
        return f"{mount} is not mounted: run --tags storage"
    error = answer.found.get("error", {}).get("text") or "its process ended early"
    return f"{error} while {answer.step or 'starting'}; run --tags storage"
