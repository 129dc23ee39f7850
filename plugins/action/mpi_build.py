# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Chooses the host that builds MPI from source, has it build, and keeps the pack.

The cache on the controller has a file for each build and distribution, with its SHA-256 beside it:
what does not have it is not used.
"""

from __future__ import annotations

import contextlib
import os
import resource
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleError

from ..module_utils.core.files import make_directories, write_atomically
from ..module_utils.core.text import bytes_text, some
from ..module_utils.mpi.build import PACK, sha256, work_of
from ..plugin_utils.answers import SHA256, AnswerError, mapping, whole
from ..plugin_utils.detached import PATIENCE_S, DetachedAction

LIMIT_S = 3600
"""Default of the module."""
MOST_BYTES = 4 << 30
"""Of a pack. One of UCX and Open MPI with CUDA has some hundred MiB."""


class ActionModule(DetachedAction):
    MODULE = "baremetal.mpi_roce.mpi_build"
    WHAT = "build"
    LAYER = "mpi"

    def act(self, task_vars: Any) -> dict[str, Any]:
        given = self._task.args
        pack = Path(given["pack"])
        if given.get("read"):
            return {"changed": False, **self._chosen(pack, task_vars)}
        arguments = {"run_id": uuid.uuid4().hex[:12], **given}
        if self._task.check_mode:
            return self._execute_module(self.MODULE, module_args=arguments, task_vars=task_vars)
        limit = float(given.get("time_limit_s") or LIMIT_S) + PATIENCE_S
        # Twice: it may first have to wait for another build on the host to end.
        found = self.run_detached(arguments, task_vars, 2 * limit, 2 * limit)
        if not found.get("failed"):
            work = work_of(given["prefix"])
            self._keep(pack, work / PACK, found.get("sha256"), found.get("bytes"))
            gone = {"path": str(work), "state": "absent"}
            self._execute_module("ansible.builtin.file", module_args=gone, task_vars=task_vars)
            found["pack"] = str(pack)
        return found

    def _keep(self, pack: Path, there: Path, said: Any, size: Any) -> None:
        """From the host, where it lies `there`, to the controller; the host said its checksum and
        size, and no more than that is written.

        The path is made here: sftp has commands that run on the controller, and a path that a host
        named could end in one. Raises AnsibleActionFail where it is not the same.
        """
        try:
            wanted = SHA256.of(said, "mpi: the host built, and its sha256")
            most = whole(size, "mpi: the host built, and its bytes", MOST_BYTES, 1)
        except AnswerError as error:
            raise AnsibleActionFail(f"{error}: nothing was fetched from it") from None
        make_directories(pack.parent, 0o700)
        part = pack.with_suffix(f".{os.getpid()}.part")
        try:
            try:
                with writing_at_most(most):
                    self._connection.fetch_file(str(there), str(part))
            except (AnsibleError, OSError) as error:
                if part.is_file() and part.stat().st_size >= most:
                    raise AnsibleActionFail(
                        f"mpi: {there} on the host is larger than the {bytes_text(most)} that it "
                        f"said ({error}): look who has changed its Python, before it is used again"
                    ) from error
                raise
            here = sha256(part)
            if here != wanted:
                raise AnsibleActionFail(
                    f"mpi: {part} has SHA-256 {here}, and {wanted} on the host: run again"
                )
            sums = f"{here}  {pack.name}\n"
            part.replace(pack)
            write_atomically(sum_of(pack), sums, 0o644, os.getuid(), os.getgid())
        finally:
            part.unlink(missing_ok=True)

    def _chosen(self, pack: Path, task_vars: Any) -> dict[str, Any]:
        if usable(pack):
            return {"pack": str(pack), "builder": ""}
        hostvars, hosts = task_vars["hostvars"], task_vars["ansible_play_batch"]
        given = self._task.args
        states = {host: state_of(hostvars[host], given["read"]) for host in hosts}
        return {"pack": "", "builder": builder_of(states, str(pack), bool(given["cuda"]))}


@contextlib.contextmanager
def writing_at_most(size: int) -> Iterator[None]:
    """No file that this process, or a program that it starts, writes becomes larger: sftp is ended
    by the kernel. A host that has sent less than it said may go on without end."""
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    most = size if former[1] == resource.RLIM_INFINITY else min(size, former[1])
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, former[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)


def state_of(variables: Mapping[str, Any], read: str) -> dict[str, Any]:
    """State of a host from its registered result of mpi_provider, and its slots."""
    state = mapping(mapping(variables.get(read)).get("host"))
    return {**state, "slots": int(variables.get("cluster_slots") or 0)}


def builder_of(states: Mapping[str, Mapping[str, Any]], pack: str, cuda: bool) -> str:
    """The host that builds: one that has begun, else one without ranks, else the first.

    Empty if every host has the MPI. Raises AnsibleActionFail if the CUDA toolkit is required and no
    host has it.
    """
    hosts = [host for host, state in states.items() if state.get("pack") == pack]
    lacking = [host for host in hosts if not states[host]["mpi"]]
    able = [host for host in lacking if not cuda or states[host]["toolkit"]]
    if lacking and not able:
        raise AnsibleActionFail(
            f"mpi: none of {some(lacking, 4)} has the CUDA toolkit, which software.cuda requires: "
            "run the layer gpu first, and keep a host that has the toolkit in --limit"
        )
    order = sorted(able, key=lambda host: (not states[host]["begun"], states[host]["slots"]))
    return next(iter(order), "")


def sum_of(pack: Path) -> Path:
    return pack.with_name(f"{pack.name}.sha256")


def usable(pack: Path) -> bool:
    """Whether the pack is there as it was kept."""
    try:
        wanted = sum_of(pack).read_text(encoding="utf-8").split()
        return bool(wanted) and sha256(pack) == wanted[0]
    except OSError:
        return False
