#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: mpi_stack
short_description: Configures Open MPI, UCX and mpi4py on one host, and reads back what they offer
extends_documentation_fragment: [baremetal.mpi_roce.module, baremetal.mpi_roce.options.mpi_stack]
description:
  - Writes the MPI environment, its profile for login shells, Open MPI's parameter block and the
    programs that the launcher starts on each node. Every device is named explicitly.
  - With the transport V(rc), finds the RDMA device and GID of each rail, and marks traffic
    according to the QoS contract.
  - Finally queries C(mpirun), C(ucx_info) and mpi4py for versions and usable rails.
  - Installs nothing; the role P(baremetal.mpi_roce.mpi_stack#role) installs the packages first.
"""

EXAMPLES = r"""
- name: Configure MPI on this node
  baremetal.mpi_roce.mpi_stack:
    transport: rc
    management: "{{ cluster_management }}"
    rails: "{{ cluster_rails }}"
    slots: "{{ cluster_slots }}"
    gpus: "{{ cluster_gpus | length }}"
    qos: "{{ cluster_qos }}"
    mca_file: /etc/openmpi/openmpi-mca-params.conf
    profile: "{{ lookup('ansible.builtin.file', 'profile.sh') }}"
"""

RETURN = r"""
layer: {type: str, returned: always, description: Tag of the layer.}
checks: {type: list, elements: dict, returned: always, description: See docs/checks.md.}
versions: {type: dict, returned: always, description: Installed versions.}
environment: {type: dict, returned: always, description: The MPI environment of this host.}
rdma: {type: list, elements: dict, returned: for V(rc), description: RDMA port and GID of rails.}
"""

import ipaddress
from dataclasses import fields
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.engine import Layer, Settled, carry_out, settle
from ..module_utils.core.part import Node
from ..module_utils.hardware import SurveyError
from ..module_utils.mpi import environment
from ..module_utils.mpi.launch.launcher import of_provider
from ..module_utils.mpi.modulefiles import Modulefiles
from ..module_utils.mpi.stack import Stack
from ..module_utils.mpi.unpacked import Former, Paths
from ..module_utils.packages.installed import Installed
from ..module_utils.qos import HostSettings
from ..module_utils.storage.file_system import CHECKPOINTS, DATASETS, of_variable

STORAGE_VARIABLES = {CHECKPOINTS: "CLUSTER_CHECKPOINT_DIR", DATASETS: "CLUSTER_DATASETS_DIR"}
"""Variables by purpose of a file system. Home directories and software need none, as their paths
are fixed.
"""
LAYOUT_VARIABLES = {
    "bin_directory": "MPI_ROCE_BIN",
    "library_directory": "MPI_ROCE_LIB",
    "python_directory": "MPI_ROCE_PYTHON",
}
LAYER = Layer("mpi", command_s=60.0, refusals=(SurveyError, ValueError), simulates=False)


def wanted(params: dict[str, Any]) -> environment.MpiSettings:
    """Settings from the arguments, before the devices of this host are known."""
    management, slots = params["management"], params["slots"]
    # Only nodes without rails have ranks that communicate on the management network.
    transport = params["transport"] if params["rails"] or not slots else "tcp"
    network = ipaddress.ip_interface(f"{management['address']}/{management['prefix']}").network
    return environment.MpiSettings(
        management_network=str(network),
        transport=transport,
        rails=tuple(environment.rails_from_model(params["rails"])),
        slots=slots,
        management_interface=management["interface"] or "",
        management_address=management["address"],
        qos=HostSettings.of(params["qos"]) if params["qos"] else None,
        launcher=of_provider(params["provider"]),
        directories={**layout(params), **storage_directories(params)},
        oversubscribe=params["oversubscribe"],
        tree_spawn=params["tree_spawn"],
        concurrent_launches=params["concurrent_launches"],
        extra_environment={key: str(value) for key, value in params["environment"].items()},
        extra_parameters={key: str(value) for key, value in params["parameters"].items()},
    )


def layout(params: dict[str, Any]) -> dict[str, str]:
    """Directories of this MPI outside the default paths, and its other variables."""
    found = {name: params[key] for key, name in LAYOUT_VARIABLES.items() if params[key]}
    return {**found, **params["variables"]}


def modulefiles(params: dict[str, Any]) -> Modulefiles:
    settings, given = wanted(params), (params["modulefiles"], params["keep_former"])
    variables = {**layout(params), **environment.of_launcher(settings)}
    return Modulefiles(params["prefix"], variables, settings.launcher, *given)


def storage_directories(params: dict[str, Any]) -> dict[str, str]:
    """Shared file systems of this host by variable: the first one for each purpose."""
    found: dict[str, str] = {}
    for fs in map(of_variable, params["filesystems"]):
        if set(fs.hosts) & set(params["groups"]) and fs.purpose in STORAGE_VARIABLES:
            found.setdefault(STORAGE_VARIABLES[fs.purpose], fs.mount)
    return found


# Generated from layers/ by tools/generate_layers.py.
ARGUMENTS = {
    "packages": {"type": "list", "elements": "str", "default": []},
    "transport": {"type": "str", "choices": ["tcp", "rc"], "default": "rc"},
    "management": {
        "type": "dict",
        "required": True,
        "options": {
            "address": {"type": "str", "required": True},
            "prefix": {"type": "int", "required": True},
            "interface": {"type": "str"},
        },
    },
    "rails": {"type": "list", "elements": "dict", "default": []},
    "slots": {"type": "int", "default": 0},
    "gpus": {"type": "int", "default": 0},
    "numa_cores": {"type": "dict", "default": {}},
    "qos": {"type": "dict", "default": {}},
    "filesystems": {"type": "list", "elements": "dict", "default": []},
    "groups": {"type": "list", "elements": "str", "default": []},
    "oversubscribe": {"type": "bool", "default": False},
    "tree_spawn": {"type": "bool", "default": False},
    "concurrent_launches": {"type": "int", "default": 128},
    "mca_file": {"type": "path", "required": True},
    "bin_directory": {"type": "str", "default": ""},
    "library_directory": {"type": "str", "default": ""},
    "ucx_file": {"type": "path", "default": "etc/ucx/ucx.conf"},
    "nccl_file": {"type": "bool"},
    "nccl": {"type": "bool", "default": False},
    "prefix": {"type": "str", "default": ""},
    "provider": {"type": "str", "default": "distribution"},
    "variables": {"type": "dict", "default": {}},
    "modulefiles": {"type": "bool", "default": False},
    "keep_former": {"type": "bool", "default": False},
    "python_directory": {"type": "str", "default": ""},
    "python": {"type": "path", "default": "/usr/bin/python3"},
    "environment": {"type": "dict", "default": {}},
    "parameters": {"type": "dict", "default": {}},
    "profile": {"type": "str", "required": True},
    "programs": {"type": "dict", "default": {}},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    params = module.params

    def converge(node: Node) -> Settled:
        given = {field.name: params[field.name] for field in fields(Stack) if field.name in params}
        # Groups of kinds: see docs/architecture.md.
        kinds = [name.partition("_")[2] for name in params["groups"] if name.startswith("kind_")]
        stack = Stack(wanted(params), kind="".join(kinds[:1]), **given)
        directory = params["bin_directory"].partition(":")[0] or "/usr/bin"
        former = Former(params["prefix"], params["keep_former"])
        packages = Installed(params["packages"])
        outcome = settle([packages, stack, Paths(directory), former, modulefiles(params)], node)
        return Settled(outcome, returned=stack.returned())

    carry_out(module, LAYER, converge)


if __name__ == "__main__":
    main()
