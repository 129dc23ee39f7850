#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: virtual_nodes
short_description: Run virtual nodes as podman containers with systemd and SSH
extends_documentation_fragment: [baremetal.mpi_roce.module, baremetal.bed.virtual.nodes]
description:
  - Creates, starts and removes all containers of a cluster in one call. Waits until systemd is
    C(running) and SSH responds on every container.
  - Each container uses the network namespace created by M(baremetal.bed.virtual_network).
  - A container is recreated if its image or any of its settings changed.
  - Runs as root on the machine that hosts the virtual nodes.
options:
  families:
    description: Family of every node, by host name.
    type: dict
    default: {}
  images:
    description: Image of every family.
    type: dict
    default: {}
  releases:
    description: Release that a node reports instead of its image's default, by host name.
    type: dict
    default: {}
  folders:
    description:
      - Folders of nodes that are switches, by host name, as returned by
        M(baremetal.bed.virtual_switches).
    type: dict
    default: {}
  timeout_s:
    description: Seconds within which every node must be up.
    type: int
    default: 60
"""

EXAMPLES = r"""
- name: Bring up two nodes
  baremetal.bed.virtual_nodes:
    cluster: virtual
    management:
      node01: {address: 10.99.0.11, prefix: 24, interface: mgmt0}
      node02: {address: 10.99.0.12, prefix: 24, interface: mgmt0}
    families: {node01: ubuntu, node02: el}
    images:
      ubuntu: localhost/virtual-node-ubuntu:latest
      el: localhost/virtual-node-el:latest
    login_key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample operator
"""

RETURN = r"""
known_hosts:
  description: Lines for C(known_hosts), with the address and name of every node.
  type: str
  returned: when O(state=present), not in check mode
ssh_config:
  description: An SSH client configuration that reaches every node by name.
  type: str
  returned: when O(state=present), not in check mode
actions:
  description: Actions that were taken, or would be in check mode, one per container.
  type: list
  elements: str
  returned: always
seconds:
  description: Seconds from the first action until every node was up.
  type: float
  returned: always
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import run

from ..module_utils.containers import (
    Container,
    Podman,
    choose_limits,
    choose_runtime,
    podman_run,
    specification,
)
from ..module_utils.inventory import MANAGEMENT, VirtualError, node_namespace
from ..module_utils.nodes import ARGUMENTS, act, login_files, plan_work


def present(module: AnsibleModule, podman: Podman) -> dict[str, Any]:
    wanted = module.params
    cluster = wanted["cluster"]
    # In check mode an image may not exist yet: its nodes are new in any case.
    images = {name: wanted["images"][family] for name, family in wanted["families"].items()}
    ids = {
        image: podman.image_id(image) or (image if module.check_mode else "")
        for image in sorted(set(images.values()))
    }
    absent_images = ", ".join(image for image, identity in ids.items() if not identity)
    if absent_images:
        raise VirtualError(f"image {absent_images} does not exist: build or pull it first")
    nodes = [
        Container(
            name=name,
            address=settings["address"],
            interface=settings.get("interface") or MANAGEMENT,
            image=ids[images[name]],
            folder=wanted["folders"].get(name, {}).get("path", ""),
            digest=wanted["folders"].get(name, {}).get("digest", ""),
            release=wanted["releases"].get(name, ""),
        )
        for name, settings in wanted["management"].items()
    ]
    runtime = choose_runtime()
    limits = choose_limits()
    commands = {
        node_namespace(cluster, node.name): podman_run(
            cluster, node, wanted["login_key"].strip(), runtime=runtime, limits=limits
        )
        for node in nodes
    }
    specifications = {name: specification(command) for name, command in commands.items()}
    work = plan_work(specifications, podman.found())
    if module.check_mode:
        return {"actions": work.lines}
    podman.apply(work, commands)
    keys = podman.wait(nodes, wanted["timeout_s"])
    return {"actions": work.lines, **login_files(nodes, keys, wanted["directory"])}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **ARGUMENTS,
            "families": {"type": "dict", "default": {}},
            "images": {"type": "dict", "default": {}},
            "releases": {"type": "dict", "default": {}},
            "folders": {"type": "dict", "default": {}},
            "timeout_s": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    podman = Podman(module.params["cluster"], run)
    act(module, podman, lambda: present(module, podman))


if __name__ == "__main__":
    main()
