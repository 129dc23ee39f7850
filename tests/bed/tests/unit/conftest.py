# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Settings of Hypothesis, shared with the product's unit tests."""

from __future__ import annotations

import tests.unit.conftest  # noqa: F401
