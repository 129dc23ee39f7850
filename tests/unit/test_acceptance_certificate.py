# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The certificate of acceptance: who signs it, what it leaves on failure, and what it lists."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance import (
    certificate,
    plan,
    state,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh import identity
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh.authority import (
    AuthorityStore,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh.journal import (
    Issued,
    Journal,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh.signer import Signer
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh.signing import SigningError

from tests.unit.test_acceptance_run import NODES, Launcher, required, verified

MEMBERS = {"node01": "10.0.0.1", "node02": "10.0.0.2"}


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Launcher:
    return Launcher(monkeypatch, tmp_path)


def authority(
    folder: Path, passphrase: str = "", generation: int = 1, members: Any = MEMBERS
) -> Path:
    """An SSH authority, with certificates for these hosts."""
    journal = Journal(folder)
    store = AuthorityStore(journal, passphrase)
    store.prepare(list(members), comment="x", now=1, write=True, generation=generation)
    for number, name in enumerate(members):
        issued = Issued("user", number + 1, f"generation-{generation}", 1 << 40)
        journal.issued(name, [issued], {"user": "new"})
    identity.record(journal, members)
    return folder


# An authority that cannot be used.


def test_a_wrong_passphrase_is_found_before_the_first_measurement(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority(launcher.folder / "ssh", "right", members={})
    passphrase(launcher, monkeypatch, "wrong")
    with pytest.raises(SigningError) as error:
        launcher.measure()
    assert error.value.args[0].code == "ssh_ca_unusable" and launcher.jobs == []


def passphrase(launcher: Launcher, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    before = Launcher.variables
    monkeypatch.setattr(
        launcher,
        "variables",
        lambda *limit: {**before(launcher, *limit), "ssh_trust_ca_passphrase": text},
    )


def test_a_run_whose_passphrase_was_wrong_is_signed_by_the_next(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher.measure()
    jobs = len(launcher.jobs)
    authority(launcher.folder / "ssh", "right", members={})
    passphrase(launcher, monkeypatch, "wrong")
    with pytest.raises(AnsibleActionFail, match=r"passed.*ssh_trust_ca_passphrase"):
        launcher.certify()
    assert not (launcher.folder / "reports/certificates").exists()
    passphrase(launcher, monkeypatch, "right")
    launcher.measure()
    result, found = launcher.certify()
    assert len(launcher.jobs) == jobs and found["verdict"] == "passed"
    assert verified(Path(result["certificate"]))
    assert not (launcher.folder / "reports" / state.NAME).exists()


def test_a_repeated_signature_is_of_the_first_counters(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers: list[int] = []

    def counted(number: int) -> dict[str, Any]:
        numbers.append(number)
        ports = {"swp60": {"tx_bytes": number, "rx_bytes": 0}}
        return {"leaf01": {"after": {"ports": ports, "read_s": 4e9}}}

    launcher.counted = counted
    launcher.measure()
    authority(launcher.folder / "ssh", "right", members={})
    for _again in range(2):
        with pytest.raises(AnsibleActionFail):
            launcher.certify()
    known = state.read(launcher.folder / "reports" / state.NAME)
    assert known is not None and numbers[-1] == 2
    ports = known.of(state.COUNTED)["reading"]["leaf01"]["ports"]
    assert ports["swp60"]["tx_bytes"] == 1


def test_a_command_that_signs_ssh_certificates_leaves_it_unsigned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    own, keys = tmp_path / "ssh", authority(tmp_path / "keys", members={})
    public = {kind: tmp_path / f"{kind}.pub" for kind in ("user", "host")}
    for kind, path in public.items():
        path.write_text((keys / f"authorities/generation-1/{kind}_ca.pub").read_text())
    AuthorityStore(Journal(own)).prepare([], comment="x", now=1, write=True, supplied=public)
    with pytest.raises(SigningError):
        certificate.write(tmp_path, {}, Signer("small", own))
    signer = Signer("small", own, by_command=True)
    path, reason = certificate.write(tmp_path / "reports", {}, signer)
    assert reason and json.loads(path.read_text())["signature"] == "unsigned"


@pytest.mark.parametrize("full", ["acceptance-2", "acceptance-latest", ".sig", "allowed"])
def test_a_full_disk_leaves_neither_certificate_nor_signature(
    full: str, launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority(launcher.folder / "ssh", members={})
    save = certificate.save

    def saved(path: Path, text: str) -> None:
        if full in path.name and (full == ".sig" or path.suffix != ".sig"):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        save(path, text)

    launcher.measure()
    jobs = len(launcher.jobs)
    monkeypatch.setattr(certificate, "save", saved)
    with pytest.raises(AnsibleActionFail, match="No space left"):
        launcher.certify()
    folder = launcher.folder / "reports/certificates"
    assert list(folder.glob("acceptance-2*")) == [] if folder.exists() else True
    monkeypatch.setattr(certificate, "save", save)
    launcher.measure()
    result, _found = launcher.certify()
    assert len(launcher.jobs) == jobs and verified(Path(result["certificate"]))


# Authorities of other clusters, and former ones.


def test_the_signature_of_another_cluster_does_not_verify(tmp_path: Path) -> None:
    """With its own identity or this cluster's, by the command of this cluster's certificate."""
    own = Signer("small", authority(tmp_path / "own"), members=MEMBERS)
    path, _reason = certificate.write(tmp_path / "reports", {"verdict": "passed"}, own)
    assert verified(path)
    right, text = Path(f"{path}.sig").read_text(), path.read_text()
    other = authority(tmp_path / "other")
    for name in ("other", "small"):
        signature, _line = Signer(name, other).sign(text)
        Path(f"{path}.sig").write_text(signature)
        assert not verified(path)
    Path(f"{path}.sig").write_text(right)
    assert verified(path)


def test_the_authority_of_other_hosts_does_not_sign(tmp_path: Path) -> None:
    other = authority(tmp_path / "other", members={"a1": "10.9.0.1", "a2": "10.9.0.2"})
    signer = Signer("small", other, members=MEMBERS)
    with pytest.raises(SigningError, match="another cluster"):
        certificate.write(tmp_path / "reports", {}, signer)
    assert not (tmp_path / "reports").exists()


def test_certificates_of_a_former_authority_still_verify(tmp_path: Path) -> None:
    ssh, reports = authority(tmp_path / "ssh"), tmp_path / "reports"
    signer = Signer("small", ssh, members=MEMBERS)
    path, _reason = certificate.write(reports, {"verdict": "passed"}, signer)
    older = path.rename(reports / "acceptance-older.json")
    Path(f"{path}.sig").rename(f"{older}.sig")
    AuthorityStore(Journal(ssh)).prepare(
        list(MEMBERS), comment="x", now=1, write=True, generation=2, overlap=False
    )
    path, _reason = certificate.write(reports, {"verdict": "passed"}, signer)
    assert verified(path) and verified(older)
    assert len((reports / certificate.ALLOWED).read_text().splitlines()) == 2


# What was not measured.


def test_sweeps_that_were_left_out_are_listed(launcher: Launcher) -> None:
    launcher.measure(sweeps=[])
    _result, found = launcher.certify()
    assert required(found) == [{"what": "allreduce and alltoall", "why": plan.NO_SWEEP}]
    assert found["verdict"] == "incomplete"


@pytest.mark.parametrize(
    ("asked", "ran", "expected"),
    [
        ([], False, ("passed", True)),
        (["leaf"], False, ("incomplete", False)),
        (["leaf"], True, ("passed", None)),
    ],
)
def test_congestion(asked: list[str], ran: bool, expected: Any, launcher: Launcher) -> None:
    for name in NODES:
        launcher.results[name] = {"rdma_verify_incast": asked}
    if ran:
        check = {"name": "incast", "subject": "rail0", "status": "ok"}
        launcher.results["node02"][certificate.INCASTS[0]] = {"checks": [check]}
    launcher.measure()
    _result, found = launcher.certify()
    listed = [each for each in found["not_measured"] if each["what"] == "congestion"]
    verdict, partial = expected
    assert [each.get("partial", False) for each in listed] == [] if ran else [partial]
    assert found["verdict"] == verdict


def test_parts_of_the_load_that_did_not_run_are_listed(launcher: Launcher) -> None:
    """Such as programs that are not installed; a precision that a GPU lacks is no part."""
    skipped = {"status": "not_applicable", "found": None}
    for name in NODES:
        launcher.burned[name]["checks"] += [
            {**skipped, "name": "burn_diag", "reason": "dcgmi is missing"},
            {**skipped, "name": "burn_products", "subject": "GPU 0 fp8", "reason": "no fp8"},
            {**skipped, "name": "burn_copies", "found": "at least 55 GB/s", "reason": "compared"},
        ]
    launcher.measure()
    _result, found = launcher.certify()
    (missing,) = required(found)
    assert missing["what"].startswith("diagnostics of GPUs") and "node01" in missing["what"]
    assert missing["why"] == "dcgmi is missing" and found["verdict"] == "incomplete"


# Shared storage.

WROTE, READ, VERDICT = certificate.STORED
CHECK = {"name": "storage_use", "subject": "/scratch", "status": "ok"}


def stored(launcher: Launcher, **changed: dict[str, Any]) -> dict[str, Any]:
    """The certificate after the hosts wrote and read."""
    used = {"cluster_filesystems": [{"name": "scratch"}]}
    used |= {name: {"checks": [CHECK]} for name in (WROTE, READ)}
    for host in (*NODES, "launcher01"):
        launcher.results[host] = {**used, **changed.get(host, {})}
    figures = {"write": {"gb_s": 9.5}, "by_host": {"node01": {}}}
    report = {"made": "20261101T000000Z", "filesystems": {"scratch": figures}}
    (launcher.folder / "reports").mkdir()
    (launcher.folder / "reports/storage-latest.json").write_text(json.dumps(report))
    launcher.measure()
    return launcher.certify()[1]


def test_figures_of_storage_are_those_of_the_run(launcher: Launcher) -> None:
    found = stored(launcher)
    assert found["storage"] == {
        "made": "20261101T000000Z",
        "filesystems": {"scratch": {"write": {"gb_s": 9.5}}},
    }
    assert found["verdict"] == "passed" and required(found) == []


@pytest.mark.parametrize("host", ["node03", "launcher01"])
@pytest.mark.parametrize("step", certificate.STORED)
def test_storage_that_failed_fails_the_certificate(
    step: str, host: str, launcher: Launcher
) -> None:
    found = stored(launcher, **{host: {step: {"checks": [{**CHECK, "status": "failed"}]}}})
    failed = [each["subject"] for each in found["checks"] if each["status"] == "failed"]
    assert failed == [f"{host} /scratch"] and found["verdict"] == "failed"


def test_a_host_that_could_not_write_is_listed(launcher: Launcher) -> None:
    found = stored(launcher, node03={WROTE: {"failed": True, "msg": "x"}, READ: {}})
    assert required(found) == [{"what": "storage on node03", "why": plan.NO_STORAGE}]


def test_figures_of_an_earlier_run_are_not_certified(launcher: Launcher) -> None:
    nothing = {WROTE: {"skipped": True}, READ: {"skipped": True}}
    found = stored(launcher, **dict.fromkeys((*NODES, "launcher01"), nothing))
    assert found["storage"] == {}
    (missing,) = required(found)
    assert missing["what"].startswith("storage on node01") and found["verdict"] == "incomplete"
