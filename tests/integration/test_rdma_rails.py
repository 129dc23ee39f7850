# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The QoS contract on real kernels with Soft-RoCE: `dcb` and configfs set and report it.

A manual change is reported exactly, and only that change is repaired.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.qos import HostSettings

from tests.nodes import Nodes, Run

pytestmark = pytest.mark.machines

RDMA_CM = "/sys/kernel/config/rdma_cm"


@pytest.fixture
def node(machines: Nodes) -> str:
    return machines.group("compute")[0]


def rails(machines: Nodes, name: str, *words: str) -> Run:
    """Run the layer on one node, as an operator would to repair it."""
    return machines.play("site.yml", "--tags=rails", f"--limit={name}", *words)


def contract_of(machines: Nodes, name: str) -> HostSettings:
    return HostSettings.of(machines.of(name)["cluster_qos"])


def dcb(machines: Nodes, name: str, kind: str, rail: str) -> dict[str, Any]:
    text = machines.on(name).check_output("dcb -N -j %s show dev %s", kind, rail)
    answer: dict[str, Any] = json.loads(text)
    return answer


def pfc(machines: Nodes, name: str, rail: str) -> list[int]:
    found = dcb(machines, name, "pfc", rail)["prio_pfc"]
    return [priority for priority, on in enumerate(found) if on]


def cm_tos(device: str, command: str) -> str:
    """Run a command on the default TOS of a device, whose configfs folder exists only meanwhile."""
    folder = f"{RDMA_CM}/{device}"
    file = f"{folder}/ports/1/default_roce_tos"
    return f"mkdir -p {folder} && {command.format(file=file)} && rmdir {folder}"


def shown(run: Run) -> dict[str, set[str]]:
    """Return the settings named by each diff of a run; both sides must name the same ones."""
    found = {}
    for part in run.output.split("--- before: ")[1:]:
        header, *lines = part.split("\n\n")[0].splitlines()
        sides = {
            sign: {line[1:].split(":")[0] for line in lines[2:] if line[0] == sign} for sign in "-+"
        }
        assert sides["-"] == sides["+"], part
        found[header] = sides["-"]
    return found


def test_the_contract_is_on_every_rail(machines: Nodes) -> None:
    for name in machines.group("compute"):
        wanted = contract_of(machines, name)
        for rail in machines.of(name)["cluster_rails"]:
            interface = rail["interface"]
            assert pfc(machines, name, interface) == list(wanted.pfc_priorities)
            app = dcb(machines, name, "app", interface)["dscp_prio"]
            assert sorted(app) == [list(pair) for pair in sorted(wanted.dscp_to_priority.items())]
            ets = dcb(machines, name, "ets", interface)
            assert ets["prio_tc"] == list(wanted.priority_to_tc)
            assert ets["tc_tsa"] == [traffic_class.tsa for traffic_class in wanted.ets]
            assert ets["tc_bw"] == [traffic_class.percent for traffic_class in wanted.ets]
            device = f"rxe{rail['rail']}"
            tos = machines.on(name).check_output("sh -c %s", cm_tos(device, "cat {file}"))
            assert int(tos) == wanted.traffic_class


def test_an_unchanged_run_is_one_execution(machines: Nodes, node: str) -> None:
    run = rails(machines, node)
    assert run.total("changed") == 0
    assert run.report["remote_module_executions"]["most_on_a_compute_node"] == 1
    checks = run.checks("rails", node)
    lacking = {check["name"] for check in checks if "Soft-RoCE" in check["reason"]}
    assert {"rail_traffic_class", "rail_max_read_request_bytes"} <= lacking
    kept = {check["name"] for check in checks if check["status"] == "ok"}
    assert {"rail_trust", "rail_pfc", "rail_ets", "rail_cma_roce_tos", "rail_roce_mode"} <= kept


def test_what_is_changed_by_hand_is_shown_exactly_and_repaired(machines: Nodes, node: str) -> None:
    machines.on(node).check_output("dcb pfc set dev rail1 prio-pfc all:off")
    for _time in range(2):  # check mode writes nothing: it reports the same again
        checked = rails(machines, node, "--check", "--diff")
        assert shown(checked) == {"rail1 (settings)": {"pfc"}}
        assert checked.total("changed") == 1
    assert rails(machines, node).total("changed") == 1
    assert rails(machines, node, "--check", "--diff").total("changed") == 0
    assert pfc(machines, node, "rail1") == list(contract_of(machines, node).pfc_priorities)


def test_drift_of_everything_that_soft_roce_has(machines: Nodes, node: str) -> None:
    by_hand = (
        "dcb app flush dev rail0 dscp-prio",
        "dcb ets set dev rail0 prio-tc 5:3",
        "dcb app add dev rail1 dscp-prio 26:1",
        "dcb ets set dev rail1 tc-tsa all:strict tc-bw all:0",
        cm_tos("rxe1", "echo 4 >{file}"),
    )
    for command in by_hand:
        machines.on(node).check_output("sh -c %s", command)
    assert shown(rails(machines, node, "--check", "--diff")) == {
        "rail0 (settings)": {"trust", "dscp_to_priority", "priority_to_tc"},
        "rail1 (settings)": {"dscp_to_priority", "ets", "cma_roce_tos"},
    }
    assert rails(machines, node).total("changed") == 1
    assert rails(machines, node, "--check", "--diff").total("changed") == 0


def test_a_contract_of_ones_own_is_set_as_well(machines: Nodes, node: str, tmp_path: Path) -> None:
    """Nothing of the defaults remains, such as a second priority for a DSCP."""
    other = {"roce": {"dscp": 24, "priority": 5}, "cnp": {"dscp": 46, "priority": 7}}
    changed = machines.changed(tmp_path, lambda model: model.update(roce_qos=other))
    wanted = contract_of(changed, node)
    assert wanted.pfc_priorities == (5,)
    changed.play("playbooks/rails.yml", f"--limit={node}")
    assert pfc(machines, node, "rail0") == list(wanted.pfc_priorities)
    app = dcb(machines, node, "app", "rail0")["dscp_prio"]
    assert sorted(app) == [list(pair) for pair in sorted(wanted.dscp_to_priority.items())]
    assert changed.play("playbooks/rails.yml", f"--limit={node}").total("changed") == 0
    assert rails(machines, node).total("changed") == 1
