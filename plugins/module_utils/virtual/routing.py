# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The routers of a routed fabric: FRR's zebra and bgpd in a namespace for each leaf and spine.

BGP without addresses between the switches (neighbours are found by IPv6 router advertisements), one
autonomous system for all spines and one for each leaf, and every path of equal length is used. A
leaf announces the networks that its ports have. Configuration, process ids and sockets lie in a
folder for each router; an FRR of the system is not touched."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from ..core.commands import Runner
from .inventory import RUN, Node, VirtualError, router_namespace, short_name

Switches = Mapping[str, Sequence[Mapping[str, Any]]]
"""Leaves and spines by name: the variable `cluster_ports` of each."""

UPLINK, DOWNLINK = "uplink", "downlink"
"""Kinds of ports: from a leaf to a spine, from a spine to a leaf."""
SPINES_AS = 65000
FIRST_LEAF_AS = 65001
PATHS = 64


@dataclass(frozen=True)
class Router:
    name: str
    namespace: str
    autonomous_system: int
    router_id: str
    neighbours: tuple[str, ...]
    """Its interfaces towards the other tier."""

    @property
    def spine(self) -> bool:
        return self.autonomous_system == SPINES_AS

    @property
    def configuration(self) -> str:
        lines = [
            f"hostname {self.name}",
            f"router bgp {self.autonomous_system}",
            f" bgp router-id {self.router_id}",
            " no bgp ebgp-requires-policy",
            " bgp bestpath as-path multipath-relax",
            " timers bgp 1 3",
            " neighbor FABRIC peer-group",
            " neighbor FABRIC remote-as external",
            " neighbor FABRIC timers connect 1",
            " neighbor FABRIC advertisement-interval 0",
            *(f" neighbor {name} interface peer-group FABRIC" for name in self.neighbours),
            " address-family ipv4 unicast",
            "  redistribute connected",
            f"  maximum-paths {PATHS}",
            " exit-address-family",
        ]
        return "".join(f"{line}\n" for line in lines)


def routers_of(cluster: str, switches: Switches, nodes: Sequence[Node]) -> tuple[Router, ...]:
    """None where no switches are given: leaves are bridges then."""
    if not switches:
        return ()
    machine = next((node.name for node in nodes if node.machine), "")
    if machine:
        raise VirtualError(
            f"{machine} is a machine, whose cables end in one namespace for all leaves: a "
            "routed fabric has containers only (virtual_nodes_kind), or leave virtual_nodes_fabric "
            "at bridges."
        )
    routers = []
    leaves = 0
    for number, (name, groups) in enumerate(switches.items(), start=1):
        spine = any(group["kind"] == DOWNLINK for group in groups)
        autonomous_system = SPINES_AS if spine else FIRST_LEAF_AS + leaves
        leaves += not spine
        neighbours = tuple(
            interface_of(port)
            for group in groups
            if group["kind"] in (UPLINK, DOWNLINK)
            for port in group["peers"]
        )
        # Any number that no other has: it is nobody's address.
        router_id = str(ipaddress.IPv4Address(number))
        namespace = router_namespace(cluster, name)
        routers.append(Router(name, namespace, autonomous_system, router_id, neighbours))
    return tuple(routers)


def interface_of(port: str) -> str:
    """A port's name as Linux takes it: without `/`, and of at most 15 characters."""
    return short_name(port.replace("/", "-"))


PROGRAMS = Path("/usr/lib/frr")
DAEMONS = ("zebra", "bgpd")
"""In the order in which they start."""
USER = "frr"
PACKAGE = "frr"
NAMESPACES = Path("/run/netns")
END_S = 5.0
ROUTES_S = 30.0
"""So long the routers may take to find each other. A few seconds, usually."""


class Routing:
    """The daemons of all routers on this machine, by namespace."""

    def __init__(
        self,
        run: Runner,
        *,
        folder: Path = RUN / "routers",
        programs: Path = PROGRAMS,
        proc: Path = Path("/proc"),
        namespaces: Path = NAMESPACES,
        owner: str = USER,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run = run
        self._folder = folder
        self._programs = programs
        self._proc = proc
        self._namespaces = namespaces
        self._owner = owner
        self._sleep = sleep
        self._clock = clock

    def require(self) -> None:
        """Raises VirtualError where FRR is not installed."""
        lacking = [name for name in DAEMONS if not (self._programs / name).exists()]
        if lacking:
            raise VirtualError(
                f"a routed fabric needs FRR, and {self._programs / lacking[0]} is not there: "
                f"apt-get install {PACKAGE}, or leave virtual_nodes_fabric at bridges"
            )

    def plan(self, routers: Sequence[Router], old: Iterable[str]) -> list[str]:
        """What stop and start would do."""
        stopped = [f"stop the router of {name}" for name in old if (self._folder / name).exists()]
        return [*stopped, *(_told(router) for router in routers if not self._holds(router))]

    def stop(self, namespaces: Iterable[str]) -> list[str]:
        """End the daemons of these, and forget them."""
        done = []
        for name in namespaces:
            folder = self._folder / name
            if not folder.exists():
                continue
            for daemon in reversed(DAEMONS):
                self._end(folder, daemon, name)
            shutil.rmtree(folder)
            done.append(f"stop the router of {name}")
        with contextlib.suppress(OSError):
            self._folder.rmdir()
        return done

    def start(self, routers: Sequence[Router]) -> list[str]:
        """Start what does not run as configured, and wait until all have found each other."""
        wrong = [router for router in routers if not self._holds(router)]
        if wrong:
            self.require()
        for router in wrong:
            self.stop([router.namespace])
            self._begin(router)
        if wrong:
            self._wait(routers)
        return [_told(router) for router in wrong]

    def _holds(self, router: Router) -> bool:
        folder = self._folder / router.namespace
        try:
            same = (folder / "frr.conf").read_text(encoding="utf-8") == router.configuration
        except FileNotFoundError:
            return False
        return same and all(self._pid(folder, name, router.namespace) for name in DAEMONS)

    def _begin(self, router: Router) -> None:
        folder = self._folder / router.namespace
        folder.mkdir(parents=True, mode=0o755)
        path = folder / "frr.conf"
        path.write_text(router.configuration, encoding="utf-8")
        shutil.chown(folder, self._owner, self._owner)
        for name in DAEMONS:
            self._run(
                [
                    *("ip", "netns", "exec", router.namespace, str(self._programs / name)),
                    *("-d", "-u", USER, "-g", USER, "-f", str(path)),
                    *("-i", str(folder / f"{name}.pid"), "-z", str(folder / "zserv")),
                    *("--vty_socket", str(folder), "-P", "0"),
                    *("--log", f"file:{folder / name}.log"),
                ]
            )

    def _wait(self, routers: Sequence[Router]) -> None:
        until = self._clock() + ROUTES_S
        while True:
            silent = [router for router in routers if not self._established(router)]
            if not silent:
                return
            if self._clock() > until:
                folder = self._folder / silent[0].namespace
                raise VirtualError(
                    f"the router {silent[0].name} has not found all its neighbours within "
                    f"{ROUTES_S:g} s. See {folder}/bgpd.log, and: vtysh --vty_socket {folder} -c "
                    "'show bgp summary'"
                )
            self._sleep(0.2)

    def _established(self, router: Router) -> bool:
        if not router.neighbours:
            return True
        folder = self._folder / router.namespace
        command = [
            "vtysh",
            "--vty_socket",
            str(folder),
            "-d",
            "bgpd",
            "-c",
            "show bgp summary json",
        ]
        try:
            answer = json.loads(self._run(command, check=False).stdout or "{}")
        except ValueError:
            return False
        peers = (answer.get("ipv4Unicast") or {}).get("peers") or {}
        states = [peer.get("state") for peer in peers.values()]
        return len(states) == len(router.neighbours) and set(states) == {"Established"}

    def _pid(self, folder: Path, name: str, namespace: str) -> Optional[int]:
        """The process of a daemon, if it is one: a number may be somebody else's by now."""
        try:
            pid = int((folder / f"{name}.pid").read_text(encoding="ascii"))
            status = (self._proc / str(pid) / "stat").read_text(encoding="utf-8")
            here = (self._proc / str(pid) / "ns/net").stat().st_ino
            there = (self._namespaces / namespace).stat().st_ino
        except (OSError, ValueError):
            return None
        program, _bracket, rest = status.partition("(")[2].rpartition(")")
        return pid if program == name and rest.split()[0] != "Z" and here == there else None

    def _end(self, folder: Path, name: str, namespace: str) -> None:
        pid = self._pid(folder, name, namespace)
        if pid is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            until = self._clock() + END_S
            while self._clock() < until:
                if self._pid(folder, name, namespace) is None:
                    return
                self._sleep(0.05)
        raise VirtualError(f"{name} of {namespace} (process {pid}) does not end: look at it")


def _told(router: Router) -> str:
    return f"route in {router.namespace}: {', '.join(DAEMONS)} as AS {router.autonomous_system}"
