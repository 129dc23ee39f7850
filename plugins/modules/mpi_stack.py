#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: mpi_stack
short_description: Configure Open MPI, UCX and mpi4py on one host, and read back what they offer
version_added: "0.1.0"
description:
  - Writes the MPI environment, its profile for login shells, Open MPI's parameter block and the
    programs that the launcher starts on each node, in one call.
  - Names every device, so that neither UCX nor Open MPI guesses one (a container bridge, say).
  - Ends by asking C(mpirun), C(ucx_info) and mpi4py what is installed and whether every rail can be
    used with the wanted transport.
  - Installs nothing; the role P(baremetal.mpi_roce.mpi_stack#role) installs the distribution's
    packages first.
options:
  transport:
    description: Transport between nodes. V(rc) needs an RDMA device behind every rail.
    type: str
    choices: [tcp, rc]
    default: tcp
  management:
    description: Management address of this host, as in C(cluster_management).
    type: dict
    required: true
    suboptions:
      address:
        description: IP address on the management network.
        type: str
        required: true
      prefix:
        description: Prefix length of the management network, in bits.
        type: int
        required: true
      interface:
        description: Management interface; not needed here, taken because the model has it.
        type: str
  rails:
    description:
      - Rails of this host, as in C(cluster_rails); only C(interface) and C(gpu) are used.
      - Empty on a launcher without rails.
    type: list
    elements: dict
    default: []
  slots:
    description: MPI slots (ranks) of this host.
    type: int
    default: 0
  oversubscribe:
    description: Whether ranks share cores. They then yield while waiting and are not bound.
    type: bool
    default: false
  tree_spawn:
    description:
      - Whether nodes start each other in a tree at launch. Quicker from some hundred nodes on, and
        one node that cannot reach another then breaks the launch.
    type: bool
    default: false
  concurrent_launches:
    description: Number of ssh connections the launcher opens at once.
    type: int
    default: 128
  mca_file:
    description: Open MPI's system-wide parameter file, where the distribution keeps it.
    type: path
    required: true
  bin_directory:
    description: Directory of C(mpirun) where it is not on the default path, else empty.
    type: str
    default: ''
  library_directory:
    description: Directory of Open MPI's libraries where the loader does not know it, else empty.
    type: str
    default: ''
  python_directory:
    description: Directory of mpi4py where Python does not look by itself, else empty.
    type: str
    default: ''
  python:
    description: Python interpreter that runs MPI programs.
    type: path
    default: /usr/bin/python3
  environment:
    description: Further environment variables, such as UCX settings. They win over the module's.
    type: dict
    default: {}
  parameters:
    description: Further Open MPI parameters. They override the module's own.
    type: dict
    default: {}
  profile:
    description: Content of the profile script for login shells.
    type: str
    required: true
  programs:
    description:
      - Programs to install under C(/usr/local/libexec/baremetal-mpi-roce), name to content.
    type: dict
    default: {}
author:
  - Baremetal MPI RoCE founders (@baremetal)
attributes:
  check_mode:
    description: Can run in check mode and return the changes without making them.
    support: full
  diff_mode:
    description: Returns the differences of every file.
    support: full
"""

EXAMPLES = r"""
- name: Tell MPI about this node
  baremetal.mpi_roce.mpi_stack:
    transport: tcp
    management: "{{ cluster_management }}"
    rails: "{{ cluster_rails }}"
    slots: "{{ cluster_slots }}"
    mca_file: /etc/openmpi/openmpi-mca-params.conf
    profile: "{{ lookup('ansible.builtin.file', 'profile.sh') }}"
    programs:
      orted: "{{ lookup('ansible.builtin.file', 'orted') }}"
"""

RETURN = r"""
layer:
  description: Tag of the layer.
  type: str
  returned: always
  sample: mpi
checks:
  description: Each promise, what was wanted and what was found.
  type: list
  elements: dict
  returned: always
  sample:
    - name: ucx_device
      subject: rail0
      wanted: tcp
      found: tcp
      status: ok
      reason: ''
versions:
  description: What is installed; a value is null when it did not answer.
  type: dict
  returned: always
  sample:
    open_mpi: 4.1.4
    ucx: 1.13.1
    mpi4py: 3.1.4
    numpy: 1.24.2
    linked_with: Open MPI v4.1.4
environment:
  description: The MPI environment of this host.
  type: dict
  returned: always
  sample:
    UCX_TLS: tcp,sm,self
    UCX_NET_DEVICES: rail0,rail1
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.baremetal.mpi_roce.plugins.module_utils import (
    checks,
    commands,
    files,
    mpi_environment,
    mpi_versions,
)


def wanted(params: dict) -> mpi_environment.Settings:
    """The module's arguments as settings, with the devices this host really has."""
    rails = mpi_environment.with_devices(
        mpi_environment.rails_from_model(params["rails"]),
        params["transport"],
        mpi_environment.rdma_devices(),
    )
    management = params["management"]
    return mpi_environment.Settings(
        layout=mpi_environment.Layout(
            params["mca_file"],
            params["bin_directory"],
            params["library_directory"],
            params["python_directory"],
        ),
        management_network=mpi_environment.management_network(
            management["address"], management["prefix"]
        ),
        transport=params["transport"],
        rails=tuple(rails),
        slots=params["slots"],
        oversubscribe=params["oversubscribe"],
        tree_spawn=params["tree_spawn"],
        concurrent_launches=params["concurrent_launches"],
        extra_environment={key: str(value) for key, value in params["environment"].items()},
        extra_parameters={key: str(value) for key, value in params["parameters"].items()},
    )


def plan(settings: mpi_environment.Settings, params: dict) -> list[files.FilePlan]:
    environment = mpi_environment.environment(settings)
    plans = [
        files.plan_file(
            Path(mpi_environment.ENVIRONMENT_FILE),
            files.with_header(mpi_environment.environment_text(environment)),
        ),
        files.plan_file(
            Path(mpi_environment.PROFILE_FILE), files.with_header(params["profile"].rstrip() + "\n")
        ),
    ]
    for name, content in sorted(params["programs"].items()):
        path = Path(mpi_environment.PROGRAM_DIRECTORY) / name
        plans.append(files.plan_file(path, content.rstrip() + "\n", mode=0o755))
    mca_file = Path(settings.layout.mca_file)
    there = files.plan_file(mca_file, None).before or ""
    block = mpi_environment.parameter_lines(mpi_environment.parameters(settings))
    plans.append(files.plan_file(mca_file, files.replace_block(there, block, "mpi")))
    return plans


def readback(
    settings: mpi_environment.Settings, params: dict, check_mode: bool
) -> tuple[list[checks.Check], mpi_versions.Installed]:
    mca_file = Path(settings.layout.mca_file)
    found = mpi_environment.effective_parameters(files.plan_file(mca_file, None).before or "")
    result = [
        checks.compare(
            "file",
            "as planned",
            "different" if one.changed else "as planned",
            subject=str(one.path),
            check_mode=check_mode,
            reason="written by something else as well",
        )
        for one in plan(settings, params)
    ]
    result += [
        checks.compare(
            "mpi_parameter",
            value,
            found.get(name),
            subject=name,
            check_mode=check_mode,
            reason=f"a later line of {mca_file} wins over the managed block; remove it",
        )
        for name, value in mpi_environment.parameters(settings).items()
    ]
    installed = mpi_versions.read(commands.run, params["python"])
    result += mpi_versions.readback(
        installed, settings.rails, settings.transport, check_mode=check_mode
    )
    return result, installed


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "transport": {"type": "str", "choices": ["tcp", "rc"], "default": "tcp"},
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
            "oversubscribe": {"type": "bool", "default": False},
            "tree_spawn": {"type": "bool", "default": False},
            "concurrent_launches": {"type": "int", "default": 128},
            "mca_file": {"type": "path", "required": True},
            "bin_directory": {"type": "str", "default": ""},
            "library_directory": {"type": "str", "default": ""},
            "python_directory": {"type": "str", "default": ""},
            "python": {"type": "path", "default": "/usr/bin/python3"},
            "environment": {"type": "dict", "default": {}},
            "parameters": {"type": "dict", "default": {}},
            "profile": {"type": "str", "required": True},
            "programs": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    try:
        settings = wanted(module.params)
        plans = plan(settings, module.params)
        changed = any(one.changed for one in plans)
        if not module.check_mode:
            for one in plans:
                one.apply()
        found, installed = readback(settings, module.params, module.check_mode)
    except (mpi_environment.SettingsError, commands.CommandError, OSError, ValueError) as error:
        module.fail_json(msg=f"mpi: {error}", layer="mpi", checks=[])
    result = {
        "changed": changed,
        "diff": files.diffs(plans),
        "layer": "mpi",
        "checks": checks.as_dicts(found),
        "versions": installed.versions(),
        "environment": mpi_environment.environment(settings),
    }
    failure = checks.failure_message(
        "mpi",
        found,
        "Check that the packages are installed (mpi_stack_packages) and that the rails are up "
        "(--tags rails), then run --tags mpi again.",
    )
    if failure:
        module.fail_json(msg=failure, **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
