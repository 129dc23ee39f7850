#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: mpi_provider
short_description: Select packages, archives and directories of MPI for one host
extends_documentation_fragment:
  [baremetal.mpi_roce.module.reads, baremetal.mpi_roce.options.mpi_provider]
description:
  - Returns what the MPI of C(software.mpi.provider) consists of on this host. Changes nothing.
  - The action plugin of the same name compares checksums of files on the controller, and fails
    before any host is changed. The module itself only reads the state of the host.
attributes:
  check_mode:
    description: Reads the host as without check mode.
    support: full
  diff_mode:
    description: The module returns no diff.
    support: none
"""

EXAMPLES = r"""
- name: Select the MPI of this host
  baremetal.mpi_roce.mpi_provider:
    software: "{{ cluster_software }}"
    rails: "{{ cluster_rails }}"
    build_cache: /var/cache/mpi
  register: mpi
"""

RETURN = r"""
provider: {type: str, returned: success, description: Provider of the model.}
packages: {type: list, elements: str, returned: success, description: Packages to install.}
layout:
  description: Files and directories of the MPI, by option of M(baremetal.mpi_roce.mpi_stack).
  type: dict
  returned: success
unpack:
  description: Archives that the host lacks, with C(directory), C(url) and C(sha256) or C(file) of
    the controller, and C(inside), the directory of the archive that becomes C(directory).
  type: list
  elements: dict
  returned: success
host:
  description: C(mpi), C(begun) and C(toolkit) of this host, for M(baremetal.mpi_roce.mpi_build).
  type: dict
  returned: success
build:
  description: C(prefix), C(builds), C(cuda), C(pack) and C(packages) of the build; empty if there
    is nothing to build.
  type: dict
  returned: success
"""

import platform
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core import commands
from ..module_utils.mpi.build import work_of

TAG = 'import sys; print("cp%d%d" % sys.version_info[:2])'
TOOLKIT = Path("/usr/local/cuda/include")

ARGUMENTS = {
    "software": {"type": "dict", "default": {}},
    "transport": {"type": "str", "choices": ["tcp", "rc"], "default": "rc"},
    "rails": {"type": "list", "elements": "dict", "default": []},
    "packages": {"type": "list", "elements": "str", "default": []},
    "build_packages": {"type": "list", "elements": "str", "default": []},
    "build_cache": {"type": "path"},
    "python": {"type": "path", "default": "/usr/bin/python3"},
    "prefix": {"type": "str", "default": ""},
    "mpi4py": {"type": "str", "default": ""},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    prefix, version = module.params["prefix"], module.params["mpi4py"]
    try:
        tag = commands.run([module.params["python"], "-c", TAG]).stdout.strip()
    except commands.CommandError as error:
        module.fail_json(msg=f"mpi: {error}", layer="mpi", checks=[])
    module.exit_json(
        changed=False,
        machine=platform.machine(),
        python_tag=tag,
        mpi=Path(prefix).is_dir(),
        mpi4py=Path(f"{prefix}/mpi4py-{version}-{tag}").is_dir(),
        begun=work_of(prefix).is_dir(),
        toolkit=TOOLKIT.is_dir(),
    )


if __name__ == "__main__":
    main()
