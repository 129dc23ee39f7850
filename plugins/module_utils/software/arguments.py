# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the modules take alike that install drivers from the cluster's set.

Described for operators in plugins/doc_fragments/driver_stack.py.
"""

from __future__ import annotations

from typing import Any

DRIVER_STACK: dict[str, dict[str, Any]] = {
    "software": {"type": "dict", "default": {}},
    "keys": {"type": "dict", "default": {}, "no_log": False},
    "allow_downgrade": {"type": "bool", "default": False},
    "rails": {"type": "list", "elements": "dict", "default": []},
    "gpus": {"type": "list", "elements": "dict", "default": []},
}
