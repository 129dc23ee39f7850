# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Decides whether the test bed's own tests run: they do if its files have changed since the tests
last passed.

Every integration test uses the test bed, so most of its faults show there. Its own tests run with
--all, and when the digest of its files differs from RECORD. RECORD is committed: a fresh clone has
no earlier commit to compare with.
"""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
RECORD = "tests/bed.sha256"
FOLDER = "tests/bed"
UNIT_TESTS = f"{FOLDER}/tests/unit"
INTEGRATION_TESTS = f"{FOLDER}/tests/integration"
PAGES = ".md"
"""Suffix of files that do not affect behaviour."""


def sources(top: Path = TOP) -> list[str]:
    """Paths of the test bed and its tests, including files that are not committed yet."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", FOLDER],
        cwd=top,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    return sorted(
        path for path in set(listed) if not path.endswith(PAGES) and (top / path).is_file()
    )


def digest(top: Path = TOP) -> str:
    """SHA-256 over the names and contents of all sources."""
    total = hashlib.sha256()
    for path in sources(top):
        total.update(f"{path}\0{hashlib.sha256((top / path).read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()


def differs(top: Path = TOP) -> bool:
    """Return whether the test bed changed since its tests last passed."""
    record = top / RECORD
    return not record.exists() or record.read_text(encoding="ascii").strip() != digest(top)


def passed(top: Path = TOP) -> bool:
    """Record that the test bed's tests passed. Returns whether the record changed."""
    new = differs(top)
    if new:
        (top / RECORD).write_text(f"{digest(top)}\n", encoding="ascii")
    return new
