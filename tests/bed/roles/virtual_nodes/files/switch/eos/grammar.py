# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Configuration commands of the simulation, by mode, and the errors of EOS for others.

Commands for QoS, flow control and interfaces are parsed. Others (`ntp server`, `vlan`, `router
bgp`, ...) are stored unchanged; of their blocks only one level is supported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Optional

from common.switch import Hardware

from .config import MAPS, QUEUES, Config, Line


class Refused(Exception):
    """The line is not a valid command. The text is the one in eAPI's list of errors."""


class Failed(Exception):
    """A valid command that EOS cannot carry out."""


@dataclass
class Mode:
    """The block that lines currently go to."""

    name: str
    lines: dict[str, Line]


Words = list[str]
LARGEST_MTU = 9214
"""Largest MTU, of layer 3 in this class of switches."""
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
    "queue": lambda word: word in QUEUES,
    "unit": lambda word: word in ("bytes", "kbytes", "mbytes", "segments", "milliseconds"),
    "weight": _number(0, 15),
    "speed": lambda word: re.fullmatch(r"auto|\d{1,6}[gG]?(-[1248])?(full)?", word) is not None,
    "share": lambda word: re.fullmatch(r"\d{1,3}(/\d{1,3})?", word) is not None,
}
"""Keywords and units as in pyavd 6 (aristanetworks/avd, eos_cli_config_gen) and in published
configurations (docs.habana.ai, Arista switch configuration, L2 and L3)."""


@dataclass(frozen=True)
class Command:
    pattern: str
    """Words of the command: `<kind>` is a value, `<kind!>` a value that identifies the line,
    `<kind>+` several values of one kind, `<rest>` all remaining words."""
    order: int
    enters: str = ""
    """Mode of the block that this line opens."""
    place: str = ""
    """Lines with the same key replace each other. Default: the words in front of the value."""

    def fits(self, words: Words) -> tuple[int, int, int]:
        """Return how many words match, and how many of them identify the line."""
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
BUFFERS, APPLY = "platform trident mmu queue profile", "apply"
FLOW = [
    Command("qos trust <trust>", 10),
    Command("no qos trust", 10, place="qos trust"),
    Command("qos cos <eight>", 11),
    Command("qos dscp <dscp>", 12),
    Command("priority-flow-control on", 14),
    Command("priority-flow-control priority <eight!> no-drop", 15),
    Command("priority-flow-control priority <eight!> drop", 15),
    Command(PAUSE, 16),
    Command(f"no {PAUSE}", 16, place=PAUSE),
    Command(f"{PAUSE} port timer <rest>", 17),
    Command(f"{PAUSE} port action <action>", 18),
    Command("shape rate <rest>", 19),
    Command("service-policy type qos input <name>", 19),
    Command("service-policy type pbr input <name>", 19),
    Command("<queue!> <eight!>", 30, enters="queue"),
    Command("mc-tx-queue <eight!>", 31, enters="queue"),
]
MARKING = "random-detect ecn minimum-threshold <bytes> <unit> maximum-threshold <bytes> <unit>"
MARKING_ENDS = ("", " max-mark-probability <percent>", " weight <weight>",
                " max-mark-probability <percent> weight <weight>")  # fmt: skip
QUEUE = [
    Command("priority strict", 20, place="priority"),
    Command("no priority", 20, place="priority"),
    Command("bandwidth percent <percent>", 30),
    Command("bandwidth guaranteed <rest>", 31),
    Command("shape rate <rest>", 32),
    *(Command(f"{MARKING}{end}", 40) for end in MARKING_ENDS),
    Command("random-detect ecn count", 41),
    Command("random-detect drop <rest>", 42),
]
MMU = [
    Command("ingress threshold <share>", 10),
    Command("ingress headroom <bytes>", 20),
    Command("ingress headroom bytes <bytes>", 20, place="ingress headroom"),
    Command("ingress headroom cells <bytes>", 20, place="ingress headroom"),
    Command("ingress reserved <rest>", 30),
    Command("ingress resume <rest>", 40),
    *(
        Command(f"{queue} <eight!> {what} <rest>", 50)
        for queue in ("ingress priority-group", "egress unicast queue", "egress multicast queue")
        for what in ("reserved", "threshold", "drop-precedence")
    ),
]
DEFAULTS = [Command("mtu <mtu>", 10), Command("ethernet", 20, enters="free")]
INTERFACE = [
    Command("shutdown", 0),
    Command("description <rest>", 1),
    Command("mtu <mtu>", 2),
    Command("speed <speed>", 3),
    Command("speed forced <speed>", 3, place="speed"),
    Command("error-correction encoding reed-solomon", 4, place="error-correction"),
    Command("error-correction encoding fire-code", 4, place="error-correction"),
    Command("channel-group <rest>", 5),
    Command("mlag <bytes>", 6),
    Command("vrf <name>", 6),
    Command("no switchport", 7, place="switchport"),
    Command("ip address <rest>", 8),
    Command("flowcontrol receive <rest>", 9),
    Command("flowcontrol send <rest>", 9),
    *FLOW,
    Command("service-profile <name>", 20),
]
NON_ECT = "qos random-detect ecn allow non-ect"
GLOBAL = [
    Command("hostname <name>", 5),
    Command(f"{BUFFERS} <name!>", 10, enters="mmu"),
    Command(f"{BUFFERS} <name!> {APPLY}", 70),
    Command("qos profile <name!>", 20, enters="qos profile"),
    Command("qos map dscp <dscp>+ to traffic-class <eight>", 50),
    Command("qos map cos <eight>+ to traffic-class <eight>", 50),
    Command("qos map traffic-class <eight>+ to <queue> <eight>", 50),
    Command("qos map traffic-class <eight!> to dscp <dscp>", 51),
    Command("qos rewrite dscp", 52),
    Command(NON_ECT, 53),
    Command(f"{NON_ECT} chip-based", 53, place=NON_ECT),
    Command(f"{TIMES} timeout <seconds>", 60),
    Command(f"{TIMES} recovery-time <seconds>", 61),
    Command(f"{TIMES} recovery-time <seconds> forced", 61),
    Command(f"{TIMES} polling-interval <poll>", 62),
    Command(f"{PAUSE} action <action>", 63),
    Command("priority-flow-control all off", 64),
]
COMMANDS = {
    "configure": GLOBAL,
    "qos profile": FLOW,
    "interface": INTERFACE,
    "queue": QUEUE,
    "mmu": MMU,
    "defaults": DEFAULTS,
}

OTHERS = 9
"""Position of unparsed lines in an interface."""
FREE_LINES = (
    "aaa", "agent", "alias", "arp", "boot", "clock", "dns", "errdisable", "hardware", "ip", "ipv6",
    "lldp", "load-interval", "logging", "mac", "monitor", "ntp", "platform", "queue-monitor",
    "radius-server", "service", "sflow", "snmp-server", "spanning-tree", "switchport", "system",
    "tacacs-server", "transceiver", "username",
)  # fmt: skip
FREE_BLOCKS = (
    "class-map", "daemon", "event-handler", "management", "mlag", "policy-map", "route-map",
    "router", "vlan", "vrf",
)  # fmt: skip
FREE_INTERFACES = re.compile(
    r"(Dps|Loopback|Management|Port-Channel|Tunnel|Vlan|Vxlan)[\d/]+(\.\d+)?|Ethernet[\d/]+\.\d+"
)
OF_INTERFACES = (
    "address", "arp", "bfd", "bgp", "comment", "dcbx", "dhcp", "dot1x", "encapsulation", "evpn",
    "flow", "hardware", "ip", "ipv6", "isis", "l2", "l2-protocol", "lacp", "link", "link-debounce",
    "lldp", "load-interval", "logging", "mac", "mac-address-table", "mpls", "multicast",
    "node", "ntp", "phy", "pim", "poe", "port-channel", "ptp", "sflow", "snmp", "spanning-tree",
    "storm-control", "switchport", "sync-e", "tcp", "traffic-policy", "transceiver", "vrrp",
)  # fmt: skip
"""First words of unparsed lines in an interface (aristanetworks/avd, eos_cli_config_gen)."""
LEAVES_BLOCK = ("interface", "hostname", "qos", "priority-flow-control", *FREE_BLOCKS)
ORDERS = {"vlan": 24, "vrf": 25, "router": 80, "management": 81}


def complaint(patterns: Sequence[Command], words: Words) -> str:
    """Return the error of EOS for words that match no pattern."""
    best = max((command.fits(words)[1] for command in patterns), default=0)
    if best == len(words):
        return f"Incomplete command (at token {len(words)}: None)"
    return f"Invalid input (at token {best}: {words[best]!r})"


def enter(config: Config, modes: list[Mode], text: str, hardware: Hardware) -> None:
    """Enter one line of configuration in the last mode of `modes`, or in one above it."""
    words = text.split()
    if not words or words[0].startswith("!"):
        return
    if words == ["end"]:
        del modes[1:]
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
    if mode.name == "interface" and words[0] in OF_INTERFACES:
        return _free_line(mode, words, False, OTHERS)
    raise Refused(complaint(COMMANDS[mode.name], words))


def _command(
    config: Config, mode: Mode, command: Command, words: Words, key: str
) -> Optional[Mode]:
    kind = " ".join(words[:3])
    if kind in MAPS and words[-2:-1] != ["dscp"]:
        end = words.index("to")
        for value in words[3:end]:
            config.map(kind, int(value), int(words[-1]))
        if words[-2] in QUEUES:
            config.queue = words[-2]
        return None
    if words[0] == "mtu" and words[1] == _usual_mtu(config, mode):
        mode.lines.pop("mtu", None)
        return None
    if words[-1] == APPLY:  # one at a time
        for applied in [each for each in mode.lines if each.endswith(f" {APPLY}")]:
            del mode.lines[applied]
    text = " ".join(words)
    if command.enters:
        line = mode.lines.setdefault(key, Line(text, command.order, True))
        return Mode(command.enters, line.below)
    line = Line(text, command.order)
    _check({**mode.lines, key: line})
    mode.lines[key] = line
    return None


def _usual_mtu(config: Config, mode: Mode) -> str:
    """Return the default MTU of a port, which `interface defaults` may change."""
    above = config.top.get("interface defaults")
    line = above.below.get("mtu") if above and mode.name == "interface" else None
    return line.text.split()[1] if line else USUAL_MTU


def _check(lines: dict[str, Line]) -> None:
    """Reject combinations that EOS rejects although each value is valid."""
    timeout, poll = (lines.get(f"{TIMES} {name}") for name in ("timeout", "polling-interval"))
    if timeout and poll:
        # At least two polls are needed before a time-out.
        often = poll.text.split()[-1]
        if often != "auto" and float(often) > float(timeout.text.split()[-1]) / 2:
            raise Failed("Polling interval should be less than or equal to half of the timeout")
    marking = lines.get("random-detect ecn minimum-threshold")
    if marking:
        words = marking.text.split()
        if words[4] == words[7] and int(words[3]) > int(words[6]):
            raise Failed("Minimum threshold should be less than or equal to maximum threshold")


def _negate(config: Config, mode: Mode, words: Words, hardware: Hardware) -> None:
    """`no` needs only the words that identify the setting, not its value: `no mtu`."""
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
    if mode.name == "interface" and rest[0] in OF_INTERFACES:
        _free_line(mode, words, True, OTHERS)
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
    if name == "defaults":
        return Mode(name, mode.lines.setdefault(key, Line(key, 15, True)).below)
    if re.fullmatch(r"Port-Channel\d+", name):
        return Mode("interface", mode.lines.setdefault(key, Line(key, 31, True)).below)
    if FREE_INTERFACES.fullmatch(name):
        return Mode("free", mode.lines.setdefault(key, Line(key, 31, True)).below)
    raise Refused(f"Invalid input (at token 1: {name!r})")


def _free_line(
    mode: Mode, words: Words, negative: bool, order: Optional[int] = None
) -> Optional[Mode]:
    """Store lines of an unknown block unchanged, unless they start a known one."""
    if words[1 if negative else 0] in LEAVES_BLOCK:
        raise Refused(f"Invalid input (at token 0: {words[0]!r})")
    text = " ".join(words)
    if negative and (_take_out(mode, " ".join(words[1:])) or words[0] == "default"):
        return None
    mode.lines.setdefault(text, Line(text, len(mode.lines) if order is None else order))
    return None


def factory(hardware: Hardware) -> Config:
    """Initial configuration of a switch in service: its name and its management."""
    config = Config()
    modes = [Mode("configure", config.top)]
    for text in (f"hostname {hardware.name}", "management api http-commands", "no shutdown"):
        enter(config, modes, text, hardware)
    for port in hardware.ports:
        enter(config, modes, f"interface {port.name}", hardware)
    return config
