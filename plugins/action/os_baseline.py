# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run the module that the task names: this one, or one that meta/runtime.yml routes here."""

from __future__ import annotations

from ..plugin_utils.actions import ModuleAction as ActionModule

__all__ = ["ActionModule"]
