# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""LNet: files, running values, and changes while a file system is mounted."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import (
    NOT_APPLICABLE,
    PENDING,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage import lnet
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.lustre import LustreKernel

from tests.unit.lustre_node import LustreNode, settings_of
from tests.unit.storage_node import found, wrong

GOLDEN = Path(__file__).parent / "golden/storage"
EIGHT = [{"interface": f"rail{number}"} for number in range(8)]
FULL = {
    "networks": [
        {"net": "o2ib0", "peer_credits": 32, "credits": 1024, "conns_per_peer": 4},
        {"net": "tcp1", "interfaces": ["stor0"], "peer_timeout": 180},
    ],
    "discovery": False,
    "routes": [{"net": "o2ib7", "gateway": "10.1.0.9@tcp1"}],
    "modprobe": {
        "lnet": {"lnet_transaction_timeout": "100", "lnet_retry_count": "2"},
        "ko2iblnd": {"peer_credits": "32"},
        "ksocklnd": {"skip_mr_route_setup": "0"},
    },
}


@pytest.fixture
def node(tmp_path):
    return LustreNode(tmp_path)


class TestFiles:
    @pytest.mark.parametrize(
        ("name", "value", "rails"), [("rails", None, EIGHT), ("full", FULL, EIGHT)]
    )
    def test_golden(self, name, value, rails):
        settings = settings_of(value, rails)
        for kind, text in (
            ("lnet.conf", lnet.lnet_conf(settings)),
            ("modprobe.conf", lnet.modprobe_conf(settings)),
        ):
            assert text == (GOLDEN / f"lustre-{name}.{kind}").read_text()

    def test_the_service_follows_the_rails(self, node):
        node.settle()
        text = node.read("etc/systemd/system/lnet.service.d/baremetal-mpi-roce.conf")
        assert text.endswith("[Unit]\nAfter=baremetal-mpi-roce-rails.service\n")


class TestReading:
    def test_output_that_is_not_yaml(self, node):
        node.stand_in.run("modprobe", ["lnet"])
        shown = {
            "net": "---\nnet:\n-     net type: tcp0\n      local NI(s):\n"
            "      -     nid: 10.244.0.10@tcp\n            status: up\n"
            "            interfaces:\n                  0: eth0\n",
            "global": "show:\n-     global:\n      errno: -3\n"
            '      descr: ! "Network is down"\n...\n',
        }

        def look(argv, *, check=True):
            return Result(tuple(argv), 0, shown[argv[1]], "")

        read = lnet.running_values(LustreKernel(node.root, look), {})
        assert read == {(lnet.NETWORK, "tcp"): ["eth0"], (lnet.DISCOVERY, ""): "not shown"}


class TestConverging:
    def test_a_new_node_and_a_second_run(self, node):
        first = node.settle(FULL_ON_NODE)
        assert (first.errors, wrong(first)) == ([], [])
        assert node.enabled
        assert node.active
        assert node.stand_in.state["nets"] == {"o2ib": ["rail0", "rail1"]}
        second = node.settle(FULL_ON_NODE)
        assert (second.changed, wrong(second)) == (False, [])
        assert set(found(second, "lustre_lnet_network")) == {"o2ib"}
        assert not [call for call in node.calls if call[0] == "lustre_rmmod"]

    def test_check_mode_shows_the_plan(self, node):
        planned = node.settle(check_mode=True)
        assert not (node.root / "etc/lnet.conf").exists()
        assert not node.active
        assert [each["before_header"] for each in planned.diff][-2:] == [
            "lnet.service (running)",
            "LNet (running)",
        ]
        assert found(planned, "lustre_lnet_network")["o2ib"].status == PENDING

    def test_a_change_reloads_lnet(self, node):
        node.settle()
        changed = node.settle({"networks": [{"net": "o2ib", "interfaces": ["rail1"]}]})
        assert (changed.errors, wrong(changed)) == ([], [])
        assert node.stand_in.state["nets"] == {"o2ib": ["rail1"]}
        assert "lustre_lnet_network o2ib: rail0, rail1" in changed.diff[-1]["before"]

    def test_an_unwanted_network_is_removed(self, node):
        node.settle()
        node.change(nets={"o2ib": ["rail0", "rail1"], "tcp": ["eth0"]})
        assert found(node.settle(check_mode=True), "lustre_lnet_network")["tcp"].wanted == []
        node.settle()
        assert node.stand_in.state["nets"] == {"o2ib": ["rail0", "rail1"]}

    def test_modules_loaded_by_a_mount_are_reloaded(self, node):
        """lnet.service does not start with loaded modules, and would import nothing."""
        node.stand_in.run("modprobe", ["lnet"])
        assert wrong(node.settle()) == []
        assert node.stand_in.state["nets"] == {"o2ib": ["rail0", "rail1"]}
        node.change(hang=["lnetctl net"])
        with pytest.raises(PlanError, match="no answer within 30 s"):
            node.settle()

    def test_every_router_is_required(self, node):
        routers = ["10.9.0.8@o2ib", "10.9.0.9@o2ib"]
        value = {"routes": [{"net": "tcp7", "gateway": each} for each in routers]}
        assert wrong(node.settle(value)) == []
        node.change(routes=[["tcp7", routers[1]]])
        check = found(node.settle(value, check_mode=True), "lustre_lnet_route")["tcp7"]
        assert (check.status, check.wanted, check.found) == (
            PENDING,
            ", ".join(routers),
            routers[1],
        )


FULL_ON_NODE = {
    "networks": [{"net": "o2ib0", "conns_per_peer": 4}],
    "routes": [{"net": "tcp7", "gateway": "10.9.0.9@o2ib"}],
    "modprobe": {"ko2iblnd": {"peer_credits": "32"}, "lnet": {"lnet_retry_count": "3"}},
}


class TestUnderMounts:
    def test_a_change_names_the_mounts(self, node):
        node.settle()
        node.mount()
        before = node.read("etc/lnet.conf")
        other = {"networks": [{"net": "o2ib", "interfaces": ["rail1"]}]}
        check = found(node.settle(other, check_mode=True), "lustre_lnet_network")["o2ib"]
        assert check.status == PENDING and "/lustre" in check.reason
        with pytest.raises(PlanError) as caught:
            node.settle(other)
        text = str(caught.value)
        assert "lustre_lnet_network o2ib: rail1" in text
        assert "Lustre is mounted at /lustre" in text
        assert node.read("etc/lnet.conf") == before
        assert node.stand_in.state["nets"] == {"o2ib": ["rail0", "rail1"]}
        with pytest.raises(PlanError, match="lustre_module_option ko2iblnd peer_credits: 32"):
            node.settle({"modprobe": {"ko2iblnd": {"peer_credits": "32"}}})

    def test_a_correct_configuration_is_taken_over(self, node):
        """Files and the next boot are configured; the running LNet is not changed."""
        node.settle()
        node.mount()
        node.enabled = node.active = False
        outcome = node.settle()
        assert (outcome.errors, wrong(outcome)) == ([], [])
        assert node.enabled
        assert node.stand_in.state["mounts"]
        assert (
            "while Lustre is mounted"
            in found(outcome, "lustre_lnet_service")["lnet.service"].reason
        )


class TestRefused:
    def test_a_foreign_configuration(self, node):
        node.write("etc/lnet.conf", "# mine\nnet:\n    - net type: tcp\n")
        with pytest.raises(PlanError, match=r"/etc/lnet.conf: has foreign content"):
            node.settle()
        assert node.read("etc/lnet.conf").startswith("# mine")

    def test_newer_modules_are_loaded(self, node):
        node.settle()
        node.change(installed="2.15.8", version="2.15.8")
        changed = node.settle()
        assert "lustre_module_version: 2.15.7" in changed.diff[-1]["before"]
        assert wrong(changed) == []
        assert node.read("sys/module/lnet/version") == "2.15.8\n"
        assert not node.settle().changed

    def test_a_client_missing_at_the_site(self, node):
        (node.root / "usr/sbin/lfs").unlink()
        with pytest.raises(PlanError, match="the Lustre client is not installed: no lfs"):
            node.settle()


def test_a_container_only_gets_files(node):
    (node.root / "usr/sbin/lfs").unlink()
    outcome = node.settle(container="podman")
    assert outcome.errors == []
    assert node.read("etc/lnet.conf").count("rail0") == 1
    assert node.calls == []
    kinds = {check.status for check in outcome.checks if check.name.startswith("lustre")}
    assert kinds == {NOT_APPLICABLE}
    assert wrong(outcome) == []
