"""Authorities on the controller: creation, rotation with overlap, revocation."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.messages import Message
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh.keys import digest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh.authority import (
    AuthorityError,
    AuthorityStore,
    ClusterTrust,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh.journal import (
    Issued,
    Journal,
    Member,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh.publishing import published
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh.rotation import (
    Rotation,
    advance,
    expiring,
    revocations,
)

from tests.unit.ssh_cluster import DAY, NOW, keypair, refused, signed, ssh_keygen

NODES = ("node01", "node02")


class Cluster:
    """Runs of the authority's action and of the nodes' part, without nodes."""

    def __init__(self, folder: Path) -> None:
        self.journal = Journal(folder / "ssh-ca")
        self.store = AuthorityStore(self.journal)
        self.key = keypair(folder / "key")
        self.certificates: dict[str, dict[str, str]] = {}
        self.trust = ClusterTrust()

    def prepare(self, members: Sequence[str] = NODES, **options: Any) -> ClusterTrust:
        wanted: dict[str, Any] = {"comment": "test", "now": NOW, "write": True}
        if options.get("write", True):
            self.journal.directory.mkdir(mode=0o700, exist_ok=True)
        self.trust = self.store.prepare(members, **{**wanted, **options})
        return self.trust

    def lay(self, *names: str) -> None:
        """Configure these nodes, as the run does after `prepare`."""
        messages = published([], self.trust.authorities, b"")
        for name in names:
            node = self.journal.read().get(name, Member())
            if {each.authority for each in node.latest().values()} != {messages["signs"]}:
                host = {"names": [name], "principal": "mpi@c/compute", "sources": []}
                found = signed(self.journal, name, messages, self.key, host)
                self.certificates[name] = found[0]
            serials = [each.serial for each in self.journal.read()[name].latest().values()]
            krl = hashlib.sha256(self.trust.krl).hexdigest()
            self.journal.trusts(name, messages["trusted"], krl, serials)

    def laid(self) -> list[str]:
        return sorted(name for name, node in self.journal.read().items() if node.complete)

    def believed(self) -> list[str]:
        return [each.id for each in self.trust.authorities]

    def revoked(self, name: str, kind: str, folder: Path) -> bool:
        """Whether OpenSSH finds a node's certificate on the revocation list."""
        krl, certificate = folder / "krl", folder / "x-cert.pub"
        krl.write_bytes(self.trust.krl)
        certificate.write_text(self.certificates[name][kind])
        messages = ssh_keygen("-Q", "-f", str(krl), str(certificate))
        assert "REVOKED" in messages.stdout or messages.returncode == 0, messages
        return messages.returncode != 0


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # only time goes by
    return Cluster(tmp_path)


def codes(trust: ClusterTrust) -> list[str]:
    return [step.code for step in trust.steps if isinstance(step, Message)]


def values(trust: ClusterTrust) -> dict[str, Any]:
    """Code to values of the steps."""
    return {step.code: step.values for step in trust.steps if isinstance(step, Message)}


def test_an_authority_is_made_once(cluster: Cluster) -> None:
    first = cluster.prepare()
    assert first.made
    assert codes(first) == ["ssh_authority_made"]
    second = cluster.prepare()
    assert (second.made, second.steps) == (False, [])
    assert second.authorities == first.authorities
    assert second.krl == first.krl


def test_check_mode_writes_nothing(cluster: Cluster, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    trust = cluster.prepare(write=False)
    assert trust.authorities == []
    assert codes(trust) == ["ssh_authority_made"]
    assert sorted(tmp_path.rglob("*")) == before


def test_a_killed_run_is_completed(cluster: Cluster) -> None:
    # Killed while the keys were created: a scratch directory. Killed before the state was written:
    # a complete authority that is not in use.
    cluster.store._make("generation-1", "test", {})
    leftover = cluster.store.directory / ".new-x"
    leftover.mkdir()
    key = cluster.store.load("generation-1").public
    trust = cluster.prepare()
    assert trust.authorities[0].public == key
    assert not leftover.exists()


def test_only_departed_nodes_are_revoked(cluster: Cluster, tmp_path: Path) -> None:
    cluster.prepare()
    cluster.lay(*NODES)
    trust = cluster.prepare(["node01"])
    assert trust.removed == ["node02"]
    for kind in ("user", "host"):
        assert cluster.revoked("node02", kind, tmp_path)
        assert not cluster.revoked("node01", kind, tmp_path)
    again = cluster.prepare(["node01"])
    assert again.removed == []
    assert again.krl == trust.krl, "otherwise every node changes"


def test_a_returning_node_gets_new_certificates(cluster: Cluster, tmp_path: Path) -> None:
    cluster.prepare()
    cluster.lay(*NODES)
    old = dict(cluster.certificates["node02"])
    cluster.prepare(["node01"])
    cluster.prepare(NODES)
    cluster.lay("node02")
    assert cluster.certificates["node02"] != old
    assert not cluster.revoked("node02", "user", tmp_path)
    cluster.certificates["node02"] = old
    assert cluster.revoked("node02", "user", tmp_path)


def test_replaced_certificates_are_revoked(cluster: Cluster, tmp_path: Path) -> None:
    cluster.prepare()
    cluster.lay(*NODES)
    assert cluster.store.after(NODES).outdated == []
    old = dict(cluster.certificates["node02"])
    key = [Issued("user", 1, "generation-1", NOW + DAY)]
    cluster.journal.issued("node02", key)
    cluster.lay("node02")
    cluster.trust = cluster.store.after(NODES)
    assert cluster.trust.outdated == ["node01", "node02"]
    assert cluster.revoked("node02", "user", tmp_path)
    assert not cluster.revoked("node02", "host", tmp_path)
    assert not cluster.revoked("node01", "user", tmp_path)
    assert cluster.certificates["node02"] == old
    cluster.lay("node01")
    assert cluster.store.after(NODES).outdated == ["node02"]
    later = cluster.prepare(now=NOW + 400 * DAY)
    assert later.krl == cluster.trust.krl, "a list that changes over time would be drift"


def test_a_node_of_the_inventory_is_revoked_with_its_keys(cluster: Cluster, tmp_path: Path) -> None:
    cluster.prepare()
    cluster.lay("node02")
    cluster.key = keypair(tmp_path / "of-node01")
    cluster.lay("node01")
    stolen = dict(cluster.certificates["node01"])
    before = cluster.trust
    assert cluster.prepare(revoke=["node01"], write=False).removed == ["node01"]
    assert cluster.prepare(revoke=["node01"]).removed == ["node01"]
    assert cluster.trust.outdated == ["node02"]
    assert cluster.revoked("node01", "user", tmp_path)
    assert cluster.revoked("node01", "host", tmp_path)
    again = cluster.prepare(revoke=["node01"])
    assert (again.removed, again.krl == before.krl) == ([], False)
    cluster.prepare()
    assert cluster.trust.nodes["node01"].known()["refused_keys"] == [cluster.key]
    cluster.lay("node01")
    assert cluster.certificates["node01"] != stolen
    assert cluster.revoked("node01", "user", tmp_path), "another certificate for the same key"
    with refused(AuthorityError, "ssh_revoke_unknown", names="nod01"):
        cluster.prepare(revoke=["nod01"])


def test_keys_of_a_departed_node_are_revoked(cluster: Cluster, tmp_path: Path) -> None:
    cluster.prepare()
    cluster.lay("node02")
    shared = cluster.key
    cluster.key = keypair(tmp_path / "of-node01")
    cluster.lay("node01")
    assert cluster.prepare(["node01"], revoke=["node02"], write=False).removed == ["node02"]
    cluster.prepare(["node01"])
    assert cluster.trust.revoked.keys == []
    assert cluster.prepare(["node01"], revoke=["node02"]).removed == ["node02"]
    assert cluster.trust.revoked.keys == [shared]
    assert cluster.prepare(["node01"], revoke=["node02"]).removed == []
    assert cluster.trust.revoked.keys == [shared]


def test_a_shared_key_is_not_refused(cluster: Cluster) -> None:
    """A cloned image, or an attacker who presented another node's public key."""
    cluster.prepare()
    cluster.lay(*NODES)
    cluster.prepare(revoke=["node02"])
    assert cluster.trust.revoked.keys == []
    shared = {"key": digest(cluster.key), "name": "node02", "others": "node01"}
    assert values(cluster.trust)["ssh_key_shared"] == shared
    cluster.prepare(revoke=NODES)
    assert cluster.trust.steps == []
    assert set(cluster.trust.revoked.keys) == {cluster.key}


def test_a_clock_ahead_ends_no_revocation(cluster: Cluster, tmp_path: Path) -> None:
    cluster.prepare()
    cluster.lay(*NODES)
    cluster.prepare(["node01"])
    record = '{"node": "node03", "left": true, "time": 4000000000}'
    with cluster.journal.path.open("a") as stream:
        stream.write(f"\n{record}")
    cluster.prepare(["node01"])
    assert cluster.revoked("node02", "user", tmp_path)


def test_a_killed_removal_is_repeated(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.prepare()
    cluster.lay(*NODES)

    def killed(name: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(cluster.journal, "left", killed)
        cluster.prepare(["node01"])
    assert cluster.prepare(["node01"]).removed == ["node02"]
    assert cluster.revoked("node02", "user", tmp_path)
    assert cluster.prepare(["node01"]).removed == []


@pytest.mark.parametrize("write", [True, False])
def test_many_departures_need_consent(write: bool, cluster: Cluster) -> None:
    many = [f"node{number:02d}" for number in range(1, 12)]
    cluster.prepare(many)
    cluster.lay(*many)
    with refused(AuthorityError, "ssh_many_left", names="node10, node11", count=2, limit=1):
        cluster.prepare(many[:9], write=write)
    assert cluster.laid() == many
    assert not cluster.prepare(many, write=write, max_removed=-1).removed
    assert cluster.prepare(many[:10], write=write).removed == ["node11"]
    assert len(cluster.prepare(many[:1], write=write, max_removed=10).removed) == 9 + (not write)


def test_a_departing_launcher_needs_consent(cluster: Cluster) -> None:
    cluster.prepare()
    cluster.lay("node01")
    launcher = Issued("user", 7, "generation-1", NOW + DAY, principals=["mpi@c/launcher"])
    cluster.journal.issued("node02", [launcher])
    with refused(AuthorityError, "ssh_many_left", names="launcher node02", count=2):
        cluster.prepare(["node01"])
    assert cluster.prepare([], revoke=NODES, write=False).removed == ["node01", "node02"]
    assert cluster.prepare(["node01"], max_removed=2).removed == ["node02"]


def test_rotation_takes_one_step_for_each_run(cluster: Cluster) -> None:
    cluster.prepare()
    cluster.lay(*NODES)
    seen = []
    for _run in range(4):
        cluster.prepare(generation=2)
        seen.append(cluster.believed())
        cluster.lay(*NODES)
    one, two = "generation-1", "generation-2"
    assert seen == [[one, two], [two, one], [two], [two]]
    assert not (cluster.store.directory / one).exists(), "its private keys are deleted"


def test_rotation_waits_for_a_node_that_is_away(cluster: Cluster) -> None:
    cluster.prepare()
    cluster.lay(*NODES)
    for _run in range(3):
        cluster.prepare(generation=2)
        cluster.lay("node01")
    assert cluster.believed() == ["generation-1", "generation-2"]
    assert values(cluster.trust)["ssh_authority_waits"]["nodes"] == "node02"
    cluster.lay("node02")
    for _run in range(3):
        cluster.prepare(generation=2)
        cluster.lay("node01")
    assert cluster.believed() == ["generation-2", "generation-1"]
    assert values(cluster.trust)["ssh_authority_kept"]["nodes"] == "node02"


def test_rotation_waits_for_undelivered_certificates(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.prepare()
    cluster.lay(*NODES)
    cluster.prepare(generation=2)
    cluster.lay(*NODES)
    cluster.prepare(generation=2)
    cluster.lay("node01")
    with monkeypatch.context() as patch:
        patch.setattr(cluster.journal, "trusts", lambda *_words: None)
        cluster.lay("node02")
    cluster.prepare(generation=2)
    assert cluster.believed() == ["generation-2", "generation-1"]
    cluster.lay("node02")
    cluster.prepare(generation=2)
    assert cluster.believed() == ["generation-2"]


def test_nodes_always_trust_each_other(cluster: Cluster) -> None:
    """Whatever subset each run reaches, every configured node trusts every authority in use."""
    cluster.prepare()
    cluster.lay(*NODES)
    reached = [("node01",), ("node02",), (), ("node02",), ("node01",), ("node01",), ("node02",)]
    for generation in (2, 3):
        for names in reached:
            cluster.prepare(generation=generation)
            cluster.lay(*names)
            nodes = list(cluster.journal.read().values())
            used = {each.authority for node in nodes for each in node.latest().values()}
            for node in nodes:
                assert used <= set(node.trusts)
    assert cluster.believed()[0] == "generation-3"


def test_a_rotation_can_be_cancelled_or_forced(cluster: Cluster) -> None:
    cluster.prepare(generation=3)
    cluster.lay(*NODES)
    cluster.prepare(generation=4)
    cluster.prepare(generation=3)
    assert cluster.believed() == ["generation-3"]
    with refused(AuthorityError, "ssh_generation_back", used=3):
        cluster.prepare(generation=2)
    cluster.prepare(generation=4)
    cluster.prepare(generation=4, overlap=False)
    assert cluster.believed() == ["generation-4"]
    assert not (cluster.store.directory / "generation-3").exists()


def test_a_successor_waits_until_the_predecessor_is_dropped() -> None:
    rotation = Rotation("generation-2", next="generation-3", previous="generation-1")
    nodes = {"node01": Member(trusts=["generation-1", "generation-2", "generation-3"])}
    assert advance(rotation, "generation-3", nodes, overlap=True)[0] == rotation


def test_certificates_that_expired_at_the_last_departure_are_omitted() -> None:
    certificates = [Issued("user", serial, "a", 1000 + serial) for serial in (1, 2)]
    listed = revocations({"node01": Member(revoked=certificates, revoked_at=1001)})
    assert listed.serials == {("a", "user"): [2]}


def test_the_operator_s_authority_is_not_copied(cluster: Cluster, tmp_path: Path) -> None:
    user, host = keypair(tmp_path / "u"), keypair(tmp_path / "h", "-t", "ecdsa")
    supplied = {"user": tmp_path / "u", "host": tmp_path / "h"}
    authority = cluster.prepare(supplied=supplied).authorities[0]
    assert authority.public == {"user": user, "host": host}
    places = [path.readlink() for path in authority.private.values()]
    assert places == [tmp_path / "u", tmp_path / "h"], "no copy of it is made"
    cluster.lay(*NODES)
    assert not cluster.prepare(supplied=supplied).made
    for _run in range(3):
        cluster.prepare()
        cluster.lay(*NODES)
    assert cluster.believed() == ["generation-1"]
    assert (tmp_path / "u").exists()


def test_a_supplied_key_that_is_missing_is_named(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(AuthorityError, match="absent: no such file"):
        cluster.prepare(supplied={"user": tmp_path / "absent", "host": tmp_path / "absent"})
    keypair(tmp_path / "u")
    (tmp_path / "u.pub").unlink()
    with pytest.raises(AuthorityError, match=r"u\.pub: missing .* ssh-keygen -y -f"):
        cluster.prepare(supplied={"user": tmp_path / "u", "host": tmp_path / "u"})


def test_a_missing_authority_is_reported_before_another_is_deleted(cluster: Cluster) -> None:
    cluster.prepare()
    (cluster.store.directory / "generation-1").rename(cluster.store.directory / "generation-7")
    with pytest.raises(AuthorityError, match="generation-1: missing or damaged"):
        cluster.prepare()
    (cluster.store.directory / "generation-7").rename(cluster.journal.directory / "away")
    cluster.store.directory.rmdir()
    with pytest.raises(AuthorityError, match="generation-1: missing or damaged"):
        cluster.prepare()
    assert (cluster.journal.directory / "away/user_ca").is_file()
    (cluster.journal.directory / "state.json").write_text("{")
    with pytest.raises(AuthorityError, match=r"state\.json: missing or damaged"):
        cluster.prepare()


def test_expiry_of_the_first_certificate_counts() -> None:
    issued = [Issued("host", 3, "a", NOW), Issued("user", 1, "a", NOW + 20 * DAY)]
    issued.append(Issued("host", 2, "a", NOW + 10 * DAY))
    nodes = {"node01": Member(issued=issued), "node02": Member()}
    assert expiring(nodes, NOW, 11) == "node01 (10 days)"
    assert expiring(nodes, NOW, 10) == ""
    short = {"node01": Member(issued=[Issued("user", 1, "a", NOW + DAY // 2)])}
    assert expiring(short, NOW, 0.25) == ""
    assert expiring(short, NOW, 0.75) == "node01 (0 days)"
