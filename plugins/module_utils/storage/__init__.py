# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Shared file systems as nodes mount (units, mounts), serve (server) and prove them (proof, probe).

The list of parts is in options; what the controller compiled is read by file_system.
"""
