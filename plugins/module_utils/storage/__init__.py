# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Shared file systems: as the model has them, as nodes mount, serve and use them.

`reading.read_filesystems` takes the variable `cluster_filesystems`.
"""
