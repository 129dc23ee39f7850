# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Passwords and tokens of switches: from a vault to the switch, and nowhere else."""

from __future__ import annotations

import base64
import json
import subprocess
import textwrap
from pathlib import Path

import pytest
from ansible.parsing.vault import VaultLib, VaultSecret

from tests.unit.action_plays import ansible
from tests.unit.https_server import LOOPBACK, Authority, Served, serving

pytestmark = pytest.mark.slow

PASSWORD, TOKEN = "pa55-0f-the-fabric", "t0ken-0f-the-fabric"
BASIC = base64.b64encode(f"switchadmin:{PASSWORD}".encode()).decode()

MODEL = """\
plugin: baremetal.mpi_roce.cluster
name: secret
management: {subnet: 10.0.0.0/24}
nodes: {count: 1, management_first: 10.0.0.11}
gpus: {count: 1}
rails: {count: 3, speed_gbps: 400}
addresses: {pool: 10.100.0.0/16, prefix: 24}
leaves:
  count: 3
  management_first: 10.0.0.101
  ports: 64
  system: [nvue, nvue, eos]
  asic: [spectrum4, spectrum4, tomahawk5]
launcher: {name: launcher01, management: 10.0.0.10}
"""


def vaulted(text: str) -> str:
    sealed = VaultLib([("default", VaultSecret(b"open"))]).encrypt(text).decode()
    return "!vault |\n" + textwrap.indent(sealed, "  ")


def run(folder: Path, port: int, ca_file: Path) -> subprocess.CompletedProcess[str]:
    (folder / "cluster.yml").write_text(MODEL)
    (folder / "vault-password").write_text("open\n")
    (folder / "group_vars").mkdir()
    (folder / "group_vars/all.yml").write_text(
        f"ansible_host: {LOOPBACK}\nswitch_qos_port: {port}\nswitch_qos_ca_file: {ca_file}\n"
        f"switch_qos_user: switchadmin\nswitch_qos_password: {vaulted(PASSWORD)}\n"
    )
    (folder / "host_vars").mkdir()
    (folder / "host_vars/leaf02.yml").write_text(f"switch_qos_token: {vaulted(TOKEN)}\n")
    return ansible(
        "ansible-playbook",
        "playbooks/fabric.yml",
        "-vvvv",
        "--diff",
        f"--inventory={folder / 'cluster.yml'}",
        f"--vault-password-file={folder / 'vault-password'}",
        # The model's address wins over group_vars: here they all are this machine.
        f"--extra-vars=ansible_host={LOOPBACK}",
        BAREMETAL_MPI_ROCE_REPORTS=str(folder / "reports"),
        ANSIBLE_LOG_PATH=str(folder / "log"),
    )


@pytest.mark.parametrize("served", [401, 200])
def test_secrets_of_a_vault_reach_only_the_switch(tmp_path: Path, served: int) -> None:
    """The switch sends back its input."""
    authority = Authority(tmp_path / "ca")
    body = f'{{"detail": "not {BASIC} {PASSWORD}"}}'.encode()
    answer = Served(status=served, body=body, seen=[])
    with serving(*authority.issue(), answer) as port:
        ran = run(tmp_path, port, authority.ca_file)
    assert ran.returncode != 0, ran.stdout
    sent = {authorization for _method, _path, authorization in answer.seen}
    assert f"Basic {BASIC}" in sent and f"Bearer {TOKEN}" in sent
    written = "".join(
        path.read_text() for path in [*tmp_path.glob("reports/**/*.json"), tmp_path / "log"]
    )
    for secret in (PASSWORD, TOKEN, BASIC):
        assert secret not in ran.stdout + ran.stderr + written
    assert "leaf01 cannot be planned" in ran.stdout


def test_what_a_switch_over_ssh_says_of_its_configuration_is_not_shown(tmp_path: Path) -> None:
    """CONFIG_DB contains secrets of the operator, which must not appear even at -vvvv."""
    ssh = tmp_path / "ssh"
    answer = json.dumps({"TACPLUS": {"global": {"passkey": PASSWORD}}})
    ssh.write_text(f"#!/bin/sh\ncat >/dev/null\necho '{answer}'\n")
    ssh.chmod(0o755)
    ran = over_ssh(tmp_path, ssh)
    assert ran.returncode != 0 and "leaf01 cannot be planned" in ran.stdout
    assert PASSWORD not in ran.stdout + ran.stderr


def test_a_failed_command_is_not_repeated(tmp_path: Path) -> None:
    """Even if a site configures retries: a patch may have been applied."""
    ssh = tmp_path / "ssh"
    ssh.write_text(
        f"#!/bin/sh\ncat >/dev/null\n"
        f'case "$*" in *" -O "*) ;; *"exit 0"*) echo probe ;; *) echo command ;; '
        f"esac >>{tmp_path}/calls\n"
        "echo 'Permission denied (publickey)' >&2\nexit 255\n"
    )
    ssh.chmod(0o755)
    ran = over_ssh(tmp_path, ssh, ANSIBLE_SSH_RETRIES="3")
    assert ran.returncode != 0
    assert "Permission denied (publickey)" in ran.stdout
    assert (tmp_path / "calls").read_text().split().count("command") == 1


def over_ssh(folder: Path, ssh: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    systems = "  system: sonic\n  asic: spectrum4\n"
    model = MODEL[: MODEL.index("  system:")] + systems + MODEL[MODEL.index("launcher:") :]
    (folder / "cluster.yml").write_text(model)
    return ansible(
        "ansible-playbook",
        "playbooks/fabric.yml",
        "-vvvv",
        f"--inventory={folder / 'cluster.yml'}",
        "--limit=leaf01",
        f"--extra-vars=ansible_ssh_executable={ssh}",
        "--extra-vars=ansible_become=false",
        BAREMETAL_MPI_ROCE_REPORTS=str(folder / "reports"),
        **environment,
    )
