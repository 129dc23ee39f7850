# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The test bed: its tests run when its files changed, and the product does not use it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tools import bed

SOURCE = "tests/bed/plugins/module_utils/qemu.py"
TEST = "tests/bed/tests/unit/test_virtual_qemu.py"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    for path in (
        SOURCE,
        TEST,
        "plugins/module_utils/core/files.py",
        "tests/bed/roles/virtual_nodes/README.md",
    ):
        write(tmp_path, path, "as it was")
    return tmp_path


def write(tree: Path, path: str, text: str) -> None:
    (tree / path).parent.mkdir(parents=True, exist_ok=True)
    (tree / path).write_text(text)


def test_the_bed_differs_until_its_tests_passed(tree: Path) -> None:
    assert bed.differs(tree)
    assert bed.passed(tree)
    assert not bed.differs(tree)
    assert not bed.passed(tree), "nothing new to record"
    (tree / SOURCE).unlink()
    assert bed.differs(tree)


@pytest.mark.parametrize(
    ("path", "differs"),
    [
        (SOURCE, True),
        (TEST, True),
        ("tests/bed/roles/virtual_nodes/files/image/build/new.sh", True),
        ("plugins/module_utils/core/files.py", False),
        ("tests/bed/roles/virtual_nodes/README.md", False),
        ("tests/nodes.py", False),
    ],
)
def test_only_changed_files_of_the_bed_make_it_differ(tree: Path, path: str, differs: bool) -> None:
    bed.passed(tree)
    write(tree, path, "another")
    assert bed.differs(tree) is differs


@pytest.mark.parametrize("folder", ["plugins", "roles", "playbooks", "meta"])
def test_the_product_uses_nothing_from_the_bed(folder: str) -> None:
    files = [path for path in (bed.TOP / folder).rglob("*") if path.suffix in (".py", ".yml")]
    assert files
    assert [path for path in files if re.search(r"\bbaremetal\.bed\b", path.read_text())] == []
