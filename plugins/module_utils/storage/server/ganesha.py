# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The server in user space, nfs-ganesha: for containers, whose kernel serves no NFS.

Its one configuration file is ours where it serves. One that somebody wrote is refused: there is no
place beside it from which the daemon would read more.
"""

from __future__ import annotations

import ipaddress
import json
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Union

from ...checks import FAILED, OK, PENDING, Check, compare
from ...commands import CommandError
from ...dataclass import dataclass
from ...files import HEADER
from ...node import systemd
from ...node.part import Node, Plan, PlanError, Step, Verdict
from .ganesha_conf import GaneshaExport, core, identities, parse, render
from .served import Served, Wire, wire

FILE = "etc/ganesha/ganesha.conf"
UNIT = "nfs-ganesha.service"
ENABLED = "enabled, active"
SERVICE, EXPORTS, LEFT = "nfs_service", "nfs_exports", "nfs_exports_left"
LOOKS, BETWEEN_S = 40, 0.5
ASK = ["busctl", "--system", "--json=short", "call", "org.ganesha.nfsd"]
OBJECT = ["/org/ganesha/nfsd/ExportMgr", "org.ganesha.nfsd.exportmgr"]


@dataclass(frozen=True)
class Ganesha:
    """`absent`: served directories that are gone for good."""

    served: Sequence[Served]
    absent: Collection[str] = ()
    sleep: Callable[[float], None] = time.sleep

    def plan(self, node: Node) -> Plan:
        before = node.read(FILE)
        ours = before is not None and HEADER in before
        left = self._left(node)
        exports = sorted([*self._exports(left), *left], key=lambda each: each.path)
        if not exports:
            return self._end(node) if ours else Plan()
        self._possible()
        if before is not None and not ours:
            self._packaged(node, before)
        file = node.file(FILE, render(self._wire, exports))
        state = systemd.state(node, UNIT)
        if not state.endswith(", active"):
            return Plan([file], [Step(UNIT, state, ENABLED, partial(self._start, node, exports))])
        steps = []
        if state != ENABLED:
            steps.append(Step(UNIT, state, ENABLED, partial(systemd.enable, node, UNIT)))
        if file.changed or not self._same(node, exports):
            steps.append(self._apply(node, exports, kept=core(self._wire) in (before or "")))
        return Plan([file], steps)

    def _apply(self, node: Node, exports: Sequence[GaneshaExport], *, kept: bool) -> Step:
        """`kept`: only exports change, which the server takes while it runs."""
        if kept:
            after = f"{len(self.served)} of the cluster"
            act = partial(self._reload, node, exports)
            return Step("exports in force", "others", after, act)
        after = "restarted: clients wait for the grace period, 90 s, and lose nothing"
        return Step(UNIT, "running with other settings", after, partial(self._start, node, exports))

    def _start(self, node: Node, exports: Sequence[GaneshaExport]) -> None:
        """Not `start`: the package may have started it meanwhile, with another configuration."""
        systemd.enable(node, UNIT)
        systemd.restart(node, UNIT)
        self._await(node, exports)

    def _reload(self, node: Node, exports: Sequence[GaneshaExport]) -> None:
        node.run(["systemctl", "reload", UNIT])
        self._await(node, exports)

    def _await(self, node: Node, exports: Sequence[GaneshaExport]) -> None:
        """It exports after it has answered systemd. What is missing in the end is read back."""
        for _again in range(LOOKS):
            if self._same(node, exports):
                return
            self.sleep(BETWEEN_S)

    def verify(self, node: Node) -> Verdict:
        left = self._left(node)
        of_left = [_found_left(each) for each in left]
        if not self.served:
            return Verdict(of_left)
        pending = node.check_mode
        state = systemd.state(node, UNIT)
        checks = [
            compare(
                SERVICE, ENABLED, state, subject=UNIT, check_mode=pending,
                reason=f"see journalctl -b -u {UNIT}, and /var/log/ganesha/ganesha.log",
            )
        ]  # fmt: skip
        found = self._told(node)
        for each in self._exports(left):
            wanted = f"{len(each.addresses)} addresses"
            if isinstance(found, str):
                status = PENDING if pending else FAILED
                checks.append(Check(EXPORTS, wanted, "unknown", status, each.path, found))
                continue
            there = next((one for one in found if one.path == each.path), None)
            if there is not None and set(there.addresses) == set(each.addresses):
                checks.append(Check(EXPORTS, wanted, wanted, OK, each.path))
                continue
            told = ", ".join(there.addresses) if there else "not exported"
            status = PENDING if pending else FAILED
            reason = "the server refused it: see /var/log/ganesha/ganesha.log"
            checks.append(Check(EXPORTS, wanted, told, status, each.path, reason))
        return Verdict([*checks, *of_left])

    @property
    def _wire(self) -> Wire:
        return wire(self.served)

    def _exports(self, left: Sequence[GaneshaExport]) -> tuple[GaneshaExport, ...]:
        taken = {each.identity for each in left}
        numbers = identities((each.system.name for each in self.served), taken)
        return tuple(
            GaneshaExport(numbers[each.system.name], each.path, each.block().addresses)
            for each in self.served
        )

    def _left(self, node: Node) -> list[GaneshaExport]:
        """Of file systems that were served here once, until they are said to be absent."""
        text = node.read(FILE) or ""
        gone = {*self.absent, *(each.path for each in self.served)}
        return [each for each in parse(text) if each.path not in gone] if HEADER in text else []

    def _possible(self) -> None:
        over_rdma = [
            each.system.name for each in self.served if each.system.nfs.transport == "rdma"
        ]
        if over_rdma:
            raise PlanError(
                f"{', '.join(over_rdma)}: nfs-ganesha serves by TCP alone here. Serve from a host "
                "with a kernel of its own, or write transport: tcp"
            )
        ports = ", ".join(map(str, self._wire.ports))
        if len(self._wire.ports) > 1:
            raise PlanError(
                f"file systems served by this host have ports {ports}, and a server has one. Give "
                "them the same `port`"
            )
        nobody = [each.system.name for each in self.served if not each.clients]
        if nobody:
            raise PlanError(
                f"{', '.join(nobody)}: no host of its groups mounts it, so there is nobody to "
                "serve it to. Correct `hosts` of the file system, or take out `serve`"
            )

    def _packaged(self, node: Node, text: str) -> None:
        """The package's file has comments only, or is as the package brought it."""
        lines = (line.strip() for line in text.split("\n"))
        if not any(line and not line.startswith("#") for line in lines):
            return
        for command in (["dpkg", "--verify", "nfs-ganesha"], ["rpm", "-V", "nfs-ganesha"]):
            try:
                told = node.look(command, check=False)
            except CommandError:
                continue
            if "not installed" not in told.stdout + told.stderr and f"/{FILE}" not in told.stdout:
                return
        raise PlanError(
            f"/{FILE} is somebody's own, and nfs-ganesha reads that one alone. Serve what it has "
            "from another host, or by the kernel (shared_storage_server: kernel), or move it away"
        )

    def _same(self, node: Node, exports: Sequence[GaneshaExport]) -> bool:
        found = self._told(node)
        wanted = {(each.path, frozenset(each.addresses)) for each in exports}
        if isinstance(found, str):
            return False
        return wanted == {(each.path, frozenset(each.addresses)) for each in found}

    def _told(self, node: Node) -> Union[list[GaneshaExport], str]:
        """What the server has in force, by its own word; or why it cannot be asked."""
        try:
            listed = _call(node, "ShowExports")
            numbers = [int(entry[0]) for entry in listed[1] if int(entry[0])]
            return [_export(_call(node, "DisplayExport", "q", str(each))) for each in numbers]
        except CommandError as error:
            return str(error)
        except (ValueError, LookupError, TypeError):
            return "nfs-ganesha answered in a way that is not known"

    def _end(self, node: Node) -> Plan:
        stop = partial(_stop, node)
        state = systemd.state(node, UNIT)
        return Plan([node.file(FILE, None)], [Step(UNIT, state, "disabled, inactive", stop)])


def _stop(node: Node) -> None:
    node.run(["systemctl", "disable", "--now", UNIT])


def _found_left(each: GaneshaExport) -> Check:
    return Check(
        LEFT,
        "served, or gone",
        "exported, and not in the list",
        FAILED,
        each.path,
        "it is not served by this host any more. Nodes may have it mounted: unmount it there, then "
        f"add {each.path} to shared_storage_absent",
    )


def _call(node: Node, method: str, *words: str) -> Any:
    return json.loads(node.look([*ASK, *OBJECT, method, *words]).stdout)["data"]


def _export(data: Sequence[Any]) -> GaneshaExport:
    """Number, path, pseudo path, tag, clients: of each its address and length come first."""
    return GaneshaExport(int(data[0]), str(data[1]), tuple(_client(each[0]) for each in data[4]))


def _client(text: str) -> str:
    """`10.0.0.1/32` is one address; a network, or whatever else has access, stays what it is."""
    try:
        given = ipaddress.ip_interface(text)
    except ValueError:
        return text
    single = given.network.prefixlen == given.max_prefixlen
    return str(given.ip) if single else str(given)
