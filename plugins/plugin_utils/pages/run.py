# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The page of a run of a playbook: verdict, findings with meaning and command, layers by hosts."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ...module_utils.core.checks import FAILED, OK, PENDING, REBOOT
from ...module_utils.core.text import bytes_text, counted, natural, shortened, some
from ..answers import mapping, sequence
from ..layers import MEASURING, ROLES
from ..reboot import table as table_of_turns
from ..report.preflight import ranges
from .cards import (
    FINDINGS,
    MAX_LISTED,
    NONE,
    OF_FABRIC,
    RANKS,
    SIGNS,
    UNVERIFIED,
    Row,
    card,
    figure,
    heading,
    listed,
    more,
    number,
    verdict,
)
from .figures import Fabric, Fault, fabric, shown, tiles
from .html import Markup, details, join, section, table, tag, value

SHOWN_HOSTS = 40
"""Maximum number of hosts with a row each; more are grouped by role and result."""
MAX_ROWS, MAX_CARDS = 600, 200


TURNS = {
    table_of_turns.FAILED: ("bad", "✕"),
    table_of_turns.WAITING: ("warn", "…"),
    table_of_turns.LEFT: ("warn", "○"),
    table_of_turns.VERIFIED: ("ok", "✓"),
}
"""Class and sign of a host's outcome in playbooks/reboot.yml, the worst first."""


@dataclass
class Run:
    """A report of a run, parsed: whatever has another form is left out."""

    report: Row
    layers: dict[str, dict[str, list[Row]]] = field(default_factory=dict)
    """Checks by layer and host."""
    unverified: dict[str, dict[str, str]] = field(default_factory=dict)
    """By layer and host, why it was not verified."""

    def __post_init__(self) -> None:
        for layer, found in mapping(self.report.get("layers")).items():
            hosts = mapping(mapping(found).get("hosts"))
            self.layers[str(layer)] = {
                str(host): [c for c in sequence(mapping(own).get("checks")) if isinstance(c, dict)]
                for host, own in hosts.items()
            }
        for layer, reasons in mapping(self.report.get("unverified")).items():
            for reason, hosts in mapping(reasons).items():
                own = self.unverified.setdefault(str(layer), {})
                own.update((str(host), str(reason)) for host in sequence(hosts))
        self.failed = _strings(self.report.get("failed"))
        self.unreachable = _strings(self.report.get("unreachable"))
        self.topology = Fabric(mapping(self.report.get("topology")))
        rebooted = mapping(self.report.get("rebooted"))
        self.turns = {str(host): mapping(own) for host, own in rebooted.items()}
        racks = mapping(mapping(self.report.get("topology")).get("racks"))
        self.rack = {str(host): str(rack) for rack, own in racks.items() for host in sequence(own)}

    @property
    def hosts(self) -> list[str]:
        found = {host for own in self.layers.values() for host in own}
        found.update(*self.unverified.values(), self.failed, self.unreachable)
        roles = list(dict.fromkeys(self.topology.role.values()))
        order = {host: roles.index(role) for host, role in self.topology.role.items()}
        return sorted(found, key=lambda host: (order.get(host, len(roles)), natural(host)))

    @property
    def order(self) -> list[str]:
        known = {layer: at for at, layer in enumerate(ROLES)}
        found = dict.fromkeys([*self.unverified, *self.layers])
        return sorted(found, key=lambda layer: known.get(layer, -1))

    def checks(self, statuses: Sequence[str] = ()) -> Iterator[tuple[str, str, Row]]:
        for layer, hosts in self.layers.items():
            for host, checks in hosts.items():
                for check in checks:
                    if not statuses or check.get("status") in statuses:
                        yield layer, host, check

    @cached_property
    def counts(self) -> Counter[str]:
        return Counter(str(check.get("status")) for _layer, _host, check in self.checks())

    def verdict(self) -> tuple[str, str, str]:
        """Class, word and sentence."""
        found, parts = self.counts, []
        bad = {host for _layer, host, _check in self.checks([FAILED])}
        if found[FAILED]:
            on = f"{counted(len(bad), 'host')} ({some(sorted(bad, key=natural), 4)})"
            parts.append(f"{counted(found[FAILED], 'check')} failed on {on}")
        rest = [host for host in self.failed if host not in bad]
        if rest:
            parts.append(f"tasks failed on {some(sorted(rest, key=natural), 4)}")
        if self.unreachable:
            parts.append(f"unreachable: {some(sorted(self.unreachable, key=natural), 4)}")
        missed = {host for own in self.unverified.values() for host in own}
        if missed:
            parts.append(f"not verified: {some(sorted(missed, key=natural), 4)}")
        turns = Counter(str(own.get("status")) for own in self.turns.values())
        outcomes = ", ".join(f"{turns[each]} {each}" for each in TURNS if turns[each])
        if parts:
            parts += [f"reboots: {outcomes}"] if outcomes else []
            return "bad", "Failed", f"{'; '.join(parts)}."
        verified = f"{counted(found[OK], 'check')} ok on {counted(len(self.hosts), 'host')}"
        excluded = list(mapping(self.report.get("left_out")))
        verified += f"; not done: {some(excluded, 4)}" if excluded else ""
        verified += f"; reboots: {outcomes}" if outcomes else ""
        verified += "; parts are simulated" if self.report.get("simulated") else ""
        waiting = sequence(list(mapping(self.report.get("reboots"))))
        if found[PENDING]:
            change = "would change" if self.report.get("check_mode") else "pending"
            return "warn", "Differences", f"{found[PENDING]} {change}; {verified}."
        if waiting:
            return "warn", "Reboot needed", f"{some(sorted(waiting), 4)}; {verified}."
        if not found[OK]:
            return "warn", "Nothing verified", "No check of a layer passed."
        return "ok", "Passed", f"No check failed: {verified}."


def _strings(found: Any) -> dict[str, str]:
    return {str(host): str(reason) for host, reason in mapping(found).items()}


def page(report: Row) -> tuple[str, list[Markup], dict[str, Any]]:
    """Title, content and summary for the index."""
    run = Run(report)
    class_, word, sentence = run.verdict()
    playbook, cluster = str(report.get("playbook")), str(report.get("cluster") or "unnamed")
    figures = {**_down(run), **measured(run)}
    faults = Fabric(mapping(report.get("topology")))
    faults.blame(
        Fault(
            host,
            str(check.get("subject")),
            f"{layer} {check.get('name')}: {_says(check)}",
            layer in OF_FABRIC,
        )
        for layer, host, check in run.checks([FAILED])
    )
    drawing = fabric(faults)
    body = [
        heading(cluster, playbook, report, bool(report.get("check_mode"))),
        verdict(class_, word, sentence),
        tiles(_overview(run, figures)),
        *_findings(run),
        *_reboots(run),
        *_notes(report),
        section("Layers by hosts", *_grid(run)),
        *([section("Fabric", drawing)] if drawing else []),
        *_measurements(run),
        section("All checks", *_all(run)),
    ]
    counts = run.counts
    summary = {
        "kind": playbook.rpartition(".")[0] or playbook or "run",
        "class": class_,
        "word": word,
        "sentence": sentence,
        "started": str(report.get("started")),
        "figures": {
            "failed checks": (counts[FAILED], ""),
            "checks ok": (counts[OK], ""),
            **figures,
            "duration": (number(report.get("seconds")), "s"),
        },
    }
    return f"{cluster}: {playbook}", body, summary


def _overview(run: Run, figures: Mapping[str, tuple[float, str]]) -> dict[str, tuple[float, str]]:
    counts = run.counts
    found = {"hosts": (float(len(run.hosts)), ""), "checks ok": (float(counts[OK]), "")}
    if counts[FAILED]:
        found["checks failed"] = (float(counts[FAILED]), "")
    found["tasks changed"] = (sum(map(number, mapping(run.report.get("changed")).values())), "")
    return {**found, **figures}


def _says(check: Row) -> str:
    return f"found {value(check.get('found'))}, desired {value(check.get('wanted'))}"


def _notes(report: Row) -> Iterator[Markup]:
    """What restricts the verdict: simulated parts, layers left out, nodes out of service, and
    execution nodes that were lost."""
    rows = [
        ("simulated", ranges(map(str, sequence(hosts))), str(what))
        for what, hosts in mapping(report.get("simulated")).items()
    ]
    for layer, hosts in mapping(report.get("left_out")).items():
        why = "excluded by --limit" if hosts else "the inventory has no host for it"
        rows.append((f"not done: {layer}", ranges(map(str, sequence(hosts))), why))
    for row in map(mapping, sequence(report.get("out_of_service"))):
        why = "{} ({}, {})".format(*(row.get(key) for key in ("reason", "by", "since")))
        rows.append(("out of service in Slurm", str(row.get("nodes")), why))
    for node, why in mapping(mapping(report.get("execution")).get("lost")).items():
        rows.append(("execution node lost", str(node), str(why)))
    if rows:
        yield section(
            "Notes", listed("What restricts the verdict", ("what", "hosts", "reason"), rows)
        )


def _reboots(run: Run) -> Iterator[Markup]:
    """The outcome of every host that playbooks/reboot.yml planned, failed ones first."""
    if "rebooted" not in run.report:
        return
    rows = []
    for host, own in sorted(run.turns.items(), key=lambda each: _worst(each[1])):
        class_, sign = TURNS.get(str(own.get("status")), ("warn", "?"))
        batch, took = number(own.get("batch")), number(own.get("seconds"))
        rows.append(
            (
                host,
                tag("td", f"{sign} {own.get('status')}", class_=class_),
                f"{batch:.0f}" if batch else "-",
                shown(took, "s") if took else "-",
                "; ".join(map(str, sequence(own.get("reasons")))) or "-",
                str(own.get("text") or "-"),
            )
        )
    head = ("host", "outcome", "batch", "took", "reasons", "what was done")
    said = listed("Hosts that waited for a reboot", head, rows) if rows else ""
    yield section("Reboots", said or tag("p", "No host waited for a reboot."))


def _worst(turn: Row) -> int:
    return next((at for at, status in enumerate(TURNS) if status == turn.get("status")), 0)


def _table_of_hosts(rows: Sequence[tuple[str, str, str]]) -> Markup:
    merged: dict[tuple[str, str], list[str]] = {}
    for host, what, why in rows:
        merged.setdefault((what, why), []).append(host)
    hosts = [(ranges(own), what, why) for (what, why), own in merged.items()]
    return listed("Hosts that the run did not complete", ("hosts", "what", "why"), hosts)


def _findings(run: Run) -> Iterator[Markup]:
    cards: dict[tuple[str, str, str], list[tuple[str, Row]]] = {}
    for status in FINDINGS:
        for layer, host, check in run.checks([status]):
            cards.setdefault((status, layer, str(check.get("name"))), []).append((host, check))
    written = [_card(run, *key, rows) for key, rows in list(cards.items())[:MAX_CARDS]]
    if len(cards) > MAX_CARDS:
        written.append(tag("p", f"{len(cards) - MAX_CARDS} more kinds are in the JSON report."))
    rows = [(host, "unreachable", why) for host, why in run.unreachable.items()]
    rows += [(host, "failed", why) for host, why in run.failed.items()]
    for layer, own in run.unverified.items():
        rows += [(host, f"{layer} not verified", why) for host, why in own.items()]
    if rows:
        written.append(_table_of_hosts(rows))
    if written:
        yield section("Findings", *written)


def _card(run: Run, status: str, layer: str, name: str, rows: list[tuple[str, Row]]) -> Markup:
    by_layer = set()
    for host, check in rows:
        if not check.get("by_hand"):
            at = str(check.get("at"))  # a host may only name hosts of the inventory
            by_layer.add(at if at in run.topology.role else host)
    lines = [_command(run, status, layer, by_layer)] if by_layer else []
    return card(status, layer, name, rows, [line for line in lines if line])


def _command(run: Run, status: str, layer: str, hosts: Iterable[str]) -> str:
    given = [str(each) for each in sequence(run.report.get("inventories"))] or ["INVENTORY"]
    argv = ["ansible-playbook", "playbooks/reboot.yml" if status == REBOOT else "site.yml"]
    argv += [word for each in given for word in ("-i", each)]
    if status != REBOOT:
        if layer in MEASURING or layer not in ROLES:
            return ""
        argv += ["--tags", layer]
    names = ",".join(sorted(hosts, key=natural))
    return f"{shlex.join(argv)} --limit {shlex.quote(names)}"


def _grid(run: Run) -> Iterator[Markup]:
    order = run.order
    wrong = dict.fromkeys(run.failed, "failed")
    wrong.update(dict.fromkeys(run.unreachable, "unreachable"))
    groups: dict[tuple[Any, ...], list[str]] = {}
    hosts = run.hosts
    many = len(hosts) > SHOWN_HOSTS
    for host in hosts:
        cells = tuple(_status(run, layer, host) for layer in order)
        role = run.topology.role.get(host, "") if many else host
        groups.setdefault((role, wrong.get(host, ""), cells), []).append(host)
    ordered = list(groups.items())
    if many:
        ordered.sort(
            key=lambda each: min(map(_rank, each[0][2]), default=RANKS[NONE]) > RANKS[PENDING]
        )
    rows = []
    for (_role, how, cells), members in ordered:
        racks = {run.rack[host] for host in members if host in run.rack} if many else set()
        under = [f"{len(members)} hosts"] if len(members) > 1 else []
        under += [
            f"{len(racks)} racks" if len(racks) > 1 else f"rack {rack}" for rack in [*racks][:1]
        ]
        under += [how] if how else []
        name = shortened(ranges(members), 120)
        head = join([name, *([tag("small", ", ".join(under))] if under else [])])
        rows.append((head, *(_cell(*cell) for cell in cells)))
    heads = ("hosts", *order)
    tall = "Each cell: the sign of the worst status, and how many checks have it."
    yield table(tall, heads, rows[:MAX_ROWS], class_="grid")
    yield more(len(rows) - MAX_ROWS)
    yield tag(
        "ul",
        *(
            tag("li", tag("span", f"{sign} {word}", class_=f"tag {class_}"))
            for class_, sign, word in SIGNS.values()
            if sign
        ),
        class_="legend",
        aria_label="Signs",
    )


def _status(run: Run, layer: str, host: str) -> tuple[str, int]:
    found = Counter(str(check.get("status")) for check in run.layers.get(layer, {}).get(host, ()))
    if host in run.unverified.get(layer, {}) and not found[FAILED]:
        return UNVERIFIED, 0
    status = next((each for each in SIGNS if found[each]), NONE)
    return status, found[status]


def _rank(cell: tuple[str, int]) -> int:
    return RANKS.get(cell[0], len(RANKS))


def _cell(status: str, count: int) -> Markup:
    class_, sign, word = SIGNS[status]
    if not sign:
        return tag("td", tag("span", word, class_="vh"))
    seen = tag("span", sign, aria_hidden="true")
    return tag("td", seen, tag("span", f"{word}:", class_="vh"), f" {count or ''}", class_=class_)


def _all(run: Run) -> Iterator[Markup]:
    """Checks of each layer; equal ones of several hosts are one row."""
    for layer, hosts in run.layers.items():
        merged: dict[tuple[str, ...], list[tuple[str, Row]]] = {}
        counts: Counter[str] = Counter()
        for host, checks in hosts.items():
            for check in checks:
                counts[str(check.get("status"))] += 1
                keys = ("status", "name", "subject", "found", "wanted", "reason")
                key = tuple([str(check.get(each)) for each in keys])
                merged.setdefault(key, []).append((host, check))
        ordered = sorted(merged.items(), key=lambda each: _rank((each[0][0], 0)))
        rows: list[Sequence[object]] = []
        for (status, name, *_rest), own in ordered[:MAX_LISTED]:
            class_, sign, word = SIGNS.get(status, SIGNS[NONE])
            state = tag("td", f"{sign} {word}", class_=class_)
            check, names = own[0][1], ranges(host for host, _check in own)
            said = [value(check.get(key), "") for key in ("subject", "found", "wanted", "reason")]
            rows.append((name, state, *said, names))
        numbers = ", ".join(f"{counts[each]} {SIGNS[each][2]}" for each in SIGNS if counts[each])
        head = ("check", "status", "subject", "found", "desired", "reason", "hosts")
        yield details(
            f"{layer}: {numbers or 'no checks'}",
            table(f"{layer}: checks", head, rows),
            more(len(merged) - MAX_LISTED),
        )


def _of_layer(run: Run, layer: str) -> Iterator[tuple[str, Row]]:
    found = mapping(mapping(run.report.get("layers")).get(layer))
    for host, own in mapping(found.get("hosts")).items():
        figures = mapping(mapping(mapping(own).get("measured")).get("figures"))
        if figures:
            yield str(host), figures


def measured(run: Run) -> dict[str, tuple[float, str]]:
    """Figures of the run, with units, for tiles and the index."""
    found: dict[str, tuple[float, str]] = {}
    for _host, figures in _of_layer(run, "smoke"):
        best = figure(figures.get("best_busbw_gbytes_s"))
        sizes = [row for row in map(mapping, sequence(figures.get("by_size"))) if row]
        if best is not None:
            found["allreduce bus bandwidth"] = (best, "GB/s")
        if sizes:
            found["allreduce latency"] = (number(sizes[0].get("median_us")), "us")
    rates = [number(row["write_bw"]) for row in _verbs(run) if row.get("write_bw")]
    if rates:
        found["slowest rail"] = (min(rates), "Gb/s")
    for _host, filesystems in _of_layer(run, "storage"):
        for name, used in list(filesystems.items())[:4]:
            for way in ("write", "read"):
                rate = figure(mapping(mapping(used).get(way)).get("together"))
                if rate is not None:
                    found[f"{name} {way}"[:60]] = (rate, "GB/s")
    return found


def _down(run: Run) -> dict[str, tuple[float, str]]:
    """How many hosts rebooted, and for how long the slowest one was down."""
    if "rebooted" not in run.report:
        return {}
    times = [took for own in run.turns.values() if (took := figure(own.get("seconds")))]
    return {
        "hosts rebooted": (float(len(times)), ""),
        **({"longest reboot": (max(times), "s")} if times else {}),
    }


def _verbs(run: Run) -> list[dict[str, Any]]:
    rows = []
    for _host, figures in _of_layer(run, "verbs"):
        for pair in map(mapping, sequence(figures.get("pairs"))):
            done = mapping(pair.get("exchanges"))
            latency = mapping(done.get("write_lat"))
            rate = mapping(done.get("write_bw")).get("gbits_s")
            names = {key: str(pair.get(key)) for key in ("host", "rail", "peer")}
            line = number(pair.get("line_rate_gbits_s"))
            rows.append({**names, "write_bw": rate, "us": latency.get("median_us"), "line": line})
    return rows


def _measurements(run: Run) -> Iterator[Markup]:
    tables = []
    for host, figures in _of_layer(run, "smoke"):
        nominal = " (nominal: virtual nodes)" if figures.get("virtual") else ""
        line = shown(number(figures.get("line_rate_gbytes_s")), "GB/s")
        caption = (
            f"Allreduce of {figures.get('ranks')} ranks over {figures.get('transport')}, from "
            f"{host}; line rate of a node {line}{nominal}"
        )
        rows = [
            (
                bytes_text(int(number(row.get("bytes")))),
                *(shown(number(row.get(key)), "us") for key in ("median_us", "p99_us")),
                shown(number(row.get("busbw_gbytes_s")), "GB/s"),
            )
            for row in map(mapping, sequence(figures.get("by_size"))[:64])
        ]
        tables.append(table(caption, ("message", "median", "p99", "bus bandwidth"), rows))
    pairs = _verbs(run)
    pairs.sort(key=lambda row: number(row["write_bw"]) / row["line"] if row["line"] else 0.0)
    rows = [
        (
            f"{row['host']} {row['rail']} - {row['peer']}",
            shown(number(row["write_bw"]), "Gb/s"),
            f"{number(row['write_bw']) / row['line']:.1%}" if row["line"] else "-",
            shown(number(row["us"]), "us"),
        )
        for row in pairs[:MAX_LISTED]
    ]
    if rows:
        head = ("pair", "RDMA write", "of line rate", "latency, median")
        tables.append(table("Rails by RDMA verbs, the slowest first", head, rows))
        tables.append(more(len(pairs) - MAX_LISTED))
    if tables:
        yield section("Figures", *tables)
