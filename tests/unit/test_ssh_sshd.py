"""Which settings of a node's sshd refuse the MPI user, with file and line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import Check
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh.sshd import (
    SshdSettings,
    login_checks,
)

CERTIFICATE = "ssh-ed25519-cert-v01@openssh.com"
GROUPS = ["mpi", "users", "hpc jobs"]
DEFAULTS = {
    "usepam": "yes",
    "pubkeyacceptedalgorithms": f"{CERTIFICATE},ssh-ed25519,rsa-sha2-512",
    "hostkeyalgorithms": f"{CERTIFICATE},ssh-ed25519",
    "casignaturealgorithms": "ssh-ed25519,rsa-sha2-512",
    "forcecommand": "none",
    "chrootdirectory": "none",
    "maxstartups": "10:30:100",
}


def failed(root: Path, signed_by: str = "ssh-ed25519", **values: Any) -> list[Check]:
    given = {k: v if isinstance(v, list) else [v] for k, v in {**DEFAULTS, **values}.items()}
    found = login_checks(SshdSettings(given), root, "mpi", GROUPS, signed_by)
    return [each for each in found if each.status != "ok"]


@pytest.mark.parametrize(
    ("keyword", "value", "right"),
    [
        ("allowgroups", ["ops"], False),
        ("allowgroups", ["ops", "users"], True),
        ("allowgroups", ["ops", "m?i"], True),
        ("allowgroups", ["hpc jobs"], True),
        ("allowgroups", ["hpc users"], False),
        ("allowgroups", ["domain", "ops mpi"], False),
        ("allowgroups", ["[m]pi"], False),
        ("denygroups", ["use*"], False),
        ("denygroups", ["ops"], True),
        ("allowusers", ["root", "ops"], False),
        ("allowusers", ["root", "mpi"], True),
        ("allowusers", ["m*"], True),
        ("allowusers", ["mpi@10.0.0.0/24"], True),
        ("denyusers", ["mpi"], False),
        ("denyusers", ["mpi@10.0.0.*"], True),
        ("pubkeyacceptedalgorithms", "ssh-ed25519,rsa-sha2-512", False),
        ("casignaturealgorithms", "rsa-sha2-512", False),
        ("hostkeyalgorithms", "rsa-sha2-512,ssh-ed25519", False),
        ("usepam", "no", False),
        ("forcecommand", "internal-sftp", False),
        ("chrootdirectory", "/srv/%u", False),
        ("maxstartups", "1:30:1", False),
        ("maxstartups", "4:30:60", True),
    ],
)
def test_a_refusing_setting_is_reported(
    keyword: str, value: Any, right: bool, tmp_path: Path
) -> None:
    found = failed(tmp_path, **{keyword: value})
    assert [each.name for each in found] == ([] if right else [f"sshd_{keyword}"])
    for each in found:
        assert f"grep -rni {keyword} /etc/ssh" in each.by_hand
        assert each.status == "failed", "the role does not change decisions of the site"


def test_the_authority_s_key_type_must_be_accepted(tmp_path: Path) -> None:
    assert failed(tmp_path, "ssh-rsa", casignaturealgorithms="rsa-sha2-256") == []
    (check,) = failed(tmp_path, "ssh-rsa", casignaturealgorithms="ssh-ed25519")
    assert check.name == "sshd_casignaturealgorithms"


@pytest.mark.parametrize("name", ["/etc/nologin", "/run/nologin"])
def test_a_nologin_file_is_reported(name: str, tmp_path: Path) -> None:
    path = tmp_path / name[1:]
    path.parent.mkdir()
    path.write_text("back at\nnine\x1b[2J")
    (check,) = failed(tmp_path)
    assert (check.name, check.found) == ("nologin", f"{name}: back at nine\\x1b[2J")
    assert check.by_hand.startswith(f"rm {name}")
    assert {each.name for each in failed(tmp_path, usepam="no")} == (
        {"sshd_usepam", "nologin"} if name == "/etc/nologin" else {"sshd_usepam"}
    )
