# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A node of either family with a B300's hardware, on which RDMA programs take effect.

The operating system is that of os_tree. Hardware is a recorded tree below `hw`, with drivers,
configuration spaces and IOMMU groups that tests change. `Store` replaces the package manager.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Optional

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import checks, reboots
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    Result,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.engine import Outcome, settle
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import Node, Step
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.installer import Installer
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.package import (
    INSTALL,
    REMOVE,
    UPGRADE,
    PackageChange,
    PackageSet,
    Stage,
    WantedPackage,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.planning import (
    PackagePlan,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rdma import Hardware
from ansible_collections.baremetal.mpi_roce.plugins.modules.rdma_stack import stack
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.software import read_software

from tests.hardware.trees import recording
from tests.unit.os_tree import Tree
from tools.record_hardware import build

MACHINE = "b300-8x800g"
ROOTS = ("pci0000:07", "pci0000:25")
RAILS = [
    {"interface": "rail0", "rail": 0, "plane": 0, "pci": "0000:11:00.0"},
    {"interface": "rail1", "rail": 1, "plane": 0, "pci": "0000:2f:00.0"},
]
GPUS = [{"index": 0, "pci": "0000:14:00.0"}, {"index": 1, "pci": "0000:32:00.0"}]
DEVICES = ("mlx5_0", "mlx5_1", "mlx5_2")
DOCA = {"rdma": {"source": "doca", "version": "3.2.1", "profile": "doca-ofed"}}
KEYS = {"url": "file:///srv/doca", "key": "keys/doca.asc", "key_sha256": "0" * 64}
DOCA_SET = {**DOCA, "repositories": {"doca": KEYS}}
OPTIONS: dict[str, Any] = {
    "allow_downgrade": False,
    "change_in_use": False,
    "restart_driver": False,
    "modules": ["mlx5_ib", "ib_umad", "rdma_ucm"],
    "iommu": "pt",
    "acs": "disable",
    "firmware_minimum": "",
    "rails": RAILS,
    "gpus": GPUS,
}

INBOX_WANTED = PackageSet(
    stages=(Stage("RDMA", (WantedPackage("rdma-core"), WantedPackage("perftest"))),)
)
DOCA_WANTED = PackageSet(stages=(Stage("DOCA", (WantedPackage("doca-ofed", "3.2.1"),)),))
OF_DOCA = {
    "doca-ofed": "3.2.1-044000",
    "mlnx-ofed-kernel-dkms": "25.10.OFED.25.10.1.7.1.1-1",
    "mft": "4.34.1-10",
    "rdma-core": "2510.0.11-1",
    "libibverbs1": "2510.0.11-1",
    "perftest": "25.10.0-0.134.g8aff167",
}
OF_INBOX = {"rdma-core": "50.0-2", "libibverbs1": "50.0-2", "perftest": "24.01.0-1"}

ANSWERS = {
    "ib_write_bw": (0, "Version: 6.24\n"),
    "mstconfig": (0, "mstconfig, mstflint 4.26.0\n"),
    "mlxconfig": (0, "mlxconfig, mft 4.34.1-10\n"),
}


@dataclass
class Store:
    """Packages of a node and of its repositories."""

    packages: dict[str, str] = field(default_factory=dict)
    pins: dict[str, str] = field(default_factory=dict)
    acted: list[PackageSet] = field(default_factory=list)
    downgrade: Optional[bool] = None

    # Methods of Manager.

    def installed(self) -> Mapping[str, str]:
        return dict(self.packages)

    def pinned(self, layer: str = "") -> Mapping[str, str]:
        return dict(self.pins)

    def available(self, names: Sequence[str]) -> Mapping[str, Sequence[str]]:
        sources = (OF_DOCA, OF_INBOX)
        return {name: [of[name] for of in sources if name in of] for name in names}

    def upstream(self, version: str) -> str:
        return version.partition("-")[0]

    # Methods of the installer.

    def plan(self, wanted: PackageSet, allow_downgrade: bool) -> PackagePlan:
        self.downgrade = allow_downgrade
        target = self._target(wanted)
        changes = []
        for name in sorted({*self.packages, *target}):
            before, after = self.packages.get(name, ""), target.get(name, "")
            if before != after:
                kind = INSTALL if not before else REMOVE if not after else UPGRADE
                changes.append(PackageChange(kind, name, before, after))
        stages = [("RDMA", changes)] if changes else []
        return PackagePlan(stages=stages)

    def act(self, plan: PackagePlan, wanted: PackageSet) -> PackagePlan:
        self.acted.append(wanted)
        self.packages = self._target(wanted)
        doca = "doca-ofed" in self.packages
        self.pins = dict(self.packages) if doca else {"rdma-core": "", "perftest": ""}
        return plan

    def _target(self, wanted: PackageSet) -> dict[str, str]:
        names = {each.name: each.version for stage in wanted.stages for each in stage.packages}
        if "doca-ofed" in names:
            return {**self.packages, **OF_DOCA}
        kept = {name: v for name, v in self.packages.items() if name not in wanted.absent}
        for name, version in names.items():
            if name not in kept or version:
                kept[name] = OF_INBOX[name]
        if "rdma-core" in names:
            kept.setdefault("libibverbs1", OF_INBOX["libibverbs1"])
        return kept


class StoreInstaller(Installer):
    """An installer whose manager is a store."""

    manager: Any

    def plan(self) -> PackagePlan:
        return self.manager.plan(self.wanted, self.allow_downgrade)  # type: ignore[no-any-return]

    def step(self, plan: PackagePlan, name: str, before: str, after: str) -> Step:
        act = partial(self.manager.act, plan, self.wanted)
        return Step(name, before, after, act, essential=True, shown=plan.diffs())

    def verify(self, check_mode: bool = False) -> list[checks.Check]:
        return []


class RdmaNode:
    """One node. `family` is ubuntu or rocky."""

    def __init__(self, family: str, where: Path, machine: str = MACHINE) -> None:
        self.tree = Tree(family, where)
        self.hw = where / "hw"
        self.store = Store()
        self.modinfo: dict[str, tuple[str, str, str]] = {}
        self.answers = dict(ANSWERS)
        self.unable: set[str] = set()
        self.seen: Optional[Sequence[str]] = None
        self.secure_boot = self.enrolled = False
        roots = ROOTS if machine.startswith("b300") else ()
        build(recording(machine, *roots), self.hw / "sys")
        self.write("proc/self/mountinfo", "")
        self.write("proc/cpuinfo", "vendor_id\t: GenuineIntel\n")
        if machine == MACHINE:
            for name in ("mlx5_core", "mlx5_ib", "ib_core", "ib_uverbs"):
                self.load(name, "6.8.0", f"IN-{name}")
            for function in (*RAILS, *GPUS):
                self.group(str(function["pci"]), "identity")
            for bridge in self.bridges():
                self.configuration(bridge, 0x1D)

    # Changes by tests.

    def write(self, name: str, text: str) -> None:
        self.tree.write(name, text)

    def sys(self, name: str) -> Path:
        return self.hw / "sys" / name

    def bridges(self) -> list[str]:
        """PCI bridges of the recorded machine."""
        devices = self.sys("bus/pci/devices")
        return sorted(
            path.name
            for path in devices.iterdir()
            if (path / "class").read_text().startswith("0x0604")
        )

    def load(self, name: str, version: str, source: str) -> None:
        directory = self.sys(f"module/{name}")
        directory.mkdir(parents=True, exist_ok=True)
        for file, text in (("initstate", "live"), ("version", version), ("srcversion", source)):
            (directory / file).write_text(f"{text}\n")
        self.modinfo.setdefault(name, (version, source, f"kernel/drivers/{name}.ko.zst"))

    def group(self, pci: str, kind: str) -> None:
        number = str(int(pci.split(":")[1], 16))
        directory = self.sys(f"kernel/iommu_groups/{number}")
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "type").write_text(f"{kind}\n")
        link = self.sys("bus/pci/devices") / pci / "iommu_group"
        if not link.is_symlink():
            link.resolve().parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(directory)

    def configuration(self, pci: str, control: Optional[int]) -> Path:
        """A configuration space with AER, and ACS behind it unless `control` is None."""
        space = bytearray(4096)
        struct.pack_into("<I", space, 0x100, 0x0001 | 1 << 16 | 0x148 << 20)
        if control is not None:
            struct.pack_into("<IHH", space, 0x148, 0x000D | 1 << 16, 0x5F, control)
        path = self.sys("bus/pci/devices") / pci / "config"
        path.write_bytes(bytes(space))
        return path

    def control(self, pci: str) -> int:
        data = (self.sys("bus/pci/devices") / pci / "config").read_bytes()
        return int(struct.unpack_from("<H", data, 0x14E)[0])

    def open_device(self, pid: int, name: str, target: str = "/dev/infiniband/uverbs0") -> None:
        directory = self.tree.root / f"proc/{pid}/fd"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "9").symlink_to(target)
        (directory.parent / "comm").write_text(f"{name}\n")

    def install_doca_drivers(self, version: str = "25.10-1.7.1") -> None:
        for name in ("mlx5_core", "mlx5_ib", "ib_core", "ib_uverbs"):
            self.modinfo[name] = (version, f"{version}-{name}", f"updates/dkms/{name}.ko")

    def reboot(self) -> None:
        self.tree.reboot()
        for name, (version, source, _path) in list(self.modinfo.items()):
            self.load(name, version, source)

    # Actions of tests.

    def settle(
        self,
        software: Optional[Mapping[str, Any]] = None,
        *,
        check_mode: bool = False,
        simulated: bool = False,
        container: Optional[str] = None,
        nfs: bool = False,
        **wanted: Any,
    ) -> Outcome:
        given = read_software(software)
        given = replace(given, rdma=replace(given.rdma, nfs=nfs))
        packages = DOCA_WANTED if given.rdma.source == "doca" else INBOX_WANTED
        node = self.node(check_mode=check_mode, container=container)
        hardware = Hardware(self.hw, simulated=simulated)
        self.notes = hardware.notes
        options = {**OPTIONS, **wanted}
        parts = stack(options, node, given, packages, self.store, hardware)  # type: ignore[arg-type]
        return settle(parts, node)

    def node(self, *, check_mode: bool, container: Optional[str]) -> Node:
        return replace(
            self.tree.node(check_mode),
            layer="rdma",
            run=self.run,
            container=container,
            rebooted_for=tuple(reboots.recorded("rdma", self.tree.root)),
        )

    # Programs.

    def run(
        self, argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None
    ) -> Result:
        name = argv[0]
        handler = getattr(self, f"_{name.replace('-', '_')}", None)
        if name in self.unable:
            raise CommandError(f"{name}: not installed (wanted to run: {' '.join(argv)})")
        if name in self.answers:
            rc, stdout = self.answers[name]
        elif handler is None:
            if name == "systemctl" and argv[1] == "restart":
                self.tree.calls.append(list(argv))
                return Result(tuple(argv), 0, "", "")
            return self.tree.run(argv, check=check, stdin=stdin)
        else:
            self.tree.calls.append(list(argv))
            rc, stdout = handler(list(argv))
        if check and rc:
            raise CommandError(f"{' '.join(argv)}: exit status {rc}: {stdout}")
        return Result(tuple(argv), rc, stdout, "")

    def _mokutil(self, argv: list[str]) -> tuple[int, str]:
        if argv[1] == "--sb-state":
            return 0, f"SecureBoot {'enabled' if self.secure_boot else 'disabled'}\n"
        return 0, f"{argv[2]} is {'already' if self.enrolled else 'not'} enrolled\n"

    def _modprobe(self, argv: list[str]) -> tuple[int, str]:
        name = argv[-1].replace("-", "_")
        if f"module {name}" in self.unable:
            return 1, f"modprobe: FATAL: Module {name} not found"
        version, source, _path = self.modinfo.get(name, ("6.8.0", f"IN-{name}", ""))
        self.load(name, version, source)
        return 0, ""

    def _modinfo(self, argv: list[str]) -> tuple[int, str]:
        text = ""
        for name in argv[1:]:
            if name not in self.modinfo:
                text += f"modinfo: ERROR: Module {name} not found.\n"
                continue
            version, source, path = self.modinfo[name]
            text += (
                f"filename:       /lib/modules/6.8.0-49-generic/{path}\n"
                f"version:        {version}\nalias:          a\nalias:          b\n"
                f"srcversion:     {source}\nname:           {name}\nvermagic:       6.8.0\n"
            )
        return 0, text

    def _ibv_devinfo(self, argv: list[str]) -> tuple[int, str]:
        names = DEVICES if self.seen is None else self.seen
        return 0, f"{len(names)} HCAs found:\n" + "".join(f"\t{name}\n" for name in names) + "\n"


def found(outcome: Outcome, name: str) -> dict[str, checks.Check]:
    return {check.subject: check for check in outcome.checks if check.name == name}


def wrong(outcome: Outcome) -> list[str]:
    """Failed checks, one line each."""
    return [
        f"{check.status} {check.line()}"
        for check in outcome.checks
        if check.status not in (checks.OK, checks.NOT_APPLICABLE)
    ]
