"""The authorities on the controller: made once, rotated with overlap, revoking who has left."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh.keys import digest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh.authority import (
    AuthorityError,
    AuthorityStore,
    Outcome,
    expiring,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh.journal import (
    Issued,
    Journal,
    Member,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh.publishing import (
    issue,
    published,
)

from tests.unit.ssh_cluster import DAY, NOW, keypair, ssh_keygen

NODES = ("node01", "node02")


class Cluster:
    """Runs of the authority's action and of the nodes' part, without nodes."""

    def __init__(self, folder: Path) -> None:
        self.journal = Journal(folder / "ssh-ca")
        self.store = AuthorityStore(self.journal)
        self.key = keypair(folder / "key")
        self.certificates: dict[str, dict[str, str]] = {}
        self.outcome = Outcome()

    def prepare(self, members: Sequence[str] = NODES, **options: Any) -> Outcome:
        wanted: dict[str, Any] = {
            "comment": "test",
            "now": NOW,
            "write": True,
        }
        if options.get("write", True):
            self.journal.directory.mkdir(mode=0o700, exist_ok=True)
        self.outcome = self.store.prepare(members, **{**wanted, **options})
        return self.outcome

    def lay(self, *names: str) -> None:
        """What the run does for these nodes after `prepare`."""
        messages = published([], self.outcome.authorities, b"")
        public = {"user": self.key, "host": self.key}
        for name in names:
            node = self.journal.read().get(name, Member())
            if {each.authority for each in node.latest().values()} != {messages["signs"]}:
                self.certificates[name], _records = issue(
                    self.journal,
                    name,
                    dict.fromkeys(("user", "host"), "there is none"),
                    public,
                    messages,
                    user="mpi",
                    host={"names": [name], "principal": "mpi@c/compute", "sources": []},
                    validity_days=365,
                    now=NOW,
                )
            serials = [each.serial for each in self.journal.read()[name].latest().values()]
            krl = hashlib.sha256(self.outcome.krl).hexdigest()
            self.journal.trusts(name, messages["trusted"], krl, serials)

    def laid(self) -> list[str]:
        return sorted(name for name, node in self.journal.read().items() if node.complete)

    def believed(self) -> list[str]:
        return [each.id for each in self.outcome.authorities]

    def revoked(self, name: str, kind: str, folder: Path) -> bool:
        """Whether OpenSSH itself says that a node's certificate is on the list."""
        krl, certificate = folder / "krl", folder / "x-cert.pub"
        krl.write_bytes(self.outcome.krl)
        certificate.write_text(self.certificates[name][kind])
        messages = ssh_keygen("-Q", "-f", str(krl), str(certificate))
        assert "REVOKED" in messages.stdout or messages.returncode == 0, messages
        return messages.returncode != 0


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # only time goes by
    return Cluster(tmp_path)


def test_an_authority_is_made_once(cluster: Cluster) -> None:
    first = cluster.prepare()
    assert first.made
    assert first.steps == ["authority generation-1 is made"]
    second = cluster.prepare()
    assert (second.made, second.steps) == (False, [])
    assert second.authorities == first.authorities
    assert second.krl == first.krl


def test_private_keys_are_their_owner_s_only(cluster: Cluster) -> None:
    authority = cluster.prepare().authorities[0]
    for path in authority.private.values():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for folder in (cluster.journal.directory, authority.private["user"].parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_check_mode_writes_nothing(cluster: Cluster, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    outcome = cluster.prepare(write=False)
    assert outcome.authorities == []
    assert outcome.steps == ["authority generation-1 is made"]
    assert sorted(tmp_path.rglob("*")) == before


def test_a_killed_run_is_made_good(cluster: Cluster) -> None:
    # Killed while the keys were made: they stand in a scratch directory. Killed before the state
    # was written: a whole authority that nobody knows of.
    cluster.store._make("generation-1", "test", {})
    leftover = cluster.store.directory / ".new-x"
    leftover.mkdir()
    key = cluster.store.load("generation-1").public
    outcome = cluster.prepare()
    assert outcome.authorities[0].public == key
    assert not leftover.exists()


def test_who_has_left_is_revoked_and_nobody_else(cluster: Cluster, tmp_path: Path) -> None:
    cluster.prepare()
    cluster.lay(*NODES)
    outcome = cluster.prepare(["node01"])
    assert outcome.removed == ["node02"]
    for kind in ("user", "host"):
        assert cluster.revoked("node02", kind, tmp_path)
        assert not cluster.revoked("node01", kind, tmp_path)
    again = cluster.prepare(["node01"])
    assert again.removed == []
    assert again.krl == outcome.krl, "the same list, to the bit, or every node changes"


def test_who_comes_back_is_admitted_with_new_certificates(cluster: Cluster, tmp_path: Path) -> None:
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


def test_what_was_replaced_is_revoked_and_who_has_the_old_list_is_named(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.prepare()
    cluster.lay(*NODES)
    assert cluster.store.after(NODES).outdated == []
    old = dict(cluster.certificates["node02"])
    key = [Issued("user", 1, "generation-1", NOW + DAY)]
    cluster.journal.issued("node02", key)
    cluster.lay("node02")
    cluster.outcome = cluster.store.after(NODES)
    assert cluster.outcome.outdated == ["node01", "node02"]
    assert cluster.revoked("node02", "user", tmp_path)
    assert not cluster.revoked("node02", "host", tmp_path)
    assert not cluster.revoked("node01", "user", tmp_path)
    assert cluster.certificates["node02"] == old
    cluster.lay("node01")
    assert cluster.store.after(NODES).outdated == ["node02"]
    later = cluster.prepare(now=NOW + 400 * DAY)
    assert later.krl == cluster.outcome.krl, "a list that changed by itself would be drift"


def test_a_certificate_that_had_expired_is_not_listed(cluster: Cluster) -> None:
    cluster.prepare()
    ends = {1: 1, 2: NOW}
    issued = [Issued("user", serial, "generation-1", end) for serial, end in ends.items()]
    cluster.journal.issued("node02", issued)
    cluster.journal.left("node02")
    assert cluster.prepare().revoked == {("generation-1", "user"): [2]}


def test_an_emergency_revokes_a_node_of_the_inventory_with_its_keys(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.prepare()
    cluster.lay("node02")
    cluster.key = keypair(tmp_path / "of-node01")
    cluster.lay("node01")
    stolen = dict(cluster.certificates["node01"])
    before = cluster.outcome
    assert cluster.prepare(revoke=["node01"], write=False).removed == ["node01"]
    assert cluster.prepare(revoke=["node01"]).removed == ["node01"]
    assert cluster.outcome.outdated == ["node02"]
    assert cluster.revoked("node01", "user", tmp_path)
    assert cluster.revoked("node01", "host", tmp_path)
    again = cluster.prepare(revoke=["node01"])
    assert (again.removed, again.krl == before.krl) == ([], False)
    cluster.prepare()
    assert cluster.outcome.nodes["node01"].known()["refused_keys"] == [cluster.key]
    cluster.lay("node01")
    assert cluster.certificates["node01"] != stolen
    assert cluster.revoked("node01", "user", tmp_path), "another certificate for the same key"
    with pytest.raises(AuthorityError, match="ssh_trust_revoke: nod01: neither in the inventory"):
        cluster.prepare(revoke=["nod01"])


def test_the_keys_of_a_node_that_has_left_are_revoked_as_well(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.prepare()
    cluster.lay("node02")
    shared = cluster.key
    cluster.key = keypair(tmp_path / "of-node01")
    cluster.lay("node01")
    assert cluster.prepare(["node01"], revoke=["node02"], write=False).removed == ["node02"]
    cluster.prepare(["node01"])
    assert cluster.outcome.refused_keys == []
    assert cluster.prepare(["node01"], revoke=["node02"]).removed == ["node02"]
    assert cluster.outcome.refused_keys == [shared]
    assert cluster.prepare(["node01"], revoke=["node02"]).removed == []
    assert cluster.outcome.refused_keys == [shared]


def test_a_key_that_another_node_has_as_well_stays(cluster: Cluster) -> None:
    """A cloned image, or an attacker who showed the public key of another node as its own."""
    cluster.prepare()
    cluster.lay(*NODES)
    cluster.prepare(revoke=["node02"])
    assert cluster.outcome.refused_keys == []
    why = f"key {digest(cluster.key)} of node02 is not refused: also of node01"
    assert why in cluster.outcome.steps
    cluster.prepare(revoke=NODES)
    assert cluster.outcome.steps == []
    assert set(cluster.outcome.refused_keys) == {cluster.key}


def test_a_clock_that_was_ahead_for_one_run_ends_no_revocation(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.prepare()
    cluster.lay(*NODES)
    cluster.prepare(["node01"])
    record = '{"node": "node03", "left": true, "time": 4000000000}'
    with cluster.journal.path.open("a") as stream:
        stream.write(f"\n{record}")
    cluster.prepare(["node01"])
    assert cluster.revoked("node02", "user", tmp_path)


def test_a_removal_that_was_killed_is_done_again(
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


def test_who_was_signed_for_and_never_laid_is_revoked_too(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.prepare()
    monkeypatch.setattr(cluster.journal, "trusts", lambda *_words: None)
    cluster.lay(*NODES)
    assert cluster.prepare(["node01"]).removed == ["node02"]
    assert cluster.revoked("node02", "host", tmp_path)


@pytest.mark.parametrize("write", [True, False])
def test_many_who_leave_at_once_are_a_slip_until_said_otherwise(
    write: bool, cluster: Cluster
) -> None:
    many = [f"node{number:02d}" for number in range(1, 12)]
    cluster.prepare(many)
    cluster.lay(*many)
    with pytest.raises(AuthorityError, match=r"^2 nodes .*: node10, node11\. .*_removed=2$"):
        cluster.prepare(many[:9], write=write)
    assert cluster.laid() == many
    assert not cluster.prepare(many, write=write, max_removed=-1).removed
    assert cluster.prepare(many[:10], write=write).removed == ["node11"]
    assert len(cluster.prepare(many[:1], write=write, max_removed=10).removed) == 9 + (not write)


def test_a_launcher_leaves_by_the_operator_s_word_only(cluster: Cluster) -> None:
    cluster.prepare()
    cluster.lay("node01")
    launcher = Issued("user", 7, "generation-1", NOW + DAY, principals=["mpi@c/launcher"])
    cluster.journal.issued("node02", [launcher])
    with pytest.raises(AuthorityError, match=r": launcher node02\. .*_max_removed=2$"):
        cluster.prepare(["node01"])
    assert cluster.prepare(["node01"], max_removed=2).removed == ["node02"]


def test_who_is_named_to_be_revoked_does_not_count(cluster: Cluster) -> None:
    cluster.prepare()
    cluster.lay(*NODES)
    assert cluster.prepare([], revoke=["node01"]).removed == ["node01", "node02"]


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
    assert cluster.outcome.steps == ["authority generation-2 signs once trusted by node02 too"]
    cluster.lay("node02")
    for _run in range(3):
        cluster.prepare(generation=2)
        cluster.lay("node01")
    assert cluster.believed() == ["generation-2", "generation-1"]
    assert cluster.outcome.steps == ["authority generation-1 stays until replaced on node02"]


def test_rotation_waits_for_certificates_that_did_not_arrive(
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
    assert cluster.outcome.steps == ["authority generation-1 stays until replaced on node02"]
    cluster.lay("node02")
    cluster.prepare(generation=2)
    assert cluster.believed() == ["generation-2"]


def test_no_two_nodes_ever_meet_that_do_not_believe_each_other(cluster: Cluster) -> None:
    """Whatever subset each run reaches: who signs is believed by all who were ever messages."""
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


def test_a_theft_drops_the_old_one_at_once(cluster: Cluster) -> None:
    cluster.prepare()
    cluster.lay(*NODES)
    cluster.prepare(generation=2, overlap=False)
    assert cluster.believed() == ["generation-2"]
    assert not (cluster.store.directory / "generation-1").exists()


def test_a_rotation_can_be_given_up_before_anything_is_signed(cluster: Cluster) -> None:
    cluster.prepare()
    cluster.lay(*NODES)
    cluster.prepare(generation=2)
    cluster.prepare(generation=1)
    assert cluster.believed() == ["generation-1"]


def test_going_back_is_refused_with_the_way_out(cluster: Cluster) -> None:
    cluster.prepare(generation=3)
    with pytest.raises(AuthorityError, match="set ssh_trust_ca_generation to 3 or more"):
        cluster.prepare(generation=2)


def test_an_authority_of_the_operator_signs_where_it_lies(cluster: Cluster, tmp_path: Path) -> None:
    user, host = keypair(tmp_path / "u"), keypair(tmp_path / "h", "-t", "ecdsa")
    supplied = {"user": tmp_path / "u", "host": tmp_path / "h"}
    authority = cluster.prepare(supplied=supplied).authorities[0]
    assert authority.public == {"user": user, "host": host}
    places = [path.readlink() for path in authority.private.values()]
    assert places == [tmp_path / "u", tmp_path / "h"], "no copy of it is made"
    cluster.lay(*NODES)
    assert not cluster.prepare(supplied=supplied).made


def test_the_operator_s_keys_are_there_after_a_rotation_away_from_them(
    cluster: Cluster, tmp_path: Path
) -> None:
    keypair(tmp_path / "u")
    cluster.prepare(supplied={"user": tmp_path / "u", "host": tmp_path / "u"})
    cluster.lay(*NODES)
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


def test_spoiled_state_is_named_with_the_way_out(cluster: Cluster) -> None:
    cluster.prepare()
    (cluster.journal.directory / "state.json").write_text("{")
    with pytest.raises(AuthorityError, match=r"state\.json: missing or damaged"):
        cluster.prepare()


def test_expiry_is_that_of_the_first_certificate_in_use() -> None:
    issued = [Issued("host", 3, "a", NOW), Issued("user", 1, "a", NOW + 20 * DAY)]
    issued.append(Issued("host", 2, "a", NOW + 10 * DAY))
    nodes = {"node01": Member(issued=issued), "node02": Member()}
    assert expiring(nodes, NOW, 11) == "node01 (10 days)"
    assert expiring(nodes, NOW, 10) == ""
    short = {"node01": Member(issued=[Issued("user", 1, "a", NOW + DAY // 2)])}
    assert expiring(short, NOW, 0.25) == ""
    assert expiring(short, NOW, 0.75) == "node01 (0 days)"
