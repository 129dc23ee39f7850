# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Tools of a B300 node, whose output comes from a state: a simulation that says so.

Test nodes have it as /var/lib/gpu-stand-in/lib/stand_in.py. The stand-in packages and /usr/local
have small programs that call it under the name of the tool. README.md of the parent directory lists
the tools, the files that they read, and how to choose a state.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zlib
from pathlib import Path

HOME = Path("/var/lib/gpu-stand-in")
ROOT = HOME / "root"
NOW = HOME / "now"
BOOT = HOME / "boot"
RECORDED = "580.159.03"
"""Driver version in the recorded states. The running version replaces it."""
CUDA = {"580": "13.0", "590": "13.1"}
NOTICE = "(simulated: stand-in for tests, no GPU is behind this)"
KERNEL_OWN = (
    "ib_umad",
    "ib_uverbs",
    "ib_ipoib",
    "mlx5_core",
    "mlx5_ib",
    "rdma_cm",
    "rdma_ucm",
    "rpcrdma",
    "nouveau",
)
"""Modules included in the stand-in's kernel. DKMS builds the others from packages."""
RDMA = ("mlx5_core", "mlx5_ib", "ib_core", "ib_uverbs", "ib_umad", "rdma_cm", "rdma_ucm")
PARTS = {
    "nvidia": ("nvidia-uvm", "nvidia-modeset", "nvidia-drm", "nvidia-peermem"),
    "mlnx-ofed-kernel": RDMA,
    "mlnx-ofa_kernel": RDMA,
    "mlnx-nfsrdma": ("rpcrdma",),
    "nvidia-open": ("nvidia", "nvidia-uvm", "nvidia-modeset", "nvidia-drm", "nvidia-peermem"),
}
"""Additional kernel modules that DKMS builds from the source of a package."""


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def complain(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def kernel() -> str:
    recorded = ROOT / "proc/sys/kernel/osrelease"
    return recorded.read_text().strip() if recorded.exists() else os.uname().release


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def modules() -> Path:
    return Path("/lib/modules", kernel())


def on_disk(name: str) -> Path | None:
    """Return the file of a module that DKMS installed for the kernel: `key: value` lines."""
    return module_file(name, kernel())


def module_file(name: str, release: str) -> Path | None:
    """Accept both spellings: NVIDIA's files have hyphens, the kernel's have underscores."""
    folder = Path("/lib/modules", release, "updates/dkms")
    for spelling in (name.replace("_", "-"), name.replace("-", "_")):
        if (folder / f"{spelling}.ko").exists():
            return folder / f"{spelling}.ko"
    return None


def field(path: Path, key: str) -> str:
    lines = dict(line.split(": ", 1) for line in path.read_text().splitlines() if ": " in line)
    return lines.get(key, "")


# Loading and unloading, in the tree under ROOT.


def gpu_functions() -> list[Path]:
    found = []
    for function in sorted((ROOT / "sys/bus/pci/devices").glob("*")):
        vendor, kind = function / "vendor", function / "class"
        nvidia = vendor.exists() and vendor.read_text().strip() == "0x10de"
        if nvidia and kind.read_text().startswith("0x0302"):
            found.append(function)
    return found


def bind(driver: str) -> None:
    for function in gpu_functions():
        link = function / "driver"
        link.unlink(missing_ok=True)
        if driver:
            target = ROOT / "sys/bus/pci/drivers" / driver
            target.mkdir(parents=True, exist_ok=True)
            link.symlink_to(os.path.relpath(target, function.resolve()))


def load(name: str) -> bool:
    """Load a module into the kernel of the tree, as `modprobe` does. False if it does not exist."""
    name = name.replace("-", "_")
    folder = ROOT / "sys/module" / name
    path = on_disk(name)
    if folder.exists():
        return True
    if path is None and (name not in KERNEL_OWN or (name == "rpcrdma" and on_disk("ib_core"))):
        return False  # the kernel's module was built for the kernel's ib_core
    if name.startswith("nvidia_") and not load("nvidia"):
        return False
    folder.mkdir(parents=True)
    (folder / "initstate").write_text("live\n")
    if path is not None:
        for key in ("version", "srcversion"):
            (folder / key).write_text(f"{field(path, key)}\n")
    if name == "nvidia" and path is not None:
        show_driver(field(path, "version"), field(path, "license") == "Dual MIT/GPL")
        if not (ROOT / "sys/module/nouveau").exists():
            bind("nvidia")
    return True


def show_driver(version: str, is_open: bool) -> None:
    kind = "Open Kernel Module for x86_64" if is_open else "x86_64 Kernel Module"
    path = ROOT / "proc/driver/nvidia/version"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"NVRM version: NVIDIA UNIX {kind}  {version}  Release Build  {NOTICE}\n"
        "GCC version:  gcc version 13.3.0\n"
    )


def unload(name: str) -> None:
    name = name.replace("-", "_")
    shutil.rmtree(ROOT / "sys/module" / name, ignore_errors=True)
    if name == "nvidia":
        for other in (ROOT / "sys/module").glob("nvidia_*"):
            shutil.rmtree(other)
        (ROOT / "proc/driver/nvidia/version").unlink(missing_ok=True)
        bind("")


def boot() -> None:
    """Load what a boot loads: the driver of every GPU, and the modules in /etc/modules-load.d."""
    if BOOT.exists() and BOOT.read_text() == boot_id():
        return
    unload("nvidia")
    for name in ("gdrdrv", "nouveau", "rpcrdma", *RDMA):
        unload(name)
    for name in ("mlx5_core", "mlx5_ib", "ib_core", "ib_uverbs", "rdma_cm", "nvidia"):
        load(name)
    for path in sorted(Path("/etc/modules-load.d").glob("*.conf")):
        for line in path.read_text().splitlines():
            if line.strip() and line.strip()[0] not in "#;":
                load(line.strip())
    BOOT.write_text(boot_id())


def loaded() -> str:
    """Return the version of the running driver. The first query loads it, as on a real node."""
    boot()
    load("nvidia")
    path = ROOT / "sys/module/nvidia/version"
    return path.read_text().strip() if path.exists() else ""


def choose(name: str) -> None:
    """Switch to another state: its tree, with the modules loaded now, and its tool output."""
    target = HOME / "states" / name
    if not (target / "tree").exists():
        names = ", ".join(sorted(path.name for path in (HOME / "states").iterdir()))
        raise SystemExit(f"no such state: {name}; there are {names}")
    newer = HOME / "root.new"
    shutil.rmtree(newer, ignore_errors=True)
    shutil.copytree(target / "root", newer)
    with tarfile.open(HOME / "trees" / f"{(target / 'tree').read_text().strip()}.tar.gz") as tar:
        tar.extractall(newer)
    (newer / "proc/sys/kernel/osrelease").write_text((HOME / "kernel").read_text())
    first = not ROOT.exists()
    if not first:
        # Services continue to run, even if packages installed another version in the meantime.
        for path in ("sys/module", "proc/driver"):
            shutil.rmtree(newer / path, ignore_errors=True)
            if (ROOT / path).exists():
                shutil.copytree(ROOT / path, newer / path)
        shutil.rmtree(ROOT)
    newer.rename(ROOT)
    link = HOME / "now.new"
    link.unlink(missing_ok=True)
    link.symlink_to(target)
    link.rename(NOW)
    (HOME / "state").write_text(f"{name}\n")
    if first:
        BOOT.unlink(missing_ok=True)
        boot()
    for module in (target / "lacks").read_text().split():
        unload(module)
    if not (ROOT / "sys/module/nvidia").exists():
        bind("")


def active(unit: str) -> bool:
    done = subprocess.run(["systemctl", "is-active", "--quiet", unit], check=False)
    return done.returncode == 0


# The tools. Each gets its package version and its arguments, and returns its exit status.


def library() -> str:
    """Return the version of the installed NVML: the target of the link of its soname."""
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64"):
        link = Path(folder, "libnvidia-ml.so.1")
        if link.exists():
            return link.resolve().name.partition(".so.")[2]
    return ""


def nvidia_smi(version: str, words: list[str]) -> int:
    driver, lib = loaded(), library()
    if not lib:
        say(
            "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. "
            "Please make sure that the NVIDIA Display Driver is properly installed and present."
        )
        return 12
    if "--version" in words:
        say(f"NVIDIA-SMI version  : {version} (simulated)")
        say(f"NVML version        : {'.'.join(lib.split('.')[:2])}")
        say(f"DRIVER version      : {driver or 'N/A'}")
        say(f"CUDA Version        : {CUDA.get(driver[:3], 'N/A')}")
        return 0
    if not driver:
        say(
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
            "Make sure that the latest NVIDIA driver is installed and running."
        )
        return 9
    if driver != lib:
        short = ".".join(lib.split(".")[:2])
        say("Failed to initialize NVML: Driver/library version mismatch")
        say(f"NVML library version: {short}")
        return 18
    text, status = (NOW / "nvidia-smi.xml").read_text(), (NOW / "nvidia-smi.rc").read_text().strip()
    if status == "hang":
        time.sleep(3600)
    text = text.replace(RECORDED, driver)
    text = text.replace("<cuda_version>13.0<", f"<cuda_version>{CUDA.get(driver[:3], '13.0')}<")
    if not active("nvidia-persistenced.service"):
        text = text.replace("<persistence_mode>Enabled<", "<persistence_mode>Disabled<")
    if not active("nvidia-fabricmanager.service"):
        text = no_fabric(text)
    if "-q" in words and "-x" in words:
        wanted = words[words.index("-i") + 1] if "-i" in words else ""
        sys.stdout.write(only(text, wanted) if wanted else text)
    elif "-L" in words:
        for index, (name, uuid) in enumerate(
            re.findall(r"<product_name>(.*?)<.*?<uuid>(.*?)<", text, re.DOTALL)
        ):
            say(f"GPU {index}: {name} (UUID: {uuid})")
    else:
        say(f"NVIDIA-SMI {version}  Driver Version: {driver} {NOTICE}")
    return int(status)


def no_fabric(text: str) -> str:
    """No fabric manager runs: each GPU waits for the fabric."""
    text = re.sub(
        r"(<fabric>\s*<state>)Completed(</state>\s*<status>)Success<", r"\1In Progress\2N/A<", text
    )
    return re.sub(r"(<health>\s*<summary>)[^<]*<", r"\1N/A<", text)


def only(text: str, wanted: str) -> str:
    """Return one GPU of the XML, chosen by its PCI address as with `-i`."""
    kept = wanted.upper().removeprefix("0000:").removeprefix("00000000:")
    head, *gpus = re.split(r"(?=<gpu id=)", text)
    found = [gpu for gpu in gpus if kept in gpu.split(">", 1)[0]]
    if not found:
        return "No devices were found\n"
    start = head.index("<?xml") if "<?xml" in head else 0
    end = "" if "</nvidia_smi_log>" in found[0] else "</nvidia_smi_log>\n"
    return head[start:] + found[0] + end


def fabric_manager(version: str, words: list[str]) -> int:
    if "--version" in words or "-v" in words:
        recorded = (NOW / "nv-fabricmanager.txt").read_text().split(":")[1].strip()
        shown = version if recorded == RECORDED else recorded
        say(f"Fabric Manager version is : {shown}")
        return 0
    driver = loaded()
    if driver != version:
        complain(
            f"fabric manager NVIDIA GPU driver interface version {version} don't match with driver "
            f"version {driver or 'none'}. Please update with matching NVIDIA driver package. "
            f"{NOTICE}"
        )
        return 1
    return _service("nvidia-fabricmanager.service")


def persistenced(version: str, words: list[str]) -> int:
    driver = loaded()
    if driver != version:
        complain(f"Failed to query NVIDIA devices: driver {driver or 'none'}, {version} {NOTICE}")
        return 1
    return _service("nvidia-persistenced.service")


def _service(unit: str) -> int:
    """Run a service. Returns 1 if the state lists it as failed."""
    for line in (NOW / "services.txt").read_text().splitlines():
        name, _load, is_active, *_rest = line.split()
        if name == unit and is_active == "failed":
            complain(f"{unit} failed {NOTICE}")
            return 1
    say(f"running {NOTICE}")
    return 0


def dcgm(version: str, words: list[str]) -> int:
    say(f"DCGM {version} {NOTICE}")
    return 0


def nvcc(version: str, words: list[str]) -> int:
    release = ".".join(version.split(".")[:2])
    say(f"nvcc: NVIDIA (R) Cuda compiler driver {NOTICE}")
    say("Copyright (c) 2005-2025 NVIDIA Corporation")
    say(f"Cuda compilation tools, release {release}, V{version}")
    return 0


def rdma_devices() -> list[tuple[str, Path]]:
    return [(path.name, path) for path in sorted((ROOT / "sys/class/infiniband").glob("*"))]


def ibv_devinfo(version: str, words: list[str]) -> int:
    if not (ROOT / "sys/module/mlx5_ib").exists():
        say("No IB devices found")
        return 255
    complain(f"ibv_devinfo {NOTICE}")
    if "-l" in words or "--list" in words:
        devices = rdma_devices()
        say(f"{len(devices)} HCA{'s' if len(devices) > 1 else ''} found:")
        for name, _path in devices:
            say(f"\t{name}")
        return 0
    for name, path in rdma_devices():
        say(f"hca_id:\t{name}")
        say("\ttransport:\t\t\tInfiniBand (0)")
        for label, file in (
            ("fw_ver", "fw_ver"),
            ("node_guid", "node_guid"),
            ("board_id", "board_id"),
        ):
            value = (path / file).read_text().strip() if (path / file).exists() else "unknown"
            say(f"\t{label}:\t\t\t\t{value}")
        for port in sorted((path / "ports").glob("*")):
            state = (port / "state").read_text().partition(":")[2].strip()
            layer = (port / "link_layer").read_text().strip()
            say(
                f"\t\tport:\t{port.name}\n\t\t\tstate:\t\t\tPORT_{state}\n\t\t\tlink_layer:\t\t{layer}"
            )
    complain(f"ibv_devinfo {NOTICE}")
    return 0


def ibv_devices(version: str, words: list[str]) -> int:
    say("    device          \t   node GUID\n    ------          \t----------------")
    for name, _path in rdma_devices():
        say(f"    {name:<16}\t0000000000000000")
    complain(f"ibv_devices {NOTICE}")
    return 0


def firmware(version: str, words: list[str]) -> int:
    say(f"{Path(sys.argv[0]).name}, mft {version}, built on Jan 01 2026 {NOTICE}")
    return 0


def perftest(version: str, words: list[str]) -> int:
    say(f"Version: {version} {NOTICE}")
    return 0


def dkms(version: str, words: list[str]) -> int:
    """`status`, and `install`, `build`, `add`, `remove` of sources in /var/lib/dkms or /usr/src."""
    options = dict(zip(words, words[1:], strict=False))
    name, source = options.get("-m", ""), options.get("-v", "")
    if "/" in name:
        name, source = name.split("/", 1)
    release = options.get("-k", kernel())
    base = Path("/var/lib/dkms")
    command = next((word for word in words if not word.startswith("-")), "status")
    if command == "status":
        for path in sorted(base.glob("*/*/*/x86_64")):
            found, built, where = path.parts[-4:-1]
            if (not name or found == name) and (not source or built == source):
                word = (path / "status").read_text().strip()
                say(f"{found}/{built}, {where}, x86_64: {word}")
        return 0
    place = base / name / source / release / "x86_64"
    if command == "remove":
        shutil.rmtree(base / name / source, ignore_errors=True)
        for path in Path("/lib/modules").glob("*/updates/dkms/*.ko"):
            if field(path, "source") == f"{name}/{source}":
                path.unlink()
        return 0
    if not Path("/usr/src", f"{name}-{source}").is_dir():
        complain(
            f"Error! Could not find module source directory. /usr/src/{name}-{source} {NOTICE}"
        )
        return 2
    if (HOME / "dkms-fails").exists():
        place.mkdir(parents=True, exist_ok=True)
        (place / "status").write_text("built\n" if command == "build" else "added\n")
        complain(
            f"Error! Bad return status for module build on kernel: {release} (x86_64) {NOTICE}"
        )
        complain(f"Consult /var/lib/dkms/{name}/{source}/build/make.log for more information.")
        return 10
    headers = [Path(f"/usr/src/linux-headers-{release}"), Path(f"/usr/src/kernels/{release}")]
    if not any(path.is_dir() for path in headers):
        complain(
            f"Error! Your kernel headers for kernel {release} cannot be found at "
            f"/lib/modules/{release}/build or /lib/modules/{release}/source. {NOTICE}"
        )
        return 1
    place.mkdir(parents=True, exist_ok=True)
    (place / "status").write_text("installed\n")
    folder = Path("/lib/modules", release, "updates/dkms")
    folder.mkdir(parents=True, exist_ok=True)
    licence = {"nvidia": "Dual MIT/GPL", "nvidia-open": "Dual MIT/GPL"}.get(name, "GPL")
    names = PARTS.get(name, ()) + ((name,) if name in ("nvidia", "gdrdrv") else ())
    for part in names:
        (folder / f"{part}.ko").write_text(
            f"a stand-in for a kernel module {NOTICE}\n"
            f"version: {source}\nlicense: {licence}\nsource: {name}/{source}\n"
            f"srcversion: {zlib.crc32(f'{part} {source}'.encode()):024X}\n"
        )
    return 0


def modinfo(version: str, words: list[str]) -> int:
    options = dict(zip(words, words[1:], strict=False))
    values = {options.get(key) for key in ("-k", "-F", "-b")}
    names = [word for word in words if not word.startswith("-") and word not in values]
    ours = [name for name in names if name.replace("-", "_").startswith(("nvidia", "gdrdrv"))]
    found = {name: module_file(name, options.get("-k", kernel())) for name in names}
    if not ours and not any(found.values()):
        return real("modinfo", words)
    for name, path in found.items():
        if path is None:
            complain(f"modinfo: ERROR: Module {name} not found.")
        elif options.get("-F") == "filename":
            say(str(path))
        elif "-F" in options:
            say(field(path, options["-F"]))
        else:
            say(f"filename:       {path}")
            for key in ("version", "license", "srcversion"):
                say(f"{key}:{' ' * (15 - len(key))}{field(path, key)}")
    return 0 if all(found.values()) else 1


def modprobe(version: str, words: list[str]) -> int:
    names = [word for word in words if not word.startswith("-")]
    known = ("nvidia", "gdrdrv", *KERNEL_OWN)
    if not names or not names[0].replace("-", "_").startswith(known):
        return real("modprobe", words)
    boot()
    if "-r" in words or "--remove" in words:
        for name in names:
            unload(name)
        return 0
    dry = "-n" in words or "--dry-run" in words
    for name in names if "-a" in words or "--all" in words else names[:1]:
        if dry and (on_disk(name) or name.replace("-", "_") in KERNEL_OWN):
            continue
        if dry or not load(name):
            complain(f"modprobe: FATAL: Module {name} not found in directory {modules()}")
            return 1
    return 0


def journalctl(version: str, words: list[str]) -> int:
    if not {"-k", "--dmesg", "_TRANSPORT=kernel"} & {*words}:
        return real("journalctl", words)
    sys.stdout.write((ROOT / "var/log/kernel.json").read_text())
    return 0


def mokutil(version: str, words: list[str]) -> int:
    """Secure Boot is off unless HOME has the file `secure-boot`: `enabled`, or `enrolled` with a
    key."""
    path = HOME / "secure-boot"
    on = path.exists()
    if "--sb-state" in words:
        say(f"SecureBoot {'enabled' if on else 'disabled'}")
        return 0
    if "--test-key" in words:
        enrolled = on and "enrolled" in path.read_text()
        say(f"{words[-1]} is {'already' if enrolled else 'not'} enrolled")
        return 1 if enrolled else 0
    return 0


def initramfs(version: str, words: list[str]) -> int:
    say(f"update of the initramfs {NOTICE}")
    return 0


def real(name: str, words: list[str]) -> int:
    """Return the system's program that the stand-in replaces."""
    for folder in ("/usr/sbin", "/usr/bin", "/sbin", "/bin"):
        path = Path(folder, name)
        if path.exists():
            os.execv(path, [name, *words])
    complain(f"{name}: not found")
    return 127


TOOLS = {
    "nvidia-smi": nvidia_smi,
    "nv-fabricmanager": fabric_manager,
    "nvidia-persistenced": persistenced,
    "nv-hostengine": dcgm,
    "dcgmi": dcgm,
    "nvcc": nvcc,
    "ibv_devinfo": ibv_devinfo,
    "ibv_devices": ibv_devices,
    "mlxconfig": firmware,
    "mlxfwmanager": firmware,
    "mst": firmware,
    "flint": firmware,
    "ib_write_bw": perftest,
    "dkms": dkms,
    "modinfo": modinfo,
    "modprobe": modprobe,
    "journalctl": journalctl,
    "mokutil": mokutil,
    "update-initramfs": initramfs,
    "dracut": initramfs,
}


def main(name: str, version: str) -> int:
    words = sys.argv[1:]
    if name == "gpu-stand-in":
        if words[:1] == ["boot"]:
            boot()
        elif words[:1] == ["state"] and len(words) == 2:
            choose(words[1])
        else:
            say((HOME / "state").read_text().strip())
        return 0
    return TOOLS[name](version, words)
