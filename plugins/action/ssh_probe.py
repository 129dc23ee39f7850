# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run the module; limit the size of its answer and make it printable."""

from __future__ import annotations

from ..plugin_utils.actions import ModuleAction as ActionModule

__all__ = ["ActionModule"]
