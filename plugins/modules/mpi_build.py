#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: mpi_build
short_description: Builds UCX and Open MPI from archives on one host, and packs them for the others
extends_documentation_fragment: [baremetal.mpi_roce.module, baremetal.mpi_roce.options.mpi_build]
description:
  - Configures, compiles and packs in C(PREFIX.build), at low priority and within a time limit.
    The archives, named as in O(builds), are already in its directory C(archives).
  - The action plugin of the same name runs it detached, shows its steps, and stores the pack on
    the controller. With O(read) it only determines which host must build, and changes nothing.
attributes:
  check_mode:
    description: Builds nothing.
    support: full
  diff_mode:
    description: The module returns no diff.
    support: none
"""

EXAMPLES = r"""
- name: Build UCX and Open MPI
  baremetal.mpi_roce.mpi_build:
    prefix: /opt/baremetal-mpi-roce/source-0123456789ab
    builds: "{{ cluster_software.mpi.sources.builds }}"
"""

RETURN = r"""
pack: {type: str, returned: after a build and with O(read), description: "Archive of the result on
  the controller, or empty."}
sha256: {type: str, returned: after a build, description: SHA-256 of the pack.}
bytes: {type: int, returned: after a build, description: Size of the pack.}
seconds: {type: float, returned: after a build, description: Duration in seconds.}
builder: {type: str, returned: with O(read), description: "Host that must build, or empty."}
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core import commands
from ..module_utils.core.locks import LOCKS, HeldError, alone, progress
from ..module_utils.core.part import StepError
from ..module_utils.mpi import build

ARGUMENTS = {
    "prefix": {"type": "path", "required": True},
    "builds": {"type": "list", "elements": "dict", "default": []},
    "jobs": {"type": "int", "default": 16},
    "time_limit_s": {"type": "float", "default": 3600},
    "pack": {"type": "path"},
    "read": {"type": "str"},
    "cuda": {"type": "bool", "default": False},
    "run_id": {"type": "str", "default": ""},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    given = module.params
    if module.check_mode:
        module.exit_json(changed=True)
    jobs = min(given["jobs"], os.cpu_count() or 1)
    wanted = build.Build(given["prefix"], given["builds"], jobs, given["time_limit_s"])
    try:
        with progress(given["run_id"] or str(os.getpid())) as show:
            show("build: waiting for another build on this host")
            with alone(LOCKS / "build.lock", given["time_limit_s"]):
                result = build.run(wanted, commands.run, show)
    except (HeldError, StepError, OSError) as error:
        module.fail_json(msg=f"mpi: the build failed: {error}", layer="mpi", checks=[])
    module.exit_json(changed=True, **result)


if __name__ == "__main__":
    main()
