# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Prose avoids phrases for which technical English has a better word.

    python tests/unit/test_words.py [PATH...]

prints every occurrence in the given files and directories. The test reads pages, comments,
docstrings, messages and the text of YAML files. It ignores code in backticks and Ansible's markup.
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

import pytest

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
    r"nobody": "nothing, no host, no process",
    r"by (?:itself|themselves)": "automatically, alone in the sense of 'without'",
    r"farewell|judgement": "the technical term",
    r"right to the bit": "bit-exact",
}
"""Patterns of whole words, matched in any case, and their replacements."""

PATTERN = re.compile(rf"\b(?:{'|'.join(f'(?:{phrase})' for phrase in BETTER)})\b", re.IGNORECASE)
SKIPPED = (
    "tests/unit/test_words.py",
    "COPYING",
    "CHANGELOG.md",
    "changelogs/",
    "requirements/",
)
CODE = re.compile(
    r"``[^`]+``|`[^`]+`|\{\{.*?\}\}|\b[CVOEMPRIBLU]\((?:\\.|[^()]|\([^()]*\))*\)"
    r"|\b(?:default|choices|step): (?:\[[^]]*\]|\"[^\"]*\"|[\w.-]+)"
    r"|^\s*(?!default|choices|step)\w+:(?= |$)"
)
"""Code, templates and markup; in YAML also keys, defaults and choices."""


def markdown(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines outside code blocks, with their numbers."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            yield number, line


def python(text: str) -> Iterator[tuple[int, str]]:
    """Yield comments, and the lines of string literals of at least three words."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if len(node.value.split()) >= 3:
            yield from enumerate(node.value.splitlines(), node.lineno)


def plain(text: str) -> Iterator[tuple[int, str]]:
    yield from enumerate(text.splitlines(), 1)


def shell(text: str) -> Iterator[tuple[int, str]]:
    for number, line in plain(text):
        if "#" in line:
            yield number, line[line.index("#") :]


READERS = {".md": markdown, ".py": python, ".yml": plain, ".yaml": plain, ".sh": shell}


def phrases(text: str, suffix: str) -> Iterator[tuple[int, str, str]]:
    """Yield line number, phrase and line of every phrase of the list."""
    for number, line in READERS[suffix](text):
        for match in PATTERN.finditer(CODE.sub("`", line)):
            yield number, match.group(), line.strip()


def tracked(under: list[str]) -> list[str]:
    """Return the tracked files below these paths that have a reader."""
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


def report(names: list[str]) -> list[str]:
    return [
        f"{name}:{number}: {phrase!r} in: {line}"
        for name in names
        for number, phrase, line in phrases(
            (ROOT / name).read_text(encoding="utf-8"), Path(name).suffix
        )
    ]


def test_the_tree_has_none_of_the_phrases() -> None:
    names = tracked([])
    assert len(names) > 700
    assert report(names) == []


PHRASES = """
has to, have to, had to, alone, beside, besides, at once, of its own, on their own, room, keeps,
judge, judged, judges, judging, ended, so many, so much, what is, anew, nobody, by itself,
by themselves, farewell, judgement, right to the bit
"""


@pytest.mark.parametrize("phrase", [phrase.strip() for phrase in PHRASES.split(",")])
@pytest.mark.parametrize(
    ("suffix", "text", "line"),
    [
        (".md", "# Title\n\nA sentence with {} in it.\n", 3),
        (".py", 'def f():\n    """Return {} to it.\n\n    A second line.\n    """\n', 2),
        (".py", "x = 1  # a comment with {} in it\n", 1),
        (".py", 'raise ValueError(f"{{x}}: a message with {} in it")\n', 1),
        (".yml", "text: >-\n  A description with {} in it.\n", 2),
        (".sh", "true # a comment with {} in it\n", 1),
    ],
)
def test_each_phrase_is_reported(suffix: str, text: str, line: int, phrase: str) -> None:
    for written in (phrase, phrase.capitalize()):
        occurrences = [(number, word) for number, word, _ in phrases(text.format(written), suffix)]
        assert occurrences == [(line, written)]


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        (".md", "Run `what is` now.\n\n```\nat once, alone\n```\n\n    room beside\n"),
        (".py", 'KEYS = ("room", "alone", "at once")\nbesides = ended = 1\n'),
        (".yml", "room: 1\n  default: alone\n  text: Set O(room) to V(at once) or ``ended``.\n"),
        (".sh", "room=alone\n"),
        (".md", "It has to do with chrooms and keepsakes.\n"),
    ],
)
def test_code_and_longer_words_are_ignored(suffix: str, text: str) -> None:
    assert list(phrases(text, suffix)) == []


if __name__ == "__main__":
    lines = report(tracked(sys.argv[1:]))
    sys.stdout.write("".join(f"{line}\n" for line in [*lines, f"{len(lines)} occurrences"]))
    sys.exit(bool(lines))
