# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Prose uses the field's words: each phrase below has a better one in technical English.

    python tests/unit/test_words.py [PATH...]

prints every occurrence in the given files and folders. Pages, comments, docstrings, messages and
YAML text are read; code in backticks or in Ansible's markup is left out.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

BETTER = {
    r"(?:has|have|had) to(?! do with)": "must",
    r"alone": "only",
    r"besides?": "next to, in addition to",
    r"at once": "immediately, simultaneously",
    r"(?:of|on) (?:its|their|his|her|your) own": "separate, by itself",
    r"room": "free space, capacity",
    r"keeps": "complies with, retains, preserves",
    r"judge[sd]?|judging": "evaluate",
    r"ended": "terminated, finished",
    r"so many|so much": "this many",
    r"what is": "name the thing",
    r"anew": "again",
    r"nobody|nobody's": "nothing, no host, no process",
    r"by (?:itself|themselves)": "automatically, alone in the sense of 'without'",
    r"farewell|judgement": "the technical term",
    r"right to the bit": "bit-exact",
}
"""Pattern of whole words, in any case, and what to write instead."""

PATTERN = re.compile(rf"\b(?:{'|'.join(f'(?:{each})' for each in BETTER)})\b", re.IGNORECASE)
SKIPPED = (
    "tests/unit/test_words.py",
    "COPYING",
    "CHANGELOG.md",
    "changelogs/",
    "docs/generate",
    "requirements/",
)
CODE = re.compile(
    r"``[^`]+``|`[^`]+`|\b[CVOEMPRIBLU]\((?:\\.|[^()]|\([^()]*\))*\)"
    r"|\b(?:default|choices|step): (?:\[[^]]*\]|\"[^\"]*\"|[\w.-]+)"
    r"|^\s*(?!default|choices|step)\w+:(?= |$)"
)
"""Code and markup, and in YAML keys, defaults and choices."""


def markdown(text: str) -> Iterator[tuple[int, str]]:
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            yield number, line


def python(text: str) -> Iterator[tuple[int, str]]:
    """Comments, and each line of strings with three words or more."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(node, ast.Constant) and isinstance(text, str) and len(text.split()) >= 3:
            for number, line in enumerate(text.splitlines()):
                yield node.lineno + number, line


def plain(text: str) -> Iterator[tuple[int, str]]:
    yield from enumerate(text.splitlines(), 1)


def shell(text: str) -> Iterator[tuple[int, str]]:
    for number, line in plain(text):
        if "#" in line:
            yield number, line[line.index("#") :]


READERS = {".md": markdown, ".py": python, ".yml": plain, ".yaml": plain, ".sh": shell}


def places(text: str, suffix: str) -> Iterator[tuple[int, str, str]]:
    """Line number, phrase and line of every phrase of the list."""
    for number, line in READERS[suffix](text):
        for match in PATTERN.finditer(CODE.sub("`", line)):
            yield number, match.group(), line.strip()


def tracked(under: list[str]) -> list[str]:
    names = subprocess.run(
        ["git", "ls-files", "--", *under], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    return [
        name
        for name in names
        if Path(name).suffix in READERS
        and not name.startswith(SKIPPED)
        and (ROOT / name).is_file()
        and not (ROOT / name).is_symlink()
    ]


def report(under: list[str]) -> list[str]:
    return [
        f"{name}:{number}: {phrase!r} in: {line}"
        for name in tracked(under)
        for number, phrase, line in places(
            (ROOT / name).read_text(encoding="utf-8"), Path(name).suffix
        )
    ]


if __name__ == "__main__":
    found = report(sys.argv[1:])
    sys.stdout.write("".join(f"{line}\n" for line in [*found, f"{len(found)} places"]))
    sys.exit(bool(found))
