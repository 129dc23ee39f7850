"""A small cluster for the tests of SSH trust, and keys made by the real ssh-keygen."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.action import ssh_authority
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh import signing
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh.journal import Journal

NOW = 1_800_000_000
DAY = 86400


@contextlib.contextmanager
def refused(error: type[Exception], code: str, **values: Any) -> Iterator[None]:
    """The block must raise `error` with the message with this code and at least these values."""
    with pytest.raises(error) as caught:
        yield
    refusal = caught.value.args[0]
    assert (refusal.code, {key: refusal.values[key] for key in values}) == (code, values)


def entry(name: str, role: str, number: int, rails: int = 2) -> dict[str, Any]:
    """One host as listed in the cluster facts."""
    return {
        "name": name,
        "role": role,
        "management_address": f"10.0.0.{number}",
        "rails": [
            {
                "rail": rail,
                "plane": 0,
                "interface": f"rail{rail}",
                "address": f"10.1.{rail}.{number}",
                "network": f"10.1.{rail}.0/24",
            }
            for rail in range(rails)
        ],
    }


def directory(compute: int = 3) -> list[dict[str, Any]]:
    nodes = [entry(f"node{number:02d}", "compute", 10 + number) for number in range(1, compute + 1)]
    return [
        entry("launcher", "launcher", 10, rails=0),
        *nodes,
        entry("storage01", "storage", 200, rails=0),
    ]


def arguments(folder: Path, **changes: Any) -> dict[str, Any]:
    """Arguments of ssh_authority for a cluster of two compute nodes."""
    defaults = {name: spec.get("default") for name, spec in ssh_authority.ARGUMENTS.items()}
    wanted = {
        "directory": directory(2),
        "cluster_name": "c",
        "state_directory": str(folder / "ssh-ca"),
    }
    return {**defaults, **wanted, **changes}


def keypair(path: Path, *options: str, passphrase: str = "") -> str:
    """The public key of a new pair at `path`, ed25519 unless the options have another type."""
    kind = options or ("-t", "ed25519")
    argv = ["ssh-keygen", "-q", *kind, "-N", passphrase, "-C", "test", "-f", str(path)]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
    return " ".join(path.with_name(path.name + ".pub").read_text("ascii").split()[:2])


def ssh_keygen(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ssh-keygen", *words], capture_output=True, text=True, check=False)


def issue(
    folder: Path,
    key: str,
    kinds: tuple[str, ...] = ("user", "host"),
    *,
    ca: str = "ca",
    signer: tuple[str, ...] = (),
    passphrase: str = "",
) -> Any:
    """Certificates for node01 with this key, by the authority `ca` in the directory."""
    public = folder / f"{ca.removesuffix('.pub')}.pub"
    line = " ".join(public.read_text("ascii").split()[:2]) if public.exists() else "ssh-ed25519 A"
    authority = {
        "signs": "generation-1",
        "private_keys": {"user": folder / ca, "host": folder / ca},
        "signer": list(signer),
        "user_authorities": [line],
        "host_authorities": [line],
    }
    host = {
        "names": ["node01", "10.0.0.11"],
        "principal": "mpi@c/compute",
        "sources": ["10.0.0.11", "10.1.0.11"],
    }
    return signed(Journal(folder), "node01", authority, key, host, kinds, 10, passphrase)


def signed(
    journal: Journal,
    name: str,
    authority: dict[str, Any],
    key: Any,
    host: dict[str, Any],
    kinds: Any = ("user", "host"),
    days: int = 365,
    passphrase: str = "",
) -> Any:
    """Certificates for a node, with one key of both kinds, or a key for each kind."""
    return signing.issue(
        journal,
        name,
        dict.fromkeys(kinds, "there is none"),
        key if isinstance(key, dict) else dict.fromkeys(("user", "host"), key),
        authority,
        user="mpi",
        host=host,
        validity_days=days,
        now=NOW,
        passphrase=passphrase,
    )
