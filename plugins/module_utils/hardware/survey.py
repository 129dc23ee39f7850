# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read a machine's RDMA devices, network interfaces and GPUs from sysfs."""

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
    pci_path,
)

SYS = Path("/sys")
ACTIVE = "ACTIVE"

DATA_DIRECT_IDS = frozenset({"2100"})
BLUEFIELD_IDS = frozenset({"a2d2", "a2d6", "a2dc", "a2df"})
"""Network functions of BlueField, BlueField-2, -3 and -4."""

SWITCH_MANAGEMENT = b"SW_MNG"
"""In the vital product data, readable by root, of bridges to NVSwitches that have a NIC's ID."""

UNUSED_IN_A_ROW = 64
"""Unused GID entries after which reading stops: a new address takes the first free entry, and
reading a thousand takes many seconds on an emulated CPU."""

# Interfaces of the switch inside a NIC for a virtual function, a sub-function or the host.
_REPRESENTOR = re.compile(r"(c\d+)?pf\d+(vf\d+|sf\d+|hpf)?")
_SUBFUNCTION = re.compile(r"\w+\.sf\.\d+")
_RATE = re.compile(r"(\d+(?:\.\d+)?) Gb/sec")


class SurveyError(Exception):
    """There is no sysfs; the text names the path."""


@dataclass(frozen=True)
class Interface:
    name: str
    pci: Optional[str]
    port: int
    """Number of its port on the device, starting at 1."""
    speed_gbps: Optional[float]
    up: bool
    virtual: bool
    """Whether it is a representor, or belongs to a sub-function (`mlx5_core.sf.4`)."""


def interfaces(root: Path) -> list[Interface]:
    entries = [root / "class/net" / name for name in tree.names(root / "class/net")]
    return [
        Interface(
            name=entry.name,
            pci=pci_address(entry),
            port=(tree.number(entry / "dev_port") or 0) + 1,
            speed_gbps=interface_speed(entry),
            up=bool((tree.number(entry / "flags") or 0) & 1),
            virtual=bool(
                _REPRESENTOR.fullmatch(tree.text(entry / "phys_port_name"))
                or any(map(_SUBFUNCTION.fullmatch, (entry / "device").resolve().parts))
            ),
        )
        for entry in entries
        if (entry / "device").exists()
    ]


def pci_address(interface: Path) -> Optional[str]:
    """Return the PCI function of a `/sys/class/net` entry: the last one on its path.

    A virtio device is one level below its PCI function, so its name is not the address.
    """
    steps = pci_path((interface / "device").resolve())
    return steps[-1] if steps else None


def interface_speed(entry: Path) -> Optional[float]:
    """Return the rate of an interface in Gb/s; None if it is down or virtual (-1)."""
    megabits = tree.number(entry / "speed")
    return megabits / 1000 if megabits and megabits > 0 else None


def rdma_ports(root: Path) -> Iterator[tuple[Optional[Path], RdmaDevice]]:
    """Yield the ports of all RDMA devices, without the properties of their PCI functions.

    Each with the resolved path of its device; None if it exists only in software.
    """
    directory = root / "class/infiniband"
    for name in tree.names(directory):
        device = directory / name
        path = (device / "device").resolve() if (device / "device").exists() else None
        for number in tree.names(device / "ports"):
            port = device / "ports" / number
            state = tree.text(port / "state").partition(": ")[2]
            rate = _RATE.match(tree.text(port / "rate"))
            gids = tuple(_gids(port))
            yield (
                path,
                RdmaDevice(
                    kind=SOFTWARE,
                    name=name,
                    port=int(number),
                    # A software device names its interface; the GID of a VLAN comes after the
                    # interface's own.
                    netdev=tree.text(device / "parent") or next((gid.netdev for gid in gids), ""),
                    port_state=state,
                    link_layer=tree.text(port / "link_layer"),
                    # Without a link the rate is nominal.
                    speed_gbps=float(rate.group(1)) if rate and state == ACTIVE else None,
                    gids=gids,
                    firmware=tree.text(device / "fw_ver"),
                    board_id=tree.text(device / "board_id"),
                ),
            )


def _gids(port: Path) -> Iterator[Gid]:
    # Reading the type of an unused entry, of which there may be thousands, returns an error.
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
    """Return the address in short form, IPv4 as `::ffff:10.100.3.11`; None for an unused entry."""
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped
    return (f"::ffff:{mapped}" if mapped else str(address)) if int(address) else None


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
    numa = tree.number(path / "numa_node")
    return Function(
        pci=path.name,
        vendor=tree.text(path / "vendor").removeprefix("0x"),
        device_id=tree.text(path / "device").removeprefix("0x"),
        class_code=tree.text(path / "class").removeprefix("0x"),
        driver=tree.target(path / "driver"),
        numa=None if numa is None or numa < 0 else numa,
        bridges=pci_path(path.parent),
        link=PcieLink(
            parse_speed(tree.text(path / "current_link_speed")),
            parse_width(tree.text(path / "current_link_width")),
            parse_speed(tree.text(path / "max_link_speed")),
            parse_width(tree.text(path / "max_link_width")),
        ),
        physfn=tree.target(path / "physfn") or None,
    )


def gpus_near(function: Function, functions: Iterable[Function]) -> tuple[str, ...]:
    """Return the GPUs below this function's nearest switch, if no other NIC is nearer to them.

    A storage NIC below the same outer switch as a GPU belongs to no GPU if a rail below the GPU's
    inner switch is nearer.
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
    """Return the ports with only the most frequent model of NIC as rails.

    If the NIC of a rail is missing, a storage NIC becomes the nearest to its GPU and would be taken
    for a rail.
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
        found += [self._software(port) for path, port in self.rdma if path is None]
        slots = self.root / "bus/pci/slots"
        addresses = {name: tree.text(slots / name / "address") for name in tree.names(slots)}
        return Machine(
            ports=tuple(found),
            functions=self.functions,
            slots={address: name for name, address in addresses.items() if address},
            modules=frozenset(tree.names(self.root / "module")),
        )

    def _of_function(self, function: Function) -> list[RdmaDevice]:
        """Return the function's RDMA ports with their interfaces, or only its interfaces."""
        path = self.paths[function.pci]
        gpus = gpus_near(function, self.functions.values()) if not function.physfn else ()
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
        candidates = [
            each for each in self.interfaces if each.pci == function.pci and not each.virtual
        ]
        own = [port for where, port in self.rdma if where == path]
        if own:
            return [
                _with_interface(replace(port, **fields, netdev=""), _interface_of(port, candidates))
                for port in own
            ]
        bare = [_with_interface(RdmaDevice(port=each.port, **fields), each) for each in candidates]
        return bare or [RdmaDevice(**fields)]

    def _kind(self, function: Function, path: Path, gpus: Sequence[str]) -> str:
        """Return the kind, from the device's properties and position, never from a name."""
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
        layers = {port.link_layer for where, port in self.rdma if where == path}
        ethernet = function.class_code.startswith("0200") and INFINIBAND not in layers
        return RAIL if ethernet and gpus else OTHER

    def _software(self, port: RdmaDevice) -> RdmaDevice:
        interface = next((each for each in self.interfaces if each.name == port.netdev), None)
        function = self.functions.get(interface.pci or "") if interface else None
        entry = self.root / "class/net" / port.netdev
        # The rate of a software device is nominal; its interface may report a real one.
        return replace(
            port,
            up=bool(interface and interface.up),
            numa=function.numa if function else None,
            speed_gbps=interface_speed(entry) if port.netdev else None,
        )


def _interface_of(port: RdmaDevice, candidates: Sequence[Interface]) -> Optional[Interface]:
    """Return the interface of the same port, following links in sysfs."""
    if len(candidates) > 1:
        candidates = [each for each in candidates if each.port == port.port] or candidates
    named = [candidate for candidate in candidates if candidate.name == port.netdev]
    return next(iter(named or candidates), None)


def _with_interface(port: RdmaDevice, interface: Optional[Interface]) -> RdmaDevice:
    if interface is None:
        return port
    speed = port.speed_gbps if interface.speed_gbps is None else interface.speed_gbps
    return replace(port, netdev=interface.name, up=interface.up, speed_gbps=speed)
