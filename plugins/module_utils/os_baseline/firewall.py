# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What filters incoming connections on this host: firewalld, ufw, or rules of nftables or iptables.

MPI, PMIx and NCCL take any TCP port, so networks of the cluster are admitted as a whole, or not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from ..core.commands import CommandError, Runner
from ..core.text import one_line, some

FIREWALLD = "firewalld"
UFW = "ufw"
NONE = "neither firewalld nor ufw runs here, and nft and iptables show no rule that refuses"
OPEN = "os_baseline_firewall: open"
MOST = 200
"""Characters of one rule."""


def answer(run: Runner, *words: str) -> str:
    """What a program printed, or nothing where it is missing or fails."""
    try:
        done = run(words, check=False)
    except CommandError:
        return ""
    return done.stdout if done.rc == 0 else ""


def manager(run: Runner) -> str:
    """The service that keeps the rules, where one runs."""
    if answer(run, "firewall-cmd", "--state").strip() == "running":
        return FIREWALLD
    return UFW if answer(run, "ufw", "status").startswith("Status: active") else ""


def filters(run: Runner, interface: str, networks: str) -> tuple[str, str]:
    """What filters an interface of this host, and what the operator must do to admit `networks`."""
    kept_by = manager(run)
    if kept_by == FIREWALLD:
        zone = answer(run, "firewall-cmd", f"--get-zone-of-interface={interface}").strip()
        zone = zone or answer(run, "firewall-cmd", "--get-default-zone").strip()
        what = f"firewalld, zone {one_line(zone)[:MOST]} of {interface}"
    elif kept_by == UFW:
        status = answer(run, UFW, "status", "verbose")
        default = re.search(r"^Default: (\w+) \(incoming\)", status, re.MULTILINE)
        what = f"ufw, default {default[1] if default else 'unknown'} (incoming)"
    else:
        rules = [*nftables(answer(run, "nft", "-j", "list", "ruleset"))]
        for program in ("iptables", "iptables-legacy"):
            rules = rules or [*iptables(answer(run, program, "-S", "INPUT"), program)]
        if not rules:
            return NONE, "look at rules of the other host's output, and at switches between"
        return some(rules, 3), f"admit TCP from {networks} in these rules, where they are kept"
    return what, f"set {OPEN} and run --tags os, which admits {networks} there"


def nftables(text: str) -> Iterator[str]:
    """Of `nft -j list ruleset` what may refuse: policies and verdicts of chains for input."""
    try:
        entries = json.loads(text or "{}").get("nftables", [])
    except (ValueError, AttributeError):
        return
    if not isinstance(entries, list):
        return
    pairs = (pair for entry in entries if isinstance(entry, dict) for pair in entry.items())
    for kind, each in pairs:
        if not isinstance(each, dict):
            continue
        name = each.get("name" if kind == "chain" else "chain")
        where = one_line(f"nft table {each.get('family')} {each.get('table')} chain {name}")[:MOST]
        if kind == "chain" and each.get("hook") == "input" and each.get("policy") == "drop":
            yield f"{where}: policy drop"
        elif kind == "rule" and _refuses(each):  # chains of input jump to others
            yield f"{where}: rule with handle {one_line(str(each.get('handle')))[:20]}"


def _refuses(rule: dict[str, Any]) -> bool:
    expressions = rule.get("expr")
    return isinstance(expressions, list) and any(
        isinstance(each, dict) and ("drop" in each or "reject" in each) for each in expressions
    )


def iptables(text: str, program: str) -> Iterator[str]:
    """Of `iptables -S INPUT` what may refuse."""
    for line in text.splitlines():
        if re.match(r"-P INPUT DROP$|-A INPUT (.* )?-j (DROP|REJECT)\b", line):
            yield f"{program} {one_line(line)[:MOST]}"
