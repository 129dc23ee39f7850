# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A report is stored under its time and as the latest, or not at all."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.report import reports


class Shown:
    """The output seen by the operator."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.warnings: list[str] = []

    def display(self, msg: str) -> None:
        self.lines.append(msg)

    def warning(self, msg: str) -> None:
        self.warnings.append(msg)


def test_a_report_is_kept_under_its_time_and_as_the_latest(tmp_path: Path) -> None:
    shown = Shown()
    folder = tmp_path / "reports/virtual"
    path = Path(reports.keep(folder, "smoke", {"layer": "smoke"}, shown, "x"))
    saved = json.loads(path.read_text(encoding="utf-8"))
    made = saved.pop("made")
    assert re.fullmatch(r"\d{8}T\d{6}Z", made)
    assert re.fullmatch(rf"smoke-{made[:-1]}\.\d{{6}}Z\.json", path.name)
    assert (path.parent, saved) == (folder, {"layer": "smoke"})
    assert (folder / "smoke-latest.json").read_text() == path.read_text()
    assert path.stat().st_mode & 0o777 == 0o640
    assert (shown.lines, shown.warnings) == ([f"smoke: report in {path}"], [])


def test_a_report_that_cannot_be_saved_is_a_warning_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    shown = Shown()
    directory = tmp_path / "file/below"
    assert reports.keep(directory, "verbs", {}, shown, "rdma_verify_report_directory") == ""
    (warning,) = shown.warnings
    assert warning.startswith("verbs: the report was not saved: ") and "file" in warning
    assert warning.endswith("Make the directory writable, or set rdma_verify_report_directory")
    assert shown.lines == []


def test_a_report_replaces_a_link_and_not_what_it_names(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("kept")
    (tmp_path / "smoke-latest.json").symlink_to("other")
    reports.save(tmp_path / "smoke-latest.json", "{}")
    assert (tmp_path / "other").read_text() == "kept"
    assert (tmp_path / "smoke-latest.json").read_text() == "{}"


def test_reports_are_of_the_group_of_a_directory_with_setgid(tmp_path: Path) -> None:
    group = os.getgroups()[-1] if os.getuid() else 4242
    os.chown(tmp_path, -1, group)
    tmp_path.chmod(0o2750)
    for _written in range(2):
        path = tmp_path / "reports/c/smoke-latest.json"
        reports.save(path, "{}")
        found = [each.stat() for each in (path.parent.parent, path.parent, path)]
        assert {each.st_gid for each in found} == {group}
        assert [each.st_mode & 0o7777 for each in found] == [0o2750, 0o2750, 0o640]


def test_a_directory_of_another_group_gets_the_report_of_the_operator_s_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_a_member(_handle: int, _uid: int, gid: int) -> None:
        if gid != 4242:
            raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchown", not_a_member)
    monkeypatch.setattr(os, "getgid", lambda: 4242)
    reports.save(tmp_path / "smoke-latest.json", "{}")
    assert [path.name for path in tmp_path.iterdir()] == ["smoke-latest.json"]
