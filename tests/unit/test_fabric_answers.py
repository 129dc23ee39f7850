# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Any JSON in place of a switch's answer gives a result or an error that names the switch."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric import (
    eos,
    nvue,
    session,
    sonic,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.base import SystemDriver
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.eos.switch import EosSwitch
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.nvue.switch import (
    NvueSwitch,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.sonic.reading import MARK
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.sonic.switch import (
    SonicSwitch,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.system import (
    Completed,
    SwitchConnection,
    SwitchIntent,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.unit import eos_intents, nvue_switch, sonic_switch
from tests.unit.eos_switch import FakeEos
from tests.unit.fake_switch import Time
from tests.unit.nvue_switch import FakeNvue

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from([10**30, "", "x", "swp1-4000", "-1", "1e999", "800G", "\u0663", "/", "a b"]),
    st.text(max_size=5),
)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
PLACE = st.integers(0, 1 << 30)


def places(value: Any) -> Iterator[tuple[Any, ...]]:
    yield ()
    if isinstance(value, list):
        value = dict(enumerate(value))
    for key, each in value.items() if isinstance(value, dict) else ():
        yield from ((key, *place) for place in places(each))


def changed(value: Any, place: tuple[Any, ...], junk: Any) -> Any:
    if not place:
        return junk
    copied = value.copy()
    copied[place[0]] = changed(value[place[0]], place[1:], junk)
    return copied


def spoiled(value: Any, number: int, junk: Any) -> Any:
    every = list(places(value))
    place = every[number % len(every)]
    there = value
    for key in place:
        there = there[key]
    more = isinstance(there, dict) and number % 2
    return changed(value, place, {**there, "x": junk} if more else junk)


def transport(
    answer: Callable[[httpx.Request], httpx.Response], turn: int, number: int, junk: Any
) -> httpx.MockTransport:
    left = [turn]

    def handle(request: httpx.Request) -> httpx.Response:
        response = answer(request)
        left[0] -= 1
        if left[0] != -1 or not response.content:
            return response
        text = json.dumps(spoiled(response.json(), number, junk))
        return httpx.Response(response.status_code, text=text)

    return httpx.MockTransport(handle)


def ended(
    driver: SystemDriver, switch: SwitchConnection, intent: SwitchIntent, time: Time, apply: bool
) -> str:
    """The error, which must not be an exception of the program."""
    found = session.run(driver, switch, intent, apply=apply, confirm_s=60, clock=time.clock)
    assert "of this collection" not in found.error, found.error
    if found.error:
        assert found.error.startswith(f"{intent.name}") and len(found.error) < 4000
    if found.report is not None:
        json.dumps(found.report.as_dict())
    return found.error


TURN = st.integers(0, 40)


def nvue_config() -> dict[str, Any]:
    """Answers of a compliant switch, with keys that name several objects."""
    fake = FakeNvue()
    assert not ended(nvue.SYSTEM.driver, fake.switch(), nvue_switch.intent(), Time(), True)
    return {
        **fake.config,
        "interface": {**fake.config["interface"], "bond1": {"bond": {"member": {"swp7-8": {}}}}},
    }


def eos_config() -> dict[str, Any]:
    fake, time = FakeEos(), Time()
    switch = EosSwitch(LOGIN, fake.transport, time.sleep, lambda: time.now_s)
    assert not ended(eos.SYSTEM.driver, switch, eos_intents.leaf(), time, True)
    return fake.running


LOGIN = FakeNvue().login()
NVUE, EOS = nvue_config(), eos_config()
CONFIGURED = st.booleans()


@given(TURN, PLACE, JSON, st.booleans(), CONFIGURED)
def test_nvue(turn: int, number: int, junk: Any, apply: bool, configured: bool) -> None:
    fake, time = FakeNvue(config=NVUE if configured else {}), Time()
    lying = transport(fake._handle, turn, number, junk)
    switch = NvueSwitch(fake.login(), lying, fake._sleep, lambda: fake.now)
    ended(nvue.SYSTEM.driver, switch, nvue_switch.intent(), time, apply)


@given(TURN, PLACE, JSON, st.booleans(), CONFIGURED)
def test_eos(turn: int, number: int, junk: Any, apply: bool, configured: bool) -> None:
    fake, time = FakeEos(copy.deepcopy(EOS) if configured else None), Time()
    lying = transport(fake._answer, turn, number, junk)
    switch = EosSwitch(LOGIN, lying, time.sleep, lambda: time.now_s)
    ended(eos.SYSTEM.driver, switch, eos_intents.leaf(), time, apply)


class Told:
    """A shell that answers a read with these parts."""

    def __init__(self, parts: dict[str, str]) -> None:
        self.text = "".join(f"{text}\n{MARK} {name} 0\n" for name, text in parts.items())

    def run(self, _command: str, stdin: str = "", timeout_s: int = 60) -> Completed:
        return Completed(0, self.text, "")

    def reconnect(self) -> None:
        pass

    def say(self, _line: str) -> None:
        pass


CONFIG = sonic_switch.new_switch(ports=2)
PARTS: dict[str, Any] = {
    "config": CONFIG,
    "saved": CONFIG,
    "ports": {
        f"PORT_TABLE:{name}": {"type": "hash", "value": {"oper_status": "up", "speed": "800000"}}
        for name in CONFIG["PORT"]
    },
    "neighbours": {
        f"LLDP_ENTRY_TABLE:{name}": {
            "type": "hash",
            "value": {"lldp_rem_port_id": "rail0", "lldp_rem_sys_name": "node01"},
        }
        for name in CONFIG["PORT"]
    },
    "channels": {
        "LAG_MEMBER_TABLE:PortChannel1:Ethernet0": {"type": "hash", "value": {"status": "enabled"}}
    },
}


@given(st.sampled_from([*PARTS]), PLACE, JSON)
def test_sonic(part: str, number: int, junk: Any) -> None:
    parts = {**PARTS, part: spoiled(PARTS[part], number, junk)}
    texts = {name: json.dumps(value) for name, value in parts.items()}
    texts["version"] = "build_version: 'simulation.1'\nasic_type: mellanox"
    switch = SonicSwitch(Told({**texts, "units": ""}))
    ended(sonic.SYSTEM.driver, switch, sonic_switch.small(), Time(), False)


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_what_a_shell_of_sonic_prints(printed: bytes) -> None:
    shell = Told({})
    shell.text = printed.decode("utf-8", "replace")
    assert ended(sonic.SYSTEM.driver, SonicSwitch(shell), sonic_switch.small(), Time(), False)
