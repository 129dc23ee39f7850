#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: virtual_image
short_description: Image of a family of virtual nodes
version_added: "0.1.0"
author: Baremetal MPI RoCE founders (@baremetal)
description:
  - Builds the image virtual nodes of one family boot from, unless an image with the same inputs is
    there. The inputs are the files in O(source), the package lists and the base.
  - Stands on a Debian bootstrapped here from packages, or on an ordinary OCI image.
  - Runs as root on the machine that carries the virtual nodes.
extends_documentation_fragment:
  - baremetal.mpi_roce.virtual.build
options:
  family:
    description:
      - V(ubuntu) is netplan and apt, V(el) is NetworkManager and dnf, V(switch) has the simulations
        of switches.
    type: str
    choices: [ubuntu, el, switch]
    required: true
  source:
    description:
      - Folder with the Containerfile and the files it copies.
      - Of V(switch) the folder above C(image) and C(switch).
    type: path
    required: true
  base:
    description:
      - An ordinary OCI image to stand on, for example C(docker.io/library/ubuntu:24.04).
      - Debian is bootstrapped here when empty.
    type: str
    default: ""
  suite:
    description: Debian release to bootstrap.
    type: str
    default: bookworm
  bootstrap_packages:
    description: Packages of the bootstrapped Debian.
    type: list
    elements: str
    default: []
  base_packages:
    description: Packages a fresh server of this family has.
    type: list
    elements: str
    default: []
  heavy_packages:
    description: Libraries put into the image so that roles install in seconds.
    type: list
    elements: str
    default: []
  role_packages:
    description: Packages of the image's own repository, for the roles to install.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    description: Says whether an image would be built.
    support: full
  diff_mode:
    description: Shows the image that would be built.
    support: full
"""

EXAMPLES = r"""
- name: Build the image of Ubuntu-like nodes
  baremetal.mpi_roce.virtual_image:
    family: ubuntu
    source: "{{ role_path }}/files/image"
    bootstrap_packages: [systemd-sysv, openssh-server, sudo, python3, iproute2]
    role_packages: [openmpi-bin]
"""

RETURN = r"""
image:
  description: The image, by name and digest of its inputs.
  returned: always
  type: str
  sample: localhost/virtual-node-ubuntu:1f0c2ab4d3e5
build:
  description: Whether it was built, or has to be.
  returned: always
  type: bool
  sample: false
steps:
  description: What was built, with the seconds each step took.
  returned: when not in check mode
  type: list
  elements: dict
  sample: [{name: build the ubuntu image, seconds: 19.2}]
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.commands import run
from ..module_utils.virtual.image import ARGUMENTS, WORDS, Bootstrap, Builder, Recipe, build


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **ARGUMENTS,
            "family": {"type": "str", "choices": ["ubuntu", "el", "switch"], "required": True},
            "base": {"type": "str", "default": ""},
            "bootstrap_packages": WORDS,
            "base_packages": WORDS,
            "heavy_packages": WORDS,
            "role_packages": WORDS,
        },
        supports_check_mode=True,
    )
    wanted = module.params
    base = Bootstrap(wanted["suite"], wanted["mirror"], tuple(wanted["bootstrap_packages"]))
    recipe = Recipe(
        family=wanted["family"],
        base=wanted["base"] or base.image,
        source=Path(wanted["source"]),
        packages={
            "BASE_PACKAGES": wanted["base_packages"],
            "HEAVY_PACKAGES": wanted["heavy_packages"],
            "ROLE_PACKAGES": wanted["role_packages"],
        },
    )
    builder = Builder(run, Path(wanted["log"]))

    build(
        module,
        f"image of the {wanted['family']} family",
        recipe.image,
        {"image": recipe.image},
        exists=lambda: builder.exists(recipe.image),
        make=lambda: builder.build(recipe, None if wanted["base"] else base),
    )


if __name__ == "__main__":
    main()
