"""The trust on one node below a temporary root, with a simulated sshd and the real ssh-keygen."""

from __future__ import annotations

import dataclasses
import os
import pwd
import shutil
import stat
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result, run
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import Node, PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh import account as accounts
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh import keys, texts, trust
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh import publishing
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh.authority import AuthorityStore
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh.journal import Journal, Member

from tests.unit.ssh_cluster import DAY, NOW, directory, keypair, signed

pytestmark = pytest.mark.slow

MAIN = "Include /etc/ssh/sshd_config.d/*.conf\nUsePAM yes\n"
UID, GID = os.getuid(), os.getgid()
NAMES = {
    "own": keys.OWN,
    "user_key": keys.USER_KEY,
    "user_certificate": texts.CERTIFICATES["user"],
    "host_certificate": texts.CERTIFICATES["host"],
    "user_authorities": texts.USER_AUTHORITIES,
    "principals": texts.PRINCIPALS,
    "revoked": keys.REVOKED,
    "known_hosts": keys.KNOWN_HOSTS,
    "host_key": trust.HOST_KEY,
    "sshd_config": trust.SSHD_CONFIG,
    "sshd_drop_in": trust.SSHD_DROP_IN,
    "ssh_config": trust.SSH_CONFIG,
    "ssh_drop_in": trust.SSH_DROP_IN,
    "lock": trust.LOCK,
}


def placed(root: Path) -> SimpleNamespace:
    """Paths of the files of the trust below `root`."""
    return SimpleNamespace(root=root, **{k: root / v.lstrip("/") for k, v in NAMES.items()})


class Machine:
    """A node's file system, an sshd that reads it on reload, and the controller."""

    def __init__(self, folder: Path) -> None:
        self.places = placed(folder / "root")
        self.home = folder / "home"
        for path in (self.home, self.places.sshd_drop_in.parent, self.places.ssh_drop_in.parent):
            path.mkdir(parents=True)
        table = self.places.root / "proc/self/mountinfo"
        table.parent.mkdir(parents=True)
        table.write_text("20 1 8:1 / / rw - ext4 /dev/sda1 rw\n")
        include = MAIN.replace("/etc/ssh/", f"{self.places.root}/etc/ssh/")
        self.places.sshd_config.write_text(include)
        self.places.ssh_config.write_text(include.replace("sshd_config", "ssh_config"))
        self.journal = Journal(folder / "state")
        self.members = publishing.members(directory())
        self.host = {
            "names": publishing.names_of(self.members[1]),
            **publishing.logins_of(self.members[1], "mpi@c", [], True),
        }
        self.user = pwd.struct_passwd(("mpi", "x", UID, GID, "", str(self.home), "/bin/bash"))
        self.settings: list[str] = []
        """Additional output of sshd -T."""
        self.asked: list[list[str]] = []
        self.loaded: Optional[str] = None
        """The host certificate the running sshd has read."""

    def runner(
        self, argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None
    ) -> Result:
        self.asked.append(list(argv))
        program = Path(argv[0]).name
        if program == "ssh-keygen":
            return run(argv, check=check, stdin=stdin)
        if program == "sshd":
            return self._sshd(tuple(argv))
        if program == "systemctl":
            if "reload" in argv:
                path = self.places.host_certificate
                there = path.exists() and "HostCertificate" in self._drop_in()
                self.loaded = path.read_text() if there else None
            return Result(tuple(argv), 0, "", "")
        if program == "ssh-keyscan":
            line = f"127.0.0.1 {self.loaded}" if self.loaded else ""
            return Result(tuple(argv), 0, line, "")
        raise AssertionError(argv)

    def _drop_in(self) -> str:
        path = self.places.sshd_drop_in
        return path.read_text() if path.exists() else ""

    def _sshd(self, argv: tuple[str, ...]) -> Result:
        texts = [path.read_text() for path in sorted(self.places.sshd_drop_in.parent.iterdir())]
        if any("Garbage" in text for text in texts):
            return Result(argv, 255, "", "20-op.conf line 1: Bad configuration option: Garbage")
        messages = [
            *self.settings,
            "port 22",
            "listenaddress 0.0.0.0:22",
            "pubkeyauthentication yes",
        ]
        lines = [
            line
            for text in [*texts, self.places.sshd_config.read_text()]
            for line in text.split("\n")
        ]
        named = [line.split()[1] for line in lines if line.startswith("HostKey ")]
        messages += [f"hostkey {path}" for path in named or [self.places.host_key]]
        messages += [
            line.strip() for line in self._drop_in().splitlines() if line.startswith("    ")
        ]
        log = "".join(f"debug3: /etc/ssh/05.conf:2 setting {line}\n" for line in self.settings)
        return Result(argv, 0, "\n".join(messages), log)

    clock = float(NOW)

    def request(self, **changes: Any) -> trust.TrustRequest:
        with self.journal.locked():
            outcome = AuthorityStore(self.journal).prepare(
                [each["name"] for each in self.members], comment="test", now=NOW, write=True
            )
        self.messages = publishing.published(self.members, outcome.authorities, outcome.krl)
        self.krl = outcome.krl
        wanted = trust.TrustRequest(
            authority=self.messages,
            user="mpi",
            uid=UID,
            shell="/bin/bash",
            **self.host,
            issued=self.journal.read().get("node01", Member()).known()["issued"],
            renew_before_s=90 * DAY,
            now=NOW,
        )
        return dataclasses.replace(wanted, **changes)

    def call(self, request: trust.TrustRequest, *, check_mode: bool = False, now: int = NOW) -> Any:
        self.asked = []
        self.clock = float(now)
        node = Node(
            "ssh", self.places.root, self.runner, None, "b", check_mode=check_mode, uid=UID, gid=GID
        )
        settled = trust.converge(request, node)
        return SimpleNamespace(**vars(settled.outcome), **settled.returned)

    def sign(self, outcome: Any) -> dict[str, Any]:
        """Arguments that the action passes with the certificates that it has signed."""
        certificates, records = signed(
            self.journal,
            "node01",
            self.messages,
            outcome.public_keys,
            self.host,
            outcome.sign,
        )
        known = self.journal.read()["node01"].known()["issued"]
        issued = {**known, **{kind: asdict(each) for kind, each in records.items()}}
        return {"certificates": certificates, "issued": issued}

    def lay(self) -> Any:
        """Both calls of a first run."""
        signed = self.sign(self.call(self.request()))
        return self.call(self.request(**signed))

    def files(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.places.root)): path.read_bytes()
            for path in sorted(self.places.root.rglob("*"))
            if path.is_file() and path != self.places.lock and path.name != "mountinfo"
        }

    @property
    def reloads(self) -> int:
        return sum("reload" in argv for argv in self.asked)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # only time goes by
    monkeypatch.setattr(accounts, "find", lambda user: made.user)
    monkeypatch.setattr(accounts, "home_missing", lambda account: False)
    # The files are of this process's own user, which may be root.
    monkeypatch.setattr(accounts, "privileged", lambda user, uid, there: "")
    monkeypatch.setattr(trust.time, "time", lambda: made.clock)
    return made


def statuses(outcome: Any) -> set[str]:
    return {check.status for check in outcome.checks}


def test_a_new_node_requests_both_certificates_and_installs_everything(machine: Machine) -> None:
    outcome = machine.call(machine.request())
    assert set(outcome.sign) == set(outcome.public_keys) == {"user", "host"}
    assert outcome.changed and not machine.places.sshd_drop_in.exists()
    assert machine.reloads == 0
    outcome = machine.call(machine.request(**machine.sign(outcome)))
    assert (outcome.sign, statuses(outcome), machine.reloads) == ({}, {"ok"}, 1)
    assert machine.places.revoked.read_bytes() == machine.krl
    assert stat.S_IMODE(machine.places.user_key.stat().st_mode) == 0o600


def test_an_unchanged_node_takes_one_call(machine: Machine) -> None:
    machine.lay()
    before = machine.files()
    for check_mode in (False, True):
        outcome = machine.call(machine.request(), check_mode=check_mode)
        assert (outcome.changed, outcome.diff, outcome.sign) == (False, [], {})
        assert statuses(outcome) == {"ok"}
        assert machine.reloads == 0
    assert machine.files() == before


def test_check_mode_on_a_new_node(machine: Machine) -> None:
    before = machine.files()
    outcome = machine.call(machine.request(), check_mode=True)
    assert machine.files() == before and outcome.changed
    assert statuses(outcome) <= {"pending", "ok"}
    shown = {diff["after_header"].rsplit("/", 1)[-1] for diff in outcome.diff}
    assert {"id_ed25519", "known_hosts", "authorized_principals", "revoked.krl"} <= shown


@pytest.mark.parametrize(
    ("path", "how", "reloads"),
    [
        ("user_authorities", "text", 0),
        ("principals", "gone", 0),
        ("known_hosts", "mode", 0),
        ("sshd_drop_in", "text", 1),
        ("sshd_drop_in", "gone", 1),
        ("host_certificate", "text", 0),
        ("host_certificate", "mode", 1),
    ],
)
def test_drift_is_repaired(path: str, how: str, reloads: int, machine: Machine) -> None:
    machine.lay()
    good = machine.files()
    file: Path = getattr(machine.places, path)
    if how == "text":
        file.write_text("# by hand\n")
    elif how == "mode":
        file.chmod(0o666)
    else:
        file.unlink()
    planned = machine.call(machine.request(), check_mode=True)
    assert planned.changed and "pending" in statuses(planned)
    assert str(file) in [diff["after_header"] for diff in planned.diff]
    outcome = machine.call(machine.request())
    assert machine.reloads == reloads
    if outcome.sign:
        outcome = machine.call(machine.request(**machine.sign(outcome)))
    else:
        assert machine.files() == good
    assert statuses(outcome) == {"ok"}
    assert not machine.call(machine.request()).changed


def test_a_writable_directory_is_closed(machine: Machine) -> None:
    machine.lay()
    for path in (machine.places.own.parent, machine.places.own):
        path.chmod(0o777)
        pending = machine.call(machine.request(), check_mode=True)
        (check,) = [check for check in pending.checks if check.status == "pending"]
        assert (check.name, check.subject) == ("directory", str(path))
        assert stat.S_IMODE(path.stat().st_mode) == 0o777
        outcome = machine.call(machine.request())
        assert outcome.changed and statuses(outcome) == {"ok"}
        assert stat.S_IMODE(path.stat().st_mode) == 0o755


def test_refused_files_of_sshd_are_restored(machine: Machine) -> None:
    machine.lay()
    machine.places.sshd_drop_in.write_text("# by hand\n")
    (machine.places.sshd_drop_in.parent / "20-op.conf").write_text("Garbage yes\n")
    (error,) = machine.call(machine.request()).errors
    assert "which was restored: 20-op.conf line 1: Bad" in error
    assert machine.places.sshd_drop_in.read_text() == "# by hand\n"
    assert machine.reloads == 0


def test_a_drop_in_that_sshd_refuses_is_repaired(machine: Machine) -> None:
    machine.lay()
    machine.places.sshd_drop_in.write_text("Garbage yes\n")
    assert statuses(machine.call(machine.request())) == {"ok"}


def test_a_foreign_setting_is_for_the_operator(machine: Machine) -> None:
    machine.lay()
    machine.settings = ["pubkeyauthentication no"]
    for check_mode in (True, False):
        checks = machine.call(machine.request(), check_mode=check_mode).checks
        (wrong,) = [check for check in checks if check.status != "ok"]
        assert (wrong.name, wrong.status) == ("sshd_pubkeyauthentication", "failed")
        assert wrong.by_hand == "remove pubkeyauthentication for mpi from /etc/ssh/05.conf:2"


def test_a_missed_reload_is_repeated(machine: Machine) -> None:
    machine.lay()
    machine.loaded = None
    assert statuses(machine.call(machine.request(), check_mode=True)) == {"ok", "pending"}
    outcome = machine.call(machine.request())
    assert statuses(outcome) == {"ok"}


def test_leftovers_of_killed_runs_are_removed(machine: Machine) -> None:
    machine.lay()
    (machine.places.own / ".new-abc").mkdir()
    (machine.places.own / ".new-abc/id_ed25519").write_text("half")
    (machine.places.own / ".known_hosts.x1").write_text("half")
    machine.places.known_hosts.unlink()
    machine.call(machine.request())
    assert [path.name for path in machine.places.own.iterdir() if path.name[0] == "."] == []


def test_expiring_certificates_are_replaced(machine: Machine) -> None:
    machine.lay()
    soon = NOW + 300 * DAY
    outcome = machine.call(machine.request(now=soon), now=soon)
    assert outcome.sign == {"user": "expires in 65 days", "host": "expires in 65 days"}
    assert not outcome.changed, "nothing but the signatures is missing"
    moved = machine.call(machine.request(sources=["10.0.0.99"], names=["other"]))
    assert moved.sign == {"user": "its source addresses changed", "host": "its names changed"}


def test_certificates_of_a_recreated_authority_are_replaced(machine: Machine) -> None:
    machine.lay()
    shutil.rmtree(machine.journal.directory / "authorities")
    (machine.journal.directory / "state.json").unlink()
    signed = machine.call(machine.request()).sign
    assert all(reason.startswith("not signed by generation-1") for reason in signed.values())
    assert len(signed) == 2
    assert statuses(machine.lay()) == {"ok"}
    again = machine.call(machine.request())
    assert (again.sign, again.changed) == ({}, False)


def test_an_unrecorded_authority_is_not_replaced(machine: Machine) -> None:
    machine.lay()
    before = machine.files()
    shutil.rmtree(machine.journal.directory)
    wanted = machine.request()
    for check_mode in (True, False):
        with pytest.raises(PlanError, match="this node trusts the SSH authority SHA256:"):
            machine.call(wanted, check_mode=check_mode)
    assert machine.files() == before
    accepted = machine.request(replace_authority=True)
    assert set(machine.call(accepted).sign) == {"user", "host"}


def test_a_shared_home_makes_a_node_strict(machine: Machine) -> None:
    """Root on any node could write the key files that the launcher reads."""
    machine.lay()
    assert "AuthorizedKeysFile" not in machine.places.sshd_drop_in.read_text()
    table = machine.places.root / "proc/self/mountinfo"
    line = f"30 20 0:50 / {machine.home.parent} rw - nfs4 server:/home rw\n"
    table.write_text(table.read_text() + line)
    own = dataclasses.replace(machine.request(), login=machine.request().user)
    with pytest.raises(PlanError, match="ssh_trust_authorized_keys"):
        machine.call(own)
    assert machine.call(machine.request()).changed
    assert not machine.call(own).changed, "a strict node is not asked again"
    assert "    AuthorizedKeysFile none" in machine.places.sshd_drop_in.read_text()
    assert machine.call(machine.request(strict=False)).changed
    assert "AuthorizedKeysFile" not in machine.places.sshd_drop_in.read_text()


def test_declared_keys_are_installed(machine: Machine, tmp_path: Path) -> None:
    machine.lay()
    key = f'from="10.0.0.1" {keypair(tmp_path / "op")} me'
    machine.call(machine.request(strict=True, authorized_keys=[key]))
    path = machine.places.root / texts.DECLARED.lstrip("/")
    assert path.read_text().splitlines()[1:] == [key]
    drop_in = machine.places.sshd_drop_in.read_text()
    assert f"    AuthorizedKeysFile {texts.DECLARED}\n" in drop_in
    checks = machine.call(machine.request(strict=True)).checks
    found = {check.name: check.found for check in checks}
    assert (found["sshd_authorizedkeysfile"], path.exists()) == ("none", False)
    assert (found["sshd_authorizedkeyscommand"], "undeclared_keys" in found) == ("none", False)
    assert found["sshd_authenticationmethods"] == "publickey"
    for wrong in ("", "ssh-ed25519", f"{key}\n{key}", f"# {key}"):
        with pytest.raises(PlanError, match="wanted one public key"):
            machine.call(machine.request(authorized_keys=[wrong]))


def test_undeclared_keys_are_reported(machine: Machine, tmp_path: Path) -> None:
    machine.lay()
    key = keypair(tmp_path / "op")
    (machine.home / ".ssh").mkdir()
    (machine.home / ".ssh/authorized_keys").write_text(f"# mine\n{key} me\n")
    machine.settings = ["authorizedkeysfile .ssh/authorized_keys .ssh/authorized_keys2"]
    for check_mode in (True, False):
        checks = machine.call(machine.request(), check_mode=check_mode).checks
        (found,) = [check for check in checks if check.name == "undeclared_keys"]
        assert (found.status, found.found) == ("failed", f"line 2 {keys.digest(key)}")
        assert found.by_hand.startswith(f"remove from {machine.home}/.ssh/authorized_keys line 2;")
    checks = machine.call(machine.request(authorized_keys=[key])).checks
    assert [each.status for each in checks if each.name == "undeclared_keys"] == ["ok"]
    checks = machine.call(machine.request(strict=True)).checks
    assert not [each for each in checks if each.name == "undeclared_keys"]


def test_revoked_keys_are_replaced(machine: Machine) -> None:
    machine.lay()
    old = machine.call(machine.request()).public_keys
    found = machine.call(machine.request(refused_keys=[old["user"]]))
    assert found.public_keys["user"] != old["user"]
    assert found.sign == {"user": "for another key"}
    with pytest.raises(PlanError, match="predates this node"):
        machine.call(machine.request(refused_keys=list(old.values())))


def test_a_wrong_clock_is_reported(machine: Machine) -> None:
    machine.lay()
    outcome = machine.call(machine.request(), now=NOW - 10 * DAY)
    failed = [check for check in outcome.checks if check.status == "failed"]
    assert [check.name for check in failed] == ["user_certificate", "host_certificate"]
    assert "not valid yet by this node's clock" in failed[0].reason


def test_a_missing_host_key_is_added_to_the_list(machine: Machine) -> None:
    """A HostKey line disables sshd's defaults, so it is added only if needed."""
    main = machine.places.sshd_config
    ours = f"HostKey {machine.places.host_key}\n"
    machine.lay()
    assert ours not in machine.places.sshd_drop_in.read_text()
    main.write_text(f"{main.read_text()}HostKey /etc/ssh/ssh_host_rsa_key\n")
    assert statuses(machine.call(machine.request())) == {"ok"}
    assert ours in machine.places.sshd_drop_in.read_text()
    assert not machine.call(machine.request()).changed
    main.write_text(f"{main.read_text()}{ours}")
    machine.call(machine.request())
    assert ours not in machine.places.sshd_drop_in.read_text()


def test_a_listed_host_key_of_the_operator_stays(machine: Machine, tmp_path: Path) -> None:
    """Another one of its type would be presented first, and refused by clients that know it."""
    key = keypair(tmp_path / "site_key")
    main = machine.places.sshd_config
    main.write_text(f"{main.read_text()}HostKey {tmp_path / 'site_key'}\n")
    assert machine.call(machine.request()).public_keys["host"] in key
    machine.lay()
    drop_in = machine.places.sshd_drop_in
    assert "HostKey " not in drop_in.read_text()
    main.write_text(main.read_text().replace("site_key", "rsa_key"))
    machine.call(machine.request(**machine.sign(machine.call(machine.request()))))
    assert "HostKey " in drop_in.read_text()
    drop_in.write_text("Garbage yes\n" + drop_in.read_text())
    machine.call(machine.request())
    assert "HostKey " in drop_in.read_text(), "sshd does not tell its keys then"


def test_one_run_at_a_time(machine: Machine) -> None:
    """The lock is taken before anything is read; check mode takes none."""
    machine.lay()
    assert machine.places.lock.exists()
    machine.places.lock.unlink()
    machine.call(machine.request(), check_mode=True)
    assert not machine.places.lock.exists()
