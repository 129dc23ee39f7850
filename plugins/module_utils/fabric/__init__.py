# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the virtual fabric and a node's module need of switches: their chips, and what each is told.

The rest of the fabric runs on the controller: `plugin_utils/fabric`.
"""
