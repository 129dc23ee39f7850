# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Hooks for all tests."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.schema.findings import Finding

from tests import waiting
from tests.unit.findings import codes

UNIT = Path(__file__).parent / "unit"
RAISED: set[str] = set()
"""Codes of findings raised in this process; in the controller of xdist, also in its workers."""
RAISED_IN_PLAYS = {"inventory.template"}
"""Raised only in a process of Ansible, where test_qos_inventory reads the message."""


def pytest_configure() -> None:
    waiting.factor()  # before workers start, so that all use the same factor
    make = Finding.__init__

    @functools.wraps(make)
    def recorded(self: Finding, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        RAISED.add(self.code)

    setattr(Finding, "__init__", recorded)  # noqa: B010  (mypy forbids assignment to a method)


def pytest_report_header() -> str:
    return f"machine factor: {waiting.factor():g} (deadlines are multiplied by it)"


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Called by xdist in the controller for each worker that has finished."""
    RAISED.update(getattr(node, "workeroutput", {}).get("raised", ()))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a complete run of the unit tests in which no test raised some code."""
    worker = getattr(session.config, "workeroutput", None)
    if worker is not None:
        worker["raised"] = sorted(RAISED)
    elif session.exitstatus == pytest.ExitCode.OK and _is_complete(session.config):
        missing = unraised(RAISED)
        if missing:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
            reporter.write_line(f"no test raises the findings {', '.join(missing)}", red=True)


def unraised(raised: Iterable[str]) -> list[str]:
    return sorted(set(codes()) - set(raised) - RAISED_IN_PLAYS)


def _is_complete(config: pytest.Config) -> bool:
    """Whether all unit tests are selected, including slow ones."""
    paths = [Path(argument).resolve() for argument in config.args]
    option = config.option
    return paths == [UNIT] and not option.keyword and "not slow" not in option.markexpr
