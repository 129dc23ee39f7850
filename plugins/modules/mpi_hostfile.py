#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write the MPI hostfile of the whole cluster, and rank placement beside it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: mpi_hostfile
short_description: Writes the MPI hostfile of the whole cluster, and rank placement beside it
version_added: "0.1.0"
author:
  - Baremetal MPI RoCE founders (@baremetal)
description:
  - Writes the hostfile that V(mpirun) reads, in the syntax of Open MPI, of Intel MPI and MPICH,
    or as a plain list, from the directory of the cluster. What it says never depends on the hosts
    of a run.
  - Drained nodes are left out and named in a comment.
  - Optionally writes a rankfile, which binds rank k of a node to the cores near GPU k, and a map of
    which GPU and rails each rank is to use.
  - Files are replaced atomically. Afterwards they are read back, and every name in the hostfile is
    resolved on this host and compared with the address in the directory.
extends_documentation_fragment:
  - baremetal.mpi_roce.directory
options:
  path:
    description: The hostfile. Missing directories are made.
    type: path
    default: /etc/baremetal-mpi-roce/hostfile
  format:
    description:
      - Syntax of the hostfile.
      - V(openmpi) is C(node01 slots=8 max_slots=8).
      - V(intelmpi) and V(mpich) are C(node01:8), to be given with C(-machinefile) (Intel MPI reads
        the number after the colon with that option only) or C(-f) (MPICH).
      - V(plain) repeats the name, one line for each slot, which tools without slots understand.
    type: str
    choices: [openmpi, intelmpi, mpich, plain]
    default: openmpi
  order:
    description:
      - Order of the nodes, and so of the ranks.
      - V(model) is the order of the cluster model. V(rack) and V(rail_group) keep nodes of one
        rack, or nodes whose rails end on the same leaves, together; both are otherwise in the order
        of the model.
    type: str
    choices: [model, rack, rail_group]
    default: model
  names:
    description:
      - Which names of the nodes MPI launches by, V(management), or the interface of a rail such as
        V(rail0), whose names are C(node01-rail0). This chooses the path of launch and out-of-band
        traffic, not that of the data.
    type: str
    default: management
  max_slots:
    description:
      - Also say C(max_slots), equal to the slots, so that Open MPI 5 refuses more ranks on a node
        even when told to oversubscribe. Open MPI 4 reads it and does not enforce it.
      - Only the format V(openmpi) can say it.
    type: bool
    default: true
  rankfile:
    description:
      - Whether to write a rankfile. When V(false), one that this module wrote earlier is removed.
      - Needs the format V(openmpi), a GPU for each slot, and O(numa_cores).
    type: bool
    default: false
  rankfile_path: {type: path, default: /etc/baremetal-mpi-roce/rankfile, description: The rankfile.}
  numa_cores:
    description:
      - The cores of each NUMA node, by its number, such as V(0-55). The same on every node.
      - They are hwloc's logical core numbers, as C(hwloc-calc --intersect core numa:0) prints them
        on a node.
      - Never guessed. A rankfile is refused while a NUMA node in use is missing here.
    type: dict
    default: {}
  rankfile_cores:
    description:
      - V(divided) gives each rank its part of the cores of its GPU's NUMA node, so that no two
        ranks share one. V(all) gives it all of them, which Open MPI 5 accepts only with C(--bind-to
        :overload-allowed).
    type: str
    choices: [divided, all]
    default: divided
  rankmap:
    description:
      - Whether to write a table of rank, host, local rank, GPU and rails, one line for each rank,
        for launch wrappers. When V(false), one that this module wrote earlier is removed.
    type: bool
    default: false
  rankmap_path: {type: path, default: /etc/baremetal-mpi-roce/rankmap, description: The table.}
attributes:
  check_mode:
    description: Computes the same files and writes nothing.
    support: full
  diff_mode:
    description: Shows each file that changes.
    support: full
"""

EXAMPLES = r"""
- name: Look the whole cluster up in the inventory
  baremetal.mpi_roce.cluster_directory:
  register: cluster
  run_once: true

- name: Write the hostfile of the whole cluster
  baremetal.mpi_roce.mpi_hostfile:
    directory: "{{ cluster.directory }}"

- name: Write it for Intel MPI, nodes of one rack together
  baremetal.mpi_roce.mpi_hostfile:
    directory: "{{ cluster.directory }}"
    format: intelmpi
    order: rack

- name: Bind each rank to the cores beside its GPU
  baremetal.mpi_roce.mpi_hostfile:
    directory: "{{ cluster.directory }}"
    rankfile: true
    rankmap: true
    numa_cores:
      0: 0-55
      1: 56-111
"""

RETURN = r"""
layer: {type: str, returned: always, sample: hostfile, description: The layer that speaks.}
hostfile:
  description: Path of the hostfile.
  type: str
  returned: success
  sample: /etc/baremetal-mpi-roce/hostfile
hosts:
  description: Names in the hostfile, in order.
  type: list
  elements: str
  returned: success
  sample: [node01, node02, node04]
slots:
  description: Ranks the hostfile has room for in all.
  type: int
  returned: success
  sample: 24
drained:
  description: Nodes that were left out.
  type: list
  elements: str
  returned: success
  sample: [node03]
checks:
  description: What was read back, one entry for each promise.
  type: list
  elements: dict
  returned: always
  sample:
    - {name: names_resolve, subject: "", wanted: 3 of 3, found: 3 of 3, status: ok, reason: ""}
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core import resolve
from ..module_utils.core.checks import Check, compare, end
from ..module_utils.core.files import HEADER, FilePlan, diffs, plan_file
from ..module_utils.mpi import hostfile, rankfile
from ..module_utils.names import hosts_table

LAYER = "hostfile"
HOSTS = Path("/etc/hosts")


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "list", "elements": "dict", "required": True},
            "path": {"type": "path", "default": "/etc/baremetal-mpi-roce/hostfile"},
            "format": {"type": "str", "choices": list(hostfile.FORMATS), "default": "openmpi"},
            "order": {"type": "str", "choices": list(hostfile.ORDERS), "default": "model"},
            "names": {"type": "str", "default": hostfile.MANAGEMENT},
            "max_slots": {"type": "bool", "default": True},
            "rankfile": {"type": "bool", "default": False},
            "rankfile_path": {"type": "path", "default": "/etc/baremetal-mpi-roce/rankfile"},
            "numa_cores": {"type": "dict", "default": {}},
            "rankfile_cores": {
                "type": "str",
                "choices": ["divided", "all"],
                "default": "divided",
            },
            "rankmap": {"type": "bool", "default": False},
            "rankmap_path": {"type": "path", "default": "/etc/baremetal-mpi-roce/rankmap"},
        },
        supports_check_mode=True,
    )
    arguments: dict[str, Any] = module.params
    try:
        membership = hostfile.compile_membership(
            arguments["directory"], order=arguments["order"], names=arguments["names"]
        )
        wanted = membership.hostfile(arguments["max_slots"] and arguments["format"] == "openmpi")
        plans = plan(membership, wanted, arguments)
    except hostfile.HostfileError as error:
        module.fail_json(msg=f"hostfile: nothing was written:\n  {error}", layer=LAYER, checks=[])
    except OSError as error:
        module.fail_json(
            msg=f"hostfile: cannot read {error.filename}: {error.strerror}", layer=LAYER
        )

    if not module.check_mode:
        for each in plans:
            try:
                each.apply()
            except OSError as error:
                module.fail_json(
                    msg=f"hostfile: cannot write {each.path}: {error.strerror}: it is as it was",
                    layer=LAYER,
                )

    checks = [
        *read_back(plans, wanted, arguments["format"], module.check_mode),
        *names(membership, module.check_mode),
    ]
    end(
        module,
        LAYER,
        checks,
        "Where names do not resolve: run the layer names on this host (--tags names).",
        changed=any(each.changed for each in plans),
        diff=diffs(plans),
        hostfile=arguments["path"],
        hosts=[entry.host for entry in wanted.entries],
        slots=wanted.slots,
        drained=list(wanted.drained),
        # Ansible would send the whole directory back as part of the arguments.
        invocation={
            "module_args": {**arguments, "directory": f"{len(arguments['directory'])} hosts"}
        },
    )


def plan(
    membership: hostfile.Membership, wanted: hostfile.Hostfile, arguments: dict[str, Any]
) -> list[FilePlan]:
    """The files as they are and as they are wanted."""
    ranks = places = None
    if arguments["rankfile"]:
        if arguments["format"] != "openmpi":
            raise hostfile.HostfileError(
                [f"a rankfile is Open MPI's, and the format is {arguments['format']}: turn one off"]
            )
        ranks = rankfile.render_rankfile(
            rankfile.bind(
                membership,
                arguments["numa_cores"],
                divided=arguments["rankfile_cores"] == "divided",
            )
        )
    if arguments["rankmap"]:
        places = rankfile.render_rankmap(rankfile.place(membership))
    return [
        plan_file(Path(arguments["path"]), hostfile.render(wanted, arguments["format"])),
        *plan_optional(Path(arguments["rankfile_path"]), ranks),
        *plan_optional(Path(arguments["rankmap_path"]), places),
    ]


def plan_optional(path: Path, text: str | None) -> list[FilePlan]:
    """A file that is not wanted is removed when its header says that it is ours."""
    planned = plan_file(path, text)
    ours = (planned.before or "").startswith(f"# {HEADER}")
    return [planned] if text is not None or ours else []


def read_back(
    plans: list[FilePlan], wanted: hostfile.Hostfile, form: str, check_mode: bool
) -> list[Check]:
    """What the files on the disk say now."""
    checks = []
    for each in plans:
        now = plan_file(each.path, each.after, mode=each.mode, uid=each.uid, gid=each.gid)
        checks.append(
            compare(
                "file",
                "as the model says",
                "different" if now.changed else "as the model says",
                subject=str(each.path),
                check_mode=check_mode,
            )
        )
    return [
        *checks,
        compare("slots", wanted.slots, found_slots(plans[0], form), check_mode=check_mode),
    ]


def found_slots(planned: FilePlan, form: str) -> int | str:
    """The ranks a reader of the hostfile on the disk finds room for, or why it finds none."""
    try:
        return hostfile.parse(planned.path.read_text(encoding="utf-8"), form).slots
    except FileNotFoundError:
        return "no hostfile"
    except (OSError, ValueError) as error:
        return str(error)


def names(membership: hostfile.Membership, check_mode: bool) -> list[Check]:
    """What every name in the hostfile resolves to on this host."""
    wanted = membership.addresses()
    table = {}
    if resolve.files_first():
        try:
            table = hosts_table.addresses(HOSTS.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            table = {}
    found = resolve.find_addresses(list(wanted), table)
    return resolve.name_checks(wanted, found, check_mode=check_mode)


if __name__ == "__main__":
    main()
