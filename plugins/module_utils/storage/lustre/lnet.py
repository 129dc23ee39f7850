# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""LNet: its configuration on disk, and as it runs.

Networks of a running LNet are exchanged by unloading it, which takes every mount of Lustre away:
while there is one, such a change is refused. What can be set in a running LNet is set there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, Optional

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.checks import (
    FAILED,
    OK,
    PENDING,
    Check,
    compare,
    not_applicable,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.commands import CommandError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.dataclass import dataclass
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.files import HEADER
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.node import systemd
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.node.part import (
    Node,
    Plan,
    PlanError,
    Step,
    StepError,
    Verdict,
)

from . import lnet_file, lnet_state
from .kernel import Kernel
from .lnet_file import CONF, DROP_IN, MODPROBE, SERVICE
from .lnet_state import UP, Lnet
from .nid import O2IB, kind
from .rules import warnings
from .settings import LustreSettings

READY = "enabled, active"
NETWORK, DISCOVERY, ROUTE, PEER = (
    "lustre_lnet_network", "lustre_lnet_discovery", "lustre_lnet_route", "lustre_lnet_peer",
)  # fmt: skip
SERVICE_CHECK, OPTION, VERSION = (
    "lustre_lnet_service", "lustre_module_option", "lustre_module_version",
)  # fmt: skip
_STATIC = re.compile(r"^\s*options\s+lnet\s+.*\b(networks|ip2nets|routes)=")
_DISCOVERY_OPTION = ("lnet", "lnet_peer_discovery_disabled")
"""Has a step and a check of its own."""
SHOWN = 8


@dataclass(frozen=True)
class Difference:
    what: str
    wanted: str
    found: str
    live: Optional[Callable[[], None]] = None
    """Sets it in the LNet that runs; None: it has to be loaded again."""


@dataclass
class LnetPart:
    """`after`: units that have to be through before LNet starts. `changing`: whether this run
    exchanges the modules on disk, which an earlier part's plan knows. `rails`: interfaces that
    earlier layers make, with their RDMA devices."""

    settings: LustreSettings
    kernel: Kernel
    after: Sequence[str] = ()
    changing: Callable[[], bool] = lambda: False
    rails: Collection[str] = ()

    def plan(self, node: Node) -> Plan:
        missing = self.kernel.missing(node)
        findings = [*self._foreign(node), *([] if missing else self._impossible(node))]
        if findings:
            raise PlanError("\n".join(findings))
        files = self._files(node)
        if missing:
            return Plan(files)
        return Plan(files, self._steps(node, drop_in_changed=files[-1].changed))

    def verify(self, node: Node) -> Verdict:
        missing = self.kernel.missing(node)
        if missing:
            promises = [(SERVICE_CHECK, SERVICE, READY), *self._all()]
            return Verdict([not_applicable(n, w, missing, subject=s) for n, s, w in promises])
        running = self._running()
        checks = [self._service_check(node, running)]
        if running.problem or not running.loaded:
            # What earlier layers will have made when this one runs is no refusal of check mode.
            why = running.problem or _first(self._not_yet(node)) or "LNet is not loaded"
            pending = node.check_mode and not running.problem
            status = PENDING if pending else FAILED
            found = "unknown" if running.problem else "not loaded"
            checks += [Check(name, w, found, status, s, why) for name, s, w in self._all()]
            return Verdict(checks)
        checks += self._network_checks(node, running)
        checks += self._other_checks(node, running)
        return Verdict(checks)

    # What is planned.

    def _files(self, node: Node) -> list[Any]:
        text = lnet_file.drop_in(self.after)
        return [
            node.file(CONF, lnet_file.lnet_conf(self.settings)),
            node.file(MODPROBE, lnet_file.modprobe_conf(self.settings)),
            node.file(DROP_IN, text or None),
        ]

    def _steps(self, node: Node, *, drop_in_changed: bool) -> list[Step]:
        steps = []
        if drop_in_changed:
            steps.append(
                Step("systemd", "older units", "units read again", lambda: systemd.reload(node))
            )
        running = self._running()
        if running.problem:
            raise PlanError(
                f"LNet: {running.problem}. Nothing can be changed until it answers: look at dmesg, "
                "and reboot the node if it stays so"
            )
        state = systemd.state(node, SERVICE)
        enabled = state.startswith("enabled,")
        if not enabled:
            steps.append(
                Step(
                    SERVICE,
                    state.partition(",")[0],
                    "enabled",
                    lambda: systemd.enable(node, SERVICE),
                )
            )
        found = self.differences(node, running) if running.loaded else []
        for each in found:
            if each.live is not None:
                steps.append(Step(each.what, each.found, each.wanted, each.live))
        again = [each for each in found if each.live is None]
        active = state.endswith(", active")
        if running.loaded and not again and active:
            return steps
        if not running.loaded:
            before = "not loaded"
        elif again:
            before = "\n".join(f"{each.what}: {each.found}" for each in again)
        else:
            before = f"loaded without {SERVICE}"
        after = "\n".join(f"{each.what}: {each.wanted}" for each in again) or "as in /etc/lnet.conf"
        mounts = self.kernel.mounts()
        if mounts and running.loaded and not again:
            # It runs as wanted: only the next boot needs the service.
            return steps
        if mounts and not node.check_mode:
            raise PlanError(self._in_use(again, mounts))
        steps.append(Step("LNet", before, after, lambda: self._load(node), essential=True))
        return steps

    def _load(self, node: Node) -> None:
        mounts = self.kernel.mounts()
        if mounts:
            raise StepError(self._in_use([], mounts))
        systemd.stop(node, SERVICE)
        if (self.kernel.root / "sys/module/lnet").exists():
            # The service does not start over modules that are there (ConditionPathExists).
            node.run(["lustre_rmmod"])
        if (self.kernel.root / "sys/module/lnet").exists():
            raise StepError(
                "LNet could not be unloaded: something still uses its modules (lsmod | grep lnet). "
                "End that, or reboot the node, then run again"
            )
        systemd.start(node, SERVICE)

    def _in_use(self, again: Sequence[Difference], mounts: Sequence[Any]) -> str:
        what = ", ".join(f"{each.what} from {each.found} to {each.wanted}" for each in again)
        points = [mount.point for mount in mounts]
        more = f" and {len(points) - SHOWN} more" if len(points) > SHOWN else ""
        return (
            f"LNet: a change{' of ' + what if what else ''} was not begun: it unloads LNet, and "
            f"Lustre is mounted at {', '.join(points[:SHOWN])}{more}. End the jobs, unmount them "
            f"(systemctl stop UNIT, or umount {points[0]}), then run again with --tags storage"
        )

    # What is compared.

    def _running(self) -> Lnet:
        return lnet_state.read(
            self.kernel.root,
            self.kernel.look,
            routes=bool(self.settings.routes),
            peers=bool(self.settings.peers),
        )

    def _wanted_networks(self) -> dict[str, list[str]]:
        return {net.net: sorted(net.interfaces) for net in self.settings.networks}

    def differences(self, node: Node, running: Lnet) -> list[Difference]:
        found = []
        loaded, installed = self._versions(node)
        if self.changing():
            found.append(Difference("modules", "of the new packages", loaded or "loaded"))
        elif loaded and installed and loaded != installed:
            found.append(Difference("modules", installed, loaded))
        wanted = self._wanted_networks()
        for net in sorted({*wanted, *running.networks}):
            mine = wanted.get(net, [])
            theirs = sorted(each.name for each in running.networks.get(net, ()))
            if mine != theirs:
                found.append(Difference(f"network {net}", _list(mine), _list(theirs)))
        if running.discovery is not None and running.discovery != self.settings.discovery:
            on = int(self.settings.discovery)
            found.append(
                Difference(
                    "discovery",
                    _on(self.settings.discovery),
                    _on(running.discovery),
                    lambda: _run(node, ["lnetctl", "set", "discovery", str(on)]),
                )
            )
        for route in self.settings.routes:
            if (route.net, str(route.gateway)) not in running.routes:
                found.append(Difference(f"route to {route.net}", str(route.gateway), "none"))
        for nids in self.settings.peers:
            there = running.peers.get(str(nids[0]), frozenset())
            if not {str(nid) for nid in nids} <= there:
                found.append(Difference(f"peer {nids[0]}", _list(map(str, nids)), _list(there)))
        for module, option, value in self._options():
            now = lnet_state.parameter(self.kernel.root, module, option)
            if now is not None and not _same(value, now):
                live = self._live(module, option, value)
                found.append(Difference(f"option {option} of {module}", value, now, live))
        return found

    def _versions(self, node: Node) -> tuple[str, str]:
        """Of the modules that are loaded, and of those on disk; empty where nobody tells."""
        loaded = lnet_state.version(self.kernel.root) or ""
        try:
            told = node.look(["modinfo", "-F", "version", "lnet"], check=False)
        except CommandError:
            return loaded, ""
        return loaded, told.stdout.strip() if told.rc == 0 else ""

    def _options(self) -> list[tuple[str, str, str]]:
        return [
            (module, option, value)
            for module, options in lnet_file.module_options(self.settings).items()
            for option, value in options.items()
            if (module, option) != _DISCOVERY_OPTION
        ]

    def _live(self, module: str, option: str, value: str) -> Optional[Callable[[], None]]:
        path = self.kernel.root / "sys/module" / module / "parameters" / option
        if not path.stat().st_mode & 0o200:
            return None

        def write() -> None:
            try:
                path.write_text(f"{value}\n")
            except OSError as error:
                raise StepError(
                    f"{path}: the kernel does not take {value!r}: {error.strerror}. Correct "
                    f"shared_storage_lustre.modprobe.{module}.{option}"
                ) from error

        return write

    # What is refused.

    def _foreign(self, node: Node) -> list[str]:
        findings = []
        text = node.read(CONF) or ""
        lines = [line for line in text.splitlines() if line.strip() and line.strip()[0] != "#"]
        if lines and HEADER not in text.splitlines()[0]:
            findings.append(
                f"/{CONF}: somebody wrote it ({lines[0].strip()!r}, {len(lines)} lines). Bring "
                "what it says into shared_storage_lustre (networks, routes, peers), then: "
                f"mv /{CONF} /{CONF}.before"
            )
        for path in sorted(node.path("etc/modprobe.d").glob("*.conf")):
            if path == node.path(MODPROBE):
                continue
            content = path.read_text(encoding="utf-8", errors="surrogateescape")
            for number, line in enumerate(content.splitlines(), 1):
                if _STATIC.match(line):
                    findings.append(
                        f"/{path.relative_to(node.root)}, line {number}: {line.strip()!r} sets up "
                        "networks of LNet at its load, beside /etc/lnet.conf. Remove the line: "
                        "shared_storage_lustre.networks says it"
                    )
        return findings

    def _impossible(self, node: Node) -> list[str]:
        """What only the node can tell of the interfaces."""
        later = self._not_yet(node)
        return [finding for finding in self._lacking() if finding not in later]

    def _not_yet(self, node: Node) -> list[str]:
        """In check mode of a node that no layer was run on: what is lacking of its rails."""
        if not node.check_mode or (self.kernel.root / "sys/module/lnet").exists():
            return []
        return self._lacking(self.rails)

    def _lacking(self, among: Optional[Collection[str]] = None) -> list[str]:
        findings = []
        for network in self.settings.networks:
            for name in network.interfaces:
                if among is not None and name not in among:
                    continue
                if not self.kernel.has_interface(name):
                    findings.append(
                        f"shared_storage_lustre.networks: {network.net}: {name} is no rail of this "
                        "host and no other interface. Correct the name; rails get theirs in the "
                        "layer rails, which comes before (--tags rails)"
                    )
                elif kind(network.net) == O2IB and not self.kernel.has_rdma(name):
                    findings.append(
                        f"shared_storage_lustre.networks: {network.net}: {name} has no RDMA "
                        "device. Run the layers rdma and rails first (rdma link shows the "
                        "devices), or write a network tcp0 for it"
                    )
        return findings

    # What is read back.

    def _all(self) -> list[tuple[str, str, Any]]:
        """Name, subject and wanted value of every check but that of the service."""
        return [
            *((NETWORK, net, names) for net, names in self._wanted_networks().items()),
            (DISCOVERY, "", _on(self.settings.discovery)),
            *((ROUTE, each.net, str(each.gateway)) for each in self.settings.routes),
            *((PEER, str(nids[0]), sorted(map(str, nids))) for nids in self.settings.peers),
        ]

    def _network_checks(self, node: Node, running: Lnet) -> list[Check]:
        wanted = self._wanted_networks()
        checks = []
        for net in sorted({*wanted, *running.networks}):
            interfaces = running.networks.get(net, ())
            found = sorted(_shown(each) for each in interfaces)
            down = [each.name for each in interfaces if each.status != UP]
            if down:
                # Nothing that a run changes: the link is down, or its peer is gone.
                why = f"see ip -br link show {down[0]}, lnetctl net show -v 3, and the layer rails"
                checks.append(Check(NETWORK, wanted.get(net, []), found, FAILED, net, why))
                continue
            why = "lnetctl net show tells other interfaces than /etc/lnet.conf"
            checks.append(self._compare(node, NETWORK, wanted.get(net, []), found, net, why))
        return checks

    def _other_checks(self, node: Node, running: Lnet) -> list[Check]:
        told = "unknown" if running.discovery is None else _on(running.discovery)
        wanted_discovery = _on(self.settings.discovery)
        why = "see lnetctl global show"
        discovery = self._compare(node, DISCOVERY, wanted_discovery, told, "", why, live=True)
        warned = "; ".join(warnings(self.settings))
        if warned and discovery.status == OK:
            discovery = Check(DISCOVERY, discovery.wanted, told, OK, reason=warned)
        checks = [discovery]
        loaded, installed = self._versions(node)
        if loaded and installed:
            why = "the kernel goes on with the modules that it loaded before the packages changed"
            checks.append(self._compare(node, VERSION, installed, loaded, "", why))
        for route in self.settings.routes:
            gateways = [gateway for net, gateway in running.routes if net == route.net]
            found = str(route.gateway) if str(route.gateway) in gateways else _list(gateways)
            why = "see lnetctl route show -v"
            checks.append(self._compare(node, ROUTE, str(route.gateway), found, route.net, why))
        for nids in self.settings.peers:
            wanted = sorted(map(str, nids))
            there = running.peers.get(str(nids[0]), frozenset())
            known = wanted if set(wanted) <= there else sorted(there)
            why = "see lnetctl peer show"
            checks.append(self._compare(node, PEER, wanted, known, str(nids[0]), why))
        for module, option, value in self._options():
            checks.append(self._option_check(node, module, option, value))
        return checks

    def _option_check(self, node: Node, module: str, option: str, value: str) -> Check:
        subject = f"{module} {option}"
        if not (self.kernel.root / "sys/module" / module).exists():
            return not_applicable(OPTION, value, f"{module} is not loaded now", subject=subject)
        now = lnet_state.parameter(self.kernel.root, module, option)
        if now is None:
            why = f"{module} of this release has no such option, or does not tell it"
            return Check(OPTION, value, "not told", FAILED, subject, why)
        found = value if _same(value, now) else now
        live = self._live(module, option, value) is not None
        why = "it was loaded with another"
        return self._compare(node, OPTION, value, found, subject, why, live=live)

    def _service_check(self, node: Node, running: Lnet) -> Check:
        state = systemd.state(node, SERVICE)
        if state == "enabled, inactive" and running.loaded and self.kernel.mounts():
            why = f"LNet was loaded without {SERVICE}, and stays so while Lustre is mounted"
            return Check(SERVICE_CHECK, READY, state, OK, SERVICE, why)
        why = f"see systemctl status {SERVICE}"
        return compare(
            SERVICE_CHECK, READY, state, subject=SERVICE, check_mode=node.check_mode, reason=why
        )

    def _compare(
        self,
        node: Node,
        name: str,
        wanted: Any,
        found: Any,
        subject: str,
        reason: str,
        *,
        live: bool = False,
    ) -> Check:
        """`live`: it can be changed under a mounted file system."""
        if node.check_mode and wanted != found and not live:
            points = ", ".join(mount.point for mount in self.kernel.mounts()[:SHOWN])
            if points:
                reason = f"refused until Lustre is unmounted, which is mounted at {points}"
        return compare(
            name, wanted, found, subject=subject, check_mode=node.check_mode, reason=reason
        )


def _run(node: Node, argv: Sequence[str]) -> None:
    node.run(argv)


def _first(findings: Sequence[str]) -> str:
    """Eight rails lack the same."""
    more = f" ({len(findings) - 1} more of this kind)" if len(findings) > 1 else ""
    return f"{findings[0]}{more}" if findings else ""


def _list(names: Any) -> str:
    return ", ".join(sorted(names)) or "none"


def _shown(interface: lnet_state.Interface) -> str:
    return interface.name if interface.status == UP else f"{interface.name} ({interface.status})"


def _on(value: bool) -> str:
    return "on" if value else "off"


def _same(wanted: str, found: str) -> bool:
    """The kernel prints Y and N for what was written as 1 and 0."""
    flags = {"1": "Y", "0": "N", "y": "Y", "n": "N"}
    return wanted == found or flags.get(wanted, wanted) == flags.get(found, found)
