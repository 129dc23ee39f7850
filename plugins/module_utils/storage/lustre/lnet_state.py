# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""LNet as it runs: what lnetctl prints, and what the kernel's modules were loaded with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Optional

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.commands import (
    CommandError,
    NoAnswerError,
    Runner,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.dataclass import dataclass

from . import block_yaml
from .nid import NidError, read_net, read_nid

UP = "up"


@dataclass(frozen=True)
class Interface:
    name: str
    nid: str = ""
    status: str = UP


@dataclass(frozen=True)
class Lnet:
    """`problem`: why it could not be asked; then the rest says nothing."""

    loaded: bool
    networks: Mapping[str, tuple[Interface, ...]] = field(default_factory=dict)
    """Without the loopback network."""
    discovery: Optional[bool] = None
    routes: frozenset[tuple[str, str]] = frozenset()
    """Network and gateway."""
    peers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Primary NID to all NIDs."""
    problem: str = ""


def read(root: Path, look: Runner, routes: bool = False, peers: bool = False) -> Lnet:
    """Never loads a module: lnetctl would, and a check must not. `root` has sys."""
    if not (root / "sys/module/lnet").exists():
        return Lnet(loaded=False)
    found: dict[str, Any] = {}
    asked = ["net", "global", *(["route"] if routes else []), *(["peer"] if peers else [])]
    for what in asked:
        try:
            answer = look(["lnetctl", what, "show"], check=False)
        except NoAnswerError as error:
            return Lnet(loaded=True, problem=f"{error}: LNet hangs, see dmesg")
        except CommandError as error:
            return Lnet(loaded=True, problem=str(error))
        text = f"{answer.stdout}\n{answer.stderr}"
        tree = block_yaml.load(answer.stdout)
        refused = _refusal(tree, text) if answer.rc or _is_refusal(tree) else ""
        if refused and not _is_down(text):
            return Lnet(loaded=True, problem=f"lnetctl {what} show: {refused}")
        found[what] = tree.get(what) if isinstance(tree, dict) and not refused else None
    told = found["global"]
    return Lnet(
        loaded=True,
        networks=networks_of(found["net"]),
        discovery=_flag(told.get("discovery")) if isinstance(told, dict) else None,
        routes=_routes(found.get("route")),
        peers=_peers(found.get("peer")),
    )


def networks_of(value: Any) -> dict[str, tuple[Interface, ...]]:
    """Of the list under `net`, of `show` and of `export` alike."""
    networks: dict[str, tuple[Interface, ...]] = {}
    for entry in _entries(value):
        try:
            net = read_net(str(entry.get("net type") or entry.get("net") or ""))
        except NidError:  # the loopback network, or one that we set up nothing of
            net = str(entry.get("net type") or "")
        if not net or net == "lo":
            continue
        interfaces = [
            Interface(str(name), str(ni.get("nid") or ""), str(ni.get("status") or UP))
            for ni in _entries(entry.get("local NI(s)"))
            for name in _values(ni.get("interfaces"))
        ]
        networks[net] = (*networks.get(net, ()), *interfaces)
    return networks


def parameter(root: Path, module: str, option: str) -> Optional[str]:
    """What a loaded module has; None where it is not loaded, or does not tell."""
    try:
        return (root / "sys/module" / module / "parameters" / option).read_text().strip()
    except OSError:
        return None


def version(root: Path, module: str = "lnet") -> Optional[str]:
    """Of the loaded module."""
    try:
        return (root / "sys/module" / module / "version").read_text().strip() or None
    except OSError:
        return None


def _routes(value: Any) -> frozenset[tuple[str, str]]:
    found = set()
    for entry in _entries(value):
        try:
            found.add((read_net(str(entry.get("net"))), str(read_nid(str(entry.get("gateway"))))))
        except NidError:
            continue
    return frozenset(found)


def _peers(value: Any) -> dict[str, frozenset[str]]:
    return {
        str(entry.get("primary nid")): frozenset(
            str(ni.get("nid")) for ni in _entries(entry.get("peer ni"))
        )
        for entry in _entries(value)
    }


def _entries(value: Any) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _values(value: Any) -> list[Any]:
    return [each for each in value.values() if each] if isinstance(value, dict) else []


def _flag(value: Any) -> Optional[bool]:
    return {"1": True, "0": False}.get(str(value))


def _is_refusal(tree: Any) -> bool:
    return isinstance(tree, dict) and ("show" in tree or "errno" in tree)


def _is_down(text: str) -> bool:
    """LNet is loaded and not configured: there are no networks, and that is an answer."""
    return "Network is down" in text or re.search(r"errno:\s*-(100|3)\b", text) is not None


def _refusal(tree: Any, text: str) -> str:
    told = re.search(r"descr:\s*(?:!\s*)?\"?([^\"\n]+)", text)
    return told[1].strip() if told else text.strip()[-500:] or "it printed nothing"
