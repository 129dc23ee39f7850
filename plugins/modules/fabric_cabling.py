#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_cabling
short_description: Writes the cabling list of the cluster model, or compares a wire map with it
extends_documentation_fragment:
  [baremetal.mpi_roce.module, baremetal.mpi_roce.options.fabric_cabling]
attributes:
  check_mode: {description: Writes no file., support: full}
  diff_mode: {description: RV(files) names the changed files instead., support: none}
description:
  - With O(directory), writes every cable of the model as CSV, and one HTML page per rack.
  - With O(wire_map), compares a CSV file of the site with the model, and fails for each difference.
notes:
  - Runs on the controller and opens no connection. Use C(run_once).
seealso:
  - module: baremetal.mpi_roce.fabric_links
"""

EXAMPLES = r"""
- name: Write the cabling list
  baremetal.mpi_roce.fabric_cabling: {directory: cabling}
  run_once: true

- name: Compare the wire map of the site with the model
  baremetal.mpi_roce.fabric_cabling: {wire_map: wires.csv}
  run_once: true
"""

RETURN = r"""
cables: {type: int, returned: success, description: Number of cables in the model.}
files: {type: list, elements: str, returned: with O(directory), description: Files that differ.}
agree: {type: int, returned: with O(wire_map), description: Number of cables with the same line.}
outside:
  description: Number of lines without a host of the model, or of its ports that the model lacks.
  type: int
  returned: with O(wire_map)
findings: {type: list, elements: str, returned: with O(wire_map), description: Differences.}
"""

ARGUMENTS = {"directory": {"type": "path"}, "wire_map": {"type": "path"}}
