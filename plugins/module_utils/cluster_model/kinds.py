# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a key of the model may hold. One description serves validation, messages and the docs.

A kind turns a YAML value into a checked Python value, or raises Wrong with the problem and the way
out. `Section`, `ListOf` and `Table` hold further kinds; `check` walks them and collects.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Optional

from . import patterns
from .addresses import Network, parse_address, parse_network
from .findings import Findings, Path, nearest
from .source import Source


class Wrong(Exception):
    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy


class Kind:
    """A scalar. `reads_text` kinds take the scalar as written, whatever YAML made of it."""

    reads_text = False

    def convert(self, value: Any) -> Any:
        return value

    def describe(self) -> str:
        """What it is, in Markdown, for the docs."""
        raise AssertionError(f"{type(self).__name__} does not say what it is")

    def wanted_text(self) -> str:
        """What it is, for a message."""
        return self.describe().replace("`", "")


def _shown(value: Any) -> str:
    names = {dict: "a mapping", list: "a list", type(None): "an empty value"}
    if type(value) in names:
        return names[type(value)]
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)


def _wrong_type(value: Any, wanted: str) -> Wrong:
    return Wrong(f"{_shown(value)} is not {wanted}", f"Write {wanted}")


@dataclass(frozen=True)
class Integer(Kind):
    low: int
    high: int
    unit: str = ""

    def convert(self, value: Any) -> int:
        remedy = f"Write one from {self.low} to {self.high}"
        remedy += f" ({self.unit})" if self.unit else ""
        if isinstance(value, str) and value.strip().isdigit():
            raise Wrong(f"{value!r} is text, not a number", f"Write {value.strip()} without quotes")
        if isinstance(value, bool) or not isinstance(value, int):
            raise Wrong(f"{_shown(value)} is not a whole number", remedy)
        if not self.low <= value <= self.high:
            raise Wrong(f"{value} is out of range", remedy)
        return value

    def describe(self) -> str:
        return f"integer {self.low}..{self.high}" + (f", {self.unit}" if self.unit else "")


@dataclass(frozen=True)
class Boolean(Kind):
    def convert(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise _wrong_type(value, "true or false")
        return value

    def describe(self) -> str:
        return "true or false"


@dataclass(frozen=True)
class OneOf(Kind):
    choices: tuple[str, ...]

    def convert(self, value: Any) -> str:
        if value not in self.choices:
            raise Wrong(f"{_shown(value)} is not a choice", nearest(str(value), self.choices))
        return str(value)

    def describe(self) -> str:
        return " or ".join(f"`{choice}`" for choice in self.choices)


@dataclass(frozen=True)
class Text(Kind):
    """Text of a form: `form` is matched whole, `wanted` says it in words."""

    form: str
    wanted: str
    example: str
    most: int = 253
    empty: bool = False
    reserved: Optional[Callable[[str], bool]] = None
    """Names of the form that are not to be had, and what they are in words."""
    reserved_is: str = ""
    reads_text = True

    def convert(self, value: Any) -> str:
        if not isinstance(value, str):
            raise self.wrong(value)
        if value == "" and self.empty:
            return value
        if len(value) > self.most or not re.fullmatch(self.form, value):
            raise self.wrong(value)
        if self.reserved is not None and self.reserved(value):
            raise Wrong(f"{value!r} is {self.reserved_is}", f"Write one such as {self.example}")
        return value

    def wrong(self, value: Any) -> Wrong:
        return Wrong(f"{_shown(value)} is not {self.wanted}", f"Write one such as {self.example}")

    def describe(self) -> str:
        return self.wanted


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


@dataclass(frozen=True)
class Pci(Kind):
    reads_text = True

    def convert(self, value: Any) -> str:
        wanted = "a PCI address such as 0000:11:00.0 (domain:bus:device.function)"
        if not isinstance(value, str):
            raise _wrong_type(value, wanted)
        text = value.lower()
        if re.fullmatch(r"[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", text):
            raise Wrong(f"{value!r} has no domain", f"Write 0000:{text}")
        if not re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]", text):
            raise Wrong(f"{value!r} is no PCI address", f"Write {wanted}")
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
            raise Wrong(f"{_shown(value)} is {error}", "Write one such as 10.0.0.10") from error

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
                f"{_shown(value)} is {problem}", remedy or "Write one such as 10.0.0.0/24"
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
            raise _wrong_type(value, f"a pattern such as {self.example}")
        try:
            patterns.check(value, self.fields, self.fields[:1])
        except patterns.PatternError as error:
            raise Wrong(
                f"{value!r} is no pattern: {error}", f"Write one such as {self.example}"
            ) from error
        return value

    def describe(self) -> str:
        return f"pattern `{self.example}`"


@dataclass(frozen=True)
class OrNull(Kind):
    """The kind, or nothing at all."""

    kind: Kind

    @property
    def reads_text(self) -> bool:  # type: ignore[override]
        return self.kind.reads_text

    def convert(self, value: Any) -> Any:
        return None if value is None else self.kind.convert(value)

    def describe(self) -> str:
        return f"{self.kind.describe()} or null"


@dataclass(frozen=True)
class ListOf(Kind):
    kind: Kind
    plural: str = ""

    def describe(self) -> str:
        return f"list of {self.plural or self.kind.describe()}"

    def wanted_text(self) -> str:
        return f"list of {self.plural or self.kind.wanted_text()}"


@dataclass(frozen=True)
class OneOrList(Kind):
    """One value, or a list of them."""

    one: Kind
    many: Kind

    def describe(self) -> str:
        return f"{self.one.describe()}, or list of {self.many.describe()}"


@dataclass(frozen=True)
class Variables(Kind):
    """Ansible variables: any values, but names that Ansible takes and the model does not set."""

    def describe(self) -> str:
        return "Ansible variables"


@dataclass(frozen=True)
class Key:
    """One key of a section. A key with no default and not required is null when left out."""

    name: str
    kind: Kind
    help: str
    required: bool = False
    default: Any = None
    default_text: str = ""


@dataclass(frozen=True)
class Section(Kind):
    name: str
    help: str
    keys: tuple[Key, ...] = field(default_factory=tuple)

    def describe(self) -> str:
        return f"section [`{self.name}`](#{self.name.replace('.', '')})"

    def wanted_text(self) -> str:
        needed = ", ".join(key.name for key in self.keys if key.required)
        return f"a section with {needed}" if needed else "a section"


@dataclass(frozen=True)
class Table(Kind):
    """Names (free to choose) to values of one kind."""

    kind: Kind
    of: str

    def describe(self) -> str:
        return f"{self.of} to {self.kind.describe()}"


def section_in(kind: Kind) -> Optional[Section]:
    """The section that a kind is, or is a list or table of."""
    if isinstance(kind, (ListOf, Table)):
        return section_in(kind.kind)
    return kind if isinstance(kind, Section) else None


def check(kind: Kind, value: Any, source: Source, findings: Findings, path: Path = ()) -> Any:
    """The checked value with defaults filled in; None where something was found."""
    if isinstance(kind, Section):
        return _check_section(kind, value, source, findings, path)
    if isinstance(kind, OneOrList):
        if not isinstance(value, list):
            return check(kind.one, value, source, findings, path)
        kind = ListOf(kind.many)
    if isinstance(kind, ListOf):
        if not isinstance(value, list):
            findings.add(path, f"{_shown(value)} is not a list", f"Write a {kind.wanted_text()}")
            return None
        return [
            check(kind.kind, item, source, findings, (*path, index))
            for index, item in enumerate(value)
        ]
    if isinstance(kind, Table):
        if not _is_mapping(value, path, findings):
            return None
        return {
            str(name): check(kind.kind, item, source, findings, (*path, str(name)))
            for name, item in value.items()
        }
    if isinstance(kind, Variables):
        return _check_variables(value, path, findings)
    return _check_scalar(kind, value, source, findings, path)


def _check_scalar(kind: Kind, value: Any, source: Source, findings: Findings, path: Path) -> Any:
    if kind.reads_text and value is not None and not isinstance(value, (str, list, dict)):
        written = source.text(path)
        value = value if written is None else written
    try:
        return kind.convert(value)
    except Wrong as wrong:
        findings.add(path, wrong.problem, wrong.remedy)
        return None


def _check_section(
    kind: Section, value: Any, source: Source, findings: Findings, path: Path
) -> Optional[dict[str, Any]]:
    if not _is_mapping(value, path, findings):
        return None
    known = {key.name: key for key in kind.keys}
    for name in value:
        if name not in known:
            findings.add((*path, str(name)), "unknown key", nearest(str(name), known))
    checked = {}
    for key in kind.keys:
        if key.name in value:
            checked[key.name] = check(
                key.kind, value[key.name], source, findings, (*path, key.name)
            )
            continue
        checked[key.name] = key.default
        if key.required:
            findings.add((*path, key.name), "is missing", f"Add it: {key.kind.wanted_text()}")
    return checked


def _is_mapping(value: Any, path: Path, findings: Findings) -> bool:
    if isinstance(value, dict):
        return True
    findings.add(path, f"{_shown(value)} is not a mapping", "Write keys below it")
    return False


def _check_variables(value: Any, path: Path, findings: Findings) -> Optional[dict[str, Any]]:
    if not _is_mapping(value, path, findings):
        return None
    for name in value:
        if not (isinstance(name, str) and name.isidentifier() and name.isascii()):
            findings.add(
                (*path, str(name)),
                "is no name of a variable",
                "Write letters, digits and underscores",
            )
        elif name.startswith("cluster_") or name == "ansible_host":
            findings.add(
                (*path, name),
                "is set by the model itself",
                "Change the key of the model it comes from, or override it in host_vars/",
            )
    return dict(value)
