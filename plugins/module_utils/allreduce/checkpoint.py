# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Judging what the ranks did on shared storage: a file of each node, read by another one.

It stands beside the verdict of the allreduce and never instead of it: storage that hangs makes
these checks fail and no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.allreduce.plan import Plan
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.allreduce.records import (
    Records,
    listed,
    node_of,
    of_kind,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.checks import (
    FAILED,
    NOT_APPLICABLE,
    OK,
    Check,
    not_applicable,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.directories import (
    CHECKPOINT_DIRECTORY,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.file_system import (
    FileSystem,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.use.faults import fault
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.use.figures import (
    figure,
)

WRITE, READ = "checkpoint_write", "checkpoint_read"
NONE = "no file system of cluster_filesystems has the purpose checkpoints"


def judge(plan: Plan, records: Records, fs: Optional[FileSystem], *, ended: bool) -> list[Check]:
    """`ended`: the allreduce came to its end; before that no rank writes anything."""
    nodes = [node for node in plan.nodes if node.checkpoints]
    wanted = _wanted(plan, len(nodes))
    if fs is None or plan.checkpoint is None:
        why = NONE if fs is None else "nothing is written (mpi_smoke_checkpoint_mib is 0)"
        return [not_applicable(name, wanted, why) for name in (WRITE, READ)]
    if not nodes:
        why = f"{fs.mount} is on none of these nodes (hosts of {fs.name}: {', '.join(fs.hosts)})"
        return [not_applicable(name, wanted, why) for name in (WRITE, READ)]
    if not ended:
        why = "the allreduce did not come to its end"
        return [not_applicable(name, wanted, why) for name in (WRITE, READ)]
    told = by_node(plan, records)
    # One that serves it at the same path has it, container or not.
    clients = [told.get(node.name) for node in nodes if node.name != plan.checkpoint.plain_on]
    if clients and all(one is not None and _in_container(one) for one in clients):
        why = f"{fs.mount} is not mounted: the nodes are containers, which can mount nothing"
        return [not_applicable(name, wanted, why) for name in (WRITE, READ)]
    not_written = {
        node.name: problem
        for node in nodes
        if (problem := _not_written(told.get(node.name), fs.mount))
    }
    writing = _check(WRITE, wanted, not_written)
    not_read: dict[str, str] = {}
    unread = 0
    for node in nodes:
        one = told.get(node.name)
        if one is None or node.name in not_written or not one["read"]:
            unread += 1
        elif problem := _problem(one["read"], "read_right"):
            not_read[node.name] = problem
    if unread == len(nodes):
        why = f"not read: see {WRITE}"
        return [writing, Check(READ, wanted, None, NOT_APPLICABLE, "", why)]
    return [writing, _check(READ, wanted, not_read, unread)]


def by_node(plan: Plan, records: Records) -> dict[str, Mapping[str, Any]]:
    nodes = {node.name: node for node in plan.nodes}
    found = {}
    for one in of_kind(records, "checkpoint"):
        node = node_of(one["name"], nodes)
        if node is not None:
            found[node.name] = one
    return found


def _wanted(plan: Plan, nodes: int) -> str:
    size = plan.checkpoint.bytes / (1 << 20) if plan.checkpoint is not None else 0
    return f"{size:g} MiB on each of {nodes} nodes"


def _check(name: str, wanted: str, wrong: Mapping[str, str], unread: int = 0) -> Check:
    if wrong:
        why = listed([f"{host}: {problem}" for host, problem in wrong.items()])
        return Check(name, wanted, f"{len(wrong)} not", FAILED, "", f"{why}; run --tags storage")
    why = f"{unread} not read: see {WRITE}" if unread else ""
    return Check(name, wanted, wanted, OK, "", why)


def _in_container(one: Mapping[str, Any]) -> bool:
    return bool(one["container"]) and not one["wrote"].get("renamed") and _refused(one)


def _refused(one: Mapping[str, Any]) -> bool:
    """Nothing is mounted there, or the environment says nothing of it."""
    wrote = one["wrote"]
    gone = wrote.get("error", {}).get("number") == 2 and str(wrote.get("step")).startswith(
        "opening"
    )
    return not one["directory"] or bool(wrote.get("refused")) or gone


def _not_written(one: Optional[Mapping[str, Any]], mount: str) -> str:
    if one is None:
        return "its rank reported nothing"
    if not one["directory"]:
        return f"{CHECKPOINT_DIRECTORY} is not in its environment: run --tags mpi"
    if one["directory"] != mount:
        return f"{CHECKPOINT_DIRECTORY} is {one['directory']} there: run --tags mpi"
    return _problem(one["wrote"], "renamed")


def _problem(told: Mapping[str, Any], right: str) -> str:
    """Why a task was not done; empty where it was."""
    step = str(told.get("step") or "starting")
    if not told.get("answered"):
        return f"no answer in time (mpi_smoke_checkpoint_limit_s) while {step}"
    if "error" in told:
        error = told["error"]
        one = fault(
            int(error["number"]), str(error["text"]), step, automount=True, unit="its", user="mpi"
        )
        return one.found
    if "wrong" in told:
        return str(told["wrong"]["text"])
    if told.get("refused"):
        return "not mounted; nothing was written"
    if not told.get(right) or not told.get("end"):
        return f"its process ended early, while {step}: run --tags mpi"
    return ""


def figures(plan: Plan, records: Records, fs: Optional[FileSystem]) -> Optional[dict[str, Any]]:
    """What was measured, beside what is expected; None where nothing was.

    A node that serves the file system itself measures its own disk, and is left out.
    """
    told = by_node(plan, records)
    serving = fs.serve.host if fs is not None and fs.serve is not None else ""
    clients = {name: one for name, one in told.items() if name != serving}
    wrote = figure(
        {name: one["wrote"]["wrote"] for name, one in clients.items() if _has(one, "wrote")}
    )
    read = figure({name: one["read"]["read"] for name, one in clients.items() if _has(one, "read")})
    if wrote is None or fs is None or plan.checkpoint is None:
        return None
    expect = fs.as_variable()["expect"]
    return {
        "directory": fs.mount,
        "source": fs.source,
        "bytes": plan.checkpoint.bytes,
        "write": wrote.as_dict(),
        "read": read.as_dict() if read is not None else None,
        "expect": expect,
        "left_out": [serving] if serving in told else [],
        "by_node": {
            name: {what: one[what].get(what) for what in ("wrote", "read")}
            for name, one in told.items()
        },
    }


def _has(one: Mapping[str, Any], what: str) -> bool:
    return bool(one[what].get(what)) and bool(one[what].get("end"))
