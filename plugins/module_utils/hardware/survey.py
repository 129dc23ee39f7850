# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One look at a machine's RDMA devices, network interfaces and GPUs."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Optional

from . import tree
from .inventory import (
    BLUEFIELD,
    DATA_DIRECT,
    INFINIBAND,
    MELLANOX,
    NVSWITCH_BRIDGE,
    OTHER,
    RAIL,
    SOFTWARE,
    VIRTUAL,
    Function,
    Gid,
    Machine,
    PcieLink,
    RdmaDevice,
    common,
    parse_speed,
    parse_width,
    way,
)

SYS = Path("/sys")
ACTIVE = "ACTIVE"

DATA_DIRECT_IDS = frozenset({"2100"})
BLUEFIELD_IDS = frozenset({"a2d2", "a2d6", "a2dc", "a2df"})
"""Network functions of BlueField, BlueField-2, -3 and -4."""

SWITCH_MANAGEMENT = b"SW_MNG"
"""In the vital product data of bridges to NVSwitches, whose device ID is a NIC's. Root reads it."""

UNUSED_IN_A_ROW = 64
"""As many unused entries end the GID table: new addresses take the first that is free, and reading
all of a thousand takes many seconds on an emulated CPU."""

# A virtual function's, a sub-function's or the host's interface of the switch inside a NIC.
_REPRESENTOR = re.compile(r"(c\d+)?pf\d+(vf\d+|sf\d+|hpf)?")
_SUBFUNCTION = re.compile(r"\w+\.sf\.\d+")
_RATE = re.compile(r"(\d+(?:\.\d+)?) Gb/sec")


class SurveyError(Exception):
    """There is nothing to read; the text has the path."""


@dataclass(frozen=True)
class Interface:
    """An entry of /sys/class/net that has a device."""

    name: str
    path: Path
    """Where its device is, links resolved."""
    port: int
    """Port of the device that it is, from 1."""
    speed_gbps: Optional[float]
    up: bool
    representor: bool

    @property
    def pci(self) -> Optional[str]:
        """The last PCI function on the way: a virtio device sits one step below its own."""
        return next(reversed(way(self.path)), None)

    @property
    def subfunction(self) -> bool:
        """Whether the path leads through a sub-function of a NIC (`mlx5_core.sf.4`)."""
        return any(_SUBFUNCTION.fullmatch(part) for part in self.path.parts)


def interfaces(root: Path) -> list[Interface]:
    """The network interfaces that have a device, physical ones and virtio alike."""
    entries = [root / "class/net" / name for name in tree.names(root / "class/net")]
    return [
        Interface(
            name=entry.name,
            path=(entry / "device").resolve(),
            port=(tree.number(entry / "dev_port") or 0) + 1,
            speed_gbps=interface_speed(entry),
            up=bool((tree.number(entry / "flags") or 0) & 1),
            representor=bool(_REPRESENTOR.fullmatch(tree.text(entry / "phys_port_name"))),
        )
        for entry in entries
        if (entry / "device").exists()
    ]


def pci_address(interface: Path) -> Optional[str]:
    """The PCI function that a `/sys/class/net` entry belongs to: the last one on its way.

    A virtio device sits one step below its PCI function, so the device's own name is not enough.
    """
    device = interface / "device"
    steps = way(device.resolve()) if device.exists() else ()
    return steps[-1] if steps else None


def interface_speed(entry: Path) -> Optional[float]:
    """Gb/s of an interface, or None: it is down, or virtual (-1)."""
    megabits = tree.number(entry / "speed")
    return megabits / 1000 if megabits and megabits > 0 else None


@dataclass(frozen=True)
class Port:
    """A port of an entry of /sys/class/infiniband; `found` lacks what its PCI function has."""

    path: Optional[Path]
    """Where the device is, links resolved; None when it is made of software alone."""
    found: RdmaDevice


def rdma_ports(root: Path) -> Iterator[Port]:
    """The ports of all RDMA devices, by device."""
    directory = root / "class/infiniband"
    for name in tree.names(directory):
        device = directory / name
        path = (device / "device").resolve() if (device / "device").exists() else None
        for number in tree.names(device / "ports"):
            port = device / "ports" / number
            state = tree.text(port / "state").partition(": ")[2]
            rate = _RATE.match(tree.text(port / "rate"))
            gids = tuple(_gids(port))
            found = RdmaDevice(
                kind=SOFTWARE,
                name=name,
                port=int(number),
                # A device made of software names its interface; a VLAN's GID comes after its own.
                netdev=tree.text(device / "parent") or next((gid.netdev for gid in gids), ""),
                port_state=state,
                link_layer=tree.text(port / "link_layer"),
                # Without a link, the rate is nominal.
                speed_gbps=float(rate.group(1)) if rate and state == ACTIVE else None,
                gids=gids,
                firmware=tree.text(device / "fw_ver"),
                board_id=tree.text(device / "board_id"),
            )
            yield Port(path, found)


def _gids(port: Path) -> Iterator[Gid]:
    # The types answer with an error for the unused entries, of which there are up to thousands.
    types = port / "gid_attrs/types"
    unused = 0
    for index in sorted(int(name) for name in tree.names(types)):
        kind = tree.text(types / str(index))
        address = parse_gid(tree.text(port / "gids" / str(index))) if kind else None
        unused = 0 if kind else unused + 1
        if address:
            netdev = tree.text(port / "gid_attrs/ndevs" / str(index))
            yield Gid(index, address, kind, netdev)
        elif unused >= UNUSED_IN_A_ROW:
            return


def parse_gid(text: str) -> Optional[str]:
    """The address in its short form, IPv4 as `::ffff:10.100.3.11`; None of an unused entry."""
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return None
    if int(address) == 0:
        return None
    mapped = address.ipv4_mapped
    return f"::ffff:{mapped}" if mapped else str(address)


def survey(root: Path = SYS) -> Machine:
    """Read the machine below `root`: `/sys`, or a recorded tree. Runs no program."""
    if not (root / "class").is_dir():
        raise SurveyError(
            f"{root} is not a sysfs: {root / 'class'} not found. Give the directory that holds "
            "class, bus and devices; tools/record_hardware.py builds one from a recording."
        )
    devices = root / "bus/pci/devices"
    paths = {name: (devices / name).resolve() for name in tree.names(devices)}
    return _Survey(root, paths).machine()


def read_function(path: Path) -> Function:
    """One PCI function, from its directory below /sys/devices."""
    numa = tree.number(path / "numa_node")
    return Function(
        pci=path.name,
        vendor=tree.text(path / "vendor").removeprefix("0x"),
        device_id=tree.text(path / "device").removeprefix("0x"),
        class_code=tree.text(path / "class").removeprefix("0x"),
        driver=tree.target(path / "driver"),
        numa=None if numa is None or numa < 0 else numa,
        bridges=way(path.parent),
        link=PcieLink(
            parse_speed(tree.text(path / "current_link_speed")),
            parse_width(tree.text(path / "current_link_width")),
            parse_speed(tree.text(path / "max_link_speed")),
            parse_width(tree.text(path / "max_link_width")),
        ),
        physfn=tree.target(path / "physfn") or None,
    )


def gpus_beside(function: Function, functions: Iterable[Function]) -> tuple[str, ...]:
    """The GPUs that share this function's nearest switch, if the function is nearest to them too.

    Where a storage NIC hangs off the same outer switch as a GPU, the rail inside the GPU's own
    switch is nearer to the GPU, and the storage NIC belongs to none.
    """
    everything = list(functions)
    gpus = [each for each in everything if each.gpu]
    nics = [each for each in everything if each.network and each.physfn is None]
    nearest = max((common(function.bridges, gpu.bridges) for gpu in gpus), default=0)
    if nearest == 0:
        return ()
    return tuple(
        gpu.pci
        for gpu in sorted(gpus, key=lambda each: each.pci)
        if common(function.bridges, gpu.bridges) == nearest
        and nearest == max(common(nic.bridges, gpu.bridges) for nic in nics)
    )


def _alike(ports: Sequence[RdmaDevice]) -> list[RdmaDevice]:
    """The same, with only the most frequent model of NIC as rails.

    Where a rail's NIC is missing, a storage NIC further out is the nearest to its GPU that is left,
    and would be taken for a rail.
    """
    models = Counter((port.vendor, port.device_id) for port in ports if port.kind == RAIL)
    most = max(models.values(), default=0)
    return [
        replace(port, kind=OTHER)
        if port.kind == RAIL and models[port.vendor, port.device_id] < most
        else port
        for port in ports
    ]


class _Survey:
    def __init__(self, root: Path, paths: Mapping[str, Path]) -> None:
        self.root = root
        self.paths = paths
        self.functions = {pci: read_function(path) for pci, path in sorted(paths.items())}
        self.interfaces = interfaces(root)
        self.rdma = list(rdma_ports(root))

    def machine(self) -> Machine:
        found = _alike(
            [
                port
                for function in self.functions.values()
                if function.network
                or (function.vendor == MELLANOX and function.device_id in DATA_DIRECT_IDS)
                for port in self._of_function(function)
            ]
        )
        found += [self._software(each.found) for each in self.rdma if each.path is None]
        slots = self.root / "bus/pci/slots"
        addresses = {name: tree.text(slots / name / "address") for name in tree.names(slots)}
        return Machine(
            ports=tuple(found),
            functions=self.functions,
            slots={address: name for name, address in addresses.items() if address},
            modules=frozenset(tree.names(self.root / "module")),
        )

    def _of_function(self, function: Function) -> list[RdmaDevice]:
        """Its RDMA ports with the interfaces beside them; without RDMA, its interfaces."""
        path = self.paths[function.pci]
        gpus = gpus_beside(function, self.functions.values()) if not function.physfn else ()
        fields: dict[str, Any] = {
            "kind": self._kind(function, path, gpus),
            "pci": function.pci,
            "numa": function.numa,
            "vendor": function.vendor,
            "device_id": function.device_id,
            "driver": function.driver,
            "link": function.link,
            "gpus": gpus,
            "sriov_totalvfs": tree.number(path / "sriov_totalvfs"),
            "sriov_numvfs": tree.number(path / "sriov_numvfs") or 0,
            "physfn": function.physfn,
        }
        faces = [each for each in self.interfaces if each.pci == function.pci]
        faces = [each for each in faces if not each.representor and not each.subfunction]
        own = [each.found for each in self.rdma if each.path == path]
        if own:
            return [_seen(replace(port, **fields, netdev=""), _face(port, faces)) for port in own]
        bare = [_seen(RdmaDevice(port=each.port, **fields), each) for each in faces]
        return bare or [RdmaDevice(**fields)]

    def _kind(self, function: Function, path: Path, gpus: Sequence[str]) -> str:
        """By what the device reports and where it sits; never by a name."""
        if function.physfn:
            return VIRTUAL
        if function.vendor == MELLANOX:
            if function.device_id in DATA_DIRECT_IDS:
                return DATA_DIRECT
            if function.device_id in BLUEFIELD_IDS:
                return BLUEFIELD
            with suppress(OSError):
                if SWITCH_MANAGEMENT in (path / "vpd").read_bytes():
                    return NVSWITCH_BRIDGE
        layers = {each.found.link_layer for each in self.rdma if each.path == path}
        ethernet = function.class_code.startswith("0200") and INFINIBAND not in layers
        return RAIL if ethernet and gpus else OTHER

    def _software(self, port: RdmaDevice) -> RdmaDevice:
        face = next((each for each in self.interfaces if each.name == port.netdev), None)
        function = self.functions.get(face.pci or "") if face else None
        entry = self.root / "class/net" / port.netdev
        # The rate of a device made of software is nominal; the interface may know a real one.
        return replace(
            port,
            up=bool(face and face.up),
            numa=function.numa if function else None,
            speed_gbps=interface_speed(entry) if port.netdev else None,
        )


def _face(port: RdmaDevice, faces: Sequence[Interface]) -> Optional[Interface]:
    """The interface of a function that is the same port, by what sysfs links, not by names."""
    if len(faces) > 1:
        faces = [each for each in faces if each.port == port.port] or faces
    named = [each for each in faces if each.name == port.netdev]
    return next(iter(named or faces), None)


def _seen(port: RdmaDevice, face: Optional[Interface]) -> RdmaDevice:
    """A port with its network interface."""
    if face is None:
        return port
    speed = port.speed_gbps if face.speed_gbps is None else face.speed_gbps
    return replace(port, netdev=face.name, up=face.up, speed_gbps=speed)
