# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The controller's part of the look (module_utils/look): the program, the keys, and the answers.

A key is a digest of everything on the controller from which the options of a host's layers are
made. It is the same in every run, for every `--limit`, as long as nothing of that changes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Any, Optional

from ansible import constants as C

from ..module_utils.core import program
from ..module_utils.core.checks import FAILED, PENDING
from ..module_utils.look import program as entry
from . import answers
from .layers import LOOK, ROLES
from .model.cluster import ROLES as KINDS

PLUGINS = Path(__file__).resolve().parents[1]
_PACKAGE = entry.__name__.rpartition(".module_utils.")[0].replace(".", "/")
_STAND_INS = {
    "ansible/__init__.py": "",
    "ansible/module_utils/__init__.py": "",
    "ansible/module_utils/basic.py": f"from {entry.__name__.rpartition('.')[0]}.module import *\n",
    "ansible/module_utils/common/__init__.py": "",
    # Facts of the distribution are for the tasks of a layer's play.
    "ansible/module_utils/common/sys_info.py": (
        "get_distribution = get_distribution_version = lambda: ''\n"
    ),
}
DIRECTORY = "/usr/local/libexec/baremetal-mpi-roce"
OF_CONTROLLER = ("plugins", "roles")
"""Folders of the collection whose content determines the options of modules."""
OF_INVENTORY = ("keys", "wheels")
"""Folders next to the model whose files become options."""
_PREFIXES = ("cluster_", "roce_qos", *(f"{ROLES[tag].rpartition('.')[2]}_" for tag in LOOK))
_FURTHER = ("inventory_hostname", "group_names", "ansible_host", "monitoring_textfile_directory")


def collection_files() -> dict[str, str]:
    """Sources of the program by path: every module of a layer, and all that runs on nodes."""
    paths = [PLUGINS / f"modules/{module}.py" for module, _kind, _groups in LOOK.values()]
    paths += sorted((PLUGINS / "module_utils").rglob("*.py"))
    found = {
        f"{_PACKAGE}/{path.relative_to(PLUGINS)}": path.read_text(encoding="utf-8")
        for path in paths
    }
    # From a zip, Python imports no folder that is not a package.
    folders = {str(parent) for name in found for parent in PurePath(name).parents[:-1]}
    packages = {f"{folder}/__init__.py": "" for folder in folders}
    return {**dict(sorted({**packages, **found}.items())), **_STAND_INS}


@lru_cache(maxsize=1)
def made() -> bytes:
    text = program.packed(collection_files(), entry.__name__, compressed=True)
    return text.encode("utf-8", "surrogateescape")


def digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def of_files(folders: Iterable[Path]) -> str:
    found = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                found.update(f"{path}\0{path.stat().st_size}\0".encode("utf-8", "surrogateescape"))
                found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def of_cluster(hostvars: Any, groups: Mapping[str, Any]) -> str:
    """The digest of the model of all hosts, untemplated."""
    names = [name for kind in KINDS for name in groups.get(kind, ())]
    every = {name: _relevant(hostvars.raw_get(name)) for name in names}
    return digest([every, {name: list(members) for name, members in groups.items()}])


def of_host(templar: Any, variables: Mapping[str, Any]) -> str:
    """The digest of what the roles read of a host. Raises AnsibleError."""
    return digest(templar.template(_relevant(variables)))


def _relevant(variables: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: variables[name]
        for name in sorted(variables)
        if name.startswith(_PREFIXES) or name in _FURTHER
    }


def wanted(variables: Mapping[str, Any]) -> list[str]:
    """The layers of this run that have a play on a host."""
    only, skipped = set(variables["ansible_run_tags"]), set(variables["ansible_skip_tags"])
    groups = set(variables["group_names"])
    return [
        tag
        for tag, (_module, _kind, hosts) in LOOK.items()
        if only & {tag, "all", "tagged"} and tag not in skipped and groups & set(hosts)
    ]


def unchanged(result: Any) -> bool:
    """Whether a host's answer says so of a layer, and no check contradicts it."""
    given = answers.mapping(result)
    if not isinstance(given.get("checks"), list):
        return False
    checks = answers.checks(given["checks"])
    wrong = any(check["status"] in (FAILED, PENDING) for check in checks)
    return not wrong and entry.unchanged({**given, "checks": checks})


# The answers of hosts are kept in files of this run: as results of tasks, Ansible would copy them
# several times and hold those of all hosts until the end.


def _path(host: str) -> Path:
    return Path(C.DEFAULT_LOCAL_TMP) / "look" / f"{digest(host)}.json"


def keep(host: str, layers: Mapping[str, Any]) -> None:
    path = _path(host)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.write_text(json.dumps(layers), encoding="utf-8")


def kept(host: str) -> dict[str, Any]:
    """The results of a host's unchanged layers, by tag."""
    try:
        found: dict[str, Any] = json.loads(_path(host).read_text(encoding="utf-8"))
        return found
    except FileNotFoundError:
        return {}


def pattern(tag: str, groups: Mapping[str, Sequence[str]]) -> str:
    """The hosts of a layer's play: its groups without the hosts on which it is unchanged.

    The shorter of two patterns, as Ansible compares each name in it with those of all hosts.
    """
    kinds = LOOK[tag][2]
    names = dict.fromkeys(name for kind in kinds for name in groups.get(kind, ()))
    unchanged = [name for name in names if state(name, tag) is not None]
    if len(unchanged) > len(names) / 2:
        return ":".join(name for name in names if name not in set(unchanged)) or "!all"
    return ":".join([*kinds, *(f"!{name}" for name in unchanged)])


def state(host: str, tag: str) -> Optional[Mapping[str, Any]]:
    """The result of one layer in this run's look, for those who need more than its checks."""
    return kept(host).get(tag)
