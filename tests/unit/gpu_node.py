# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A node in a directory on which the programs of the GPU stack take effect.

`GpuNode.run` simulates systemctl, dkms, modprobe, mokutil, ldconfig, nvcc, nvidia-smi and the tools
for an initramfs; `Installer` simulates package installation. As on a node, a fabric manager of
a version other than the running driver's does not start, a module in use cannot be unloaded, and a
reboot changes the running driver. Findings about GPUs are reduced to driver and fabric manager.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional

from ansible_collections.baremetal.mpi_roce.plugins.module_utils import gpu
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import reboots
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import (
    FAILED,
    OK,
    PENDING,
    REBOOT,
    Check,
    compare,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    Result,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.engine import Settled
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import Node, Step
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.gpu import stack
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.package import (
    INSTALL,
    UPGRADE,
    PackageChange,
    PackageError,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.planning import (
    PackagePlan,
)
from ansible_collections.baremetal.mpi_roce.plugins.modules import nvidia_gpu
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.software import read_software

from tests.unit.host import Host

KERNEL = "6.8.0-79-generic"
OLD, NEW = "580.159.03", "580.173.02"
PERSISTENCED = "nvidia-persistenced.service"
FABRIC_MANAGER = "nvidia-fabricmanager.service"
DCGM = "nvidia-dcgm.service"
UNITS = {
    PERSISTENCED: "nvidia-persistenced",
    FABRIC_MANAGER: "nvidia-fabricmanager",
    DCGM: "datacenter-gpu-manager-4-cuda13",
}
"""Modules by the package that contains them."""
DRIVER = ("nvidia-open-580", "nvidia-persistenced", "nvidia-fabricmanager")
FABRIC_LOG = """\
[May 12 2026 03:05:12] [INFO] Connected to 1 node.
[May 12 2026 03:05:42] [ERROR] not all local fabric manager instances finished their configuration
[May 12 2026 03:05:42] [ERROR] failed to configure all the available GPUs or NVSwitches
"""
"""Messages of pytorch/ci-infra pull 552."""
LOOKING = {
    ("systemctl", "show"),
    ("dkms", "status"),
    ("mokutil", "--sb-state"),
    ("ldconfig", "-p"),
    ("tail", "-n"),
    ("runc", "--version"),
}


def software(driver: str = OLD, **more: Any) -> dict[str, Any]:
    return {
        "driver": {"version": driver},
        "cuda": "13.2",
        "dcgm": "4.5.3",
        "gdrcopy": "2.5.1",
        "repositories": {"cuda": {"key": "cuda.asc", "key_sha256": "0" * 64}},
        **more,
    }


OPTIONS: dict[str, Any] = {
    "keys": {},
    "gpus": [{"index": index, "pci": None, "numa": None} for index in range(8)],
    "rails": [],
    "allow_downgrade": False,
    "change_under_jobs": False,
    "reload_driver": False,
    "gpudirect": "auto",
    "fabric_wait_s": 0,
    "health": {},
    "nvml_bindings": stack.packed("# pynvml\n"),
}


@dataclass
class Installer:
    """Installs the packages of one set on a node."""

    node: GpuNode
    wanted: Mapping[str, str]
    fails: str = ""
    """`before`: no package changed yet; `between`: driver libraries are new, others old."""

    def plan(self) -> PackagePlan:
        there = self.node.installed
        changes = [
            PackageChange(UPGRADE if name in there else INSTALL, name, there.get(name, ""), version)
            for name, version in self.wanted.items()
            if there.get(name) != version and (not self.node.asked or name not in self.node.lacks)
        ]
        return PackagePlan(
            repairs=self.node.interrupted, stages=[("all", changes)] if changes else []
        )

    def step(self, _plan: PackagePlan, name: str, before: str, after: str) -> Step:
        return Step(name, before, after, self._act, essential=True)

    def _act(self) -> None:
        self.node.spend()
        self.node.calls.append(["packages"])
        self.node.asked = True
        if self.fails == "before":
            raise PackageError("the repository does not answer")
        self.node.interrupted = ""
        for name, version in self.wanted.items():
            if self.node.installed.get(name) == version or name in self.node.lacks:
                continue
            self.node.interrupted = f"{name} is half installed"
            self.node.spend()
            self.node.install(name, version)
            self.node.interrupted = ""
            if self.fails == "between":
                raise PackageError("no space left on device")

    def verify(self, check_mode: bool) -> list[Check]:
        there = self.node.installed
        return [
            compare("package", at, there.get(name, ""), subject=name, check_mode=check_mode)
            for name, at in self.wanted.items()
            if name not in self.node.lacks
        ]

    @property
    def manager(self) -> SimpleNamespace:
        return SimpleNamespace(installed=lambda: {"dpkg": "1.22.6", **self.node.installed})


@dataclass
class GpuNode(Host):
    """One node. `steps_left`: number of changes before it is killed."""

    layer = "gpu"
    root: Path
    gpus: int = 8
    boot: int = 1
    installed: dict[str, str] = field(default_factory=dict)
    interrupted: str = ""
    lacks: set[str] = field(default_factory=set)
    """Packages that no repository has, as is known once they were `asked`."""
    asked: bool = False
    dkms: dict[tuple[str, str], str] = field(default_factory=dict)
    dkms_name: str = "nvidia"
    dkms_builds: bool = True
    """Whether installing the package builds the module."""
    dkms_breaks: bool = False
    secure_boot: bool = False
    enrolled: bool = False
    units: dict[str, list[str]] = field(default_factory=dict)
    calls: list[list[str]] = field(default_factory=list)
    linker: set[str] = field(default_factory=set)
    fabric: list[str] = field(default_factory=list)
    """State of the fabric at each reading; the last one remains."""
    steps_left: Optional[int] = None
    reloads: str = "no"
    runc: str = ""
    """Its version; empty if it is not installed."""
    races: int = 0
    """Number of starts of the fabric manager before the GPUs are ready."""

    def __post_init__(self) -> None:
        self.write("proc/sys/kernel/osrelease", f"{KERNEL}\n")
        self.write("sys/module/.keep", "")
        self.write("boot/initrd.img-" + KERNEL, "old")
        self.write("usr/sbin/update-initramfs", "")
        for index in range(self.gpus):
            device = f"sys/bus/pci/devices/0000:{0x14 + index:02x}:00.0"
            self.write(f"{device}/vendor", "0x10de\n")
            self.write(f"{device}/class", "0x030200\n")
        self.write("sys/bus/pci/devices/0000:40:00.0/vendor", "0x10de\n")
        self.write("sys/bus/pci/devices/0000:40:00.0/class", "0x068000\n")

    def process(self, pid: int, comm: str, *, opens: str = "", environment: str = "") -> None:
        self.write(f"proc/{pid}/comm", f"{comm}\n")
        self.write(f"proc/{pid}/stat", f"{pid} ({comm}) S 1 0")
        self.write(f"proc/{pid}/cmdline", f"{comm}\0")
        self.write(f"proc/{pid}/environ", environment)
        (self.root / f"proc/{pid}/fd").mkdir()
        if opens:
            (self.root / f"proc/{pid}/fd/3").symlink_to(opens)

    def load(self, module: str, version: str = "") -> None:
        self.write(f"sys/module/{module}/version", f"{version}\n")

    @property
    def driver(self) -> str:
        path = self.root / "sys/module/nvidia/version"
        return path.read_text().strip() if path.exists() else ""

    def active(self) -> set[str]:
        return {unit for unit, (_boot, state) in self.units.items() if state == "active"}

    def reboot(self) -> None:
        """The next boot loads modules built by DKMS, those of modules-load.d, and services."""
        self.boot += 1
        for module in ("nvidia", "nvidia_uvm", "gdrdrv", "nouveau"):
            self._unload(module)
        if (self.root / "etc/modprobe.d/90-baremetal-mpi-roce-nouveau.conf").exists():
            self._modprobe(["modprobe", "nvidia"])
        else:
            self.load("nouveau")
        extra = self.root / "etc/modules-load.d/90-baremetal-mpi-roce-gpu.conf"
        for line in extra.read_text().splitlines() if extra.exists() else []:
            if not line.startswith("#"):
                self._modprobe(["modprobe", line])
        for unit, (at_boot, _state) in self.units.items():
            self.units[unit][1] = "inactive"
            if at_boot == "enabled":
                self._systemctl_start(["systemctl", "start", unit])

    def snapshot(self) -> dict[str, Any]:
        files = {
            str(path.relative_to(self.root)): path.read_text()
            for path in sorted(self.root.rglob("*"))
            if path.is_file() and not path.is_symlink()
        }
        return {
            **files,
            "installed": dict(self.installed),
            "units": {unit: list(state) for unit, state in self.units.items()},
            "dkms": dict(self.dkms),
            "linker": sorted(self.linker),
        }

    def converge(
        self,
        driver: str = OLD,
        *,
        check_mode: bool = False,
        fails: str = "",
        dcgm: str = "4.5.3",
        extra: Optional[dict[str, Any]] = None,
        **options: Any,
    ) -> Settled:
        asked = {**software(driver, dcgm=dcgm), **(extra or {})} if driver else {}
        wanted = dict.fromkeys(DRIVER, f"{driver}-0ubuntu1")
        wanted |= {"cuda-toolkit-13-2": "13.2.1-1", "gdrdrv-dkms": "2.5.1-1"}
        if dcgm:
            wanted[UNITS[DCGM]] = f"1:{dcgm}"
        self.installer = Installer(self, wanted, fails)
        options = {**OPTIONS, "hardware_root": str(self.root), **options}
        options["software"] = read_software(asked).as_variable()
        return nvidia_gpu.converge(options, self.node(check_mode))

    def spend(self) -> None:
        """Count one change; the node is killed at the last one."""
        if self.steps_left is None:
            return
        if self.steps_left == 0:
            raise KeyboardInterrupt
        self.steps_left -= 1

    def install(self, name: str, version: str) -> None:
        self.installed[name] = version
        upstream = version.partition("-")[0]
        if name == DRIVER[0]:
            self._known(self.dkms_name, upstream)
        if name == "gdrdrv-dkms":
            self._known("gdrdrv", upstream)
        for unit, package in UNITS.items():
            if package == name:
                self.units.setdefault(unit, ["disabled", "inactive"])
        if name.startswith("cuda-toolkit"):
            (self.root / "usr/local/cuda-13.2/bin").mkdir(parents=True, exist_ok=True)
            link = self.root / "usr/local/cuda"
            if not link.is_symlink():
                link.symlink_to("/etc/alternatives/cuda")
                self._update_alternatives(["", "--set", "cuda", "/usr/local/cuda-13.2"])

    def _known(self, name: str, version: str) -> None:
        built = self.dkms_builds and not self.dkms_breaks
        for other in [key for key in self.dkms if key[0] == name and key[1] != version]:
            del self.dkms[other]
        self.dkms[(name, version)] = "installed" if built else "added"

    def run(
        self, argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None
    ) -> Result:
        words = list(argv)
        if tuple(words[:2]) not in LOOKING and "nvcc" not in words[0]:
            self.spend()
            self.calls.append(words)
        try:
            rc, stdout = self.program(words)
        except FileNotFoundError as error:
            raise CommandError(f"{words[0]}: not installed") from error
        if check and rc:
            raise CommandError(f"{' '.join(words)}: exit status {rc}: {stdout}")
        return Result(tuple(words), rc, stdout, "")

    def _systemctl_show(self, words: list[str]) -> tuple[int, str]:
        keys = [word for before, word in zip(words, words[1:]) if before == "-p"]
        at_boot, state = self.units.get(words[2], ["", "inactive"])
        values = {"UnitFileState": at_boot, "ActiveState": state, "NeedDaemonReload": self.reloads}
        return 0, "".join(f"{key}={values[key]}\n" for key in keys)

    def _systemctl_daemon_reload(self, words: list[str]) -> tuple[int, str]:
        return 0, ""

    def _systemctl_enable(self, words: list[str]) -> tuple[int, str]:
        if words[2] not in self.units:
            return 1, f"Unit {words[2]} does not exist"
        if self.units[words[2]][0] == "masked":
            unit_file = f"/etc/systemd/system/{words[2]}"
            return 1, f"Failed to enable unit: Unit file {unit_file} is masked."
        self.units[words[2]][0] = "enabled"
        return 0, ""

    def _systemctl_start(self, words: list[str]) -> tuple[int, str]:
        unit = words[2]
        if unit not in self.units:
            return 5, f"Unit {unit} not found"
        version = self.installed.get(DRIVER[2], "").partition("-")[0]
        if self.units[unit][0] == "masked":
            return 1, f"Failed to start {unit}: Unit {unit} is masked."
        if unit == FABRIC_MANAGER and self.races:
            self.races -= 1
            self.units[unit][1] = "failed"
            return 1, f"Job for {unit} failed because the control process exited with error code."
        if not self.driver or version != self.driver:
            self.units[unit][1] = "failed"
            return 1, f"{unit}: the driver is {self.driver or 'not loaded'}, and this is {version}"
        self.units[unit][1] = "active"
        return 0, ""

    _systemctl_restart = _systemctl_start

    def _tail(self, words: list[str]) -> tuple[int, str]:
        return 0, FABRIC_LOG

    def _systemctl_stop(self, words: list[str]) -> tuple[int, str]:
        self.units[words[2]][1] = "inactive"
        return 0, ""

    def _dkms(self, words: list[str]) -> tuple[int, str]:
        if not self.dkms:
            raise FileNotFoundError
        if words[1] == "status":
            lines = [
                f"{name}/{version}, {KERNEL}, x86_64: {state}"
                if state == "installed"
                else f"{name}/{version}: {state}"
                for (name, version), state in self.dkms.items()
            ]
            return 0, "".join(f"{line}\n" for line in lines)
        name, version = words[3], words[5]
        if self.dkms_breaks:
            end = "".join(f"make[{at}]: *** [Makefile:{at}] Error 2\n" for at in range(9, 0, -1))
            log = f"CC [M] nv.o\ncc: error: no headers\n{end}"
            self.write(f"var/lib/dkms/{name}/{version}/build/make.log", log)
            return 10, "Bad return status for module build"
        self.dkms[(name, version)] = "installed"
        return 0, ""

    def _modprobe(self, words: list[str]) -> tuple[int, str]:
        if words[1] == "-r":
            self._unload(words[2])
            return 0, ""
        module = words[1]
        owner = "nvidia" if module.startswith("nvidia") else module
        names = {"nvidia", "nvidia-open"} if owner == "nvidia" else {owner}
        built = [v for (n, v), state in self.dkms.items() if n in names and state == "installed"]
        if not built:
            return 1, f"FATAL: Module {module} not found"
        if owner == "nvidia" and not self.driver:
            self.load("nvidia", built[0])
        if module != "nvidia":
            self.load(module)
        return 0, ""

    def _unload(self, module: str) -> None:
        path = self.root / "sys/module" / module
        (path / "version").unlink(missing_ok=True)
        if path.is_dir():
            path.rmdir()

    def _mokutil(self, words: list[str]) -> tuple[int, str]:
        if words[1] == "--sb-state":
            return 0, f"SecureBoot {'enabled' if self.secure_boot else 'disabled'}\n"
        return 0, f"{words[2]} is {'already' if self.enrolled else 'not'} enrolled\n"

    def _ldconfig(self, words: list[str]) -> tuple[int, str]:
        if words[1:] == ["-p"]:
            names = ["libc.so.6", *self.linker]
            return 0, "".join(f"\t{name} (libc6,x86-64) => /x/{name}\n" for name in names)
        if (self.root / "usr/local/cuda-13.2").is_dir():
            self.linker.add("libcudart.so.13")
        return 0, ""

    def _nvcc(self, words: list[str]) -> tuple[int, str]:
        link = self.root / "etc/alternatives/cuda"
        if not link.is_symlink():
            raise FileNotFoundError
        version = str(link.readlink()).rpartition("-")[2]
        return 0, f"Cuda compilation tools, release {version}, V{version}.48\n"

    def _runc(self, words: list[str]) -> tuple[int, str]:
        if not self.runc:
            raise CommandError("runc: not installed")
        return 0, f"runc version {self.runc}\ncommit: v{self.runc}-0-g4e8a55a4\n"

    def _update_alternatives(self, words: list[str]) -> tuple[int, str]:
        link = self.root / "etc/alternatives/cuda"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(words[3])
        return 0, ""

    def _update_initramfs(self, words: list[str]) -> tuple[int, str]:
        return self._dracut(["dracut", "--force", f"/boot/initrd.img-{KERNEL}", KERNEL])

    def _dracut(self, words: list[str]) -> tuple[int, str]:
        blacklist = self.root / "etc/modprobe.d/90-baremetal-mpi-roce-nouveau.conf"
        image = self.write(words[2].lstrip("/"), blacklist.read_text())
        later = blacklist.stat().st_mtime_ns + 10**9
        os.utime(image, ns=(later, later))
        return 0, ""

    def _nvidia_smi(self, words: list[str]) -> tuple[int, str]:
        return 0, ""

    def look(self, *_args: Any) -> SimpleNamespace:
        if len(self.fabric) > 1:
            self.fabric.pop(0)
        return SimpleNamespace(simulated=["GPU hardware is played"])

    def evaluate(self, _found: Any, wanted: gpu.GpuTarget, on: Node) -> SimpleNamespace:
        """Report the driver first; another version prevents all other checks."""
        bad = PENDING if on.check_mode else FAILED
        reasons: list[reboots.Reason] = []
        on_disk = {version for (name, version) in self.dkms if name == self.dkms_name}
        runs = self.driver or ("nouveau" if (self.root / "sys/module/nouveau").exists() else "")
        settling = False
        if runs == (wanted.driver or runs):
            active = FABRIC_MANAGER in self.active()
            settling = active and self.fabric[:1] == ["In Progress"]
            state = "In Progress" if settling else "active" if active else "stopped"
            check = Check("gpu_fabric", "active", state, OK if state == "active" else bad)
        elif runs and (runs == "nouveau" or wanted.driver in on_disk):
            reasons = [reboots.Reason("NVIDIA driver", wanted.driver, runs, f"{runs} is loaded")]
            check = Check("gpu_driver", wanted.driver, runs, REBOOT)
        else:
            check = Check("gpu_driver", wanted.driver, runs or "not loaded", bad)
        return SimpleNamespace(checks=[check], reasons=reasons, settling=settling)


def play(node: GpuNode, monkeypatch: Any) -> GpuNode:
    """Let the module see this node's GPUs and packages."""
    for name in ("read_distribution", "manager_of", "gpu_packages"):
        monkeypatch.setattr(nvidia_gpu, name, lambda *_args: None)
    monkeypatch.setattr(nvidia_gpu, "Installer", lambda *_args: node.installer)
    monkeypatch.setattr(stack.gpu, "read", node.look)
    monkeypatch.setattr(stack.gpu, "evaluate", node.evaluate)
    return node
