# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The module roce_rails: the plan of its rails, and faults of the boot unit."""

from __future__ import annotations

import errno

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware.iproute import (
    MAIN_TABLE,
    Route,
    SourceRule,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails import boot_unit, path
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails.plan import plan_rails
from ansible_collections.baremetal.mpi_roce.plugins.modules import roce_rails

from tests.unit.qos_contracts import compiled
from tests.unit.rails_host import FakeHost, NoNics, rail

GIVEN = {
    "qos": compiled(),
    "rails": [rail(0)],
    "backend": "networkd",
    "routing": "source",
    "table_base": 1000,
    "priority_base": 10000,
    "networks": [],
    "arp": {"arp_ignore": 1, "arp_announce": 2, "rp_filter": 2},
    "check_path": True,
    "wait_s": 1,
    "management": {"address": "10.10.1.1", "prefix": 22},
    "gpus": [],
    "boot": True,
    "boot_wait_s": 60,
    "boot_before": [],
}


@pytest.fixture
def host(tmp_path, monkeypatch):
    """The module on a simulated host, reached over SSH by rail1's address."""
    host = FakeHost(tmp_path)
    host.links["rail1"]["addresses"] = ["10.0.0.9/24"]
    monkeypatch.setattr(roce_rails, "Nics", lambda *_given: NoNics())
    monkeypatch.setattr(roce_rails, "login_address", lambda: "10.0.0.9")
    monkeypatch.setattr(path, "largest_fragment", host.largest_fragment)
    return host


def test_a_boot_unit_that_cannot_be_read_is_one_failed_check(host, monkeypatch):
    def fails(*_given, **_more):
        raise OSError(errno.ENOSPC, "No space left on device", "/usr/x.py")

    monkeypatch.setattr(boot_unit.BootUnit, "plan", fails)
    settled = roce_rails.converged(GIVEN, host.node())
    checks = {check.name: check for check in settled.outcome.checks}
    assert checks["rail_mtu"].found == 9000 and host.touched == ["rail0"]
    assert [error.partition("]")[0] for error in settled.outcome.errors] == ["boot unit: [Errno 28"]
    assert (host.root / roce_rails.LOCK).exists()


def test_the_interface_of_the_own_connection_is_no_rail(host):
    given = {**GIVEN, "rails": [rail(0), rail(1)]}
    settled = roce_rails.converged(given, host.node())
    (failed,) = [check for check in settled.outcome.checks if check.status == "failed"]
    assert (failed.name, failed.subject) == ("rail_name", "rail1")
    assert "10.0.0.9" in failed.reason
    assert host.links["rail1"]["addresses"] == ["10.0.0.9/24"]


def test_a_node_without_rails_has_nothing_to_configure(host):
    settled = roce_rails.converged({**GIVEN, "rails": []}, host.node())
    assert not settled.outcome.errors and not host.touched and not settled.outcome.changed
    assert {check.status for check in settled.outcome.checks} <= {"ok", "not_applicable"}


# The plan; for gateways, planes and flat networks see golden/rails


def test_numbers_of_tables_and_rules_are_the_operators_to_choose():
    plans = plan_rails([rail(0), rail(1, plane=1)], table_base=5000, priority_base=20000)
    assert [plan.rule for plan in plans] == [
        SourceRule(20000, "10.100.0.11", 5000),
        SourceRule(20011, "10.100.1.11", 5011),
    ]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"table_base": 0}, "rail0: routing table 0"),
        ({"table_base": 254}, "rail0: routing table 254"),
        ({"priority_base": 32766}, "priority 32766"),
        ({"networks": ["10.128.0.1/9"]}, "roce_rails_networks: .*10.128.0.1/9"),
        ({"networks": ["banana"]}, "roce_rails_networks: .*banana"),
        ({"routing": "arp"}, "roce_rails_routing"),
    ],
)
def test_reserved_tables_and_unused_gateways_are_refused(given, words):
    with pytest.raises(PlanError, match=words):
        plan_rails([rail(0)], **given)


def test_a_rail_has_routes_to_its_networks_where_planes_are_apart():
    apart = {**rail(0), "networks": ["10.100.16.0/24"]}
    first, second = plan_rails([apart, rail(1)], networks=["10.0.0.0/8"])
    assert [route.destination for route in first.routes[2:]] == ["10.100.16.0/24"]
    assert [route.destination for route in second.routes[2:]] == ["10.0.0.0/8"]


def test_an_address_is_a_network_as_the_kernel_shows_it():
    (plan,) = plan_rails([rail(0)], networks=["10.9.9.9"])
    assert plan.routes[-1] == Route(MAIN_TABLE, "10.9.9.9/32", "10.100.0.1", 1000)
