# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The result of a smoke test on the file system for checkpoints, where the whole cluster has it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Optional

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.checks import (
    FAILED,
    OK,
    Check,
    not_applicable,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.use import bounded, probe

NAME = "checkpoint_results"
FILE = "smoke-latest.json"
"""One file, written over by each run; what controllers keep is under its time."""

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
    """Save a result as the MPI user. `mount`: where this host has checkpoints; empty: nowhere.
    `plain`: it serves them from this very path, where nothing is mounted."""
    place = f"{mount}/{probe.DIRECTORY}/{cluster}/{FILE}"
    if not mount:
        return not_applicable(NAME, "saved", "this host mounts no file system for checkpoints")
    task = _task(result, mount, cluster, plain)
    record = bounded.LEFT_BEHIND / "smoke-results.pid"
    answer = within(limit_s, lambda tell: probe.perform(task, tell), become=become, record=record)
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
