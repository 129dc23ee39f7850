# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The archive that turns a virtual node into a B300 node, as far as files can; one per family.

It holds the repositories, the states of the GPUs, and replacements of system tools. `prepare.yml`
unpacks it and runs its script `begin`.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from tests.hardware import gpu_states
from tests.hardware.trees import scratch
from tools.record_hardware import Directory, build

from . import lustre
from .pieces import tool
from .versions import FIRST, KERNELS

HOME = "var/lib/gpu-stand-in"
CONTENT = Path(__file__).parent / "content"
SIMULATED = f"{gpu_states.PRODUCT} (simulated)"
LEFT_OUT = ("no-gpudirect", "mismatch", "not-loaded", "fabric-manager-stopped", "persistence-off")
"""States that are not chosen but result from an upgrade, or from a stopped service."""
IN_FRONT = ("modinfo", "modprobe", "mokutil", "update-initramfs", "dracut")
"""System programs that a stand-in replaces; it handles only what concerns the stand-ins."""

BOOT_UNIT = """\
[Unit]
Description=Load the kernel modules of a simulated GPU node (stand-in for tests)
After=virtual-node.service
Before=nvidia-persistenced.service nvidia-fabricmanager.service nvidia-dcgm.service
Before=ssh.service sshd.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/gpu-stand-in boot

[Install]
WantedBy=multi-user.target
"""

BEGIN = {
    "ubuntu": """\
#!/bin/sh
# Once on a node of tests: its distribution's packages, its state, and what a boot does.
set -eu
ln -sfn /srv/stand-ins/{edition} /srv/stand-ins/now
cat >/etc/apt/sources.list.d/stand-in-distribution.list <<END
deb [signed-by=/srv/stand-ins/distribution.asc] file:/srv/stand-ins/distribution /
END
apt-get -q -o Acquire::Languages=none update
""",
    "el": """\
#!/bin/sh
# Once on a node of tests: its distribution's packages, its state, and what a boot does.
set -eu
ln -sfn /srv/stand-ins/{edition} /srv/stand-ins/now
cat >/etc/yum.repos.d/stand-in-distribution.repo <<END
[stand-in-distribution]
name=Other packages of the distribution (stand-ins for tests)
baseurl=file:///srv/stand-ins/distribution
enabled=1
gpgcheck=1
repo_gpgcheck=0
gpgkey=file:///srv/stand-ins/distribution.asc
END
# Where libraries of EL are, and the linker of nodes that play EL does not look.
echo /usr/lib64 >/etc/ld.so.conf.d/stand-in-lib64.conf
rpm --import /srv/stand-ins/distribution.asc
rpm -q stand-in-shell >/dev/null 2>&1 || rpm -i /srv/stand-ins/distribution/stand-in-shell-*.rpm
""",
}
END = f"""\
/usr/local/sbin/gpu-stand-in state healthy
install -D -m 0644 /{HOME}/kernel {lustre.HOME}/root/proc/sys/kernel/osrelease
{lustre.CONTROL} >/dev/null
systemctl daemon-reload
systemctl enable -q gpu-stand-in.service
"""


def own_files(family: str, edition: str) -> dict[str, tuple[bytes, int]]:
    """Content and mode by path."""
    script = BEGIN[family].format(edition=edition) + END
    files = {
        f"{HOME}/lib/stand_in.py": ((CONTENT / "stand_in.py").read_bytes(), 0o644),
        f"{HOME}/kernel": (f"{KERNELS[family]}\n".encode(), 0o644),
        f"{HOME}/begin": (script.encode(), 0o755),
        "etc/systemd/system/gpu-stand-in.service": (BOOT_UNIT.encode(), 0o644),
    }
    for path, file in lustre.of_the_node().items():
        files[path.lstrip("/")] = (file.content, file.mode)
    for name in ("gpu-stand-in", *IN_FRONT):
        file = tool(name, "")
        files[f"usr/local/sbin/{name}"] = (file.content, file.mode)
    return files


def states(folder: Path) -> None:
    """Write every state to `folder`/states: the tools' output, and the tree that is its sys.

    Most states share one tree, whose creation takes half a second: each tree is created once.
    """
    trees: list[Directory] = []
    for name in gpu_states.STATES:
        if name in LEFT_OUT:
            continue
        found = gpu_states.state(name, version=FIRST.version, product=SIMULATED)
        tree, found.sys = found.sys, Directory()
        if tree not in trees:
            trees.append(tree)
        target = gpu_states.save(found, folder / "states" / name)
        (target / "tree").write_text(f"{trees.index(tree)}\n")
        # Modules that a boot loads but this state lacks, such as ib_umad.
        (target / "lacks").write_text("\n".join(sorted({"ib_umad"} - {*tree.at("module")})) + "\n")
    (folder / "trees").mkdir()
    for number, tree in enumerate(trees):
        with scratch() as work, tarfile.open(folder / f"trees/{number}.tar.gz", "w:gz") as tar:
            build(tree, work / "sys")
            tar.add(work / "sys", "sys")


def archive(family: str, edition: str, tree: Path, target: Path) -> None:
    """Pack `tree` as the root of a node, with the node's files."""
    with tarfile.open(target, "w:gz", compresslevel=1) as tar:
        tar.add(tree, ".", filter=_roots)
        for path, (content, mode) in own_files(family, edition).items():
            member = tarfile.TarInfo(f"./{path}")
            member.size, member.mode = len(content), mode
            tar.addfile(member, io.BytesIO(content))


def _roots(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    if member.isdir():
        member.mode = 0o755
    return member
