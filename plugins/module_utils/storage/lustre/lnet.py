# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""LNet: its configuration on disk, and as it runs.

Networks of a running LNet are exchanged by unloading it, which takes every mount of Lustre away:
while there is one, such a change is refused. What can be set in a running LNet is set there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any, Optional

from ...core import systemd
from ...core.checks import FAILED, NOT_APPLICABLE, OK, PENDING, Check, compare, not_applicable
from ...core.commands import CommandError, Runner
from ...core.dataclass import dataclass
from ...core.files import HEADER
from ...core.part import Node, Plan, PlanError, Step, StepError, Verdict
from ...core.text import some
from .. import mounted
from .settings import LustreSettings
from .source import O2IB, TCP, kind, read_net

CONF = "etc/lnet.conf"
MODPROBE = "etc/modprobe.d/baremetal-mpi-roce-lustre.conf"
SERVICE = "lnet.service"
DROP_IN = f"etc/systemd/system/{SERVICE}.d/baremetal-mpi-roce.conf"
READY = "enabled, active"
SERVICE_CHECK, NETWORK = "lustre_lnet_service", "lustre_lnet_network"
DISCOVERY, ROUTE, PEER = "lustre_lnet_discovery", "lustre_lnet_route", "lustre_lnet_peer"
OPTION, VERSION = "lustre_module_option", "lustre_module_version"
UP = "up"
ALIKE = ("lustre", "lustre_tgt")
"""What mountinfo calls clients, and targets of a server."""
_DOWN = re.compile(r"Network is down|errno:\s*-(100|3)\b")
"""LNet is loaded and not configured: there are no networks, and that is an answer."""


@dataclass(frozen=True)
class Kernel:
    """Where the kernel's side of Lustre is read: this machine, or a stand-in for it.

    `root` holds sys, and proc/self/mountinfo. `look` is what has the time limit of one look.
    """

    root: Path
    look: Runner
    simulated: bool = False

    def missing(self, node: Node) -> str:
        """Why nothing of it can hold here; empty where it can."""
        if node.container is None or self.simulated:
            return ""
        return node.not_here("Lustre and LNet are modules of the host's kernel")

    def points(self) -> list[str]:
        """Where Lustre is mounted, also by hand."""
        return [each.point for each in mounted.read(self.root) if each.kind in ALIKE]

    def module(self, name: str) -> Path:
        return self.root / "sys/module" / name

    @property
    def has_lnet(self) -> bool:
        return self.module("lnet").exists()

    def rdma_interfaces(self) -> set[Optional[str]]:
        """Those of an RDMA device; also of Soft-RoCE."""
        ports = (self.root / "sys/class/infiniband").glob("*/ports/*/gid_attrs/ndevs/*")
        return {_text(path) for path in ports}


def _text(path: Path) -> Optional[str]:
    """Of a file in sys; None where there is none, or it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return None


def unload(node: Node, kernel: Kernel) -> None:
    """The service ends before its modules, and neither under a mount."""
    points = kernel.points()
    if points:
        raise StepError(
            f"Lustre is mounted at {some(points)}, so LNet stays as it is. Unmount it, then "
            "run again"
        )
    if systemd.installed(node, [SERVICE]):
        systemd.stop(node, SERVICE)
    if kernel.has_lnet:
        node.run(["lustre_rmmod"])
    if kernel.has_lnet:
        raise StepError(
            "LNet could not be unloaded: something still uses its modules (lsmod | grep lnet). "
            "End that, or reboot the node, then run again"
        )


# Files


def lnet_conf(settings: LustreSettings) -> str:
    """The body of /etc/lnet.conf, in the form that `lnetctl export --backup` prints.

    `lnetctl import` adds what stands there, and takes nothing away.
    """
    lines = ["net:"]
    for network in settings.networks:
        lines += [f"    - net type: {network.net}", "      local NI(s):"]
        for interface in network.interfaces:
            lines += ["        - interfaces:", f"              0: {interface}"]
            lines += _numbers("tunables", network.tunables)
            lines += _numbers("lnd tunables", network.driver_tunables)
    if settings.routes:
        lines.append("route:")
    for net, gateway in settings.routes:
        lines += [f"    - net: {net}", f"      gateway: {gateway}"]
    if settings.peers:
        lines.append("peer:")
    for nids in settings.peers:
        lines += [f"    - primary nid: {nids[0]}", f"      Multi-Rail: {len(nids) > 1}"]
        lines += ["      peer ni:", *(f"        - nid: {nid}" for nid in nids)]
    lines += ["global:", f"    discovery: {int(settings.discovery)}"]
    return "".join(f"{line}\n" for line in lines)


def _numbers(name: str, values: Mapping[str, int]) -> list[str]:
    lines = [f"              {key}: {number}" for key, number in values.items()]
    return [f"          {name}:", *lines] if lines else []


def module_options(settings: LustreSettings) -> dict[str, dict[str, str]]:
    """What is wanted of each kernel module, the operator's word last."""
    found: dict[str, dict[str, str]] = {
        # LNet may be loaded by a mount before lnet.service: its module needs this option.
        "lnet": {"lnet_peer_discovery_disabled": str(int(not settings.discovery))},
    }
    if any(kind(network.net) == TCP for network in settings.networks):
        # Routes and rules of rails are those of roce_rails; LNet would add a second set.
        found["ksocklnd"] = {"skip_mr_route_setup": "1"}
    for module, options in settings.modprobe.items():
        found.setdefault(module, {}).update(options)
    return {module: dict(sorted(options.items())) for module, options in sorted(found.items())}


def modprobe_conf(settings: LustreSettings) -> str:
    return "".join(
        f"options {module} {' '.join(f'{name}={value}' for name, value in options.items())}\n"
        for module, options in module_options(settings).items()
        if options
    )


# What runs


@dataclass
class Lnet:
    networks: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """Interfaces and their status, without the loopback network."""
    discovery: str = ""
    """`1` or `0`."""
    routes: set[tuple[str, str]] = field(default_factory=set)
    """Network and gateway."""
    peers: dict[str, set[str]] = field(default_factory=dict)
    """Primary NID to all NIDs."""


def pairs(text: str) -> Iterator[tuple[str, str]]:
    """Key and value of each line of the YAML that lnetctl and lctl print.

    Nodes have no parser of YAML, releases indent differently, and `descr: ! "text"` is none: what
    belongs together follows from the order of the keys.
    """
    for line in text.splitlines():
        key, colon, value = line.strip().lstrip("- ").partition(":")
        if colon:
            yield key.strip("\"' "), value.strip("!\"' ")


def read_lnet(kernel: Kernel, settings: LustreSettings) -> Optional[Lnet]:
    """None while LNet is not loaded: lnetctl would load it, and a check must not.

    Raises CommandError where it does not answer.
    """
    if not kernel.has_lnet:
        return None
    found = Lnet()
    net = status = primary = ""
    for key, value in _shown(kernel, "net"):
        if key == "net type":
            net = read_net(value)
            if net != "lo":
                found.networks[net] = []
        elif key in ("nid", "status"):
            status = value if key == "status" else UP
        elif key.isdigit() and net in found.networks:  # below `interfaces`
            found.networks[net].append((value, status or UP))
    found.discovery = dict(_shown(kernel, "global")).get("discovery", "")
    for key, value in _shown(kernel, "route") if settings.routes else ():
        if key == "net":
            net = read_net(value)
        elif key == "gateway":
            found.routes.add((net, value))
    for key, value in _shown(kernel, "peer") if settings.peers else ():
        if key == "primary nid":
            primary = value
        elif key == "nid":
            found.peers.setdefault(primary, set()).add(value)
    return found


def _shown(kernel: Kernel, what: str) -> list[tuple[str, str]]:
    told = kernel.look(["lnetctl", what, "show"], check=False)
    if told.rc == 0 and "errno:" not in told.stdout:
        return list(pairs(told.stdout))
    text = f"{told.stdout}\n{told.stderr}"
    if _DOWN.search(text):
        return []
    raise CommandError(f"lnetctl {what} show: {text.strip()[-500:]}")


@dataclass(frozen=True)
class Promise:
    """One thing that LNet is to have, and what it has."""

    name: str
    subject: str
    wanted: Any
    found: Any
    reason: str
    live: Optional[Callable[[], None]] = None
    """Sets it in the LNet that runs; None: it has to be loaded again."""
    stays: bool = False
    """Loading it again does not help."""

    @property
    def changes(self) -> bool:
        return self.wanted != self.found and not self.stays

    @property
    def what(self) -> str:
        name = self.name.replace("lustre_lnet_", "").replace("lustre_", "").replace("_", " ")
        return f"{name} {self.subject}".strip()


@dataclass
class LnetPart:
    """`after`: units that have to be through before LNet starts. `changing`: whether this run
    exchanges the modules on disk, which an earlier part's plan knows."""

    settings: LustreSettings
    kernel: Kernel
    after: Sequence[str] = ()
    changing: Callable[[], bool] = lambda: False

    def plan(self, node: Node) -> Plan:
        missing = self.kernel.missing(node)
        findings = self._foreign(node)
        if not missing and not (node.check_mode and not self.kernel.has_lnet):
            findings += self._lacking()  # in check mode of a fresh node, rails are still to come
        if findings:
            raise PlanError("\n".join(findings))
        # LNet binds to interfaces: they need their names and addresses first.
        drop_in = f"[Unit]\nAfter={' '.join(self.after)}\n" if self.after else None
        files = [
            node.file(CONF, lnet_conf(self.settings)),
            node.file(MODPROBE, modprobe_conf(self.settings)),
            node.file(DROP_IN, drop_in),
        ]
        steps = []
        if files[-1].changed and not missing:
            steps.append(
                Step("systemd", "older units", "units read again", partial(systemd.reload, node))
            )
        return Plan(files, steps if missing else [*steps, *self._steps(node)])

    def verify(self, node: Node) -> Verdict:
        missing = self.kernel.missing(node)
        service = self._service_check(node, missing)
        lnet = None if missing else read_lnet(self.kernel, self.settings)
        if lnet is not None:
            promises = [*self._of_lnet(node, lnet), *self._of_modules(node)]
            return Verdict([service, *(self._check(node, each) for each in promises)])
        status = NOT_APPLICABLE if missing else PENDING if node.check_mode else FAILED
        found = None if missing else "not loaded"
        why = missing or next(self._lacking(), "LNet is not loaded")
        checks = [
            Check(each.name, each.wanted, found, status, each.subject, why)
            for each in self._of_lnet(node, Lnet())
        ]
        return Verdict([service, *checks])

    def _steps(self, node: Node) -> list[Step]:
        lnet = read_lnet(self.kernel, self.settings)
        steps = []
        state = systemd.state(node, SERVICE)
        enabled, _comma, active = state.partition(", ")
        if enabled != "enabled":
            steps.append(Step(SERVICE, enabled, "enabled", partial(systemd.enable, node, SERVICE)))
        changes = []
        if lnet is not None:
            promises = [*self._of_lnet(node, lnet), *self._of_modules(node, self.changing())]
            changes = [each for each in promises if each.changes]
        for each in changes:
            if each.live is not None:
                steps.append(Step(each.what, _list(each.found), _list(each.wanted), each.live))
        again = [each for each in changes if each.live is None]
        points = self.kernel.points()
        if lnet is not None and not again and (active == "active" or points):
            return steps  # under mounts only the next boot needs the service
        if points and not node.check_mode:
            what = "; ".join(
                f"{each.what} from {_list(each.found)} to {_list(each.wanted)}" for each in again
            )
            raise PlanError(
                f"LNet: a change of {what} was not begun: it unloads LNet, and Lustre is mounted "
                f"at {some(points)}. End the jobs, unmount them (systemctl stop UNIT, or "
                f"umount {points[0]}), then run again with --tags storage"
            )
        before = "not loaded" if lnet is None else f"loaded without {SERVICE}"
        after = f"as in /{CONF}"
        if again:
            before = "\n".join(f"{each.what}: {_list(each.found)}" for each in again)
            after = "\n".join(f"{each.what}: {_list(each.wanted)}" for each in again)
        steps.append(Step("LNet", before, after, partial(self._load, node), essential=True))
        return steps

    def _load(self, node: Node) -> None:
        # The service does not start over modules that are there (ConditionPathExists).
        unload(node, self.kernel)
        systemd.start(node, SERVICE)

    def _of_lnet(self, node: Node, lnet: Lnet) -> Iterator[Promise]:
        wanted = {net.net: sorted(net.interfaces) for net in self.settings.networks}
        for net in sorted({*wanted, *lnet.networks}):
            found = sorted(name for name, _status in lnet.networks.get(net, ()))
            down = sorted(name for name, status in lnet.networks.get(net, ()) if status != UP)
            why = "lnetctl net show shows other interfaces than /etc/lnet.conf"
            # A link is down, or its peer is gone: nothing that loading LNet again changes.
            stays = bool(down) and found == wanted.get(net)
            if stays:
                why = f"see ip -br link show {down[0]}, lnetctl net show -v 3, and the layer rails"
                found = [f"{name} (down)" if name in down else name for name in found]
            yield Promise(NETWORK, net, wanted.get(net, []), found, why, stays=stays)
        on = self.settings.discovery
        told = {"1": "on", "0": "off"}.get(lnet.discovery, "unknown")
        live = partial(_run, node, "lnetctl", "set", "discovery", str(int(on)))
        why = "see lnetctl global show"
        yield Promise(DISCOVERY, "", "on" if on else "off", told, why, live, told == "unknown")
        for net, router in self.settings.routes:
            there = sorted(via for routed, via in lnet.routes if routed == net)
            via = str(router) if str(router) in there else _list(there)
            yield Promise(ROUTE, net, str(router), via, "see lnetctl route show -v")
        for nids in self.settings.peers:
            all_nids = sorted(map(str, nids))
            known = sorted(lnet.peers.get(str(nids[0]), ()))
            known = all_nids if set(known).issuperset(all_nids) else known
            yield Promise(PEER, str(nids[0]), all_nids, known, "see lnetctl peer show")

    def _of_modules(self, node: Node, changing: bool = False) -> Iterator[Promise]:
        running = _text(self.kernel.module("lnet") / "version") or ""
        try:
            answer = node.look(["modinfo", "-F", "version", "lnet"], check=False)
            installed = answer.stdout.strip() if answer.rc == 0 else ""
        except CommandError:
            installed = ""
        if changing:
            yield Promise(VERSION, "", "of the new packages", running or "loaded", "")
        elif running and installed:
            why = "the kernel goes on with the modules that it loaded before the packages changed"
            yield Promise(VERSION, "", installed, running, why)
        for module, options in module_options(self.settings).items():
            for option, value in options.items():
                # Of a module that is not loaded yet, the file is checked; discovery is a promise.
                loaded = self.kernel.module(module).exists()
                if loaded and option != "lnet_peer_discovery_disabled":
                    yield self._of_option(module, option, value)

    def _of_option(self, module: str, option: str, value: str) -> Promise:
        subject = f"{module} {option}"
        path = self.kernel.module(module) / "parameters" / option
        now = _text(path)
        if now is None:
            why = f"{module} of this release has no such option, or does not show it"
            return Promise(OPTION, subject, value, "not shown", why, stays=True)
        writable = path.stat().st_mode & 0o200
        live = partial(_write, path, f"{value}\n") if writable else None
        # The kernel prints Y and N for what was written as 1 and 0.
        flags = {"1": "Y", "0": "N", "y": "Y", "n": "N"}
        found = value if flags.get(value, value) == flags.get(now, now) else now
        return Promise(
            OPTION, subject, value, found, "the module was loaded with another value", live
        )

    def _check(self, node: Node, each: Promise) -> Check:
        reason = each.reason
        points = self.kernel.points()
        if node.check_mode and points and each.live is None and not each.stays:
            reason = f"refused until Lustre is unmounted, which is mounted at {some(points)}"
        return compare(
            each.name,
            each.wanted,
            each.found,
            subject=each.subject,
            check_mode=node.check_mode and not each.stays,
            reason=reason,
        )

    def _service_check(self, node: Node, missing: str) -> Check:
        if missing:
            return not_applicable(SERVICE_CHECK, READY, missing, subject=SERVICE)
        state = systemd.state(node, SERVICE)
        if state == "enabled, inactive" and self.kernel.has_lnet and self.kernel.points():
            why = f"LNet was loaded without {SERVICE}, and stays so while Lustre is mounted"
            return Check(SERVICE_CHECK, READY, state, OK, SERVICE, why)
        why = f"see systemctl status {SERVICE}"
        return compare(
            SERVICE_CHECK, READY, state, subject=SERVICE, check_mode=node.check_mode, reason=why
        )

    # What is refused

    def _foreign(self, node: Node) -> list[str]:
        text = node.read(CONF) or ""
        lines = [line for line in text.splitlines() if line.strip() and line.strip()[0] != "#"]
        if not lines or HEADER in text.splitlines()[0]:
            return []
        return [
            f"/{CONF}: has other content ({lines[0].strip()!r}, {len(lines)} lines). Write it to "
            f"shared_storage_lustre (networks, routes, peers), then: mv /{CONF} /{CONF}.before"
        ]

    def _lacking(self) -> Iterator[str]:
        for network in self.settings.networks:
            for name in network.interfaces:
                what = ""
                if not (self.kernel.root / "sys/class/net" / name).exists():
                    what = "is not an interface of this host. Correct the name, or run the layer"
                elif kind(network.net) == O2IB and name not in self.kernel.rdma_interfaces():
                    what = "has no RDMA device. Write a network tcp0, or run the layers rdma and"
                if what:
                    place = f"shared_storage_lustre.networks: {network.net}"
                    yield f"{place}: {name} {what} rails first (--tags rails)"


def _run(node: Node, *argv: str) -> None:
    node.run(argv)


def _write(path: Path, text: str) -> None:
    path.write_text(text)


def _list(value: Any) -> str:
    return value if isinstance(value, str) else ", ".join(value) or "none"
