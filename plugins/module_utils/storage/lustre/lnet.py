# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""LNet: one generated /etc/lnet.conf, compared as data with what runs.

LNet is changed by unloading it and importing the file anew, which takes every mount of Lustre away:
while there is one, a change is refused. A host without Lustre file systems keeps its LNet until
that is declared absent, by the name of its file.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from .. import foreign, mounted
from ..units import value_of
from .settings import O2IB, TCP, LustreSettings, kind, read_net

CONF = "etc/lnet.conf"
MODPROBE = "etc/modprobe.d/baremetal-mpi-roce-lustre.conf"
SERVICE = "lnet.service"
DROP_IN = f"etc/systemd/system/{SERVICE}.d/baremetal-mpi-roce.conf"
READY = "enabled, active"
SERVICE_CHECK, NETWORK = "lustre_lnet_service", "lustre_lnet_network"
DISCOVERY, ROUTE, PEER = "lustre_lnet_discovery", "lustre_lnet_route", "lustre_lnet_peer"
OPTION, VERSION, LEFT = "lustre_module_option", "lustre_module_version", "lustre_left"
NAME = f"/{CONF}"
"""What stands for all of LNet in `shared_storage_absent`."""
UNKNOWN = "unknown"
"""A fault that loading LNet again does not mend: never a change."""
ALIKE = ("lustre", "lustre_tgt")
"""What mountinfo calls clients, and targets of a server."""
_REASONS = {
    NETWORK: "lnetctl net show shows other interfaces than /etc/lnet.conf",
    DISCOVERY: "see lnetctl global show",
    ROUTE: "see lnetctl route show -v",
    PEER: "see lnetctl peer show",
    OPTION: "the module was loaded with another value",
    VERSION: "the kernel still has the modules that it loaded before the packages changed",
}
_DOWN = re.compile(r"Network is down|errno:\s*-(100|3)\b")
"""LNet is loaded and not configured: there are no networks, and that is an answer."""

Values = dict[tuple[str, str], Any]
"""By check and subject."""


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

    def lacking(self, settings: LustreSettings) -> Iterator[str]:
        """Interfaces that LNet cannot use, one line each."""
        ports = (self.root / "sys/class/infiniband").glob("*/ports/*/gid_attrs/ndevs/*")
        rdma = {_text(path) for path in ports}
        for network in settings.networks:
            place = f"shared_storage_lustre.networks: {network.net}"
            if not network.interfaces:
                yield f"{place}: no interface of this host is named, and it has no rails"
            for name in network.interfaces:
                if not (self.root / "sys/class/net" / name).exists():
                    yield f"{place}: {name} is not an interface of this host; see --tags rails"
                elif kind(network.net) == O2IB and name not in rdma:
                    yield f"{place}: {name} has no RDMA device; see --tags rdma,rails"


def _text(path: Path) -> Optional[str]:
    """Of a file in sys; None where it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return None


def unload(node: Node, kernel: Kernel) -> None:
    """The service ends before its modules, and neither under a mount."""
    points = kernel.points()
    if points:
        raise StepError(f"Lustre is mounted at {some(points)}: unmount it, then run again")
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
    """The body of /etc/lnet.conf, in the form that `lnetctl export --backup` prints."""
    lines = ["net:"]
    for network in settings.networks:
        lines += [f"    - net type: {network.net}", "      local NI(s):"]
        for interface in network.interfaces:
            lines += ["        - interfaces:", f"              0: {interface}"]
            lines += _numbers("tunables", network.tunables)
            lines += _numbers("lnd tunables", network.driver_tunables)
    lines += ["route:"] if settings.routes else []
    for net, gateway in settings.routes:
        lines += [f"    - net: {net}", f"      gateway: {gateway}"]
    lines += ["peer:"] if settings.peers else []
    for nids in settings.peers:
        lines += [f"    - primary nid: {nids[0]}", f"      Multi-Rail: {len(nids) > 1}"]
        lines += ["      peer ni:", *(f"        - nid: {nid}" for nid in nids)]
    lines += ["global:", f"    discovery: {int(settings.discovery)}"]
    return "".join(f"{line}\n" for line in lines)


def _numbers(name: str, values: Mapping[str, int]) -> list[str]:
    lines = [f"              {key}: {number}" for key, number in values.items()]
    return [f"          {name}:", *lines] if lines else []


def module_options(settings: LustreSettings) -> dict[str, dict[str, str]]:
    """What is wanted of each kernel module, the operator's value last."""
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


# What is wanted, and what runs


def wanted_values(settings: LustreSettings) -> Values:
    found: Values = {(NETWORK, each.net): sorted(each.interfaces) for each in settings.networks}
    found[DISCOVERY, ""] = "on" if settings.discovery else "off"
    found.update({(ROUTE, net): str(router) for net, router in settings.routes})
    found.update({(PEER, str(nids[0])): sorted(map(str, nids)) for nids in settings.peers})
    return found


def running_values(kernel: Kernel, wanted: Values) -> tuple[Values, set[str]]:
    """What LNet has of what is wanted and all its networks; and interfaces that are down.

    Only for an LNet that is loaded: lnetctl would load it. Raises CommandError.
    """
    found: Values = {}
    down: set[str] = set()
    net = status = primary = ""
    for key, value in _shown(kernel, "net"):
        if key == "net type":
            net = read_net(value)
            if net != "lo":
                found[NETWORK, net] = []
        elif key in ("nid", "status"):
            status = value if key == "status" else "up"
        elif key.isdigit() and (NETWORK, net) in found:  # below `interfaces`
            found[NETWORK, net] = sorted([*found[NETWORK, net], value])
            down |= {value} if status not in ("up", "") else set()
    result = dict(_shown(kernel, "global")).get("discovery", "")
    found[DISCOVERY, ""] = {"1": "on", "0": "off"}.get(result, UNKNOWN)
    routes: dict[str, set[str]] = {}
    for key, value in _shown(kernel, "route") if _asked(wanted, ROUTE) else ():
        if key == "net":
            net = read_net(value)
        elif key == "gateway":
            routes.setdefault(net, set()).add(value)
    peers: dict[str, set[str]] = {}
    for key, value in _shown(kernel, "peer") if _asked(wanted, PEER) else ():
        if key == "primary nid":
            primary = value
        elif key == "nid":
            peers.setdefault(primary, set()).add(value)
    for subject in _asked(wanted, ROUTE):
        there = routes.get(subject, set())
        right = wanted[ROUTE, subject]
        found[ROUTE, subject] = right if right in there else ", ".join(sorted(there)) or "none"
    for subject in _asked(wanted, PEER):
        there, nids = peers.get(subject, set()), wanted[PEER, subject]
        found[PEER, subject] = nids if there.issuperset(nids) else sorted(there)
    return found, down


def _asked(wanted: Values, check: str) -> list[str]:
    return [subject for name, subject in wanted if name == check]


def pairs(text: str) -> Iterator[tuple[str, str]]:
    """Key and value of each line of the YAML that lnetctl and lctl print.

    Nodes have no parser of YAML, releases indent differently, and `descr: ! "text"` is none: what
    belongs together follows from the order of the keys.
    """
    for line in text.splitlines():
        key, colon, value = line.strip().lstrip("- ").partition(":")
        if colon:
            yield key.strip("\"' "), value.strip("!\"' ")


def _shown(kernel: Kernel, what: str) -> list[tuple[str, str]]:
    result = kernel.look(["lnetctl", what, "show"], check=False)
    if result.rc == 0 and "errno:" not in result.stdout:
        return list(pairs(result.stdout))
    text = f"{result.stdout}\n{result.stderr}"
    if _DOWN.search(text):
        return []
    raise CommandError(f"lnetctl {what} show: {text.strip()[-500:]}")


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
            # In check mode of a fresh node, rails are still to come.
            findings += self.kernel.lacking(self.settings)
        if findings:
            raise PlanError("\n".join(findings))
        # LNet binds to interfaces: they need their names and addresses first.
        drop_in = f"[Unit]\nAfter={' '.join(self.after)}\n" if self.after else None
        files = [
            node.file(CONF, lnet_conf(self.settings)),
            node.file(MODPROBE, modprobe_conf(self.settings)),
            node.file(DROP_IN, drop_in),
        ]
        if missing:
            return Plan(files)
        steps = []
        if files[-1].changed:
            reload = partial(systemd.reload, node)
            steps.append(Step("systemd", "older units", "units read again", reload))
        return Plan(files, [*steps, *self._steps(node)])

    def _steps(self, node: Node) -> list[Step]:
        steps = []
        enabled, _comma, active = systemd.state(node, SERVICE).partition(", ")
        if enabled != "enabled":
            steps.append(Step(SERVICE, enabled, "enabled", partial(systemd.enable, node, SERVICE)))
        loaded = self.kernel.has_lnet
        changes = []
        if loaded:
            wanted, found, _down = self._values(node)
            changes = [
                (f"{name} {subject}".strip(), found.get((name, subject)), value)
                for (name, subject), value in wanted.items()
                if found.get((name, subject)) not in (value, UNKNOWN)
            ]
            if self.changing():
                changes.append((VERSION, "loaded", "of the new packages"))
        points = self.kernel.points()
        if loaded and not changes and (active == "active" or points):
            return steps  # under mounts only the next boot needs the service
        before = "\n".join(f"{what}: {_list(now)}" for what, now, _then in changes)
        after = "\n".join(f"{what}: {_list(then)}" for what, _now, then in changes)
        if points and not node.check_mode:
            raise PlanError(
                f"LNet: {after}: not changed, as that unloads LNet, and Lustre is mounted at "
                f"{some(points)}. End the jobs, unmount them (systemctl stop UNIT, or umount "
                f"{points[0]}), then run again with --tags storage"
            )
        before = before or (f"loaded without {SERVICE}" if loaded else "not loaded")
        load = partial(self._load, node)
        steps.append(Step("LNet", before, after or f"as in {NAME}", load, essential=True))
        return steps

    def _load(self, node: Node) -> None:
        # The service does not start over modules that are there (ConditionPathExists).
        unload(node, self.kernel)
        systemd.start(node, SERVICE)

    def _values(self, node: Node) -> tuple[Values, Values, set[str]]:
        """Wanted, found, and interfaces that are down; of an LNet that is loaded."""
        wanted = wanted_values(self.settings)
        found, down = running_values(self.kernel, wanted)
        wanted = {**{key: [] for key in found if key[0] == NETWORK}, **wanted}
        for module, options in module_options(self.settings).items():
            for option, value in options.items():
                now = _text(self.kernel.module(module) / "parameters" / option)
                by_operator = option in self.settings.modprobe.get(module, {})
                if now is None and by_operator and self.kernel.module(module).exists():
                    wanted[OPTION, f"{module} {option}"] = value
                    found[OPTION, f"{module} {option}"] = UNKNOWN
                if now is None or option == "lnet_peer_discovery_disabled":
                    continue  # not loaded yet, or not shown by this release; or the check above
                # The kernel prints Y and N for what was written as 1 and 0.
                flags = {"1": "Y", "0": "N", "y": "Y", "n": "N"}
                same = flags.get(value, value) == flags.get(now, now)
                wanted[OPTION, f"{module} {option}"] = value
                found[OPTION, f"{module} {option}"] = value if same else now
        running = _text(self.kernel.module("lnet") / "version")
        try:
            installed = node.look(["modinfo", "-F", "version", "lnet"], check=False)
        except CommandError:
            return wanted, found, down
        if running and installed.rc == 0 and installed.stdout.strip():
            wanted[VERSION, ""], found[VERSION, ""] = installed.stdout.strip(), running
        return wanted, found, down

    def verify(self, node: Node) -> Verdict:
        missing = self.kernel.missing(node)
        service = self._service_check(node, missing)
        if missing or not self.kernel.has_lnet:
            status = NOT_APPLICABLE if missing else PENDING if node.check_mode else FAILED
            found = None if missing else "not loaded"
            why = missing or next(self.kernel.lacking(self.settings), "LNet is not loaded")
            wanted = wanted_values(self.settings)
            checks = [
                Check(name, value, found, status, subject, why)
                for (name, subject), value in wanted.items()
            ]
            return Verdict([service, *checks])
        wanted, now, down = self._values(node)
        checks = [
            self._check(node, key, value, now.get(key), down) for key, value in wanted.items()
        ]
        return Verdict([service, *checks])

    def _check(
        self, node: Node, key: tuple[str, str], wanted: Any, found: Any, down: set[str]
    ) -> Check:
        name, subject = key
        if name == NETWORK and found == wanted and down.intersection(found):
            # A link is down, or its peer is gone: nothing that loading LNet again changes.
            shown = [f"{each} (down)" if each in down else each for each in found]
            first = sorted(down)[0]
            why = f"see ip -br link show {first}, lnetctl net show -v 3, and the layer rails"
            return Check(name, wanted, shown, FAILED, subject, why)
        reason = _REASONS[name]
        if name == OPTION and found == UNKNOWN:
            reason = f"the module shows no such option: see modinfo -p {subject.split()[0]}"
        points = self.kernel.points()
        if node.check_mode and points:
            reason = f"refused until Lustre is unmounted, which is mounted at {some(points)}"
        pending = node.check_mode and found != UNKNOWN
        found = [] if found is None else found
        return compare(name, wanted, found, subject=subject, check_mode=pending, reason=reason)

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

    def _foreign(self, node: Node) -> list[str]:
        text = node.read(CONF) or ""
        lines = [line for line in text.splitlines() if line.strip() and line.strip()[0] != "#"]
        if not lines or HEADER in text.splitlines()[0]:
            return []
        return [
            f"{NAME}: has other content ({lines[0].strip()!r}, {len(lines)} lines). Write it to "
            f"shared_storage_lustre (networks, routes, peers), then: mv {NAME} {NAME}.before"
        ]


def _list(value: Any) -> str:
    return value if isinstance(value, str) else ", ".join(value or ()) or "none"


# On a host that has no file system of Lustre any more


def without_lnet(absent: Sequence[str]) -> list[str]:
    """The mount points and directories of the list."""
    return [path for path in absent if posixpath.normpath(path) != NAME]


@dataclass(frozen=True)
class LeftLnet:
    """`wanted`: this host has file systems of Lustre. `absent`: `shared_storage_absent`."""

    kernel: Kernel
    wanted: bool
    absent: Sequence[str] = ()

    @property
    def asked(self) -> bool:
        return len(without_lnet(self.absent)) < len(self.absent)

    def plan(self, node: Node) -> Plan:
        if self.asked and self.wanted:
            raise PlanError(
                f"shared_storage_absent: {NAME} is LNet, which the Lustre file systems of this "
                "host need. Remove one of the two"
            )
        files = self.files(node)
        if not self.asked or not files:
            return Plan()
        gone = {posixpath.normpath(path) for path in self.absent}
        mounts = [] if self.kernel.missing(node) else self.kernel.points()
        points = sorted({*self._units(node), *mounts} - gone)
        if points:
            raise PlanError(
                f"shared_storage_absent: {NAME} is LNet, which {some(points)} needs. Unmount what "
                "was mounted by hand, and name the others beside it"
            )
        step = Step(
            *("LNet", self._found(node, files), "unloaded, not started at boot, without its files"),
            lambda: self._end(node, files),
            shown=[node.file(name, None).diff() for name in files],
        )
        return Plan([], [step])

    def verify(self, node: Node) -> Verdict:
        files = [] if self.wanted else self.files(node)
        if not files:
            there = self.asked and not self.wanted
            return Verdict([Check(LEFT, "absent", "absent", OK, NAME)] if there else [])
        words = ", ".join(f'"{point}"' for point in [*self._units(node), NAME])
        why = (
            "no file system of this host is of Lustre any more. Put it back, or take LNet away "
            f"with -e '{{\"shared_storage_absent\": [{words}]}}' and --limit to these hosts"
        )
        status = PENDING if node.check_mode and self.asked else FAILED
        found = self._found(node, files)
        return Verdict([Check(LEFT, "a Lustre file system", found, status, NAME, why)])

    def files(self, node: Node) -> list[str]:
        """Those of this collection; others are kept."""
        names = (CONF, MODPROBE, DROP_IN)
        return [x for x in names if HEADER in (node.read(x) or "").split("\n", 1)[0]]

    def _units(self, node: Node) -> list[str]:
        """Mount points of Lustre that have a unit of ours."""
        return list(foreign.our_points(node, lambda text: value_of(text, "Type") == "lustre"))

    def _found(self, node: Node, files: Sequence[str]) -> str:
        state = systemd.state(node, SERVICE)
        return ", ".join([f"/{name}" for name in files] + [f"{SERVICE} {state}"])

    def _end(self, node: Node, files: Sequence[str]) -> None:
        """The files last: interrupted before, and they are found again."""
        if not self.kernel.missing(node):
            unload(node, self.kernel)
        if systemd.installed(node, [SERVICE]):
            node.run(["systemctl", "disable", SERVICE])
        for name in files:
            node.file(name, None).apply()
        systemd.reload(node)
