# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Owned files: planned, shown, replaced whole; blocks leave the operator's lines alone."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import files
from hypothesis import given
from hypothesis import strategies as st

UID, GID = os.getuid(), os.getgid()
LINE = st.text(st.characters(blacklist_characters="\n", blacklist_categories=("Cs",)), max_size=30)


def plan(path, after, **more):
    return files.plan_file(path, after, uid=UID, gid=GID, **more)


def test_a_missing_file_is_written_with_its_mode(tmp_path):
    wanted = plan(tmp_path / "deep/er/file", "text\n", mode=0o600)
    assert wanted.changed
    wanted.apply()
    path = tmp_path / "deep/er/file"
    assert path.read_text() == "text\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not plan(path, "text\n", mode=0o600).changed


def test_a_wrong_mode_alone_is_a_change_and_shows_as_one(tmp_path):
    path = tmp_path / "file"
    path.write_text("same\n")
    path.chmod(0o666)
    wanted = plan(path, "same\n")
    assert wanted.changed
    assert "0666" in wanted.diff()["before"]
    assert "0644" in wanted.diff()["after"]
    wanted.apply()
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_secret_never_shows_in_the_diff(tmp_path):
    path = tmp_path / "key"
    path.write_text("old secret\n")
    shown = plan(path, "new secret\n", mode=0o600, secret=True).diff()
    assert "secret" not in shown["before"] + shown["after"]


def test_absent_removes_and_is_then_no_change(tmp_path):
    path = tmp_path / "file"
    path.write_text("x\n")
    wanted = plan(path, None)
    assert wanted.changed
    assert wanted.diff()["after"] == ""
    wanted.apply()
    assert not path.exists()
    assert not plan(path, None).changed


def test_an_interrupted_write_leaves_the_old_file_and_no_rest(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_text("old\n")

    def fails(*_args):
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(OSError, match="no space"):
        plan(path, "new\n").apply()
    assert path.read_text() == "old\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_names_the_file(tmp_path, monkeypatch):
    def full(_descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=rf"No space left on device: '{tmp_path}/file'"):
        plan(tmp_path / "file", "new\n").apply()
    assert list(tmp_path.iterdir()) == []


def test_a_symlink_stays_one_and_its_target_changes(tmp_path):
    (tmp_path / "target").write_text("old\n")
    (tmp_path / "link").symlink_to("target")
    plan(tmp_path / "link", "new\n").apply()
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new\n"


@given(st.lists(LINE), st.lists(LINE, min_size=1), st.lists(LINE, min_size=1))
def test_a_block_changes_nothing_but_itself(own, first, second):
    """Put in, changed and taken out again, the operator's lines are what they were."""
    text = "".join(f"{line}\n" for line in own)
    one = files.replace_block(text, first, "hosts")
    assert files.replace_block(one, first, "hosts") == one
    two = files.replace_block(one, second, "hosts")
    assert two.startswith(text)
    assert files.replace_block(two, [], "hosts") == text


def test_a_block_without_end_is_refused_with_its_line():
    with pytest.raises(ValueError, match="line 2"):
        files.replace_block("x\n# BEGIN baremetal.mpi_roce hosts\ny\n", ["a"], "hosts")


def test_bytes_that_are_not_ours_come_back_as_they_were(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"dos\r\nlatin \xe9\n")
    before = plan(path, None).before
    plan(path, files.replace_block(before, ["a"], "hosts")).apply()
    assert path.read_bytes().startswith(b"dos\r\nlatin \xe9\n# BEGIN")


@pytest.mark.parametrize("umask", [0o077, 0o022, 0o002])
def test_directories_that_are_made_can_be_entered_whatever_the_umask(tmp_path, umask):
    (tmp_path / "there").mkdir(mode=0o700)
    before = os.umask(umask)
    try:
        plan(tmp_path / "there/etc/own/mpi.env", "A=1\n").apply()
        assert os.umask(umask) == umask, "and the umask is the caller's again"
    finally:
        os.umask(before)
    modes = [
        stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("there/etc", "there/etc/own")
    ]
    assert modes == [0o755, 0o755]
    assert stat.S_IMODE((tmp_path / "there").stat().st_mode) == 0o700, "one that is there is left"
