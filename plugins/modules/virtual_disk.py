#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: virtual_disk
short_description: Disk that virtual machines boot from
version_added: "0.1.0"
author: Baremetal MPI RoCE founders (@baremetal)
description:
  - Builds the disk image that virtual nodes of the kind C(machine) boot from, unless one with the
    same inputs is there. The inputs are the files, the package lists and the release.
  - It is Debian with Debian's own kernel, GRUB, and a kernel module that simulates DCB settings.
  - Runs as root on the machine that carries the virtual nodes.
extends_documentation_fragment:
  - baremetal.mpi_roce.virtual.build
options:
  source:
    description: Folder with the files of machines and the program C(prepare).
    type: path
    required: true
  common:
    description: Folder with the files that containers have as well.
    type: path
    required: true
  suite:
    description: Debian release.
    type: str
    default: bookworm
  packages:
    description: Packages of the machines, the kernel and those that roles need included.
    type: list
    elements: str
    default: []
  build_packages:
    description: Packages that the kernel module is built with, removed afterwards.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    description: Says whether a disk would be built.
    support: full
  diff_mode:
    description: Shows the disk that would be built.
    support: full
"""

EXAMPLES = r"""
- name: Build the disk of virtual machines
  baremetal.mpi_roce.virtual_disk:
    source: "{{ role_path }}/files/machine"
    common: "{{ role_path }}/files/image/common"
    packages: [systemd-sysv, openssh-server, sudo, python3, linux-image-amd64]
    build_packages: [linux-headers-amd64, make]
"""

RETURN = r"""
disk:
  description: The disk image; its name holds the digest of its inputs.
  returned: always
  type: str
  sample: /var/lib/baremetal-mpi-roce/virtual/images/machine-1f0c2ab4d3e5.raw
kernel:
  description: The kernel of it, for trying out accelerators.
  returned: always
  type: str
  sample: /var/lib/baremetal-mpi-roce/virtual/images/machine-1f0c2ab4d3e5.kernel
build:
  description: Whether it was built, or has to be.
  returned: always
  type: bool
  sample: false
steps:
  description: What was done, with the seconds each step took.
  returned: when not in check mode
  type: list
  elements: dict
  sample: [{name: make its file system, seconds: 4.6}]
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.virtual.image import (
    ARGUMENTS,
    WORDS,
    Bootstrap,
    Disk,
    DiskBuilder,
    DiskRecipe,
    Step,
    build,
)
from ..module_utils.virtual.qemu import STATE


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **ARGUMENTS,
            "common": {"type": "path", "required": True},
            "packages": WORDS,
            "build_packages": WORDS,
        },
        supports_check_mode=True,
    )
    wanted = module.params
    recipe = DiskRecipe(
        suite=wanted["suite"],
        sources=tuple(Bootstrap(wanted["suite"], wanted["mirror"], ()).sources),
        packages=tuple(wanted["packages"]),
        build_packages=tuple(wanted["build_packages"]),
        source=Path(wanted["source"]),
        common=Path(wanted["common"]),
    )
    disk = Disk.of(recipe)

    def make() -> list[Step]:
        if disk.exists:
            return []
        builder = DiskBuilder(Path(wanted["log"]))
        steps = builder.build(recipe)
        builder.forget_old(STATE)
        return steps

    build(
        module,
        "disk of the virtual machines",
        str(disk.path),
        {"disk": str(disk.path), "kernel": str(disk.kernel)},
        exists=lambda: disk.exists,
        make=make,
    )


if __name__ == "__main__":
    main()
