# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Keys of repositories, files that the operator brings: read on the controller, checked, said.

An inventory can be read without them. They are missed when a layer that needs one runs.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Optional

from ...module_utils.software.software_set import SoftwareSet, Source
from .software import VARIABLE

MOST = 1 << 20
"""Bytes: a public key has a few thousand."""

FROM = {
    "cuda": "3bf863cc.pub of https://developer.download.nvidia.com/compute/cuda/repos/"
    "ubuntu2404/x86_64/ (Ubuntu; fingerprint EB693B3035CD5710E231E123A4B469963BF863CC), "
    "D42D0685.pub of .../rhel9/x86_64/ (EL; 610C7B14E068A878070DA4E99CD0A493D42D0685)",
    "doca": "https://linux.mellanox.com/public/repo/doca/public_keys/ (since January 2026: "
    "nvidia-doca-debian-gpg-public-key.gpg for Ubuntu, reported as "
    "70454E6BF5D9C2D3B78709E8DC726C5E41B9CC50, nvidia-doca-rpm-gpg-public-key.asc for EL), and "
    "https://linux.mellanox.com/public/repo/doca/GPG-KEY-Mellanox.pub for what was signed before; "
    "both in one file serve both (in armour, one after the other)",
}
"""Where vendors have them. Mirrors may sign with a key of their own."""


class KeyFileError(ValueError):
    """A key that is needed is not to be used; one line per key, with what to do."""

    def __init__(self, findings: list[str]) -> None:
        self.findings = findings
        super().__init__("\n".join(findings))


def read_keys(software: SoftwareSet, layer: str, directory: Path) -> dict[str, bytes]:
    """The keys that the layer needs: repository to content. Raises KeyFileError.

    With them those that it plans with, of another layer's repositories, where they can be used.

    `directory` is that of the inventory, where relative names of files begin.
    """
    found: dict[str, bytes] = {}
    findings = []
    for name in software.repositories_of(layer):
        source = software.repositories[name]
        path = directory / source.key
        content, problem = _read(path, source)
        if content is None:
            findings.append(
                f"{VARIABLE}.repositories.{name}: the layer {layer} needs the key {path}, {problem}"
                f". Get it from {FROM[name]}, or the key of your mirror; compare the fingerprint "
                f"that `gpg --show-keys FILE` prints with the one that its owner publishes; then "
                f"write what `sha256sum FILE` prints into repositories.{name}.key_sha256"
            )
        else:
            found[name] = content
    if findings:
        raise KeyFileError(findings)
    return found


def _read(path: Path, source: Source) -> tuple[Optional[bytes], str]:
    """The content, or None and why not."""
    try:
        if path.is_dir():
            return None, "which is a directory"
        with path.open("rb") as file:
            content = file.read(MOST + 1)
    except FileNotFoundError:
        return None, "which is not there"
    except OSError as error:
        return None, f"which cannot be read: {error.strerror}"
    if not content:
        return None, "which is empty"
    if len(content) > MOST:
        return None, f"which has more than {MOST} bytes: that is no public key"
    if b"PRIVATE KEY" in content:
        return None, "which is a private key: keep that to yourself"
    digest = hashlib.sha256(content).hexdigest()
    if not source.key_sha256:
        return None, "and key_sha256 is empty: nobody has checked the file yet"
    if digest != source.key_sha256:
        return None, f"whose SHA-256 is {digest}, not {source.key_sha256}"
    return content, ""
