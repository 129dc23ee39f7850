# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One look at a machine's RDMA devices, network interfaces and GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Optional

from . import ports, tree
from .inventory import (
    BLUEFIELD,
    DATA_DIRECT,
    MELLANOX,
    NVSWITCH_BRIDGE,
    OTHER,
    RAIL,
    VIRTUAL,
    Function,
    Machine,
    PcieLink,
    RdmaDevice,
    VirtualFunction,
    common,
    parse_speed,
    parse_width,
    way,
)
from .ports import INFINIBAND, Interface, Port

SYS = Path("/sys")

DATA_DIRECT_IDS = frozenset({"2100"})
BLUEFIELD_IDS = frozenset({"a2d2", "a2d6", "a2dc", "a2df"})
"""Network functions of BlueField, BlueField-2, -3 and -4."""

SWITCH_MANAGEMENT = b"SW_MNG"
"""In the vital product data of bridges to NVSwitches, whose device ID is a NIC's. Root reads it."""

NO_NETWORK_INTERFACE = ("vfio-pci", "mlx5_vfio_pci", "pci-stub", "xen-pciback")
"""Drivers that hold a function for a virtual machine or a program."""


class SurveyError(Exception):
    """There is nothing to read; the text says where."""


def survey(root: Path = SYS) -> Machine:
    """Read the machine below `root`: `/sys`, or a recorded tree. Runs no program."""
    if not (root / "class").is_dir():
        raise SurveyError(
            f"{root} is no sysfs: {root / 'class'} not found. Give the directory that holds class, "
            "bus and devices; tools/record_hardware.py builds one from a recording."
        )
    devices = root / "bus/pci/devices"
    paths = {name: (devices / name).resolve() for name in tree.names(devices)}
    functions = {pci: read_function(path) for pci, path in paths.items()}
    return _Survey(root, paths, functions).machine()


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
    switch is nearer to the GPU, and the storage NIC is nobody's.
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
    def __init__(
        self, root: Path, paths: Mapping[str, Path], functions: Mapping[str, Function]
    ) -> None:
        self.root = root
        self.paths = paths
        self.functions = functions
        self.interfaces = ports.interfaces(root)
        self.rdma = list(ports.rdma_ports(root))

    def machine(self) -> Machine:
        nics = [
            function
            for _pci, function in sorted(self.functions.items())
            if function.network
            or (function.vendor == MELLANOX and function.device_id in DATA_DIRECT_IDS)
        ]
        found = _alike([port for function in nics for port in self._of_function(function)])
        below = [each for each in self.rdma if each.path and each.path.name not in self.paths]
        found += [self._subfunction(each, each.path) for each in below if each.path]
        with_rdma = {each.path for each in self.rdma}
        found += [
            self._face(each)
            for each in self.interfaces
            if each.representor or (each.subfunction and each.path not in with_rdma)
        ]
        found += [self._software(each) for each in self.rdma if each.path is None]
        slots = self.root / "bus/pci/slots"
        addresses = {name: tree.text(slots / name / "address") for name in tree.names(slots)}
        return Machine(
            ports=tuple(found),
            functions=dict(sorted(self.functions.items())),
            slots={address: name for name, address in addresses.items() if address},
            modules=frozenset(tree.names(self.root / "module")),
        )

    def _of_function(self, function: Function) -> list[RdmaDevice]:
        path = self.paths[function.pci]
        gpus = gpus_beside(function, self.functions.values()) if not function.physfn else ()
        links = [name for name in tree.names(path) if name.startswith("virtfn")]
        links.sort(key=lambda name: int(name.removeprefix("virtfn")))
        bare = RdmaDevice(
            kind=self._kind(function, path, gpus),
            pci=function.pci,
            numa=function.numa,
            vendor=function.vendor,
            device_id=function.device_id,
            driver=function.driver,
            link=function.link,
            gpus=gpus,
            sriov_totalvfs=tree.number(path / "sriov_totalvfs"),
            sriov_numvfs=tree.number(path / "sriov_numvfs") or 0,
            vfs=tuple(self._virtual_function(tree.target(path / name)) for name in links),
            physfn=function.physfn,
        )
        own = [each for each in self.rdma if each.path == path]
        if own:
            return [self._joined(bare, port) for port in own]
        faces = [
            _seen(replace(bare, port=each.port), each)
            for each in self.interfaces
            if each.pci == function.pci and not each.representor and not each.subfunction
        ]
        return faces or [bare]

    def _kind(self, function: Function, path: Path, gpus: Sequence[str]) -> str:
        """By what the device says of itself and where it sits; never by a name."""
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

    def _virtual_function(self, pci: str) -> VirtualFunction:
        path = self.paths.get(pci)
        if path is None:
            return VirtualFunction(pci)
        driver = tree.target(path / "driver")
        face = next((each for each in self.interfaces if each.path == path), None)
        device = next((each.found.name for each in self.rdma if each.path == path), "")
        return VirtualFunction(
            pci, driver, face.name if face else "", device, _in_use(driver, face)
        )

    def _subfunction(self, port: Port, path: Path) -> RdmaDevice:
        above = self.functions.get(next(reversed(way(path)), ""))
        bare = RdmaDevice(
            kind=VIRTUAL,
            physfn=above.pci if above else None,
            numa=above.numa if above else None,
            driver=tree.target(path / "driver"),
        )
        return self._joined(bare, port)

    def _face(self, face: Interface) -> RdmaDevice:
        """A representor, or a sub-function without RDMA."""
        return _seen(RdmaDevice(kind=VIRTUAL, physfn=face.pci), face)

    def _software(self, port: Port) -> RdmaDevice:
        netdev = port.found.netdev
        face = next((each for each in self.interfaces if each.name == netdev), None)
        function = self.functions.get(face.pci or "") if face else None
        # The rate of a device made of software is nominal; the interface may know a real one.
        return replace(
            port.found,
            up=bool(face and face.up),
            numa=function.numa if function else None,
            speed_gbps=ports.interface_speed(self.root / "class/net" / netdev) if netdev else None,
        )

    def _joined(self, bare: RdmaDevice, port: Port) -> RdmaDevice:
        """A function, the RDMA port on it and the interface beside that."""
        found = port.found
        both = replace(
            bare,
            name=found.name,
            port=found.port,
            firmware=found.firmware,
            board_id=found.board_id,
            port_state=found.port_state,
            link_layer=found.link_layer,
            speed_gbps=found.speed_gbps,
            gids=found.gids,
        )
        return _seen(both, ports.interface_of(port, self.interfaces))


def _seen(port: RdmaDevice, face: Optional[Interface]) -> RdmaDevice:
    """A port with its network interface."""
    if face is None:
        return port
    speed = port.speed_gbps if face.speed_gbps is None else face.speed_gbps
    return replace(port, netdev=face.name, up=face.up, speed_gbps=speed)


def _in_use(driver: str, face: Optional[Interface]) -> str:
    if driver in NO_NETWORK_INTERFACE:
        return f"held by {driver}, as for a virtual machine"
    if face is not None:
        return f"its interface {face.name} is up" if face.up else ""
    if driver:
        return f"driver {driver} without an interface here: it may be in a container's network"
    return ""
