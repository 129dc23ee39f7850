#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: virtual_emulator
short_description: QEMU that virtual machines run on
extends_documentation_fragment: [baremetal.mpi_roce.module.reads]
description:
  - Finds the QEMU to run virtual nodes of the kind C(machine) with. Where the system's is too old
    for the igb card (before QEMU 8), fetches the one of Debian's backports and unpacks it beside.
  - Nothing of the system changes, and its apt sources stay as they are. apt verifies the packages.
  - Where none can be fetched the system's is taken, unless O(sriov) is wanted.
  - Runs as root on the machine that carries the virtual nodes.
options:
  sriov:
    description: Whether a card with SR-IOV is needed.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Have a QEMU with the igb card
  baremetal.mpi_roce.virtual_emulator:
    sriov: true
"""

RETURN = r"""
emulator:
  description: The program and the words it needs first.
  type: list
  elements: str
  returned: always
sriov: {type: bool, returned: always, description: Whether it has a card with SR-IOV.}
remark: {type: str, returned: always, description: "Why no newer one was taken, if so."}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.commands import CommandError, run
from ..module_utils.virtual.emulator import Emulator, fetch, fetched_emulator, system_emulator
from ..module_utils.virtual.image import one_builder
from ..module_utils.virtual.inventory import VirtualError


def main() -> None:
    module = AnsibleModule(
        argument_spec={"sriov": {"type": "bool", "default": False}}, supports_check_mode=True
    )

    def done(found: Emulator, *, changed: bool = False, remark: str = "") -> None:
        if module.params["sriov"] and not (found.sriov or module.check_mode):
            module.fail_json(
                msg="virtual_nodes_sriov_rails needs a QEMU with the igb card (8 or later), and "
                f"{found.words[0]} has none. {remark}"
            )
        module.exit_json(
            changed=changed, emulator=list(found.words), sriov=found.sriov, remark=remark
        )

    try:
        own = system_emulator(run)
        if own is not None and own.sriov:
            done(own)
        with one_builder():
            newer = fetched_emulator(run)
            if newer is not None:
                done(newer)
            if module.check_mode and own is not None:
                done(own, changed=True)
            done(fetch(run), changed=True)
    except VirtualError as error:
        if own is None:
            module.fail_json(msg=str(error))
        done(own, remark=str(error))
    except CommandError as error:
        module.fail_json(msg=f"QEMU of the virtual machines: {error}")


if __name__ == "__main__":
    main()
