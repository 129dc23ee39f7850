# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What this host serves by files of ours, or did until a run that is to end it: by its directories.

A directory that was served here may be a mount point now, of what another host serves: what is
asked of it by name is asked of what was served.
"""

from __future__ import annotations

from ...files import HEADER
from ...node.part import Node
from ..units import MOUNT, path_of, unit_name
from . import device, exports_file, others


def served_once(node: Node, directory: str) -> bool:
    exported = exports_file.parse(node.read(others.FILE) or "")
    if directory in {block.path for block in exported}:
        return True
    return has_device(node, directory)


def has_device(node: Node, directory: str) -> bool:
    """Whether a unit of ours mounts a device there: of the name that a mount there would have."""
    text = node.read(path_of(unit_name(directory, MOUNT))) or ""
    return HEADER in text.split("\n", 1)[0] and device.MARK in text
