# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What holds for every test."""

from __future__ import annotations

from tests import waiting


def pytest_configure() -> None:
    waiting.factor()  # before there are workers, so that one number holds for all of them


def pytest_report_header() -> str:
    return f"machine factor: {waiting.factor():g} (deadlines are so many times longer)"
