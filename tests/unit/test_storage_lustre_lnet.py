# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""LNet: files to the letter, what runs, and a change under a mounted file system."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.checks import (
    FAILED,
    NOT_APPLICABLE,
    OK,
    PENDING,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.node.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.node.settle import settle
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.file_system import (
    FileSystem,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.lustre import (
    block_yaml,
    lnet_file,
    lnet_state,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.lustre.kernel import Kernel
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.lustre.lnet import LnetPart
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.lustre.reading import (
    read_settings,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.lustre_node import LUSTRE, RAILS, LustreNode, found, wrong

GOLDEN = Path(__file__).parent / "golden/storage"
EIGHT = [{"interface": f"rail{number}"} for number in range(8)]
FULL = {
    "networks": [
        {"net": "o2ib0", "peer_credits": 32, "credits": 1024, "conns_per_peer": 4},
        {"net": "tcp1", "interfaces": ["stor0"], "peer_timeout": 180},
    ],
    "discovery": False,
    "routes": [{"net": "o2ib7", "gateway": "10.1.0.9@tcp1"}],
    "peers": [{"nids": ["10.9.0.1@o2ib0", "10.9.1.1@o2ib0"]}, {"nids": ["10.9.0.2@o2ib"]}],
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
        settings = read_settings(value, rails, [LUSTRE])
        for kind, text in (
            ("lnet.conf", lnet_file.lnet_conf(settings)),
            ("modprobe.conf", lnet_file.modprobe_conf(settings)),
        ):
            assert text == (GOLDEN / f"lustre-{name}.{kind}").read_text()

    def test_it_is_what_a_parser_of_yaml_reads(self):
        settings = read_settings(FULL, RAILS, [LUSTRE])
        read = yaml.safe_load(lnet_file.lnet_conf(settings))
        first, second = read["net"]
        assert [ni["interfaces"] for ni in first["local NI(s)"]] == [{0: "rail0"}, {0: "rail1"}]
        assert first["local NI(s)"][1]["tunables"] == {"peer_credits": 32, "credits": 1024}
        assert first["local NI(s)"][1]["lnd tunables"] == {"conns_per_peer": 4}
        assert second["net type"] == "tcp1"
        assert read["global"] == {"discovery": 0}
        assert read["peer"][0]["Multi-Rail"] is True
        assert [ni["nid"] for ni in read["peer"][1]["peer ni"]] == ["10.9.0.2@o2ib"]

    def test_our_reader_sees_the_networks_that_were_written(self):
        settings = read_settings(FULL, RAILS, [LUSTRE])
        tree = block_yaml.load(lnet_file.lnet_conf(settings))
        networks = lnet_state.networks_of(tree["net"])
        assert {net: [ni.name for ni in nis] for net, nis in networks.items()} == {
            "o2ib": ["rail0", "rail1"],
            "tcp1": ["stor0"],
        }

    def test_the_service_comes_after_the_rails(self, node):
        node.settle()
        text = node.read("etc/systemd/system/lnet.service.d/baremetal-mpi-roce.conf")
        assert text.endswith("[Unit]\nAfter=baremetal-mpi-roce-rails.service\n")

    def test_without_rails_there_is_nothing_to_wait_for(self, node):
        node.interface("stor0", rdma=False)
        tcp = FileSystem("ckpt", "lustre", "10.9.0.1@tcp:/lustre", "/lustre", "checkpoints")
        node.settle({"networks": [{"net": "tcp", "interfaces": ["stor0"]}]}, [tcp])
        assert not (node.root / "etc/systemd/system/lnet.service.d").exists()


KEYS = st.from_regex(r"[a-z][a-z_ ()]{0,8}[a-z]", fullmatch=True).filter(
    lambda key: key not in ("yes", "no", "on", "off", "null", "true", "false", "y", "n")
)
VALUES = st.from_regex(r"[a-z0-9][a-z0-9@./-]{1,12}", fullmatch=True)
TREES = st.recursive(
    VALUES,
    lambda inner: st.one_of(
        st.dictionaries(KEYS, inner, min_size=1, max_size=4),
        st.lists(inner, min_size=1, max_size=4),
    ),
    max_leaves=12,
).filter(lambda tree: not isinstance(tree, str))


class TestReading:
    @given(TREES, st.integers(2, 6))
    def test_whatever_a_writer_of_yaml_writes_is_read_as_text(self, tree, indent):
        text = yaml.dump(tree, default_flow_style=False, indent=indent, default_style="'")
        assert block_yaml.load(text) == tree
        plain = yaml.dump(tree, default_flow_style=False, indent=indent)
        assert block_yaml.load(plain) == tree

    @given(st.text(max_size=300))
    def test_whatever_is_printed_is_no_exception(self, text):
        block_yaml.load(text)

    def test_other_indents_and_things_that_are_no_yaml(self):
        text = (
            "---\nnet:\n-     net type: tcp\n      local NI(s):\n"
            "      -     nid: 10.244.0.10@tcp\n            status: up\n"
            "            interfaces:\n                  0: eth0\n"
            'show:\n-     net:\n      errno: -3\n      descr: ! "Network is down"\n...\n'
        )
        read = block_yaml.load(text)
        assert lnet_state.networks_of(read["net"])["tcp"][0].name == "eth0"
        assert read["show"][0]["descr"] == "Network is down"

    def test_an_lnet_that_is_not_configured_has_no_networks(self, node):
        node.stand_in.run("modprobe", ["lnet"])
        read = lnet_state.read(node.root, node.run)
        assert (read.loaded, read.networks, read.problem) == (True, {}, "")

    def test_an_lnet_that_is_not_loaded_is_not_asked(self, node):
        assert not lnet_state.read(node.root, node.run).loaded
        assert node.calls == []


class TestConverging:
    def test_a_fresh_node_and_a_second_run(self, node):
        first = node.settle(FULL_ON_NODE)
        assert (first.errors, wrong(first)) == ([], [])
        assert node.enabled
        assert node.active
        assert node.stand_in.state["nets"] == {"o2ib": ["rail0", "rail1"]}
        second = node.settle(FULL_ON_NODE)
        assert (second.changed, wrong(second)) == (False, [])
        assert set(found(second, "lustre_lnet_network")) == {"o2ib"}
        assert not [call for call in node.calls if call[0] == "lustre_rmmod"]

    def test_a_reboot_brings_the_same(self, node):
        node.settle()
        node.reboot()
        again = node.settle()
        assert (again.changed, wrong(again)) == (False, [])

    def test_check_mode_writes_nothing_and_shows_it_all(self, node):
        planned = node.settle(check_mode=True)
        assert not (node.root / "etc/lnet.conf").exists()
        assert not node.active
        assert [each["before_header"] for each in planned.diff][-2:] == [
            "lnet.service (running)",
            "LNet (running)",
        ]
        assert found(planned, "lustre_lnet_network")["o2ib"].status == PENDING

    def test_a_change_is_made_by_loading_it_again(self, node):
        node.settle()
        changed = node.settle({"networks": [{"net": "o2ib", "interfaces": ["rail1"]}]})
        assert (changed.errors, wrong(changed)) == ([], [])
        assert node.stand_in.state["nets"] == {"o2ib": ["rail1"]}
        assert "network o2ib: rail0, rail1" in changed.diff[-1]["before"]

    def test_a_network_of_somebody_else_is_taken_away(self, node):
        node.settle()
        node.change(nets={"o2ib": ["rail0", "rail1"], "tcp": ["eth0"]})
        assert found(node.settle(check_mode=True), "lustre_lnet_network")["tcp"].wanted == []
        node.settle()
        assert node.stand_in.state["nets"] == {"o2ib": ["rail0", "rail1"]}

    def test_what_a_mount_loaded_without_the_service_is_loaded_again(self, node):
        """lnet.service does not start over loaded modules, and would import nothing."""
        node.stand_in.run("modprobe", ["lnet"])
        assert wrong(node.settle()) == []
        assert node.stand_in.state["nets"] == {"o2ib": ["rail0", "rail1"]}

    def test_an_interface_that_is_down_fails(self, node):
        node.settle()
        node.change(down=["rail1"])
        check = found(node.settle(), "lustre_lnet_network")["o2ib"]
        assert (check.status, check.found) == (FAILED, ["rail0", "rail1 (down)"])
        assert "ip -br link show rail1" in check.reason

    def test_an_lnet_that_hangs_is_said_and_left(self, node):
        node.settle()
        node.change(hang=["lnetctl net"])
        with pytest.raises(PlanError, match=r"no answer within 30 s.*reboot the node"):
            node.settle()

    def test_discovery_off_over_several_rails_is_said(self, node):
        check = found(node.settle({"discovery": False}), "lustre_lnet_discovery")[""]
        assert (check.status, check.found) == (OK, "off")
        assert "the others stay idle" in check.reason

    def test_an_option_that_the_module_does_not_have_is_found(self, node):
        outcome = node.settle({"modprobe": {"ko2iblnd": {"no_such": "1"}}})
        check = found(outcome, "lustre_module_option")["ko2iblnd no_such"]
        assert (check.status, check.found) == (FAILED, "not told")


FULL_ON_NODE = {
    "networks": [{"net": "o2ib0", "conns_per_peer": 4}],
    "peers": [{"nids": ["10.9.0.1@o2ib0", "10.9.1.1@o2ib0"]}],
    "routes": [{"net": "tcp7", "gateway": "10.9.0.9@o2ib"}],
    "modprobe": {"ko2iblnd": {"peer_credits": "32"}, "lnet": {"lnet_retry_count": "3"}},
}


class TestUnderMounts:
    def test_a_change_is_refused_and_names_the_mounts(self, node):
        node.settle()
        node.mount()
        before = node.read("etc/lnet.conf")
        with pytest.raises(PlanError) as caught:
            node.settle({"networks": [{"net": "o2ib", "interfaces": ["rail1"]}]})
        text = str(caught.value)
        assert "network o2ib from rail0, rail1 to rail1" in text
        assert "Lustre is mounted at /lustre" in text
        assert "umount /lustre" in text
        assert node.read("etc/lnet.conf") == before
        assert node.stand_in.state["nets"] == {"o2ib": ["rail0", "rail1"]}

    def test_check_mode_shows_it_with_the_reason(self, node):
        node.settle()
        node.mount()
        value = {"networks": [{"net": "o2ib", "interfaces": ["rail1"]}]}
        planned = node.settle(value, check_mode=True)
        assert "network o2ib: rail1" in planned.diff[-1]["after"]
        check = found(planned, "lustre_lnet_network")["o2ib"]
        assert check.status == PENDING
        assert "refused until Lustre is unmounted, which is mounted at /lustre" in check.reason

    def test_mounts_of_others_count(self, node):
        node.settle()
        node.write(
            "proc/self/mountinfo",
            "40 1 0:40 / /other rw shared:1 - lustre 10.8.0.1@o2ib:/other rw,flock\n",
        )
        with pytest.raises(PlanError, match="mounted at /other"):
            node.settle({"networks": [{"net": "o2ib", "interfaces": ["rail1"]}]})

    def test_what_can_be_set_while_it_runs_is(self, node):
        node.settle()
        node.mount()
        value = {
            "discovery": False,
            "modprobe": {"lnet": {"lnet_transaction_timeout": "100"}},
        }
        planned = node.settle(value, check_mode=True)
        checks = [check for check in planned.checks if check.status == PENDING]
        assert {check.name for check in checks} >= {"lustre_lnet_discovery", "lustre_module_option"}
        assert not [check for check in checks if "refused" in check.reason]
        changed = node.settle(value)
        assert (changed.errors, wrong(changed)) == ([], [])
        assert node.stand_in.state["discovery"] == 0
        path = "sys/module/lnet/parameters/lnet_transaction_timeout"
        assert node.read(path) == "100\n"
        assert node.stand_in.state["mounts"]
        assert not node.settle(value).changed

    def test_what_cannot_is_refused(self, node):
        node.settle()
        node.mount()
        with pytest.raises(PlanError, match="option peer_credits of ko2iblnd from 8 to 32"):
            node.settle({"modprobe": {"ko2iblnd": {"peer_credits": "32"}}})

    def test_once_unmounted_it_is_done(self, node):
        node.settle()
        node.mount()
        node.unmount()
        assert wrong(node.settle({"modprobe": {"ko2iblnd": {"peer_credits": "32"}}})) == []
        assert node.read("sys/module/ko2iblnd/parameters/peer_credits") == "32\n"

    def test_what_runs_as_wanted_is_taken_over_under_mounts(self, node):
        """Configured by hand until now: files and the next boot, and nothing of what runs."""
        node.settle()
        node.mount()
        node.enabled = node.active = False
        outcome = node.settle()
        assert (outcome.errors, wrong(outcome)) == ([], [])
        assert node.enabled
        assert node.stand_in.state["mounts"]
        assert "stays so" in found(outcome, "lustre_lnet_service")["lnet.service"].reason


class TestModules:
    def test_newer_ones_on_disk_are_loaded(self, node):
        node.settle()
        node.change(installed="2.15.8", version="2.15.8")
        changed = node.settle()
        assert "modules: 2.15.7" in changed.diff[-1]["before"]
        assert wrong(changed) == []
        assert node.read("sys/module/lnet/version") == "2.15.8\n"
        assert not node.settle().changed

    def test_under_a_mount_they_are_not(self, node):
        node.settle()
        node.mount()
        node.change(installed="2.15.8")
        with pytest.raises(PlanError, match=r"modules from 2\.15\.7 to 2\.15\.8 was not begun"):
            node.settle()

    def test_modules_that_this_run_exchanges_are_loaded_by_it(self, node):
        node.settle()
        kernel = Kernel(node.root, node.run)
        settings = read_settings({}, RAILS, [LUSTRE])
        outcome = settle([LnetPart(settings, kernel, (), lambda: True)], node.node())
        assert "modules: of the new packages" in outcome.diff[-1]["after"]
        assert ["lustre_rmmod"] not in node.calls  # lnet.service does it
        assert ["systemctl", "stop", "lnet.service"] in node.calls


class TestRefused:
    def test_a_configuration_that_somebody_wrote(self, node):
        node.write("etc/lnet.conf", "# mine\nnet:\n    - net type: tcp\n")
        with pytest.raises(PlanError, match=r"/etc/lnet.conf: somebody wrote it \('net:', 2 lines"):
            node.settle()
        assert node.read("etc/lnet.conf").startswith("# mine")

    def test_the_comments_of_the_package_are_nobodys(self, node):
        node.write("etc/lnet.conf", "# lnet.conf - configuration\n#\n\n")
        assert wrong(node.settle()) == []

    def test_networks_in_modprobe(self, node):
        node.write("etc/modprobe.d/lustre.conf", "# x\noptions lnet networks=tcp0(eth0)\n")
        with pytest.raises(PlanError, match=r"/etc/modprobe.d/lustre.conf, line 2: 'options lnet"):
            node.settle()

    def test_an_interface_without_rdma(self, node):
        node.interface("stor0", rdma=False)
        with pytest.raises(PlanError, match="stor0 has no RDMA device"):
            node.settle({"networks": [{"net": "o2ib", "interfaces": ["stor0"]}]})

    def test_an_interface_that_is_not_there(self, node):
        with pytest.raises(PlanError, match="rail9 is no rail of this host and no other"):
            node.settle({"networks": [{"net": "o2ib", "interfaces": ["rail9"]}]})

    def test_check_mode_waits_for_rails_that_earlier_layers_make(self, node):
        """Of a fresh node: `site.yml --check` begins with this one."""
        for rail in ("rail0", "rail1"):
            shutil.rmtree(node.root / "sys/class/net" / rail)
        shutil.rmtree(node.root / "sys/class/infiniband")
        check = found(node.settle(check_mode=True), "lustre_lnet_network")["o2ib"]
        assert check.status == PENDING and "rail0 is no rail" in check.reason
        assert check.reason.endswith("(1 more of this kind)")
        with pytest.raises(PlanError, match="rail0 is no rail of this host"):
            node.settle()

    def test_it_waits_for_nothing_else(self, node):
        with pytest.raises(PlanError, match="rail9 is no rail"):
            node.settle({"networks": [{"net": "o2ib", "interfaces": ["rail9"]}]}, check_mode=True)
        node.settle()
        shutil.rmtree(node.root / "sys/class/net/rail0")
        with pytest.raises(PlanError, match="rail0 is no rail"):  # LNet runs over it
            node.settle(check_mode=True)

    def test_a_client_that_the_site_has_not_installed(self, node):
        (node.root / "usr/sbin/lfs").unlink()
        with pytest.raises(PlanError, match="the Lustre client is not installed: no lfs"):
            node.settle()


def test_in_a_container_the_files_are_real_and_the_rest_is_said(node):
    (node.root / "usr/sbin/lfs").unlink()
    outcome = node.settle(container="podman")
    assert outcome.errors == []
    assert node.read("etc/lnet.conf").count("rail0") == 1
    assert node.calls == []
    kinds = {check.status for check in outcome.checks if check.name.startswith("lustre")}
    assert kinds == {NOT_APPLICABLE}
    assert wrong(outcome) == []


def test_the_stand_in_says_what_it_is(node):
    node.settle()
    assert node.told
    assert all("SIMULATION" in text for text in node.told)
