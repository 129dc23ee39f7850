# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The controller's part of the look (module_utils/look): the program, the keys, and the answers.

A key is a digest of everything on the controller from which the options of a host's layers are
made. It is the same in every run, for every `--limit`, as long as nothing of that changes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path, PurePath
from typing import Any, Optional

from ansible import constants as C
from ansible.errors import AnsibleError

from ..module_utils.core import program
from ..module_utils.core.checks import FAILED, PENDING
from ..module_utils.core.text import printable
from ..module_utils.look import program as entry
from ..module_utils.mpi.build import sha256
from . import answers
from .layers import HOSTS, LOOK, ROLES
from .model.cluster import ROLES as KINDS
from .model.role_variables import has_template

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
OF_ENVIRONMENT = ("SUDO_USER",)
"""Variables that modules read, other than those with which the look calls them."""
ABSENT = "absent"
LIMIT_S = 600
"""Time limit of a look. Afterwards the plays of the layers run."""
MAX_ANSWER = 8 << 20
"""Size limit of an answer, in characters."""
DIRECTORY = "/usr/local/libexec/baremetal-mpi-roce"
OF_CONTROLLER = ("plugins", "roles")
"""Folders of the collection whose content determines the options of modules."""
OF_INVENTORY = ("keys", "wheels")
"""Folders next to the model whose files become options, unless the software set names others."""
_PREFIXES = ("cluster_", "roce_qos", *(f"{ROLES[tag].rpartition('.')[2]}_" for tag in LOOK))
_FURTHER = (
    *("inventory_hostname", "group_names"),
    *("monitoring_enabled", "monitoring_textfile_directory"),
    *("ansible_host", "ansible_port", "ansible_ssh_port"),
)

_UNTOLD = frozenset(
    f"ssh_trust_{name}"
    for name in (
        *("ca_passphrase", "ca_generation", "ca_overlap", "max_removed", "revoke", "warn_days"),
        *("probe", "probe_timeout_s", "probe_parallel"),
    )
)
"""Options of which no node is told in its look: the controller reads them in each run. No node gets
a digest from which a weak passphrase could be found."""


def collection_files() -> dict[str, str]:
    """Sources of the program by path: every module of a layer, and all that runs on nodes."""
    paths = [PLUGINS / f"modules/{module}.py" for module, _kind in LOOK.values()]
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
    given = (collection_files(), entry.__name__)
    text = program.packed(*given, kept=OF_ENVIRONMENT, compressed=True)
    return text.encode("utf-8", "surrogateescape")


def digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def of_files(places: Iterable[Path]) -> str:
    """The digest of files, and of all files in folders. A file that cannot be read is one without
    content: the role that needs it fails."""
    found = hashlib.sha256()
    for place in places:
        for path in [place] if place.is_file() else sorted(place.rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                name = f"{place.name}/{path.relative_to(place)}\0"  # the same on all controllers
                found.update(name.encode("utf-8", "surrogateescape"))
                with contextlib.suppress(OSError):
                    found.update(sha256(path).encode())
    return found.hexdigest()


def files_of_operator(hosts: Iterable[Mapping[str, Any]]) -> list[Path]:
    """Files and folders of the controller that become options of these hosts (their variables)."""
    found: dict[Path, None] = {}
    for own in hosts:
        directory = str(own.get("inventory_dir") or ".")
        software = answers.mapping(own.get("cluster_software"))
        sources = answers.mapping(software.get("repositories")).values()
        names = [answers.mapping(of).get("key") for of in sources]
        names = [*OF_INVENTORY, answers.mapping(software.get("mpi")).get("wheels"), *names]
        found.update((Path(directory, str(name)), None) for name in names if name)
    bindings = find_spec("pynvml")
    return [*found, *([Path(bindings.origin)] if bindings and bindings.origin else [])]


def of_cluster(hostvars: Any, groups: Mapping[str, Any]) -> str:
    """The digest of the model of all hosts."""
    names = [name for kind in KINDS for name in groups.get(kind, ())]
    every = {name: dict(_resolved(hostvars, name)) for name in names}
    return digest([every, {name: list(members) for name, members in groups.items()}])


def _resolved(hostvars: Any, host: str) -> Iterator[tuple[str, Any]]:
    """What the roles read of a host. Only templates are templated, since that takes long."""
    for name, value in _relevant(hostvars.raw_get(host)).items():
        with contextlib.suppress(AnsibleError):  # the role that needs the variable reports it
            value = hostvars[host][name] if has_template(value) else value
        yield name, value


def of_host(templar: Any, variables: Mapping[str, Any]) -> str:
    """The digest of what the roles read of a host. Raises AnsibleError."""
    return digest(templar.template(_relevant(variables)))


def _relevant(variables: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: variables[name]
        for name in sorted(variables)
        if (name.startswith(_PREFIXES) or name in _FURTHER) and name not in _UNTOLD
    }


def wanted(variables: Mapping[str, Any]) -> list[str]:
    """The layers of this run that have a play on a host."""
    groups = set(variables["group_names"])
    return [tag for tag in LOOK if is_selected(tag, variables) and groups & set(HOSTS[tag])]


def is_selected(tag: str, variables: Mapping[str, Any]) -> bool:
    """Whether `--tags` and `--skip-tags` leave a layer in this run."""
    only, skipped = set(variables["ansible_run_tags"]), set(variables["ansible_skip_tags"])
    return bool(only & {tag, "all", "tagged"}) and tag not in skipped


Command = Callable[[str, bytes], Optional[str]]
"""Runs a script on a host with an input, and returns its output (NodeAction.command)."""


def ask(
    command: Command, plan: Mapping[str, Any], request: Mapping[str, Any], *, send: bool
) -> tuple[Any, bool]:
    """The answer of a host's program, None without a usable one, and whether it was sent first.

    A run that changes nothing does not `send` it. Nothing is lost by that: without this version of
    the program, no record has the key of this version of the collection.
    """
    path = f"{DIRECTORY}/look-{plan['sha256'][:16]}"
    script = f"[ -x {path} ] || {{ echo {ABSENT}; exit; }}\nexec timeout -k 10 {LIMIT_S} {path}"
    content, sent = json.dumps(request).encode(), False
    said = command(script, content)
    if send and said is not None and said.strip() == ABSENT:
        sent = True
        command(_install(path, plan["sha256"]), Path(plan["program"]).read_bytes())
        said = command(script, content)
    if said is None or len(said) > MAX_ANSWER:
        return None, sent
    try:
        return printable(json.loads(said.splitlines()[0])), sent
    except (ValueError, LookupError, RecursionError):
        return None, sent


def _install(path: str, sha256: str) -> str:
    return f"""\
set -e
umask 022
install -d -m 0755 {DIRECTORY}
new=$(mktemp {DIRECTORY}/.look.XXXXXX)
trap 'rm -f "$new"' EXIT
cat >"$new"
echo "{sha256}  $new" | sha256sum -c --quiet
/usr/bin/python3 -IS "$new" --install {path}
"""


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


def _directory() -> Path:
    return Path(C.DEFAULT_LOCAL_TMP) / "look"


def _path(host: str) -> Path:
    return _directory() / f"{digest(host)}.json"


def forget() -> None:
    """Before another playbook of the same command, in which hosts may be others."""
    shutil.rmtree(_directory(), ignore_errors=True)


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
    """The hosts of a layer's play: its groups without the hosts on which it is unchanged, except
    one of these that must leave the play: Ansible ends a run in which all hosts of a play fail.

    The shorter of two patterns, as Ansible compares each name in it with those of all hosts.
    """
    kinds = HOSTS[tag]
    names = dict.fromkeys(name for kind in kinds for name in groups.get(kind, ()))
    unchanged = [name for name in names if state(name, tag) is not None]
    if len(unchanged) == len(names):
        return "!all" if names else ":".join(kinds)
    unchanged = unchanged[1:]
    if len(unchanged) > len(names) / 2 and not groups.keys() & names.keys():
        return ":".join(name for name in names if name not in set(unchanged))
    return ":".join([*kinds, *(f"!{name}" for name in unchanged)])


def again(tag: str) -> None:
    """Ask for a second play of a layer in this run, with all of its hosts."""
    _directory().mkdir(mode=0o700, exist_ok=True)
    (_directory() / tag).touch()


def pattern_again(tag: str) -> str:
    return ":".join(HOSTS[tag]) if (_directory() / tag).exists() else "!all"


def is_absent(variable: str, tag: str, groups: Mapping[str, Sequence[str]], hostvars: Any) -> bool:
    """Whether the model gives the hosts of a layer nothing to do. Ansible starts a process for each
    host and task, also for one that is skipped. `hostvars`: none while Ansible only lists."""
    first = [names[0] for names in map(groups.get, HOSTS[tag]) if names]
    return hostvars is not None and not any(hostvars.raw_get(x).get(variable) for x in first)


def state(host: str, tag: str) -> Optional[Mapping[str, Any]]:
    """The result of one layer in this run's look, for those who need more than its checks."""
    return kept(host).get(tag)
