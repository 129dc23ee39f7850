# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The standard decorator, under the name that most files import."""

from __future__ import annotations

from dataclasses import dataclass as dataclass
