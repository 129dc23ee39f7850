# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Versions of a model to compare, compiled: the present one, and an earlier one from a file, the
directory of an inventory, or a revision in git.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..schema.findings import Finding
from .cluster import inventory_of
from .compiler import compile_model
from .inventory_rules import models
from .source import MOST_BYTES, ModelError, ModelSource, read, read_file

Variables = Mapping[str, Any]
_REVISION = re.compile(r"[A-Za-z0-9@][A-Za-z0-9@._/^~{}+-]{0,199}")
TIMEOUT_S = 30


@dataclass(frozen=True)
class CompiledModel:
    source: ModelSource
    hosts: Mapping[str, Variables]
    """Every variable of every host, merged as by Ansible."""
    site: Mapping[str, Variables]
    """Variables that the operator wrote, by host and by group (`group NAME`)."""

    def role(self, host: str) -> str:
        return str(self.hosts[host]["cluster_role"])

    @cached_property
    def switches(self) -> frozenset[str]:
        return frozenset(name for name, own in self.hosts.items() if "cluster_ports" in own)

    @property
    def listed(self) -> dict[str, bool]:
        """Nodes that the model names under `nodes.list`, and whether each is absent."""
        given = self.source.data["nodes"]
        sections = given if isinstance(given, list) else [given]
        absent = {name for section in sections for name in section.get("absent") or ()}
        entries = [entry for section in sections for entry in section.get("list") or ()]
        return {str(entry["name"]): entry["name"] in absent for entry in entries}


def compiled(source: ModelSource) -> CompiledModel:
    """Raises ModelError."""
    inventory = inventory_of(compile_model(source))
    hosts = {host.name: inventory.merged(host) for host in inventory.hosts}
    site = {host.name: host.site_variables for host in inventory.hosts if host.site_variables}
    groups = inventory.site_group_variables
    return CompiledModel(
        source, hosts, {**site, **{f"group {name}": of for name, of in groups.items()}}
    )


def read_earlier(against: str, model: Path) -> ModelSource:
    """The model that `against` names; `model` is the present one. Raises ModelError."""
    try:
        path = Path(against).expanduser()
        found = list(models([path])) if path.exists() else None
    except (OSError, RuntimeError, ValueError):  # no file can have this name
        found = None
    if found is not None:
        if len(found) != 1:
            problem = f"{len(found)} cluster models in it"
            raise _wrong(against, problem, "Name the file of a model, or the directory of one")
        return read_file(str(found[0]))
    if not _REVISION.fullmatch(against):
        problem = "neither a file nor a revision of git"
        raise _wrong(against, problem, "Write a path, or a revision such as HEAD~1")
    commit = _git(model, "rev-parse", "--verify", f"{against}^{{commit}}")
    blob = f"{commit.decode().strip()}:./{model.name}"
    if int(_git(model, "cat-file", "-s", blob)) > MOST_BYTES:
        raise _wrong(against, f"{model} has more than {MOST_BYTES} bytes there", "Use a file")
    name = f"{against}:{model}"
    try:
        return read(name, _git(model, "cat-file", "blob", blob).decode())
    except UnicodeDecodeError as error:
        raise _wrong(name, "is not UTF-8", "Use another revision") from error


def _git(model: Path, *words: str) -> bytes:
    """What git prints in the directory of the model. It runs no filter, pager or remote helper."""
    environment = {**os.environ, "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}
    argv = ["git", "-C", str(model.resolve().parent), *words]
    try:
        done = subprocess.run(
            argv,
            env={**environment, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        problem = (error.stderr.decode("utf-8", "replace").strip().splitlines() or ["failed"])[-1]
        remedy = "Write an existing path, or a revision that has the model (git log --oneline)"
        raise _wrong(" ".join(["git", *words]), problem[:300], remedy) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _wrong("git", str(error)[:300], "Install git, or name a file") from error
    return done.stdout


def _wrong(name: str, problem: str, remedy: str) -> ModelError:
    return ModelError(name, [Finding("changes.against", ("against",), problem, remedy)])
