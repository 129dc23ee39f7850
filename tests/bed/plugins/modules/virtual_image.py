#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: virtual_image
short_description: Build the image or disk of virtual nodes
extends_documentation_fragment: [baremetal.mpi_roce.module]
description:
  - Builds the image of a family of containers, or the disk of machines, unless one with the same
    inputs exists. Inputs are the files, the package lists and the release.
  - Images are based on a Debian that is bootstrapped from packages.
  - A disk holds Debian with its kernel, GRUB, and a kernel module that simulates DCB settings.
  - Runs as root on the machine that hosts the virtual nodes.
options:
  family:
    description:
      - V(ubuntu) has netplan and apt, V(el) has NetworkManager and dnf, V(switch) has the simulated
        switches, V(machine) is the disk of machines.
    type: str
    choices: [ubuntu, el, switch, machine]
    required: true
  source:
    description: Folder that contains C(image), C(switch) and C(machine).
    type: path
    required: true
  suite:
    description: Debian release to bootstrap.
    type: str
    default: bookworm
  mirror:
    description:
      - Debian mirror. Security updates come from the same address with C(-security).
      - If empty, mmdebstrap chooses the mirror.
    type: str
    default: ""
  bootstrap_packages:
    description: Packages of the bootstrapped Debian. For a disk, the final set of packages.
    type: list
    elements: str
    default: []
  base_packages:
    description: Packages of a freshly installed server of this family.
    type: list
    elements: str
    default: []
  role_packages:
    description: Packages of the repository inside the image, for the roles to install.
    type: list
    elements: str
    default: []
  build_packages:
    description: Packages needed to build the kernel module of a disk. They are removed afterwards.
    type: list
    elements: str
    default: []
  log:
    description: Log file of all steps and their output, written as they run.
    type: path
    default: /var/log/baremetal-mpi-roce/virtual-image.log
"""

EXAMPLES = r"""
- name: Build the image of Ubuntu-like nodes
  baremetal.bed.virtual_image:
    family: ubuntu
    source: "{{ role_path }}/files"
    bootstrap_packages: [systemd-sysv, openssh-server, sudo, python3, iproute2]
    role_packages: [openmpi-bin]
"""

RETURN = r"""
image:
  description: The image, or the path of the disk. The name contains the digest of the inputs.
  type: str
  returned: always
build: {type: bool, returned: always, description: "Whether it was built, or would be."}
steps:
  description: Steps of the build, with their duration in seconds.
  type: list
  elements: dict
  returned: when not in check mode
"""

from pathlib import Path
from typing import Any, NoReturn

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import run

from ..module_utils.image import (
    Bootstrap,
    Builder,
    DiskBuilder,
    DiskRecipe,
    Recipe,
    build,
)
from ..module_utils.qemu import STATE

STRINGS: dict[str, Any] = {"type": "list", "elements": "str", "default": []}


def image(module: AnsibleModule, bootstrap: Bootstrap) -> NoReturn:
    wanted = module.params
    recipe = Recipe(
        family=wanted["family"],
        base=bootstrap,
        source=Path(wanted["source"]),
        packages={
            "BASE_PACKAGES": wanted["base_packages"],
            "ROLE_PACKAGES": wanted["role_packages"],
        },
    )
    builder = Builder(run, Path(wanted["log"]))
    build(
        module,
        recipe.image,
        exists=lambda: builder.exists(recipe.image),
        make=lambda: builder.build(recipe),
    )


def disk(module: AnsibleModule, bootstrap: Bootstrap) -> NoReturn:
    wanted = module.params
    recipe = DiskRecipe(bootstrap, tuple(wanted["build_packages"]), Path(wanted["source"]))
    builder = DiskBuilder(Path(wanted["log"]))
    build(
        module,
        str(builder.disk(recipe)),
        exists=lambda: builder.exists(recipe),
        make=lambda: [] if builder.exists(recipe) else builder.build(recipe, STATE),
    )


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "family": {
                "type": "str",
                "choices": ["ubuntu", "el", "switch", "machine"],
                "required": True,
            },
            "source": {"type": "path", "required": True},
            "suite": {"type": "str", "default": "bookworm"},
            "mirror": {"type": "str", "default": ""},
            "bootstrap_packages": STRINGS,
            "base_packages": STRINGS,
            "role_packages": STRINGS,
            "build_packages": STRINGS,
            "log": {"type": "path", "default": "/var/log/baremetal-mpi-roce/virtual-image.log"},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    packages = tuple(wanted["bootstrap_packages"])
    make = disk if wanted["family"] == "machine" else image
    make(module, Bootstrap(wanted["suite"], wanted["mirror"], packages))


if __name__ == "__main__":
    main()
