"""Filters of incoming connections, from output of firewalld, ufw, nftables and iptables."""

from __future__ import annotations

import json
import shlex
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
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.os_baseline import (
    filters,
    firewall,
)

from tests.unit import host

# Output on nodes: firewalld 1.3.3, ufw 0.36.2, nftables 1.0.6, iptables 1.8.9.

ADDRESSES = json.dumps(
    [
        {},
        {"ifname": "lo", "addr_info": [{"local": "127.0.0.1", "prefixlen": 8}]},
        {"ifname": "mgmt0", "addr_info": [{"local": "10.231.0.11", "prefixlen": 24}]},
        {"ifname": "rail0", "addr_info": [{"local": "10.131.0.11", "prefixlen": 24}]},
    ]
)
MGMT, RAIL0 = "10.231.0.11", "10.131.0.11"
UFW = """Status: active
Logging: on (low)
Default: deny (incoming), allow (outgoing), disabled (routed)
New profiles: skip

To                         Action      From
--                         ------      ----
22/tcp                     ALLOW IN    Anywhere
"""
UFW_S = """-P INPUT DROP
-P FORWARD DROP
-N ufw-before-input
-N ufw-not-local
-A INPUT -j ufw-before-input
-A FORWARD -j DROP
-A ufw-before-input -j ufw-not-local
-A ufw-not-local -j DROP
"""
UFW_DENY = """-A INPUT -j ufw-user-input
-A ufw-user-input -p tcp -m tcp --dport 1:2 -j DROP
"""
BY_HAND = (
    "-A INPUT -p tcp -m tcp --dport 1024:65535 -m conntrack --ctstate NEW -j REJECT --reject-with"
    " icmp-port-unreachable"
)
ZONES = """internal
  sources: 10.0.0.0/8 52:54:00:00:00:01
public
  interfaces: rail0 mgmt0
"""
IPTABLES = """-P INPUT ACCEPT
-P FORWARD DROP
-P OUTPUT ACCEPT
-N DOCKER-ISOLATION-STAGE-2
-N SITE
-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT
-A INPUT -j SITE
-A FORWARD -j DOCKER-ISOLATION-STAGE-2
-A DOCKER-ISOLATION-STAGE-2 -o docker0 -j DROP
-A SITE -m conntrack --ctstate RELATED,ESTABLISHED -j RETURN
-A SITE -p tcp -j REJECT --reject-with tcp-reset
"""


def nft(*entries: Mapping[str, Any]) -> str:
    first = {"version": "1.0.6", "release_name": "Lester Gooch #5", "json_schema_version": 1}
    return json.dumps({"nftables": [{"metainfo": first}, *entries]})


def chain(table: str, name: str, hook: str = "", policy: str = "accept") -> dict[str, Any]:
    family, _space, table = table.partition(" ")
    base = {"type": "filter", "hook": hook, "prio": 0, "policy": policy} if hook else {}
    return {"chain": {"family": family, "table": table, "name": name, "handle": 1, **base}}


def rule(table: str, chain: str, handle: int, *expr: Mapping[str, Any]) -> dict[str, Any]:
    family, _space, table = table.partition(" ")
    place = {"family": family, "table": table, "chain": chain, "handle": handle}
    return {"rule": {**place, "expr": list(expr)}}


REJECT: dict[str, Any] = {"reject": {"type": "icmpx", "expr": "admin-prohibited"}}
XT_REJECT: dict[str, Any] = {"xt": {"type": "target", "name": "REJECT"}}
DROP: dict[str, Any] = {"drop": None}
STATE = {"ct": {"key": "state"}}
SITE = nft(
    chain("inet site", "incoming", "input", "drop"),
    chain("inet site", "forward", "forward", "drop"),
)
CORP = [
    chain("inet corp", "inp", "input"),
    chain("inet corp", "lan"),
    rule("inet corp", "inp", 4, {"match": {}}, {"goto": {"target": "lan"}}),
    rule("inet corp", "lan", 5, {"match": {}}, DROP),
]
FIREWALLD = [
    chain("inet firewalld", "filter_INPUT", "input"),
    chain("inet firewalld", "filter_IN_public"),
    rule("inet firewalld", "filter_INPUT", 9, {"goto": {"target": "filter_IN_public"}}),
    rule("inet firewalld", "filter_IN_public", 10, REJECT),
]
DOCKER = [
    chain("ip filter", "FORWARD", "forward", "drop"),
    rule("ip filter", "FORWARD", 3, {"jump": {"target": "DOCKER"}}),
    rule("ip filter", "DOCKER", 4, {"counter": {"packets": 0, "bytes": 0}}, DROP),
    chain("ip6 filter", "INPUT", "input", "drop"),
]
RULES = [
    *DOCKER,
    chain("ip filter", "INPUT", "input"),
    rule("ip filter", "SITE", 10, {"counter": {"packets": 0, "bytes": 0}}, XT_REJECT),
    rule("ip filter", "INPUT", 8, {"counter": {"packets": 0}}, {"jump": {"target": "SITE"}}),
]
BOTH = "10.131.0.0/24, 10.231.0.0/24"
ALLOWED = "ufw allow from 10.231.0.0/24 comment 'mine'\nufw allow from 10.131.0.0/24\n"


def nft_step(chain: str) -> str:
    rule = f"insert rule {chain} ip saddr {{ {BOTH} }} accept"
    return f"run nft '{rule}', and add the same where these rules are kept"


def iptables_step(program: str, chain: str) -> str:
    rule = f"-I {chain} -s {BOTH.replace(' ', '')} -j ACCEPT"
    return f"run {program} {rule}, and add the same where these rules are kept"


class Programs:
    """Programs by command; others are missing, and None fails."""

    def __init__(self, answers: Mapping[str, Optional[str]]) -> None:
        self.answers = {"ip -j -4 address show": ADDRESSES, **answers}
        self.asked: list[str] = []

    def __call__(
        self, argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None
    ) -> Result:
        self.asked.append(" ".join(argv))
        for words, text in self.answers.items():
            if " ".join(argv) == words:
                return Result(tuple(argv), 0 if text is not None else 1, text or "", "")
        raise CommandError(f"{argv[0]}: not installed")


def firewalld(
    zones: str, *accepting: str, ruleset: str = '{"nftables": []}'
) -> dict[str, Optional[str]]:
    target = "firewall-cmd --permanent --zone={} --get-target"
    return {
        "firewall-cmd --state": "running\n",
        "firewall-cmd --get-active-zones": zones,
        "firewall-cmd --get-default-zone": "public\n",
        **{target.format(zone): "default\n" for zone in ("public", "internal")},
        **{target.format(zone): "ACCEPT\n" for zone in accepting},
        "nft -j list ruleset": ruleset,
    }


def ufw(added: str, **more: str) -> dict[str, Optional[str]]:
    status = {"ufw status": UFW, "ufw status verbose": UFW}
    rules = {"iptables-nft -S": more.get("rules", UFW_S), "nft -j list ruleset": nft()}
    return {**status, "ufw show added": added, **rules}


@pytest.mark.parametrize(
    ("answers", "management", "rail", "step"),
    [
        (
            firewalld("trusted\n  sources: 10.9.0.0/16\n"),
            "firewalld, zone public of mgmt0",
            "firewalld, zone public of rail0",
            filters.STEP,
        ),
        (
            firewalld(f"trusted\n  sources: 10.231.0.0/16 10.131.0.0/16\n{ZONES}", "trusted"),
            *["firewalld, zone internal of 10.0.0.0/8"] * 2,
            "run firewall-cmd --permanent --zone=internal --remove-source=10.0.0.0/8 &&"
            f" firewall-cmd --reload; then {filters.STEP}",
        ),
        (
            firewalld(
                "public (default)\n  interfaces: mgmt0\ntrusted\n  sources: 10.131.0.0/24\n",
                "trusted",
            ),
            "firewalld, zone public of mgmt0",
            f"firewalld admits 10.131.0.0/24 here, and {filters.NONE}",
            f"{filters.STEP}; {filters.OWN['firewalld']}{filters.ELSEWHERE}",
        ),
        (
            firewalld("", "public", ruleset=nft(*FIREWALLD, *CORP)),
            *[
                f"firewalld admits {BOTH} here, but nft table inet corp"
                " chain lan: rule with handle 5"
            ]
            * 2,
            nft_step("inet corp inp"),
        ),
        (
            ufw("Added user rules (see 'ufw status' for running firewall):\nufw allow 22/tcp\n"),
            *["ufw, default deny (incoming)"] * 2,
            filters.STEP,
        ),
        (
            {**ufw(""), "ufw status verbose": UFW.replace("deny (in", "allow (in")},
            *[f"ufw admits {BOTH} here, and {filters.NONE}"] * 2,
            f"{filters.OWN['ufw']}{filters.ELSEWHERE}",
        ),
        (
            ufw(f"ufw deny 1:2/tcp\n{ALLOWED}", rules=UFW_S + UFW_DENY),
            *[f"ufw admits {BOTH} here, but iptables-nft {UFW_DENY.splitlines()[-1]}"] * 2,
            iptables_step("iptables-nft", "INPUT"),
        ),
        (
            ufw(
                ALLOWED,
                rules=UFW_S + BY_HAND,
            ),
            *[f"ufw admits {BOTH} here, but iptables-nft {BY_HAND}"] * 2,
            iptables_step("iptables-nft", "INPUT"),
        ),
        (
            {"ufw status": "Status: inactive\n", "nft -j list ruleset": SITE},
            *["nft table inet site chain incoming: policy drop"] * 2,
            nft_step("inet site incoming"),
        ),
        (
            {"nft -j list ruleset": nft(*RULES), "iptables-nft -S": IPTABLES},
            *["iptables-nft -A SITE -p tcp -j REJECT --reject-with tcp-reset"] * 2,
            iptables_step("iptables-nft", "INPUT"),
        ),
        (
            {"nft -j list ruleset": nft(*RULES)},
            *["nft table ip filter chain SITE: rule with handle 10"] * 2,
            nft_step("ip filter INPUT"),
        ),
        (
            {
                **{"nft -j list ruleset": nft(), "iptables-legacy -S": "-P INPUT DROP\n"},
                "cat /proc/net/ip_tables_names": "filter\n",
            },
            *["iptables-legacy -P INPUT DROP"] * 2,
            iptables_step("iptables-legacy", "INPUT"),
        ),
        (
            {"nft -j list ruleset": None},
            *["neither firewalld nor ufw runs here, and nft -j list ruleset gives no answer"] * 2,
            filters.ELSEWHERE,
        ),
        (
            {"nft -j list ruleset": nft(*DOCKER), "iptables-nft -S": None},
            *[f"neither firewalld nor ufw runs here, and {filters.NONE}"] * 2,
            filters.ELSEWHERE,
        ),
    ],
)
def test_what_filters_is_named(
    answers: dict[str, Optional[str]], management: str, rail: str, step: str
) -> None:
    found = filters.filters(Programs(answers), [MGMT, RAIL0])
    assert found == ({MGMT: management, RAIL0: rail}, step)


BANS = [
    chain("inet f2b", "input", "input"),
    chain("inet f2b", "bans"),
    rule("inet f2b", "input", 2, {"jump": {"target": "bans"}}),
    *(rule("inet f2b", "bans", number, REJECT) for number in range(3, 8)),
]


def test_policies_come_first() -> None:
    """A packet passes every table: one may drop what another accepts."""
    ruleset = nft(*BANS, chain("inet filter", "input", "input", "drop"))
    found, step = filters.filters(Programs({"nft -j list ruleset": ruleset}), [MGMT])
    assert found[MGMT].startswith(
        "nft table inet filter chain input: policy drop, nft table inet f2b"
    )
    commands = [
        f"nft 'insert rule inet {at} ip saddr {{ 10.231.0.0/24 }} accept'"
        for at in ("filter input", "f2b input")
    ]
    assert step.startswith(f"run {' && '.join(commands)}, and")


@pytest.mark.parametrize("named", [False, True])
def test_a_map_that_drops_is_named(named: bool) -> None:
    drops = [["ib0", DROP], ["lo", {"accept": None}]]
    data = "@ports" if named else {"set": drops}
    key = {"meta": {"key": "iifname"}}
    own = {"family": "inet", "table": "site", "name": "ports", "handle": 5, "elem": drops}
    ruleset = nft(
        chain("inet site", "in", "input"),
        *([{"map": own}] if named else []),
        rule("inet site", "in", 6, {"vmap": {"key": STATE, "data": {"set": [["invalid", DROP]]}}}),
        rule("inet site", "in", 7, {"vmap": {"key": key, "data": data}}),
    )
    found, step = filters.filters(Programs({"nft -j list ruleset": ruleset}), [MGMT])
    where = "chain @ports: map with handle 5" if named else "chain in: rule with handle 7"
    assert found == {MGMT: f"nft table inet site {where}"}
    assert step.startswith("run nft 'insert rule inet site in ip saddr")


@pytest.mark.parametrize("service", ["firewalld", "ufw"])
def test_a_service_is_not_blamed_for_the_loopback(service: str) -> None:
    answers = firewalld(ZONES, ruleset=SITE) if service == "firewalld" else ufw(ALLOWED)
    programs = Programs({**answers, "nft -j list ruleset": SITE})
    found, step = filters.filters(programs, ["127.0.0.1"])
    where = "nft table inet site chain incoming: policy drop"
    assert found == {"127.0.0.1": f"{service} admits 127.0.0.0/8 here, but {where}"}
    assert "nft 'insert rule inet site incoming ip saddr { 127.0.0.0/8 } accept'" in step


def test_foreign_addresses_are_not_admitted() -> None:
    """A node reports the addresses that it calls."""
    what = {"10.9.9.9": "10.9.9.9 is no address of this host"}
    found = filters.filters(Programs(firewalld("")), ["10.9.9.9"])
    assert found == (what, filters.TRANSLATED)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no json",
        "[]",
        "null",
        '{"nftables": 5}',
        '{"nftables": [5, {"rule": []}]}',
        '{"nftables": [{"chain": {"family": "inet"}}, {"rule": {"family": "ip", "expr": 5}}]}',
        "[" * 100_000,
    ],
)
def test_what_nft_answers_is_not_trusted(text: str) -> None:
    assert filters.nftables(text) is None


def test_commands_quote_names() -> None:
    text = nft(chain("inet $(reboot)", "a;b\n", "input", "drop"))
    (rule,) = filters.nftables(text)
    (_nft, words) = shlex.split(rule.admit(["10.0.0.0/8"]))
    assert words == "insert rule inet $(reboot) a;b ip saddr { 10.0.0.0/8 } accept"


# Admitting networks

MANAGEMENT, RAIL, OPERATOR = "10.0.0.0/24", "10.1.0.0/24", "172.16.0.0/12"


class Filtered(host.Host):
    """A host with firewalld or ufw, and the networks that it admits."""

    layer = "os"

    def __init__(self, root: Path, service: str) -> None:
        super().__init__(root)
        self.service = service
        self.admitted = {"": {OPERATOR}, "--permanent": {OPERATOR}}
        self.zones = ""
        """Networks of zones other than `trusted`."""
        self.targets = {"internal": "default", "cluster": "ACCEPT"}
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
        elif words[-1] == "--get-active-zones":
            answer = f"{self.zones}trusted\n  sources: {' '.join(sorted(there))}\n"
        elif words[-1] == "--get-target":
            answer = self.targets[words[2].split("=")[1]] + "\n"
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


def test_failed_removal_stays_recorded(filtered: Filtered) -> None:
    filtered.settle(RAIL)
    filtered.stuck = True
    assert filtered.settle().errors
    assert record(filtered) == [RAIL]
    filtered.stuck = False
    filtered.settle()
    assert (record(filtered), RAIL in places(filtered)[0]) == (None, False)


@pytest.mark.parametrize("source", [RAIL, "10.0.0.0/8"])
def test_refusing_zone_is_reported_before_any_change(source: str, tmp_path: Path) -> None:
    """firewalld 1.3.3 refuses one (ZONE_CONFLICT), and does not admit the other."""
    filtered = Filtered(tmp_path, "firewalld")
    filtered.zones = f"internal\n  sources: {source}\n"
    with pytest.raises(PlanError, match=f"zone=internal --remove-source={source} && "):
        filtered.settle(RAIL, check_mode=True)
    assert places(filtered) == [{OPERATOR}, {OPERATOR}]


def test_networks_of_an_operator_s_zone(tmp_path: Path) -> None:
    filtered = Filtered(tmp_path, "firewalld")
    filtered.zones = f"cluster\n  sources: {RAIL} 10.7.7.7\n"
    done = filtered.settle(MANAGEMENT, RAIL)
    assert places(filtered) == [{OPERATOR, MANAGEMENT}] * 2
    assert ({each.status for each in done.checks}, record(filtered)) == ({"ok"}, [MANAGEMENT])


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
