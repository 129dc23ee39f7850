# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What holds for tests of every kind."""

from __future__ import annotations

import pytest

from tools import bed


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if bed.is_test(item.path):
            item.add_marker(pytest.mark.bed)
