# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a machine is made of: the QEMU command that starts it, and the files that describe it.

Every card has a PCI slot of its own, chosen here or in the inventory, so that the rails of a node
have the addresses its cluster model gives, and are named by them as on hardware.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .inventory import Node, Rail, VirtualError, leaf_port

FW_CFG = "opt/baremetal.mpi_roce"
DEVICE = re.compile(r"0000:00:([01][0-9a-f])\.0")
MANAGEMENT_SLOT, DISK_SLOT, RANDOM_SLOT, SERIAL_SLOT = 2, 3, 4, 5
BRIDGE_SLOT = 6
"""The first PCIe port, and so the firmware counts its bus as 01; the next ports follow it."""
RAIL_SLOT = 0x10
"""The first of the rails whose place the model leaves open."""
LAST_SLOT = 0x1E
"""0x1f holds the chipset's own devices."""
VIRTIO, IGB = "virtio-net-pci", "igb"


@dataclass(frozen=True)
class Card:
    """A network card: where it is, and the tap its cable ends on."""

    interface: str
    tap: str
    mac: str
    model: str
    bus: int
    slot: int

    @property
    def pci(self) -> str:
        return f"0000:{self.bus:02x}:{self.slot:02x}.0"


@dataclass(frozen=True)
class Machine:
    cluster: str
    name: str
    address: str
    image: str
    """The disk image by path; its name holds the digest of its inputs."""
    cards: tuple[Card, ...]
    """The management card first, then the rails in their order."""
    memory_mib: int
    processors: int
    files: Mapping[str, str]
    """Name, login key, management network and rails: what QEMU gives the machine, by file name."""

    @property
    def specification(self) -> str:
        """The digest of everything it was made with; another one makes a new machine."""
        made_of = [self.image, dict(self.files), *_devices(self)]
        return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:16]


DISK, PID, AGENT, MONITOR, CONSOLE = "disk.qcow2", "pid", "agent", "monitor", "console.log"
SPECIFICATION = "specification"
IMAGE = "image"
"""Has the path of the image that the disk stands on."""
GIVEN = "given-"
"""Files of a machine's folder. Taking it down removes the folder."""


def plan_machine(
    cluster: str,
    node: Node,
    *,
    image: str,
    login_key: str,
    memory_mib: int = 1024,
    processors: int = 1,
    sriov_rails: Sequence[str] = (),
) -> Machine:
    """The machine of one node. Impossible hardware is refused with the remedy.

    `sriov_rails`: those whose card is an igb, which has SR-IOV; the others' is virtio.
    """
    cards = _cards(cluster, node, sriov_rails)
    management, *rails = cards
    match = f"[Match]\nMACAddress={management.mac}\n\n"
    files = {
        "name": f"{node.name}\n",
        "login_key": f"{login_key}\n",
        "management.link": f"{match}[Link]\nName={node.interface}\n",
        "management.network": (
            f"{match}[Network]\nAddress={node.address}/{node.prefix}\nLinkLocalAddressing=no\n"
        ),
        "rails": "".join(f"{card.pci} rxe{number}\n" for number, card in enumerate(rails)),
    }
    return Machine(
        cluster, node.name, node.address, image, tuple(cards), memory_mib, processors, files
    )


def _cards(cluster: str, node: Node, sriov_rails: Sequence[str]) -> list[Card]:
    def card(interface: str, model: str, bus: int, slot: int) -> Card:
        tap = leaf_port(node.name, interface)
        return Card(interface, tap, mac(cluster, node.name, interface), model, bus, slot)

    cards = [card(node.interface, VIRTIO, 0, MANAGEMENT_SLOT)]
    free = iter(range(RAIL_SLOT, LAST_SLOT + 1))
    buses = iter(range(1, len(sriov_rails) + 1))
    for rail in node.rails:
        if rail.interface in sriov_rails:
            cards.append(card(rail.interface, IGB, next(buses), 0))
        else:
            slot = next(free, LAST_SLOT)
            cards.append(card(rail.interface, VIRTIO, 0, _slot(node.name, rail, slot)))
    return cards


def _slot(name: str, rail: Rail, free: int) -> int:
    """The slot the model gives on bus 00, where a machine has room; else a free one."""
    if not rail.pci:
        return free
    found = DEVICE.fullmatch(rail.pci)
    if found and RAIL_SLOT <= int(found[1], 16) <= LAST_SLOT:
        return int(found[1], 16)
    raise VirtualError(
        f"{name}: {rail.interface} is at PCI address {rail.pci} in cluster.yml; a virtual machine "
        f"has its rails at 0000:00:{RAIL_SLOT:02x}.0 to 0000:00:{LAST_SLOT:02x}.0"
    )


def mac(cluster: str, node: str, interface: str) -> str:
    """The same at every boot, and another one for every card: locally administered."""
    digest = hashlib.sha256(f"{cluster}\0{node}\0{interface}".encode()).digest()
    return ":".join(f"{byte:02x}" for byte in (0x02, *digest[:5]))


def _devices(machine: Machine) -> list[str]:
    """The hardware as QEMU takes it, without anything that names this host."""
    # Nothing uses what else the chipset brings, and a guest would look at all of it.
    words = [
        "-machine",
        "q35,hpet=off,sata=off,smbus=off,i8042=off,usb=off,vmport=off",
        "-smp",
        str(machine.processors),
    ]
    words += ["-m", str(machine.memory_mib)]
    words += ["-device", f"virtio-blk-pci,drive=disk,addr={DISK_SLOT:#x}"]
    words += ["-device", f"virtio-rng-pci,addr={RANDOM_SLOT:#x}"]
    words += ["-device", f"virtio-serial-pci,addr={SERIAL_SLOT:#x}"]
    words += ["-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0"]
    for number, card in enumerate(machine.cards):
        place = f"addr={card.slot:#x}"
        if card.bus:
            slot = BRIDGE_SLOT + card.bus - 1
            port = f"pcie-root-port,id=port{card.bus},chassis={card.bus},addr={slot:#x}"
            words += ["-device", port]
            place = f"bus=port{card.bus}"
        words += ["-netdev", f"tap,id=net{number},ifname={card.tap},script=no,downscript=no"]
        words += ["-device", f"{card.model},netdev=net{number},{place},mac={card.mac},romfile="]
    return words


def qemu_command(
    machine: Machine, folder: Path, *, emulator: Sequence[str], accelerator: Sequence[str]
) -> list[str]:
    """The command that starts a machine on its disk, in the background."""
    words = [
        *emulator, "-name", f"{machine.cluster}.{machine.name}", "-nodefaults", "-no-user-config",
        "-display", "none", "-daemonize", "-pidfile", str(folder / PID), *accelerator,
        # The host's cache is enough: what a guest flushed outlives the end of QEMU, not the host's.
        "-drive", f"if=none,id=disk,file={folder / DISK},format=qcow2,cache=unsafe,discard=unmap",
        "-serial", f"file:{folder / CONSOLE}",
        "-chardev", f"socket,id=agent,path={folder / AGENT},server=on,wait=off",
        "-monitor", f"unix:{folder / MONITOR},server=on,wait=off",
    ]  # fmt: skip
    for name in machine.files:
        words += ["-fw_cfg", f"name={FW_CFG}/{name},file={folder / GIVEN}{name}"]
    return [*words, *_devices(machine)]
