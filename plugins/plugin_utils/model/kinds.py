# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What only a cluster model holds: names of hosts and users, addresses, devices, patterns."""

from __future__ import annotations

import re
import string
from typing import Any, Optional

from ...module_utils.core.dataclass import dataclass
from ..schema.findings import Findings, Path
from ..schema.kinds import Kind, Text, Walked, Wrong, is_mapping, shown, wrong_type
from .addresses import Network, parse_address, parse_network

# Name patterns: `node{:02d}` with a number, `rail{rail}p{plane}` with named ones.


_SPEC = re.compile(r"(0?[1-9])?d?")


class PatternError(ValueError):
    """A pattern that cannot be used; the text says why."""


def check(pattern: str, fields: tuple[str, ...], needed: tuple[str, ...]) -> None:
    """Raise PatternError unless `pattern` uses only `fields`, and each of `needed`."""
    try:
        parts = list(string.Formatter().parse(pattern))
    except ValueError as error:
        raise PatternError(str(error)) from error
    used = []
    for literal, field, spec, conversion in parts:
        if re.search(r"[\s{}]", literal):
            raise PatternError("it has a blank or a brace in its text")
        if field is None:
            continue
        if field not in fields:
            known = ", ".join(f"{{{name}}}" for name in fields)
            raise PatternError(f"it has {{{field}}}, known are {known}")
        if conversion or not _SPEC.fullmatch(spec or ""):
            raise PatternError(f"{{{field}:{spec}}} is no format of a number")
        used.append(field)
    for name in needed:
        if used.count(name) != 1:
            raise PatternError(f"it needs {{{name}}} exactly once")


_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
HOST_NAME = Text(
    _LABEL, "a host name (a to z, 0 to 9 and inner hyphens, at most 63 characters)", "node01", 63
)
DOMAIN = Text(rf"{_LABEL}(\.{_LABEL})*", "a DNS domain", "example.net", empty=True)
CLUSTER_NAME = Text(r"[a-z0-9][a-z0-9_-]*", "a name of a to z, 0 to 9, - and _", "b300", 40)
RACK = Text(
    r"[A-Za-z0-9][A-Za-z0-9_.-]*", "a rack name (letters, digits, -, _ and dots)", "r01", 60
)
_SYSTEM_ACCOUNTS = (
    *("root", "daemon", "bin", "sys", "adm", "sync", "shutdown", "halt", "operator", "games"),
    *("man", "lp", "mail", "news", "uucp", "proxy", "www-data", "backup", "list", "irc", "gnats"),
    *("ftp", "nobody", "nfsnobody", "sshd", "dbus", "messagebus", "polkitd", "chrony", "tss"),
)


def is_system_account(name: str) -> bool:
    """Whether a distribution has this account: jobs there would own more than themselves."""
    return name in _SYSTEM_ACCOUNTS or name.startswith(("_", "systemd-"))


USER = Text(
    r"[a-z_][a-z0-9_-]*",
    "a Linux user name",
    "mpi",
    32,
    reserved=is_system_account,
    reserved_is="an account of the system, and MPI jobs need an unprivileged one of their own",
)
INTERFACE = Text(
    r"[A-Za-z0-9_.-]+", "an interface name of at most 15 characters", "mgmt0", 15, empty=True
)
PORT = Text(r"[A-Za-z0-9_./:-]+", "the name of a switch port", "Ethernet8", 40)
PORT_INTERFACE = Text(r"[A-Za-z0-9_.-]+", INTERFACE.wanted, "ens1f0np0", 15)


@dataclass(frozen=True)
class Pci(Kind):
    reads_text = True

    def convert(self, value: Any) -> str:
        wanted = "a PCI address such as 0000:11:00.0 (domain:bus:device.function)"
        if not isinstance(value, str):
            raise wrong_type(value, wanted)
        text = value.lower()
        if re.fullmatch(r"[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", text):
            raise Wrong("model.pci_domain", f"{value!r} has no domain", f"Write 0000:{text}")
        if not re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]", text):
            raise Wrong("model.pci_address", f"{value!r} is no PCI address", f"Write {wanted}")
        return text

    def describe(self) -> str:
        return "PCI address `0000:11:00.0`"


@dataclass(frozen=True)
class Address(Kind):
    reads_text = True

    def convert(self, value: Any) -> int:
        try:
            return parse_address(value)
        except ValueError as error:
            raise Wrong(
                "model.address", f"{shown(value)} is {error}", "Write one such as 10.0.0.10"
            ) from error

    def describe(self) -> str:
        return "IPv4 address"


@dataclass(frozen=True)
class Subnet(Kind):
    reads_text = True

    def convert(self, value: Any) -> Network:
        try:
            return parse_network(value)
        except ValueError as error:
            problem, _separator, remedy = str(error).partition("; ")
            raise Wrong(
                "model.network",
                f"{shown(value)} is {problem}",
                remedy or "Write one such as 10.0.0.0/24",
            ) from error

    def describe(self) -> str:
        return "IPv4 network `10.0.0.0/24`"


@dataclass(frozen=True)
class Pattern(Kind):
    """A name pattern over numbers."""

    fields: tuple[str, ...] = ("",)
    example: str = "node{:02d}"
    reads_text = True

    def convert(self, value: Any) -> str:
        if not isinstance(value, str):
            raise wrong_type(value, f"a pattern such as {self.example}")
        try:
            check(value, self.fields, self.fields[:1])
        except PatternError as error:
            raise Wrong(
                "model.pattern",
                f"{value!r} is no pattern: {error}",
                f"Write one such as {self.example}",
            ) from error
        return value

    def describe(self) -> str:
        return f"pattern `{self.example}`"


@dataclass(frozen=True)
class Variables(Walked):
    """Ansible variables: any values, but names that Ansible takes and the model does not set."""

    def describe(self) -> str:
        return "Ansible variables"

    def walk(self, value: Any, findings: Findings, path: Path) -> Optional[dict[str, Any]]:
        if not is_mapping(value, path, findings):
            return None
        for name in value:
            if not (isinstance(name, str) and name.isidentifier() and name.isascii()):
                findings.add(
                    "model.variable_name",
                    (*path, str(name)),
                    "is no name of a variable",
                    "Write letters, digits and underscores",
                )
            elif name.startswith("cluster_") or name in ("ansible_host", "roce_qos"):
                findings.add(
                    "model.variable_of_model",
                    (*path, name),
                    "is set by the model itself",
                    "Change the key of the model it comes from; of one node, under nodes.overrides",
                )
        return dict(value)
