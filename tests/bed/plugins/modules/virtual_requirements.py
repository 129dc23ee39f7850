#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: virtual_requirements
short_description: Check that this machine can run virtual nodes
extends_documentation_fragment: [baremetal.mpi_roce.module.reads]
description:
  - Checks root, programs, namespaces, podman, taps, inotify instances and memory. Fails with one
    line per missing requirement, each with its remedy.
  - Changes nothing.
options:
  nodes:
    description: Number of virtual nodes that are containers, not counting switches.
    type: int
    default: 5
  switches:
    description: Number of virtual switches.
    type: int
    default: 0
  machines:
    description: Memory in MiB of each virtual node that is a machine, by host name.
    type: dict
    default: {}
  cluster:
    description:
      - Name of the cluster. If it is up already, memory and inotify instances are not checked.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Check this machine
  baremetal.bed.virtual_requirements:
    nodes: 5
"""

RETURN = r""" # """

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Optional

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    Runner,
    run,
)

from ..module_utils.host_network import Instances, NetworkJournal

KEYRING = "usr/share/keyrings/debian-archive-keyring.gpg"
INOTIFY_PER_NODE = 10
INOTIFY_PER_SWITCH = 4
"""Upper bounds of inotify instances per node and per switch; 5 to 7 and 3 are usual."""
INSTANCE = "anon_inode:inotify"
MIB_PER_CONTAINER = 100
MIB_PER_SWITCH = 60
MIB_OF_QEMU = 150
"""Memory of QEMU in addition to the machine's: it also caches translated instructions."""

PROGRAMS = {
    "ip": "iproute2",
    "podman": "podman",
    "mmdebstrap": "mmdebstrap",
    "ssh-keygen": "openssh-client",
    "sysctl": "procps",
    "unshare": "util-linux",
}
"""Debian and Ubuntu package of each program."""
MACHINE_PROGRAMS = {
    "mkfs.ext4": "e2fsprogs",
    "qemu-img": "qemu-utils",
    "qemu-system-x86_64": "qemu-system-x86",
}

ADD_INTERFACES = "ip link add try0 type veth peer name try1 && ip link add try2 type bridge"
TRIALS = {
    "namespaces": (
        ("unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "true"),
        "this machine (a container?) may not create namespaces: use a virtual machine or a "
        "privileged container",
    ),
    "interfaces": (
        ("unshare", "--net", "sh", "-c", ADD_INTERFACES),
        "the kernel has no veth or bridge: modprobe veth bridge",
    ),
    "podman": (("podman", "info"), "see what `podman info` prints"),
    "taps": (
        ("unshare", "--net", "ip", "tuntap", "add", "dev", "try0", "mode", "tap"),
        "machines need taps, which /dev/net/tun does not provide: modprobe tun, pass the device "
        "to this container, or use containers only (virtual_nodes_kind)",
    ),
}
"""Commands to try, with the remedy if one fails. Taps are tried for machines only."""


def missing(
    wanted: Mapping[str, Any],
    *,
    is_up: bool = False,
    run: Runner = run,
    root: Path = Path("/"),
    which: Callable[[str], Optional[str]] = shutil.which,
    uid: Callable[[], int] = os.geteuid,
) -> list[str]:
    """List the missing requirements, each with its remedy. `wanted` are the module's options.

    Memory and inotify instances are not checked for nodes that are up. Nothing is tried while
    programs are missing.
    """
    if uid() != 0:
        return [f"root: uid {uid()} (needed: uid 0). Run as root, or with sudo"]
    programs = list(_programs(wanted, root, which))
    if programs:
        return programs
    problems = []
    for name, (command, remedy) in TRIALS.items():
        if name != "taps" or wanted["machines"]:
            try:
                run(command)
            except CommandError as error:
                problems.append(f"{name}: {error}. {remedy}")
    if not is_up:
        problems += shortages(wanted, root)
    return problems


def _programs(
    wanted: Mapping[str, Any], root: Path, which: Callable[[str], Optional[str]]
) -> Iterator[str]:
    programs = {**PROGRAMS, **(MACHINE_PROGRAMS if wanted["machines"] else {})}
    if wanted["switches"]:
        programs["openssl"] = "openssl"
    if not (root / "sys/fs/cgroup/cgroup.controllers").exists():
        programs["runc"] = "runc"
    if not (root / KEYRING).exists():
        yield f"/{KEYRING} is missing: apt-get install debian-archive-keyring"
    for program, package in programs.items():
        if not which(program):
            yield f"program {program} is missing: apt-get install {package}"


def shortages(wanted: Mapping[str, Any], root: Path = Path("/")) -> Iterator[str]:
    """Yield the resources that are too small for these nodes.

    systemd in every node watches files; the kernel counts the inotify instances of all root
    processes together.
    """
    need = wanted["nodes"] * INOTIFY_PER_NODE + wanted["switches"] * INOTIFY_PER_SWITCH
    limit, used = Instances(root=root).allowed(), _instances_of_root(root)
    if limit - used < need:
        wish = max(1024, 2 * (used + need))
        yield (
            f"inotify instances: {limit - used} of {limit} free (needed: {need}). sysctl -w "
            f"fs.inotify.max_user_instances={wish} (a line fs.inotify.max_user_instances = {wish} "
            "in /etc/sysctl.d/60-virtual-nodes.conf makes it permanent), or remove other nodes"
        )
    need = wanted["nodes"] * MIB_PER_CONTAINER + wanted["switches"] * MIB_PER_SWITCH
    need += sum(int(memory) + MIB_OF_QEMU for memory in wanted["machines"].values())
    lines = (root / "proc/meminfo").read_text(encoding="ascii").splitlines()
    free = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) // 1024
    if free < need:
        yield (
            f"memory: {free} MiB available (needed: {need}). Describe fewer nodes in cluster.yml, "
            "or add memory to this machine"
        )


def _instances_of_root(root: Path) -> int:
    used = 0
    for path in (root / "proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):  # the process may have exited
            if str(path.readlink()) == INSTANCE:
                status = (path.parents[1] / "status").read_text(errors="replace")
                used += "\nUid:\t0\t" in status
    return used


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "nodes": {"type": "int", "default": 5},
            "switches": {"type": "int", "default": 0},
            "machines": {"type": "dict", "default": {}},
            "cluster": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    cluster = module.params["cluster"]
    problems = missing(module.params, is_up=bool(cluster) and NetworkJournal(cluster).exists)
    if problems:
        listed = "\n".join(problems)
        module.fail_json(msg=f"This machine cannot run virtual nodes yet:\n{listed}")
    module.exit_json(changed=False)


if __name__ == "__main__":
    main()
