# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Public keys of package repositories: files of the operator, verified on the controller.

The inventory works without them; only a layer that needs a missing key fails.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from ...module_utils.core.distribution import (
    SYSTEMS,
    Distribution,
    SigningKey,
    System,
    sentence,
)
from ...module_utils.software.software_set import SoftwareSet
from .software import VARIABLE

MAX_KEY_BYTES = 1 << 20
"""Maximum size in bytes: a public key has a few thousand."""

CUDA_REPOS = "https://developer.download.nvidia.com/compute/cuda/repos/"


def cuda_keys() -> list[tuple[str, str, str]]:
    """The public keys of CUDA's repositories: releases, path below CUDA_REPOS, fingerprint."""
    releases: dict[SigningKey, list[System]] = {}
    for system in SYSTEMS:
        if system.cuda_key:
            releases.setdefault(system.cuda_key, []).append(system)
    keys = []
    for key, systems in releases.items():
        folder = Distribution(systems[-1], systems[-1].ids[0], systems[-1].release).cuda_folder
        keys.append((sentence(systems), f"{folder}/x86_64/{key.file}", key.fingerprint))
    return keys


FROM = {
    "cuda": f"{CUDA_REPOS}: "
    + ", ".join(
        f"{path} ({releases}{'; fingerprint ' if fingerprint else ''}{fingerprint})"
        for releases, path, fingerprint in cuda_keys()
    ),
    "doca": "https://linux.mellanox.com/public/repo/doca/public_keys/ (since January 2026: "
    "nvidia-doca-debian-gpg-public-key.gpg for Ubuntu, reported as "
    "70454E6BF5D9C2D3B78709E8DC726C5E41B9CC50, nvidia-doca-rpm-gpg-public-key.asc for EL), and "
    "https://linux.mellanox.com/public/repo/doca/GPG-KEY-Mellanox.pub for older packages; "
    "one file may contain both (armoured, one after the other)",
}
"""URLs at which vendors publish the keys. Mirrors may sign with different ones."""
ARMOUR = "-----BEGIN PGP PUBLIC KEY BLOCK-----"


class KeyFileError(ValueError):
    """A required key is unusable; one line per key, with the remedy."""

    def __init__(self, findings: list[str]) -> None:
        self.findings = findings
        super().__init__("\n".join(findings))


def read_keys(software: SoftwareSet, layer: str, directory: Path) -> dict[str, bytes]:
    """The keys that the layer needs: armoured content by repository. Raises KeyFileError.

    `directory` is the inventory's directory, to which file names are relative.
    """
    found: dict[str, bytes] = {}
    findings = []
    for name in software.repositories_of(layer):
        source = software.repositories[name]
        path = directory / source.key
        content, problem = read_key(path, source.key_sha256)
        found[name] = content
        if problem:
            findings.append(
                f"{VARIABLE}.repositories.{name}: the layer {layer} needs the key {path}, {problem}"
                f". Get it from {FROM[name]}, or the key of your mirror; compare the fingerprint "
                f"that `gpg --show-keys FILE` prints with the published one; then "
                f"write what `sha256sum FILE` prints into repositories.{name}.key_sha256"
            )
    if findings:
        raise KeyFileError(findings)
    return found


def read_key(path: Path, sha256: str) -> tuple[bytes, str]:
    """The armoured key, or an empty one and the problem with the file."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_KEY_BYTES + 1)
    except OSError as error:
        return b"", f"which cannot be read: {error.strerror}"
    if b"PRIVATE KEY" in content:
        return b"", "which is a private key: do not publish it"
    digest = hashlib.sha256(content).hexdigest()
    if not sha256:
        return b"", "and key_sha256 is empty: the file is not verified yet"
    if digest != sha256:
        return b"", f"whose SHA-256 is {digest}, not {sha256}"
    return armour(content), ""


def armour(key: bytes) -> bytes:
    """ASCII armour, which both apt and rpm accept; an armoured key is returned unchanged."""
    if ARMOUR.encode() in key:
        return key
    body = base64.b64encode(key).decode("ascii")
    check = base64.b64encode(_crc24(key).to_bytes(3, "big")).decode("ascii")
    lines = [body[start : start + 64] for start in range(0, len(body), 64)]
    end = ARMOUR.replace("BEGIN", "END")
    return "\n".join([ARMOUR, "", *lines, f"={check}", end, ""]).encode("ascii")


def _crc24(data: bytes) -> int:
    """CRC-24 of RFC 4880, 6.1, which rpm requires."""
    value = 0xB704CE
    for byte in data:
        value ^= byte << 16
        for _bit in range(8):
            value <<= 1
            if value & 0x1000000:
                value ^= 0x1864CFB
    return value & 0xFFFFFF
