# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is there, what is wanted, and what lies between them: everything but the doing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from ..core import reboots
from ..core.checks import NOT_APPLICABLE, OK, Check
from ..core.commands import Runner
from ..core.dataclass import dataclass
from ..core.files import FilePlan, plan_file, with_header
from ..core.machine import IN_CONTAINER, boot_id, container
from . import arp, detect, device, readback, service
from .backend import BACKENDS, NETWORK_PREFIX, Backend, Conflict
from .claims import parse_unit
from .management import Management
from .plan import RailPlan
from .readback import Observation
from .state import State, read_state

# systemd `.link` files: at every boot, each rail's interface is named by its PCI address.


_SUFFIX = ".link"
_DIRECTORIES = ("etc", "run", "usr/lib", "lib")


def link_file(rail: RailPlan) -> str:
    """`Path=` compares udev's ID_PATH, which for a PCI function is `pci-` and its address.

    MAC addresses would not do: ConnectX NICs of one board have been seen to share an identity.
    """
    return with_header(
        f"[Match]\nPath=pci-{rail.pci}\nType=ether\n\n[Link]\nName={rail.interface}\n"
    )


def link_file_path(interface: str, root: Path = Path("/")) -> Path:
    """First in udev's order, before the distribution's 99-default.link and netplan's own."""
    return root / f"etc/systemd/network/{NETWORK_PREFIX}{interface}{_SUFFIX}"


def plan_link_files(
    rails: Sequence[RailPlan], kept: Iterable[str], root: Path = Path("/")
) -> list[FilePlan]:
    """Files for all `rails` with a PCI address; others of ours go, but for those of `kept`."""
    wanted = {link_file_path(rail.interface, root): link_file(rail) for rail in rails if rail.pci}
    keep = {link_file_path(interface, root) for interface in kept}
    there = set((root / "etc/systemd/network").glob(f"{NETWORK_PREFIX}*{_SUFFIX}"))
    return [plan_file(path, wanted.get(path)) for path in sorted((there | set(wanted)) - keep)]


def link_file_conflicts(rails: Sequence[RailPlan], root: Path = Path("/")) -> list[Conflict]:
    """Files of the operator's that give a rail's name away, or name its device otherwise."""
    names = {rail.interface for rail in rails}
    paths: Mapping[str, str] = {f"pci-{rail.pci}": rail.interface for rail in rails if rail.pci}
    conflicts = []
    for directory in _DIRECTORIES:
        for path in sorted((root / directory / "systemd/network").glob(f"*{_SUFFIX}")):
            if path.name.startswith((NETWORK_PREFIX, "10-netplan-")):
                continue
            sections = parse_unit(path.read_text(encoding="utf-8", errors="replace"))
            name = sections.get("Link", {}).get("Name", "")
            at = sections.get("Match", {}).get("Path", "").split()
            rail = (
                name if name in names else next((paths[word] for word in at if word in paths), "")
            )
            # A file that does not name, or that comes after ours, leaves the name to us.
            if (rail and name and path.name < link_file_path(rail).name) or name in names:
                where = "/" + str(path.relative_to(root))
                conflicts.append(
                    Conflict(rail, where, f"it names {' '.join(at) or 'a device'} {name}")
                )
    return conflicts


LAYER = "rails"


@dataclass(frozen=True)
class Request:
    """What is asked of this host."""

    rails: Sequence[RailPlan]
    arp: Mapping[str, int] = field(default_factory=lambda: dict(arp.DEFAULTS))
    check_path: bool = True
    wait_s: float = 30.0
    management: Management = field(default_factory=Management)


@dataclass(frozen=True)
class Host:
    """The machine, or what stands in for it."""

    run: Runner
    root: Path = Path("/")
    uid: int = 0
    gid: int = 0
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic


class Survey:
    """One host, its rails as planned and as they were last looked at."""

    def __init__(self, request: Request, backend: Backend, host: Host) -> None:
        self.request = request
        self.backend = backend
        self.host = host
        self.by_name = {rail.interface: rail for rail in request.rails}
        self.state = read_state(host.run)
        self.old_blocks = backend.read()
        by_pci = device.interfaces_by_pci(host.root)
        self.reached_by = request.management.interfaces(self.state, self.old_blocks)
        links, in_use = self.state.links, self.state.in_use
        self.namings = {
            rail.interface: device.naming(rail, links, by_pci, in_use, self.reached_by)
            for rail in request.rails
        }
        self.claims = self._find_claims()
        self.blocks = self._wanted_blocks()
        self.changed_blocks = [
            name
            for name in {**self.old_blocks, **self.blocks}
            if self.old_blocks.get(name) != self.blocks.get(name)
        ]
        self.removed = [name for name in self.old_blocks if name not in self.by_name]
        self.service = service.state(backend.unit, host.run)
        self.seen = self._observe(self.state)

    def look(self) -> None:
        """Read the rails again."""
        self.state = read_state(self.host.run)
        self.seen = self._observe(self.state)

    # What may be done with each rail

    def _find_claims(self) -> dict[str, tuple[str, ...]]:
        rails = [
            rail
            for rail in self.request.rails
            if self.namings[rail.interface].verdict != device.REFUSED
        ]
        conflicts: list[Conflict] = self.backend.conflicts(rails, self.state.links)
        conflicts += link_file_conflicts(rails, self.host.root)
        claims: dict[str, tuple[str, ...]] = {}
        for conflict in conflicts:
            claims[conflict.interface] = (*claims.get(conflict.interface, ()), str(conflict))
        return claims

    def blocked(self, name: str) -> bool:
        return self.namings[name].verdict == device.REFUSED or name in self.claims

    @property
    def writable(self) -> list[RailPlan]:
        """Rails whose files are ours to write."""
        return [rail for rail in self.request.rails if not self.blocked(rail.interface)]

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
        """The live rails that are there, and what each is called now."""
        named = {rail.interface: self.namings[rail.interface].interface for rail in self.live}
        return {
            name: interface
            for name, interface in named.items()
            if interface is not None and interface in self.state.links
        }

    def _wanted_blocks(self) -> dict[str, str]:
        """A rail that must not be touched keeps the block it has."""
        blocks = {}
        for rail in self.request.rails:
            name = rail.interface
            if not self.blocked(name):
                blocks[name] = self.backend.render(rail)
            elif name in self.old_blocks:
                blocks[name] = self.old_blocks[name]
        return blocks

    # Reading

    def _observe(self, state: State) -> dict[str, Observation]:
        root = self.host.root
        present = [rail.interface for rail in self.live if rail.interface in state.links]
        owners = self.backend.owners(present)
        on_disk = self.backend.read()
        seen = {}
        for rail in self.request.rails:
            name = rail.interface
            refused = ""
            if container(root) and name in state.links and not arp.writable(name, root):
                refused = IN_CONTAINER
            seen[name] = Observation(
                naming=self.namings[name],
                claims=self.claims.get(name, ()),
                owner=owners.get(name, ""),
                on_disk=on_disk.get(name) == self.blocks.get(name),
                link=state.links.get(name),
                routes=readback.routes_of(rail, state),
                rules=readback.rules_of(rail, state),
                arp=arp.read_settings(name, root),
                arp_refused=refused,
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
        wanted = set(names)
        return [
            check
            for check in self.checks_of(rail, check_mode=True)
            if check.name in wanted
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
        root = self.host.root
        kept = [name for name in self.by_name if self.blocked(name)]
        plans = self.backend.files(self.blocks)
        for other in BACKENDS:
            if other != self.backend.name:
                plans += detect.backend_named(other, self.host.run, root).files({})
        plans += plan_link_files(self.writable, kept, root)
        plans.append(arp.plan_settings_file(self.blocks, self.request.arp, root))
        plans.append(self._reboot_plan())
        return [replace(plan, uid=self.host.uid, gid=self.host.gid) for plan in plans]

    def _reboot_plan(self) -> FilePlan:
        reasons = [
            reboots.Reason(
                subject=name,
                wanted=f"{name} at {self.by_name[name].pci}",
                running=str(naming.interface),
                reason=naming.reason,
            )
            for name, naming in self.namings.items()
            if naming.verdict == device.REBOOT and name not in self.claims
        ]
        return reboots.plan(LAYER, reasons, boot_id(self.host.root), root=self.host.root)

    def running_diff(self) -> list[dict[str, Any]]:
        """What differs in the running kernel, rail by rail."""
        shown = []
        for rail in self.live:
            names = (readback.NAME, *readback.SERVICE_SETS[1:], readback.ARP)
            checks = self.differing(rail, names)
            if checks:
                header = f"{rail.interface} (running)"
                shown.append(
                    {
                        "before_header": header,
                        "after_header": header,
                        "before": "".join(f"{check.name}: {check.found}\n" for check in checks),
                        "after": "".join(f"{check.name}: {check.wanted}\n" for check in checks),
                    }
                )
        return shown
