# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Plan a machine: the QEMU command that starts it, and the files that describe it.

Every card has a fixed PCI slot, chosen here or in the inventory: the rails of a node have the PCI
addresses of the cluster model, and are named by them as on hardware.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .inventory import RailCable, VirtualError, VirtualNode, leaf_port

FW_CFG = "opt/baremetal.mpi_roce"
DEVICE = re.compile(r"0000:00:([01][0-9a-f])\.0")
MANAGEMENT_SLOT, DISK_SLOT, RANDOM_SLOT, SERIAL_SLOT = 2, 3, 4, 5
BRIDGE_SLOT = 6
"""Slot of the first PCIe port, whose bus the firmware numbers 01; the next ports follow it."""
RAIL_SLOT = 0x10
"""First slot for rails without a PCI address in the model."""
LAST_SLOT = 0x1E
"""Slot 0x1f holds the chipset's devices."""
VIRTIO, IGB = "virtio-net-pci", "igb"


@dataclass(frozen=True)
class Card:
    """A network card: its slot, and the tap at the end of its cable."""

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
    """Path of the disk image. Its name contains the digest of its inputs."""
    cards: tuple[Card, ...]
    """The management card first, then the rails in order."""
    memory_mib: int
    processors: int
    files: Mapping[str, str]
    """Contents of the files that QEMU passes to the machine, by name."""

    @property
    def specification(self) -> str:
        """Digest of everything the machine is created from; a change recreates it."""
        made_of = [self.image, dict(self.files), *_devices(self)]
        return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:16]


DISK, PID, AGENT, MONITOR, CONSOLE = "disk.qcow2", "pid", "agent", "monitor", "console.log"
SPECIFICATION = "specification"
IMAGE = "image"
"""File with the path of the image that the disk is based on."""
GIVEN = "given-"
"""Files of a machine's folder. Taking the machine down removes the folder."""


def plan_machine(
    cluster: str,
    node: VirtualNode,
    *,
    image: str,
    login_key: str,
    memory_mib: int = 1024,
    processors: int = 1,
    sriov_rails: Sequence[str] = (),
) -> Machine:
    """Plan the machine of one node. Raises VirtualError, with a remedy, for impossible hardware.

    `sriov_rails`: rails whose card is an igb, which supports SR-IOV; the others are virtio cards.
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


def _cards(cluster: str, node: VirtualNode, sriov_rails: Sequence[str]) -> list[Card]:
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


def _slot(name: str, rail: RailCable, free: int) -> int:
    """Return the model's slot on bus 00 if a machine can have it, otherwise a free one."""
    if not rail.pci:
        return free
    device = DEVICE.fullmatch(rail.pci)
    if device and RAIL_SLOT <= int(device[1], 16) <= LAST_SLOT:
        return int(device[1], 16)
    raise VirtualError(
        f"{name}: {rail.interface} is at PCI address {rail.pci} in cluster.yml; rails of a virtual "
        f"machine are at 0000:00:{RAIL_SLOT:02x}.0 to 0000:00:{LAST_SLOT:02x}.0"
    )


def mac(cluster: str, node: str, interface: str) -> str:
    """Return a locally administered address, stable across boots and unique per card."""
    digest = hashlib.sha256(f"{cluster}\0{node}\0{interface}".encode()).digest()
    return ":".join(f"{byte:02x}" for byte in (0x02, *digest[:5]))


def _devices(machine: Machine) -> list[str]:
    """Return the hardware as QEMU arguments, without anything that names this host."""
    # The other devices of the chipset are not used, and a guest would probe all of them.
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
        location = f"addr={card.slot:#x}"
        if card.bus:
            slot = BRIDGE_SLOT + card.bus - 1
            port = f"pcie-root-port,id=port{card.bus},chassis={card.bus},addr={slot:#x}"
            words += ["-device", port]
            location = f"bus=port{card.bus}"
        words += ["-netdev", f"tap,id=net{number},ifname={card.tap},script=no,downscript=no"]
        words += ["-device", f"{card.model},netdev=net{number},{location},mac={card.mac},romfile="]
    return words


def qemu_command(
    machine: Machine, folder: Path, *, emulator: Sequence[str], accelerator: Sequence[str]
) -> list[str]:
    """Return the command that starts a machine from its disk, in the background."""
    words = [
        *emulator, "-name", f"{machine.cluster}.{machine.name}", "-nodefaults", "-no-user-config",
        "-display", "none", "-daemonize", "-pidfile", str(folder / PID), *accelerator,
        # The host's page cache suffices: data flushed by the guest survives QEMU, not a host crash.
        "-drive", f"if=none,id=disk,file={folder / DISK},format=qcow2,cache=unsafe,discard=unmap",
        "-serial", f"file:{folder / CONSOLE}",
        "-chardev", f"socket,id=agent,path={folder / AGENT},server=on,wait=off",
        "-monitor", f"unix:{folder / MONITOR},server=on,wait=off",
    ]  # fmt: skip
    for name in machine.files:
        words += ["-fw_cfg", f"name={FW_CFG}/{name},file={folder / GIVEN}{name}"]
    return [*words, *_devices(machine)]
