# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The configuration commands that the simulation knows, mode by mode, and how EOS refuses others.

Known are those of QoS, flow control and interfaces. What an operator has besides (`ntp server`,
`vlan`, `router bgp`, ...) is taken as it comes and kept word for word, a block without blocks of
its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Optional

from common.switch import Hardware

from .config import MAPS, Config, Line


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
LARGEST_MTU = 9214
"""Of layer 3, as this class of switches counts."""
USUAL_MTU = "1500"


def _number(least: float, most: float) -> Callable[[str], bool]:
    return lambda word: re.fullmatch(r"\d+", word) is not None and least <= int(word) <= most


def _seconds(least: float, most: float) -> Callable[[str], bool]:
    return lambda word: (
        re.fullmatch(r"\d+(\.\d+)?", word) is not None and least <= float(word) <= most
    )


KINDS: dict[str, Callable[[str], bool]] = {
    "dscp": _number(0, 63),
    "eight": _number(0, 7),
    "percent": _number(1, 100),
    "mtu": _number(68, LARGEST_MTU),
    "bytes": _number(0, 10**10),
    "name": lambda word: re.fullmatch(r"[A-Za-z0-9_:{}\[\].-]{1,80}", word) is not None,
    "seconds": _seconds(0.01, 60),
    "poll": lambda word: word == "auto" or _seconds(0.005, 30)(word),
    "action": lambda word: word in ("drop", "notify-only"),
    "trust": lambda word: word in ("cos", "dscp"),
    "queue": lambda word: word in ("tx-queue", "uc-tx-queue"),
}


@dataclass(frozen=True)
class Command:
    pattern: str
    """Words; `<kind>` for a value, `<kind!>` for one that names the line, `<kind>+` for several of
    one kind, `<rest>` for all that follow."""
    order: int
    enters: str = ""
    """Mode of the block that this line begins."""
    place: str = ""
    """Lines of one place replace each other. Else those of the same words before their value."""

    def fits(self, words: Words) -> tuple[int, int, int]:
        """How many parts of the pattern and words fit, and how many words name the line."""
        at, named = 0, -1
        parts = self.pattern.split()
        for number, part in enumerate(parts):
            if at == len(words):
                return number, at, named if named >= 0 else at
            kind = part.strip("<>!+")
            if part.startswith("<") and not part.endswith("!>") and named < 0:
                named = at
            if part == "<rest>":
                at = len(words)
            elif KINDS[kind](words[at]) if part.startswith("<") else words[at] == part:
                at += 1
                while part.endswith("+") and at < len(words) and KINDS[kind](words[at]):
                    at += 1
            else:
                return number, at, named if named >= 0 else at
        return len(parts), at, named if named >= 0 else at


PAUSE = "priority-flow-control pause watchdog"
TIMES = f"{PAUSE} default"
FLOW = [
    Command("qos trust <trust>", 10),
    Command("qos cos <eight>", 11),
    Command("priority-flow-control on", 14),
    Command("priority-flow-control priority <eight!> no-drop", 15),
    Command(PAUSE, 16),
    Command(f"{PAUSE} port action <action>", 18),
    Command("<queue!> <eight!>", 30, enters="queue"),
]
QUEUE = [
    Command("priority strict", 20, place="priority"),
    Command("no priority", 20, place="priority"),
    Command("bandwidth percent <percent>", 30),
    Command(
        "random-detect ecn minimum-threshold <bytes> bytes maximum-threshold <bytes> bytes "
        "max-mark-probability <percent>",
        40,
    ),
]
INTERFACE = [
    Command("shutdown", 0),
    Command("description <rest>", 1),
    Command("mtu <mtu>", 2),
    Command("no switchport", 7, place="switchport"),
    Command("ip address <rest>", 8),
    *FLOW,
    Command("service-profile <name>", 20),
]
GLOBAL = [
    Command("hostname <name>", 5),
    Command("qos profile <name!>", 20, enters="qos profile"),
    Command("qos map dscp <dscp>+ to traffic-class <eight>", 50),
    Command("qos map cos <eight>+ to traffic-class <eight>", 50),
    Command("qos map traffic-class <eight>+ to tx-queue <eight>", 50),
    Command("qos random-detect ecn allow non-ect", 53),
    Command(f"{TIMES} timeout <seconds>", 60),
    Command(f"{TIMES} recovery-time <seconds>", 61),
    Command(f"{TIMES} recovery-time <seconds> forced", 61),
    Command(f"{TIMES} polling-interval <poll>", 62),
    Command(f"{PAUSE} action <action>", 63),
]
COMMANDS = {
    "configure": GLOBAL,
    "qos profile": FLOW,
    "interface": INTERFACE,
    "queue": QUEUE,
}

FREE_LINES = (
    "aaa", "alias", "clock", "dns", "ip", "ipv6", "lldp", "logging", "ntp", "platform", "service",
    "sflow", "snmp-server", "spanning-tree", "switchport", "system", "username",
)  # fmt: skip
FREE_BLOCKS = (
    "class-map",
    "management",
    "mlag",
    "policy-map",
    "route-map",
    "router",
    "vlan",
    "vrf",
)
FREE_INTERFACES = re.compile(r"(Loopback|Management|Port-Channel|Vlan|Vxlan)\d+(\.\d+)?")
LEAVES_BLOCK = ("interface", "hostname", "qos", "priority-flow-control", *FREE_BLOCKS)
ORDERS = {"vlan": 24, "vrf": 25, "router": 80, "management": 81}


def complaint(patterns: Sequence[Command], words: Words) -> str:
    """The complaint of EOS about words that fit no pattern."""
    best = max((command.fits(words)[1] for command in patterns), default=0)
    if best == len(words):
        return f"Incomplete command (at token {len(words)}: None)"
    return f"Invalid input (at token {best}: {words[best]!r})"


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
            entered = _in_mode(config, modes[depth - 1], words, hardware)
        except Refused as refused:
            first = first or refused
            continue
        del modes[depth:]
        if entered is not None:
            modes.append(entered)
        return
    if first is not None:
        raise first


def _in_mode(config: Config, mode: Mode, words: Words, hardware: Hardware) -> Optional[Mode]:
    negative = words[0] in ("no", "default") and len(words) > 1
    if mode.name == "free":
        return _free_line(mode, words, negative)
    if mode.name == "configure" and words[0] == "interface":
        return _interface(mode, words, hardware)
    for command in COMMANDS[mode.name]:
        parts, at, named = command.fits(words)
        if parts == len(command.pattern.split()) and at == len(words):
            return _command(config, mode, command, words, command.place or " ".join(words[:named]))
    if negative:
        _negate(config, mode, words, hardware)
        return None
    if mode.name == "configure" and words[0] in (*FREE_LINES, *FREE_BLOCKS):
        text, block = " ".join(words), words[0] in FREE_BLOCKS
        line = mode.lines.setdefault(text, Line(text, ORDERS.get(words[0], 40), block))
        return Mode("free", line.below) if block else None
    raise Refused(complaint(COMMANDS[mode.name], words))


def _command(
    config: Config, mode: Mode, command: Command, words: Words, key: str
) -> Optional[Mode]:
    kind = " ".join(words[:3])
    if kind in MAPS:
        end = words.index("to")
        for value in words[3:end]:
            config.map(kind, int(value), int(words[-1]))
        return None
    if words == ["mtu", USUAL_MTU]:
        mode.lines.pop("mtu", None)
        return None
    text = " ".join(words)
    if command.enters:
        line = mode.lines.setdefault(key, Line(text, command.order, True))
        return Mode(command.enters, line.below)
    line = Line(text, command.order)
    _check({**mode.lines, key: line})
    mode.lines[key] = line
    return None


def _check(lines: dict[str, Line]) -> None:
    """What EOS refuses of values that are right one by one."""
    timeout, poll = (lines.get(f"{TIMES} {name}") for name in ("timeout", "polling-interval"))
    if timeout and poll:
        # It has to look at least twice before a time-out.
        often = poll.text.split()[-1]
        if often != "auto" and float(often) > float(timeout.text.split()[-1]) / 2:
            raise Failed("Polling interval should be less than or equal to half of the timeout")
    marking = lines.get("random-detect ecn minimum-threshold")
    if marking:
        words = marking.text.split()
        if int(words[3]) > int(words[6]):
            raise Failed("Minimum threshold should be less than or equal to maximum threshold")


def _negate(config: Config, mode: Mode, words: Words, hardware: Hardware) -> None:
    """`no` needs only the words that name the setting, not its value: `no mtu`."""
    rest = words[1:]
    text = " ".join(rest)
    if mode.name == "configure" and rest[0] == "interface":
        _interface(mode, rest, hardware).lines.clear()
        return
    if mode.name == "configure" and rest[0] in (*FREE_LINES, *FREE_BLOCKS):
        _take_out(mode, text)
        return
    kind = " ".join(rest[:3])
    if kind in MAPS:
        for value in rest[3:]:
            if value == "to":
                break
            config.maps[kind].pop(int(value), None)
        return
    named = [key for key in mode.lines if f"{text} ".startswith(f"{key} ")]
    if named:
        del mode.lines[max(named, key=len)]
        return
    known = any(command.fits(rest)[1] == len(rest) for command in COMMANDS[mode.name])
    if not known and text != "switchport":
        patterns = [Command(f"{words[0]} {one.pattern}", 0) for one in COMMANDS[mode.name]]
        raise Refused(complaint(patterns, words))


def _take_out(mode: Mode, text: str) -> bool:
    gone = [key for key in mode.lines if f"{key} ".startswith(f"{text} ")]
    for key in gone:
        del mode.lines[key]
    return bool(gone)


def _interface(mode: Mode, words: Words, hardware: Hardware) -> Mode:
    name = "".join(words[1:])
    key = f"interface {name}"
    if hardware.port(name) is not None:
        return Mode("interface", mode.lines.setdefault(key, Line(key, 30, True)).below)
    if FREE_INTERFACES.fullmatch(name):
        return Mode("free", mode.lines.setdefault(key, Line(key, 31, True)).below)
    raise Refused(f"Invalid input (at token 1: {name!r})")


def _free_line(mode: Mode, words: Words, negative: bool) -> Optional[Mode]:
    """Lines below what is not known: kept as they are, unless they begin something that is."""
    if words[1 if negative else 0] in LEAVES_BLOCK:
        raise Refused(f"Invalid input (at token 0: {words[0]!r})")
    text = " ".join(words)
    if negative and (_take_out(mode, " ".join(words[1:])) or words[0] == "default"):
        return None
    mode.lines.setdefault(text, Line(text, len(mode.lines)))
    return None


def factory(hardware: Hardware) -> Config:
    """What a switch in service has before anybody begins here: its name and its management."""
    config = Config()
    modes = [Mode("configure", config.top)]
    for text in (f"hostname {hardware.name}", "management api http-commands", "no shutdown"):
        enter(config, modes, text, hardware)
    for port in hardware.ports:
        enter(config, modes, f"interface {port.name}", hardware)
    return config
