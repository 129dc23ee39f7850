# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The check that `config apply-patch` makes of each operation, for other programs. Faults do not
delay it."""

from __future__ import annotations

import sys
from typing import Any

sys.path.insert(0, "/usr/lib/virtual-switch")

from sonic import database, patch


def rdma_config_update_validator(_scope: str, patch_element: dict[str, Any]) -> bool:
    try:
        patch.permit(patch_element, database.load(database.Store()))
    except patch.IllegalOperationError:
        return False
    return True
