"""What filters incoming connections, from outputs of firewalld, ufw, nftables and iptables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import engine
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    Result,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.os_baseline import firewall

from tests.unit import host

UFW = """Status: active
Logging: on (low)
Default: deny (incoming), allow (outgoing), disabled (routed)
New profiles: skip

To                         Action      From
--                         ------      ----
22/tcp                     ALLOW IN    Anywhere
"""
CHAIN = {"family": "inet", "table": "filter", "name": "input", "handle": 1, "type": "filter"}
RULE = {"family": "inet", "table": "filter", "chain": "input", "handle": 7}
ACCEPTS = {**RULE, "expr": [{"accept": None}]}
REJECTS = {**RULE, "expr": [{"reject": {"type": "icmpx", "expr": "admin-prohibited"}}]}
INPUT = {**CHAIN, "hook": "input", "prio": 0, "policy": "accept"}


def nft(*entries: Mapping[str, Any]) -> str:
    return json.dumps({"nftables": [{"metainfo": {"json_schema_version": 1}}, *entries]})


class Host:
    """The programs that are there, by command; others are missing, and None fails."""

    def __init__(self, **answers: Optional[str]) -> None:
        self.answers = answers

    def __call__(
        self, argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None
    ) -> Result:
        for words, text in self.answers.items():
            if " ".join(argv).replace("-", "_").startswith(words.replace("__", " ")):
                return Result(tuple(argv), 0 if text is not None else 1, text or "", "")
        raise CommandError(f"{argv[0]}: not installed")


@pytest.mark.parametrize(
    ("answers", "what", "step"),
    [
        ({"firewall_cmd": "running\n"}, "firewalld, zone running of mgmt0", firewall.OPEN),
        ({"ufw": UFW}, "ufw, default deny (incoming)", firewall.OPEN),
        (
            {"ufw": "Status: inactive\n", "nft": nft({"chain": INPUT}, {"rule": REJECTS})},
            "nft table inet filter chain input: rule with handle 7",
            "admit TCP from 10.0.0.0/24",
        ),
        (
            {"nft": nft({"chain": {**INPUT, "policy": "drop"}}, {"rule": ACCEPTS})},
            "nft table inet filter chain input: policy drop",
            "admit TCP from 10.0.0.0/24",
        ),
        (
            {"iptables": "-P INPUT ACCEPT\n-A INPUT -j REJECT --reject-with x\n"},
            "iptables -A INPUT -j REJECT --reject-with x",
            "admit TCP from 10.0.0.0/24",
        ),
        ({"nft": nft({"chain": INPUT}, {"rule": ACCEPTS})}, firewall.NONE, "switches"),
        ({"nft": None, "iptables": None}, firewall.NONE, "switches"),
        ({}, firewall.NONE, "switches"),
    ],
)
def test_what_filters_is_named(answers: dict[str, Optional[str]], what: str, step: str) -> None:
    found = firewall.filters(Host(**answers), "mgmt0", "10.0.0.0/24")
    assert found[0] == what
    assert step in found[1]


@pytest.mark.parametrize(
    "text", ["", "no json", "[]", "null", '{"nftables": 5}', '{"nftables": [5, {"rule": []}]}']
)
def test_what_nft_answers_is_not_trusted(text: str) -> None:
    assert list(firewall.nftables(text)) == []


# Admitting networks

MANAGEMENT, RAIL, OPERATOR = "10.0.0.0/24", "10.1.0.0/24", "172.16.0.0/12"


class Filtered(host.Host):
    """A host with firewalld or ufw, and what each admits."""

    layer = "os"

    def __init__(self, root: Path, service: str) -> None:
        super().__init__(root)
        self.service = service
        self.admitted = {"": {OPERATOR}, "--permanent": {OPERATOR}}
        self.stuck = False

    def run(
        self, argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None
    ) -> Result:
        words = list(argv)
        if words[0] not in {"firewalld": "firewall-cmd", "ufw": "ufw"}.get(self.service, ""):
            raise CommandError(f"{words[0]}: not installed")
        place = "--permanent" if "--permanent" in words else ""
        there, last = self.admitted[place], words[-1].split("=")[-1]
        answer = ""
        if words[-1] in ("--state", "status"):
            answer = {"--state": "running\n", "status": "Status: active\n"}[words[-1]]
        elif words[-1] == "--list-sources":
            answer = " ".join(sorted(there)) + "\n"
        elif words[-1] == "added":
            lines = [f"ufw allow from {each}" for each in sorted(there)]
            answer = "\n".join(["Added user rules (see 'ufw status'):", "ufw allow 22/tcp", *lines])
        elif "delete" in words or "--remove" in words[-1]:
            if self.stuck:
                raise CommandError("it does not answer")
            there.remove(last)
        else:
            there.add(last)
        self.calls.append(words)
        return Result(tuple(argv), 0, answer, "")

    def settle(self, *networks: str, check_mode: bool = False) -> engine.Outcome:
        return engine.settle([firewall.Admitted(networks)], self.node(check_mode))


def record(filtered: Filtered) -> Any:
    path = filtered.root / firewall.RECORD
    return json.loads(path.read_text()) if path.exists() else None


@pytest.fixture(params=["firewalld", "ufw"])
def filtered(request: pytest.FixtureRequest, tmp_path: Path) -> Filtered:
    return Filtered(tmp_path, request.param)


def places(filtered: Filtered) -> list[set[str]]:
    both = filtered.admitted
    return [both[""], both["--permanent"]] if filtered.service == "firewalld" else [both[""]]


def test_networks_are_admitted_once_and_taken_back(filtered: Filtered) -> None:
    shown = filtered.settle("10.0.0.7/24", RAIL, check_mode=True)
    assert shown.changed
    assert {each.status for each in shown.checks} == {"pending"}
    assert places(filtered)[0] == {OPERATOR}
    done = filtered.settle("10.0.0.7/24", RAIL)
    assert {(each.name, each.status) for each in done.checks} == {
        ("firewall", "ok"),
        ("file", "ok"),
    }
    assert all(each == {OPERATOR, MANAGEMENT, RAIL} for each in places(filtered))
    assert record(filtered) == [MANAGEMENT, RAIL]
    assert not filtered.settle(MANAGEMENT, RAIL).changed
    assert filtered.settle().changed
    assert all(each == {OPERATOR} for each in places(filtered))
    assert record(filtered) is None
    assert not filtered.settle().changed


def test_what_the_operator_admitted_stays(filtered: Filtered) -> None:
    assert not filtered.settle(OPERATOR).changed
    filtered.settle()
    assert all(each == {OPERATOR} for each in places(filtered))


def test_what_could_not_be_taken_back_stays_in_the_record(filtered: Filtered) -> None:
    filtered.settle(RAIL)
    filtered.stuck = True
    assert filtered.settle().errors
    assert record(filtered) == [RAIL]
    filtered.stuck = False
    filtered.settle()
    assert (record(filtered), RAIL in places(filtered)[0]) == (None, False)


def test_without_a_service_nothing_is_done(tmp_path: Path) -> None:
    outcome = Filtered(tmp_path, "").settle(RAIL)
    assert not outcome.changed
    assert [each.status for each in outcome.checks] == ["not_applicable"]


def test_a_default_run_asks_no_firewall(filtered: Filtered) -> None:
    assert not filtered.settle().changed
    assert filtered.calls == []


def test_a_network_that_is_none_is_refused(filtered: Filtered) -> None:
    with pytest.raises(PlanError, match=r"10\.0\.0\.0/16"):
        filtered.settle("10.0.0.0/24; reboot")
