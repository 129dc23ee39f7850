# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The test bed: virtual nodes, switches, routers, machines and stand-ins, and the tests of it.

Every test on nodes uses the bed, so most mistakes in it show there. Its own tests run with --all,
and when its sources are not those with which they last passed: the file RECORD, which is committed,
has the digest of these. A clone of main has no older commit to compare with, a digest does.
"""

from __future__ import annotations

import fnmatch
import hashlib
import subprocess
from collections.abc import Iterable
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
RECORD = "tests/bed.sha256"
SOURCES = ("tests/bed/*",)
"""Patterns of paths; `*` matches slashes too."""
TESTS = (
    "tests/bed/tests/unit/test_*.py",
    "tests/integration/test_virtual_*.py",
)
DOCUMENTS = ("*.md",)


def is_one_of(path: str, patterns: Iterable[str]) -> bool:
    """Whether a path below the checkout matches one of the patterns."""
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


def is_test(path: Path) -> bool:
    """Whether this file has tests of the bed."""
    return path.is_relative_to(TOP) and is_one_of(path.relative_to(TOP).as_posix(), TESTS)


def sources(top: Path = TOP) -> list[str]:
    """Paths of the bed and of its tests, those not yet committed included."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=top,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    return sorted(
        path
        for path in set(listed)
        if is_one_of(path, (*SOURCES, *TESTS))
        and not is_one_of(path, DOCUMENTS)
        and (top / path).is_file()
    )


def digest(top: Path = TOP) -> str:
    """Of all sources, by name and content."""
    found = hashlib.sha256()
    for path in sources(top):
        found.update(f"{path}\0{hashlib.sha256((top / path).read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()


def differs(top: Path = TOP) -> bool:
    """Whether the bed is another one than when its tests last passed."""
    record = top / RECORD
    return not record.exists() or record.read_text(encoding="ascii").strip() != digest(top)


def passed(top: Path = TOP) -> bool:
    """Record that the bed's tests passed; returns whether that is new."""
    new = differs(top)
    if new:
        (top / RECORD).write_text(f"{digest(top)}\n", encoding="ascii")
    return new
