# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Changes of an NVUE switch, and settings that stay."""

from __future__ import annotations

import copy
import dataclasses
import time
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric import asics, system
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.nvue import switch, tree
from hypothesis import given
from hypothesis import strategies as st

from tests.bed.simulators.parts import nvue_tree
from tests.unit.nvue_switch import Tree, intent, merged, present
from tests.unit.qos_contracts import contracts


def plan(config: Tree, one: system.SwitchIntent | None = None, **read: Any) -> system.Difference:
    one = one or intent()
    return switch.DRIVER.difference(one, switch.DRIVER.wanted(one), present(config, **read))


def converged(config: Tree | None = None, **read: Any) -> Tree:
    config = config or {}
    result = merged(config, plan(config, **read).steps)
    assert not plan(result, **read)
    return result


def listed(config: Tree, *path: Any) -> Tree:
    result = copy.deepcopy(config)
    tree.put(result, tuple(path[:-1]), path[-1])
    return result


def values(difference: system.Difference) -> list[tuple[str, Any, Any]]:
    return [(change.path, change.found, change.wanted) for change in difference.changes]


def test_a_new_switch_gets_everything_once() -> None:
    difference = plan({})
    assert difference.before == "" and difference.impact.level == "loss"
    assert "nv set qos roce enable on\n" in difference.after
    assert "nv set interface swp4 link mtu 9198\n" in difference.after
    assert "nv set qos pfc default-global switch-priority 3\n" in difference.after
    assert system.Change("qos roce mode", None, "lossless") in difference.changes
    converged()


def test_only_the_leaf_that_differs_is_sent() -> None:
    drifted = listed(converged(), "interface", "swp2", "link", "mtu", 1500)
    difference = plan(drifted)
    assert difference.steps == {"interface": {"swp2": {"link": {"mtu": 9198}}}}
    assert values(difference) == [("interface swp2 link mtu", 1500, 9198)]
    assert difference.before == "nv set interface swp2 link mtu 1500\n"
    assert difference.after == "nv set interface swp2 link mtu 9198\n"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("qos roce enable", "off"),
        ("qos roce mode", "lossy"),
        ("qos roce cable-length", 10),
        ("qos mapping default-global dscp 26 switch-priority", 0),
        ("qos mapping default-global trust", "both"),
        ("qos pfc default-global switch-priority 4", {}),
        ("qos pfc default-global tx", "disable"),
        ("qos egress-scheduler default-global traffic-class 6 mode", "dwrr"),
        ("qos congestion-control default-global traffic-class 0 ecn", "enable"),
        ("interface swp1 qos pfc-watchdog state", "disable"),
        ("qos remark default-global rewrite", "l3"),
        ("interface swp1 qos pfc profile", "mine"),
        ("interface swp1 qos link-pause profile", "mine"),
    ],
)
def test_drift_is_found_and_repaired(path: str, value: Any) -> None:
    drifted = listed(converged(), *path.split(), value)
    difference = plan(drifted)
    assert [change.path for change in difference.changes] == [path]
    assert not plan(merged(drifted, difference.steps))


def marking(config: Tree) -> dict[str, str]:
    listed = tree.at(config, "qos", "congestion-control", "default-global", "traffic-class")
    return {number: settings["ecn"] for number, settings in sorted(listed.items())}


def test_a_queue_that_was_the_contract_s_no_longer_marks() -> None:
    """The priority of RoCE changes and returns: nothing remains of the other one."""
    there = intent({"roce": {"priority": 4}, "cnp": {"priority": 7}})
    moved = merged(done := converged(), plan(done, there).steps)
    assert marking(done) == {"0": "disable", "3": "enable", "6": "disable"}
    assert marking(moved) == {"0": "disable", "3": "disable", "4": "enable", "7": "disable"}
    assert not plan(moved, there)
    back = merged(moved, plan(moved).steps)
    assert marking(back) == marking(done) and not plan(back)


def test_a_share_for_a_queue_that_nothing_leads_to_goes() -> None:
    """The shares would exceed 100, which NVUE refuses."""
    share = {"mode": "dwrr", "bw-percent": 20}
    drifted = listed(
        converged(), "qos", "egress-scheduler", "default-global", "traffic-class", "5", share
    )
    difference = plan(drifted)
    assert difference.steps["qos"]["egress-scheduler"]["default-global"]["traffic-class"] == {
        "5": None
    }
    assert "nv set qos egress-scheduler default-global traffic-class 5 bw-percent 20\n" in (
        difference.before
    )
    assert difference.after == ""


OPERATORS = {
    "qos": {
        "mapping": {"mine": {"trust": "l2"}},
        "pfc": {"storage-ports": {"switch-priority": {"5": {}}, "cable-length": 7}},
        "egress-shaper": {"shaper1": {"port-max-rate": 2000}},
        "traffic-pool": {"roce-lossless": {"memory-percent": 60}},
        "advance-buffer-config": {"default-global": {"ingress-lossless-buffer": {"reserved": 1}}},
        "congestion-control": {"mine": {"traffic-class": {"5": {"ecn": "enable"}}}},
    },
    "interface": {
        "swp1": {"description": "to node01", "ip": {"address": {"10.0.0.1/31": {}}}},
        "swp60": {"qos": {"pfc": {"profile": "storage-ports"}}, "link": {"mtu": 1500}},
        "lo": {"ip": {"address": {"10.9.9.9/32": {}}}},
    },
}


def test_the_operator_s_own_configuration_is_left_alone() -> None:
    done = converged(OPERATORS)
    assert merged(done, OPERATORS) == done, "something of the operator's is gone or another"
    assert "swp60" not in str(plan(OPERATORS).steps)
    assert "storage-ports" not in str(plan(OPERATORS).steps)


SUPERPOD: Tree = {
    "qos": {
        "pfc": {
            "default-global": {
                "port-buffer": 363000,
                "switch-priority": {"3": {}},
                "xoff-threshold": 75000,
                "xon-threshold": 75000,
            }
        },
        "roce": {"state": "enabled", "mode": "lossless"},
        "traffic-pool": {
            "default-lossy": {"memory-percent": 10},
            "roce-lossless": {"memory-percent": 90},
        },
    }
}
"""NVIDIA's template for Spectrum-X and Cumulus Linux 5.16.1 (NVIDIA/nv-config-manager 50d4d776,
superpod-demo-common, qos.j2)."""


def test_buffers_of_nvidia_s_template_stay() -> None:
    one, read = intent({"fabric_mode": "spectrum_x"}), {"release": "5.16.1", "new": True}
    difference = plan(SUPERPOD, one, **read)
    done = merged(SUPERPOD, difference.steps)
    assert not plan(done, one, **read)
    assert merged(done, SUPERPOD) == done
    assert not any("memory-percent" in change.path for change in difference.changes)


def test_defaults_that_somebody_wrote_down_may_stay() -> None:
    written = {
        "qos": {
            "pfc": {"default-global": {"rx": "enable", "tx": "enabled"}},
            "remark": {"default-global": {"rewrite": "l2"}},
        },
        "interface": {"swp1": {"qos": {"pfc": {"profile": "default-global"}}}},
    }
    done = converged(written)
    assert done["qos"]["pfc"]["default-global"]["rx"] == "enable"


def test_a_release_with_the_new_words_is_spoken_to_in_them() -> None:
    difference = plan({}, release="5.16.1", new=True)
    assert difference.steps["qos"]["roce"]["state"] == "enabled"
    assert "enable" not in difference.steps["qos"]["roce"]
    marked = difference.steps["qos"]["congestion-control"]["default-global"]["traffic-class"]
    assert marked["3"]["ecn"] == "enabled" and marked["0"]["ecn"] == "disabled"
    watchdog = difference.steps["interface"]["swp1"]["qos"]["pfc-watchdog"]
    assert watchdog == {"state": "enable"}, "published configurations mix both spellings"
    assert "nv set qos roce state enabled\n" in difference.after
    done = converged(release="5.16.1", new=True)
    drifted = listed(done, "qos", "roce", "state", "disabled")
    assert values(plan(drifted, release="5.16.1", new=True)) == [
        ("qos roce state", "disabled", "enabled")
    ]


def test_each_key_is_spelt_as_the_switch_shows_that_key() -> None:
    found = present({}, release="5.16.1", new=True)
    shown = {
        name: {**port, "qos": {"pfc-watchdog": {"state": "disabled"}}}
        for name, port in found.ports.items()
    }
    found = dataclasses.replace(
        found, ports=shown, filled_qos={**found.filled_qos, "roce": {"enable": "off"}}
    )
    steps = switch.DRIVER.difference(intent(), switch.DRIVER.wanted(intent()), found).steps
    assert steps["interface"]["swp1"]["qos"]["pfc-watchdog"] == {"state": "enabled"}
    assert steps["qos"]["roce"]["enable"] == "on"


def test_a_cable_length_that_roce_does_not_show_is_not_sent() -> None:
    on = listed(listed({}, "qos", "roce", "enable", "on"), "qos", "roce", "mode", "lossless")
    assert "cable-length" in plan({}).steps["qos"]["roce"]
    steps = plan(on).steps["qos"]
    assert "roce" not in steps and steps["pfc"]["default-global"]["cable-length"] == 100


def test_a_port_of_a_bond_is_refused() -> None:
    for member in ("swp2", "swp1-2", "swp9,2"):
        bonded = listed(converged(), "interface", "bond7", "bond", "member", member, {})
        with pytest.raises(system.SwitchError, match=r"leaf01: swp\d .*is a member of bond7"):
            plan(bonded)
    assert not plan(listed(converged(), "interface", "bond7", "bond", "member", "swp9", {}))


def test_a_port_that_left_loses_mtu_and_watchdog_when_down() -> None:
    done = converged()
    left = merged(done, {"interface": {"swp5": done["interface"]["swp4"]}})
    read = present(left, ports=5)

    def plan_of(config: Tree, status: str | None = "down") -> system.Difference:
        ports = listed(read.ports, "swp5", "link", "oper-status", status)
        now = dataclasses.replace(read, explicit=config, ports=ports)
        return switch.DRIVER.difference(intent(), switch.DRIVER.wanted(intent()), now)

    gone = plan_of(left)
    assert gone.steps == {
        "interface": {"swp5": {"link": {"mtu": None}, "qos": {"pfc-watchdog": {"state": None}}}}
    }
    assert not plan_of(merged(left, gone.steps))
    for status in ("up", None):
        assert not plan_of(left, status), "somebody may have set it so by hand, and uses it"
    assert not plan_of(listed(left, "interface", "swp5", "link", "mtu", 9000))
    assert not plan_of(listed(left, "interface", "bond7", "bond", "member", "swp5,9", {}))


def ecn(config: Tree, low: int) -> Tree:
    path = ("qos", "congestion-control", "default-global", "traffic-class", "3", "min-threshold")
    return listed(config, *path, low)


def test_the_step_of_the_hardware_is_tolerated_and_nothing_else() -> None:
    """150000 bytes are 159744 on Spectrum-4: the next multiple of 64 cells of 192 bytes."""
    done = converged()
    assert not plan(ecn(done, 159744))
    for other in (159743, 159745, 147456, 172032, 156672, 0):
        assert plan(ecn(done, other)), other


@pytest.mark.parametrize(
    ("asic", "low", "high"),
    [
        ("spectrum4", 159744, 1511424),
        ("spectrum3", 156672, 1502208),
        ("spectrum2", 156672, 1502208),
    ],
)
def test_each_chip_has_its_own_step(asic: str, low: int, high: int) -> None:
    """The figures of NVIDIA's documentation: 156 KB and 153.00 KB, 1.43 MB."""
    chip = asics.ASICS[asic]
    assert asics.rounded(chip, 150000, low) and asics.rounded(chip, 1500000, high)
    assert asics.rounded(asics.Asic(""), 150000, low), "an unnamed chip may be any Spectrum"
    assert not asics.rounded(chip, 150000, low + 64) and not asics.rounded(chip, low, 150000)
    assert asics.rounded(chip, low, low)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("swp1", ["swp1"]),
        ("swp1-3", ["swp1", "swp2", "swp3"]),
        ("swp1-2,swp6", ["swp1", "swp2", "swp6"]),
        ("swp3s0-1", ["swp3s0", "swp3s1"]),
        ("0-1,4", ["0", "1", "4"]),
        ("bond-a", ["bond-a"]),
        ("peerlink.4094", ["peerlink.4094"]),
        ("swp9-2", ["swp9-2"]),
        # CumulusNetworks, demos of Cumulus Linux 5.1: `nv config show`
        ("lo,swp3-4,vlan10,20,30", ["lo", "swp3", "swp4", "vlan10", "vlan20", "vlan30"]),
        # Cumulus Linux 5.x, NVUE CLI: swp2-16,18-32,34-48
        ("swp2-3,18-19,34", ["swp2", "swp3", "swp18", "swp19", "swp34"]),
        # a NetBox plugin that read the JSON of a switch
        ("bond3,5-6", ["bond3", "bond5", "bond6"]),
        # operators' ZTP: nv set interface swp1-64s0-1 link state up
        ("swp1-2s0-1", ["swp1s0", "swp1s1", "swp2s0", "swp2s1"]),
        ("swp1s0-1,3s0,swp9", ["swp1s0", "swp1s1", "swp3s0", "swp9"]),
        ("vx-10-4000010", ["vx-10-4000010"]),
        ("lo,5", ["lo", "5"]),
        (f"{'x' * 65}1-2", [f"{'x' * 65}1-2"]),
        ("swp1-4000s0-7", ["swp1-4000s0-7"]),
    ],
)
def test_ranges_stand_for_their_names(key: str, expected: list[str]) -> None:
    assert tree.names(key) == expected


def test_keys_without_end_are_not_taken_apart_for_long() -> None:
    """A part with too many names is not expanded."""
    part = "s".join(["x1-4000", *["1-4000"] * 8])
    assert len(part) <= 64
    before = time.process_time()
    assert tree.names(",".join([part] * 10_000))[-1] == part
    assert time.process_time() - before < 5


PORTS = st.builds(
    "{}{}{}".format,
    st.sampled_from(("swp", "bond", "vlan")),
    st.integers(0, 300),
    st.sampled_from(("", "s0", "s1", "s3")),
)


@given(st.one_of(st.sets(each, min_size=1) for each in (PORTS, st.integers(0, 63).map(str))))
def test_what_is_printed_together_is_taken_apart_again(several: set[str]) -> None:
    assert sorted(tree.names(nvue_tree.together(sorted(several)))) == sorted(several)


def test_ranges_of_ports_are_read_as_their_ports() -> None:
    """Answers with ranges, as in newer releases, are not a difference."""
    done = converged()
    ports = done.pop("interface")
    with_ranges = {"swp1-4": ports["swp1"], "swp2": {"description": "x"}}
    assert not plan({**done, "interface": tree.expanded(with_ranges)})
    mapped = done["qos"]["mapping"]["default-global"]
    others = {key: value for key, value in mapped["dscp"].items() if key not in ("1", "2", "3")}
    mapped["dscp"] = {**others, "1-3": {"switch-priority": 0}}
    assert not plan({**done, "interface": ports})


def running(done: Tree, path: str, value: Any) -> list[tuple[str, Any, Any]]:
    """Changes of a switch whose chip differs from its configuration in one value."""
    one, read = intent(), present(done)
    doing = {"qos": copy.deepcopy(done["qos"]), "interface": copy.deepcopy(read.ports)}
    tree.put(doing, tuple(path.split()), value)
    read = dataclasses.replace(read, running_qos=doing["qos"], ports=doing["interface"])
    return values(switch.DRIVER.difference(one, switch.DRIVER.wanted(one), read))


@pytest.mark.parametrize(
    ("path", "found", "wanted"),
    [
        ("interface swp3 link mtu", 9216, 9198),
        ("qos mapping default-global dscp 26 switch-priority", 0, 3),
        ("qos mapping default-global trust", "l2", "l3"),
        ("qos egress-scheduler default-global traffic-class 6 mode", "dwrr", "strict"),
        ("interface swp1 qos pfc-watchdog state", "disabled", "enable"),
    ],
)
def test_what_the_chip_does_counts_too(path: str, found: Any, wanted: Any) -> None:
    """An apply that was accepted but only half carried out is not a success."""
    assert (path, found, wanted) in running(converged(), path, found)


def test_a_priority_that_only_the_chip_pauses_goes() -> None:
    path = "qos pfc default-global switch-priority"
    assert (f"{path} 0", "set", None) in running(converged(), path, {"0": {}})


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("qos roce", {}),
        ("qos egress-scheduler", {}),
        ("qos roce mode", "lossless"),
        ("qos roce mode", "Lossless (RoCEv2)"),
        ("qos mapping default-global trust", "pcp,dscp"),
        ("interface swp1 qos pfc-watchdog state", "OK"),
        ("qos pfc default-global switch-priority", "3"),
        ("qos congestion-control default-global traffic-class 3 max-threshold", "1.43 MB"),
        ("qos congestion-control default-global traffic-class 3 min-threshold", "159744 B"),
    ],
)
def test_what_the_chip_does_not_say_contradicts_nothing(path: str, value: Any) -> None:
    assert running(converged(), path, value) == []


_EXTRA = (
    ("qos", "pfc", "default-global", "switch-priority", "5"),
    ("qos", "egress-scheduler", "default-global", "traffic-class", "1", "mode"),
    ("qos", "traffic-pool", "roce-lossless", "switch-priority", "1"),
    ("qos", "remark", "mine", "rewrite"),
    ("qos", "pfc", "mine", "cable-length"),
    ("interface", "swp1", "description"),
    ("interface", "swp9", "link", "mtu"),
)
_EDITS = st.lists(
    st.tuples(
        st.integers(0, 400),
        st.one_of(st.integers(0, 9), st.sampled_from(["on", "off", "enabled", "x", None])),
    ),
    max_size=12,
)


@given(_EDITS, contracts(), st.booleans())
def test_one_apply_is_enough_whatever_was_there(
    edits: list[tuple[int, Any]], contract: dict[str, Any], new: bool
) -> None:
    """For any drift and contract the merged difference is complete, and other settings stay."""
    contract.setdefault("pfc", {}).setdefault("watchdog", {})["action"] = "drop"
    contract.setdefault("mtu", {})["fabric_layer"] = "frame"
    contract["mtu"]["fabric"] = min(contract["mtu"].get("fabric", 9216), 9234)
    one = intent(contract, ports=2)
    places = [*(path for path, _value in tree.ends(switch.DRIVER.wanted(one))), *_EXTRA]
    before = merged({}, OPERATORS)
    for number, value in edits:
        path = places[number % len(places)]
        before = listed(before, *path, {} if path[-2] == "switch-priority" else value)
    before = merged({}, before)
    read = {"ports": 2, "new": new, "release": "5.16.0" if new else "5.12.0"}
    difference = plan(before, one, **read)
    after = merged(before, difference.steps)
    assert not plan(after, one, **read)
    ours = {path for path, _value in tree.ends(switch.DRIVER.wanted(one))}
    for path in {*(path for path, _value in tree.ends(OPERATORS)), *_EXTRA[3:]}:
        if any(path[:length] in ours for length in range(1, len(path) + 1)):
            continue  # a lossy contract removes the whole lossless pool
        assert tree.at(after, *path) == tree.at(before, *path), f"{path} is the operator's"
