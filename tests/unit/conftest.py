# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Fixtures and limits common to all unit tests."""

from __future__ import annotations

import os

from hypothesis import settings

# How long one example takes says more about the machine's load than about the code.
# The same examples in every run of one commit: what fails fails again, here and elsewhere.
settings.register_profile("whole", deadline=None, derandomize=True)
settings.register_profile("fast", deadline=None, derandomize=True, max_examples=20)  # ./test --fast
settings.register_profile("random", deadline=None)  # ./test --all: other examples in each run
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "whole"))
