# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How a module of a layer ends: nothing that failed is reported as done."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import Check, end

from tests.unit.ended import Ended, Module

HOLDS = Check("rail_mtu", 9000, 9000, "ok", "rail0")
BROKEN = Check("rail_mtu", 9000, 1500, "failed", "rail1")


def ended(*checks: Check, **result: Any) -> Ended:
    with pytest.raises(Ended) as caught:
        end(Module(), "rails", checks, "Run it again.", **result)
    return caught.value


def test_promises_that_hold_end_well_with_all_that_was_found() -> None:
    done = ended(HOLDS, changed=True, names=3)
    assert not done.failed
    assert (done.result["changed"], done.result["layer"], done.result["names"]) == (
        True,
        "rails",
        3,
    )
    assert [check["subject"] for check in done.result["checks"]] == ["rail0"]


def test_one_broken_promise_fails_the_module_and_is_named() -> None:
    done = ended(HOLDS, BROKEN, changed=True)
    assert done.failed
    assert "rail_mtu rail1: wanted 9000, found 1500" in done.result["msg"]
    assert done.result["msg"].endswith("Run it again.")
    assert (done.result["changed"], len(done.result["checks"])) == (True, 2)


def test_what_could_not_be_tried_fails_as_well() -> None:
    done = ended(HOLDS, errors=["disk full"])
    assert done.failed
    assert done.result["msg"] == "rails: not everything was applied:\n  disk full"
    assert "disk full" in ended(BROKEN, errors=["disk full"]).result["msg"]


def test_who_says_nothing_changed_nothing() -> None:
    assert ended(HOLDS).result["changed"] is False
