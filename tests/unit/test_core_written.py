# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Fingerprints of written files: every edit is found, and nothing of others is reported."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import written
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.engine import settle
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.files import (
    FilePlan,
    plan_file,
    replace_block,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import (
    Node,
    Plan,
    Step,
    Verdict,
)
from hypothesis import given
from hypothesis import strategies as st

MINE = "etc/baremetal-mpi-roce/mpi.env"


@dataclass(frozen=True)
class Files:
    """A part of some files; a text of None removes one."""

    texts: dict[str, str | None]

    def plan(self, node: Node) -> Plan:
        return Plan([node.file(name, text) for name, text in self.texts.items()])

    def verify(self, node: Node) -> Verdict:
        return Verdict()


def node(root: Path, layer: str = "mpi", check_mode: bool = False) -> Node:
    return Node(layer, root, None, None, "boot", check_mode, os.getuid(), os.getgid())


def edited(root: Path) -> list[tuple[str, str, str]]:
    return list(written.edited(root))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    settle([Files({MINE: "UCX_TLS=rc\n"})], node(tmp_path))
    return tmp_path


def test_what_a_layer_wrote_is_recorded_and_as_written(root: Path) -> None:
    assert edited(root) == []
    record = root / written.DIRECTORY / "mpi.json"
    assert list(json.loads(record.read_text())) == [f"/{MINE}"]


@pytest.mark.parametrize(
    ("do", "what"),
    [
        (lambda path: path.write_text(path.read_text() + "UCX_TLS=self\n"), "edited"),
        (lambda path: path.write_text(""), "edited"),
        (lambda path: path.unlink(), "missing"),
        (lambda path: path.chmod(0o600), "mode 0600, written with 0644"),
        (lambda path: path.write_bytes(b"\xff\xfe"), "edited"),
    ],
)
def test_an_edit_is_found(root: Path, do, what: str) -> None:
    do(root / MINE)
    assert edited(root) == [("mpi", f"/{MINE}", what)]


def test_the_next_run_replaces_or_removes_the_entry(root: Path) -> None:
    settle([Files({MINE: "UCX_TLS=tcp\n"})], node(root))
    assert edited(root) == []
    settle([Files({MINE: None})], node(root))
    assert edited(root) == [] and not (root / written.DIRECTORY / "mpi.json").exists()


def test_check_mode_and_a_second_run_write_nothing(root: Path) -> None:
    record = root / written.DIRECTORY / "mpi.json"
    before = (record.read_text(), record.stat().st_ino)
    assert settle([Files({MINE: "UCX_TLS=tcp\n"})], node(root, check_mode=True)).changed
    settle([Files({MINE: "UCX_TLS=rc\n"})], node(root))
    assert (record.read_text(), record.stat().st_ino) == before


def test_of_a_file_with_lines_of_others_only_the_blocks_count(tmp_path: Path) -> None:
    hosts = tmp_path / "etc/hosts"
    hosts.parent.mkdir()
    hosts.write_text("127.0.0.1 localhost\n")
    text = replace_block(hosts.read_text(), ["10.0.0.1 node01"], "nodes")
    plan = plan_file(hosts, text, uid=os.getuid(), gid=os.getgid())
    plan.apply()
    written.record([plan], "names", tmp_path, os.getuid(), os.getgid()).apply()
    hosts.write_text("# mine\n" + hosts.read_text() + "10.9.9.9 printer\n")
    assert edited(tmp_path) == []
    hosts.write_text(hosts.read_text().replace("10.0.0.1", "10.9.9.9"))
    assert edited(tmp_path) == [("names", "/etc/hosts", "edited")]
    hosts.write_text("127.0.0.1 localhost\n")
    assert edited(tmp_path) == [("names", "/etc/hosts", "edited")]


def test_files_with_the_name_of_the_collection_need_no_header_and_may_be_written_in_steps(
    tmp_path: Path,
) -> None:
    def plan() -> FilePlan:
        path = tmp_path / "usr/local/libexec/baremetal-mpi-roce/rail-bind"
        return plan_file(path, "#!/bin/sh\n", mode=0o755, uid=os.getuid(), gid=os.getgid())

    class InStep(Files):
        def plan(self, node: Node) -> Plan:
            return Plan(steps=[Step("file", "", "", plan().apply)])

        def verify(self, node: Node) -> Verdict:
            return Verdict(files=[plan()])

    settle([InStep({})], node(tmp_path))
    assert edited(tmp_path) == []
    plan().path.chmod(0o644)
    assert [found for _layer, _name, found in edited(tmp_path)] == ["mode 0644, written with 0755"]
    settle([Files({})], node(tmp_path, "os"))
    failing = InStep({})
    plan().path.unlink()
    object.__setattr__(failing, "plan", lambda _node: Plan())
    settle([failing], node(tmp_path, "new"))
    assert not (tmp_path / written.DIRECTORY / "new.json").exists()


def test_secrets_and_files_of_others_have_no_fingerprint(tmp_path: Path) -> None:
    key = FilePlan(
        tmp_path / "key", None, "# Managed by Ansible (baremetal.mpi_roce).", secret=True
    )
    foreign = FilePlan(tmp_path / "fstab", None, "/dev/sda1 / ext4\n")
    plan = written.record([key, foreign], "ssh", tmp_path, 0, 0)
    assert plan.after is None


@given(st.one_of(st.text(), st.from_regex(r'\{"/a": .{0,40}\}')))
def test_a_record_of_another_form_has_no_entries(text: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / written.DIRECTORY / "os.json"
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8", errors="surrogateescape")
        for layer, name, found in written.edited(Path(folder)):
            assert (layer, found) == ("os", "missing") and ".." not in name


def test_no_record_leads_out_of_the_root(tmp_path: Path) -> None:
    path = tmp_path / written.DIRECTORY / "os.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"/../../etc/passwd": ["0" * 64, "0644"]}))
    assert edited(tmp_path) == []
