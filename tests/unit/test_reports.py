# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A report is kept under its time and as the latest, or not at all."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils import reports


def test_a_report_is_kept_under_its_time_and_as_the_latest(tmp_path: Path) -> None:
    path = reports.save(tmp_path / "reports/virtual", "smoke", {"layer": "smoke"})
    latest = path.parent / "smoke-latest.json"
    saved = json.loads(path.read_text(encoding="utf-8"))
    made = saved.pop("made")
    assert re.fullmatch(r"\d{8}T\d{6}Z", made)
    assert path == tmp_path / f"reports/virtual/smoke-{made}.json"
    assert saved == {"layer": "smoke"}
    assert latest.read_text(encoding="utf-8") == path.read_text(encoding="utf-8")
    assert sorted(each.name for each in path.parent.iterdir()) == [path.name, latest.name]
    assert latest.stat().st_mode & 0o777 == 0o644


def test_what_cannot_be_written_is_an_error_for_the_caller(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        reports.save(tmp_path / "file/below", "smoke", {})
