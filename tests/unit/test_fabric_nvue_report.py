# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The report of an NVUE switch in terms of the contract."""

from __future__ import annotations

import copy
import dataclasses
import json
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric import system
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.compare import port_checks
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.nvue import switch
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.nvue.tree import put
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos.compiled import PfcWatchdog

from tests.unit.nvue_switch import Tree, intent, merged, present
from tests.unit.test_fabric_nvue_difference import converged, listed


def report(config: Tree, **changes: Any) -> system.SwitchReport:
    return switch.DRIVER.report(intent(), dataclasses.replace(present(config), **changes))


def port(config: Tree, **changes: Any) -> system.PortReport:
    return report(config, **changes).ports[0]


def operational(*path: Any) -> system.PortReport:
    ports = copy.deepcopy(present({}).ports)
    put(ports["swp1"], tuple(path[:-1]), path[-1])
    return port(converged(), ports=ports)


def test_a_converged_switch_keeps_the_contract() -> None:
    one = intent()
    whole = report(converged())
    assert (whole.switch, whole.system, whole.lldp) == ("leaf01", "nvue", True)
    assert whole.version == "Cumulus Linux 5.12.0" and len(whole.ports) == 4
    first = whole.ports[0]
    assert first == system.PortReport(
        "swp1",
        present=True,
        up=True,
        speed_gbps=800,
        mtu_ip=one.fabric.mtu_ip,
        trust="dscp",
        dscp_to_traffic_class=one.fabric.dscp_to_traffic_class,
        pfc_priorities=(3,),
        lossless_priorities=(3,),
        strict_queues=(6,),
        weights={0: 50, 3: 50},
        ecn={3: system.EcnReport(150000, 1500000, 100)},
        cable_metres=100,
        headroom_bytes=None,
        watchdog=PfcWatchdog(True, 100, 200, 0, "drop"),
        neighbour=system.Neighbour("node01", "rail0"),
    )
    json.dumps(whole.as_dict())


def test_spectrum_x_uses_dscp_24_without_marking() -> None:
    one = intent({"fabric_mode": "spectrum_x"})
    config = merged({}, switch.DRIVER.wanted(one))
    first, *_more = switch.DRIVER.report(one, present(config)).ports
    assert first.dscp_to_traffic_class is not None and first.dscp_to_traffic_class[24] == 3
    assert (first.ecn, first.pfc_priorities, first.lossless_priorities) == ({}, (3,), (3,))

    def statuses(config: Tree) -> dict[str, str]:
        difference = switch.DRIVER.difference(one, switch.DRIVER.wanted(one), present(config))
        report = switch.DRIVER.report(one, present(config))
        checks = port_checks(one, report, difference, check_mode=True)
        return {check.name: check.status for check in checks if check.status != "ok"}

    assert statuses(config) == {"adaptive_routing": "not_applicable"}
    other = {"port_ecn": "pending", "port_dscp_map": "pending", "configuration": "pending"}
    assert statuses(converged()) == {**other, "adaptive_routing": "not_applicable"}
    roce = switch.DRIVER.difference(intent(), switch.DRIVER.wanted(intent()), present(converged()))
    checks = port_checks(intent(), report(converged()), roce, check_mode=True)
    assert "adaptive_routing" not in {check.name for check in checks}


BUFFER: Tree = {"qos": {"pfc": {"default-global": {"xon-threshold": 75000}}}}
"""NVIDIA/nv-config-manager 50d4d776, template of a SuperPOD, qos.j2."""


@pytest.mark.parametrize(
    ("size", "xoff", "metres", "room", "status"),
    [
        (363000, 75000, 40, 363000, "ok"),
        (363000, 75000, 50, 363000, "failed"),
        ("600000 B", 75000, 50, 600000, "ok"),
        (600000, None, 50, 600000, "ok"),
    ],
)
def test_a_fixed_buffer_replaces_cable_lengths(
    size: Any, xoff: Any, metres: int, room: int, status: str
) -> None:
    """NVIDIA's figure for 800G is enough for 40 m, by NVIDIA's formula too: 362496."""
    config = listed(
        merged(converged(), BUFFER), "qos", "pfc", "default-global", "port-buffer", size
    )
    if xoff is not None:
        put(config, ("qos", "pfc", "default-global", "xoff-threshold"), xoff)
    one = intent({"cable_metres": {"to_nodes": metres, "between_switches": metres}})
    found = report(config)
    assert (found.ports[0].headroom_bytes, found.ports[0].cable_metres) == (room, None)
    for check_mode in (False, True):
        checks = port_checks(one, found, None, check_mode)
        (headroom,) = [check for check in checks if check.name == "port_headroom"]
        assert headroom.status == status
        assert ("port-buffer" in headroom.reason) == (status == "failed")
    assert not any(check.name == "port_cable" for check in checks)


def test_a_new_switch_keeps_none_of_it() -> None:
    first = port({})
    assert first.trust == "pcp" and set(first.dscp_to_traffic_class or ()) == {0}
    assert first.pfc_priorities == () == first.lossless_priorities
    assert first.ecn == {0: system.EcnReport(150000, 1500000, 100)}
    assert first.watchdog is not None and not first.watchdog.enabled
    assert first.watchdog.detection_ms == 300


def test_a_port_with_other_profiles_does_what_they_say() -> None:
    config = listed(converged(), "interface", "swp1", "qos", "pfc", "profile", "mine")
    mine = {"switch-priority": {"5": {}}, "cable-length": 7}
    config = listed(config, "qos", "pfc", "mine", mine)
    whole = report(config)
    assert whole.ports[0].pfc_priorities == (5,) and whole.ports[0].cable_metres == 7
    assert whole.ports[0].lossless_priorities == ()
    assert whole.ports[1].pfc_priorities == (3,)


@pytest.mark.parametrize(("way", "word"), [("rx", "disable"), ("tx", "disabled")])
def test_a_pause_in_one_direction_is_none(way: str, word: str) -> None:
    assert port(listed(converged(), "qos", "pfc", "default-global", way, word)).pfc_priorities == ()


@pytest.mark.parametrize(
    ("path", "lossless"),
    [
        (("qos", "roce", "enable", "off"), ()),
        (("qos", "roce", "mode", "lossy"), ()),
        (("qos", "roce", "mode", "lossless-single-ipool"), (3,)),
        (("qos", "traffic-pool", "roce-lossless", "switch-priority", {"4": {}}), ()),
    ],
)
def test_pfc_without_a_lossless_buffer_is_seen(path: tuple[Any, ...], lossless: Any) -> None:
    first = port(listed(converged(), *path))
    assert first.pfc_priorities == (3,) and first.lossless_priorities == lossless


def test_unmapped_dscps_follow_the_switch_s_default() -> None:
    config = converged()
    del config["qos"]["mapping"]["default-global"]["dscp"]
    classes = port(config).dscp_to_traffic_class
    assert classes is not None and classes[24:32] == (3,) * 8 and classes[8:16] == (0,) * 8


def test_what_the_chip_does_comes_before_what_is_applied() -> None:
    running = copy.deepcopy(converged()["qos"])
    running["mapping"]["default-global"]["dscp"]["26"] = {"switch-priority": 0}
    running["roce"] = {"mode": "lossless"}
    first = port(converged(), running_qos=running)
    assert first.dscp_to_traffic_class is not None and first.dscp_to_traffic_class[26] == 0
    assert first.lossless_priorities == (3,), "enable is applied, and missing here"


def test_queues_that_nothing_leads_to_are_nobody_s() -> None:
    scheduler = ("qos", "egress-scheduler", "default-global", "traffic-class")
    config = listed(converged(), *scheduler, "5", {"mode": "strict"})
    config = listed(config, *scheduler, "1", {"mode": "dwrr", "bw-percent": 9})
    first = port(config)
    assert first.strict_queues == (6,) and first.weights == {0: 50, 3: 50}


def test_thresholds_as_the_chip_rounds_them() -> None:
    marked = {"3": {"min-threshold": 159744, "max-threshold": "1511424 B"}}
    first = operational("qos", "congestion-control", "traffic-class", marked)
    assert first.ecn == {3: system.EcnReport(159744, 1511424, 100)}


@pytest.mark.parametrize(
    ("link", "up"),
    [
        ({"oper-status": "up", "state": {"down": {}}}, True),
        ({"oper-status": "down"}, False),
        ({"state": {"up": {}}}, True),
        ({"state": {"down": {}}}, False),
        ({"state": "up"}, True),
        ({}, None),
    ],
)
def test_up_and_down_of_old_and_new_releases(link: Tree, up: Any) -> None:
    assert operational("link", link).up is up


@pytest.mark.parametrize(
    ("speed", "gbps"),
    [
        ("800G", 800),
        ("1600G", 1600),
        ("1.6T", 1600),
        ("40000M", 40),
        ("auto", None),
        (None, None),
        ("9" * 400 + "G", None),
    ],
)
def test_speeds(speed: Any, gbps: Any) -> None:
    assert operational("link", "speed", speed).speed_gbps == gbps


MAC = "b8:ce:f6:01:02:0a"


@pytest.mark.parametrize(
    ("heard", "neighbour"),
    [
        ({}, None),
        ({"leaf02": {"age": "1", "port": {"name": "swp3"}}}, system.Neighbour("leaf02", "swp3")),
        (
            {MAC: {"chassis": {"chassis-id": MAC}, "port": {"name": "B8CE.F601.020A"}}},
            system.Neighbour("", MAC),
        ),
        (
            {MAC.upper(): {"chassis": {"system-name": ""}, "port": {"name": MAC.upper()}}},
            system.Neighbour("", MAC),
        ),
        (
            {
                "old": {"age": "900", "chassis": {"system-name": "old"}, "port": {"name": "swp1"}},
                "new": {"age": "3", "chassis": {"system-name": "new"}, "port": {"name": "swp2"}},
            },
            system.Neighbour("new", "swp2"),
        ),
    ],
)
def test_neighbours(heard: Tree, neighbour: Any) -> None:
    assert operational("lldp", "neighbor", heard).neighbour == neighbour


def test_a_switch_without_lldp_says_so() -> None:
    ports = {name: {"link": one["link"]} for name, one in present({}).ports.items()}
    assert report(converged(), ports=ports).lldp is False


def test_the_new_words_are_read_as_the_old_ones() -> None:
    new = merged(converged(release="5.16.0", new=True), {})
    one = intent()
    read = present(new, release="5.16.0", new=True)
    assert switch.DRIVER.report(one, read).ports == report(converged()).ports
