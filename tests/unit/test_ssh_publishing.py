"""The journal, the certificates that OpenSSH reads, names, patterns and probes."""

from __future__ import annotations

import fnmatch
import json
import os
import stat
import syslog
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh.keys import digest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh import publishing
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh.journal import (
    Issued,
    Journal,
    Member,
    SerialError,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.ssh_cluster import DAY, NOW, directory, entry, issue, keypair, ssh_keygen

PAGE = Path(__file__).parents[2] / "docs/ssh-trust.md"


def test_a_node_is_read_as_it_was_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    assert journal.read() == {}
    certificate = Issued(
        "user", 5, "generation-1", NOW, "SHA256:x", NOW, "ssh-ed25519 U", ["a"], ["b"]
    )
    journal.issued("node01", [certificate])
    assert not journal.read()["node01"].complete, "signed for, and no run ended well"
    journal.trusts("node01", ["generation-1"])
    node = Member(["generation-1"], issued=[certificate])
    assert journal.read() == {"node01": node}
    assert node.known()["issued"]["user"]["digest"] == "SHA256:x"


def test_a_serial_is_recorded_once_whichever_run_is_first(tmp_path: Path) -> None:
    journal, one = Journal(tmp_path), Issued("user", 5, "generation-1", NOW)
    journal.issued("node01", [one])
    for again in ([one], [Issued("host", 6, "generation-1", NOW)] * 2):
        with pytest.raises(SerialError, match="another certificate has it"):
            journal.issued("node02", again)
    assert list(journal.read()) == ["node01"]


def test_everything_is_private_to_its_owner(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "above/ssh-ca")
    before = os.umask(0)
    try:
        with journal.locked():
            journal.left("node01")
    finally:
        os.umask(before)
    for path in (journal.directory.parent, journal.directory, journal.path):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_each_line_has_its_time_operator_and_reason_and_goes_to_syslog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged = []
    monkeypatch.setattr(syslog, "syslog", lambda _priority, text: logged.append(text))
    monkeypatch.setenv("SUDO_USER", "ann")
    before = int(time.time())
    Journal(tmp_path).issued("node01", [Issued("user", 5, "a", NOW)], {"user": "there is none"})
    text = (tmp_path / "journal.jsonl").read_text().strip()
    line = json.loads(text)
    assert (line["operator"], line["reason"], line["serial"]) == ("ann", "there is none", 5)
    assert line["time"] >= before
    assert logged == [f"baremetal.mpi_roce ssh {text}"]


def test_torn_lines_and_a_node_that_leaves_twice(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.issued("node01", [Issued("user", 1, "a", NOW), Issued("host", 2, "a", NOW)])
    with journal.path.open("ab") as stream:
        stream.write(b'\n{"node": "node01", "seri\xff')
    journal.left("node01")
    journal.issued("node01", [Issued("user", 3, "a", NOW)])
    journal.left("node01")
    journal.issued("node01", [Issued("user", 5, "a", NOW), Issued("user", 4, "a", NOW)])
    node = journal.read()["node01"]
    assert [each.serial for each in node.revoked] == [1, 2, 3]
    assert node.latest()["user"].serial == 4


def test_a_certificate_is_revoked_when_its_node_has_the_next_one(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.issued("node01", [Issued("user", 1, "a", NOW), Issued("host", 2, "a", NOW)])
    journal.trusts("node01", ["a"], "", [1, 2])
    journal.issued("node01", [Issued("user", 3, "a", NOW)])
    assert journal.read()["node01"].revoked == [], "it may not have arrived"
    journal.trusts("node01", ["a"], "", [3, 2])
    node = journal.read()["node01"]
    assert [each.serial for each in node.revoked] == [1]
    assert {each.serial for each in node.issued} == {2, 3}
    assert node.revoked_at > 0


def test_of_a_node_that_was_revoked_the_keys_are_as_well(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for first, end in ((1, journal.left), (3, journal.revoked)):
        two = [Issued("user", each, "a", NOW, key="ssh-ed25519 U") for each in (first, first + 1)]
        journal.issued("node01", two)
        end("node01")
    node = journal.read()["node01"]
    assert (len(node.revoked), node.refused_keys, node.issued) == (4, ["ssh-ed25519 U"], [])


def test_what_cannot_be_recorded_is_not_issued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = keypair(tmp_path / "ca")

    def full(handle: int, data: bytes) -> int:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="no space"):
        issue(tmp_path, key)


def shown(printed: str) -> str:
    """What ssh-keygen -L prints, as docs/ssh-trust.md has it: a line for each, without keys."""
    lines = [" ".join(line.split()) for line in printed.replace(f"\n{' ' * 16}", " ").splitlines()]
    kept = ("Type:", "Key ID:", "Principals:", "Critical Options:", "Extensions:")
    return "\n".join(f"    {line}" for line in lines if line.startswith(kept))


@pytest.mark.parametrize(
    "options", [("-t", "ed25519"), ("-t", "rsa", "-b", "2048"), ("-t", "ecdsa")]
)
def test_openssh_reads_what_is_signed(options: tuple[str, ...], tmp_path: Path) -> None:
    authority, key = keypair(tmp_path / "ca", *options), keypair(tmp_path / "key")
    texts, records = issue(tmp_path, key)
    read = {}
    for kind, text in texts.items():
        path = tmp_path / f"{kind}-cert.pub"
        path.write_text(text)
        read[kind] = ssh_keygen("-L", "-f", str(path)).stdout
        assert f"ssh-ed25519-cert-v01@openssh.com {kind} certificate" in read[kind]
        assert digest(authority) in read[kind]
        assert digest(key) in read[kind]
        assert f"Serial: {records[kind].serial}" in read[kind]
        assert records[kind].digest == digest(text)
    documented = PAGE.read_text(encoding="utf-8").partition("## Certificates")[2].rstrip()
    assert documented.split("\n\n")[2:] == [shown(read[kind]) for kind in ("user", "host")]
    assert records["user"].valid_before == NOW + 10 * DAY
    assert records["user"].valid_after == NOW - publishing.BACKDATED_S
    assert Journal(tmp_path).read()["node01"].issued == list(records.values())


def test_an_authority_that_cannot_be_read_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = keypair(tmp_path / "key")
    with pytest.raises(publishing.SigningError, match="ca: cannot read it"):
        issue(tmp_path, key)
    keypair(tmp_path / "ca")
    private = (tmp_path / "ca").read_bytes()
    (tmp_path / "ca").chmod(0o640)
    with pytest.raises(publishing.SigningError, match=r"mode 0640 owner .*: chmod 600"):
        issue(tmp_path, key)
    with monkeypatch.context() as patch:
        status = SimpleNamespace(st_mode=0o100600, st_uid=4242)
        patch.setattr(Path, "stat", lambda _path: status)
        with pytest.raises(publishing.SigningError, match=r"owner 4242: .*: chown \d+ /"):
            publishing.private_key(tmp_path / "ca", None)
    (tmp_path / "ca").chmod(0o600)
    for text, why in ((b"x", "not a private key of OpenSSH"), (private[:99], "not a private key")):
        (tmp_path / "ca").write_bytes(text)
        with pytest.raises(publishing.SigningError, match=f"^{tmp_path}/ca: .*: {why}"):
            issue(tmp_path, key)


def test_of_a_node_only_one_ed25519_key_is_signed(tmp_path: Path) -> None:
    keypair(tmp_path / "ca")
    key = keypair(tmp_path / "key")
    weak = keypair(tmp_path / "weak", "-t", "rsa", "-b", "1024")
    for text in ("", weak, f"{key}\n@cert-authority * {key}", f"restrict,pty {key}", f"{key} x"):
        with pytest.raises(publishing.SigningError, match="node01: its host key is not one ed25"):
            issue(tmp_path, text, ("host",))
    assert Journal(tmp_path).read() == {}


@pytest.mark.parametrize(
    ("prefix", "pattern"),
    [(8, "10.*"), (12, "10.*"), (16, "10.7.*"), (22, "10.7.*"), (24, "10.7.6.*"), (28, "10.7.6.*")],
)
def test_networks_that_end_between_octets(prefix: int, pattern: str) -> None:
    node = {**entry("n1", "compute", 1), "management_address": "10.7.6.9"}
    assert publishing.patterns_of([node], prefix) == ["n*", pattern]


def test_a_launcher_admits_launchers_alone_and_compute_nodes_each_other_only_if_asked() -> None:
    launcher, node = directory(1)[:2]
    found = publishing.logins_of(node, "mpi@c", ["10.9.0.0/16"], between_compute=True)
    assert found == {
        "principal": "mpi@c/compute",
        "admits": ["mpi@c/launcher", "mpi@c/compute"],
        "sources": ["10.0.0.11", "10.1.0.11", "10.1.1.11", "10.9.0.0/16"],
    }
    closed = publishing.logins_of(node, "mpi@c", ["10.9.0.0/16"], False)["admits"]
    itself = ",".join(str(each) for each in found["sources"][:-1])
    assert closed == ["mpi@c/launcher", f'from="{itself}" mpi@c/compute'], "from itself only"
    assert publishing.logins_of(launcher, "mpi@c", [], True)["admits"] == ["mpi@c/launcher"]


def test_compute_nodes_that_do_not_admit_each_other_only_send_packets() -> None:
    probes = publishing.probes_of(directory(2), between_compute=False)
    assert [each["target"] for each in probes["launcher"]] == ["node01", "node02"]
    assert all("rail" in probe for probe in probes["node01"])


ROLES = st.sampled_from(["compute", "launcher"])
STEMS = st.from_regex(r"[a-z0-9][a-z0-9-]{0,8}", fullmatch=True)


@st.composite
def clusters(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Nodes of several stems, numbers of rails and management addresses."""
    entries = []
    for name in draw(st.lists(STEMS, min_size=1, max_size=6, unique=True)):
        node = entry(name, draw(ROLES), draw(st.integers(1, 250)), draw(st.integers(0, 3)))
        third, fourth = draw(st.integers(0, 255)), draw(st.integers(1, 254))
        node["management_address"] = f"10.9.{third}.{fourth}"
        entries.append(node)
    return entries


def covered(name: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


@given(clusters(), st.sampled_from(["", "example.org"]), st.integers(8, 30))
def test_patterns_cover_every_name(entries: list[dict[str, Any]], domain: str, prefix: int) -> None:
    patterns = publishing.patterns_of(entries, prefix)
    for each in entries:
        for name in publishing.names_of(each, domain):
            assert covered(name, patterns), name


def test_the_launcher_reaches_every_compute_node() -> None:
    probes = publishing.probes_of(publishing.members(directory(3)))
    assert [each["target"] for each in probes["launcher"]] == ["node01", "node02", "node03"]


def test_each_compute_node_reaches_the_next_by_both_paths() -> None:
    probes = publishing.probes_of(publishing.members(directory(2)))
    assert probes["node01"] == [
        {"host": "node02", "target": "node02"},
        {"host": "node02", "target": "node02-rail0"},
        {"host": "node02", "target": "node02-rail0", "rail": "rail0"},
        {"host": "node02", "target": "node02-rail1", "rail": "rail1"},
    ]
    assert {each["host"] for each in probes["node02"]} == {"node01"}


def test_each_rail_is_tried_once_towards_the_next_node_that_has_it() -> None:
    """As many packets as there are rails, whatever nodes have them."""
    entries = [
        entry(f"node{number:02d}", "compute", number, rails)
        for number, rails in enumerate((2, 1, 3, 2))
    ]
    tried = [
        f"{here} {probe['rail']} {probe['host']} {probe.get('witness', '-')}"
        for here, probes in publishing.probes_of(entries).items()
        for probe in probes
        if "rail" in probe
    ]
    assert tried == [
        *("node00 rail0 node01 node02-rail0", "node00 rail1 node02 node03-rail1"),
        "node01 rail0 node02 node03-rail0",
        *("node02 rail0 node03 node00-rail0", "node02 rail1 node03 node00-rail1"),
        *("node03 rail0 node00 node01-rail0", "node03 rail1 node00 node02-rail1"),
    ]


def test_ports_of_most_and_of_the_others_by_every_name() -> None:
    entries = publishing.members(directory(3))
    assert publishing.ports_of(entries) == {"port": 22, "other_ports": {}}
    entries[2] = {**entries[2], "ssh_port": 2022}
    names = ["node02", "node02.x", "10.0.0.12", "node02-rail0", "node02-rail1"]
    assert publishing.ports_of(entries, "x") == {"port": 22, "other_ports": {"2022": names}}
    every = [{**each, "ssh_port": 2222} for each in entries]
    every[0] = {**every[0], "ssh_port": 22}
    found = publishing.ports_of(every)
    assert (found["port"], list(found["other_ports"])) == (2222, ["22"])
    assert found["other_ports"]["22"] == ["launcher", "10.0.0.10"]
    probes = publishing.probes_of(entries)
    assert [each.get("port") for each in probes["launcher"]] == [None, 2022, None]
