#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_share
short_description: Runs site.yml or verify.yml over several controllers
extends_documentation_fragment:
  [baremetal.mpi_roce.module, baremetal.mpi_roce.options.cluster_share]
attributes:
  check_mode: {description: Runs the playbook in check mode., support: full}
  diff_mode: {description: Runs the playbook with C(--diff)., support: full}
description:
  - Runs layers that look at each host separately on execution nodes, each of which serves the racks
    in its variable C(share_racks), by C(ansible-runner) over SSH. Runs the other layers, and hosts
    in no such rack, on this controller, in the order of the playbook.
  - Merges the reports into one with one exit status. If an execution node is lost, its hosts are
    given to another one.
  - Refuses a second run of the same cluster.
notes:
  - Runs on the controller. Repeats C(--tags), C(--skip-tags), C(--limit), C(--check), C(--diff),
    C(--forks), C(--user), extra variables, vault passwords and asked passwords.
"""

EXAMPLES = r"""
- name: Run the site
  baremetal.mpi_roce.cluster_share:
    playbook: site
    files: [~/.ssh/cluster_ed25519]
"""

RETURN = r"""
report: {type: str, returned: always, description: The merged report.}
status: {type: int, returned: always, description: Exit status of the run.}
lost:
  description: Execution nodes that were lost, and why.
  returned: always
  type: dict
"""
ARGUMENTS = {
    "playbook": {"type": "str", "choices": ["site", "verify"], "default": "site"},
    "group": {"type": "str", "default": "execution"},
    "files": {"type": "list", "elements": "path", "default": []},
    "lease_s": {"type": "int", "default": 30},
    "receptor": {"type": "path"},
}
