"""The actions ssh_authority and ssh_trust: one module call, or two with signing in between."""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.action import ssh_authority, ssh_trust
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh.keys import digest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh import publishing
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh.authority import (
    AuthorityError,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh.journal import Journal
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh.signing import SigningError

from tests.unit.ssh_cluster import arguments, directory, keypair, refused


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # slow, and without effect here


class Host:
    """A node behind the action: it reports its keys and stores the certificates it receives."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.name = folder, name
        self.keys = {kind: keypair(folder / f"{name}-{kind}") for kind in ("user", "host")}
        self.kept: dict[str, str] = {}
        self.calls: list[dict[str, Any]] = []
        self.answer: dict[str, Any] = {}

    def execute(self, module_args: dict[str, Any]) -> dict[str, Any]:
        self.calls.append(json.loads(json.dumps(module_args)))
        module_args = module_args["signed"]
        self.kept.update(module_args.get("certificates", {}))
        for kind in [each for each, key in self.keys.items() if key in module_args["refused_keys"]]:
            self.keys[kind] = keypair(self.folder / f"{self.name}-{kind}-anew")
        digests = {kind: digest(text) for kind, text in self.kept.items()}
        sign = {
            kind: "there is none"
            for kind in ("user", "host")
            if digests.get(kind, "") != module_args["issued"].get(kind, {}).get("digest")
        }
        answer = {"changed": bool(sign), "diff": [], "sign": sign, "public_keys": self.keys}
        return {**answer, **self.answer}

    def run(
        self,
        messages: dict[str, Any],
        *,
        check_mode: bool = False,
        passphrase: str = "",
        **more: Any,
    ) -> dict[str, Any]:
        self.calls = []
        host = json.loads(json.dumps(messages["hosts"][self.name]))
        session = ssh_trust.SigningSession(
            {"authority": messages["authority"], "host": host, **more},
            name=self.name,
            journal=Journal(Path(messages["state_directory"])),
            passphrase=passphrase,
            execute=self.execute,
        )
        return session.configure(check_mode=check_mode)


def prepared(folder: Path, *, write: bool = True, **changes: Any) -> dict[str, Any]:
    return ssh_authority.prepare(arguments(folder, **changes), write=write)


def laid(folder: Path) -> list[str]:
    nodes = Journal(folder / "ssh-ca").read()
    return sorted(name for name, node in nodes.items() if node.complete)


def test_a_new_node_takes_two_module_calls(tmp_path: Path) -> None:
    messages, host = prepared(tmp_path), Host(tmp_path, "node01")
    first = host.run(messages)
    assert (len(host.calls), first["changed"], set(first["sign"])) == (2, True, {"user", "host"})
    again = host.run(prepared(tmp_path))
    assert (len(host.calls), again["changed"], again["sign"]) == (1, False, {})


def test_only_missing_certificates_are_signed(tmp_path: Path) -> None:
    host = Host(tmp_path, "node01")
    host.run(prepared(tmp_path))
    user = host.kept["user"]
    del host.kept["host"]
    host.run(prepared(tmp_path))
    assert list(host.calls[1]["signed"]["certificates"]) == ["host"]
    assert host.kept["user"] == user
    del host.kept["user"]
    assert list(host.run(prepared(tmp_path))["sign"]) == ["user"]


def test_a_changed_host_key_causes_a_warning(tmp_path: Path) -> None:
    host = Host(tmp_path, "node01")
    assert "warnings" not in host.run(prepared(tmp_path))
    before, host.kept = digest(host.keys["host"]), {}
    host.keys["host"] = keypair(tmp_path / "another")
    (warning,) = host.run(prepared(tmp_path))["warnings"]
    assert f"node01 changed from {before} to {digest(host.keys['host'])}" in warning


def test_a_node_cannot_ask_for_other_kinds_of_certificates(tmp_path: Path) -> None:
    messages, host = prepared(tmp_path), Host(tmp_path, "node01")
    host.answer = {"sign": {"user": "there is none", "launcher": "please"}}
    host.keys["launcher"] = host.keys["user"]
    host.run(messages)
    assert list(host.calls[1]["signed"]["certificates"]) == ["user"]


def test_a_host_s_reason_is_one_line_in_the_journal(tmp_path: Path) -> None:
    host = Host(tmp_path, "node01")
    host.answer = {"sign": {"user": "a\nb {{ 7 * 7 }}\x1b" + "x" * 900, "host": [1]}}
    host.run(prepared(tmp_path))
    lines = (tmp_path / "ssh-ca/journal.jsonl").read_text(encoding="utf-8").splitlines()
    (said,) = [
        each
        for line in lines
        for each in [json.loads(line or "{}").get("reason")]
        if "xx" in str(each)
    ]
    assert said.startswith("a b 7 * 7 x") and len(said) <= 300 and said.isprintable()


def test_a_revoked_node_gets_no_certificate(tmp_path: Path) -> None:
    hosts = [Host(tmp_path, name) for name in ("node01", "node02")]
    for host in hosts:
        host.run(prepared(tmp_path))
    messages = prepared(tmp_path, revoke=["node01"])
    assert messages["warnings"][0].startswith("ssh: node01 left the inventory, or is in ssh_trust_")
    with refused(ssh_trust.NotSignedError, "ssh_node_revoked", name="node01"):
        hosts[0].run(messages)
    assert hosts[0].calls == []
    after = {"revoke": ["node01"], "after": True}
    refused_by = "ssh: node01 refused by "
    old = "ssh: nodes with an old revocation list: node02"
    assert prepared(tmp_path, **after)["warnings"] == [f"{refused_by}none", old]
    hosts[1].run(messages)
    assert prepared(tmp_path, **after)["warnings"] == [f"{refused_by}node02"]
    had = list(hosts[0].keys.values())
    hosts[0].run(prepared(tmp_path))
    assert hosts[0].calls[0]["signed"]["refused_keys"] == had


def test_a_killed_replacement_is_completed_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host(tmp_path, "node01")
    host.run(prepared(tmp_path))
    old, host.kept = Journal(tmp_path / "ssh-ca").read()["node01"].issued, {}

    def killed(*_words: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Journal, "trusts", killed)
        host.run(prepared(tmp_path))
    again = host.run(prepared(tmp_path))
    assert (again["sign"], len(host.calls)) == ({}, 1), "the node has its certificates"
    node = Journal(tmp_path / "ssh-ca").read()["node01"]
    assert (node.revoked, node.known()["pending"]) == (old, False)
    host.run(prepared(tmp_path))  # it gets the list
    lines = (tmp_path / "ssh-ca/journal.jsonl").read_text()
    host.run(prepared(tmp_path))
    assert (tmp_path / "ssh-ca/journal.jsonl").read_text() == lines


def test_nodes_about_to_be_updated_cause_no_warning(tmp_path: Path) -> None:
    hosts = [Host(tmp_path, name) for name in ("node01", "node02")]
    for host in hosts:
        host.run(prepared(tmp_path))
    hosts[0].kept = {}
    hosts[0].run(prepared(tmp_path))
    after = prepared(tmp_path, after=True, reached=["node01"])
    assert after["warnings"] == ["ssh: nodes with an old revocation list: node02"]
    assert prepared(tmp_path, after=True, reached=["node01", "node02"])["warnings"] == []


@pytest.mark.parametrize("end", ["left", "revoked"])
def test_a_node_that_returns_after_a_rotation_is_known(end: str, tmp_path: Path) -> None:
    host = Host(tmp_path, "node01")
    host.run(prepared(tmp_path))
    assert host.calls[0].get("replace_authority") is None, "it has no record yet"
    getattr(Journal(tmp_path / "ssh-ca"), end)("node01")
    host.run(prepared(tmp_path, ca_generation=2, ca_overlap=False))
    assert host.calls[0]["replace_authority"] is True


def test_a_revoked_key_is_signed_for_no_node(tmp_path: Path) -> None:
    """Root on another node could have a stolen key admitted again by it."""
    owner, thief = Host(tmp_path, "node01"), Host(tmp_path, "node02")
    owner.run(prepared(tmp_path))
    prepared(tmp_path, revoke=["node01"])
    messages = prepared(tmp_path)
    for kind, key in owner.keys.items():
        thief.answer = {"public_keys": {**thief.keys, kind: key}}
        with refused(SigningError, "ssh_key_revoked", kind=kind, key=digest(key)):
            thief.run(messages)
    assert prepared(tmp_path)["authority"]["revoked"] == messages["authority"]["revoked"]


@pytest.mark.parametrize("wrong", ["gateway", "10.30.0.9/24", "10.30.0.0/33", ""])
def test_an_invalid_source_stops_the_run(wrong: str, tmp_path: Path) -> None:
    with pytest.raises(AuthorityError, match=r"ssh_trust_extra_sources: .*: wanted addresses"):
        prepared(tmp_path, extra_sources=["10.30.0.9", wrong])
    messages = prepared(tmp_path, extra_sources=["10.30.0.9", "10.31.0.0/255.255.0.0", "fd00::/8"])
    assert messages["hosts"]["node01"]["sources"][-3:] == [
        "10.30.0.9/32",
        "10.31.0.0/16",
        "fd00::/8",
    ]


def test_a_certificate_lasts_longer_than_its_renewal(tmp_path: Path) -> None:
    with refused(ssh_trust.NotSignedError, "ssh_renewal_too_early", days=0.5):
        Host(tmp_path, "node01").run(prepared(tmp_path), validity_days=0.5, renew_days=0.5)


def test_check_mode_signs_nothing(tmp_path: Path) -> None:
    messages, host = prepared(tmp_path), Host(tmp_path, "node01")
    host.run(messages, check_mode=True)
    assert (len(host.calls), host.kept) == (1, {})
    assert not laid(tmp_path)


def test_a_failed_node_is_not_recorded(tmp_path: Path) -> None:
    messages, host = prepared(tmp_path), Host(tmp_path, "node01")
    host.answer = {"failed": True, "msg": "sshd refuses"}
    assert host.run(messages)["failed"]
    assert not laid(tmp_path)


def test_a_refused_certificate_is_an_error(tmp_path: Path) -> None:
    messages, host = prepared(tmp_path), Host(tmp_path, "node01")
    host.answer = {"sign": {"user": "not valid yet"}}
    result = host.run(messages)
    assert (len(host.calls), result["failed"]) == (2, True)
    assert result["msg"] == "ssh: a new certificate is refused: user: not valid yet"


@pytest.mark.parametrize(
    ("error", "where"),
    [
        (ssh_trust.NotSignedError("why"), "ssh: why"),
        (SigningError("why"), "ssh: on the controller: why"),
        (PermissionError(13, "denied", "/ca"), "ssh: on the controller: /ca: denied"),
    ],
)
def test_a_task_cannot_set_what_the_action_sets(
    error: Exception, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    action = ssh_trust.ActionModule.__new__(ssh_trust.ActionModule)
    given = {"state_directory": str(tmp_path), "host": {"known": {"x": 1}}, "user": "mpi"}
    given.update(signed={"certificates": {"user": "x"}, "now": 1})
    action._task = SimpleNamespace(
        args=given, check_mode=False, async_val=0, diff=False, until=None, retries=None
    )
    action._connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None))
    action._templar = SimpleNamespace(template=str)
    seen: dict[str, Any] = {}

    def stopped(arguments: dict[str, Any], **_more: Any) -> None:
        seen.update(arguments)
        raise error

    monkeypatch.setattr(ssh_trust, "SigningSession", stopped)
    assert action.run(task_vars={"inventory_hostname": "n"}) == {"failed": True, "msg": where}
    assert seen == {"host": {"known": {"x": 1}}, "user": "mpi"}


def test_a_replaced_certificate_asks_for_a_second_play_and_nothing_else_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh_trust.look.C, "DEFAULT_LOCAL_TMP", str(tmp_path))
    host, asked = Host(tmp_path, "node01"), []

    def run() -> None:
        host.run(prepared(tmp_path))
        asked.append(ssh_trust.look.pattern_again("ssh"))
        ssh_trust.look.forget()

    run()
    run()
    # Another program has signed and installed a certificate (pull, or a run that was killed).
    journal = Journal(tmp_path / "ssh-ca")
    issued = journal.read()["node01"].latest()["user"]
    host.kept["user"] = "renewed"
    journal.issued("node01", [replace(issued, serial=77, digest=digest("renewed"))])
    run()
    run()
    assert asked == ["compute:launcher", "!all", "compute:launcher", "!all"]


def looked(folder: Path, **changes: Any) -> dict[str, Any]:
    return ssh_authority.looked(arguments(folder, **changes))


def test_the_look_has_the_authority_while_no_step_is_due(tmp_path: Path) -> None:
    nothing = {"changed": False}
    assert looked(tmp_path) == nothing  # before the first run
    for name in ("node01", "launcher"):
        Host(tmp_path, name).run(prepared(tmp_path))
    before, found = prepared(tmp_path), looked(tmp_path)
    assert {key: found[key] for key in ("authority", "hosts")} == {
        key: before[key] for key in ("authority", "hosts")
    }
    assert ssh_trust.current(found, "node01") is not None
    assert ssh_trust.current(found, "node02") is None  # it never had a run
    assert looked(tmp_path, ca_generation=2) == nothing  # a rotation
    assert looked(tmp_path, warn_days=10_000) == nothing  # certificates expire soon
    assert looked(tmp_path, revoke=["node01"]) == nothing
    (tmp_path / "ssh-ca/known_hosts").unlink()
    assert looked(tmp_path) == nothing


def test_check_mode_does_not_say_that_nodes_are_refused(tmp_path: Path) -> None:
    for name in ("node01", "launcher"):
        Host(tmp_path, name).run(prepared(tmp_path))
    for write, count in ((True, 1), (False, 0)):
        warned = prepared(tmp_path, write=write, after=True, revoke=["node01"])["warnings"]
        assert len(warned) == count
    journal = Journal(tmp_path / "ssh-ca")
    journal.trusts("node01", ["generation-1"], "of an old list")
    warned = prepared(tmp_path, write=False, after=True, reached=["launcher"])["warnings"]
    assert warned == ["ssh: nodes with an old revocation list: node01"]


def test_nodes_receive_no_secret(tmp_path: Path) -> None:
    messages, host = prepared(tmp_path, ca_passphrase="horse"), Host(tmp_path, "node01")
    result = host.run(messages, passphrase="horse")
    assert len(host.calls) == 2, "it was signed with the passphrase"
    said = json.dumps([messages, result, host.calls])
    assert "PRIVATE KEY" not in said
    assert "horse" not in said
    assert all(set(call["authority"]).isdisjoint(ssh_trust.ON_CONTROLLER) for call in host.calls)
    for path in (tmp_path / "ssh-ca").rglob("*_ca"):
        assert path.read_text().splitlines()[2] not in said


def test_removed_nodes_are_reported(tmp_path: Path) -> None:
    for name in ("node01", "node02"):
        Host(tmp_path, name).run(prepared(tmp_path))
    for write in (False, True):
        messages = prepared(tmp_path, directory=directory(1), write=write)
        assert (messages["removed"], messages["changed"]) == (["node02"], True)
        assert messages["warnings"][0].startswith("ssh: node02 left the inventory")
    assert prepared(tmp_path, directory=directory(1))["removed"] == []


def test_known_hosts_changes_only_by_rotation(tmp_path: Path) -> None:
    known, hosts = tmp_path / "ssh-ca/known_hosts", [Host(tmp_path, "node01")]
    prepared(tmp_path, write=False, directory=directory(1))
    assert not known.exists()
    first = prepared(tmp_path, directory=directory(1))
    assert first["changed"] and known.stat().st_mode & 0o777 == 0o644
    (key,) = first["authority"]["host_authorities"]
    line = f"@cert-authority {','.join(first['authority']['patterns'])} {key}"
    assert known.read_text().splitlines()[1:] == [line]
    laid = known.stat()
    hosts[0].run(prepared(tmp_path, directory=directory(1)))
    with pytest.raises(ssh_trust.NotSignedError):
        hosts[0].run(prepared(tmp_path, directory=directory(1), revoke=["node01"]))
    again = prepared(tmp_path, directory=directory(2))
    assert (again["changed"], known.stat().st_ino) == (False, laid.st_ino)
    told = prepared(tmp_path, write=False, management_prefix=16)
    assert told["changed"] and told["diff"] and known.stat().st_ino == laid.st_ino
    (shown,) = prepared(tmp_path, ca_generation=2)["diff"]
    assert shown["before"].splitlines()[1:] == [line]
    assert known.read_text() == shown["after"]
    assert [each == line for each in shown["after"].splitlines()[1:]] == [True, False]


def test_incomplete_nodes_are_listed(tmp_path: Path) -> None:
    assert prepared(tmp_path)["incomplete"] == ["launcher", "node01", "node02"]
    Host(tmp_path, "node01").run(prepared(tmp_path))
    half = Host(tmp_path, "node02")
    half.answer = {"sign": {"user": "not valid yet"}}
    assert half.run(prepared(tmp_path))["failed"], "signed, and never completed"
    assert prepared(tmp_path)["incomplete"] == ["launcher", "node02"]
    # Others refuse a revoked node: a login there is a failure, not one that cannot be tried yet.
    half.answer = {}
    half.run(prepared(tmp_path))
    prepared(tmp_path, directory=directory(1))
    assert prepared(tmp_path)["incomplete"] == ["launcher"]
    assert prepared(tmp_path, revoke=["node02"])["incomplete"] == ["launcher", "node02"]


def test_expiry_causes_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)  # one second later, it is one day less
    Host(tmp_path, "node01").run(prepared(tmp_path))
    assert prepared(tmp_path)["warnings"] == []
    (warning,) = prepared(tmp_path, warn_days=91)["warnings"]
    assert warning.startswith("ssh: certificates of node01 (90 days) expire within 91 days")


def second(number: int = 60) -> list[dict[str, Any]]:
    """A copy of the inventory for other machines, with its `name:` and names unchanged."""
    return [
        {**each, "management_address": f"10.0.9.{number + place}"}
        for place, each in enumerate(directory(2))
    ]


def contents(folder: Path) -> dict[str, bytes]:
    """All files but the lock; empty lines in the journal are not records."""
    files = [each for each in folder.rglob("*") if each.is_file() and each.name != "lock"]
    return {str(each): each.read_bytes().strip() for each in files}


def renamed() -> list[dict[str, Any]]:
    return [{**each, "name": f"st-{each['name']}"} for each in second()]


@pytest.mark.parametrize("other", [second(), renamed()], ids=["addresses", "names"])
def test_state_of_another_cluster_is_refused(tmp_path: Path, other: list[dict[str, Any]]) -> None:
    for name in ("launcher", "node01", "node02"):
        Host(tmp_path, name).run(prepared(tmp_path))
    path = tmp_path / "ssh-ca/identity.json"
    own = json.loads(path.read_text())["id"]
    before = contents(tmp_path / "ssh-ca")
    for write in (False, True):
        with pytest.raises(AuthorityError) as caught:
            prepared(tmp_path, directory=other, write=write, max_removed=99)
        text = str(caught.value)
        assert f"{tmp_path / 'ssh-ca'} is the state of another cluster (id {own})" in text
        assert "launcher 10.0.0.10, node01 10.0.0.11, node02 10.0.0.12" in text
        word = re.search(r"-e ssh_trust_take_over=([0-9a-f]{12});", text)
    assert contents(tmp_path / "ssh-ca") == before
    assert laid(tmp_path) == ["launcher", "node01", "node02"]
    assert word
    handed_over = prepared(tmp_path, directory=other, take_over=word[1])
    gone = [] if other == second() else ["launcher", "node01", "node02"]
    assert handed_over["removed"] == gone
    assert prepared(tmp_path, directory=other)["removed"] == [], "said once"
    expected = {each["name"]: each["management_address"] for each in publishing.members(other)}
    identity = json.loads(path.read_text())
    assert (identity["members"], identity["id"]) == (expected, own)
    if other == second():
        with pytest.raises(AuthorityError, match="another cluster"):
            prepared(tmp_path, take_over=word[1])


def test_without_identity_names_decide(tmp_path: Path) -> None:
    for name in ("launcher", "node01", "node02"):
        Host(tmp_path, name).run(prepared(tmp_path))
    (tmp_path / "ssh-ca/identity.json").unlink()
    with pytest.raises(AuthorityError, match="another cluster"):
        prepared(tmp_path, directory=renamed(), max_removed=99)
    assert prepared(tmp_path)["removed"] == []


def test_an_inventory_that_is_edited_is_the_same_cluster(tmp_path: Path) -> None:
    """Hosts are added, one is renamed, one gets another address; and one leaves."""
    for name in ("launcher", "node01", "node02"):
        Host(tmp_path, name).run(prepared(tmp_path))
    wide = directory(9)
    prepared(tmp_path, directory=wide)
    for name in [each["name"] for each in wide if each["role"] == "compute"][2:5]:
        Host(tmp_path, name).run(prepared(tmp_path, directory=wide))
    wide[2] = {**wide[2], "management_address": "10.0.0.99"}
    wide[3] = {**wide[3], "name": "renamed"}
    assert prepared(tmp_path, directory=wide)["removed"] == ["node03"]
    wide.pop(4)
    assert prepared(tmp_path, directory=wide)["removed"] == ["node04"]
    identity = json.loads((tmp_path / "ssh-ca/identity.json").read_text())
    assert identity["members"]["node02"] == "10.0.0.99"
    assert len({change["digest"] for change in identity["history"]}) == 4


def test_a_damaged_identity_stops_the_run(tmp_path: Path) -> None:
    prepared(tmp_path)
    for text in ("", "null", "[]", '{"members": 1}', '{"members": {}, "id": "x", "history": []}'):
        (tmp_path / "ssh-ca/identity.json").write_text(text)
        with pytest.raises(AuthorityError, match=r"identity\.json: damaged"):
            prepared(tmp_path)
