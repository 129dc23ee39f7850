# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a node takes as its snapshot. ssh-keygen signs and verifies; servers are real."""

from __future__ import annotations

import http.server
import json
import os
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.action import pull_snapshot as action
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.pull.publish import known, publish
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.pull.snapshot import (
    MAX_BYTES,
    PURPOSE,
    Snapshot,
    SnapshotError,
    Taken,
    of_text,
    take,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh.signer import Signer

from tests.unit.ssh_cluster import keypair
from tests.unit.ssh_cluster import refused as of_code

NOW, DAY = 1_800_000_000, 86400
GOOD = Snapshot(
    "c",
    "node01",
    NOW,
    NOW,
    NOW + DAY,
    f"SHA256:{'A' * 43}",
    ["compute", "rack_r1"],
    {"cluster_name": "c", "cluster_rails": [{"interface": "rail0", "mtu": 9000}]},
    {"keys/cuda.asc": "a2V5"},
    {"user": "ssh-ed25519-cert-v01@openssh.com AAAA mpi@node01\n"},
)


def edited(**changes: Any) -> str:
    """The text of a snapshot with other values, as a hostile writer would write it."""
    content = {**json.loads(GOOD.text()), **changes}
    return json.dumps(content, sort_keys=True, separators=(",", ":")) + "\n"


def test_a_snapshot_is_read_as_it_was_written() -> None:
    assert of_text(GOOD.text(), known()) == GOOD
    assert edited() == GOOD.text()


@pytest.mark.parametrize(
    "text",
    [
        edited(format=2),
        edited(node="../etc"),
        edited(cluster="{{ x }}"),
        edited(serial=-1),
        edited(serial=True),
        edited(expires=1.5),
        edited(signer="none"),
        edited(groups="compute"),
        edited(groups=["a b"]),
        edited(variables={"ansible_connection": "ssh"}),
        edited(variables={"ansible_python_interpreter": "/tmp/x"}),
        edited(variables={"cluster_name": "{{ lookup('pipe', 'id') }}"}),
        edited(variables={"cluster_rails": [{"interface": "{% x %}"}]}),
        edited(variables={"cluster_rails": {"{{ x }}": 1}}),
        edited(files={"../../etc/passwd": "a2V5"}),
        edited(files={"/etc/passwd": "a2V5"}),
        edited(files={"keys/x": "?"}),
        edited(certificates={"root": "ssh-ed25519 AAAA\n"}),
        edited(certificates={"user": "a\nb\n"}),
        edited(more=1),
        GOOD.text().replace(",", ", ", 1),
        GOOD.text().replace('"serial":', '"serial":1,"serial":', 1),
        "[]\n",
        "",
        "[" * 100_000,
    ],
)
def test_other_content_is_refused(text: str) -> None:
    assert text != GOOD.text()
    with pytest.raises(SnapshotError):
        of_text(text, known())


def test_a_node_takes_only_its_own_present_and_newest_snapshot() -> None:
    taken = take(GOOD, "node01", "c", NOW, Taken())
    assert take(GOOD, "node01", "c", NOW + DAY - 1, taken) == taken
    for code, other in (
        ("pull_other_node", replace(GOOD, node="node02")),
        ("pull_other_node", replace(GOOD, cluster="d")),
        ("pull_clock", replace(GOOD, made=NOW + 2 * 3600)),
        ("pull_expired", replace(GOOD, expires=NOW)),
        ("pull_older", replace(GOOD, serial=NOW - 1)),
        ("pull_serial_twice", replace(GOOD, variables={})),
    ):
        with of_code(SnapshotError, code, node=other.node, serial=other.serial):
            take(other, "node01", "c", NOW, taken)
    later = replace(GOOD, serial=NOW + 1, variables={})
    assert take(later, "node01", "c", NOW, taken).serial == NOW + 1


@pytest.mark.parametrize("text", ["", "{}x", '{"serial": "1", "sha256": ""}', '{"a": 1}'])
def test_a_damaged_record_takes_nothing(text: str) -> None:
    with pytest.raises(SnapshotError):
        Taken.of(text, "taken.json")
    assert Taken.of(Taken(3, "x").text(), "taken.json") == Taken(3, "x")


def signer(folder: Path, name: str = "key", cluster: str = "c", purpose: str = PURPOSE) -> Signer:
    key = folder / name
    if not key.exists():
        keypair(key)
    return Signer(cluster, folder / "none", purpose=purpose, key=key)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of a node that reads from `served`, where its snapshot is."""
    root, served = tmp_path / "root", tmp_path / "served"
    own = root / "etc/baremetal-mpi-roce/pull"
    own.mkdir(parents=True)
    settings = {"node": "node01", "cluster": "c", "place": str(served), "ca": ""}
    (own / "settings.json").write_text(json.dumps(settings), "utf-8")
    (own / "allowed_signers").write_text(signer(tmp_path).allowed(), "utf-8")
    publish(served, [GOOD], signer(tmp_path), NOW, 7 * DAY)
    monkeypatch.setattr(action, "ROOT", root)
    monkeypatch.setattr(action.time, "time", lambda: float(NOW))
    return root


class Task:
    """The action with its arguments."""

    def __new__(cls, check_mode: bool = False, **arguments: Any) -> Any:
        made = object.__new__(action.ActionModule)
        made._task = type("Task", (), {"args": arguments, "check_mode": check_mode})()
        made.validate_argument_spec = lambda argument_spec: (
            None,
            {
                **{name: spec.get("default") for name, spec in argument_spec.items()},
                **arguments,
            },
        )
        return made


def read(**arguments: Any) -> dict[str, Any]:
    found: dict[str, Any] = Task(step="read", **arguments).act({})
    return found


def refused(**arguments: Any) -> None:
    with pytest.raises(action.AnsibleActionFail):
        read(**arguments)


def served(tmp_path: Path) -> Path:
    return tmp_path / "served/node01.snapshot"


def test_a_node_reads_its_snapshot(tmp_path: Path, node: Path) -> None:
    host = read()["add_host"]
    assert host["host_name"] == "node01"
    assert host["groups"] == ["pulled", "compute", "rack_r1"]
    assert host["host_vars"]["cluster_rails"] == GOOD.variables["cluster_rails"]
    assert host["host_vars"]["ansible_connection"] == "local"
    state = node / "var/lib/baremetal-mpi-roce/pull"
    assert host["host_vars"]["inventory_dir"] == str(state)
    assert (state / "keys/cuda.asc").read_bytes() == b"key"
    assert read()["serial"] == NOW  # again


def test_an_older_snapshot_is_refused_after_a_newer_one(tmp_path: Path, node: Path) -> None:
    old = served(tmp_path).read_bytes()
    read()
    publish(tmp_path / "served", [replace(GOOD, groups=["compute"])], signer(tmp_path), NOW, DAY)
    assert read()["serial"] == NOW + 1
    served(tmp_path).write_bytes(old)
    refused()


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(b"9000", b"1500", 1),
        lambda text: text.partition(b"-----BEGIN")[0],
        lambda text: text.replace(b"U1NIU0lH", b"U1NIU0lI", 1),
        lambda text: b"",
        lambda text: b"\xff" + text,
        lambda text: b" " + text,
        lambda text: text.partition(b"-----BEGIN")[0] + b"-----BEGIN SSH SIGNATURE-----\n",
        lambda text: text + b"\n" * MAX_BYTES,
    ],
)
def test_a_changed_file_is_refused(tmp_path: Path, node: Path, change: Any) -> None:
    before = served(tmp_path).read_bytes()
    served(tmp_path).write_bytes(change(before))
    assert served(tmp_path).read_bytes() != before
    refused()
    assert not (node / "var").exists()


@pytest.mark.parametrize(
    ("name", "cluster", "purpose"),
    [("other", "c", PURPOSE), ("key", "d", PURPOSE), ("key", "c", "acceptance")],
)
def test_another_signature_is_refused(
    tmp_path: Path, node: Path, name: str, cluster: str, purpose: str
) -> None:
    """Of another key; of the same key for another cluster, or for another kind of file."""
    served(tmp_path).unlink()
    own = replace(GOOD, cluster=cluster)
    publish(tmp_path / "served", [own], signer(tmp_path, name, cluster, purpose), NOW, DAY)
    refused()


def test_the_snapshot_of_another_node_is_refused(tmp_path: Path, node: Path) -> None:
    publish(tmp_path / "served", [replace(GOOD, node="node02")], signer(tmp_path), NOW, DAY)
    served(tmp_path).unlink(missing_ok=True)
    (tmp_path / "served/node02.snapshot").rename(served(tmp_path))
    refused()


@pytest.mark.parametrize("name", ["settings.json", "allowed_signers"])
def test_files_that_others_can_write_are_refused(node: Path, name: str) -> None:
    own = node / "etc/baremetal-mpi-roce/pull"
    (own / name).chmod(0o666)
    refused()
    (own / name).chmod(0o644)
    own.chmod(0o777)
    refused()
    own.chmod(0o755)
    read()


def test_a_pipe_a_folder_and_a_relative_place_are_refused(tmp_path: Path, node: Path) -> None:
    refused(**{"from": "served"})
    refused(**{"from": str(tmp_path / "nothing")})
    served(tmp_path).unlink()
    served(tmp_path).mkdir()
    refused()
    served(tmp_path).rmdir()
    os.mkfifo(served(tmp_path))
    refused()


@pytest.mark.parametrize(
    "place", ["http://localhost", "file:///etc", "https://u:p@h/x", "https://"]
)
def test_other_urls_are_refused(node: Path, place: str) -> None:
    refused(**{"from": place})


@contextmanager
def server(folder: Path, certificate: Path, redirect: str = "") -> Iterator[str]:
    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, directory=str(folder), **options)

        def do_GET(self) -> None:
            if redirect:
                self.send_response(302)
                self.send_header("Location", redirect)
                self.end_headers()
            else:
                super().do_GET()

        def log_message(self, *_arguments: Any) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.socket = context.wrap_socket(running.socket, server_side=True)
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"https://localhost:{running.server_address[1]}"
        finally:
            running.shutdown()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    argv += ["-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext"]
    argv += ["subjectAltName=DNS:localhost", "-out", path, "-keyout", path.with_suffix(".key")]
    subprocess.run(argv, check=True, stderr=subprocess.DEVNULL)
    return path


def test_a_server_needs_a_certificate_of_the_pinned_authority(
    tmp_path: Path, node: Path, certificate: Path
) -> None:
    with server(tmp_path / "served", certificate) as url:
        assert read(**{"from": url, "ca": str(certificate)})["serial"] == NOW
        refused(**{"from": url})
        with server(tmp_path / "served", certificate, f"{url}/node01.snapshot") as redirecting:
            refused(**{"from": redirecting, "ca": str(certificate)})
