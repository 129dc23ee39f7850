#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Set a host's name and have it know the names of the whole cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_hosts
short_description: Sets a host's name and has it know the names of the whole cluster
version_added: "0.1.0"
author:
  - Baremetal MPI RoCE founders (@baremetal)
description:
  - Sets the host's name, in C(/etc/hostname) and in the running kernel. No systemd is needed.
  - Writes one managed block in C(/etc/hosts) with the management address of every host of the
    cluster and the address of every rail (C(node01-rail0), or C(node01-rail3p1) where rails have
    planes). Lines outside of the block are the operator's and stay.
  - A line outside of the block that gives one of these names another address is a conflict,
    because programs then get both addresses. This host's own name on a loopback address, as
    installers write it (C(127.0.1.1 node01)), is taken out of its line, which the diff and
    RV(removed) show. Any other conflict fails with its line, before anything is written.
  - Adds lines for C(localhost) where there are none. Open MPI asks DNS for it otherwise, and waits.
  - Tells cloud-init, where it is installed, to leave both files alone at the next boot.
  - Reads the name back from the kernel and resolves every name of this host.
options:
  name: {type: str, required: true, description: "Name of this host, as the inventory has it."}
  table:
    description:
      - Every name of the cluster, a line of a hosts file each, as
        RV(baremetal.mpi_roce.cluster_directory#module:names) has it.
    type: str
    required: true
  own:
    description: Those of the names that are this host's, with their addresses.
    type: dict
    required: true
attributes:
  check_mode:
    description: Computes the same files and writes nothing.
    support: full
  diff_mode:
    description: Shows each file that changes, and the running name.
    support: full
"""

EXAMPLES = r"""
- name: Look the whole cluster up in the inventory
  baremetal.mpi_roce.cluster_directory:
    domain: hpc.example.com
  register: cluster
  run_once: true

- name: Set the host's name, and every name of the cluster in /etc/hosts
  baremetal.mpi_roce.cluster_hosts:
    name: "{{ inventory_hostname }}"
    table: "{{ cluster.names.table }}"
    own: "{{ cluster.names.own[inventory_hostname] }}"
"""

RETURN = r"""
layer: {type: str, returned: always, sample: names, description: The layer that speaks.}
names:
  description: Number of names in the managed block.
  type: int
  returned: success
  sample: 37
removed:
  description: Lines of the operator that gave this host's own name a loopback address.
  type: list
  elements: str
  returned: success
  sample: ["line 2: 127.0.1.1 node01"]
checks:
  description: What was read back, one entry for each promise.
  type: list
  elements: dict
  returned: always
  sample: [{name: host_name, subject: "", wanted: node01, found: node01, status: ok, reason: ""}]
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core import resolve
from ..module_utils.core.checks import Check, compare, end
from ..module_utils.core.files import FilePlan, diff, diffs, plan_file
from ..module_utils.names import host_name, hosts_table

LAYER = "names"
HOSTS = Path("/etc/hosts")
IPV6 = Path("/proc/net/if_inet6")


class PlanError(Exception):
    """The host cannot be given its names; one finding per line."""


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "table": {"type": "str", "required": True},
            "own": {"type": "dict", "required": True},
        },
        supports_check_mode=True,
    )
    name: str = module.params["name"]
    own: dict[str, str] = module.params["own"]
    table = [tuple(line.split()) for line in module.params["table"].splitlines()]
    try:
        hosts, removed = plan_table(name, table)
        plans = [hosts, *host_name.plan_cloud_init(), host_name.plan_hostname(name)]
        refuse_mounts(plans)
    except PlanError as error:
        module.fail_json(msg=f"names: nothing was written:\n  {error}", layer=LAYER, checks=[])
    except OSError as error:
        module.fail_json(msg=f"names: cannot read {error.filename}: {error.strerror}", layer=LAYER)

    running = host_name.running_name()
    if not module.check_mode:
        try:
            for each in plans:
                each.apply()
            if running != name:
                host_name.set_running_name(name)
        except OSError as error:
            module.fail_json(
                msg=f"names: cannot write {error.filename}: {error.strerror}", layer=LAYER
            )
        except host_name.HostNameError as error:
            module.fail_json(msg=f"names: {error}", layer=LAYER)

    checks = read_back(name, plans, table, own, module.check_mode)
    end(
        module,
        LAYER,
        checks,
        "Look at /etc/hosts and at the sources before it in the line hosts: of /etc/nsswitch.conf.",
        changed=running != name or any(each.changed for each in plans),
        diff=[*diffs(plans), *name_diff(running, name)],
        names=sum(len(names) for _address, *names in table),
        removed=removed,
        # Ansible would send the whole table back as part of the arguments.
        invocation={"module_args": {**module.params, "table": f"{len(table)} lines"}},
    )


def plan_table(name: str, table: list[tuple[str, ...]]) -> tuple[FilePlan, list[str]]:
    """The hosts file as it is and as it is wanted."""
    before = plan_file(HOSTS, None).before or ""
    try:
        planned = hosts_table.plan(before, table, name, ipv6=IPV6.exists())
    except hosts_table.HostsTableError as error:
        raise PlanError(f"{HOSTS}:\n  {error}") from error
    return plan_file(HOSTS, planned.after), list(planned.removed)


def refuse_mounts(plans: list[FilePlan]) -> None:
    mounted = host_name.mounted_over([each.path for each in plans if each.changed])
    if mounted:
        raise PlanError(
            f"{', '.join(map(str, mounted))}: a mount of its own, as container engines make it, "
            "which cannot be replaced: unmount it, or start the container without (--no-hosts)"
        )


def read_back(
    name: str,
    plans: list[FilePlan],
    table: list[tuple[str, ...]],
    own: dict[str, str],
    check_mode: bool,
) -> list[Check]:
    """The running name, the files, and what this host's own names resolve to."""
    now = hosts_table.addresses(plan_file(HOSTS, None).before or "")
    wanted = {each: address for address, *names in table for each in names}
    right = sum(now.get(each.lower()) == {address} for each, address in wanted.items())
    found = {each: resolve.system_lookup(each) for each in own}
    return [
        compare("host_name", name, host_name.running_name(), check_mode=check_mode),
        *(
            compare(
                "file",
                "as planned",
                "different"
                if plan_file(each.path, each.after, mode=each.mode).changed
                else "as planned",
                subject=str(each.path),
                check_mode=check_mode,
            )
            for each in plans
        ),
        compare("names_in_table", len(wanted), right, check_mode=check_mode),
        *resolve.name_checks(own, found, check_mode=check_mode),
        compare(
            "localhost_resolves",
            True,
            "127.0.0.1" in resolve.system_lookup("localhost"),
            check_mode=check_mode,
        ),
    ]


def name_diff(running: str, name: str) -> list[dict[str, str]]:
    if running == name:
        return []
    return [diff("running host name", f"{running}\n", f"{name}\n")]


if __name__ == "__main__":
    main()
