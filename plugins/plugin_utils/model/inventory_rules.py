# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rules for the inventory around the model: what Ansible merged, and files that nothing reads."""

from __future__ import annotations

import ipaddress
import resource
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...module_utils.core.text import nearest
from ..schema.findings import Findings, listed
from . import digest
from .cluster import DIGEST, inventory_of
from .compiler import load
from .role_variables import values
from .source import ModelError, is_model

Variables = Mapping[str, Any]
NO_MODELS = frozenset(["group_vars", "host_vars", "keys"])
"""Directories of an inventory that hold no models."""
SSH_PORT = 22
FILES, FILES_PER_FORK = 128, 4
"""Open files of ansible-playbook, and for each fork: measured, 130 with 32 forks."""
PROCESSES = 64
NEIGHBOURS = "proc/sys/net/ipv4/neigh/default/gc_thresh3"
_PORT_VARIABLES = ("ansible_port", "ansible_ssh_port")


def check_model(
    hosts: Mapping[str, Variables], sources: Sequence[Path], findings: Findings
) -> None:
    """Every host has the variables that the model compiled, unchanged."""
    if not any(DIGEST in variables for variables in hosts.values()):
        findings.add(
            "inventory.no_model",
            (),
            "this inventory has no cluster model",
            "Write one (docs/cluster-model.md) and pass its directory: -i inventories/NAME",
        )
        return
    actual = digest.digest_of(hosts.items())
    if all(variables.get(DIGEST) == actual for variables in hosts.values()):
        return
    problem = "differs from its digest, and no inventory source is a model"
    try:
        for path in models([source for source in sources if source.exists()]):
            problem = "cluster.yml changed during this run, or there are two of them"
            digest.differences(inventory_of(load(str(path))), hosts, findings)
    except (ModelError, OSError) as error:
        problem = f"the model can no longer be read: {error}"
    if not findings:
        findings.add("inventory.changed", (), problem, "Run again, with one model")


def ssh_ports(hosts: Mapping[str, Variables], hostvars: Any, findings: Findings) -> dict[str, int]:
    """Ports other than 22 on which Ansible reaches a host's sshd: MPI's ssh uses them too.

    A host that Ansible reaches by another address is skipped: a gateway may forward the port.
    """
    ports = {}
    for name, variables in hosts.items():
        key = next((key for key in _PORT_VARIABLES if variables.get(key) is not None), "")
        management = variables.get("cluster_management") or {}
        if not key or variables.get("ansible_host", name) not in (name, management.get("address")):
            continue
        value = str(values(hostvars, name, variables, [key]).get(key, SSH_PORT))
        port = int(value) if value.isascii() and value.isdigit() else 0
        if not 0 < port < 1 << 16:
            problem, remedy = f"{value[:40]!r} is not a port", "Use a number from 1 to 65535"
            findings.add("inventory.ssh_port", (name, key), problem, remedy)
        elif port != SSH_PORT:
            ports[name] = port
    return ports


def unread_files(sources: Sequence[Path], groups: Mapping[str, list[str]]) -> Iterator[str]:
    """One line for each file of variables that no host or group reads; Ansible ignores them."""
    names = {"host_vars": [*groups["all"], "localhost"], "group_vars": [*groups]}
    there = [source for source in sources if source.exists()]
    for folder in {source if source.is_dir() else source.parent: None for source in there}:
        for path in sorted(path for kind in names for path in (folder / kind).glob("[!.]*")):
            known = names[path.parent.name]
            loaded = path.suffix in ("", ".yml", ".yaml", ".json")
            if loaded and path.stem not in known and path.name not in known:
                hint = nearest(path.stem, known)
                yield f"{path}: {path.stem!r} is not in the inventory: nothing reads it. {hint}"


def message(findings: Findings, hosts: bool, sources: Sequence[Path]) -> str:
    """The error message; without hosts of a cluster, with the reason."""
    if hosts:
        return listed("The inventory is not a valid cluster,", findings.found)
    names = ", ".join(map(str, sources)) or "none"
    reasons = list(_model_errors(sources)) or [
        f"Inventory sources: {names}. Pass one with compute hosts: -i inventories/NAME."
    ]
    return "\n".join(["The inventory has no hosts of a cluster.", *reasons])


def models(sources: Sequence[Path]) -> Iterator[Path]:
    for source in sources:
        paths = sorted(source.rglob("*.y*ml")) if source.is_dir() else [source]
        for path in paths:
            ignored = NO_MODELS.intersection(path.relative_to(source).parts)
            if not ignored and is_model(path):
                yield path


def _model_errors(sources: Sequence[Path]) -> Iterator[str]:
    """Errors of the models among the sources; Ansible only warned about them earlier."""
    for source in sources:
        try:
            for path in models([source]):
                load(str(path))
        except (ModelError, OSError) as error:
            yield str(error)


def controller_limits(
    hosts: Mapping[str, Variables], forks: int, root: Path = Path("/")
) -> Iterator[str]:
    """Limits of the controller that are too low for these hosts, with the setting. Ansible would
    report them in the middle of a run, as hosts that cannot be reached."""
    for what, item, least in (
        ("open files", resource.RLIMIT_NOFILE, FILES + FILES_PER_FORK * forks),
        # Each host's ssh stays for ControlPersist.
        ("processes", resource.RLIMIT_NPROC, PROCESSES + len(hosts) + 2 * forks),
    ):
        soft, _hard = resource.getrlimit(item)
        if soft != resource.RLIM_INFINITY and soft < least:
            option = "n" if item == resource.RLIMIT_NOFILE else "u"
            yield (
                f"the controller's limit of {what} is {soft}; {len(hosts)} hosts and {forks} forks "
                f"require {least}: ulimit -{option} {least} before the run, or limits.conf"
            )
    try:
        most = int((root / NEIGHBOURS).read_text(encoding="ascii"))
        routes = (root / "proc/net/route").read_text(encoding="ascii").splitlines()[1:]
        near = [_network(*words.split()[1:8]) for words in routes]
    except (OSError, ValueError, TypeError):
        return
    addresses = [(own.get("cluster_management") or {}).get("address") for own in hosts.values()]
    direct = 0
    if len(addresses) > most:  # otherwise all fit
        numbers = [int(ipaddress.IPv4Address(each)) for each in addresses if each]
        direct = sum(any(each & mask == net for net, mask in near if mask) for each in numbers)
    if direct > most:
        yield (
            f"{direct} hosts are neighbours of the controller, whose table holds {most}: "
            f"sysctl -w net.ipv4.neigh.default.gc_thresh3={4 * direct}"
        )


def _network(destination: str, gateway: str, *rest: str) -> tuple[int, int]:
    """Network and mask of a line of /proc/net/route; mask 0 if a gateway is between."""
    net, mask = (int.from_bytes(bytes.fromhex(word), "little") for word in (destination, rest[4]))
    return net, 0 if int(gateway, 16) else mask
