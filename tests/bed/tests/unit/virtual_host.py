# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An in-memory machine with namespaces, veth pairs and bridges, driven by `ip` commands."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, Optional

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    Result,
)


class Killed(BaseException):
    """A power failure: no handler of the code under test may catch it."""


@dataclass
class Interface:
    index: int
    peer: Optional[tuple[str, str]] = None
    up: bool = False
    mtu: int = 1500
    master: Optional[str] = None
    addresses: list[str] = field(default_factory=list)


class FakeHost:
    """Runs the commands of the virtual network. `lives`: lines until the run is killed."""

    def __init__(self, routes: Sequence[dict[str, Any]] = ()) -> None:
        self.spaces: dict[str, dict[str, Interface]] = {"": {"lo": Interface(1, up=True)}}
        self.sysctls: dict[str, dict[str, str]] = {}
        self.routes = list(routes)
        self.routed: dict[str, dict[str, set[str]]] = {}
        self.lines: list[str] = []
        self.lives: Optional[int] = None
        self._index = 1

    def __call__(
        self, argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None
    ) -> Result:
        words = list(argv)
        assert words.pop(0) == "ip"
        try:
            shown = self._ip(words, stdin, force=not check)
        except KeyError as error:
            if check:
                raise CommandError(f"{' '.join(argv)}: {error}") from error
            return Result(tuple(argv), 1, "", str(error))
        return Result(tuple(argv), 0, shown, "")

    def _ip(self, words: list[str], stdin: Optional[str], *, force: bool) -> str:
        space = ""
        if words[0] == "-n":
            space = words[1]
            words = words[2:]
        if words[0] in ("-force", "-batch"):
            assert (words[0] == "-force") is force
            for line in (stdin or "").splitlines():
                with suppress(KeyError) if force else nullcontext():
                    self._line(space, line)
            return ""
        if words == ["-json", "netns", "list"]:
            names = [name for name in self.spaces if name]
            return json.dumps([{"name": name} for name in names]) if names else ""
        if words[:2] == ["netns", "exec"]:
            assert words[3:6] == ["sysctl", "-q", "-w"]
            values = self.sysctls.setdefault(words[2], {})
            values.update(word.split("=") for word in words[6:])
            return ""
        if words == ["-json", "-4", "route", "show"]:
            return json.dumps(self._routes(space) if space else self.routes)
        assert words[:3] == ["-json", "address", "show"], words
        links = self.spaces[space]
        chosen = {words[4]: links[words[4]]} if len(words) > 3 else links
        return json.dumps([self._shown(name, link) for name, link in chosen.items()])

    def _shown(self, name: str, link: Interface) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "ifname": name,
            "ifindex": link.index,
            "flags": ["UP"] if link.up else [],
            "mtu": link.mtu,
            "addr_info": [
                {"local": address.split("/")[0], "prefixlen": int(address.split("/")[1])}
                for address in link.addresses
            ],
        }
        if link.peer:
            entry["link_index"] = self.spaces[link.peer[0]][link.peer[1]].index
        if link.master:
            entry["master"] = link.master
        return entry

    def _routes(self, space: str) -> list[dict[str, Any]]:
        return [
            {"dst": network, "nexthops": [{"gateway": hop} for hop in hops]}
            for network, hops in self.routed.get(space, {}).items()
        ]

    def _line(self, space: str, line: str) -> None:
        if self.lives is not None:
            if self.lives == 0:
                raise Killed
            self.lives -= 1
        self.lines.append(f"-n {space} {line}" if space else line)
        words = line.split()
        if words[0] == "netns":
            self._netns(words[1], words[2])
        elif words[:2] == ["route", "replace"]:
            self.routed.setdefault(space, {})[words[2]] = set(words[5::3])
        elif words[:2] == ["route", "delete"]:
            del self.routed[space][words[2]]
        elif words[:2] == ["address", "add"]:
            self.spaces[space][words[-1]].addresses.append(words[2])
        elif words[:2] == ["link", "delete"]:
            self._delete(space, words[2])
        elif words[:2] == ["link", "set"]:
            self._set(self.spaces[space][words[2]], words[3:])
        elif words[:3] == ["tuntap", "add", "dev"]:
            assert words[4:] == ["mode", "tap"]
            self._add(space, words[3])
        elif words[:2] == ["link", "add"] and "veth" in words:
            self._veth(words[2:])
        elif words[:2] == ["link", "add"]:
            assert words[3:] == ["type", "bridge"]
            self._add(space, words[2])
        else:
            raise AssertionError(f"unknown command: {line}")

    def _netns(self, verb: str, name: str) -> None:
        if verb == "add":
            if name in self.spaces:
                raise CommandError(f"Cannot create namespace {name}: File exists")
            self.spaces[name] = {"lo": Interface(1)}
            return
        for link in list(self.spaces[name]):
            if link in self.spaces[name]:
                self._delete(name, link)
        del self.spaces[name]
        self.routed.pop(name, None)

    def _add(self, space: str, name: str) -> Interface:
        if name in self.spaces[space]:
            raise CommandError(f"{name}: File exists")
        self._index += 1
        return self.spaces[space].setdefault(name, Interface(self._index))

    def _delete(self, space: str, name: str) -> None:
        link = self.spaces[space].pop(name)
        if link.peer:
            self.spaces[link.peer[0]].pop(link.peer[1], None)

    def _set(self, link: Interface, words: list[str]) -> None:
        if words[0] == "up":
            link.up = True
        elif words[0] == "mtu":
            link.mtu = int(words[1])
        elif words[0] == "master":
            link.master = words[1]
        else:
            raise AssertionError(words)

    def _veth(self, words: list[str]) -> None:
        middle = words.index("peer")
        ends = []
        for end in (words[: words.index("type")], words[middle + 1 :]):
            options = dict(zip(end[::2], end[1::2]))
            space = options.get("netns", "")
            link = self._add(space, options["name"])
            link.mtu = int(options["mtu"])
            ends.append((space, options["name"], link))
        ends[0][2].peer = ends[1][:2]
        ends[1][2].peer = ends[0][:2]
