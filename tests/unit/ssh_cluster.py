"""A small cluster for the tests of SSH trust, and keys made by the real ssh-keygen."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

NOW = 1_800_000_000
DAY = 86400


def entry(name: str, role: str, number: int, rails: int = 2) -> dict[str, Any]:
    """One host as the directory lists it."""
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


def keypair(path: Path, *options: str, passphrase: str = "") -> str:
    """The public key of a new pair at `path`, ed25519 unless the options have another type."""
    kind = options or ("-t", "ed25519")
    argv = ["ssh-keygen", "-q", *kind, "-N", passphrase, "-C", "test", "-f", str(path)]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
    return " ".join(path.with_name(path.name + ".pub").read_text("ascii").split()[:2])


def ssh_keygen(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ssh-keygen", *words], capture_output=True, text=True, check=False)
