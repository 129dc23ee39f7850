# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What holds for every test."""

from __future__ import annotations

import pytest

from tests import waiting
from tools import bed


def pytest_configure() -> None:
    waiting.factor()  # before there are workers, so that one number holds for all of them


def pytest_report_header() -> str:
    return f"machine factor: {waiting.factor():g} (deadlines are so many times longer)"


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if bed.is_test(item.path):
            item.add_marker(pytest.mark.bed)
