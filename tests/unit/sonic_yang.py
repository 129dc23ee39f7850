# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""CONFIG_DB checked against SONiC's own YANG models, by libyang as a switch does it.

A row `TABLE|a|b` is an entry of the list in container TABLE that has two keys. A table of maps has
a list within the list: one entry for each field. In XML every value is text, as in CONFIG_DB.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional
from xml.sax.saxutils import escape

import jinja2

Config = dict[str, dict[str, dict[str, str]]]

_TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|'[^']*'|[{};]|[^\s{};"']+""", re.DOTALL
)


@dataclass
class Statement:
    keyword: str
    argument: str
    inside: list[Statement] = field(default_factory=list)

    def all(self, keyword: str) -> Iterator[Statement]:
        return (one for one in self.inside if one.keyword == keyword)

    def value(self, keyword: str) -> str:
        return next((one.argument for one in self.all(keyword)), "")


def statements(text: str) -> list[Statement]:
    words: list[str] = []
    stack: list[list[Statement]] = [[]]
    for token in _TOKEN.findall(text):
        if token.startswith(("//", "/*")):
            continue
        if token in ("{", ";"):
            plain = [word.strip("\"'") for word in words if word != "+"]
            one = Statement(plain[0], "".join(plain[1:]))
            stack[-1].append(one)
            if token == "{":
                stack.append(one.inside)
            words = []
        elif token == "}":
            stack.pop()
        else:
            words.append(token)
    return stack[0]


@dataclass(frozen=True)
class Table:
    module: str
    namespace: str
    top: str
    name: str
    lists: tuple[Statement, ...]


class Models:
    def __init__(self, source: Path, work: Path) -> None:
        """`source`: /usr/local/yang-models of a switch, or src/sonic-yang-models of buildimage."""
        self.directory = work
        self.tables: dict[str, Table] = {}
        for path in [*source.rglob("*.yang"), *source.rglob("*.yang.j2")]:
            text = path.read_text(encoding="utf-8")
            if path.suffix == ".j2":
                text = jinja2.Template(text, trim_blocks=True).render(yang_model_type="py")
            (work / path.name.removesuffix(".j2")).write_text(text, encoding="utf-8")
            self._learn(text)

    def _learn(self, text: str) -> None:
        for module in statements(text):
            for top in module.all("container"):
                for table in top.all("container"):
                    self.tables[table.argument] = Table(
                        module.argument,
                        module.value("namespace"),
                        top.argument,
                        table.argument,
                        tuple(table.all("list")) or tuple(table.all("container")),
                    )

    def findings(self, config: Config) -> str:
        """What libyang has against it; empty where it is valid."""
        known = {name: rows for name, rows in config.items() if name in self.tables}
        data = self.directory / "data.xml"
        data.write_text("\n".join(map(self._xml, known, known.values())), encoding="utf-8")
        modules = sorted({self.tables[name].module for name in known})
        done = subprocess.run(
            ["yanglint", "-i", "-p", str(self.directory), "-t", "config"]
            + [f"{self.directory}/{module}.yang" for module in modules]
            + [str(data)],
            capture_output=True,
            text=True,
            check=False,
        )
        errors = [line for line in done.stderr.splitlines() if "libyang err" in line]
        return "\n".join(errors) or (done.stderr if done.returncode else "")

    def _xml(self, name: str, rows: dict[str, dict[str, str]]) -> str:
        table = self.tables[name]
        entries = "".join(self._entry(table, key, row) for key, row in rows.items())
        return f'<{table.top} xmlns="{table.namespace}"><{name}>\n{entries}</{name}></{table.top}>'

    def _entry(self, table: Table, key: str, row: dict[str, str]) -> str:
        if not any(one.keyword == "list" for one in table.lists):
            return f"<{key}>{_leaves(row)}</{key}>\n"
        parts = key.split("|")
        entry = next(one for one in table.lists if len(one.value("key").split()) == len(parts))
        keys = _leaves(dict(zip(entry.value("key").split(), parts)))
        inner: Optional[Statement] = next(entry.all("list"), None)
        fields = _leaves(row)
        if inner is not None:
            of, to = (leaf.argument for leaf in inner.all("leaf"))
            fields = "".join(
                f"<{inner.argument}>{_leaves({of: name, to: value})}</{inner.argument}>"
                for name, value in row.items()
            )
        return f"<{entry.argument}>{keys}{fields}</{entry.argument}>\n"


def _leaves(row: dict[str, str]) -> str:
    return "".join(f"<{name}>{escape(value)}</{name}>" for name, value in row.items())
