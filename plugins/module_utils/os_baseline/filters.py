# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Filters on incoming connections to this host: firewalld, ufw, or nftables and iptables rules that
may refuse IPv4.
"""

from __future__ import annotations

import functools
import json
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Network
from typing import Any

from ..core.commands import CommandError, Runner, find_program
from ..core.text import one_line, some

FIREWALLD = "firewalld"
UFW = "ufw"
NONE = "nft and iptables show no rule that refuses"
OPEN = "os_baseline_firewall: open"
STEP = (
    f"set {OPEN} in the inventory (group_vars/all.yml), then run site.yml with --tags os: it admits"
    " the cluster's networks"
)
MORE = {
    FIREWALLD: "look at its rich rules (firewall-cmd --list-all-policies, --list-all-zones); ",
    UFW: "look at /etc/ufw/before.rules; ",
}
ELSEWHERE = "look at what filters the other host's output, and at switches between them"
TRANSLATED = "look for address translation (NAT) between this host and the other one"
MAX_LISTED_RULES = 3
ACCEPT = "ACCEPT"
MAX_RULE_CHARACTERS = 200
"""Maximum length of a rule in a message."""
INCOMING = ("ingress", "prerouting", "input")
"""nftables hooks that packets to this host pass."""
IPV4 = ("inet", "ip", "netdev")
DROPS = "policy drop"
XT_REJECT = {"type": "target", "name": "REJECT"}
"""How nft lists a rule created by iptables."""


def answer(run: Runner, *words: str) -> str:
    """Output of a program, or None if it is missing or fails."""
    try:
        done = run(words, check=False)
    except CommandError:
        return ""
    return done.stdout if done.rc == 0 else ""


def manager(run: Runner) -> str:
    """The running firewall service, or None."""
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
    found = {address: what for address, (what, _step) in refused.items()}
    steps = [step for _what, step in refused.values()]
    strange = [address for address in given if address not in places]
    if strange:
        found.update({address: f"{address} is no address of this host" for address in strange})
        steps.append(TRANSLATED)
    left = {address: network for address, (_at, network) in places.items() if address not in found}
    if left:
        what, step = _by_rules(run, kept_by, sorted(set(left.values())))
        found.update(dict.fromkeys(left, what))
        steps.append(step)
    return found, "; ".join(dict.fromkeys(steps))


def _places_of(run: Runner, addresses: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Interface and network of each address of this host."""
    wanted, places = set(addresses), {}
    try:
        for link in json.loads(answer(run, "ip", "-j", "-4", "address", "show") or "[]"):
            for each in link.get("addr_info", []):
                if each.get("local") in wanted:
                    network = IPv4Network(f"{each['local']}/{each['prefixlen']}", strict=False)
                    places[each["local"]] = (
                        one_line(link["ifname"])[:MAX_RULE_CHARACTERS],
                        str(network),
                    )
    except (AttributeError, KeyError, TypeError, ValueError):
        pass
    return places


# firewalld: the zone of a packet's source takes precedence over that of its interface.


def zones(run: Runner, kind: str) -> list[tuple[str, str]]:
    """Zones and their `interfaces` or `sources` as pairs, in the order of evaluation, which is by
    name.
    """
    text = answer(run, "firewall-cmd", "--get-active-zones")
    found = []
    for block in sorted(re.split(r"\n(?=\S)", text)):
        zone = one_line(block.split(" ")[0].split("\n")[0])[:MAX_RULE_CHARACTERS]
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


def accepts(run: Runner, zone: str) -> bool:
    words = ("firewall-cmd", "--permanent", f"--zone={zone}", "--get-target")
    return answer(run, *words).strip() == ACCEPT


def _by_zone(run: Runner, places: Mapping[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """For each address that firewalld does not admit, what refuses it, and the remedy."""
    of_interfaces = {value: zone for zone, value in zones(run, "interfaces")}
    sources = zones(run, "sources")
    default = one_line(answer(run, "firewall-cmd", "--get-default-zone"))[:MAX_RULE_CHARACTERS]
    accepting = functools.cache(functools.partial(accepts, run))
    refused = {}
    for address, (interface, network) in places.items():
        by_interface = (of_interfaces.get(interface, default), "")
        zone, source = next(bound(sources, network), by_interface)
        if accepting(zone):
            continue
        what = f"firewalld, zone {zone} of {source or interface}"
        refused[address] = (what, f"{unbind(zone, source)}; then {STEP}" if source else STEP)
    return refused


def unbind(zone: str, source: str) -> str:
    words = ("firewall-cmd", "--permanent", f"--zone={zone}", f"--remove-source={source}")
    return f"run {shlex.join(words)} && firewall-cmd --reload"


def _by_ufw(run: Runner, places: Mapping[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """The same for ufw, where the first matching rule decides."""
    status = answer(run, UFW, "status", "verbose")
    match = re.search(r"^Default: (\w+) \(incoming\)", status, re.MULTILINE)
    default = match[1] if match else "unknown"
    rules = ufw_rules(answer(run, UFW, "show", "added"))
    refused = {}
    later: dict[str, str] = {}
    for address, (_interface, network) in places.items():
        admits = [number for number, rule in enumerate(rules) if _ufw_admits(rule, network)]
        before = rules[: admits[0]] if admits else rules
        denying = [rule for rule in before if _ufw_denies(rule, network)]
        after = f" after {some(denying, MAX_LISTED_RULES)}" if denying else ""
        if admits and denying:
            later[address] = f"ufw admits {network}{after}"
        elif denying or not (admits or default == "allow"):
            refused[address] = (f"ufw, default {default} (incoming){after}", STEP)
    networks = " ".join(dict.fromkeys(places[address][1] for address in later))
    first = "ufw delete allow from $n && ufw prepend allow from $n"
    step = f"run for n in {networks}; do {first}; done"
    return {**refused, **{address: (what, step) for address, what in later.items()}}


def _ufw_admits(rule: str, network: str) -> bool:
    """Whether a rule admits everything from a network."""
    source = re.fullmatch(r"ufw allow from (\S+)", rule)
    return bool(source and list(bound([(rule, source[1])], network)))


def _ufw_denies(rule: str, network: str) -> bool:
    """Whether a rule may refuse something from a network, or limits its rate."""
    if not re.match(r"ufw ((deny|reject) (?!out )|limit (in )?(from|on) (?!.* port ))", rule):
        return False
    source = re.search(r" from (\S+)", rule)
    try:
        return not source or IPv4Network(source[1], strict=False).overlaps(IPv4Network(network))
    except ValueError:  # any, or IPv6
        return source is not None and source[1] == "any"


def ufw_rules(text: str) -> list[str]:
    """Rules in the output of `ufw show added`, in order, without comments."""
    lines = (
        one_line(line)[:MAX_RULE_CHARACTERS]
        for line in text.splitlines()
        if line.startswith("ufw ")
    )
    return [line.partition(" comment ")[0] for line in lines]


NEWER, OLDER = "iptables-nft", "iptables-legacy"
ITS_TABLE = ("ip", "filter")
"""Table with the rules of iptables-nft, which iptables itself lists better."""


def _by_rules(run: Runner, kept_by: str, networks: Sequence[str]) -> tuple[str, str]:
    """Other rules that refuse connections, and the remedy."""
    ruleset, problem = _ruleset(run)
    rules = list(nftables(ruleset))
    shown = list(iptables(answer(run, NEWER, "-S"), NEWER))
    if shown:
        rules = [*(rule for rule in rules if rule.chain[:2] != ITS_TABLE), *shown]
    # Without the option, the query creates the table.
    if "filter" in answer(run, "cat", "/proc/net/ip_tables_names").split():
        rules += iptables(answer(run, OLDER, "-S"), OLDER)
    rules = [rule for rule in rules if not _is_of(kept_by, rule)]
    who = f"{kept_by} admits {some(networks, 3)}" if kept_by else "neither firewalld nor ufw runs"
    if not rules and problem:
        return f"{who} here, and {problem}", "look at the rules by hand: nft list ruleset"
    if not rules:
        return f"{who} here, and {NONE}", MORE.get(kept_by, "") + ELSEWHERE
    rules.sort(key=lambda rule: not rule.is_policy)
    commands = dict.fromkeys(rule.admit(networks) for rule in rules)
    what = some([rule.text for rule in rules], MAX_LISTED_RULES)
    return (
        f"{who} here, but {what}" if kept_by else what,
        f"run {' && '.join(commands)}, and add the same where these rules are kept",
    )


def _ruleset(run: Runner) -> tuple[str, str]:
    """The rules that nft lists, or the reason for none."""
    try:
        done = run(("nft", "-j", "list", "ruleset"), check=False)
    except CommandError as error:
        return "", one_line(str(error))[:MAX_RULE_CHARACTERS] if find_program("nft") else ""
    said = one_line((done.stderr.strip().splitlines() or [""])[-1])[:MAX_RULE_CHARACTERS]
    return (done.stdout, "") if done.rc == 0 else ("", f"nft list ruleset failed: {said}")


def _is_of(kept_by: str, rule: FilterRule) -> bool:
    """Whether the firewall service created the rule."""
    if kept_by == FIREWALLD:
        return rule.chain[1] == FIREWALLD
    policy = rule.chain[-1] == "INPUT" and rule.is_policy
    return kept_by == UFW and (policy or rule.chain[-1].startswith("ufw-"))


@dataclass(frozen=True)
class FilterRule:
    """A rule that may refuse, with the chain that contains it."""

    chain: tuple[str, ...]
    """nftables: family, table, name; iptables: program, name."""
    how: str
    base: str = ""
    """The base chain that leads to this chain; an accept there skips this chain's rules."""

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
        if len(self.chain) == 2:
            return shlex.join(
                [self.chain[0], "-I", self.base, "-s", ",".join(networks), "-j", "ACCEPT"]
            )
        where = " ".join((*self.chain[:2], self.base))
        rule = f"insert rule {where} ip saddr {{ {', '.join(networks)} }} accept"
        return shlex.join(["nft", rule])


def nftables(text: str) -> Iterator[FilterRule]:
    """Rules in `nft -j list ruleset` that may refuse IPv4: policies and verdicts in chains for
    incoming packets, and in chains to which these jump.
    """
    try:
        entries = json.loads(text or "{}").get("nftables", [])
    except (AttributeError, RecursionError, ValueError):
        return
    pairs = [
        (kind, each)
        for entry in (entries if isinstance(entries, list) else [])
        for kind, each in (entry.items() if isinstance(entry, dict) else ())
        if isinstance(each, dict) and each.get("family") in IPV4
    ]
    found: list[FilterRule] = []
    begin: set[tuple[str, ...]] = set()
    jumps: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
    for kind, each in pairs:
        name = each.get("chain" if kind == "rule" else "name")
        words = (each["family"], each.get("table"), f"@{name}" if kind == "map" else name)
        chain = tuple(one_line(str(word))[:MAX_RULE_CHARACTERS] for word in words)
        if kind == "chain" and each.get("hook") in INCOMING:
            begin.add(chain)
            if each.get("policy") == "drop":
                found.append(FilterRule(chain, DROPS))
        jumps += [(chain, (*chain[:2], to)) for to in _targets(each.get("expr"), each.get("elem"))]
        if kind == "rule" and _refuses(each):
            found.append(
                FilterRule(chain, f"rule with handle {one_line(str(each.get('handle')))[:20]}")
            )
        if kind == "map" and _drops(each.get("elem")):
            found.append(FilterRule(chain, "drop in the map"))
    yield from _with_base(found, begin, jumps)


def _with_base(
    found: Sequence[FilterRule],
    begin: Collection[tuple[str, ...]],
    jumps: Collection[tuple[tuple[str, ...], tuple[str, ...]]],
) -> Iterator[FilterRule]:
    """Rules that packets can reach, for each base chain."""
    for base in sorted(begin):
        reached = _reached([base], jumps)
        for rule in found:
            if rule.chain in reached:
                yield replace(rule, base=base[-1])


def _refuses(rule: dict[str, Any]) -> bool:
    found = rule.get("expr")
    expressions = found if isinstance(found, list) else []
    plain = any(
        isinstance(expression, dict)
        and ("drop" in expression or "reject" in expression or expression.get("xt") == XT_REJECT)
        for expression in expressions
    )
    return plain or any(_drops(vmap.get("data")) for vmap in _vmaps(expressions))


def _vmaps(expressions: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Verdict maps of a rule, except those keyed by connection state, as every host drops invalid
    packets."""
    for expression in expressions:
        vmap = expression.get("vmap") if isinstance(expression, dict) else None
        if isinstance(vmap, dict) and vmap.get("key") != {"ct": {"key": "state"}}:
            yield vmap


def _drops(value: Any) -> bool:
    """Whether a verdict in a map is drop."""
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            if "drop" in each:
                return True
            left += each.values()
        elif isinstance(each, list):
            left += each
    return False


def _targets(*found: Any) -> Iterator[str]:
    """Chains to which an expression jumps, and verdict maps (`@name`) that it uses."""
    left = list(found)
    while left:
        each = left.pop()
        if isinstance(each, dict):
            for word in ("jump", "goto"):
                if isinstance(each.get(word), dict):
                    yield str(each[word].get("target"))
            left += each.values()
        elif isinstance(each, list):
            left += each
        elif isinstance(each, str) and each.startswith("@"):
            yield each


def _reached(
    begin: Collection[tuple[str, ...]],
    jumps: Collection[tuple[tuple[str, ...], tuple[str, ...]]],
) -> set[tuple[str, ...]]:
    """Chains that packets can reach from base chains."""
    by_chain: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for chain, to in jumps:
        by_chain.setdefault(chain, set()).add(to)
    reached: set[tuple[str, ...]] = set()
    left = list(begin)
    while left:
        chain = left.pop()
        if chain not in reached:
            reached.add(chain)
            left += by_chain.get(chain, ())
    return reached


def iptables(text: str, program: str) -> Iterator[FilterRule]:
    """Rules in `iptables -S` that may refuse incoming packets."""
    found = []
    jumps = []
    for line in text.splitlines():
        rule = re.match(r"-A (\S+) (?:.* )?-[jg] (\S+)", line)
        chain = (program, one_line(rule[1] if rule else "INPUT")[:MAX_RULE_CHARACTERS])
        if line.rstrip() == "-P INPUT DROP" or (rule and rule[2] in ("DROP", "REJECT")):
            found.append(FilterRule(chain, one_line(line)[:MAX_RULE_CHARACTERS]))
        elif rule:
            jumps.append((chain, (program, rule[2])))
    yield from _with_base(found, [(program, "INPUT")], jumps)
