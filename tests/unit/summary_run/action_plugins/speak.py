# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The action of a module of this collection."""

from __future__ import annotations

from ansible_collections.baremetal.mpi_roce.plugins.action.os_baseline import (
    ActionModule,
)

__all__ = ["ActionModule"]
