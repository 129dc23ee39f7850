# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Files of a plan that could not be carried out are as they were, on a full disk too."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import files
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.files import (
    FilePlan,
    plan_file,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages import engine
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.manager import (
    PackageError,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.package import PackageSet


def planned(path: Path, text: str) -> FilePlan:
    return plan_file(path, text, uid=os.getuid(), gid=os.getgid())


def content(where: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(where.iterdir())}


def no_space(*_arguments: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device", "third")


def test_what_was_written_before_the_disk_was_full_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "first").write_text("old")
    (tmp_path / "first").chmod(0o640)
    plans = [planned(tmp_path / name, "new") for name in ("first", "second", "third")]
    write, written = files.write_atomically, []

    def until_full(path: Path, *more: object) -> None:
        written.append(path.name)
        if len(written) > 2:
            no_space()
        write(path, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(files, "write_atomically", until_full)
    with pytest.raises(PackageError, match=r"No space left.*third.*Nothing was changed"):
        engine._write(engine.Plan(files=plans), PackageSet(), None)  # type: ignore[arg-type]
    assert content(tmp_path) == {"first": "old"}
    assert (tmp_path / "first").stat().st_mode & 0o777 == 0o640


def test_each_file_is_put_back_whatever_happens_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first", "second"):
        (tmp_path / name).write_text("old")
    plans = [planned(tmp_path / name, "new") for name in ("first", "second", "third")]
    kept = engine.Kept(plans)
    for each in plans:
        each.apply()
    for path in tmp_path.glob(".second*"):
        path.unlink()  # as on a file system without links
    monkeypatch.setattr(files, "write_atomically", no_space)

    assert kept.put_back() == [f"{tmp_path}/second: No space left on device"]
    assert content(tmp_path) == {"first": "old", "second": "new"}


def test_nothing_is_left_of_files_that_stay_as_they_are_now(tmp_path: Path) -> None:
    (tmp_path / "first").write_text("old")
    plan = planned(tmp_path / "first", "new")
    kept = engine.Kept([plan])
    plan.apply()
    kept.forget()
    assert content(tmp_path) == {"first": "new"}
