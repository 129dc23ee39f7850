# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The order of ports by the switch's own table, before anything is set."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.action import switch_qos
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.asics import ASICS
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.eos.reading import (
    Present as EosPresent,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.nvue.reading import (
    Present as NvuePresent,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.port_order import (
    PortRow,
    check_order,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.system import (
    PortIntent,
    SwitchError,
    SwitchIntent,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.systems import SYSTEMS

from tests.unit.small_model import compiled, edited
from tests.unit.sonic_switch import new_switch, present, small


def intent(names: str, system: str = "sonic", gbps: int = 800, **changes: Any) -> SwitchIntent:
    ports = tuple(
        PortIntent(name, "host", gbps, 50, f"node{number}", "rail0")
        for number, name in enumerate(names.split(), 1)
    )
    chip = ASICS["tomahawk5" if system == "eos" else "spectrum4"]
    if system == "eos":
        chip = replace(chip, options={"eos_queue": "tx-queue"})
    return replace(small(), system=system, asic=chip, ports=ports, **changes)


def rows(text: str) -> list[PortRow]:
    """`Ethernet0 1 8, ...`: name, number on the front, lanes."""
    parts = (row.split() for row in text.split(", "))
    return [PortRow(name, int(front), int(lanes)) for name, front, lanes in parts]


def ports_of(step: int, count: int, first: int = 0) -> list[PortRow]:
    numbers = range(first, first + step * count, step)
    return [PortRow(f"Ethernet{number}", number // 8 + 1, step) for number in numbers]


def refused(what: SwitchIntent, table: Iterable[PortRow]) -> str:
    with pytest.raises(SwitchError) as caught:
        check_order(what, table)
    return str(caught.value)


def names_in(message: str) -> list[str]:
    return re.findall(r"Ethernet\d+|swp\w+", message)[:2]


LEAVES = "count: 2, management_first: 10.0.0.101"
USED = "Ethernet0 Ethernet8 Ethernet496 Ethernet504"


def test_a_switch_with_the_ports_of_the_model() -> None:
    table = [*ports_of(8, 64), PortRow("Ethernet512", 65, 1)]
    check_order(intent(USED), table)
    check_order(intent(USED, port_step=8), table)
    check_order(intent(USED, port_ranges=["Ethernet[0-504/8]"]), table)
    check_order(intent(USED, port_step=8), [replace(row, front=None) for row in table])


def test_a_port_with_too_few_lanes() -> None:
    table = [*ports_of(8, 63), *ports_of(4, 2, 504)]
    assert names_in(refused(intent(USED), table)) == ["Ethernet504"]
    check_order(intent(USED, gbps=400), table)
    check_order(intent(USED), [replace(row, lanes=0) for row in table])


def test_numbers_on_the_front_that_do_not_follow_the_names() -> None:
    table = [replace(row, front=65 - (row.front or 0)) for row in ports_of(8, 64)]
    assert names_in(refused(intent(USED), table)) == ["Ethernet0", "Ethernet8"]
    table[5] = replace(table[5], front=None)
    check_order(intent(USED), table)


def test_computed_names_that_pass_over_ports() -> None:
    halves = ports_of(4, 128)
    message = refused(intent(USED, gbps=400, port_step=8), halves)
    assert names_in(message) == ["Ethernet0", "Ethernet4"]
    assert "port_step: 4" in message and "or 8 where" in message
    check_order(intent(USED, gbps=400, port_step=4), halves)
    check_order(intent(USED, gbps=400), halves)


def test_computed_names_that_pass_over_ports_further_on() -> None:
    mixed = [*ports_of(8, 20), *ports_of(4, 20, 160), *ports_of(8, 34, 240)]
    message = refused(intent(USED, port_step=8), mixed)
    assert names_in(message) == ["Ethernet496"]
    assert "port 73 of the switch" in message and "port 63" in message


RANGES = ["Ethernet[0-248/8]", "Ethernet[256-504/8]"]


def test_ranges_that_pass_over_ports() -> None:
    """800G on four lanes: a range with a step of eight has every second port."""
    halves = ports_of(4, 128)
    used = intent(USED, gbps=400, port_ranges=RANGES)
    assert names_in(refused(used, halves)) == ["Ethernet0", "Ethernet4"]
    others = [*RANGES, "Ethernet[4-252/8]", "Ethernet[260-508/8]"]
    check_order(replace(used, port_ranges=others), halves)
    one_by_one = ["Ethernet0", "Ethernet8", "Ethernet496", "Ethernet504"]
    check_order(replace(used, port_ranges=one_by_one), halves)


def test_a_range_with_a_port_that_the_switch_does_not_have() -> None:
    """Up to the last one in use: the others can be broken out later."""
    table = [*ports_of(8, 32), *ports_of(4, 64, 256)]
    used = intent("Ethernet0 Ethernet264", gbps=400, port_ranges=["Ethernet[0-504/4]"])
    assert names_in(refused(used, table)) == ["Ethernet4"]
    check_order(replace(used, port_ranges=["Ethernet[0-248/8]", "Ethernet[256-508/4]"]), table)
    few = intent("Ethernet256", gbps=400, port_ranges=["Ethernet[256-1020/4]"])
    check_order(few, table)


@pytest.mark.parametrize(
    ("keys", "step", "ranges"),
    [
        ("ports: 64, system: sonic, asic: spectrum4", 8, ()),
        ("ports: {nodes: ['swp[1-4]', swp9]}, system: nvue", 0, ("swp[1-4]", "swp9")),
    ],
)
def test_the_intent_has_step_and_ranges_of_the_model(
    keys: str, step: int, ranges: tuple[str, ...]
) -> None:
    inventory = compiled(edited(f"leaves: {{{keys}, {LEAVES}}}"))
    (leaf,) = [host for host in inventory.hosts if host.name == "leaf01"]
    variables = {"inventory_hostname": "leaf01", **inventory.merged(leaf)}
    templar = SimpleNamespace(template=lambda value: value)
    found = switch_qos._intent(switch_qos._Variables(templar, variables))
    assert (found.port_step, found.port_ranges) == (step, ranges)


def sonic(config: Any, what: SwitchIntent, asic_type: str = "mellanox") -> None:
    driver = SYSTEMS["sonic"].driver
    driver.difference(what, driver.wanted(what), present(config, asic_type=asic_type))


def test_the_table_of_sonic() -> None:
    config, what = new_switch(4), intent("Ethernet0 Ethernet8", port_step=8)
    sonic(config, what)
    config["PORT"]["Ethernet-Rec0"] = {"index": "0", "lanes": "133", "speed": "10000"}
    sonic(config, what)
    config["PORT"]["Ethernet8"]["lanes"] = "8,9,10,11"
    with pytest.raises(SwitchError, match=r"leaf01: Ethernet8 .* 4 lanes .* 800G .* need 8"):
        sonic(config, what)
    sonic(config, what, asic_type="vs")
    config["PORT"]["Ethernet8"] |= {"lanes": "", "index": "0"}
    with pytest.raises(SwitchError, match=r"Ethernet0 has number 1 and Ethernet8 number 0"):
        sonic(config, what)
    del config["PORT"]["Ethernet8"]["index"]
    sonic(config, what)
    config["PORT"]["Ethernet4"] = config["PORT"]["Ethernet0"]
    with pytest.raises(SwitchError, match="after Ethernet0 the switch has Ethernet4"):
        sonic(config, what)


def nvue(names: str, what: SwitchIntent) -> None:
    driver = SYSTEMS["nvue"].driver
    ports = {name: {} for name in names.split()}
    driver.difference(what, driver.wanted(what), NvuePresent("5.12", {}, {}, ports=ports))


def test_the_ports_of_nvue() -> None:
    what = intent("swp1s0 swp1s1", "nvue", 400, port_ranges=["swp[1-2]s[0-1]"])
    nvue("lo eth0 swp1s0 swp1s1 swp2 bond1 swp65", what)
    nvue("swp1 swp1s0 swp1s1 swp2", what)
    with pytest.raises(SwitchError, match=r"swp1s0 .* 2 lanes .* 400G .* need 4"):
        nvue("swp1s0 swp1s1 swp1s2 swp1s3", what)
    with pytest.raises(SwitchError, match="no port swp1s0"):
        nvue("swp1 swp2", what)
    half = intent("swp3s0", "nvue", 400, port_ranges=["swp[1-4]s0"])
    with pytest.raises(SwitchError, match="no port swp2s0"):
        nvue("swp1s0 swp1s1 swp2 swp3s0 swp3s1", half)


def eos(interfaces: dict[str, int], what: SwitchIntent) -> None:
    driver = SYSTEMS["eos"].driver
    status = {
        name: {
            "linkStatus": "connected" if gbps > 0 else "notconnect",
            "bandwidth": abs(gbps) * 10**9,
        }
        for name, gbps in interfaces.items()
    }
    driver.difference(what, driver.wanted(what), EosPresent("4.33", "", "", status, ()))


def test_the_interfaces_of_eos() -> None:
    what = intent("Ethernet1/1 Ethernet1/5", "eos", 400, port_ranges=["Ethernet[1-2]/[1,5]"])
    eos({"Ethernet1/1": 400, "Ethernet1/3": 0, "Ethernet1/5": 400, "Management1": 1}, what)
    eos({"Ethernet1/1": -800, "Ethernet1/5": 0}, what)
    with pytest.raises(SwitchError, match=r"Ethernet1/5 .* no lanes .* Ethernet1/1 uses them"):
        eos({"Ethernet1/1": 800, "Ethernet1/5": 0}, what)
    chassis = intent("Ethernet3/1/1 Ethernet3/2/1", "eos", 800)
    eos({"Ethernet3/1/1": 800, "Ethernet3/2/1": 800}, chassis)
