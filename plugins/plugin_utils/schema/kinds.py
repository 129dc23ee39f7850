# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a key may hold. One description serves validation, messages and the docs.

A kind turns a YAML value into a checked Python value, or raises Wrong with code, problem and way
out. `Section`, `ListOf` and `Table` hold further kinds; `check` walks them and collects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Optional

from ...module_utils.core.dataclass import dataclass
from ...module_utils.core.text import nearest
from .findings import Findings, Path


class Wrong(Exception):
    """`value`: what is told of the value, where that is not just itself."""

    def __init__(self, code: str, problem: str, remedy: str, value: Any = None) -> None:
        super().__init__(problem)
        self.value = value
        self.code = code
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


def shown(value: Any) -> str:
    """The value as a message shows it: short, and as YAML writes it."""
    for kind, words in ((dict, "a mapping"), (list, "a list"), (type(None), "an empty value")):
        if isinstance(value, kind):
            return words
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)


def wrong_type(value: Any, wanted: str) -> Wrong:
    return Wrong("model.wrong_type", f"{shown(value)} is not {wanted}", f"Write {wanted}")


@dataclass(frozen=True)
class Integer(Kind):
    low: int
    high: int
    unit: str = ""

    def convert(self, value: Any) -> int:
        remedy = f"Write one from {self.low} to {self.high}"
        remedy += f" ({self.unit})" if self.unit else ""
        if isinstance(value, str) and value.strip().isdigit():
            raise Wrong(
                "model.number_in_quotes",
                f"{value!r} is text, not a number",
                f"Write {value.strip()} without quotes",
            )
        if isinstance(value, bool) or not isinstance(value, int):
            raise Wrong("model.not_a_whole_number", f"{shown(value)} is not a whole number", remedy)
        if not self.low <= value <= self.high:
            raise Wrong(
                "model.out_of_range",
                f"{value} is out of range",
                remedy,
                (value, self.low, self.high),
            )
        return value

    def describe(self) -> str:
        return f"integer {self.low}..{self.high}" + (f", {self.unit}" if self.unit else "")


@dataclass(frozen=True)
class Number(Kind):
    """A number that may have a fraction, from 0 on."""

    high: float
    unit: str = ""

    def convert(self, value: Any) -> float:
        remedy = f"Write one from 0 to {self.high:g}"
        remedy += f" ({self.unit})" if self.unit else ""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise Wrong("model.not_a_number", f"{shown(value)} is not a number", remedy)
        if not 0 <= value <= self.high:  # what is not a number at all is not in it either
            raise Wrong(
                "model.out_of_range", f"{value} is out of range", remedy, (value, 0, self.high)
            )
        return float(value)

    def describe(self) -> str:
        return f"number 0..{self.high:g}" + (f", {self.unit}" if self.unit else "")


@dataclass(frozen=True)
class Boolean(Kind):
    def convert(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise wrong_type(value, "true or false")
        return value

    def describe(self) -> str:
        return "true or false"


@dataclass(frozen=True)
class OneOf(Kind):
    choices: tuple[str, ...]

    def convert(self, value: Any) -> str:
        if value not in self.choices:
            raise Wrong(
                "model.not_a_choice",
                f"{shown(value)} is not a choice",
                nearest(str(value), self.choices),
            )
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
            raise Wrong(
                "model.reserved_name",
                f"{value!r} is {self.reserved_is}",
                f"Write one such as {self.example}",
            )
        return value

    def wrong(self, value: Any) -> Wrong:
        return Wrong(
            "model.wrong_form",
            f"{shown(value)} is not {self.wanted}",
            f"Write one such as {self.example}",
        )

    def describe(self) -> str:
        return self.wanted


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


class Walked(Kind):
    """A kind that looks into its value itself, to tell of each thing at its own place."""

    def walk(self, value: Any, findings: Findings, path: Path) -> Any:
        raise AssertionError(f"{type(self).__name__} does not look into its value")


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
    hints: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Names that people write here from what they know elsewhere, and what to write instead."""

    def defaults(self) -> dict[str, Any]:
        """What the section holds when nobody writes it."""
        return {key.name: key.default for key in self.keys}

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
    """The section that a kind is, or is a list or table of, or may be."""
    if isinstance(kind, (ListOf, Table, OrNull)):
        return section_in(kind.kind)
    return kind if isinstance(kind, Section) else None


def check(kind: Kind, value: Any, findings: Findings, path: Path = ()) -> Any:
    """The checked value with defaults filled in; None where something was found."""
    if isinstance(kind, OrNull) and section_in(kind) is not None:
        return None if value is None else check(kind.kind, value, findings, path)
    if isinstance(kind, Section):
        return _check_section(kind, value, findings, path)
    if isinstance(kind, OneOrList):
        if not isinstance(value, list):
            return check(kind.one, value, findings, path)
        kind = ListOf(kind.many)
    if isinstance(kind, ListOf):
        if not isinstance(value, list):
            findings.add(
                "model.not_a_list",
                path,
                f"{shown(value)} is not a list",
                f"Write a {kind.wanted_text()}",
                value=value,
            )
            return None
        return [
            check(kind.kind, item, findings, (*path, index)) for index, item in enumerate(value)
        ]
    if isinstance(kind, Table):
        if not is_mapping(value, path, findings):
            return None
        return {
            str(name): check(kind.kind, item, findings, (*path, str(name)))
            for name, item in value.items()
        }
    if isinstance(kind, Walked):
        return kind.walk(value, findings, path)
    return _check_scalar(kind, value, findings, path)


def _check_scalar(kind: Kind, value: Any, findings: Findings, path: Path) -> Any:
    if kind.reads_text and value is not None and not isinstance(value, (str, list, dict)):
        written = findings.written(path)
        value = value if written is None else written
    try:
        return kind.convert(value)
    except Wrong as wrong:
        told = value if wrong.value is None else wrong.value
        findings.add(wrong.code, path, wrong.problem, wrong.remedy, told)
        return None


def _check_section(
    kind: Section, value: Any, findings: Findings, path: Path
) -> Optional[dict[str, Any]]:
    if not is_mapping(value, path, findings):
        return None
    known = {key.name: key for key in kind.keys}
    for name in value:
        if name not in known:
            remedy = kind.hints.get(str(name)) or nearest(str(name), known)
            findings.add("model.unknown_key", (*path, str(name)), "unknown key", remedy)
    checked = {}
    for key in kind.keys:
        if key.name in value:
            checked[key.name] = check(key.kind, value[key.name], findings, (*path, key.name))
            continue
        checked[key.name] = key.default
        if key.required:
            findings.add(
                "model.missing_key",
                (*path, key.name),
                "is missing",
                f"Add it: {key.kind.wanted_text()}",
            )
    return checked


def is_mapping(value: Any, path: Path, findings: Findings) -> bool:
    if isinstance(value, dict):
        return True
    findings.add(
        "model.not_a_mapping",
        path,
        f"{shown(value)} is not a mapping",
        "Write keys below it",
        value=value,
    )
    return False
