# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What holds for every unit test."""

from __future__ import annotations

import os

from hypothesis import settings

# How long one example takes says more about the machine's load than about the code.
settings.register_profile("whole", deadline=None)
settings.register_profile("fast", deadline=None, max_examples=20)  # ./test --fast
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "whole"))
