#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_site
short_description: Writes the folder of a new site
extends_documentation_fragment:
  [baremetal.mpi_roce.module, baremetal.mpi_roce.options.cluster_site]
attributes:
  check_mode: {description: Writes nothing., support: full}
  diff_mode: {description: Shows the files that a person edits., support: full}
description:
  - Writes C(ansible.cfg) with the settings that the collection needs, an inventory with the model
    of a design, a folder for keys, C(.gitignore), the JSON Schema of models for editors, and
    C(README.md) with the next steps.
  - Writes everything or nothing, and overwrites no file.
notes:
  - Runs on the controller.
"""

EXAMPLES = r"""
- name: Write the folder
  baremetal.mpi_roce.cluster_site:
    path: /srv/clusters/ai1
    design: b300
"""

RETURN = r"""
path: {type: str, returned: success, description: The folder.}
files: {type: list, elements: str, returned: success, description: "Its files, relative to it."}
"""

ARGUMENTS = {
    "path": {"type": "path", "required": True},
    "design": {"type": "str", "default": "b300"},
}
