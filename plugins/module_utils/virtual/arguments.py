# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the modules take alike that make virtual nodes, and those that build their images.

Described for operators in plugins/doc_fragments/virtual.py.
"""

from __future__ import annotations

from typing import Any

NODES: dict[str, dict[str, Any]] = {
    "cluster": {"type": "str", "required": True},
    "management": {"type": "dict", "default": {}},
    "login_user": {"type": "str", "default": "ops"},
    "login_key": {"type": "str", "default": "", "no_log": False},
    "identity": {"type": "str", "default": ""},
    "known_hosts": {"type": "str", "default": ""},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
}
WORDS: dict[str, Any] = {"type": "list", "elements": "str", "default": []}
BUILD: dict[str, dict[str, Any]] = {
    "source": {"type": "path", "required": True},
    "suite": {"type": "str", "default": "bookworm"},
    "mirror": {"type": "str", "default": ""},
    "log": {"type": "path", "default": "/var/log/baremetal-mpi-roce/virtual-image.log"},
}
