# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Components of stand-in packages: programs, services, libraries, sources of kernel modules."""

from __future__ import annotations

import functools
import subprocess
import tempfile
from pathlib import Path

from .package import File, Package

LIBRARIES = {"ubuntu": "/usr/lib/x86_64-linux-gnu", "el": "/usr/lib64"}
UNITS = "/usr/lib/systemd/system"
Y, EL = "ubuntu", "el"
RELOAD = "if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi"
FAULT = """if [ -e /var/lib/gpu-stand-in/kill-package-manager ]; then
    rm -f /var/lib/gpu-stand-in/kill-package-manager
    # Once: the package manager that runs this script, as a power cut would end it.
    kill -9 $(ps -o pid= -C apt-get,dnf,dpkg,rpm) $PPID
    sleep 5
fi"""
"""Part of a package's script that lets a test interrupt the transaction there."""


def tool(name: str, version: str) -> File:
    """A program that imitates the package's tool."""
    return File(
        f"""#!/usr/bin/python3
# Stand-in for tests: a simulation that answers from /var/lib/gpu-stand-in.
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, "/var/lib/gpu-stand-in/lib")
try:
    import stand_in
except ImportError:
    sys.exit("{name}: stand-in for tests (simulated), and this machine has no state for it")
sys.exit(stand_in.main("{name}", "{version}"))
""".encode(),
        0o755,
    )


def unit(description: str, command: str, *lines: str) -> File:
    extra = "".join(f"{line}\n" for line in lines)
    return File(
        f"""[Unit]
Description={description} (simulated: stand-in for tests)
{extra}
[Service]
# No process needs to stay: the simulation answers from files.
Type=oneshot
RemainAfterExit=yes
ExecStart={command}

[Install]
WantedBy=multi-user.target
""".encode()
    )


@functools.cache
def shared_object(soname: str) -> bytes:
    """A file that the linker accepts as a library of this name, without content."""
    with tempfile.TemporaryDirectory() as folder:
        source, built = Path(folder, "library.c"), Path(folder, "library")
        source.write_text('const char stand_in[] = "simulated: stand-in for tests";\n')
        command = ("gcc", "-shared", "-fPIC", "-s", "-nostdlib", f"-Wl,-soname,{soname}", "-o")
        subprocess.run([*command, built, source], check=True, capture_output=True)
        return built.read_bytes()


def library(family: str, name: str, version: str, number: str = "1") -> dict[str, File]:
    folder, soname = LIBRARIES[family], f"{name}.so.{number}"
    return {
        f"{folder}/{name}.so.{version}": File(shared_object(soname)),
        f"{folder}/{soname}": File(link=f"{name}.so.{version}"),
    }


def document(name: str, version: str) -> dict[str, File]:
    """A file that shows that the package is installed."""
    return {f"/usr/share/doc/{name}/stand-in": File(f"stand-in for {name} {version}\n".encode())}


def dkms_source(name: str, version: str) -> dict[str, File]:
    text = f'PACKAGE_NAME="{name}"\nPACKAGE_VERSION="{version}"\n# simulated: stand-in for tests\n'
    return {f"/usr/src/{name}-{version}/dkms.conf": File(text.encode())}


def dkms_scripts(name: str, version: str) -> dict[str, str]:
    return {
        "after": f"dkms install -m {name} -v {version} -k"
        f" $(cat /var/lib/gpu-stand-in/root/proc/sys/kernel/osrelease) || true",
        "gone": f"dkms remove -m {name} -v {version} --all >/dev/null 2>&1 || true",
    }


def mft(version: str, origin: str) -> Package:
    """In the repositories of both CUDA and DOCA, with different versions."""
    names = ("mlxconfig", "mlxfwmanager", "mst", "flint")
    files = {f"/usr/bin/{name}": tool(name, f"{version} of {origin}") for name in names}
    return Package("mft", version, files=files)
