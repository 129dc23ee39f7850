# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every link end to end: the contract against what both ends report, and LLDP against the model.

Pure: switches and nodes were read before.
"""
