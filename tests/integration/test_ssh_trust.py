# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""SSH trust on the virtual nodes: which logins succeed, which are refused, and repairs.

These tests use a separate authority, so that their rotations affect no other test.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.nodes import Nodes, Run

pytestmark = [pytest.mark.nodes, pytest.mark.long]

OWN = "/etc/baremetal-mpi-roce/ssh"
DROP_IN = "/etc/ssh/sshd_config.d/10-baremetal-mpi-roce.conf"
PLAYBOOK = "playbooks/ssh.yml"
GENERATION = "--extra-vars=ssh_trust_ca_generation=2"
"""Generation of the authority in the rotations of these tests."""


@dataclass
class Trust:
    nodes: Nodes
    state: Path

    def play(self, *words: str, nodes: Nodes | None = None, **options: Any) -> Run:
        return self._play(PLAYBOOK, nodes or self.nodes, *words, **options)

    def site(self) -> Run:
        """The layer with a look before it."""
        return self._play("site.yml", self.nodes, "--tags=ssh")

    def _play(self, playbook: str, nodes: Nodes, *words: str, **options: Any) -> Run:
        extra = f"--extra-vars=ssh_trust_state_directory={self.state}"
        return nodes.play(playbook, extra, *words, **options)

    @property
    def compute(self) -> list[str]:
        return self.nodes.group("compute")

    @property
    def launcher(self) -> str:
        return self.nodes.group("launcher")[0]

    def login(self, source: str, target: str) -> str:
        """Return an empty text if the MPI user can log in, otherwise ssh's output."""
        command = f"su -l mpi -c 'ssh -n -o BatchMode=yes -o ConnectTimeout=10 {target} hostname'"
        # ssh's status 255 would be mistaken for a failure of the connection to the source.
        done = self.nodes.on(source).run(f"{command} || exit 1")
        if done.rc:
            return done.stderr or f"exit status {done.rc}"
        assert done.stdout.strip() == target
        return ""

    def unreached(self, *hosts: str) -> dict[tuple[str, str], str]:
        """Return every failed login from one of these hosts to a compute node, with the reason."""
        compute = [host for host in hosts if host != self.launcher]
        pairs = [(source, target) for source in hosts for target in compute if source != target]
        found = {pair: self.login(*pair) for pair in pairs}
        return {pair: why for pair, why in found.items() if why}


def without_the_last(nodes: Nodes, folder: Path) -> Nodes:
    def change(model: dict[str, Any]) -> None:
        model["nodes"]["count"] -= 1
        model["nodes"].get("overrides", {}).pop(nodes.group("compute")[-1], None)

    return nodes.changed(folder, change)


@pytest.fixture(scope="module")
def trust(nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trust]:
    made = Trust(nodes, tmp_path_factory.mktemp("trust") / "ssh-ca")
    run = made.play(expect=2)
    assert "SHA256:" in run.output, "nodes trust the site's authority"
    made.play("--extra-vars=ssh_trust_replace_authority=true")
    yield made
    nodes.play(PLAYBOOK)
    nodes.play(PLAYBOOK)


def test_a_second_run_changes_nothing_and_costs_two_executions(trust: Trust) -> None:
    run = trust.play()
    assert run.total("changed") == 0
    assert trust.play("--check", "--diff").total("changed") == 0
    most = run.report["remote_module_executions"]["most_on_a_compute_node"]
    assert most == 2, "one to configure the trust and one to test it"


def test_after_a_look_a_replaced_certificate_is_refused_by_all_in_the_same_run(
    trust: Trust,
) -> None:
    def executions(run: Run) -> dict[str, int]:
        found: dict[str, int] = run.report["remote_module_executions"]["hosts"]
        return found

    everybody, renewed = (trust.launcher, *trust.compute), trust.compute[-1]
    trust.site()
    quiet = trust.site()
    assert (quiet.total("changed"), executions(quiet)) == (0, dict.fromkeys(everybody, 2))
    trust.nodes.on(renewed).check_output(f"rm {OWN}/id_ed25519-cert.pub")
    run = trust.site()
    assert run.hosts_with("changed") == set(everybody)
    # The look, the list and the probe; and twice the layer's module, with the signature in between.
    assert executions(run) == {**dict.fromkeys(everybody, 3), renewed: 5}
    lists = {
        trust.nodes.on(name).check_output(f"sha256sum {OWN}/revoked.krl") for name in everybody
    }
    assert len(lists) == 1
    assert trust.site().total("changed") == 0


def test_the_controller_verifies_a_node_by_the_authority_alone(trust: Trust) -> None:
    """Log in to its management address, with known hosts that lack the node."""
    node = trust.compute[0]
    address = trust.nodes.of(node)["ansible_host"]
    words = ["ssh", "-F", trust.nodes.ssh_config, "-o", f"HostKeyAlias={address}"]
    words += ["-o", "StrictHostKeyChecking=yes", "-o", "GlobalKnownHostsFile=/dev/null"]
    for known, wanted in (trust.state / "known_hosts", 0), (Path("/dev/null"), 255):
        argv = [*words, "-o", f"UserKnownHostsFile={known}", node, "hostname"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout.strip()) == (wanted, "" if wanted else node)
    assert "Host key verification failed" in done.stderr


def test_no_secret_at_any_verbosity(trust: Trust) -> None:
    last = trust.compute[-1]
    trust.nodes.on(last).check_output(f"rm -r {OWN}")
    run = trust.play("-vvvv", "--diff")
    assert "PRIVATE KEY" not in run.output
    body = trust.nodes.on(last).file(f"{OWN}/id_ed25519").content_string.splitlines()[2]
    assert body not in run.output
    for path in trust.state.rglob("*_ca"):
        assert path.read_text().splitlines()[2] not in run.output


class TestMembership:
    def test_who_has_left_is_refused_both_ways(self, trust: Trust, tmp_path: Path) -> None:
        gone, *rest = reversed(trust.compute)
        smaller = without_the_last(trust.nodes, tmp_path)
        messages = trust.play("--check", nodes=smaller)
        assert f"{gone} left the inventory" in messages.output
        assert trust.login(rest[0], gone) == "", "check mode has revoked nothing"
        trust.play(nodes=smaller)
        assert "Permission denied" in trust.login(gone, rest[0])
        assert "revoked by file" in trust.login(rest[0], gone)
        assert "revoked by file" in trust.login(trust.launcher, gone)
        assert trust.unreached(trust.launcher, *rest) == {}
        assert trust.play(nodes=smaller).total("changed") == 0

    def test_a_limit_revokes_nobody(self, trust: Trust) -> None:
        first = trust.compute[0]
        assert "left the inventory" not in trust.play(f"--limit={first}", "--check").output

    def test_an_added_node_is_trusted_and_no_other_changed(self, trust: Trust) -> None:
        added = trust.compute[-1]
        run = trust.play()
        assert run.hosts_with("changed") == {added}
        assert trust.unreached(trust.launcher, *trust.compute) == {}


class TestDrift:
    """Change one node by hand. One run repairs it and does not touch the others."""

    @pytest.mark.parametrize(
        "damage",
        [
            f"cd {OWN} && chmod 644 id_ed25519 && chmod 666 known_hosts && chmod 777 .",
            f"cd {OWN} && rm revoked.krl && truncate -s 100 id_ed25519",
            f"sed -i 's/TrustedUserCAKeys/#&/' {DROP_IN} && systemctl reload ssh",
            f"echo 'Garbage yes' >>{DROP_IN}",
        ],
        ids=["modes", "files", "setting", "syntax"],
    )
    def test_it_is_seen_and_repaired(self, trust: Trust, damage: str) -> None:
        broken = trust.compute[-1]
        trust.nodes.on(broken).check_output(damage)
        assert trust.play("--check", "--diff").hosts_with("changed") == {broken}
        assert trust.play(f"--limit={broken}").hosts_with("changed") == {broken}
        trust.play()  # the others reject the replaced certificates
        assert trust.play().total("changed") == 0

    def test_an_expired_certificate_is_renewed(self, trust: Trust, tmp_path: Path) -> None:
        old, other = trust.compute[-2:]
        host = trust.nodes.on(old)
        (tmp_path / "key.pub").write_text(
            host.file("/etc/ssh/ssh_host_ed25519_key.pub").content_string
        )
        authority = next(trust.state.glob("authorities/*/host_ca"))
        argv = ["ssh-keygen", "-q", "-s", authority, "-h", "-I", old, "-n", f"{old},{old}-rail0"]
        subprocess.run([*argv, "-V", "20200101:20200201", tmp_path / "key.pub"], check=True)
        expired = (tmp_path / "key-cert.pub").read_text().strip()
        path = f"{OWN}/ssh_host_ed25519_key-cert.pub"
        host.check_output(f"echo '{expired}' >{path} && systemctl reload ssh")
        assert "Certificate invalid: expired" in trust.login(other, old)
        assert trust.play(f"--limit={old}").hosts_with("changed") == {old}
        assert trust.login(other, old) == ""

    def test_near_expiry_is_warned_of_whatever_the_limit(self, trust: Trust) -> None:
        first, *_, last = trust.compute
        run = trust.play(f"--limit={first}", "--check", "--extra-vars=ssh_trust_warn_days=400")
        assert re.search(rf"{last} \(\d\d days\)", run.output)

    def test_what_sshd_refuses_leaves_the_node_as_it_was(self, trust: Trust) -> None:
        broken = trust.compute[-1]
        host = trust.nodes.on(broken)
        mistake = "/etc/ssh/sshd_config.d/20-operator.conf"
        host.check_output(f"echo 'Garbage yes' >{mistake}; echo '# by hand' >>{DROP_IN}")
        try:
            run = trust.play(expect=2)
            assert run.hosts_with("failed") == {broken}
            assert f"{mistake}: line 1: Bad configuration option: Garbage" in run.output
            assert host.file(DROP_IN).content_string.endswith("# by hand\n")
        finally:
            host.check_output(f"rm {mistake}")
        assert trust.play().hosts_with("changed") == {broken}

    def test_the_operator_s_settings_and_logins_stay(self, trust: Trust) -> None:
        touched = trust.compute[0]
        host = trust.nodes.on(touched)
        later = "/etc/ssh/sshd_config.d/60-operator.conf"
        host.check_output(f"printf 'MaxAuthTries 4\\nTrustedUserCAKeys none\\n' >{later}")
        host.check_output("echo '# a line of mine' >>/etc/ssh/ssh_config")
        try:
            assert trust.play().total("changed") == 0
            for user in ("root", "mpi"):
                messages = host.check_output(f"sshd -T -C user={user},host=x,addr=10.0.0.1")
                assert "maxauthtries 4" in messages
                assert ("trustedusercakeys none" in messages) is (user == "root")
            assert host.file("/etc/ssh/ssh_config").content_string.endswith("# a line of mine\n")
        finally:
            host.check_output(f"rm {later}; sed -i '$d' /etc/ssh/ssh_config")


class TestEmergency:
    def test_one_run_revokes_it_on_all_that_are_reached(self, trust: Trust, tmp_path: Path) -> None:
        stolen, away, *others = reversed(trust.compute)
        revoke = f'--extra-vars={{"ssh_trust_revoke": ["{stolen}"]}}'
        run = trust.play(revoke, f"--limit=!{away}", expect=2)
        assert f"{stolen} is in ssh_trust_revoke" in run.output
        assert f"revocation list: {away}" in run.output
        assert f"ssh: {stolen} refused by {', '.join(reversed(others))}, " in run.output
        for other in others:
            assert "Permission denied" in trust.login(stolen, other)
            assert "revoked" in trust.login(other, stolen)
        assert trust.login(stolen, away) == "", "it was not reached"
        run = trust.play(revoke, f"--limit={away}")
        assert "revocation list: " not in run.output
        assert "Permission denied" in trust.login(stolen, away)

    def test_it_returns_with_other_keys(self, trust: Trust) -> None:
        back = trust.compute[-1]
        path = f"{OWN}/id_ed25519.pub"
        host = trust.nodes.on(back)
        before = host.check_output(f"cat {path}")
        assert "predates this node" in trust.play(expect=2).output
        host.check_output(
            "rm /etc/ssh/ssh_host_ed25519_key* && ssh-keygen -A && systemctl reload ssh"
        )
        trust.nodes.state(present=True)
        trust.play()
        assert host.check_output(f"cat {path}") != before
        assert trust.unreached(trust.launcher, *trust.compute) == {}


def test_a_rotation_loses_no_login(trust: Trust) -> None:
    everybody = (trust.launcher, *trust.compute)
    for _run in range(3):
        trust.play(GENERATION)
        assert trust.unreached(*everybody) == {}
    assert trust.play(GENERATION).total("changed") == 0
    assert [path.name for path in (trust.state / "authorities").iterdir()] == ["generation-2"]


def test_a_node_that_is_away_is_named_once(trust: Trust) -> None:
    away, neighbour = trust.compute[-1], trust.compute[-2]
    trust.nodes.stop(away)
    try:
        run = trust.play(GENERATION, expect=None)
        assert run.hosts_with("unreachable") == {away}
        assert run.hosts_with("failed") == set(), "the failure of one node affects no other"
        skipped = [check for check in run.checks("ssh") if check["status"] == "not_applicable"]
        assert any(away in f"{check['subject']} {check['reason']}" for check in skipped)
        limited = trust.play(GENERATION, f"--limit={neighbour}", expect=2)
        assert f"{neighbour} -> {away}" in limited.output, "reported by a neighbour"
    finally:
        trust.nodes.state(present=True)
    trust.nodes.play("site.yml", "--tags=names,rails")
    trust.play(GENERATION)
    assert trust.unreached(trust.launcher, *trust.compute) == {}


def test_a_rotation_to_a_key_in_the_agent_loses_no_login(trust: Trust, tmp_path: Path) -> None:
    ca, socket = tmp_path / "ca", tmp_path / "agent"
    environment = {"SSH_AUTH_SOCK": str(socket)}
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", ca], check=True)
    agent = subprocess.check_output(["ssh-agent", "-s", "-a", socket], text=True)
    process = agent.split("SSH_AGENT_PID=")[1].split(";")[0]
    try:
        subprocess.run(["ssh-add", "-q", ca], check=True, env={**os.environ, **environment})
        ca.unlink()
        words = [f"--extra-vars=ssh_trust_{kind}_ca_key={ca}.pub" for kind in ("user", "host")]
        for _run in range(3):
            trust.play(*words, environment=environment)
            assert trust.unreached(trust.launcher, *trust.compute) == {}
    finally:
        os.kill(int(process), signal.SIGTERM)
    assert trust.play(*words).total("changed") == 0, "nothing expires, so no agent is needed"
    (left,) = (trust.state / "authorities").iterdir()
    assert left.name.startswith("supplied-")
    trust.nodes.on(trust.launcher).check_output(f"rm {OWN}/id_ed25519-cert.pub")
    assert "must hold the private half" in trust.play(*words, expect=2).output
