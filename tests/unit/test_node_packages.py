# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A change of packages that goes wrong is a step that goes wrong."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import StepError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages import step as packages
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.manager import (
    PackageError,
)


def test_what_the_engine_cannot_do_the_step_could_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def act(*_given: Any) -> None:
        raise PackageError("stage drivers: no space left")

    monkeypatch.setattr(packages.engine, "act", act)
    given: Any = ("plan", "wanted", "manager", "rdma")
    with pytest.raises(StepError, match=r"^stage drivers: no space left$"):
        packages.change(*given)
