# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Kinds of values of keys. One description serves validation, messages and the docs.

`Kind.check` converts a YAML value to a checked Python value and collects errors. Scalars raise
Invalid; sections, lists and tables check their content. `Kind.json` is the same for editors, as
JSON Schema (draft-07).
"""

from __future__ import annotations

import re
import unicodedata
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Optional

from ...module_utils.core.text import nearest, shortened, some
from . import meant
from .findings import Findings, Path

Hints = tuple[tuple[str, str], ...]
"""Names that are often written although they do not exist, and the remedy of each."""
_NUMBER = r"\d+(\.\d+)?"
_ESCAPED = r"\^$.*+?()[]{}|/-dDsSwW"
"""Characters that ECMA-262 allows after a backslash."""


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
        try:
            if isinstance(value, str):
                _check_text(value)
            elif value is not None and not isinstance(value, (bool, list, dict)):
                written = findings.written(path)
                if written is not None and self.reads_text:
                    value = written
                elif written is not None:
                    _check_number(value, written)
            elif isinstance(value, bool) and self.reads_text:
                value = findings.written(path) or value
            return self.convert(value)
        except Invalid as wrong:
            secret = getattr(self, "secret", False)
            shown = "a secret" if secret else value if wrong.value is None else wrong.value
            hint = "" if wrong.value else foreign(shown)
            findings.add(wrong.code, path, wrong.problem, wrong.remedy + hint, shown)
            return None

    @abstractmethod
    def describe(self) -> str:
        """The kind in Markdown, for the docs."""

    def wanted_text(self) -> str:
        """The kind as plain text, for a message."""
        return plain(self.describe())

    def json(self) -> dict[str, Any]:
        """The kind as JSON Schema."""
        return {}


def plain(markdown: str) -> str:
    """Markdown without code and links."""
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", markdown).replace("`", "")


def json_pattern(form: str, empty: bool = False) -> str:
    """A form as a pattern of JSON Schema, whose dialect (ECMA-262) rejects needless escapes."""
    form = re.sub(r"\\(.)", lambda pair: pair[0] if pair[1] in _ESCAPED else pair[1], form)
    return f"^({form}){'?' if empty else ''}$"


def json_or(found: dict[str, Any], kind: str, **more: Any) -> dict[str, Any]:
    """JSON Schema that also allows values of another type. An editor names the key of an error only
    without `anyOf`, which a list of values needs."""
    if "type" not in found or "enum" in found:
        return {"anyOf": [found, {"type": kind, **more}]}
    types = found["type"] if isinstance(found["type"], list) else [found["type"]]
    return {**found, "type": list(dict.fromkeys([*types, kind])), **more}


_TEMPLATE = re.compile(r"\{[{%#]")
_ALIKE = ("CYRILLIC ", "GREEK ")
"""Alphabets with letters that look like Latin ones."""
_QUOTES = "\u2018\u2019\u201a\u201c\u201d\u201e\u2032\u2033"
"""Quotation marks of word processors."""
_OTHER_BASE = re.compile(r"[-+]?(0[0-7_]+|[0-9_.:]*:[0-9_.:]*)")
"""Numbers that YAML 1.1 reads as octal or sexagesimal."""
_WORD = re.compile(r"[^\W\d_]+")


def _check_text(text: str) -> None:
    """Refuse templates, which Ansible would evaluate, and characters that look like others."""
    if _TEMPLATE.search(text):
        problem = "is a template, which is only possible under vars"
        raise Invalid("model.template", problem, "Write the value")
    if text.isascii() and text.isprintable():
        return
    for place, char in enumerate(text, 1):
        if not char.isprintable() or char in _QUOTES:
            problem, remedy = f"character {place} is {named(char)}", "Remove or replace it"
            raise Invalid("model.character", problem, remedy, (char, place))
    for word in _WORD.finditer(text):
        alike = next(
            (char for char in word[0] if unicodedata.name(char, "").startswith(_ALIKE)), ""
        )
        if alike and re.search("[A-Za-z]", word[0]):
            problem = f"{word[0]!r} mixes Latin letters with {named(alike)}"
            value = (alike, word.start() + word[0].index(alike) + 1)
            raise Invalid("model.mixed_letters", problem, "Replace it", value)


def _check_number(value: Any, written: str) -> None:
    """Refuse numbers that YAML reads in another base: 026 is octal, 12:30 sexagesimal."""
    if isinstance(value, (int, float)) and _OTHER_BASE.fullmatch(written):
        base = "base 60" if ":" in written else "octal"
        problem = f"{written} is {base} in YAML: {value}"
        sign, digits = written[0].strip("+0123456789"), written.replace("_", "").lstrip("-+0")
        meant = dict.fromkeys([f"{sign}{digits or 0}", str(value)])
        remedy = f"Write {value}" if ":" in written else f"Write {' or '.join(meant)}"
        raise Invalid("model.number_base", problem, remedy, written)


def named(char: str) -> str:
    """`U+200B (ZERO WIDTH SPACE)`."""
    name = unicodedata.name(char, "")
    return f"U+{ord(char):04X} ({name})" if name else f"U+{ord(char):04X}"


def foreign(value: Any) -> str:
    """A hint about a lookalike character, such as a full-width digit, or a comment's."""
    other = next((char for char in str(value) if not char.isascii()), "")
    if other:
        return f". {other!r} is {named(other)}, not an ASCII character"
    return ". A comment begins with a blank before #" if "#" in str(value) else ""


_MOST_SHOWN = 300


def shown(value: Any) -> str:
    """The value for a message, in YAML notation."""
    words = {dict: "a mapping", list: "a list", type(None): "an empty value"}
    text = str(value).lower() if isinstance(value, bool) else shortened(repr(value), _MOST_SHOWN)
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
            number = meant.number(value, self.unit)
            if isinstance(number, self.types) and self.low <= number <= self.high:
                remedy = f"Write {number}" + (", without quotes" if value == str(number) else "")
            raise Invalid("model.not_a_number", problem, remedy)
        if not self.low <= value <= self.high:  # also excludes NaN
            limits = (value, self.low, self.high)
            if self.unit == "Gb/s" and self.low <= (meant.in_gbps(value) or 0) <= self.high:
                remedy = f"Write {meant.in_gbps(value)} ({self.unit})"
            raise Invalid("model.out_of_range", f"{value} is out of range", remedy, limits)
        return value

    def describe(self) -> str:
        return f"{self.name} {self.low}..{self.high}" + (f", {self.unit}" if self.unit else "")

    def json(self) -> dict[str, Any]:
        return {"type": self.name, "minimum": self.low, "maximum": self.high}


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
            wanted, problem = self.describe(), f"{shown(value)} is not {self.describe()}"
            raise Invalid("model.wrong_type", problem, f"Write {wanted}, without quotes")
        return value

    def describe(self) -> str:
        return "true or false"

    def json(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True)
class OneOf(Kind):
    """One of several words or numbers."""

    choices: tuple[Any, ...]
    hints: Hints = ()

    @property
    def reads_text(self) -> bool:  # type: ignore[override]
        return isinstance(self.choices[0], str)

    def convert(self, value: Any) -> Any:
        if value not in self.choices:
            remedy = dict(self.hints).get(str(value))
            if str(value).lower() in self.choices:
                remedy = f"Write {str(value).lower()}"
            remedy = remedy or nearest(str(value), map(str, self.choices))
            raise Invalid("model.not_a_choice", f"{shown(value)} is not a choice", remedy)
        return value

    def describe(self) -> str:
        return " or ".join(f"`{choice}`" for choice in self.choices)

    def json(self) -> dict[str, Any]:
        texts = [choice for choice in self.choices if isinstance(choice, str)]
        numbers = [float(text) for text in texts if re.fullmatch(_NUMBER, text)]
        return {"enum": [*self.choices, *numbers]}


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
        if value in ("", None) and self.empty:
            return ""
        fits = isinstance(value, str) and len(value) <= self.most
        if not fits or not re.fullmatch(self.form, value):
            problem = f"{'the value' if self.secret else shown(value)} is not {self.wanted}"
            usual = re.sub(r"\s+", "-", value.strip().lower()) if isinstance(value, str) else ""
            alike = not self.secret and len(usual) <= self.most and re.fullmatch(self.form, usual)
            remedy = f"Write {usual if alike else f'one such as {self.example}'}"
            raise Invalid("model.wrong_form", problem, remedy)
        return str(value)

    def describe(self) -> str:
        return self.wanted

    def json(self) -> dict[str, Any]:
        number = any(re.fullmatch(self.form, text) for text in ("1", "20", "1.5"))
        types = ["string", *(["number"] if number else ()), *(["null"] if self.empty else ())]
        return {
            "type": types if types[1:] else "string",
            "pattern": json_pattern(self.form, self.empty),
            "patternErrorMessage": f"Write {self.wanted}, such as {self.example}.",
            "maxLength": self.most,
        }


@dataclass(frozen=True)
class OrNull(Kind):
    """A value of this kind, or null."""

    kind: Kind

    def check(self, value: Any, findings: Findings, path: Path = ()) -> Any:
        return None if value is None else self.kind.check(value, findings, path)

    def describe(self) -> str:
        return f"{self.kind.describe()} or null"

    def json(self) -> dict[str, Any]:
        return json_or(self.kind.json(), "null")


@dataclass(frozen=True)
class ListOf(Kind):
    kind: Kind
    plural: str = ""
    least: int = 0

    def check(self, value: Any, findings: Findings, path: Path = ()) -> Any:
        if not isinstance(value, list) or len(value) < self.least:
            problem = "is an empty list" if value == [] else f"{shown(value)} is not a list"
            remedy = f"Write a {self.wanted_text()}, each after a dash (-)"
            if isinstance(value, str) and value.isprintable():
                remedy += f", or [{value}]"
            findings.add("model.not_a_list", path, problem, remedy, value)
            return None
        return [self.kind.check(item, findings, (*path, index)) for index, item in enumerate(value)]

    def describe(self) -> str:
        return f"list of {self.plural or self.kind.describe()}"

    def wanted_text(self) -> str:
        below = self.kind.wanted_text().replace("a section", "sections", 1)
        return f"list of {self.plural or below}".replace("`", "")

    def json(self) -> dict[str, Any]:
        return {"type": "array", "items": self.kind.json(), "minItems": self.least}


@dataclass(frozen=True)
class OneOrList(Kind):
    """One value, or a list of them."""

    one: Kind
    many: Kind

    def check(self, value: Any, findings: Findings, path: Path = ()) -> Any:
        kind = ListOf(self.many) if isinstance(value, list) else self.one
        return kind.check(value, findings, path)

    def describe(self) -> str:
        many = "" if self.many == self.one else f" of {self.many.describe()}"
        return f"{self.one.describe()}, or list{many}"

    def wanted_text(self) -> str:
        return f"{self.one.wanted_text()}, or a {ListOf(self.many).wanted_text()}"

    def json(self) -> dict[str, Any]:
        return json_or(self.one.json(), "array", items=self.many.json())


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

    @property
    def may_be_empty(self) -> bool:
        """Whether an empty value, which is left of commented lines, means that it is not set."""
        optional = isinstance(self.kind, (ListOf, Section, Table)) and not self.required
        return optional and not (isinstance(self.kind, ListOf) and self.kind.least)

    def left_out(self) -> Any:
        """The value of a key that is not set."""
        if isinstance(self.kind, Section) and not self.required:
            return {key.name: key.left_out() for key in self.kind.keys}
        return self.default

    def json(self) -> dict[str, Any]:
        """The kind with what an editor shows of the key."""
        found = {**self.kind.json(), "description": plain(self.text())}
        if self.may_be_empty:
            found = json_or(found, "null")
        if not (self.default is None or self.default_text or section_in(self.kind)):
            found["default"] = self.default
        return found

    def text(self) -> str:
        """What the key is, in Markdown, where no table shows its kind and default."""
        if section := section_in(self.kind):
            return self.help or section.help
        kind = self.kind.describe()
        default = f"Default: {self.default_text}." if self.default_text else ""
        return " ".join(filter(None, (self.help, f"{kind[:1].upper()}{kind[1:]}.", default)))


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
    hints: Hints = ()
    several: str = ""
    """The key for a list of such sections."""

    def check(self, value: Any, findings: Findings, path: Path = ()) -> Any:
        if value is None and not any(key.required for key in self.keys):
            value = {}  # the keys are commented out
        if type(value) is int and "count" in (key.name for key in self.keys):
            problem, remedy = f"{value} is not a mapping", f"Write {{count: {value}}}"
            findings.add("model.count_only", path, problem, remedy, value)
            return None
        if not is_mapping(value, path, findings, self.several):
            return None
        known = {key.name: key for key in self.keys}
        for name in (str(name) for name in value if name not in known):
            remedy = self._remedy(name)
            findings.add("model.unknown_key", (*path, name), "unknown key", remedy)
        for name, key in known.items():
            if key.required and name not in value:
                remedy = f"Add it: {key.kind.wanted_text()}"
                findings.add("model.missing_key", (*path, name), "is missing", remedy)
        return {
            name: key.kind.check(value[name], findings, (*path, name))
            if name in value and not (value[name] is None and key.may_be_empty)
            else key.left_out()
            for name, key in known.items()
        }

    def _remedy(self, name: str) -> str:
        """The remedy for an unknown key: its section, if it is in the wrong one."""
        below = [key.name for key in self.keys if _has(section_in(key.kind), name)]
        if name in (hints := dict(self.hints)):
            return hints[name]
        if name.split(":")[0] in {key.name for key in self.keys}:
            return "Write a blank after the colon"
        if re.match(r"[._]|x[-_]", name, re.I):
            return "Keys that are ignored begin with x-, at the top of the model"
        if below:
            if below[2:]:
                return f"It belongs under one of {some(below)}"
            return f"It belongs under {' or '.join(below)}"
        return nearest(name, [key.name for key in self.keys]) + foreign(name)

    def describe(self) -> str:
        return "section"

    def wanted_text(self) -> str:
        needed = ", ".join(key.name for key in self.keys if key.required)
        return f"a section with {needed}" if needed else "a section"

    def json(self) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {key.name: key.json() for key in self.keys},
            "required": [key.name for key in self.keys if key.required],
            "additionalProperties": False,
        }


@dataclass(frozen=True)
class OrSection(Kind):
    """A value of this kind, or a section instead."""

    kind: Kind
    section: Section

    def check(self, value: Any, findings: Findings, path: Path = ()) -> Any:
        kind = self.section if isinstance(value, dict) else self.kind
        return kind.check(value, findings, path)

    def describe(self) -> str:
        return f"{self.kind.describe()}, or section"

    def json(self) -> dict[str, Any]:
        section = self.section.json()
        return json_or(self.kind.json(), section.pop("type"), **section)


@dataclass(frozen=True)
class Table(Kind):
    """A mapping from any name to values of one kind."""

    kind: Kind
    of: str

    def check(self, value: Any, findings: Findings, path: Path = ()) -> Any:
        if not is_mapping(value, path, findings):
            return None
        for name in map(str, value):
            try:
                _check_text(name)
            except Invalid as wrong:
                findings.add(wrong.code, (*path, name), wrong.problem, wrong.remedy, wrong.value)
        return {
            str(name): self.kind.check(item, findings, (*path, str(name)))
            for name, item in value.items()
        }

    def describe(self) -> str:
        return f"{self.of} to {self.kind.describe()}"

    def json(self) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": self.kind.json()}


def section_in(kind: Kind) -> Optional[Section]:
    """The section within a kind: itself, its elements, or its optional value."""
    if isinstance(kind, (ListOf, Table, OrNull)):
        return section_in(kind.kind)
    if isinstance(kind, OneOrList):
        return section_in(kind.one)
    if isinstance(kind, OrSection):
        return kind.section
    return kind if isinstance(kind, Section) else None


def _has(section: Optional[Section], name: str) -> bool:
    """Whether a section or one below it has a key."""
    keys = section.keys if section is not None else ()
    return any(key.name == name or _has(section_in(key.kind), name) for key in keys)


def is_mapping(value: Any, path: Path, findings: Findings, several: str = "") -> bool:
    if isinstance(value, dict):
        return True
    problem, remedy = f"{shown(value)} is not a mapping", "Write keys below it"
    if re.match(r"\w+:\S", str(value)):
        remedy = "Write a blank after the colon"
    if several and isinstance(value, list):
        remedy = f"Write one, or {several}: with the list"
    findings.add("model.not_a_mapping", path, problem, remedy, value)
    return False


# Dataclasses whose fields are the keys of a section


def key(
    kind: Kind, text: str, default: Any = None, *, required: bool = False, default_text: str = ""
) -> Any:
    """A field of a dataclass that is a key of its section; `text` is its help."""
    return field(metadata={"key": (kind, text, required, default, default_text)})


def section_of(made: type, name: str, hints: Hints = ()) -> Section:
    """The section whose keys are the fields of a dataclass, and whose help is its docstring."""
    keys = tuple(Key(item.name, *item.metadata["key"]) for item in fields(made))
    return Section(name, " ".join((made.__doc__ or "").split()), keys, made, hints)


def build(kind: Kind, value: Any) -> Any:
    """Convert a complete value, with its sections and lists, to dataclasses. Only keys of which the
    default does not depend on others may be missing."""
    if isinstance(kind, Section) and kind.made is not None:
        given = {key.name: value.get(key.name, key.left_out()) for key in kind.keys}
        return kind.made(**{key.name: build(key.kind, given[key.name]) for key in kind.keys})
    if isinstance(kind, ListOf):
        return tuple(build(kind.kind, item) for item in value)
    return value
