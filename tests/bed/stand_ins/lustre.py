# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Packages of a Lustre client, with the names and relations of Lustre's sources.

Their programs are content/lustre_stand_in.py, whose state is on the node: no kernel module is built
or loaded, and nothing is mounted.
"""

from __future__ import annotations

from pathlib import Path

from .package import File, Package

VERSION = "2.15.7"
PLACE = f"lustre/{VERSION}"
"""Path of the repository, relative to an edition."""
LAYOUT = "client"
HOME = "/var/lib/lustre-stand-in"
BEHAVIOUR = Path(__file__).parent / "content/lustre_stand_in.py"
LIBRARY = f"{HOME}/lib/lustre_stand_in.py"
CONTROL = "/usr/local/sbin/lustre-stand-in"
PROGRAMS = {
    "/usr/sbin/lnetctl": "lnetctl",
    "/usr/sbin/lctl": "lctl",
    "/usr/bin/lfs": "lfs",
    "/usr/sbin/mount.lustre": "mount.lustre",
    "/usr/sbin/lustre_rmmod": "lustre_rmmod",
    "/usr/libexec/lustre-stand-in/modprobe": "modprobe",
}
CONFIGURATION = "# lnet.conf (simulated: stand-in for tests), empty as Lustre's package has it.\n"
SERVICE = f"""[Unit]
Description=lnet management (simulated: stand-in for tests)
Requires=network-online.target
After=network-online.target
ConditionPathExists=!{HOME}/root/sys/module/lnet

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/libexec/lustre-stand-in/modprobe lnet
ExecStart=/usr/sbin/lnetctl lnet configure
ExecStart=/usr/sbin/lnetctl import /etc/lnet.conf
ExecStop=/usr/sbin/lustre_rmmod

[Install]
WantedBy=multi-user.target
"""


def program(name: str) -> File:
    return File(
        f"""#!/usr/bin/python3
# Stand-in for tests: a simulation whose state is in {HOME}.
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, "{HOME}/lib")
import lustre_stand_in

sys.exit(lustre_stand_in.main("{name}", sys.argv[1:]))
""".encode(),
        0o755,
    )


def tools() -> dict[str, File]:
    return {
        **{path: program(name) for path, name in PROGRAMS.items()},
        "/usr/lib/systemd/system/lnet.service": File(SERVICE.encode()),
        "/etc/lnet.conf": File(CONFIGURATION.encode()),
    }


def of_the_node() -> dict[str, File]:
    """Files that no package contains: the state of the servers, and of a kernel without Lustre."""
    return {CONTROL: program("lustre-stand-in"), LIBRARY: File(BEHAVIOUR.read_bytes())}


def document(name: str) -> dict[str, File]:
    return {f"/usr/share/doc/{name}/stand-in": File(f"stand-in for {name} {VERSION}\n".encode())}


def packages(family: str, kernel: str) -> list[Package]:
    """`kernel`: release that Ubuntu's prebuilt modules are for."""
    forget = f"rm -rf {HOME}/root/sys/module {HOME}/state.json"
    if family == "ubuntu":
        full = f"{VERSION}-1"
        modules = ("lustre-client-modules-dkms", f"lustre-client-modules-{kernel}")
        return [
            *(
                Package(
                    name,
                    full,
                    requires=("dkms",) if name.endswith("-dkms") else (),
                    provides=("lustre-client-modules",),
                    files=document(name),
                )
                for name in modules
            ),
            Package(
                "lustre-client-utils",
                full,
                files=tools(),
                settings=("/etc/lnet.conf",),
                gone=forget,
            ),
        ]
    full = f"{VERSION}-1.el9"
    return [
        Package(
            "lustre-client-dkms",
            full,
            requires=("dkms",),
            provides=(f"kmod-lustre-client = {VERSION}", f"lustre-client-modules = {VERSION}"),
            files=document("lustre-client-dkms"),
        ),
        Package("kmod-lustre-client", full, files=document("kmod-lustre-client")),
        Package(
            "lustre-client",
            full,
            requires=("kmod-lustre-client >= 2.15",),
            files=tools(),
            settings=("/etc/lnet.conf",),
            gone=forget,
        ),
    ]
