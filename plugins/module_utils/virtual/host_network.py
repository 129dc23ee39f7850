# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Making and removing a virtual network on this machine, through iproute2."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from ..core.commands import Runner
from .cabling import Plan
from .convergence import Batch, Link, State, creation, differences, preparation, removal
from .inventory import VirtualNetworkError
from .journal import Journal
from .names import controller_interface
from .routing import Routing


def parse_links(text: str) -> dict[str, Link]:
    """Interfaces by name from `ip -json address show`."""
    found = {}
    for entry in json.loads(text or "[]"):
        if not entry:
            continue
        found[entry["ifname"]] = Link(
            index=entry["ifindex"],
            peer=entry.get("link_index"),
            up="UP" in entry["flags"],
            mtu=entry["mtu"],
            bridge=entry.get("master"),
            addresses=frozenset(
                f"{address['local']}/{address['prefixlen']}" for address in entry["addr_info"]
            ),
        )
    return found


def overlapping_route(
    routes: str, network: ipaddress.IPv4Network, own_interface: str
) -> Optional[str]:
    """The host's route that already leads to part of the management network, as text."""
    for route in json.loads(routes or "[]"):
        if route["dst"] == "default" or route.get("dev") == own_interface:
            continue
        if ipaddress.IPv4Network(route["dst"]).overlaps(network):
            return f"{route['dst']} dev {route.get('dev', '?')}"
    return None


class HostNetwork:
    """The machine that carries the virtual network, through iproute2."""

    def __init__(self, run: Runner) -> None:
        self._run = run

    def state(self, namespaces: Iterable[str], interface: str) -> dict[str, dict[str, Link]]:
        """What is there of these namespaces, and of the host's one interface."""
        listed = self._run(["ip", "-json", "netns", "list"]).stdout.strip()
        existing = {entry["name"] for entry in json.loads(listed or "[]")}
        host = self._run(["ip", "-json", "address", "show", "dev", interface], check=False).stdout
        found = {"": parse_links(host)}
        for name in namespaces:
            if name in existing:
                shown = self._run(["ip", "-n", name, "-json", "address", "show"], check=False)
                found[name] = parse_links(shown.stdout) if shown.rc == 0 else {}
        return found

    def routes(self) -> str:
        return self._run(["ip", "-json", "-4", "route", "show"]).stdout

    def apply(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            inside = ["-n", batch.namespace] if batch.namespace else []
            self._run(["ip", *inside, "-batch", "-"], stdin="\n".join(batch.lines) + "\n")

    def sysctls(self, namespace: str, wanted: Mapping[str, str]) -> bool:
        """Set the namespace's sysctls; whether any differed."""
        inside = ["ip", "netns", "exec", namespace, "sysctl"]
        shown = self._run([*inside, "-n", *wanted]).stdout.split()
        if shown == list(wanted.values()):
            return False
        self._run([*inside, "-q", "-w", *(f"{name}={value}" for name, value in wanted.items())])
        return True


FABRIC_SYSCTLS = {
    "net.ipv4.ip_forward": "1",
    "net.ipv4.conf.all.rp_filter": "0",
    "net.ipv4.conf.default.rp_filter": "0",
}
"""The fabric routes between rails, as leaves and spines do. Nothing else on the host forwards."""


ROUTER_SYSCTLS = {**FABRIC_SYSCTLS, "net.ipv4.fib_multipath_hash_policy": "1"}
"""Which of several paths a packet takes depends on its ports as well, as in switches."""


@dataclass(frozen=True)
class Done:
    """What was run, or would be in check mode."""

    commands: tuple[str, ...]
    interface: str


def create(
    plan: Plan,
    host: HostNetwork,
    journal: Journal,
    *,
    check_mode: bool,
    routing: Optional[Routing] = None,
) -> Done:
    """Make the host's network as planned, and read it back."""
    made = journal.namespaces()
    old = [name for name in made if name not in plan.namespaces]
    state = host.state([*plan.namespaces, *made], plan.management)
    _refuse_foreign(plan, state, made)
    taken = overlapping_route(host.routes(), plan.network, plan.management)
    if taken:
        raise VirtualNetworkError(
            f"this machine already routes {taken}, which overlaps the management network "
            f"{plan.network} of the virtual nodes. Choose another one in cluster.yml."
        )
    first = preparation(plan, state, made)
    if check_mode:
        further = routing.plan(plan.routers, old) if routing else []
        return Done(
            (*_shown(first), *_shown(creation(plan, _without_broken(state))), *further),
            plan.management,
        )
    stopped = routing.stop(old) if routing else []
    journal.write([*plan.namespaces, *made])
    host.apply(first)
    forwarding = {
        plan.fabric: FABRIC_SYSCTLS,
        **{router.namespace: ROUTER_SYSCTLS for router in plan.routers},
    }
    set_now = [name for name, wanted in forwarding.items() if host.sysctls(name, wanted)]
    state = host.state(plan.namespaces, plan.management)
    second = creation(plan, state)
    host.apply(second)
    journal.write(plan.namespaces)
    left = (
        differences(plan, host.state(plan.namespaces, plan.management)) if second or first else []
    )
    if left:
        raise VirtualNetworkError(
            "after the change these are still to be done:\n  " + "\n  ".join(left)
        )
    extra = [
        f"-n {namespace} sysctl {name}={value}"
        for namespace in set_now
        for name, value in forwarding[namespace].items()
    ]
    started = routing.start(plan.routers) if routing else []
    return Done(
        (*stopped, *_shown(first), *extra, *_shown(second), *started),
        plan.management,
    )


def destroy(
    cluster: str,
    host: HostNetwork,
    journal: Journal,
    *,
    check_mode: bool,
    routing: Optional[Routing] = None,
) -> Done:
    """Remove what the journal names, then the journal."""
    interface = controller_interface(cluster)
    if not journal.exists:
        return Done((), interface)
    made = journal.namespaces()
    batches = removal(made, interface, host.state(made, interface))
    if check_mode:
        stopped = routing.plan((), made) if routing else []
    else:
        # Before their namespaces go: a program in one would keep it alive without a name.
        stopped = routing.stop(made) if routing else []
        host.apply(batches)
        journal.clear()
    return Done((*stopped, *_shown(batches)) or ("forget the journal",), interface)


def _without_broken(state: State) -> State:
    return {name: links for name, links in state.items() if not name or "lo" in links}


def _refuse_foreign(plan: Plan, state: State, made: Sequence[str]) -> None:
    foreign = [name for name in plan.namespaces if name in state and name not in made]
    if foreign or (plan.management in state[""] and not made):
        named = ", ".join(foreign) or f"interface {plan.management}"
        raise VirtualNetworkError(
            f"{named}: there already, and not made by this collection. Remove it, or give the "
            "cluster another name."
        )


def _shown(batches: Iterable[Batch]) -> tuple[str, ...]:
    return tuple(
        f"-n {batch.namespace} {line}" if batch.namespace else line
        for batch in batches
        for line in batch.lines
    )
