"""Which settings of a node's sshd refuse the MPI user, with file and line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import Check
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh.keys import DROP_IN
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh.sshd import (
    SshdSettings,
    login_checks,
    places_of,
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
    places = dict.fromkeys(values, "/etc/ssh/sshd_config.d/60-site.conf:3")
    places["casignaturealgorithms"] = "/etc/crypto-policies/back-ends/opensshserver.config:5"
    found = login_checks(SshdSettings(given, places), root, "mpi", GROUPS, signed_by)
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
def test_a_refusing_setting_is_reported_with_its_line(
    keyword: str, value: Any, right: bool, tmp_path: Path
) -> None:
    found = failed(tmp_path, **{keyword: value})
    assert [each.name for each in found] == ([] if right else [f"sshd_{keyword}"])
    for each in found:
        policy = keyword == "casignaturealgorithms"
        assert (" in /etc/ssh/sshd_config.d/60-site.conf:3" in each.by_hand) is not policy
        assert ("which writes /etc/crypto-policies/back-ends/" in each.by_hand) is policy
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


LOG = f"""debug2: parse_server_config_depth: config /etc/ssh/sshd_config len 3224
debug3: /etc/ssh/sshd_config.d/{DROP_IN}:2 setting HostCertificate /x
debug3: /etc/ssh/sshd_config:85 setting UsePAM yes
debug3: /etc/ssh/sshd_config:90 setting UsePAM no
debug3: /etc/ssh/sshd_config:91 setting PubkeyAuthentication yes
debug3: /etc/ssh/sshd_config:92 setting PubkeyAcceptedKeyTypes ssh-rsa
debug2: parse_server_config_depth: config reprocess config len 3224
debug3: checking match for 'User mpi' user mpi host localhost addr 127.0.0.1
debug3: /etc/ssh/sshd_config.d/05-site.conf:2 setting PubkeyAuthentication no
debug3: /etc/ssh/sshd_config.d/{DROP_IN}:4 setting PubkeyAuthentication yes
debug3: /etc/ssh/sshd_config.d/{DROP_IN}:5 setting TrustedUserCAKeys /y
"""


def test_the_effective_line_of_a_setting() -> None:
    found = SshdSettings({}, places_of(LOG))
    assert found.foreign("usepam") == "/etc/ssh/sshd_config:85"
    assert found.foreign("pubkeyauthentication") == "/etc/ssh/sshd_config.d/05-site.conf:2"
    assert found.foreign("pubkeyacceptedalgorithms") == "/etc/ssh/sshd_config:92"
    assert found.foreign("trustedusercakeys") == ""
    assert found.foreign("maxsessions") == ""
