# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the controller publishes for a node, by the real playbook; certificates that it renews."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh.keys import digest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.pull import publish as publishing
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.pull import renewal
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.pull.publish import (
    Renewal,
    earlier,
    publish,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.pull.snapshot import (
    Snapshot,
    SnapshotError,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh import signing
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh.journal import Journal
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh.signer import Signer
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh.signing import SigningError

from tests.unit.action_plays import ROOT, ansible, run_play
from tests.unit.small_model import MODEL
from tests.unit.ssh_cluster import DAY, NOW, issue, keypair, signed

VARIABLES = """\
os_baseline_swap: keep
os_baseline_hugepages: "{{ pages }}"
pages: [{size: 2M, count: 8}]
roce_rails_wait_s: 31
switch_qos_password: hidden
ssh_trust_ca_passphrase: ""
other: x
drift_ignore:
  - {check: rail_mtu, host: node02, reason: a, until: "2099-01-01"}
  - {check: rail_mtu, host: compute, reason: b, until: "2099-01-01"}
"""


def inventory(tmp_path: Path, more: str = "") -> Path:
    folder = tmp_path / "inventory"
    (folder / "group_vars").mkdir(parents=True)
    (folder / "cluster.yml").write_text(MODEL, "utf-8")
    (folder / "group_vars/all.yml").write_text(VARIABLES + more, "utf-8")
    keypair(tmp_path / "key")
    return folder


def play(tmp_path: Path, *words: object) -> tuple[int, str]:
    out, key = tmp_path / "out", tmp_path / "key"
    settings = {"pull_directory": str(out), "pull_key": str(key)}
    done = ansible(
        "ansible-playbook",
        ROOT / "playbooks/pull_publish.yml",
        "-i",
        tmp_path / "inventory",
        "-e",
        json.dumps(settings),
        *words,
    )
    return done.returncode, done.stdout + done.stderr


def found(tmp_path: Path, name: str) -> Snapshot:
    made = earlier(tmp_path / f"out/small/{name}.snapshot")
    assert made is not None
    return made


@pytest.mark.slow
def test_a_snapshot_has_the_nodes_own_variables(tmp_path: Path) -> None:
    inventory(tmp_path)
    checked, output = play(tmp_path, "--check")
    assert (checked, (tmp_path / "out").exists()) == (0, False), output
    status, output = play(tmp_path, "--limit", "node02")
    assert status == 0, output
    names = {path.name for path in (tmp_path / "out/small").iterdir()}
    assert names == {f"{name}.snapshot" for name in ("node01", "node02", "launcher01")}
    made = found(tmp_path, "node01")
    assert (made.cluster, made.node, made.groups[0]) == ("small", "node01", "compute")
    own = made.variables
    assert own["cluster_management"]["address"] == "10.0.0.11"
    assert own["os_baseline_hugepages"] == [{"size": "2M", "count": 8}]
    assert own["roce_rails_wait_s"] == 31
    assert [rule["reason"] for rule in own["drift_ignore"]] == ["b"]
    assert not {"switch_qos_password", "ssh_trust_ca_passphrase", "other", "pages"} & {*own}
    text = (tmp_path / "out/small/node01.snapshot").read_text("ascii")
    assert not any(word in text for word in ("node02", "10.0.0.12", "hidden", "launcher01"))
    assert "cluster_rails" not in found(tmp_path, "launcher01").variables
    (tmp_path / "out/small/node09.snapshot").write_text("", "utf-8")
    status, output = play(tmp_path)
    assert found(tmp_path, "node01") == made  # nothing changed
    assert not (tmp_path / "out/small/node09.snapshot").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "named"),
    [
        ("os_baseline_time_servers: ['{{ ansible_facts.x }}']\n", "os_baseline_time_servers"),
        ("mpi_stack_environment: {X: !vault 'VAULT'}\n", "mpi_stack_environment"),
    ],
)
def test_a_variable_that_no_snapshot_may_have_is_named(
    tmp_path: Path, more: str, named: str
) -> None:
    password = tmp_path / "password"
    password.write_text("x\n", "utf-8")
    vault = ("--vault-password-file", password)
    if "VAULT" in more:
        made = ansible("ansible-vault", "encrypt_string", *vault, "token")
        lines = [line.strip() for line in made.stdout.splitlines() if not line.startswith("!")]
        text = "".join(f"    {line}\n" for line in lines)
        more = f"mpi_stack_environment:\n  X: !vault |\n{text}"
    inventory(tmp_path, more)
    status, output = play(tmp_path, *vault)
    assert status == 2
    assert named in output
    assert "token" not in output
    assert not (tmp_path / "out").exists()


def test_a_secret_option_is_in_no_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    specs = {"os_baseline_a": {"no_log": True}, "os_baseline_b": {}, "switch_qos_c": {}}
    monkeypatch.setattr(publishing, "read_specs", lambda: specs)
    assert {*publishing.options.__wrapped__()} == {"os_baseline_b"}


def snapshot(name: str) -> Snapshot:
    return Snapshot("c", name, 1, 1, 1, f"SHA256:{'A' * 43}", ["compute"], {"cluster_name": "c"})


def test_unchanged_snapshots_are_signed_again_at_half_their_validity(tmp_path: Path) -> None:
    keypair(tmp_path / "key")
    signer = Signer("c", tmp_path / "none", purpose="pull", key=tmp_path / "key")
    wanted = [snapshot("node01"), snapshot("node02")]

    def published(now: int, *changed: Snapshot) -> list[str]:
        return publish(tmp_path / "out", changed or wanted, signer, now, 8 * DAY)[0]

    assert published(NOW) == ["node01", "node02"]
    assert published(NOW + 4 * DAY - 1) == []
    assert published(NOW + 4 * DAY) == ["node01", "node02"]
    one = replace(wanted[0], groups=["launcher"])
    assert published(NOW, one, wanted[1]) == ["node01"]
    made = earlier(tmp_path / "out/node01.snapshot")
    assert made is not None
    assert made.serial == NOW + 4 * DAY + 1  # grows although the clock went back


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The state of an authority, which has signed for node01."""
    folder = tmp_path / "ssh"
    folder.mkdir()
    keypair(folder / "ca")
    keypair(folder / "id")
    return folder


def certificates(state: Path) -> tuple[Any, Any]:
    return issue(state, " ".join((state / "id.pub").read_text("ascii").split()[:2]))


def renewing(state: Path, days: float, **host: Any) -> Renewal:
    known = Journal(state).read()["node01"].known()
    line = " ".join((state / "ca.pub").read_text("ascii").split()[:2])
    authority = {
        "signs": "generation-1",
        "private_keys": {"user": state / "ca", "host": state / "ca"},
        "signer": [],
        "user_authorities": [line],
        "host_authorities": [line],
    }
    own = {
        "names": ["node01", "10.0.0.11"],
        "principal": "mpi@c/compute",
        "sources": ["10.0.0.11", "10.1.0.11"],
        "known": known,
        "revoked": False,
        **host,
    }
    return Renewal(Journal(state), authority, {"node01": own}, "mpi", 20, days)


def test_certificates_are_renewed_for_keys_that_the_journal_has(state: Path) -> None:
    before, _records = certificates(state)  # valid for 10 days
    assert renewing(state, 5).certificates("node01", before, NOW) == before
    assert renewing(state, 5).certificates("node01", {"user": "ssh-ed25519 A\n"}, NOW) == {}
    assert renewing(state, 15).certificates("node02", {}, NOW) == {}
    assert renewing(state, 15, revoked=True).certificates("node01", before, NOW) == {}
    made = renewing(state, 15).certificates("node01", before, NOW)
    assert {*made} == {"user", "host"}
    assert made != before
    records = Journal(state).read()["node01"].latest()
    assert {record.valid_before for record in records.values()} == {NOW + 20 * DAY}
    # Published until the next renewal, and signed once.
    assert renewing(state, 15).certificates("node01", made, NOW) == made
    refused = {**Journal(state).read()["node01"].known(), "refused_keys": [records["user"].key]}
    with pytest.raises(SigningError):
        renewing(state, 30, known=refused).certificates("node01", made, NOW)


AUTHORITY = """\
- hosts: node01
  gather_facts: false
  tasks:
    - baremetal.mpi_roce.cluster_directory:
      register: cluster
    - baremetal.mpi_roce.ssh_authority:
        directory: "{{ cluster.directory }}"
        cluster_name: "{{ cluster_name }}"
        state_directory: "{{ state }}"
      register: prepared
    - ansible.builtin.copy:
        dest: "{{ state }}/prepared.json"
        content: "{{ prepared | to_json }}"
        mode: "0600"
      delegate_to: localhost
"""


@pytest.mark.slow
def test_the_playbook_publishes_renewed_certificates(tmp_path: Path) -> None:
    """With the authority of the cluster, which then signs the snapshots too."""
    model, state = inventory(tmp_path), tmp_path / "state"
    status, output = run_play(tmp_path, AUTHORITY, model, "-e", f"state={state}")
    assert status == 0, output
    prepared = json.loads((state / "prepared.json").read_text("utf-8"))
    keys = {kind: keypair(tmp_path / kind) for kind in ("user", "host")}
    before, _records = signing.issue(
        Journal(state),
        "node01",
        dict.fromkeys(keys, "there is none"),
        keys,
        prepared["authority"],
        user="mpi",
        host=prepared["hosts"]["node01"],
        validity_days=10,
        now=int(time.time()),
    )
    words = {"pull_renew": True, "pull_key": "", "ssh_trust_state_directory": str(state)}
    status, output = play(tmp_path, "-e", json.dumps(words))
    assert status == 0, output
    made = found(tmp_path, "node01")
    assert {*made.certificates} == {"user", "host"}
    assert made.certificates != before
    assert found(tmp_path, "node02").certificates == {}
    assert made.signer == digest(prepared["authority"]["user_authorities"][0])
    status, output = play(tmp_path, "-e", json.dumps(words))
    assert found(tmp_path, "node01") == made


class Node:
    """A node with certificates of the authority."""

    def __init__(self, root: Path, state: Path) -> None:
        self.root, self.commands = root, list[str]()
        self.before, _records = certificates(state)
        own = root / "etc/baremetal-mpi-roce/ssh"
        own.mkdir(parents=True)
        line = (state / "ca.pub").read_text("ascii")
        (own / "user_ca.pub").write_text(line, "ascii")
        (own / "known_hosts").write_text(f"@cert-authority node* {line}", "ascii")
        self.files = {
            "user": own / "id_ed25519-cert.pub",
            "host": own / "ssh_host_ed25519_key-cert.pub",
        }
        for kind, path in self.files.items():
            path.write_text(self.before[kind], "ascii")
        self.fault = ""

    def run(self, argv: Any, *, check: bool = True, stdin: Any = None) -> Result:
        self.commands.append(" ".join(argv[:2]).rpartition("/")[2])
        failed = bool(self.fault) and "-t" in argv
        return Result(tuple(argv), int(failed), "", self.fault if failed else "")


def test_a_node_installs_a_certificate_that_is_valid_for_longer(
    tmp_path: Path, state: Path
) -> None:
    node = Node(tmp_path / "root", state)
    made = renewing(state, 15).certificates("node01", node.before, NOW)
    assert renewal.plan(node.before, NOW, node.root) == []
    planned = renewal.plan(made, NOW, node.root)
    assert [each.kind for each in planned] == ["user", "host"]
    renewal.install(planned, node.root, node.run)
    assert {kind: path.read_text("ascii") for kind, path in node.files.items()} == made
    assert node.commands == ["sshd -t", "systemctl is-active", "systemctl reload"]
    assert renewal.plan(made, NOW, node.root) == []
    assert renewal.plan(node.before, NOW, node.root) == []  # valid for less


def test_sshd_keeps_its_certificate_if_it_refuses_the_new_one(tmp_path: Path, state: Path) -> None:
    node = Node(tmp_path / "root", state)
    node.fault = "bad"
    made = renewing(state, 15).certificates("node01", node.before, NOW)
    with pytest.raises(SnapshotError):
        renewal.install(renewal.plan(made, NOW, node.root), node.root, node.run)
    assert node.files["host"].read_text("ascii") == node.before["host"]


def other(state: Path, **changes: Any) -> dict[str, str]:
    """Certificates of the same authority for other names, keys, addresses or times."""
    base = renewing(state, 15)
    key = (
        changes.pop("key", None) or asdict(Journal(state).read()["node01"].latest()["user"])["key"]
    )
    host = {**base.hosts["node01"], **changes}
    made, _records = signed(Journal(state), "node01", dict(base.authority), key, host, days=30)
    return dict(made)


@pytest.mark.parametrize(
    "changes",
    [
        {"names": ["node02"], "principal": "mpi@c/launcher"},
        {"sources": [], "names": ["*"]},
        {"key": 1},
    ],
)
def test_a_certificate_with_other_properties_is_refused(
    tmp_path: Path, state: Path, changes: dict[str, Any]
) -> None:
    node = Node(tmp_path / "root", state)
    if "key" in changes:
        changes = {"key": keypair(tmp_path / "another")}
    made = other(state, **changes)
    for kind, line in made.items():
        with pytest.raises(SnapshotError):
            renewal.plan({kind: line}, NOW, node.root)


def test_a_certificate_of_another_authority_or_time_is_refused(tmp_path: Path, state: Path) -> None:
    node = Node(tmp_path / "root", state)
    made = renewing(state, 15).certificates("node01", node.before, NOW)
    for now in (NOW - DAY, NOW + 21 * DAY):
        with pytest.raises(SnapshotError):
            renewal.plan(made, now, node.root)
    words = made["user"].split()
    blob = bytearray(base64.b64decode(words[1]))
    blob[-1] ^= 1
    forged = f"{words[0]} {base64.b64encode(blob).decode()} x\n"
    (state / "ca").unlink()
    (state / "ca.pub").unlink()
    keypair(state / "ca")
    foreign = other(state)
    for line in (forged, foreign["user"], "ssh-ed25519 AAAA x\n", made["host"]):
        with pytest.raises(SnapshotError):
            renewal.plan({"user": line}, NOW, node.root)
