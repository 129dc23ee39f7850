"""Certificates: what we sign is what OpenSSH reads, and what OpenSSH signs is what we read."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh.certificates import (
    PublicKey,
    Wanted,
    WireError,
    digest,
    fault,
    parse_certificate,
    parse_public_key,
    public_key_or_none,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh.publishing import (
    BACKDATED_S,
    SigningError,
    sign,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.ssh_cluster import DAY, NOW, keypair, ssh_keygen

NAMES = ("node01", "10.0.0.11", "node01-rail0")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PublicKey, PublicKey]:
    """A folder with an authority `ca` and a key `key`; their public halves."""
    folder = tmp_path_factory.mktemp("keys")
    return folder, keypair(folder / "ca"), keypair(folder / "key")


def signed_by(authority: Path, key: PublicKey, kind: str = "host") -> str:
    options = {"key_id": "node01", "serial": 42, "now": NOW, "validity_s": 365 * DAY}
    return sign(authority, kind, key, principals=NAMES, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def signed(keys: tuple[Path, PublicKey, PublicKey]) -> str:
    return signed_by(keys[0] / "ca", keys[2])


def wanted_for(keys: tuple[Path, PublicKey, PublicKey], signed: str) -> Wanted:
    return Wanted("host", digest(signed), NAMES, keys[2], keys[1])


def test_openssh_reads_what_we_sign(
    keys: tuple[Path, PublicKey, PublicKey], signed: str, tmp_path: Path
) -> None:
    path = tmp_path / "x-cert.pub"
    path.write_text(signed)
    told = ssh_keygen("-L", "-f", str(path)).stdout
    assert "ssh-ed25519-cert-v01@openssh.com host certificate" in told
    assert 'Key ID: "node01"' in told
    assert "Serial: 42" in told
    assert keys[1].fingerprint in told
    assert all(f"\n                {name}\n" in told for name in NAMES)
    assert "Critical Options: (none)" in told
    assert "Extensions: (none)" in told


def test_a_user_may_have_a_terminal_and_forward_nothing(
    keys: tuple[Path, PublicKey, PublicKey], tmp_path: Path
) -> None:
    path = tmp_path / "x-cert.pub"
    path.write_text(signed_by(keys[0] / "ca", keys[2], "user"))
    told = ssh_keygen("-L", "-f", str(path)).stdout
    assert "user certificate" in told
    assert told.rstrip().endswith("Extensions: \n                permit-pty")


def test_we_read_what_openssh_signs(
    keys: tuple[Path, PublicKey, PublicKey], tmp_path: Path
) -> None:
    folder, authority, key = keys
    public = tmp_path / "key.pub"
    public.write_text(key.text + "\n")
    options = ["-h", "-I", "some id", "-n", "a,b", "-z", "7", "-V", "20300101:20310101"]
    assert ssh_keygen("-q", "-s", str(folder / "ca"), *options, str(public)).returncode == 0
    found = parse_certificate((tmp_path / "key-cert.pub").read_text())
    assert (found.kind, found.serial, found.key_id) == ("host", 7, "some id")
    assert found.principals == ("a", "b")
    assert (found.key, found.authority) == (key, authority)
    assert found.valid_before - found.valid_after == 365 * DAY


@pytest.mark.parametrize("options", [("-t", "rsa", "-b", "2048"), ("-t", "ecdsa")])
def test_an_authority_of_another_type_signs_too(
    options: tuple[str, ...], keys: tuple[Path, PublicKey, PublicKey], tmp_path: Path
) -> None:
    authority = keypair(tmp_path / "ca", *options)
    text = signed_by(tmp_path / "ca", keys[2])
    assert parse_certificate(text).authority == authority
    (tmp_path / "x-cert.pub").write_text(text)
    assert authority.fingerprint in ssh_keygen("-L", "-f", str(tmp_path / "x-cert.pub")).stdout


def test_a_good_certificate_has_no_fault(
    keys: tuple[Path, PublicKey, PublicKey], signed: str
) -> None:
    assert fault(signed, wanted_for(keys, signed), NOW, 90 * DAY) == ""
    assert parse_certificate(signed).days_left(NOW) == 365
    assert parse_certificate(signed).valid_after == NOW - BACKDATED_S


def test_each_fault_is_named(keys: tuple[Path, PublicKey, PublicKey], signed: str) -> None:
    wanted = wanted_for(keys, signed)

    def changed(now: int = NOW, **fields: object) -> str:
        return fault(signed, dataclasses.replace(wanted, **fields), now, 90 * DAY)  # type: ignore[arg-type]

    assert fault(None, wanted, NOW, 0) == "there is none"
    assert fault("ssh-ed25519-cert-v01@openssh.com AAAA", wanted, NOW, 0).startswith("unreadable")
    assert changed(key=keys[1]).startswith("for another key")
    assert changed(authority=keys[2]).startswith("signed by another authority")
    assert changed(kind="user") == "it is a certificate of a host, not of a user"
    assert changed(digest="SHA256:x") == "serial 42, not the one that was issued last"
    assert changed(digest="") == "serial 42, not the one that was issued last"
    more = ("node01", "node01-rail0", "new")
    assert changed(principals=more) == "names changed: -10.0.0.11 +new"
    assert changed(principals=NAMES[::-1]) == "names changed: other order"
    assert changed(now=NOW + 276 * DAY) == "expires in 89 days"
    assert changed(now=NOW + 275 * DAY) == ""
    assert changed(now=NOW + 368 * DAY) == "expired 3 days ago"
    assert changed(now=NOW - BACKDATED_S - 1) == "not valid yet"


def test_an_authority_that_cannot_be_read_is_refused_by_name(
    keys: tuple[Path, PublicKey, PublicKey], tmp_path: Path
) -> None:
    with pytest.raises(SigningError, match="ca: cannot read it"):
        signed_by(tmp_path / "ca", keys[2])
    keypair(tmp_path / "ca", passphrase="secret words")
    with pytest.raises(SigningError, match="ca: not an OpenSSH private key without passphrase"):
        signed_by(tmp_path / "ca", keys[2])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_cut_or_spoiled_certificate_never_passes(
    data: st.DataObject, keys: tuple[Path, PublicKey, PublicKey], signed: str
) -> None:
    at = data.draw(st.integers(0, len(signed.strip()) - len(" node01") - 2))
    spoiled = signed[:at] + data.draw(st.sampled_from(["", "A", "\n", " "])) + signed[at + 1 :]
    why = fault(spoiled, wanted_for(keys, signed), NOW, 0)
    assert spoiled.split()[:2] == signed.split()[:2] or why


def test_fingerprints_are_openssh_s(keys: tuple[Path, PublicKey, PublicKey]) -> None:
    assert keys[1].fingerprint in ssh_keygen("-l", "-f", str(keys[0] / "ca.pub")).stdout


@pytest.mark.parametrize("line", ["", "ssh-ed25519", "ssh-ed25519 %%%", "ssh-rsa AAAAC3NzaC1lZDI1"])
def test_what_is_no_key_is_refused(line: str) -> None:
    with pytest.raises(WireError):
        parse_public_key(line)
    assert public_key_or_none(line) is None
