# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The module roce_rails: what is wrong with the boot unit hides nothing of the rails."""

from __future__ import annotations

import errno

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import Check
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic import boot_unit
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails.converge import Outcome
from ansible_collections.baremetal.mpi_roce.plugins.modules import roce_rails

from tests.unit.qos_contracts import compiled

GIVEN = {
    "qos": compiled(),
    "rails": [],
    "routing": "source",
    "table_base": 1000,
    "priority_base": 10000,
    "networks": [],
    "management": {},
    "gpus": [],
    "boot": True,
    "boot_wait": 60,
    "boot_before": [],
}
RAIL = Check("rail_mtu", 9000, 1500, "failed", "rail0")


class Ended(Exception):
    def __init__(self, result) -> None:
        super().__init__(result)
        self.result = result


class Module:
    check_mode = False
    params = GIVEN

    def __init__(self, **_spec) -> None:
        pass

    def exit_json(self, **result):
        raise Ended(result)

    def fail_json(self, **result):
        raise Ended(result)


def test_a_boot_unit_that_cannot_be_read_is_one_failed_check(monkeypatch):
    def fails(*_given, **_more):
        raise OSError(errno.ENOSPC, "No space left on device", "/usr/x.py")

    outcome = Outcome(True, [], [RAIL], "netplan", ["rail0"], [], [], {})
    monkeypatch.setattr(roce_rails, "AnsibleModule", Module)
    monkeypatch.setattr(roce_rails, "converged", lambda *_given, **_more: outcome)
    monkeypatch.setattr(boot_unit, "Installation", fails)
    with pytest.raises(Ended) as caught:
        roce_rails.main()
    result = caught.value.result
    checks = {check["name"]: check for check in result["checks"]}
    assert checks["rail_mtu"]["found"] == 1500 and result["reconfigured"] == ["rail0"]
    assert checks["rails_boot"]["status"] == "failed"
    assert "/usr/x.py" in checks["rails_boot"]["reason"]
    assert result["changed"] and "rail_mtu" in result["msg"] and "rails_boot" in result["msg"]
