# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Stripe defaults, and whether servers and targets are there: each look is bounded."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import (
    FAILED,
    NOT_APPLICABLE,
    OK,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.engine import settle
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage import (
    lustre_health as health,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.file_system import (
    Lustre,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.lustre import Kernel
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.lustre_node import LUSTRE, LustreNode, striped
from tests.unit.storage_node import found, wrong

MIB = 1 << 20


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


class TestStripes:
    def test_they_are_set_where_they_differ_and_only_there(self, mounted):
        fs = striped(count=4, size_mib=16, pool="flash")
        first = mounted.settle({}, [fs])
        assert (first.errors, wrong(first)) == ([], [])
        assert mounted.stand_in.state["layouts"] == {
            "/lustre": {"count": 4, "size": 16 * MIB, "pool": "flash"}
        }
        assert "count 1, size 1 MiB, pool none" in first.diff[0]["before"]
        second = mounted.settle({}, [fs])
        assert not second.changed
        assert calls(mounted, "lfs", "setstripe") == []

    def test_where_nothing_can_be_mounted_nothing_is_planned(self, tmp_path):
        """A container with a stand-in's kernel: no run would ever come to an end."""
        fs = striped(count=4)
        node = LustreNode(tmp_path)
        part = health.StripesPart([fs], Kernel(node.root, node.run, simulated=True))
        node.container = "podman"
        outcome = settle([part], node.node())
        assert not outcome.changed
        assert found(outcome, "lustre_stripes")[fs.mount].status == NOT_APPLICABLE
        node.container = None
        assert settle([part], node.node()).changed

    def test_what_is_not_asked_for_stays(self, mounted):
        """setstripe puts whatever it is not given back to the file system's default."""
        mounted.change(layouts={"/lustre": {"count": 2, "size": 4 * MIB, "pool": "flash"}})
        assert wrong(mounted.settle({}, [striped(count=8)])) == []
        assert mounted.stand_in.state["layouts"]["/lustre"] == {
            "count": 8,
            "size": 4 * MIB,
            "pool": "flash",
        }

    def test_a_composite_layout_is_another_one(self, mounted):
        mounted.change(layouts={"/lustre": {"components": 3}})
        planned = mounted.settle({}, [striped(count=4)], check_mode=True)
        assert found(planned, "lustre_stripes")["/lustre"].status == "pending"
        assert "composite layout" in planned.diff[0]["before"]
        assert mounted.stand_in.state["layouts"] == {"/lustre": {"components": 3}}
        assert wrong(mounted.settle({}, [striped(count=4)])) == []

    def test_nothing_is_looked_at_that_is_not_mounted(self, node):
        node.settle()
        outcome = node.settle({}, [striped(count=4)])
        assert calls(node, "lfs") == []
        check = found(outcome, "lustre_stripes")["/lustre"]
        assert (check.status, check.reason[:9]) == (NOT_APPLICABLE, "it is not")

    def test_what_waits_for_its_first_use_is_mounted_and_set(self, node):
        fs = striped(count=4)
        node.settle()
        node.arm()
        outcome = node.settle({}, [fs])
        assert (outcome.errors, wrong(outcome)) == ([], [])
        assert node.stand_in.state["layouts"]["/lustre"]["count"] == 4
        assert not node.settle({}, [fs]).changed

    def test_what_cannot_be_mounted_is_no_change(self, node):
        node.settle()
        node.arm()
        node.change(targets={})
        outcome = node.settle({}, [striped(count=4)])
        assert (outcome.changed, outcome.errors) == (False, [])
        assert found(outcome, "lustre_stripes")["/lustre"].status == NOT_APPLICABLE

    def test_a_fresh_node_has_them_after_one_run(self, node):
        fs = striped(count=4)
        outcome = node.settle({}, [fs], mounts=[fs])
        assert (outcome.errors, wrong(outcome)) == ([], [])
        assert node.stand_in.state["layouts"]["/lustre"]["count"] == 4

    def test_servers_that_squash_root_are_named(self, mounted):
        mounted.change(root_squash=True)
        outcome = mounted.settle({}, [striped(count=4)])
        assert "Permission denied" in outcome.errors[0]

    def test_a_hung_server_is_asked_once(self, mounted):
        mounted.change(hang=["lfs getstripe"])
        outcome = mounted.settle({}, [striped(count=4)])
        assert len(calls(mounted, "lfs", "getstripe")) == 1
        check = found(outcome, "lustre_stripes")["/lustre"]
        assert check.status == FAILED and "not queried again" in check.reason

    @given(
        st.integers(-1, 2000),
        st.integers(1, 4095),
        st.one_of(st.just(""), st.from_regex(r"[a-z][a-z0-9_]{0,14}", fullmatch=True)),
        st.sampled_from(["", "lmm_"]),
        st.sampled_from(["\n", " "]),
    )
    def test_whatever_release_printed_a_layout(self, count, size, pool, prefix, end):
        words = [f"stripe_count:  {count}", f"stripe_size:   {size * MIB}", "pattern:       raid0"]
        words += ["stripe_offset: -1", *([f"pool:          {pool}"] if pool else [])]
        text = end.join(f"{prefix}{word}" for word in words) + "\n"
        layout = health.read_layout(text)
        assert layout == health.Layout(count, size * MIB, pool)
        wanted = Lustre(stripe_count=count, stripe_size_mib=size, pool=pool)
        assert layout.text(wanted) == health.wanted_text(wanted)


class TestTargets:
    def test_all_are_well(self, mounted):
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
    def test_one_that_is_not_is_named(self, mounted, changes, state):
        mounted.target("OST0001", **changes)
        outcome = mounted.settle()
        assert len(wrong(outcome)) == 1
        check = found(outcome, "lustre_targets")["/lustre"]
        assert check.found == [f"lustre-OST0001 {state} (10.9.0.5@o2ib)"]
        assert calls(mounted, "lfs") == [], "nothing is asked that may wait for it"

    def test_two_mounts_of_one_file_system_report_it_once(self, mounted):
        other = replace(LUSTRE, name="data", mount="/data", source=f"{LUSTRE.source}/data")
        mounted.mount(other)
        mounted.target("OST0001", state="DISCONN")
        assert len(wrong(mounted.settle({}, [LUSTRE, other]))) == 1

    def test_a_kernel_that_cannot_be_asked_fails(self, mounted):
        mounted.gone.add("lctl")
        check = found(mounted.settle(), "lustre_targets")["/lustre"]
        assert (check.status, check.found) == (FAILED, "unknown")
        assert "lctl: not installed" in check.reason

    def test_what_is_not_mounted_has_no_targets(self, node):
        outcome = node.settle()
        assert found(outcome, "lustre_targets")["/lustre"].status == NOT_APPLICABLE
        assert calls(node, "lctl") == []


class TestManagement:
    def test_one_of_two_servers_is_enough(self, node):
        node.change(silent=["10.9.0.1@o2ib"])
        check = found(node.settle(), "lustre_mgs")["10.9.0.1@o2ib:10.9.0.2@o2ib"]
        assert check.status == OK
        assert "without an answer: 10.9.0.1@o2ib: failed to ping" in check.reason

    def test_a_ping_that_hangs_is_ended(self, node):
        node.change(hang=["lnetctl ping"])
        check = found(node.settle(), "lustre_mgs")["10.9.0.1@o2ib:10.9.0.2@o2ib"]
        assert "no answer within 30 s" in check.reason


class TestReading:
    def test_nids_with_quotes_and_without(self):
        text = (
            "osc.l-OST0000-osc-ff.import=\nimport:\n    name: l-OST0000-osc-ff\n"
            "    target: l-OST0000_UUID\n    state: FULL\n    import_flags: [ replayable ]\n"
            "    connection:\n       failover_nids: [ 10.0.0.1@tcp, 10.0.0.2@tcp ]\n"
            "       current_connection: {}\n"
        )
        for nid, wanted in (("10.0.0.1@tcp", "10.0.0.1@tcp"), ('"<none>"', "")):
            (read,) = health.read_imports(text.format(nid))
            assert (read.target, read.connection, read.trouble) == ("l-OST0000", wanted, "")
