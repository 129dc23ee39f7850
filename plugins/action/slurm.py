# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Give a host the munge key of the cluster, and the controller's time, to compare its clock with.

The key is a file next to the SSH authority, made once: of hosts that make it in parallel processes,
one wins. It is passed outside check mode only; its digest suffices for comparing.
"""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..module_utils.slurm.munge import LEAST_BYTES, MOST_BYTES, NEW_BYTES, digest
from ..plugin_utils import kept, look
from ..plugin_utils.actions import NodeAction

MODULE = "baremetal.mpi_roce.slurm"
LAYER = "slurm"
DISTRIBUTION = "distribution"
ABSENT = "a new key"
"""Stands for the digest of a key that the next run makes."""
UNUSABLE = "an unusable key"


class MungeKeyError(Exception):
    """The key cannot be used; the text names the file and the remedy, and not its content."""


class ActionModule(NodeAction):
    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_async = False

    def act(self, task_vars: Any) -> dict[str, Any]:
        arguments = dict(self._task.args)
        path = Path(str(arguments.pop("munge_key", ""))).expanduser()
        if arguments.get("packages") == DISTRIBUTION:
            try:
                arguments.update(_key(path, write=not self._task.check_mode))
            except MungeKeyError as error:
                return _failed(str(error))
            except OSError as error:
                return _failed(f"{error.filename or path}: {error.strerror or error}")
        # Hosts that are unchanged are not in this play, but Slurm reaches them as well.
        arguments["reached"] = [
            *(arguments.get("reached") or []),
            *(name for name in concerned(task_vars) if look.state(name, LAYER)),
        ]
        arguments["now"] = time.time()
        return self._execute_module(MODULE, module_args=arguments, task_vars=task_vars)


def concerned(task_vars: Mapping[str, Any]) -> list[str]:
    """Hosts of which the module on a host uses whether they are reached: slurmctld's, or all."""
    groups: Mapping[str, Sequence[str]] = task_vars.get("groups") or {}
    launchers = groups.get("launcher", ())
    controls = task_vars.get("inventory_hostname") in launchers
    return [*launchers, *(groups.get("compute", ()) if controls else ())]


def _key(path: Path, *, write: bool) -> dict[str, str]:
    """Arguments of the module."""
    key = made(path) if write else read(path)
    given = {"munge_digest": digest(key) if key else ABSENT}
    return {**given, "munge_key": base64.b64encode(key).decode()} if write else given


def digest_of(path: Path) -> str:
    """As in check mode; of a key that cannot be used, one that no host has."""
    try:
        return _key(path, write=False)["munge_digest"]
    except (MungeKeyError, OSError):
        return UNUSABLE


def _failed(text: str) -> dict[str, Any]:
    msg = f"slurm: nothing was changed: munge key on the controller: {text}"
    return {"failed": True, "msg": msg, "layer": "slurm", "checks": []}


def read(path: Path) -> bytes:
    """The key, or empty bytes if there is none. Raises MungeKeyError and OSError."""
    try:
        key = kept.read(path, MOST_BYTES)
    except kept.OpenSecretError as error:
        raise MungeKeyError(str(error)) from error
    if key is None:
        return b""
    if not LEAST_BYTES <= len(key) <= MOST_BYTES:
        raise MungeKeyError(
            f"{path}: {len(key)} bytes; munge accepts {LEAST_BYTES} to {MOST_BYTES}. Replace it"
            " with the key of the cluster (/etc/munge/munge.key on its hosts)"
        )
    return key


def made(path: Path) -> bytes:
    """The key, which is made if there is none. Raises MungeKeyError and OSError."""
    key = read(path)
    if key:
        return key
    kept.make(path, secrets.token_bytes(NEW_BYTES))
    return read(path)
