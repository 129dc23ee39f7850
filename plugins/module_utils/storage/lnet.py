# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""LNet: generate /etc/lnet.conf, and compare it as data with the running configuration. A change
unloads LNet, and is refused while Lustre is mounted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..core import systemd
from ..core.checks import NOT_APPLICABLE, OK, Check, compare, differs, not_applicable
from ..core.commands import CommandError
from ..core.files import HEADER
from ..core.part import Node, Plan, PlanError, Step, StepError, Verdict
from ..core.text import some
from .lustre import (
    TCP,
    LustreKernel,
    LustreSettings,
    kind,
    lacking_programs,
    read_net,
    read_text,
)

CONF = "etc/lnet.conf"
MODPROBE = "etc/modprobe.d/baremetal-mpi-roce-lustre.conf"
SERVICE = "lnet.service"
DROP_IN = f"etc/systemd/system/{SERVICE}.d/baremetal-mpi-roce.conf"
READY = "enabled, active"
SERVICE_CHECK, NETWORK = "lustre_lnet_service", "lustre_lnet_network"
DISCOVERY, ROUTE = "lustre_lnet_discovery", "lustre_lnet_route"
OPTION, VERSION = "lustre_module_option", "lustre_module_version"
_DOWN = re.compile(r"Network is down|errno:\s*-(100|3)\b")
"""LNet is loaded but not configured, so it has no networks."""

Values = dict[tuple[str, str], Any]
"""Values by check name and subject."""


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
    lines += ["global:", f"    discovery: {int(settings.discovery)}"]
    return "".join(f"{line}\n" for line in lines)


def _numbers(name: str, values: Mapping[str, int]) -> list[str]:
    lines = [f"              {key}: {number}" for key, number in values.items()]
    return [f"          {name}:", *lines] if lines else []


def module_options(settings: LustreSettings) -> dict[str, dict[str, str]]:
    """Options of each kernel module. The operator's values take precedence."""
    merged: dict[str, dict[str, str]] = {
        # LNet may be loaded by a mount before lnet.service: its module needs this option.
        "lnet": {"lnet_peer_discovery_disabled": str(int(not settings.discovery))},
    }
    if any(kind(network.net) == TCP for network in settings.networks):
        # roce_rails sets the routes and rules of rails; LNet would add a second set.
        merged["ksocklnd"] = {"skip_mr_route_setup": "1"}
    for module, options in settings.modprobe.items():
        merged.setdefault(module, {}).update(options)
    return {module: dict(sorted(options.items())) for module, options in sorted(merged.items())}


def modprobe_conf(settings: LustreSettings) -> str:
    return "".join(
        f"options {module} {' '.join(f'{name}={value}' for name, value in options.items())}\n"
        for module, options in module_options(settings).items()
        if options
    )


def wanted_values(settings: LustreSettings) -> Values:
    values: Values = {(NETWORK, x.net): sorted(x.interfaces) for x in settings.networks}
    values[DISCOVERY, ""] = "on" if settings.discovery else "off"
    for net, _router in settings.routes:
        routers = [router for other, router in settings.routes if other == net]
        values[ROUTE, net] = ", ".join(dict.fromkeys(routers))
    return values


def running_values(kernel: LustreKernel, wanted: Values) -> Values:
    """Running values of the desired keys and of all networks, of a loaded LNet: lnetctl would load
    it. Raises CommandError."""
    current: Values = {}
    net = ""
    for key, value in _shown(kernel, "net"):
        if key == "net type":
            net = read_net(value)
            if net != "lo":
                current[NETWORK, net] = []
        elif key.isdigit() and (NETWORK, net) in current:  # below `interfaces`
            current[NETWORK, net] = sorted([*current[NETWORK, net], value])
    discovery = dict(_shown(kernel, "global")).get("discovery", "not shown")
    current[DISCOVERY, ""] = {"1": "on", "0": "off"}.get(discovery, discovery)
    wanted_routes = {key: value for key, value in wanted.items() if key[0] == ROUTE}
    routes: dict[str, list[str]] = {}
    for key, value in _shown(kernel, "route") if wanted_routes else ():
        if key == "net":
            net = read_net(value)
        elif key == "gateway":
            routes.setdefault(net, []).append(value)
    for route, gateway in wanted_routes.items():
        gateways = routes.get(route[1], [])
        same = set(gateway.split(", ")) <= set(gateways)
        current[route] = gateway if same else ", ".join(gateways) or "none"
    return current


def pairs(text: str) -> Iterator[tuple[str, str]]:
    """Key and value of each line of the output of lnetctl and lctl, which is not quite YAML; the
    order of the keys shows which belong together."""
    for line in text.splitlines():
        key, colon, value = line.strip().lstrip("- ").partition(":")
        if colon:
            yield key.strip("\"' "), value.strip("!\"' ")


def _shown(kernel: LustreKernel, what: str) -> list[tuple[str, str]]:
    result = kernel.look(["lnetctl", what, "show"], check=False)
    if result.rc == 0 and "errno:" not in result.stdout:
        return list(pairs(result.stdout))
    text = f"{result.stdout}\n{result.stderr}"
    if _DOWN.search(text):
        return []
    raise CommandError(f"lnetctl {what} show: {text.strip()[-500:]}")


@dataclass
class LnetPart:
    """Configuration of LNet. `after`: units that must finish before LNet starts."""

    settings: LustreSettings
    kernel: LustreKernel
    after: Sequence[str] = ()

    def plan(self, node: Node) -> Plan:
        missing = self.kernel.missing(node)
        findings = self._foreign(node)
        lacking = lacking_programs(node)
        if lacking and not missing and not node.check_mode:
            findings.append(
                f"the Lustre client is not installed: {lacking}. Install it, or set method, "
                "version and repository in shared_storage_lustre.packages"
            )
        if findings:
            raise PlanError("\n".join(findings))
        # LNet binds to interfaces, which need their names and addresses first.
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
            reload = partial(systemd.control, node, "daemon-reload")
            steps.append(Step("systemd", "older units", "units reloaded", reload))
        return Plan(files, [*steps, *self._steps(node)])

    def _steps(self, node: Node) -> list[Step]:
        steps = []
        enabled, _comma, active = systemd.state(node, SERVICE).partition(", ")
        if enabled != "enabled":
            enable = partial(systemd.control, node, "enable", SERVICE)
            steps.append(Step(SERVICE, enabled, "enabled", enable))
        loaded, points = self.kernel.has_lnet, self.kernel.points()
        changes = []
        if loaded:
            wanted, current = self._values(node)
            changes = [
                (" ".join(key).strip(), current.get(key), value)
                for key, value in wanted.items()
                if current.get(key) != value
            ]
        if loaded and not changes and (active == "active" or points):
            return steps  # while mounted, only the next boot needs the service
        before = "\n".join(f"{key}: {_list(old)}" for key, old, _new in changes)
        after = "\n".join(f"{key}: {_list(new)}" for key, _old, new in changes)
        if points and not node.check_mode:
            raise PlanError(
                f"LNet: {after}: not changed, because that unloads LNet, and Lustre is mounted at "
                f"{some(points)}. Stop the jobs and unmount it, then run again"
            )
        before = before or (f"loaded without {SERVICE}" if loaded else "not loaded")
        load = partial(self._load, node)
        steps.append(Step("LNet", before, after or f"as in /{CONF}", load, essential=True))
        return steps

    def _load(self, node: Node) -> None:
        """Unload LNet and start its service, which does not start while its modules are loaded."""
        points = self.kernel.points()
        if points:
            raise StepError(f"Lustre is mounted at {some(points)}: unmount it, then run again")
        systemd.control(node, "stop", SERVICE)
        if self.kernel.has_lnet:
            node.run(["lustre_rmmod"])
        if self.kernel.has_lnet:
            raise StepError("LNet could not be unloaded: its modules are in use (lsmod)")
        systemd.control(node, "start", SERVICE)

    def _values(self, node: Node) -> tuple[Values, Values]:
        wanted = wanted_values(self.settings)
        current = running_values(self.kernel, wanted)
        wanted = {**{key: [] for key in current if key[0] == NETWORK}, **wanted}
        for module, options in module_options(self.settings).items():
            for option, value in options.items():
                actual = read_text(self.kernel.module(module) / "parameters" / option)
                if actual is None or option == "lnet_peer_discovery_disabled":
                    continue  # not loaded yet, not shown by this release, or checked above
                # The kernel prints Y and N for 1 and 0.
                flags = {"1": "Y", "0": "N", "y": "Y", "n": "N"}
                same = flags.get(value, value) == flags.get(actual, actual)
                wanted[OPTION, f"{module} {option}"] = value
                current[OPTION, f"{module} {option}"] = value if same else actual
        # After an upgrade, the kernel still runs the former modules.
        running = read_text(self.kernel.module("lnet") / "version")
        installed = ""
        with suppress(CommandError):
            argv = ["modinfo", "-F", "version", "lnet"]
            installed = node.look(argv, check=False).stdout.strip()
        if running and installed:
            wanted[VERSION, ""], current[VERSION, ""] = installed, running
        return wanted, current

    def verify(self, node: Node) -> Verdict:
        missing = self.kernel.missing(node)
        checks = [self._service_check(node, missing)]
        if missing or not self.kernel.has_lnet:
            status = NOT_APPLICABLE if missing else differs(node.check_mode)
            found = None if missing else "not loaded"
            reason = missing or "LNet is not loaded"
            checks += [
                Check(name, value, found, status, subject, reason)
                for (name, subject), value in wanted_values(self.settings).items()
            ]
            return Verdict(checks)
        wanted, current = self._values(node)
        points = self.kernel.points() if node.check_mode else []
        reason = f"refused while Lustre is mounted at {some(points)}" if points else ""
        for (name, subject), value in wanted.items():
            actual, pending = current.get((name, subject), []), node.check_mode
            checks.append(
                compare(name, value, actual, subject=subject, check_mode=pending, reason=reason)
            )
        return Verdict(checks)

    def _service_check(self, node: Node, missing: str) -> Check:
        if missing:
            return not_applicable(SERVICE_CHECK, READY, missing, subject=SERVICE)
        state = systemd.state(node, SERVICE)
        if state == "enabled, inactive" and self.kernel.has_lnet and self.kernel.points():
            reason = "LNet was loaded without it, which cannot change while Lustre is mounted"
            return Check(SERVICE_CHECK, READY, state, OK, SERVICE, reason)
        return compare(SERVICE_CHECK, READY, state, subject=SERVICE, check_mode=node.check_mode)

    def _foreign(self, node: Node) -> list[str]:
        text = node.read(CONF) or ""
        lines = [line for line in text.splitlines() if line.strip() and line.strip()[0] != "#"]
        if not lines or HEADER in text.splitlines()[0]:
            return []
        return [
            f"/{CONF}: has foreign content ({lines[0].strip()!r}, {len(lines)} lines). Move it to "
            "shared_storage_lustre (networks, routes), and remove the file"
        ]


def _list(value: Any) -> str:
    return value if isinstance(value, str) else ", ".join(value or ()) or "none"
