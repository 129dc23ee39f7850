"""What filters incoming connections, from outputs of firewalld, ufw, nftables and iptables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    Result,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.os_baseline import firewall

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
