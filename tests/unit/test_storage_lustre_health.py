# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Servers and targets of Lustre; each command has a time limit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import (
    FAILED,
    NOT_APPLICABLE,
    OK,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage import (
    lustre_health as health,
)

from tests.unit.lustre_node import LUSTRE, LustreNode
from tests.unit.storage_node import found, wrong


@pytest.fixture
def node(tmp_path):
    return LustreNode(tmp_path)


@pytest.fixture
def mounted(node):
    node.settle()
    node.mount()
    return node


def calls(node, *words):
    return [call for call in node.calls if call[: len(words)] == list(words)]


class TestTargets:
    def test_healthy_connections(self, mounted):
        mounted.target("OST0001", state="IDLE")
        outcome = mounted.settle()
        assert wrong(outcome) == []
        assert found(outcome, "lustre_targets")["/lustre"].found == "connected (3 targets)"

    @pytest.mark.parametrize(
        ("changes", "state"),
        [
            *(({"state": x}, x) for x in ("DISCONN", "EVICTED", "REPLAY_WAIT", "NEW")),
            ({"inactive": True}, "inactive"),
        ],
    )
    def test_an_unhealthy_target_is_named(self, mounted, changes, state):
        mounted.target("OST0001", **changes)
        outcome = mounted.settle()
        assert len(wrong(outcome)) == 1
        check = found(outcome, "lustre_targets")["/lustre"]
        assert check.found == [f"lustre-OST0001 {state} (10.9.0.5@o2ib)"]
        assert calls(mounted, "lfs") == [], "nothing is asked that may wait for it"

    def test_a_file_system_mounted_twice_is_reported_once(self, mounted):
        other = replace(LUSTRE, name="data", mount="/data", source=f"{LUSTRE.source}/data")
        mounted.mount(other)
        mounted.target("OST0001", state="DISCONN")
        assert len(wrong(mounted.settle({}, [LUSTRE, other]))) == 1

    def test_an_unreadable_kernel_state_fails(self, mounted):
        mounted.gone.add("lctl")
        check = found(mounted.settle(), "lustre_targets")["/lustre"]
        assert (check.status, check.found) == (FAILED, "unknown")
        assert "lctl: not installed" in check.reason

    def test_an_unmounted_file_system_has_no_targets(self, node):
        outcome = node.settle()
        assert found(outcome, "lustre_targets")["/lustre"].status == NOT_APPLICABLE
        assert calls(node, "lctl") == []


class TestManagement:
    def test_one_of_two_servers_suffices(self, node):
        node.change(silent=["10.9.0.1@o2ib"])
        check = found(node.settle(), "lustre_mgs")["10.9.0.1@o2ib:10.9.0.2@o2ib"]
        assert check.status == OK
        assert "without an answer: 10.9.0.1@o2ib: failed to ping" in check.reason

    def test_a_hanging_ping_is_terminated(self, node):
        node.change(hang=["lnetctl ping"])
        check = found(node.settle(), "lustre_mgs")["10.9.0.1@o2ib:10.9.0.2@o2ib"]
        assert "no answer within 30 s" in check.reason


class TestTwoFileSystems:
    """Each has a management service, which is always called MGS."""

    SECOND = replace(LUSTRE, name="two", mount="/two", source="10.8.0.1@o2ib:10.8.0.2@o2ib:/second")

    @pytest.fixture
    def two(self, mounted):
        targets = dict(mounted.stand_in.state["targets"])
        mounted.change(
            targets={**targets, "second": {"OST0000": dict(targets["lustre"]["OST0000"])}}
        )
        mounted.mount(self.SECOND)
        return mounted

    @pytest.mark.parametrize(
        ("manager", "bad", "good"),
        [("10.9.0.1@o2ib", "/lustre", "/two"), ("10.8.0.1@o2ib", "/two", "/lustre")],
    )
    def test_a_lost_management_service_is_named(self, two, manager, bad, good):
        two.change(managers={manager: "DISCONN"})
        checks = found(two.settle({}, [LUSTRE, self.SECOND]), "lustre_targets")
        assert checks[bad].found == [f"MGC{manager} DISCONN ({manager})"]
        assert checks[good].status == OK

    def test_file_systems_with_the_same_name(self, mounted):
        """By default mkfs.lustre calls every file system lustre."""
        other = replace(self.SECOND, source="10.8.0.1@o2ib:/lustre")
        mounted.mount(other)
        mounted.change(managers={"10.9.0.1@o2ib": "EVICTED"})
        checks = found(mounted.settle({}, [LUSTRE, other]), "lustre_targets")
        assert {at: each.status for at, each in checks.items()} == {"/lustre": FAILED, "/two": OK}

    def test_an_unknown_management_service_counts_for_all(self, two):
        """Its server may have other NIDs than the source, for example behind a router."""
        two.change(managers={"10.9.0.1@o2ib": "DISCONN"})
        renamed = replace(LUSTRE, source="10.7.0.1@o2ib:/lustre")
        checks = found(two.settle({}, [renamed, self.SECOND]), "lustre_targets")
        assert {at: each.status for at, each in checks.items()} == {"/lustre": FAILED, "/two": OK}


class TestReading:
    def test_each_mount_of_a_target_counts(self, mounted, monkeypatch):
        """lctl prints one object client per mount."""
        lines = "".join(
            f"osc.lustre-OST0001-osc-ffff{at}.import=\nimport:\n    target: lustre-OST0001_UUID\n"
            f"    state: {state}\n    connection:\n       current_connection: 10.9.0.5@o2ib\n"
            for at, state in (("9c5c", "DISCONN"), ("9c5d", "FULL"))
        )
        monkeypatch.setattr(mounted.stand_in, "_lctl", lambda argv: (0, lines, ""))
        check = found(mounted.settle(), "lustre_targets")["/lustre"]
        assert check.found == ["lustre-OST0001 DISCONN (10.9.0.5@o2ib)"]

    def test_two_management_services(self):
        """A shortened capture of a client with two file systems."""
        capture = "".join(
            f"mgc.MGC{nid}.import=\nimport:\n    target: MGS\n    state: {state}\n"
            f"    connection:\n       current_connection: {nid}\n"
            for nid, state in (("10.0.0.1@o2ib", "DISCONN"), ("10.9.0.1@o2ib0", "FULL"))
        )
        read = health.read_imports(capture)
        assert [(each.text(), each.nids) for each in read if each.trouble] == [
            ("MGC10.0.0.1@o2ib DISCONN (10.0.0.1@o2ib)", {"10.0.0.1@o2ib"})
        ]
        assert read[1].nids == {"10.9.0.1@o2ib"}
        (none,) = health.read_imports(
            "osc.l-OST0000-osc-ff.import=\nimport:\n    target: l-OST0000_UUID\n    state: FULL\n"
            '    connection:\n       current_connection: "<none>"\n'
        )
        assert (none.target, none.connection, none.trouble) == ("l-OST0000", "", "")
