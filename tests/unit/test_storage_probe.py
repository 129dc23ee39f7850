# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a node does on a shared file system: whole files, right to the byte, and nothing left."""

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


class Told:
    """Everything the probe says; `steps` in order."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}
        self.steps: list[str] = []

    def __call__(self, told: dict[str, Any]) -> None:
        told = dict(told)
        if "step" in told:
            self.steps.append(told.pop("step"))
        self.found.update(told)


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
        "peers": [],
    }
    return {**base, **changes}


def done(given: dict[str, Any]) -> Told:
    told = Told()
    probe.perform(given, told, lambda found: True)
    return told


def ours(mount: Path) -> Path:
    return mount / probe.DIRECTORY / "c"


def both(mount: Path) -> None:
    for name in ("node01", "node02"):
        assert done(task(mount, name)).found["renamed"]


def reading(mount: Path, **changes: Any) -> Told:
    more = {"neighbour": "node02", "peers": ["node02"], **changes}
    return done(task(mount, "node01", "read", **more))


def test_a_directory_that_is_there_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a directory of others NFS refuses that, and does not say that it is there already."""
    ours(tmp_path).mkdir(parents=True)

    def refuse(*_rest: Any, **_more: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "mkdir", refuse)
    assert done(task(tmp_path, "node01")).found["renamed"]
    ours(tmp_path).rename(tmp_path / "away")
    assert done(task(tmp_path, "node01")).found["error"]["number"] == errno.EACCES


def test_two_nodes_read_what_the_other_wrote_and_leave_little(tmp_path: Path) -> None:
    for run in ("run1", "run2"):
        for name in ("node01", "node02"):
            found = done(task(tmp_path, name, token=run)).found
            assert found["wrote"]["bytes"] == SIZE
            assert found["owner"] == [os.geteuid(), os.getegid()]
        for name, other in (("node01", "node02"), ("node02", "node01")):
            given = task(tmp_path, name, "read", token=run, neighbour=other, peers=[other])
            found = done(given).found
            assert found["read"]["bytes"] == SIZE
            assert found["read_right"] and found["end"]
            assert (found["seen"], found["missing"], found["sizes"]) == (1, [], {})
        left = sorted(path.name for path in ours(tmp_path).iterdir())
        assert left == ["node01.probe", "node02.probe"]  # small; overwritten by the next run
    assert ours(tmp_path).stat().st_mode & 0o777 == 0o770


def test_each_step_is_said_before_it_is_taken(tmp_path: Path) -> None:
    told = done(task(tmp_path, "node01"))
    assert told.steps[0] == f"opening {tmp_path}"
    order = ["writing node01.data", "fsync of node01.data", "renaming node01.data over the older"]
    places = [next(i for i, s in enumerate(told.steps) if s.startswith(each)) for each in order]
    assert places == sorted(places)


def test_data_of_an_earlier_run_is_stale(tmp_path: Path) -> None:
    both(tmp_path)
    wrong = reading(tmp_path, token="run2").found["wrong"]
    assert wrong["about"] == "token"
    assert "stale" in wrong["text"] and "run1" in wrong["text"]


@pytest.mark.parametrize("at", [0, 40, probe.BLOCK + 3, SIZE - 1])
def test_one_flipped_bit_is_found_with_its_place(tmp_path: Path, at: int) -> None:
    both(tmp_path)
    large = ours(tmp_path) / "node02.data"
    data = bytearray(large.read_bytes())
    data[at] ^= 4
    large.write_bytes(data)
    wrong = reading(tmp_path).found["wrong"]
    assert wrong["about"] == "content"
    assert wrong["text"].endswith(f"at {at}")
    assert large.exists()  # evidence


def test_a_file_cut_short_and_one_of_another_node_are_found(tmp_path: Path) -> None:
    both(tmp_path)
    large = ours(tmp_path) / "node02.data"
    whole = large.read_bytes()
    large.write_bytes(whole[:-1])
    assert f"{SIZE} were written" in reading(tmp_path).found["wrong"]["text"]
    large.write_bytes((ours(tmp_path) / "node01.data").read_bytes())
    assert "differs" in reading(tmp_path).found["wrong"]["text"]
    (ours(tmp_path) / "node02.probe").write_bytes(b"something else")
    assert "another content" in reading(tmp_path).found["wrong"]["text"]


def test_a_server_that_does_not_rename_over_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both(tmp_path)
    real = os.rename

    def rename(source: str, target: str, **handles: int) -> None:
        if not target.endswith(".probe"):
            real(source, target, **handles)

    monkeypatch.setattr(os, "rename", rename)
    assert done(task(tmp_path, "node01", token="run2")).found["wrong"]["about"] == "rename"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_write_that_fails_leaves_no_half_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def write(handle: int, data: Any) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "write", write)
    told = done(task(tmp_path, "node01"))
    assert told.found["error"] == {"number": number, "text": os.strerror(number)}
    assert told.steps[-1] == "writing node01.data"
    assert list(ours(tmp_path).iterdir()) == []


def test_what_is_not_the_right_file_system_is_not_written_to(tmp_path: Path) -> None:
    told = Told()
    probe.perform(task(tmp_path, "node01"), told, lambda found: False)
    assert told.found["refused"]
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_the_place_of_the_directory_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / probe.DIRECTORY).symlink_to(elsewhere)
    number = done(task(tmp_path, "node01")).found["error"]["number"]
    assert number in (errno.ELOOP, errno.ENOTDIR)
    assert list(elsewhere.iterdir()) == []


def test_a_listing_out_of_the_cache_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both(tmp_path)
    real, calls = os.listdir, []

    def listdir(place: Any) -> list[str]:
        calls.append(place)
        return [] if len(calls) == 1 else real(place)

    monkeypatch.setattr(os, "listdir", listdir)
    assert reading(tmp_path).found["missing"] == []
    assert not [path for path in ours(tmp_path).iterdir() if path.name.endswith(".new")]


def test_names_that_are_missing_and_sizes_that_are_wrong(tmp_path: Path) -> None:
    both(tmp_path)
    (ours(tmp_path) / "node03.probe").write_bytes(b"")
    found = reading(tmp_path, peers=["node02", "node03", "node04"]).found
    assert found["seen"] == 2
    assert found["missing"] == ["node04.probe"]
    assert found["sizes"] == {"node03.probe": 0}


def test_the_file_is_made_small_where_little_is_free(tmp_path: Path) -> None:
    wrote = done(task(tmp_path, "node01", share=1e-15)).found["wrote"]
    assert wrote["bytes"] < SIZE


WITHOUT_IMPORTS = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("probe", sys.argv[1])
probe = importlib.util.module_from_spec(spec)
spec.loader.exec_module(probe)
tasks = json.loads(sys.argv[2])
sys.meta_path.clear()
told = {}
for task in tasks:
    probe.perform(task, told.update, lambda found: True)
told["address"] = probe.address_towards("127.0.0.1")
print(json.dumps(told))
"""


def test_nothing_is_imported_after_rights_were_given_up(tmp_path: Path) -> None:
    """A codec too is a file of the interpreter's, which may lie in a directory of root's."""
    tasks = [
        task(tmp_path, "node01"),
        task(tmp_path, "node01", "read", neighbour="node01", peers=["node01"]),
    ]
    argv = [sys.executable, "-I", "-c", WITHOUT_IMPORTS, str(probe.__file__), json.dumps(tasks)]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    told = json.loads(done.stdout)
    assert told["read_right"]
    assert told["address"] == "127.0.0.1"
    assert "error" not in told
