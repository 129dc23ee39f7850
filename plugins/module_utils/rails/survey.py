# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is there, what is wanted, and what lies between them; nothing is changed here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from ..core.checks import NOT_APPLICABLE, OK, Check
from ..core.commands import CommandError, Runner
from ..core.dataclass import dataclass
from ..core.files import FilePlan, diff
from ..core.machine import IN_CONTAINER
from ..core.part import Node
from ..core.reboots import Reason
from . import device, readback, state
from .backend import BACKENDS, NETPLAN, NETWORKD, NETWORKMANAGER, Backend, service_state
from .claims import find_claims
from .management import Management
from .netplan import Netplan
from .networkd import Networkd
from .networkmanager import NetworkManager
from .plan import RailPlan
from .readback import Observation
from .state import State, read_state

AUTO = "auto"


def backend_named(name: str, run: Runner, root: Path = Path("/")) -> Backend:
    """The backend of that name."""
    if name == NETPLAN:
        return Netplan(run, root)
    return NetworkManager(run, root) if name == NETWORKMANAGER else Networkd(run, root)


def detect(run: Runner, root: Path = Path("/")) -> str:
    """netplan where it has files; else NetworkManager where it runs; else netplan or networkd.

    netplan goes first because a system configured by it also runs one of the other two, and would
    overwrite what that one was given. Raises CommandError when there is none.
    """
    netplan = (root / "usr/sbin/netplan").exists()
    if netplan and any((root / "etc/netplan").glob("*.yaml")):
        return NETPLAN
    if run(("systemctl", "is-active", "--quiet", "NetworkManager"), check=False).rc == 0:
        return NETWORKMANAGER
    if netplan:
        return NETPLAN
    if any((root / path / "systemd/systemd-networkd").exists() for path in ("lib", "usr/lib")):
        return NETWORKD
    raise CommandError(
        "no network service found: NetworkManager does not run, and neither netplan nor "
        "systemd-networkd is installed. Install one, or name it (roce_rails_backend)."
    )


@dataclass(frozen=True)
class Request:
    """What is asked of this host."""

    rails: Sequence[RailPlan]
    arp: Mapping[str, int] = field(default_factory=lambda: dict(state.ARP_DEFAULTS))
    check_path: bool = True
    wait_s: float = 30.0
    management: Management = field(default_factory=Management)


class Survey:
    """One host, its rails as planned and as they were last read."""

    def __init__(self, request: Request, backend: Backend, node: Node) -> None:
        self.request = request
        self.backend = backend
        self.node = node
        self.by_name = {rail.interface: rail for rail in request.rails}
        self.state = read_state(node.run)
        self.old_blocks = backend.read()
        by_pci = device.interfaces_by_pci(node.root)
        self.reached_by = request.management.interfaces(self.state, self.old_blocks)
        links, in_use = self.state.links, self.state.in_use
        self.namings = {
            name: device.naming(rail, links, by_pci, in_use, self.reached_by)
            for name, rail in self.by_name.items()
        }
        for name, rail in self.by_name.items():
            held = request.management.holds(rail.cidr)
            if held and self.namings[name].verdict != device.REFUSED:
                reason = f"its address is {held}. Correct the rail's address in the model"
                self.namings[name] = replace(
                    self.namings[name], verdict=device.REFUSED, reason=reason
                )
        allowed = [
            rail
            for name, rail in self.by_name.items()
            if self.namings[name].verdict != device.REFUSED
        ]
        self.claims = find_claims(allowed, links, node.root)
        self.blocks = self._wanted_blocks()
        self.changed_blocks = [
            name
            for name in {**self.old_blocks, **self.blocks}
            if self.old_blocks.get(name) != self.blocks.get(name)
        ]
        self.removed = [name for name in self.old_blocks if name not in self.by_name]
        self.service = service_state(backend.unit, node)
        self.seen = self._observe(self.state)

    def look(self) -> None:
        """Read the rails again."""
        self.state = read_state(self.node.run)
        self.seen = self._observe(self.state)

    # What may be done with each rail

    def blocked(self, name: str) -> bool:
        return self.namings[name].verdict == device.REFUSED or name in self.claims

    @property
    def writable(self) -> list[RailPlan]:
        """Rails whose files are ours to write."""
        return [rail for name, rail in self.by_name.items() if not self.blocked(name)]

    @property
    def live(self) -> list[RailPlan]:
        """Rails that can run as planned without a reboot."""
        return [
            rail
            for rail in self.writable
            if self.namings[rail.interface].verdict in (device.NAMED, device.RENAME)
        ]

    @property
    def present(self) -> dict[str, str]:
        """The live rails that are there, and their present names."""
        named = {rail.interface: self.namings[rail.interface].interface for rail in self.live}
        return {
            name: interface
            for name, interface in named.items()
            if interface is not None and interface in self.state.links
        }

    def _wanted_blocks(self) -> dict[str, str]:
        """A rail that must not be touched keeps the block it has."""
        blocks = {}
        for name, rail in self.by_name.items():
            if not self.blocked(name):
                blocks[name] = self.backend.render(rail)
            elif name in self.old_blocks:
                blocks[name] = self.old_blocks[name]
        return blocks

    # Reading

    def _observe(self, now: State) -> dict[str, Observation]:
        root = self.node.root
        present = [rail.interface for rail in self.live if rail.interface in now.links]
        owners = self.backend.owners(present)
        on_disk = self.backend.read()
        seen = {}
        for name, rail in self.by_name.items():
            locked = self.node.container and name in now.links
            seen[name] = Observation(
                naming=self.namings[name],
                claims=self.claims.get(name, ()),
                owner=owners.get(name, ""),
                on_disk=on_disk.get(name) == self.blocks.get(name),
                link=now.links.get(name),
                routes=readback.routes_of(rail, now),
                rules=readback.rules_of(rail, now),
                arp=state.read_arp(name, root),
                arp_refused=IN_CONTAINER if locked and not state.arp_writable(name, root) else "",
            )
        return seen

    def checks_of(self, rail: RailPlan, *, check_mode: bool) -> list[Check]:
        return readback.rail_checks(
            rail,
            self.seen[rail.interface],
            self.backend.owner(rail.interface),
            self.request.arp,
            check_mode=check_mode,
        )

    def differing(self, rail: RailPlan, names: Iterable[str]) -> list[Check]:
        """Checks that a run could set right: no run brings a carrier."""
        return [
            check
            for check in self.checks_of(rail, check_mode=True)
            if check.name in names
            and check.status not in (OK, NOT_APPLICABLE)
            and check.found != readback.NO_CARRIER
        ]

    def incomplete(self, rail: RailPlan) -> bool:
        """Whether something is missing that the network service has to bring about."""
        seen = self.seen[rail.interface]
        if self.differing(rail, (readback.CONFIG, readback.LINK, readback.MTU)):
            return True
        addresses = seen.link.addresses if seen.link else ()
        missing_rule = rail.rule is not None and rail.rule not in seen.rules
        return (
            rail.cidr not in addresses or missing_rule or not set(rail.routes) <= set(seen.routes)
        )

    # Planning

    def file_plans(self) -> list[FilePlan]:
        node = self.node
        kept = [name for name in self.by_name if self.blocked(name)]
        plans = self.backend.files(self.blocks)
        for other in BACKENDS:
            if other != self.backend.name:
                plans += backend_named(other, node.run, node.root).files({})
        plans += device.plan_link_files(self.writable, kept, node.root)
        plans.append(state.plan_arp_file(self.blocks, self.request.arp, node))
        return [replace(plan, uid=node.uid, gid=node.gid) for plan in plans]

    @property
    def reasons(self) -> list[Reason]:
        """Rails that get their names at the next boot."""
        return [
            Reason(
                subject=name,
                wanted=f"{name} at {self.by_name[name].pci}",
                running=str(naming.interface),
                reason=naming.reason,
            )
            for name, naming in self.namings.items()
            if naming.verdict == device.REBOOT and name not in self.claims
        ]

    def running_diff(self) -> list[dict[str, Any]]:
        """What differs in the running kernel, rail by rail."""
        shown = []
        for rail in self.live:
            checks = self.differing(rail, readback.RUNNING)
            if checks:
                before = "".join(f"{check.name}: {check.found}\n" for check in checks)
                after = "".join(f"{check.name}: {check.wanted}\n" for check in checks)
                shown.append(diff(f"{rail.interface} (running)", before, after))
        return shown
