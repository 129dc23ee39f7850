# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What comes from a SONiC switch: no more than is looked at, and whatever stands in it."""

from __future__ import annotations

import contextlib
import copy
import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.sonic import SYSTEM, tables
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.sonic.commands import (
    Completed,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.sonic.reading import (
    CONFIG,
    MARK,
    PORTS,
    SAVED,
    VERSION,
    parsed,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.system import SwitchError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.sonic_switch import Config, FakeShell, after, new_switch, present, small

SECRET = "s3cret-of-the-operator"
SECRETS: Config = {
    "TACPLUS": {"global": {"passkey": SECRET}},
    "SNMP_COMMUNITY": {SECRET: {"TYPE": "RO"}},
    "BGP_NEIGHBOR": {"10.0.0.1": {"asn": "65100", "auth_password": SECRET}},
    "PORTCHANNEL": {"PortChannel1": {"description": SECRET}},
}


class Overheard(FakeShell):
    """Remembers all that the switch said."""

    said = ""

    def run(self, command: str, stdin: str = "", timeout_s: int = 60) -> Completed:
        answer = super().run(command, stdin, timeout_s)
        self.said += f"{command}{stdin}{answer.stdout}{answer.stderr}"
        return answer


@pytest.fixture
def shell(tmp_path: Path) -> Overheard:
    return Overheard(tmp_path, {**new_switch(2), **SECRETS})


def test_passwords_of_other_tables_stay_on_the_switch(shell: Overheard) -> None:
    """Ansible shows at -vvv whatever comes over SSH."""
    switch, intent = SYSTEM.connect(shell), small()
    read = switch.read()
    assert read.config == new_switch(2)
    switch.apply(SYSTEM.difference(intent, SYSTEM.wanted(intent), read), 300).confirm()
    switch.read()
    assert SECRET not in shell.said and "pfc_enable" in shell.said
    assert shell.saved["TACPLUS"] == SECRETS["TACPLUS"]


@pytest.mark.parametrize("text", [f"Traceback {SECRET}", f'["{SECRET}"]', f'"{SECRET}"', ""])
def test_what_is_no_json_is_not_shown(shell: Overheard, text: str) -> None:
    (shell.root / "state.json").write_text(text)
    with pytest.raises(SwitchError, match=r"sonic-cfggen -d --print-data`.*printed no JSON"):
        SYSTEM.connect(shell).read()
    assert SECRET not in shell.said


def test_the_status_of_the_program_that_failed_is_kept(shell: Overheard) -> None:
    (shell.root / "bin/sonic-cfggen").write_text("#!/bin/sh\necho 'no redis' >&2\nexit 42\n")
    with pytest.raises(SwitchError, match="ended with status 42: no redis"):
        SYSTEM.connect(shell).read()


DONE = after(
    new_switch(2), SYSTEM.difference(small(), SYSTEM.wanted(small()), present(new_switch(2))).steps
)
ODD: list[Any] = [
    *("²", "٣", "-1", "3.5", "", "9" * 5000, "NULL", "a|b", "0-7", ",,", "on"),
    *(3, None, True, [], ["3", 4], [[1]], {}, {"a": {"b": 1}}),
]
KEYS = ["Ethernet0", "Ethernet0|²", "Ethernet0|3-٤", "Ethernet0|0-99999999999", "|", "", "GLOBAL"]


def answer(config: Any, ports: Any = None) -> Completed:
    parts = {
        CONFIG: json.dumps(config),
        SAVED: json.dumps(config),
        VERSION: "build_version: 1\nasic_type: mellanox",
        PORTS: json.dumps(ports or {}),
    }
    return Completed(0, "".join(f"{text}\n{MARK} {name} 0\n" for name, text in parts.items()), "")


@settings(max_examples=80)
@given(st.data())
def test_whatever_stands_in_a_field_is_a_difference_or_said_and_never_a_traceback(
    data: st.DataObject,
) -> None:
    config: Any = copy.deepcopy(DONE)
    for _count in range(data.draw(st.integers(1, 3))):
        table = data.draw(st.sampled_from(sorted(tables.LOOKED_AT)))
        odd = copy.deepcopy(data.draw(st.sampled_from(ODD)))
        rows = config.setdefault(table, {})
        if not isinstance(rows, dict) or data.draw(st.booleans()):
            config[table] = odd
            continue
        key = data.draw(st.sampled_from([*rows, *KEYS]))
        row = rows.setdefault(key, {})
        if not isinstance(row, dict) or data.draw(st.booleans()):
            rows[key] = odd
        else:
            row[data.draw(st.sampled_from([*row, "profile", "scheduler", "pool", "mode"]))] = odd
    state = {"PORT_TABLE:Ethernet0": {"type": "hash", "value": {"speed": "²", "oper_status": 1}}}
    with contextlib.suppress(SwitchError):
        read = parsed(answer(config, state))
        SYSTEM.report(small(), read)
        SYSTEM.difference(small(), SYSTEM.wanted(small()), read)
