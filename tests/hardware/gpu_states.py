# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""States of the GPUs of an HGX B300 node, each derived from a healthy one.

`save(state(name), directory)` writes the output of the tools on such a node:

    nvidia-smi.xml         output of `nvidia-smi -q -x`, or its error message
    nvidia-smi.rc          its exit status, or `hang` if it does not return
    nvml.txt               answers of NVML, see `_nvml`
    nv-fabricmanager.txt   output of `nv-fabricmanager --version`
    services.txt           unit, LoadState, ActiveState, UnitFileState, Result: one line per unit
    modinfo.txt            `version` and `license` of the module on disk, one line each
    root/                  the hardware root: sys, proc, and var/log/kernel.json

None of it was recorded on a B300. gpu/gpu.xml has the elements that drivers 580 print for
Blackwell, in their order, with invented values; sys is b300-8x800g.sysfs. The README.md files name
the sources and describe every state.
"""

from __future__ import annotations

import functools
import json
import pickle
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Optional

from tests.hardware.trees import function, line, link, recording
from tools.record_hardware import Directory, build

BUSES = ("14", "32", "49", "60", "8e", "ad", "c5", "dd")
GPUS = tuple(f"0000:{bus}:00.0" for bus in BUSES)
NICS = tuple(f"0000:{bus}:00.0" for bus in ("11", "2f", "46", "5d", "8b", "aa", "c2", "da"))
PRODUCT = "NVIDIA B300 SXM6 AC"
VERSION = "580.95.05"
UPGRADED = "580.105.08"
KERNEL = "6.8.0-60-generic"
FABRIC_MANAGER = "nvidia-fabricmanager.service"
PERSISTENCED = "nvidia-persistenced.service"
HANG = "hang"

ONE_GPU = Path(__file__).parent / "gpu/gpu.xml"
HEAD = """\
<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">
"""


def uuid(index: int) -> str:
    return f"GPU-b3000000-0000-4000-8000-0000000000{index:02x}"


def serial(index: int) -> str:
    return f"16525000000{index:02d}"


@dataclass
class Service:
    load: str = "loaded"
    active: str = "active"
    enabled: str = "enabled"
    result: str = "success"


@dataclass
class State:
    """Everything that can be read on a node. Functions of STATES change a healthy one."""

    version: str = VERSION
    """Version of the loaded kernel module."""
    installed: str = VERSION
    """Version of libraries, fabric manager and the module on disk."""
    product: str = PRODUCT
    open: bool = True
    gpus: dict[str, ET.Element] = field(default_factory=dict)
    links: dict[str, list[int]] = field(default_factory=dict)
    sys: Directory = field(default_factory=Directory)
    services: dict[str, Service] = field(default_factory=dict)
    fabric_manager: str = ""
    kernel_log: list[str] = field(default_factory=list)
    kernel: str = KERNEL
    error: str = ""
    """Message that nvidia-smi prints before the XML or instead of it."""
    rc: str = "0"
    nvml_code: int = 0

    def put(self, path: str, value: str, *indices: int) -> None:
        """Set one element of these GPUs, or of all. Raises KeyError for an unknown path."""
        for index in indices or range(len(GPUS)):
            element = self.gpus[GPUS[index]].find(path)
            if element is None:
                raise KeyError(path)
            element.text = value

    def broken(self, text: str, rc: int) -> None:
        """Make nvidia-smi report no GPU."""
        self.gpus.clear()
        self.error, self.rc = text, str(rc)

    def xid(self, number: int, index: int, text: str) -> None:
        card = GPUS[index].removesuffix(".0")
        self.kernel_log.append(f"NVRM: Xid (PCI:{card}): {number}, {text}")


def healthy(
    version: str = VERSION, installed: str = "", product: str = PRODUCT, machine: str = ""
) -> State:
    """Return a healthy node. `installed` is the version of an upgrade before its reboot."""
    state = State(version, installed or version, product)
    template = Template(ONE_GPU.read_text(encoding="utf-8"))
    for index, bus in enumerate(BUSES):
        text = template.substitute(
            index=index,
            id=f"00000000:{bus.upper()}:00.0",
            bus=bus.upper(),
            board=f"0x{bus}00",
            module=index + 1,
            uuid=uuid(index),
            serial=serial(index),
            pdi=f"0xb3000000000000{index:02x}",
            product=product,
            driver=version,
        )
        state.gpus[GPUS[index]] = ET.fromstring(text)
        state.links[GPUS[index]] = [1] * 18
    state.sys = pickle.loads(_recorded(machine or "b300-8x800g"))
    state.sys.put("module/nvidia/version", line(version))
    state.services = {FABRIC_MANAGER: Service(), PERSISTENCED: Service()}
    state.fabric_manager = state.installed
    state.kernel_log = [
        "Linux version " + KERNEL,
        f"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build",
    ]
    return state


@functools.cache
def _recorded(machine: str) -> bytes:
    """A pickled tree of /sys: parsed once, copied for each state."""
    return pickle.dumps(recording(machine))


def _values(index: int, *values: tuple[str, str]) -> Callable[[State], None]:
    """Return a change of these nvidia-smi values of one GPU."""

    def change(state: State) -> None:
        for path, value in values:
            state.put(path, value, index)

    return change


def _missing(state: State) -> None:
    """Remove GPU 5 from the bus."""
    parent, name = _way(state.sys.at("devices"), GPUS[5])
    del parent[name]
    del state.gpus[GPUS[5]], state.links[GPUS[5]]


def _xid_79(state: State) -> None:
    """Leave GPU 5 on the bus, but unreachable for the driver."""
    del state.gpus[GPUS[5]], state.links[GPUS[5]]
    bus = BUSES[5].upper()
    state.error = f"Unable to determine the device handle for GPU5: 0000:{bus}:00.0: Unknown Error"
    state.xid(79, 5, "pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")


def _lost(state: State) -> None:
    """List GPU 2 with `GPU is lost` instead of values."""
    for path in ("ecc_mode/current_ecc", "persistence_mode", "fabric/state", "performance_state"):
        state.put(path, "GPU is lost", 2)
    remapped = state.gpus[GPUS[2]].find("remapped_rows")
    assert remapped is not None
    remapped.clear()
    remapped.text = "GPU is lost"
    del state.links[GPUS[2]]


def _in_progress(state: State) -> None:
    state.put("fabric/state", "In Progress")
    state.put("fabric/status", "N/A")
    state.put("fabric/health/summary", "N/A")


def _no_ib_umad(state: State) -> None:
    """Unload ib_umad, without which the fabric manager never finishes."""
    _in_progress(state)
    del state.sys.at("module")["ib_umad"]


def _fabric_manager_stopped(state: State) -> None:
    """Stop the fabric manager since boot, so that no GPU has joined the fabric."""
    state.services[FABRIC_MANAGER] = Service(active="inactive")
    _in_progress(state)


def _fabric_manager_other(state: State) -> None:
    """Install another version than the driver's: the fabric manager exits immediately."""
    state.fabric_manager = UPGRADED if state.installed != UPGRADED else VERSION
    state.services[FABRIC_MANAGER] = Service(active="failed", result="exit-code")
    _in_progress(state)


def _mismatch(state: State) -> None:
    """Upgrade the driver without a reboot."""
    if state.installed == state.version:
        state.installed = UPGRADED
    short = ".".join(state.installed.split(".")[:2])
    state.broken(
        "Failed to initialize NVML: Driver/library version mismatch\n"
        f"NVML library version: {short}",
        18,
    )
    state.nvml_code = 18
    state.fabric_manager = state.installed
    state.services[FABRIC_MANAGER] = Service(active="failed", result="exit-code")
    state.services[PERSISTENCED] = Service(active="failed", result="exit-code")


def _ecc(state: State) -> None:
    """Report an uncorrectable error in nvidia-smi and the kernel log."""
    state.put("ecc_errors/volatile/dram_uncorrectable", "1", 3)
    state.put("ecc_errors/aggregate/dram_uncorrectable", "1", 3)
    state.xid(48, 3, "pid=4242, name=python3, An uncorrectable double bit error (DBE)")


def _remap_pending(state: State) -> None:
    state.put("remapped_rows/remapped_row_pending", "Yes", 4)
    state.put("remapped_rows/remapped_row_unc", "1", 4)
    state.put("gpu_recovery_action", "Drain and Reset", 4)
    state.xid(63, 4, "pid='<unknown>', name=<unknown>, Row Remapper: New row marked for remapping")


def _remap_failure(state: State) -> None:
    state.put("remapped_rows/remapped_row_failure", "Yes", 4)
    state.xid(64, 4, "pid='<unknown>', name=<unknown>, Row Remapper: failed to record a new row")


def _link_x8(state: State) -> None:
    state.put("pci/pci_gpu_link_info/link_widths/current_link_width", "8x", 1)
    _both_ends(state, 1, "current_link_width", "8")


def _link_gen5(state: State) -> None:
    for name in ("current_link_gen", "device_current_link_gen"):
        state.put(f"pci/pci_gpu_link_info/pcie_gen/{name}", "5", 1)
    _both_ends(state, 1, "current_link_speed", "32.0 GT/s PCIe")


def _persistence_off(state: State) -> None:
    state.put("persistence_mode", "Disabled")
    state.services[PERSISTENCED] = Service(active="inactive", enabled="disabled")


def _proprietary(state: State) -> None:
    """Load the proprietary module, which does not support Blackwell."""
    state.open = False
    state.broken("No devices were found", 6)
    for pci in GPUS:
        state.kernel_log.append(
            f"NVRM: The NVIDIA GPU {pci} (PCI ID: 10de:3182) "
            "installed in this system requires use of the NVIDIA open kernel modules."
        )


def _nvlink_down(state: State) -> None:
    state.links[GPUS[0]][11] = 0


def _swapped(state: State) -> None:
    """Swap GPUs 0 and 1 behind their switches, at the PCI addresses of the model."""
    devices = state.sys.at("devices")
    (here, one), (there, other) = _way(devices, GPUS[0]), _way(devices, GPUS[1])
    here[other], there[one] = there.pop(other), here.pop(one)


def _numa(state: State) -> None:
    function(state.sys, GPUS[2])["numa_node"] = line(1)


def _hung(state: State) -> None:
    state.broken("", 0)
    state.rc = HANG


def _not_loaded(state: State) -> None:
    """Unload the module, so that no tool responds."""
    del state.sys.at("module")["nvidia"]
    for pci in GPUS:
        del function(state.sys, pci)["driver"]
    state.version = ""
    state.broken(
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure "
        "that the latest NVIDIA driver is installed and running.",
        9,
    )
    state.nvml_code = 9
    state.services[FABRIC_MANAGER] = Service(active="failed", result="exit-code")
    state.services[PERSISTENCED] = Service(active="failed", result="exit-code")


def bind(state: State, pci: str, driver: str) -> None:
    """Bind a GPU to another driver."""
    above = "../" * (len(_path(state.sys.at("devices"), pci)) + 2)
    function(state.sys, pci)["driver"] = link(f"{above}bus/pci/drivers/{driver}")


def _nouveau(state: State) -> None:
    """Bind all GPUs to nouveau since boot."""
    _not_loaded(state)
    state.sys.at("module/nouveau")
    for pci in GPUS:
        bind(state, pci, "nouveau")


def _requires_reset(state: State) -> None:
    """Report `[GPU requires reset]` for GPU 2, as in a capture of 2026; other GPUs have values."""
    for path in (
        *("temperature/gpu_temp", "gpu_recovery_action", "ecc_errors/channel_repair_pending"),
        *("ecc_mode/current_ecc", "mig_mode/current_mig", "remapped_rows/remapped_row_pending"),
        "clocks_event_reasons/clocks_event_reason_hw_slowdown",
    ):
        state.put(path, "[GPU requires reset]", 2)
    state.xid(95, 2, "pid=7062, Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No")


def _nvlink5(state: State) -> None:
    """Log the lines of leptonai/gpud pulls 1160 and 1174: a link down, and harmless errors."""
    state.xid(149, 0, "NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x025001c6 0x00000000 0x00000000)")
    state.xid(149, 1, "NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x026001c6 0x00000000 0x00000000)")
    state.xid(145, 2, "RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x00000001)")
    state.xid(45, 3, "pid=18, name=python3, Ch 00000001 caused by previous Xid 149")


def _old_kernel(state: State) -> None:
    """Use a kernel without dma-buf; nvidia_peermem is not loaded either."""
    state.kernel = "5.10.0-30-amd64"


STATES: dict[str, Callable[[State], None]] = {
    "healthy": lambda state: None,
    "missing": _missing,
    "lost": _lost,
    "xid-79": _xid_79,
    "xid-62": lambda state: state.xid(
        62, 7, "pid=4242, name=python3, 0000(0000) 00000000 00000000"
    ),
    "fabric-in-progress": _in_progress,
    "fabric-no-ib-umad": _no_ib_umad,
    "fabric-failed": _values(6, ("fabric/status", "Unknown Error")),
    "fabric-unhealthy": _values(
        6, ("fabric/health/summary", "Unhealthy"), ("fabric/health/route_unhealthy", "True")
    ),
    "fabric-manager-stopped": _fabric_manager_stopped,
    "fabric-manager-other": _fabric_manager_other,
    "mismatch": _mismatch,
    "ecc": _ecc,
    "ecc-aggregate": _values(3, ("ecc_errors/aggregate/dram_uncorrectable", "2")),
    "ecc-off": _values(
        3, ("ecc_mode/current_ecc", "Disabled"), ("ecc_mode/pending_ecc", "Disabled")
    ),
    "remap-pending": _remap_pending,
    "remap-failure": _remap_failure,
    "remapped-rows": _values(
        4, ("remapped_rows/remapped_row_corr", "500"), ("remapped_rows/remapped_row_unc", "13")
    ),
    "link-x8": _link_x8,
    "link-gen5": _link_gen5,
    "persistence-off": _persistence_off,
    "proprietary": _proprietary,
    "nvlink-down": _nvlink_down,
    "swapped": _swapped,
    "numa": _numa,
    "vbios": _values(6, ("vbios_version", "97.10.00.00.02")),
    "product": _values(6, ("product_name", "NVIDIA B200")),
    "mig": _values(3, ("mig_mode/current_mig", "Enabled"), ("mig_mode/pending_mig", "Enabled")),
    "slowdown": _values(
        7,
        ("clocks_event_reasons/clocks_event_reason_hw_slowdown", "Active"),
        ("clocks_event_reasons/clocks_event_reason_hw_thermal_slowdown", "Active"),
    ),
    "recovery": _values(2, ("gpu_recovery_action", "Reset")),
    "requires-reset": _requires_reset,
    "nvlink5": _nvlink5,
    "hung": _hung,
    "not-loaded": _not_loaded,
    "nouveau": _nouveau,
    "no-gpudirect": _old_kernel,
}


def state(name: str, version: str = VERSION, installed: str = "", product: str = PRODUCT) -> State:
    """Return a state by name, for further changes and `save`."""
    found = healthy(version, installed, product)
    STATES[name](found)
    return found


def save(found: State, directory: Path, sys: Optional[Path] = None) -> Path:
    """Write the files of a state. `sys` is an existing tree to link instead of building one."""
    root = directory / "root"
    root.mkdir(parents=True)
    texts = {
        "nvidia-smi.xml": _smi(found),
        "nvidia-smi.rc": f"{found.rc}\n",
        "nvml.txt": "".join(f"{text}\n" for text in _nvml(found)),
        "nv-fabricmanager.txt": f"Fabric Manager version is : {found.fabric_manager}\n",
        "services.txt": "".join(
            f"{name} {unit.load} {unit.active} {unit.enabled} {unit.result}\n"
            for name, unit in found.services.items()
        ),
        "modinfo.txt": f"{found.installed}\n{'Dual MIT/GPL' if found.open else 'NVIDIA'}\n",
        "root/proc/sys/kernel/osrelease": f"{found.kernel}\n",
        "root/var/log/kernel.json": "".join(
            json.dumps({"MESSAGE": text}) + "\n" for text in found.kernel_log
        ),
    }
    if found.version:
        texts["root/proc/driver/nvidia/version"] = _proc_version(found)
    for name, text in texts.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    if sys is None:
        build(found.sys, root / "sys")
    else:
        (root / "sys").symlink_to(sys)
    return directory


def _smi(found: State) -> str:
    before = f"{found.error}\n" if found.error else ""
    if not found.gpus:
        return before
    log = ET.Element("nvidia_smi_log")
    for name, text in (
        ("timestamp", "Sun Nov 22 02:00:00 2026"),
        ("driver_version", found.version),
        ("cuda_version", "13.0"),
        ("attached_gpus", str(len(found.gpus))),
    ):
        ET.SubElement(log, name).text = text
    log.extend(found.gpus.values())
    return before + HEAD + ET.tostring(log, encoding="unicode", short_empty_elements=False) + "\n"


def _nvml(found: State) -> list[str]:
    """Return `init CODE`, `library VERSION` and, per GPU, `gpu ID UUID LINKS` (1: active)."""
    lines = [f"init {found.nvml_code}", f"library 13.{found.installed}"]
    for pci, links in found.links.items() if not found.nvml_code else ():
        index = GPUS.index(pci)
        lines.append(f"gpu 0000{pci.upper()} {uuid(index)} {''.join(map(str, links))}")
    return lines


def _proc_version(found: State) -> str:
    kind = "Open Kernel Module for x86_64" if found.open else "x86_64 Kernel Module"
    return (
        f"NVRM version: NVIDIA UNIX {kind}  {found.version}  Release Build  (none@none)\n"
        "GCC version:  gcc version 13.3.0\n"
    )


def _both_ends(state: State, index: int, name: str, value: str) -> None:
    """Set a value of the link on the GPU and on the bridge above it."""
    devices = state.sys.at("devices")
    for pci in (GPUS[index], _path(devices, GPUS[index])[-1]):
        function(state.sys, pci)[name] = line(value)


def _path(tree: Directory, name: str) -> list[str]:
    """Return the directories above a function, starting at the root. Raises KeyError."""
    for here, node in tree.items():
        if here == name:
            return []
        if isinstance(node, Directory):
            try:
                return [here, *_path(node, name)]
            except KeyError:
                continue
    raise KeyError(name)


def _way(tree: Directory, name: str) -> tuple[Directory, str]:
    """Return the parent directory of a function, and the function's name in it."""
    here = tree
    for part in _path(tree, name):
        here = here.at(part)
    return here, name
