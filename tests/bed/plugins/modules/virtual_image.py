#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: virtual_image
short_description: What virtual nodes start from
extends_documentation_fragment: [baremetal.mpi_roce.module]
description:
  - Builds the image of a family of containers, or the disk of machines, unless one with the same
    inputs is there. Inputs are the files, the package lists and the release.
  - An image stands on a Debian bootstrapped here from packages.
  - A disk is Debian with its own kernel, GRUB, and a kernel module that simulates DCB settings.
  - Runs as root on the machine that carries the virtual nodes.
options:
  family:
    description:
      - V(ubuntu) is netplan and apt, V(el) is NetworkManager and dnf, V(switch) has the simulations
        of switches, V(machine) is the disk of machines.
    type: str
    choices: [ubuntu, el, switch, machine]
    required: true
  source:
    description: Folder with the folders C(image), C(switch) and C(machine).
    type: path
    required: true
  suite:
    description: Debian release to bootstrap.
    type: str
    default: bookworm
  mirror:
    description:
      - Debian mirror. Security updates come from the same address with C(-security).
      - When empty, mmdebstrap takes the mirror it would take by itself.
    type: str
    default: ""
  bootstrap_packages:
    description: Packages of the bootstrapped Debian; of a disk, all that stay.
    type: list
    elements: str
    default: []
  base_packages:
    description: Packages a fresh server of this family has.
    type: list
    elements: str
    default: []
  role_packages:
    description: Packages of the image's own repository, for the roles to install.
    type: list
    elements: str
    default: []
  build_packages:
    description: Packages that a disk's kernel module is built with, removed afterwards.
    type: list
    elements: str
    default: []
  log:
    description: File that gets each step and all output as it happens.
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
  description: The image, or the path of the disk; its name has the digest of its inputs.
  type: str
  returned: always
build: {type: bool, returned: always, description: "Whether it was built, or has to be."}
steps:
  description: What was built, with the seconds each step took.
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

WORDS: dict[str, Any] = {"type": "list", "elements": "str", "default": []}


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
            "bootstrap_packages": WORDS,
            "base_packages": WORDS,
            "role_packages": WORDS,
            "build_packages": WORDS,
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
