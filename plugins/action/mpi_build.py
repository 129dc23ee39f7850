# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Selects the host that builds MPI from source, runs the build there, and stores the pack with its
SHA-256 for each build and distribution."""

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
from ..module_utils.core.text import some
from ..module_utils.mpi.build import PACK, sha256, work_of
from ..plugin_utils.answers import SHA256, AnswerError, mapping, whole
from ..plugin_utils.detached import PATIENCE_S, DetachedAction

LIMIT_S = 3600
MAX_BYTES = 4 << 30
"""Maximum size of a pack. UCX and Open MPI with CUDA take a few hundred MiB."""


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
        # The limit counts twice, because the module may first wait for another build on the host.
        built = self.run_detached(arguments, task_vars, 2 * limit, 2 * limit)
        if not built.get("failed"):
            work = work_of(given["prefix"])
            self._keep(pack, work / PACK, built.get("sha256"), built.get("bytes"))
            gone = {"path": str(work), "state": "absent"}
            self._execute_module("ansible.builtin.file", module_args=gone, task_vars=task_vars)
            built["pack"] = str(pack)
        return built

    def _keep(self, pack: Path, source: Path, digest: Any, size: Any) -> None:
        """Copy the file `source` from the host to the controller, up to the announced size. The
        path is derived on the controller: some sftp commands run there, and a path from a host
        could contain one."""
        try:
            expected = SHA256.of(digest, "mpi: the sha256 of the build")
            most = whole(size, "mpi: the bytes of the build", MAX_BYTES, 1)
        except AnswerError as error:
            raise AnsibleActionFail(f"{error}: nothing was fetched from it") from None
        make_directories(pack.parent, 0o700)
        part = pack.with_suffix(f".{os.getpid()}.part")
        try:
            try:
                with writing_at_most(most):
                    self._connection.fetch_file(str(source), str(part))
            except (AnsibleError, OSError) as error:
                if part.is_file() and part.stat().st_size >= most:
                    reason = f"larger than the announced {most} bytes: {error}"
                    raise AnsibleActionFail(f"mpi: {source} on the host is {reason}") from error
                raise
            actual = sha256(part)
            if actual != expected:
                raise AnsibleActionFail(
                    f"mpi: {part} has SHA-256 {actual}, but {expected} on the host: run again"
                )
            part.replace(pack)
            sums = f"{actual}  {pack.name}\n"
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
    """Limit the size of files, so that the kernel stops sftp if a host sends more than it
    announced."""
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
    """The host that builds: one that has already begun, else one without ranks, else the first;
    empty if every host has that MPI."""
    hosts = [host for host, state in states.items() if state.get("pack") == pack]
    lacking = [host for host in hosts if not states[host]["mpi"]]
    able = [host for host in lacking if not cuda or states[host]["toolkit"]]
    if lacking and not able:
        where = f"none of {some(lacking, 4)} has the CUDA toolkit, which software.cuda requires"
        raise AnsibleActionFail(
            f"mpi: {where}: run the layer gpu first, and keep one of them in --limit"
        )
    order = sorted(able, key=lambda host: (not states[host]["begun"], states[host]["slots"]))
    return next(iter(order), "")


def sum_of(pack: Path) -> Path:
    return pack.with_name(f"{pack.name}.sha256")


def usable(pack: Path) -> bool:
    try:
        expected = sum_of(pack).read_text(encoding="utf-8").split()
        return bool(expected) and sha256(pack) == expected[0]
    except OSError:
        return False
