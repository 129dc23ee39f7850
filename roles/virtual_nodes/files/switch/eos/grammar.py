# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The configuration commands that the simulation knows, mode by mode, and how EOS refuses others.

Known are those of QoS, flow control and interfaces. What an operator has besides (`ntp server`,
`vlan`, `router bgp`, ...) is taken as it comes and kept word for word.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Optional

from common.switch import Hardware

from .config import Config, Line


class Refused(Exception):
    """The line is no command here. The text is what eAPI has in its list of errors."""


class Failed(Exception):
    """A command that EOS understands and cannot do."""


@dataclass
class Mode:
    """Where lines go at present."""

    name: str
    lines: dict[str, Line]


Words = list[str]
Matched = dict[str, list[str]]
Act = Callable[[Config, Mode, Matched], Optional[Mode]]


@dataclass(frozen=True)
class Command:
    pattern: str
    """Words; `<name:kind>` for a value, `<name:kind>+` for several of them."""
    act: Act
    undo: Optional[Callable[[Config, Mode, Matched], None]] = None
    """What `no` and `default` do with it, however many of its words are given."""


KINDS: dict[str, Callable[[str], bool]] = {
    "dscp": lambda word: word.isdigit() and int(word) < 64,
    "eight": lambda word: word.isdigit() and int(word) < 8,
    "percent": lambda word: word.isdigit() and 1 <= int(word) <= 100,
    "mtu": lambda word: word.isdigit() and 68 <= int(word) <= LARGEST_MTU,
    "number": lambda word: word.isdigit() and len(word) <= 10,
    "name": lambda word: re.fullmatch(r"[A-Za-z0-9_:{}\[\].-]{1,80}", word) is not None,
    "unit": lambda word: word in ("bytes", "kbytes", "mbytes", "segments"),
    "seconds": lambda word: _seconds(word) is not None and 0.01 <= float(word) <= 60,
    "poll": lambda word: (
        word == "auto" or (_seconds(word) is not None and 0.005 <= float(word) <= 30)
    ),
    "action": lambda word: word in ("drop", "notify-only"),
    "trust": lambda word: word in ("cos", "dscp"),
    "queue": lambda word: word in ("tx-queue", "uc-tx-queue", "mc-tx-queue"),
}
LARGEST_MTU = 9214
"""Of layer 3, as this class of switches counts."""
USUAL_MTU = "1500"


def _seconds(word: str) -> Optional[float]:
    return float(word) if re.fullmatch(r"\d+(\.\d+)?", word) else None


def match(pattern: str, words: Words) -> tuple[Optional[Matched], int, str]:
    """What is matched, or None, how many words fit, and what was expected there."""
    values: Matched = {}
    place = 0
    for part in pattern.split():
        if not part.startswith("<"):
            if place == len(words):
                return None, place, part
            if words[place] != part:
                return None, place, part
            place += 1
            continue
        name, _colon, kind = part.strip("<>+").partition(":")
        if kind == "rest":
            if place == len(words):
                return None, place, part
            values[name] = words[place:]
            place = len(words)
            continue
        if place == len(words) or not KINDS[kind](words[place]):
            return None, place, part
        values[name] = [words[place]]
        place += 1
        while part.endswith("+") and place < len(words) and KINDS[kind](words[place]):
            values[name].append(words[place])
            place += 1
    if place < len(words):
        return None, place, ""
    return values, place, ""


def complaint(patterns: list[str], words: Words) -> str:
    """What EOS says of words that fit no pattern."""
    best = 0
    expected: list[str] = []
    for pattern in patterns:
        _found, fits, wanted = match(pattern, words)
        if fits > best:
            best, expected = fits, [wanted]
        elif fits == best:
            expected.append(wanted)
    if best == len(words):
        return f"Incomplete command (at token {len(words)}: None)"
    word = words[best]
    literal = {one for one in expected if one and not one.startswith("<")}
    begun = {one for one in literal if one.startswith(word)}
    if len(begun) == 1:
        return f"Incomplete token (at token {best}: {word!r})"
    if begun:
        return f"Ambiguous command (at token {best}: {word!r})"
    return f"Invalid input (at token {best}: {word!r})"


def _set(order: int, key: str, text: str) -> Act:
    """A line in a place of its own; `{name}` stands for the words of a value."""

    def act(_config: Config, mode: Mode, found: Matched) -> Optional[Mode]:
        filled = {name: " ".join(words) for name, words in found.items()}
        mode.lines[key.format(**filled)] = Line(text.format(**filled), order)
        return None

    return act


def _unset(key: str) -> Callable[[Config, Mode, Matched], None]:
    def undo(_config: Config, mode: Mode, found: Matched) -> None:
        begin = key.partition("{")[0]
        filled = {name: " ".join(words) for name, words in found.items()}
        try:
            mode.lines.pop(key.format(**filled), None)
        except KeyError:
            for one in [one for one in mode.lines if one.startswith(begin)]:
                del mode.lines[one]

    return undo


def _line(pattern: str, order: int, key: str, text: str) -> Command:
    return Command(pattern, _set(order, key, text), _unset(key))


def _enter(name: str, order: int, key: str, text: str) -> Act:
    def act(_config: Config, mode: Mode, found: Matched) -> Mode:
        filled = {one: " ".join(words) for one, words in found.items()}
        place = key.format(**filled)
        line = mode.lines.setdefault(place, Line(text.format(**filled), order, True))
        return Mode(name, line.below)

    return act


def _map(kind: str) -> Act:
    def act(config: Config, _mode: Mode, found: Matched) -> None:
        for one in found["from"]:
            config.map(kind, int(one), int(found["to"][0]))

    return act


def _unmap(kind: str) -> Callable[[Config, Mode, Matched], None]:
    def undo(config: Config, _mode: Mode, found: Matched) -> None:
        for one in found.get("from", []):
            config.maps[kind].pop(int(one), None)

    return undo


def _ecn(_config: Config, mode: Mode, found: Matched) -> None:
    scale = {"bytes": 1, "kbytes": 1000, "mbytes": 1000000, "segments": 1}
    if found["unit"] != found["other"]:
        raise Failed("Minimum and maximum threshold have to be in the same unit")
    least, most = (int(found[name][0]) * scale[found["unit"][0]] for name in ("least", "most"))
    if least > most:
        raise Failed("Minimum threshold should be less than or equal to maximum threshold")
    words = {name: values[0] for name, values in found.items()}
    text = (
        f"random-detect ecn minimum-threshold {words['least']} {words['unit']} "
        f"maximum-threshold {words['most']} {words['other']} "
        f"max-mark-probability {words['share']}"
    )
    if "weight" in words:
        text += f" weight {words['weight']}"
    mode.lines["ecn"] = Line(text, 40)


def _drop(_config: Config, mode: Mode, found: Matched) -> None:
    mode.lines.pop(f"no-drop {found['one'][0]}", None)


def _mtu(_config: Config, mode: Mode, found: Matched) -> None:
    if found["bytes"] == [USUAL_MTU]:
        mode.lines.pop("mtu", None)
    else:
        mode.lines["mtu"] = Line(f"mtu {found['bytes'][0]}", 2)


PAUSE = "priority-flow-control pause watchdog"
TIMES = f"{PAUSE} default"


def _watchdog(name: str, order: int) -> Act:
    """EOS wants to have looked at least twice before a time-out."""

    def act(config: Config, mode: Mode, found: Matched) -> None:
        words = " ".join(found["time"])
        lines = dict(mode.lines)
        lines[f"watchdog {name}"] = Line(f"{TIMES} {name} {words}", order)
        timeout, poll = (_value(lines, one) for one in ("timeout", "polling-interval"))
        if timeout is not None and poll is not None and poll > timeout / 2:
            raise Failed("Polling interval should be less than or equal to half of the timeout")
        mode.lines[f"watchdog {name}"] = lines[f"watchdog {name}"]

    return act


def _value(lines: dict[str, Line], name: str) -> Optional[float]:
    line = lines.get(f"watchdog {name}")
    return _seconds(line.text.split()[5]) if line is not None else None


def _no_head(name: str) -> Callable[[Config, Mode, Matched], None]:
    def undo(_config: Config, mode: Mode, found: Matched) -> None:
        mode.lines.pop(f"{name} {' '.join(found.get('name', []))}", None)

    return undo


FLOW = [
    _line("qos trust <kind:trust>", 10, "trust", "qos trust {kind}"),
    _line("qos cos <one:eight>", 11, "cos", "qos cos {one}"),
    _line("qos dscp <one:dscp>", 12, "dscp", "qos dscp {one}"),
    _line("shape rate <how:rest>", 13, "shape", "shape rate {how}"),
    _line("priority-flow-control on", 14, "flow", "priority-flow-control on"),
    _line(
        "priority-flow-control priority <one:eight> no-drop",
        15,
        "no-drop {one}",
        "priority-flow-control priority {one} no-drop",
    ),
    Command("priority-flow-control priority <one:eight> drop", _drop),
    _line(PAUSE, 16, "watchdog", PAUSE),
    _line(
        f"{PAUSE} port timer timeout <out:seconds> polling-interval <poll:poll> "
        "recovery-time <back:seconds>",
        17,
        "watchdog timer",
        f"{PAUSE} port timer timeout {{out}} polling-interval {{poll}} recovery-time {{back}}",
    ),
    _line(
        f"{PAUSE} port timer timeout <out:seconds> polling-interval <poll:poll> "
        "recovery-time <back:seconds> forced",
        17,
        "watchdog timer",
        f"{PAUSE} port timer timeout {{out}} polling-interval {{poll}} recovery-time {{back}} "
        "forced",
    ),
    _line(
        f"{PAUSE} port action <what:action>", 18, "watchdog action", f"{PAUSE} port action {{what}}"
    ),
    Command(
        "<kind:queue> <one:eight>",
        _enter("queue", 30, "queue {kind} {one}", "{kind} {one}"),
        _unset("queue {kind} {one}"),
    ),
]
QUEUE = [
    _line("priority strict", 20, "priority", "priority strict"),
    _line("bandwidth percent <share:percent>", 30, "bandwidth", "bandwidth percent {share}"),
    _line(
        "bandwidth guaranteed percent <share:percent>",
        31,
        "guaranteed",
        "bandwidth guaranteed percent {share}",
    ),
    _line("shape rate <how:rest>", 32, "shape", "shape rate {how}"),
    *(
        Command(
            "random-detect ecn minimum-threshold <least:number> <unit:unit> "
            "maximum-threshold <most:number> <other:unit> "
            f"max-mark-probability <share:percent>{end}",
            _ecn,
            _unset("ecn"),
        )
        for end in ("", " weight <weight:number>")
    ),
    _line("random-detect ecn count", 41, "ecn count", "random-detect ecn count"),
]
INTERFACE = [
    _line("description <text:rest>", 1, "description", "description {text}"),
    Command("mtu <bytes:mtu>", _mtu, _unset("mtu")),
    _line("speed <how:rest>", 3, "speed", "speed {how}"),
    _line(
        "error-correction encoding <how:rest>",
        4,
        "error-correction",
        "error-correction encoding {how}",
    ),
    _line("load-interval <how:rest>", 5, "load-interval", "load-interval {how}"),
    _line("shutdown", 0, "shutdown", "shutdown"),
    _line("ip address <where:rest>", 8, "ip address", "ip address {where}"),
    _line("channel-group <how:rest>", 9, "channel-group", "channel-group {how}"),
    *FLOW,
    _line("service-profile <name:name>", 20, "service-profile", "service-profile {name}"),
]
GLOBAL = [
    _line("hostname <name:name>", 5, "hostname", "hostname {name}"),
    Command(
        "qos profile <name:name>",
        _enter("qos profile", 20, "qos profile {name}", "qos profile {name}"),
        _no_head("qos profile"),
    ),
    Command("qos map dscp <from:dscp>+ to traffic-class <to:eight>", _map("qos map dscp"),
            _unmap("qos map dscp")),
    Command("qos map cos <from:eight>+ to traffic-class <to:eight>", _map("qos map cos"),
            _unmap("qos map cos")),
    Command("qos map traffic-class <from:eight>+ to tx-queue <to:eight>",
            _map("qos map traffic-class"), _unmap("qos map traffic-class")),
    _line("qos random-detect ecn allow non-ect", 53, "non-ect",
          "qos random-detect ecn allow non-ect"),
    *(
        Command(f"{TIMES} {name} {value}", _watchdog(name, order), _unset(f"watchdog {name}"))
        for order, name, value in (
            (60, "timeout", "<time:seconds>"),
            (61, "recovery-time", "<time:seconds>"),
            (62, "polling-interval", "<time:poll>"),
        )
    ),
    _line(f"{TIMES} recovery-time <time:seconds> forced", 61, "watchdog recovery-time",
          f"{TIMES} recovery-time {{time}} forced"),
    _line(f"{PAUSE} action <what:action>", 63, "watchdog action", f"{PAUSE} action {{what}}"),
]  # fmt: skip
COMMANDS = {
    "configure": GLOBAL,
    "qos profile": FLOW,
    "interface": INTERFACE,
    "queue": QUEUE,
}
EXPLICIT_NO = {
    ("queue", "priority"): Line("no priority", 20),
    ("interface", "switchport"): Line("no switchport", 7),
}
"""What `no` is a setting of its own for, and is written as such."""

FREE_LINES = (
    "aaa", "alias", "agent", "boot", "clock", "dns", "enable", "errdisable", "ip", "ipv6",
    "lldp", "load-interval", "logging", "mac", "ntp", "platform", "queue-monitor", "radius-server",
    "service", "sflow", "snmp-server", "spanning-tree", "switchport", "system", "tacacs-server",
    "transceiver", "username",
)  # fmt: skip
FREE_BLOCKS = (
    "class-map", "daemon", "event-handler", "management", "mlag", "monitor", "peer-filter",
    "policy-map", "route-map", "router", "vlan", "vrf",
)  # fmt: skip
FREE_INTERFACES = ("Loopback", "Management", "Port-Channel", "Vlan", "Vxlan")
BELOW_TOO = (
    "enable", "ip", "ipv6", "lldp", "load-interval", "logging", "mac", "monitor", "route-map",
    "sflow", "spanning-tree", "switchport", "system", "vlan", "vrf",
)  # fmt: skip
"""First words that lines below a free block have as well as lines of their own."""
KNOWN = ("interface", "hostname", "qos", "priority-flow-control")
LEAVES_BLOCK = {*KNOWN, *FREE_LINES, *FREE_BLOCKS} - {*BELOW_TOO}
NESTED = ("address-family", "vrf", "vlan", "class")
ORDERS = {"vlan": 24, "vrf": 25, "router": 80, "management": 81}


def enter(config: Config, modes: list[Mode], text: str, hardware: Hardware) -> None:
    """One line of configuration, in the mode that the last entry of `modes` is, or one above it."""
    words = text.split()
    if not words or words[0].startswith("!"):
        return
    if words == ["exit"]:
        if len(modes) > 1:
            modes.pop()
        return
    first: Optional[Refused] = None
    for depth in range(len(modes), 0, -1):
        try:
            entered = _in_mode(config, modes[depth - 1], words, text, hardware)
        except Refused as refused:
            first = first or refused
            continue
        del modes[depth:]
        if entered is not None:
            modes.append(entered)
        return
    if first is not None:
        raise first


def _in_mode(
    config: Config, mode: Mode, words: Words, text: str, hardware: Hardware
) -> Optional[Mode]:
    if mode.name == "free":
        return _free_line(mode, words, text)
    if words[0] in ("no", "default"):
        _negate(config, mode, words, text, hardware)
        return None
    if mode.name == "configure" and words[0] == "interface":
        return _interface(mode, words, hardware)
    if mode.name == "interface" and words == ["switchport"]:
        mode.lines.pop("switchport", None)
        return None
    for command in COMMANDS[mode.name]:
        found, _fits, _wanted = match(command.pattern, words)
        if found is not None:
            return command.act(config, mode, found)
    if mode.name == "configure" and words[0] in (*FREE_LINES, *FREE_BLOCKS):
        return _free(mode, words)
    patterns = [command.pattern for command in COMMANDS[mode.name]]
    raise Refused(complaint(patterns, words))


def _negate(config: Config, mode: Mode, words: Words, text: str, hardware: Hardware) -> None:
    rest = words[1:]
    if not rest:
        raise Refused(f"Incomplete command (at token {len(words)}: None)")
    explicit = EXPLICIT_NO.get((mode.name, rest[0])) if len(rest) == 1 else None
    if explicit is not None and words[0] == "no":
        mode.lines[rest[0]] = Line(explicit.text, explicit.order)
        return
    if explicit is not None:
        mode.lines.pop(rest[0], None)
        return
    if mode.name == "configure" and rest[0] == "interface":
        _interface(mode, rest, hardware)
        mode.lines[f"interface {_joined(rest[1:])}"].below.clear()
        return
    for command in COMMANDS[mode.name]:
        if command.undo is None:
            continue
        found = _begun(command.pattern, rest)
        if found is not None:
            command.undo(config, mode, found)
            return
    if mode.name == "configure" and rest[0] in (*FREE_LINES, *FREE_BLOCKS):
        for key in [one for one in mode.lines if _is_below(one, " ".join(["free", *rest]))]:
            del mode.lines[key]
        return
    raise Refused(complaint([f"{words[0]} {one.pattern}" for one in COMMANDS[mode.name]], words))


def _is_below(key: str, head: str) -> bool:
    return key == head or key.startswith(head + " ")


def _begun(pattern: str, words: Words) -> Optional[Matched]:
    """`no` needs only the words that name the setting, not its value: `no mtu`."""
    parts = pattern.split()
    for count in range(len(parts), 0, -1):
        if count < len(parts) and not _names_setting(parts, count):
            continue
        found, _fits, _wanted = match(" ".join(parts[:count]), words)
        if found is not None:
            return found
    return None


def _names_setting(parts: list[str], count: int) -> bool:
    """A shortened pattern still has to say all words that come before its first value."""
    literals = next((place for place, part in enumerate(parts) if part.startswith("<")), len(parts))
    return count >= max(1, literals)


def _interface(mode: Mode, words: Words, hardware: Hardware) -> Mode:
    name = _joined(words[1:])
    if not name:
        raise Refused(f"Incomplete command (at token {len(words)}: None)")
    key = f"interface {name}"
    if hardware.port(name) is not None:
        line = mode.lines.setdefault(key, Line(key, 30, True))
        return Mode("interface", line.below)
    if re.fullmatch(rf"({'|'.join(FREE_INTERFACES)})\d+(\.\d+)?", name):
        line = mode.lines.setdefault(key, Line(key, 31, True))
        return Mode("free", line.below)
    raise Refused(f"Invalid input (at token 1: {words[1]!r})")


def _joined(words: Words) -> str:
    return "".join(words)


def _free(mode: Mode, words: Words) -> Optional[Mode]:
    text = " ".join(words)
    order = ORDERS.get(words[0], 40)
    if words[0] in FREE_BLOCKS:
        line = mode.lines.setdefault(f"free {text}", Line(text, order, True))
        return Mode("free", line.below)
    mode.lines[f"free {text}"] = Line(text, order)
    return None


def _free_line(mode: Mode, words: Words, text: str) -> Optional[Mode]:
    """Lines below what is not known: kept as they are, unless they begin something that is."""
    first = words[1] if words[0] in ("no", "default") and len(words) > 1 else words[0]
    if first in LEAVES_BLOCK:
        raise Refused(f"Invalid input (at token 0: {words[0]!r})")
    said = text.strip()
    if words[0] in ("no", "default"):
        begin = " ".join(words[1:])
        gone = [one for one in mode.lines if _is_below(one, begin)]
        for one in gone:
            del mode.lines[one]
        if gone or words[0] == "default":
            return None
    block = words[0] in NESTED
    line = mode.lines.setdefault(said, Line(said, 0 if not block else 1, block))
    return Mode("free", line.below) if block else None


def factory(hardware: Hardware) -> Config:
    """What a switch in service has before anybody begins here: its name and its management."""
    config = Config()
    config.top["hostname"] = Line(f"hostname {hardware.name}", 5)
    head = "management api http-commands"
    config.top[f"free {head}"] = Line(
        head, ORDERS["management"], True, {"no shutdown": Line("no shutdown", 0)}
    )
    for port in hardware.ports:
        head = f"interface {port.name}"
        config.top[head] = Line(head, 30, True)
    return config
