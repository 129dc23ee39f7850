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
  - With the transport V(rc) it finds the RDMA device of each rail and the place of its RoCE v2 GID
    that has the rail's own address, and marks traffic as the QoS contract says.
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
      address: {type: str, required: true, description: IP address on the management network.}
      prefix:
        description: Prefix length of the management network, in bits.
        type: int
        required: true
      interface:
        description: Management interface, over which NCCL's ranks meet; may be empty.
        type: str
  rails:
    description:
      - Rails of this host, as in C(cluster_rails); C(interface), C(gpu) and C(address) are used.
      - Empty on a launcher without rails.
    type: list
    elements: dict
    default: []
  slots: {type: int, default: 0, description: MPI slots (ranks) of this host.}
  gpus:
    description: GPUs of this host. With some, V(rc) also offers UCX the ways to GPU memory it has.
    type: int
    default: 0
  qos:
    description:
      - What the QoS contract asks of a node, as in C(cluster_qos). Used with the transport V(rc).
    type: dict
    default: {}
  user:
    description: Account whose session proves how much memory may be locked; V(nobody) until it is.
    type: str
    default: nobody
  filesystems:
    description:
      - Shared file systems, as in C(cluster_filesystems).
      - On hosts that mount them, the environment says where checkpoints (C(CLUSTER_CHECKPOINT_DIR))
        and datasets (C(CLUSTER_DATASETS_DIR)) are.
    type: list
    elements: dict
    default: []
  groups:
    description: Groups of this host, by which it mounts them.
    type: list
    elements: str
    default: []
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
    default: ""
  library_directory:
    description: Directory of Open MPI's libraries where the loader does not know it, else empty.
    type: str
    default: ""
  python_directory:
    description: Directory of mpi4py where Python does not look by itself, else empty.
    type: str
    default: ""
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
  profile: {type: str, required: true, description: Content of the profile script for login shells.}
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
    transport: rc
    management: "{{ cluster_management }}"
    rails: "{{ cluster_rails }}"
    slots: "{{ cluster_slots }}"
    gpus: "{{ cluster_gpus | length }}"
    qos: "{{ cluster_qos }}"
    user: "{{ cluster_mpi_user }}"
    mca_file: /etc/openmpi/openmpi-mca-params.conf
    profile: "{{ lookup('ansible.builtin.file', 'profile.sh') }}"
    programs:
      orted: "{{ lookup('ansible.builtin.file', 'orted') }}"
"""

RETURN = r"""
layer: {type: str, returned: always, sample: mpi, description: Tag of the layer.}
checks:
  description: Each promise, what was wanted and what was found.
  type: list
  elements: dict
  returned: always
  sample: [{name: ucx_device, subject: rail0, wanted: tcp, found: tcp, status: ok, reason: ""}]
versions:
  description: What is installed; a value is null when it did not answer.
  type: dict
  returned: always
  sample: {open_mpi: 4.1.4, ucx: 1.13.1, mpi4py: 3.1.4, numpy: 1.24.2, linked_with: Open MPI v4.1.4}
environment:
  description: The MPI environment of this host.
  type: dict
  returned: always
  sample: {UCX_TLS: "rc,ud,sm,self", UCX_NET_DEVICES: "mlx5_0:1,mlx5_3:1"}
rdma:
  description: The RDMA port of each rail, and the place of its address in the GID table.
  type: list
  elements: dict
  returned: when the transport is V(rc)
  sample: [{device: mlx5_0, port: 1, gid_index: 3, interface: rail0}]
"""

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core import checks, commands, files
from ..module_utils.core.checks import end
from ..module_utils.hardware import Machine, survey
from ..module_utils.mpi import (
    environment as mpi_environment,
)
from ..module_utils.mpi import (
    rdma as mpi_rdma,
)
from ..module_utils.mpi import (
    versions as mpi_versions,
)
from ..module_utils.os_baseline.limits import parse_proc
from ..module_utils.qos import HostSettings
from ..module_utils.storage.file_system import CHECKPOINTS, DATASETS, of_variable

LAYER = "mpi"
NCCL_FILE = Path("/etc/nccl.conf")
STORAGE_VARIABLES = {CHECKPOINTS: "CLUSTER_CHECKPOINT_DIR", DATASETS: "CLUSTER_DATASETS_DIR"}
"""By purpose of a file system. What is for homes and software is found by its path."""
REMEDY = (
    "Check that the packages are installed (mpi_stack_packages) and that the rails are up "
    "(--tags rails), then run --tags mpi again."
)


@dataclass(frozen=True)
class Rdma:
    """What was found of RDMA before anything is written; empty where it is not asked for."""

    machine: Machine = field(default_factory=Machine)
    ucx: mpi_versions.Ucx = field(default_factory=mpi_versions.Ucx)
    lacking: tuple = ()
    """A check for each rail that cannot be used."""


def wanted(params: dict) -> mpi_environment.Settings:
    """The module's arguments as settings, before anything is known of this host's devices."""
    rails = mpi_environment.rails_from_model(params["rails"])
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
        management_interface=management["interface"] or "",
        qos=HostSettings.of(params["qos"]) if params["qos"] else None,
        directories=storage_directories(params),
        oversubscribe=params["oversubscribe"],
        tree_spawn=params["tree_spawn"],
        concurrent_launches=params["concurrent_launches"],
        extra_environment={key: str(value) for key, value in params["environment"].items()},
        extra_parameters={key: str(value) for key, value in params["parameters"].items()},
    )


def storage_directories(params: dict) -> dict[str, str]:
    """Where this host has shared file systems, by variable: the first one of each purpose."""
    here = [
        fs
        for fs in map(of_variable, params["filesystems"])
        if set(fs.hosts) & set(params["groups"])
    ]
    found = {
        variable: next((fs.mount for fs in here if fs.purpose == purpose), None)
        for purpose, variable in STORAGE_VARIABLES.items()
    }
    return {variable: mount for variable, mount in found.items() if mount is not None}


def with_rdma(
    settings: mpi_environment.Settings, params: dict, check_mode: bool
) -> tuple[mpi_environment.Settings, Rdma]:
    """The settings with the RDMA devices of this host, and what its UCX can do."""
    if settings.transport != "rc":
        return settings, Rdma()
    machine = survey()
    rails, lacking = mpi_rdma.with_ports(settings.rails, machine, check_mode=check_mode)
    ucx = mpi_versions.read_ucx(commands.run)
    offered = tuple(one for one in mpi_environment.CUDA_TRANSPORTS if one in ucx.transports)
    settings = replace(
        settings,
        rails=tuple(rails),
        cuda=offered if params["gpus"] else (),
        reachability_mode=ucx.knows(mpi_environment.REACHABILITY.removeprefix("UCX_IB_")),
    )
    return settings, Rdma(machine, ucx, tuple(lacking))


def refuse(module: AnsibleModule, lacking: tuple) -> None:
    """Half the rails would be a cluster that is slow and does not say why: write nothing."""
    lines = "\n  ".join(check.line() for check in lacking)
    module.fail_json(
        msg=f"mpi: nothing was written: {len(lacking)} rail(s) cannot be used for rc:\n  {lines}",
        layer=LAYER,
        checks=checks.as_dicts(lacking),
    )


def plan(settings: mpi_environment.Settings, rdma: Rdma, params: dict) -> list[files.FilePlan]:
    plans = [
        files.plan_file(
            Path(mpi_environment.PROFILE_FILE), files.with_header(params["profile"].rstrip() + "\n")
        ),
    ]
    if not rdma.lacking:
        # In check mode a device may be yet to come, and with it what this file will say.
        environment = mpi_environment.environment_text(mpi_environment.environment(settings))
        path = Path(mpi_environment.ENVIRONMENT_FILE)
        plans.insert(0, files.plan_file(path, files.with_header(environment)))
    for name, content in sorted(params["programs"].items()):
        path = Path(mpi_environment.PROGRAM_DIRECTORY) / name
        plans.append(files.plan_file(path, content.rstrip() + "\n", mode=0o755))
    mca_file = Path(settings.layout.mca_file)
    there = files.plan_file(mca_file, None).before or ""
    block = mpi_environment.parameter_lines(mpi_environment.parameters(settings))
    plans.append(files.plan_file(mca_file, files.replace_block(there, block, "mpi")))
    return plans


def readback(
    settings: mpi_environment.Settings, rdma: Rdma, params: dict, changed: bool, check_mode: bool
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
        for one in plan(settings, rdma, params)
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
    # What UCX said before is what it says now, unless what it was asked with has changed.
    said = rdma.ucx if settings.transport == "rc" and (check_mode or not changed) else None
    installed = mpi_versions.read(commands.run, params["python"], said)
    result += mpi_versions.readback(
        installed, settings.rails, settings.transport, check_mode=check_mode
    )
    if settings.transport == "rc":
        result += rdma_readback(settings, rdma, installed.ucx, params, check_mode)
    return result, installed


def rdma_readback(
    settings: mpi_environment.Settings,
    rdma: Rdma,
    ucx: mpi_versions.Ucx,
    params: dict,
    check_mode: bool,
) -> list[checks.Check]:
    """What rc needs of this host, beyond what is installed."""
    there = files.plan_file(Path(mpi_environment.ENVIRONMENT_FILE), None).before or ""
    environment = mpi_environment.parse_environment(there)
    rails, machine = settings.rails, rdma.machine
    result = list(rdma.lacking)
    result += mpi_rdma.readback(rails, machine, settings.slots, environment, check_mode=check_mode)
    if rails and settings.qos is not None:
        result += mpi_rdma.contract_checks(
            settings.qos, rails, environment, ucx.settings, check_mode=check_mode
        )
        result += mpi_rdma.nccl_file_checks(
            files.plan_file(NCCL_FILE, None).before or "", environment
        )
        result.append(memlock(params["user"], check_mode))
    return result + mpi_rdma.cuda_check(
        params["gpus"], None if ucx.problem else settings.cuda, check_mode=check_mode
    )


def memlock(user: str, check_mode: bool) -> checks.Check:
    """How much memory a session of `user` may lock, beside how much there is."""
    known = commands.run(["id", "-u", user], check=False).rc == 0
    user = user if known else "nobody"
    limits = commands.run(["runuser", "-u", user, "--", "cat", "/proc/self/limits"]).stdout
    first = Path("/proc/meminfo").read_text(encoding="ascii").split("\n", 1)[0]
    memory = int(first.split()[1]) * 1024
    return mpi_rdma.memlock_check(
        parse_proc(limits).get("memlock"), memory, user, check_mode=check_mode
    )


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
            "gpus": {"type": "int", "default": 0},
            "qos": {"type": "dict", "default": {}},
            "user": {"type": "str", "default": "nobody"},
            "filesystems": {"type": "list", "elements": "dict", "default": []},
            "groups": {"type": "list", "elements": "str", "default": []},
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
        settings, rdma = with_rdma(wanted(module.params), module.params, module.check_mode)
        if checks.failures(rdma.lacking):
            refuse(module, rdma.lacking)
        plans = plan(settings, rdma, module.params)
        changed = any(one.changed for one in plans)
        if not module.check_mode:
            for one in plans:
                one.apply()
        found, installed = readback(settings, rdma, module.params, changed, module.check_mode)
    except (mpi_environment.SettingsError, commands.CommandError, OSError, ValueError) as error:
        module.fail_json(msg=f"mpi: {error}", layer=LAYER, checks=[])
    end(
        module,
        LAYER,
        found,
        REMEDY,
        changed=changed,
        diff=files.diffs(plans),
        versions=installed.versions(),
        environment=mpi_environment.environment(settings),
        rdma=[asdict(rail.rdma) for rail in settings.rails if rail.rdma is not None],
    )


if __name__ == "__main__":
    main()
