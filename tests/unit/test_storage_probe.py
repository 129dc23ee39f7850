# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The probe on a shared file system: complete files, and no leftovers."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage import probe

SIZE = 3 * probe.BLOCK + 77


class Reported:
    """All reports of the probe, with `steps` in order."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}
        self.steps: list[str] = []

    def __call__(self, given: dict[str, Any]) -> None:
        given = dict(given)
        if "step" in given:
            self.steps.append(given.pop("step"))
        self.found.update(given)


def task(mount: Path, name: str, do: str = "write", **changes: Any) -> dict[str, Any]:
    base = {
        "do": do,
        "mount": str(mount),
        "cluster": "c",
        "name": name,
        "token": "run1",
        "bytes": SIZE,
        "share": 0.5,
        "neighbour": "",
        "neighbour_bytes": SIZE,
    }
    return {**base, **changes}


def done(given: dict[str, Any], go: bool = True) -> Reported:
    reported = Reported()
    probe.perform(given, reported, lambda found: go)
    return reported


def ours(mount: Path) -> Path:
    return mount / probe.DIRECTORY / "c"


def both(mount: Path) -> None:
    for name in ("node01", "node02"):
        assert "owner" in done(task(mount, name)).found


def reading(mount: Path, **changes: Any) -> Reported:
    return done(task(mount, "node01", "read", **{"neighbour": "node02", **changes}))


def test_an_existing_directory_is_not_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a foreign directory NFS refuses mkdir even if the directory exists."""
    ours(tmp_path).mkdir(parents=True)

    def refuse(*_rest: Any, **_more: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "mkdir", refuse)
    assert "owner" in done(task(tmp_path, "node01")).found
    ours(tmp_path).rename(tmp_path / "away")
    assert done(task(tmp_path, "node01")).found["error"]["number"] == errno.EACCES


def test_two_nodes_read_each_other_s_files(tmp_path: Path) -> None:
    for run in ("run1", "run2"):
        for name in ("node01", "node02"):
            found = done(task(tmp_path, name, token=run)).found
            assert (found["wrote"]["bytes"], found["owner"]) == (SIZE, os.geteuid())
        for name, other in (("node01", "node02"), ("node02", "node01")):
            found = done(task(tmp_path, name, "read", token=run, neighbour=other)).found
            assert (found["read"]["bytes"], found["owner"]) == (SIZE, os.geteuid())
        left = sorted(path.name for path in ours(tmp_path).iterdir())
        assert left == ["node01.probe", "node02.probe"]  # small; overwritten by the next run
    assert ours(tmp_path).stat().st_mode & 0o777 == 0o770


def test_each_step_is_reported_before_it_is_taken(tmp_path: Path) -> None:
    steps = done(task(tmp_path, "node01")).steps
    assert steps[0] == f"opening {tmp_path}"
    order = ["writing node01.data", "fsync of node01.data", "renaming node01.data over the older"]
    places = [next(i for i, s in enumerate(steps) if s.startswith(each)) for each in order]
    assert places == sorted(places)


def test_data_of_an_earlier_run_is_stale(tmp_path: Path) -> None:
    both(tmp_path)
    wrong = reading(tmp_path, token="run2").found["wrong"]
    assert wrong["about"] == probe.TOKEN and "run1" in wrong["text"]


@pytest.mark.parametrize("at", [0, 40, probe.BLOCK + 3, SIZE - 1])
def test_a_flipped_bit_is_located(tmp_path: Path, at: int) -> None:
    both(tmp_path)
    large = ours(tmp_path) / "node02.data"
    data = bytearray(large.read_bytes())
    data[at] ^= 4
    large.write_bytes(data)
    wrong = reading(tmp_path).found["wrong"]
    assert wrong["about"] == probe.CONTENT
    assert wrong["text"].endswith(f"at {at}")
    assert large.exists()  # evidence


def test_truncated_and_foreign_files(tmp_path: Path) -> None:
    both(tmp_path)
    large = ours(tmp_path) / "node02.data"
    whole = large.read_bytes()
    for name, data, text in (
        ("node02.data", whole[:-1], f"{SIZE} were written"),
        ("node02.data", (ours(tmp_path) / "node01.data").read_bytes(), "differs"),
        ("node02.probe", b"something else", "other content"),
        *(
            ("node02.probe", (probe.MAGIC + begin).ljust(probe.SMALL, fill), "other content")
            for begin, fill in ((b"", b"["), (b"{}", b" "), (b"[7]", b" "))
        ),
    ):
        (ours(tmp_path) / name).write_bytes(data)
        assert text in reading(tmp_path).found["wrong"]["text"]


def test_a_failed_rename_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both(tmp_path)
    real = os.rename

    def rename(source: str, target: str, **handles: int) -> None:
        if not target.endswith(".probe"):
            real(source, target, **handles)

    monkeypatch.setattr(os, "rename", rename)
    assert done(task(tmp_path, "node01", token="run2")).found["wrong"]["about"] == probe.RENAME


def test_a_failed_write_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(handle: int, data: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", write)
    reported = done(task(tmp_path, "node01"))
    assert reported.found["error"] == {"number": errno.ENOSPC, "text": "No space left on device"}
    assert reported.steps[-1] == "writing node01.data"
    assert list(ours(tmp_path).iterdir()) == []


def test_another_file_system_is_not_written(tmp_path: Path) -> None:
    assert "line" in done(task(tmp_path, "node01"), go=False).found
    assert list(tmp_path.iterdir()) == []
    assert done(task(tmp_path / "no mount point", "node01")).found == {"line": ""}


def test_a_link_as_directory_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / probe.DIRECTORY).symlink_to(elsewhere)
    number = done(task(tmp_path, "node01")).found["error"]["number"]
    assert number in (errno.ELOOP, errno.ENOTDIR)
    assert list(elsewhere.iterdir()) == []


def test_the_size_depends_on_free_space(tmp_path: Path) -> None:
    assert done(task(tmp_path, "node01", share=1e-15)).found["wrote"]["bytes"] < SIZE


WITHOUT_IMPORTS = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("probe", sys.argv[1])
probe = importlib.util.module_from_spec(spec)
spec.loader.exec_module(probe)
tasks = json.loads(sys.argv[2])
sys.meta_path.clear()
reported = {}
for task in tasks:
    probe.perform(task, reported.update, lambda found: True)
reported["address"] = probe.address_towards("127.0.0.1")
print(json.dumps(reported))
"""


def test_nothing_is_imported_after_start(tmp_path: Path) -> None:
    """The user may not be able to read Python's files, codecs included."""
    tasks = [task(tmp_path, "node01"), task(tmp_path, "node01", "read", neighbour="node01")]
    argv = [sys.executable, "-I", "-c", WITHOUT_IMPORTS, str(probe.__file__), json.dumps(tasks)]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    reported = json.loads(done.stdout)
    assert reported["read"]["bytes"] == SIZE
    assert reported["address"] == "127.0.0.1"
    assert "error" not in reported
