# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""docs/faults.md lists the injected faults, each with a check that docs/checks.md explains."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GENERATOR = runpy.run_path(str(ROOT / "docs/generate_faults.py"))


def test_the_page_is_up_to_date() -> None:
    text = (ROOT / "docs/faults.md").read_text(encoding="utf-8")
    assert text == GENERATOR["page"](), "run docs/generate_faults.py"


def test_it_lists_sixty_faults_with_explained_checks() -> None:
    rows = list(GENERATOR["rows"]())
    assert len(rows) >= 60 and len({(layer, name) for layer, _check, name in rows}) == len(rows)
    explained = re.findall(r"`([a-z_]+)`", (ROOT / "docs/checks.md").read_text(encoding="utf-8"))
    families = tuple(name for name in explained if name.endswith("_"))
    unknown = {check for _layer, check, _name in rows if not check.startswith(families)}
    assert unknown - set(explained) == set()
