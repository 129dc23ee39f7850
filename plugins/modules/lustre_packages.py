#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Packages of the Lustre client."""

from __future__ import annotations

DOCUMENTATION = r"""
module: lustre_packages
short_description: Installs the packages of the Lustre client, pinned
extends_documentation_fragment:
  [baremetal.mpi_roce.module, baremetal.mpi_roce.options.lustre_packages]
description:
  - Called by the action plugin of M(baremetal.mpi_roce.shared_storage), before that module, on a
    host that mounts Lustre and for which a method is set. Packages are never changed while Lustre
    is mounted.
"""

EXAMPLES = r"""
- name: Install the Lustre client
  baremetal.mpi_roce.lustre_packages:
    packages: "{{ shared_storage_lustre.packages }}"
    key: "{{ lookup('file', 'keys/lustre.asc') | b64encode }}"
"""

RETURN = r"""
layer: {type: str, returned: always, description: Tag of the layer.}
checks: {type: list, elements: dict, returned: always, description: See docs/checks.md.}
"""

import base64
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.distribution import read_distribution
from ..module_utils.core.engine import Layer, Settled, carry_out, settle
from ..module_utils.core.part import Node
from ..module_utils.packages.installer import manager_of
from ..module_utils.storage.lustre import LustreKernel, LustrePackages
from ..module_utils.storage.lustre_packages import ClientPackages, client_packages

LAYER = Layer("storage", 900.0, simulates=False)


def converge(given: Mapping[str, Any], node: Node) -> Settled:
    packages, root = LustrePackages(**given["packages"]), Path(given["root"])
    found = read_distribution()
    release = (root / "proc/sys/kernel/osrelease").read_text().strip()
    key = base64.b64decode(given["key"])
    wanted = client_packages(packages, found, release, key, given["o2ib"], given["rdma_source"])
    kernel = LustreKernel(root, node.look, simulated=root != Path("/"))
    part = ClientPackages(packages, kernel, wanted, manager_of(found, wanted, LAYER.tag))
    return Settled(settle([part], node), whole=False)


ARGUMENTS = {
    "packages": {"type": "dict", "required": True},
    "key": {"type": "str", "required": True, "no_log": False},
    "root": {"type": "path", "default": "/"},
    "o2ib": {"type": "bool", "default": False},
    "rdma_source": {"type": "str", "default": ""},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    carry_out(module, LAYER, partial(converge, module.params))


if __name__ == "__main__":
    main()
