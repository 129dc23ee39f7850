# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Kinds of values of keys. One description serves validation, messages and the docs.

`Kind.check` converts a YAML value to a checked Python value and collects errors. Scalars raise
Invalid; sections, lists and tables check their content.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Optional

from ...module_utils.core.text import nearest
from .findings import Findings, Path


class Invalid(Exception):
    """A value is invalid. `value` replaces the value itself in the finding."""

    def __init__(self, code: str, problem: str, remedy: str, value: Any = None) -> None:
        super().__init__(problem)
        self.code, self.problem, self.remedy, self.value = code, problem, remedy, value


class Kind(ABC):
    """A scalar. Kinds with `reads_text` use it as written, before YAML converted it."""

    reads_text = False

    def convert(self, value: Any) -> Any:
        """The checked value. Raises Invalid."""
        return value

    def check(self, value: Any, findings: Findings, path: Path = ()) -> Any:
        """The checked value with defaults; None if it has errors."""
        if self.reads_text and value is not None and not isinstance(value, (str, list, dict)):
            written = findings.written(path)
            value = value if written is None else written
        try:
            return self.convert(value)
        except Invalid as wrong:
            shown = value if wrong.value is None else wrong.value
            findings.add(wrong.code, path, wrong.problem, wrong.remedy + _foreign(shown), shown)
            return None

    @abstractmethod
    def describe(self) -> str:
        """The kind in Markdown, for the docs."""

    def wanted_text(self) -> str:
        """The kind as plain text, for a message."""
        return self.describe().replace("`", "")


def _foreign(value: Any) -> str:
    """A hint about a lookalike character, such as a full-width digit."""
    other = next((char for char in str(value) if not char.isascii()), "")
    return f". {other!r} (U+{ord(other):04X}) is not an ASCII character" if other else ""


def shown(value: Any) -> str:
    """The value for a message, in YAML notation."""
    words = {dict: "a mapping", list: "a list", type(None): "an empty value"}
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return words.get(type(value), text)


@dataclass(frozen=True)
class Integer(Kind):
    low: int
    high: int
    unit: str = ""
    types: ClassVar[Any] = (int,)
    name = "integer"

    def convert(self, value: Any) -> Any:
        remedy = f"Write one from {self.low} to {self.high}"
        remedy += f" ({self.unit})" if self.unit else ""
        if isinstance(value, bool) or not isinstance(value, self.types):
            problem = f"{shown(value)} is not a number (type {self.name})"
            raise Invalid("model.not_a_number", problem, remedy)
        if not self.low <= value <= self.high:  # also excludes NaN
            limits = (value, self.low, self.high)
            raise Invalid("model.out_of_range", f"{value} is out of range", remedy, limits)
        return value

    def describe(self) -> str:
        return f"{self.name} {self.low}..{self.high}" + (f", {self.unit}" if self.unit else "")


@dataclass(frozen=True)
class Number(Integer):
    """A number, with or without a fraction."""

    types = (int, float)
    name = "number"

    def convert(self, value: Any) -> float:
        return float(super().convert(value))


@dataclass(frozen=True)
class Boolean(Kind):
    def convert(self, value: Any) -> bool:
        if not isinstance(value, bool):
            wanted = self.describe()
            raise Invalid("model.wrong_type", f"{shown(value)} is not {wanted}", f"Write {wanted}")
        return value

    def describe(self) -> str:
        return "true or false"


@dataclass(frozen=True)
class OneOf(Kind):
    """One of several words or numbers."""

    choices: tuple[Any, ...]

    @property
    def reads_text(self) -> bool:  # type: ignore[override]
        return isinstance(self.choices[0], str)

    def convert(self, value: Any) -> Any:
        if value not in self.choices:
            remedy = nearest(str(value), map(str, self.choices))
            raise Invalid("model.not_a_choice", f"{shown(value)} is not a choice", remedy)
        return value

    def describe(self) -> str:
        return " or ".join(f"`{choice}`" for choice in self.choices)


@dataclass(frozen=True)
class Text(Kind):
    """Text that fully matches `form`, which `wanted` describes."""

    form: str
    wanted: str
    example: str
    most: int = 253
    empty: bool = False
    secret: bool = False
    """Hide an invalid value, which may contain a password."""
    reads_text = True

    def convert(self, value: Any) -> str:
        if value == "" and self.empty:
            return ""
        fits = isinstance(value, str) and len(value) <= self.most
        if not fits or not re.fullmatch(self.form, value):
            hidden = "a secret" if self.secret else None
            problem = f"{'the value' if hidden else shown(value)} is not {self.wanted}"
            remedy = f"Write one such as {self.example}"
            raise Invalid("model.wrong_form", problem, remedy, hidden)
        return str(value)

    def describe(self) -> str:
        return self.wanted


@dataclass(frozen=True)
class OrNull(Kind):
    """A value of this kind, or null."""

    kind: Kind

    def check(self, value: Any, findings: Findings, path: Path = ()) -> Any:
        return None if value is None else self.kind.check(value, findings, path)

    def describe(self) -> str:
        return f"{self.kind.describe()} or null"


@dataclass(frozen=True)
class ListOf(Kind):
    kind: Kind
    plural: str = ""
    least: int = 0

    def check(self, value: Any, findings: Findings, path: Path = ()) -> Any:
        if not isinstance(value, list) or len(value) < self.least:
            problem = "is an empty list" if value == [] else f"{shown(value)} is not a list"
            findings.add("model.not_a_list", path, problem, f"Write a {self.wanted_text()}", value)
            return None
        return [self.kind.check(item, findings, (*path, index)) for index, item in enumerate(value)]

    def describe(self) -> str:
        return f"list of {self.plural or self.kind.describe()}"


@dataclass(frozen=True)
class OneOrList(Kind):
    """One value, or a list of them."""

    one: Kind
    many: Kind

    def check(self, value: Any, findings: Findings, path: Path = ()) -> Any:
        kind = ListOf(self.many) if isinstance(value, list) else self.one
        return kind.check(value, findings, path)

    def describe(self) -> str:
        return f"{self.one.describe()}, or list of {self.many.describe()}"


@dataclass(frozen=True)
class Key:
    """One key of a section.

    If it is unset and has no default, a section gets the defaults of its keys; other kinds are
    null.
    """

    name: str
    kind: Kind
    help: str
    required: bool = False
    default: Any = None
    default_text: str = ""

    def left_out(self) -> Any:
        """The value of a key that is not set."""
        if isinstance(self.kind, Section) and not self.required:
            return {key.name: key.left_out() for key in self.kind.keys}
        return self.default


def needed(name: str, kind: Kind, text: str) -> Key:
    """A required key."""
    return Key(name, kind, text, required=True)


@dataclass(frozen=True)
class Section(Kind):
    name: str
    help: str
    keys: tuple[Key, ...] = ()
    made: Optional[type] = None
    """The dataclass whose fields are the keys."""

    def check(self, value: Any, findings: Findings, path: Path = ()) -> Any:
        if not is_mapping(value, path, findings):
            return None
        known = {key.name: key for key in self.keys}
        for name in (str(name) for name in value if name not in known):
            remedy = nearest(name, known)
            findings.add("model.unknown_key", (*path, name), "unknown key", remedy)
        for name, key in known.items():
            if key.required and name not in value:
                remedy = f"Add it: {key.kind.wanted_text()}"
                findings.add("model.missing_key", (*path, name), "is missing", remedy)
        return {
            name: key.kind.check(value[name], findings, (*path, name))
            if name in value
            else key.left_out()
            for name, key in known.items()
        }

    def describe(self) -> str:
        return "section"

    def wanted_text(self) -> str:
        needed = ", ".join(key.name for key in self.keys if key.required)
        return f"a section with {needed}" if needed else "a section"


@dataclass(frozen=True)
class Table(Kind):
    """A mapping from any name to values of one kind."""

    kind: Kind
    of: str

    def check(self, value: Any, findings: Findings, path: Path = ()) -> Any:
        if not is_mapping(value, path, findings):
            return None
        return {
            str(name): self.kind.check(item, findings, (*path, str(name)))
            for name, item in value.items()
        }

    def describe(self) -> str:
        return f"{self.of} to {self.kind.describe()}"


def section_in(kind: Kind) -> Optional[Section]:
    """The section within a kind: itself, its elements, or its optional value."""
    if isinstance(kind, (ListOf, Table, OrNull)):
        return section_in(kind.kind)
    return kind if isinstance(kind, Section) else None


def is_mapping(value: Any, path: Path, findings: Findings) -> bool:
    if isinstance(value, dict):
        return True
    problem, remedy = f"{shown(value)} is not a mapping", "Write keys below it"
    findings.add("model.not_a_mapping", path, problem, remedy, value)
    return False


# Dataclasses whose fields are the keys of a section


def key(
    kind: Kind, text: str, default: Any = None, *, required: bool = False, default_text: str = ""
) -> Any:
    """A field of a dataclass that is a key of its section; `text` is its help."""
    return field(metadata={"key": (kind, text, required, default, default_text)})


def section_of(made: type, name: str) -> Section:
    """The section whose keys are the fields of a dataclass, and whose help is its docstring."""
    keys = tuple(Key(item.name, *item.metadata["key"]) for item in fields(made))
    return Section(name, " ".join((made.__doc__ or "").split()), keys, made)


def build(kind: Kind, value: Any) -> Any:
    """Convert a complete value, with its sections and lists, to dataclasses. Only keys of which the
    default does not depend on others may be missing."""
    if isinstance(kind, Section) and kind.made is not None:
        given = {key.name: value.get(key.name, key.left_out()) for key in kind.keys}
        return kind.made(**{key.name: build(key.kind, given[key.name]) for key in kind.keys})
    if isinstance(kind, ListOf):
        return tuple(build(kind.kind, item) for item in value)
    return value
