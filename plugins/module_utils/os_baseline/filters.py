# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Firewalld, ufw, or nftables and iptables rules that may refuse incoming IPv4 on this host."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from ipaddress import IPv4Network
from typing import Any, Optional

from ..core.commands import CommandError, Runner
from ..core.text import one_line, some

FIREWALLD = "firewalld"
UFW = "ufw"
NONE = "nft and iptables show no rule that refuses"
OPEN = "os_baseline_firewall: open"
STEP = (
    f"set {OPEN} in the inventory (group_vars/all.yml), then run site.yml with --tags os: it admits"
    " the cluster's networks"
)
OWN = {
    FIREWALLD: "look at its rich rules (firewall-cmd --list-all-policies, --list-all-zones); ",
    UFW: "look at /etc/ufw/before.rules; ",
}
ELSEWHERE = "look at what filters the other host's output, and at switches between them"
TRANSLATED = "look for address translation (NAT) between this host and the other one"
MAX_LISTED_RULES = 3
ACCEPT = "ACCEPT"
INCOMING = ("ingress", "prerouting", "input")
"""nftables hooks that packets to this host pass."""
IPV4 = ("inet", "ip", "netdev")
DROPS = "policy drop"
STATE = {"ct": {"key": "state"}}
"""Key of maps that drop invalid packets, as on every host."""
XT_REJECT = {"type": "target", "name": "REJECT"}
"""How nft lists a rule created by iptables."""

Chain = tuple[str, ...]
"""nftables: family, table, name; iptables: program, name."""


def answer(run: Runner, *words: str) -> str:
    """Output of a program, or nothing if it is missing or fails."""
    try:
        done = run(words, check=False)
    except CommandError:
        return ""
    return done.stdout if done.rc == 0 else ""


def _short(value: Any) -> str:
    return one_line(str(value))[:200]


def manager(run: Runner) -> str:
    """The running firewall service; empty if there is none."""
    if answer(run, "firewall-cmd", "--state").strip() == "running":
        return FIREWALLD
    return UFW if answer(run, "ufw", "status").startswith("Status: active") else ""


def filters(run: Runner, addresses: Iterable[str]) -> tuple[dict[str, str], str]:
    """What filters each address of this host, and how the operator can admit its network."""
    # Callers report the addresses that they call; rules can only admit addresses of this host.
    given = list(addresses)
    places = _places_of(run, given)
    kept_by = manager(run)
    refused: dict[str, tuple[str, str]] = {}
    # Both services admit connections from this host itself.
    outer = {address: place for address, place in places.items() if not address.startswith("127.")}
    if kept_by == FIREWALLD:
        refused = _by_zone(run, outer)
    elif kept_by == UFW:
        refused = _by_ufw(run, outer)
    for address in given:
        if address not in places:
            refused[address] = (f"{address} is no address of this host", TRANSLATED)
    left = {at: network for at, (_interface, network) in places.items() if at not in refused}
    if left:
        refused.update(dict.fromkeys(left, _by_rules(run, kept_by, sorted(set(left.values())))))
    steps = dict.fromkeys(step for _what, step in refused.values())
    return {address: what for address, (what, _step) in refused.items()}, "; ".join(steps)


def _places_of(run: Runner, addresses: Iterable[str]) -> dict[str, tuple[str, str]]:
    wanted, places = set(addresses), {}
    with suppress(ValueError):  # ip is missing
        for link in json.loads(answer(run, "ip", "-j", "-4", "address", "show")):
            for each in link.get("addr_info", []):
                if each.get("local") in wanted:
                    network = IPv4Network(f"{each['local']}/{each['prefixlen']}", strict=False)
                    places[each["local"]] = (_short(link["ifname"]), str(network))
    return places


# firewalld: the zone of a packet's source takes precedence over that of its interface.


def zones(run: Runner, kind: str) -> list[tuple[str, str]]:
    """Pairs of zone and its `interfaces` or `sources`, in the order of evaluation: by name."""
    text = answer(run, "firewall-cmd", "--get-active-zones")
    found = []
    for block in sorted(re.split(r"\n(?=\S)", text)):
        zone = _short(block.split(" ")[0].split("\n")[0])
        for values in re.findall(rf"^  {kind}: (.+)$", block, re.MULTILINE):
            found += [(zone, value) for value in values.split()]
    return found


def bound(sources: Iterable[tuple[str, str]], network: str) -> Iterator[tuple[str, str]]:
    """Zone and source, if a source contains the whole network."""
    for zone, value in sources:
        try:
            if IPv4Network(network).subnet_of(IPv4Network(value, strict=False)):
                yield zone, value
        except ValueError:  # a MAC address, a set, IPv6
            continue


def _by_zone(run: Runner, places: Mapping[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """For each address that firewalld does not admit, what refuses it, and the remedy."""
    of_interfaces = {value: zone for zone, value in zones(run, "interfaces")}
    sources = zones(run, "sources")
    default = _short(answer(run, "firewall-cmd", "--get-default-zone"))
    refused = {}
    for address, (interface, network) in places.items():
        by_interface = (of_interfaces.get(interface, default), "")
        zone, source = next(bound(sources, network), by_interface)
        if target(run, zone) != ACCEPT:
            what = f"firewalld, zone {zone} of {source or interface}"
            refused[address] = (what, f"{unbind(zone, source)}; then {STEP}" if source else STEP)
    return refused


def target(run: Runner, zone: str) -> str:
    return answer(run, "firewall-cmd", "--permanent", f"--zone={zone}", "--get-target").strip()


def unbind(zone: str, source: str) -> str:
    words = ("firewall-cmd", "--permanent", f"--zone={zone}", f"--remove-source={source}")
    return f"run {shlex.join(words)} && firewall-cmd --reload"


def _by_ufw(run: Runner, places: Mapping[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """For each address whose network ufw does not admit, its default, and the remedy."""
    status = answer(run, UFW, "status", "verbose")
    match = re.search(r"^Default: (\w+) \(incoming\)", status, re.MULTILINE)
    default = match[1] if match else "unknown"
    admitted = [("", network) for network in ufw_networks(answer(run, UFW, "show", "added"))]
    return {
        address: (f"ufw, default {default} (incoming)", STEP)
        for address, (_interface, network) in places.items()
        if default != "allow" and not any(bound(admitted, network))
    }


def ufw_networks(text: str) -> list[str]:
    """Networks from which everything is admitted, in the output of `ufw show added`."""
    return re.findall(r"^ufw allow from (\S+)(?: comment .*)?$", text, re.MULTILINE)


NFTABLES, LEGACY = "iptables-nft", "iptables-legacy"
ITS_TABLE = ("ip", "filter")
"""Table with the rules of iptables-nft, which iptables itself lists better."""


def _by_rules(run: Runner, kept_by: str, networks: Sequence[str]) -> tuple[str, str]:
    rules = nftables(answer(run, "nft", "-j", "list", "ruleset"))
    unread = "" if rules is not None else "nft -j list ruleset gives no answer"
    shown = iptables(answer(run, NFTABLES, "-S"), NFTABLES)
    rules = [rule for rule in rules or [] if not shown or rule.chain[:2] != ITS_TABLE] + shown
    # Without the condition, the query creates the table.
    if "filter" in answer(run, "cat", "/proc/net/ip_tables_names").split():
        rules += iptables(answer(run, LEGACY, "-S"), LEGACY)
    rules = [rule for rule in rules if not _is_of(kept_by, rule)]
    who = f"{kept_by} admits {some(networks, 3)}" if kept_by else "neither firewalld nor ufw runs"
    if not rules:
        return f"{who} here, and {unread or NONE}", OWN.get(kept_by, "") + ELSEWHERE
    rules.sort(key=lambda rule: not rule.is_policy)
    commands = dict.fromkeys(rule.admit(networks) for rule in rules)
    what = some([rule.text for rule in rules], MAX_LISTED_RULES)
    return (
        f"{who} here, but {what}" if kept_by else what,
        f"run {' && '.join(commands)}, and add the same where these rules are kept",
    )


def _is_of(kept_by: str, rule: FilterRule) -> bool:
    if kept_by == FIREWALLD:
        return rule.chain[1] == FIREWALLD
    name = rule.chain[-1]
    operator = name == "ufw-user-input"  # `ufw deny`, which may come before `ufw allow`
    own = (name == "INPUT" and rule.is_policy) or (name.startswith("ufw-") and not operator)
    return kept_by == UFW and own


@dataclass(frozen=True)
class FilterRule:
    """A rule that may refuse. `base` is the base chain that leads to its chain; an accept there
    skips it."""

    chain: Chain
    how: str
    base: str = ""

    @property
    def is_policy(self) -> bool:
        return self.how == DROPS or self.how.startswith("-P ")

    @property
    def text(self) -> str:
        if len(self.chain) == 2:
            return f"{self.chain[0]} {self.how}"
        family, table, name = self.chain
        return f"nft table {family} {table} chain {name}: {self.how}"

    def admit(self, networks: Sequence[str]) -> str:
        program = self.chain[0]
        if len(self.chain) == 2:
            return shlex.join([program, "-I", self.base, "-s", ",".join(networks), "-j", ACCEPT])
        where = " ".join((*self.chain[:2], self.base))
        rule = f"insert rule {where} ip saddr {{ {', '.join(networks)} }} accept"
        return shlex.join(["nft", rule])


def nftables(text: str) -> Optional[list[FilterRule]]:
    """Policies and rules in `nft -j list ruleset` that may refuse IPv4, in chains for incoming
    packets and those to which these jump; None if it cannot be read.
    """
    found: list[FilterRule] = []
    begin: set[Chain] = set()
    jumps: list[tuple[Chain, Chain]] = []
    try:
        for kind, each in (
            item for entry in json.loads(text)["nftables"] for item in entry.items()
        ):
            if kind not in ("chain", "rule", "map") or each["family"] not in IPV4:
                continue
            name = each["chain" if kind == "rule" else "name"]
            name = f"@{name}" if kind == "map" else name
            chain = tuple(map(_short, (each["family"], each["table"], name)))
            if each.get("hook") in INCOMING:
                begin.add(chain)
                found += [FilterRule(chain, DROPS)] if each.get("policy") == "drop" else []
            refuses, targets = _verdicts(each.get("expr") or each.get("elem") or [])
            jumps += [(chain, (*chain[:2], _short(name))) for name in targets]
            if refuses:
                found.append(FilterRule(chain, f"{kind} with handle {_short(each['handle'])}"))
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return None
    return list(_with_base(found, begin, jumps))


def _verdicts(expression: Any) -> tuple[bool, list[str]]:
    """Whether an expression or its verdict maps may refuse, and the chains and maps (`@name`) to
    which it leads.
    """
    refuses, targets, left = False, [], [expression]
    while left:
        each = left.pop()
        if isinstance(each, str):
            targets += [each] if each.startswith("@") else []
        elif isinstance(each, list):
            left += each
        elif isinstance(each, dict) and each.get("key") != STATE:
            refuses |= bool({"drop", "reject"} & set(each)) or each.get("xt") == XT_REJECT
            targets += [x["target"] for x in map(each.get, ("jump", "goto")) if x]
            left += each.values()
    return refuses, targets


def _with_base(
    found: Sequence[FilterRule], begin: Collection[Chain], jumps: Sequence[tuple[Chain, Chain]]
) -> Iterator[FilterRule]:
    """Rules that packets can reach, for each base chain."""
    for base in sorted(begin):
        reached, left = set(), [base]
        while left:
            chain = left.pop()
            if chain not in reached:
                reached.add(chain)
                left += [to for source, to in jumps if source == chain]
        yield from (replace(rule, base=base[-1]) for rule in found if rule.chain in reached)


def iptables(text: str, program: str) -> list[FilterRule]:
    """Rules in `iptables -S` that may refuse incoming packets."""
    found, jumps = [], []
    for line in text.splitlines():
        rule = re.match(r"-A (\S+) (?:.* )?-[jg] (\S+)", line)
        chain = (program, _short(rule[1] if rule else "INPUT"))
        if line.rstrip() == "-P INPUT DROP" or (rule and rule[2] in ("DROP", "REJECT")):
            found.append(FilterRule(chain, _short(line)))
        elif rule:
            jumps.append((chain, (program, rule[2])))
    return list(_with_base(found, [(program, "INPUT")], jumps))
