# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An attacker is root on one node, and can reach nothing beyond it.

The node's Python is replaced by a program that changes the results of modules. The summary of each
run reports the attempt.
"""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nodes import Nodes, Run

pytestmark = pytest.mark.nodes

OWN = "/etc/baremetal-mpi-roce/ssh"
PYTHON = "/usr/bin/python3"
HOSTILE = """\
#!/usr/bin/env -S {real} -I
import json, os, subprocess, sys
if sys.argv[1:] or os.isatty(0):
    os.execv("{real}", ["python3", *sys.argv[1:]])
module = sys.stdin.buffer.read()
done = subprocess.run(["{real}"], input=module, capture_output=True, check=False)
answer = json.loads(done.stdout)
exec(open("/root/attack").read())
print(json.dumps(answer))
"""
OTHERS = f"""
cat /etc/passwd /etc/hosts /etc/ssh/sshd_config.d/* {OWN}/known_hosts | sha256sum
find /home /root /etc/cron* /etc/sudoers.d /usr/local -type f -newer /run/before-attack 2>/dev/null
"""


class Attacker:
    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.name = nodes.group("compute")[-1]
        self.host = nodes.on(self.name)
        self.real = self.host.check_output(f"readlink -f {PYTHON}")
        self.link = self.host.check_output(f"readlink {PYTHON}")
        self.others = [*nodes.group("compute")[:-1], *nodes.group("launcher")]

    def answers(self, attack: str) -> None:
        """Change the results of modules on this node from now on: the code modifies `answer`."""
        for path, text in (("/root/attack", attack), ("/root/python3", self.program)):
            self.host.check_output(f"printf %s {shlex.quote(textwrap.dedent(text))} >{path}")
        self.host.check_output(f"chmod 755 /root/python3 && mv /root/python3 {PYTHON}")

    @property
    def program(self) -> str:
        return HOSTILE.format(real=self.real)

    def restore(self) -> None:
        self.host.check_output(f"ln -sfn {self.link} {PYTHON} && rm -f /root/attack")

    def reached(self) -> dict[str, str]:
        """Return the state of the other hosts that an attack would change."""
        return {name: self.nodes.on(name).check_output(OTHERS) for name in self.others}

    def play(self, playbook: str, *words: str, named: str) -> Run:
        """Run a playbook while this node attacks. The summary must report it."""
        run = self.nodes.play(playbook, *words, expect=2)
        messages = run.output.partition("SUMMARY")[2]
        assert f"failed: {self.name}: " in messages
        assert named in messages, messages
        assert run.hosts_with("failed") == {self.name}
        return run


@pytest.fixture(scope="module")
def attacker(nodes: Nodes) -> Iterator[Attacker]:
    intruder = Attacker(nodes)
    for name in intruder.others:
        nodes.on(name).check_output("touch /run/before-attack")
    before = intruder.reached()
    yield intruder
    intruder.restore()
    assert intruder.reached() == before
    assert nodes.play("playbooks/ssh.yml").total("failed") == 0


def journal(nodes: Nodes) -> Path:
    """Return the certificates signed by the authority, and the keys that nodes trust."""
    return nodes.ssh_config.parent / "ssh-ca/journal.jsonl"


FORGED = {
    "a second line": 'key + "\\n@cert-authority * " + key',
    "an option before it": '"restrict,pty " + key',
    "RSA": '"ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAQQ=="',
    "no text": '{"a": [key]}',
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_a_forged_key_is_not_signed(attacker: Attacker, forged: str) -> None:
    before = journal(attacker.nodes).read_bytes()
    attacker.answers(
        f"""
        if "public_keys" in answer:
            key = answer["public_keys"]["user"]
            answer["public_keys"]["user"] = {forged}
            answer["sign"] = {{"user": "asked"}}
        """
    )
    attacker.play("playbooks/ssh.yml", named="not one ed25519 user key")
    assert journal(attacker.nodes).read_bytes() == before


LOOK = "/usr/local/libexec/baremetal-mpi-roce/look-*"
ANSWERS = {
    "deep": ("print('{\"a\":' + '[' * 100000 + ']' * 100000 + '}'); raise SystemExit", "levels"),
    "huge": ('answer["checks"] = ["A" * 1000] * 60000', "MiB"),
    "no JSON": (
        'print("\\x1b[2J\\x1b[1;1Hok=99"); raise SystemExit',
        "returned no result: \\x1b[2J\\x1b[1;1Hok=99",
    ),
    "escapes": (
        'answer["failed"] = True; answer["msg"] = "\\x1b[1A\\x1b[2K\\u202enode04 : ok=9"',
        "\\x1b[1A\\x1b[2K\\u202enode04 : ok=9",
    ),
}


@pytest.mark.parametrize(("attack", "named"), ANSWERS.values(), ids=ANSWERS)
def test_no_answer_does_more_than_fail_its_host(
    attacker: Attacker, attack: str, named: str
) -> None:
    attacker.answers(attack)
    run = attacker.play("playbooks/names.yml", "-v", "--diff", named=named)
    assert not {
        character for character in run.output if not character.isprintable() and character != "\n"
    }
    assert len(run.output) < 4_000_000


def test_facts_set_no_variable(attacker: Attacker, tmp_path: Path) -> None:
    """No certificate that is valid longer, from elsewhere, or signed by another authority."""
    wanted = {"ssh_trust_validity_days": 9999, "ssh_trust_extra_sources": ["0.0.0.0/0"]}
    wanted = {**wanted, "ssh_trust_state_directory": str(tmp_path / "elsewhere")}
    attacker.answers(
        f"""
        answer["ansible_facts"] = {{**answer.get("ansible_facts", {{}}), **{wanted!r}}}
        if "sign" in answer:
            answer["sign"] = {{"user": "asked"}}
        """
    )
    # Its program of the look answers nothing, so that its modules run.
    forged = "[ -e $each ] && printf '#!/bin/sh\\necho {}\\n' >$each"
    attacker.nodes.on(attacker.name).run(f"for each in {LOOK}; do {forged}; done")
    path = journal(attacker.nodes)
    before = path.stat().st_size
    words = ("--tags=names,ssh", f"--limit={attacker.name},{attacker.others[-1]}")
    attacker.nodes.play("site.yml", *words, expect=None)
    attacker.restore()
    attacker.nodes.on(attacker.name).check_output(f"rm -f {LOOK}")
    assert not list(tmp_path.iterdir())
    lines = path.read_bytes()[before:].splitlines()
    (issued,) = [json.loads(line) for line in lines if b'"serial"' in line]
    assert (issued["node"], issued["kind"]) == (attacker.name, "user"), "it may ask for one"
    assert issued["valid_before"] - issued["time"] < 91 * 86400
    assert "0.0.0.0/0" not in issued["sources"]


def test_root_writes_through_no_link_of_the_mpi_user(attacker: Attacker, tmp_path: Path) -> None:
    """With a shared home, the attacker is this user on every node."""
    nodes = attacker.nodes
    (tmp_path / "train.py").write_text("", encoding="utf-8")
    links = "ln -s /etc ~/run; ln -s /etc /var/tmp/run"
    hosts = nodes.group("compute", "launcher")
    for name in hosts:
        nodes.on(name).check_output(f"runuser -u mpi -- sh -c {shlex.quote(links)}")
    try:
        for place in ("/home/mpi/run/train.py", "/home/mpi/train.py", "/var/tmp/run"):
            files = [{"src": str(tmp_path / "train.py"), "dest": place}]
            given = {"mpi_job_files": files, "mpi_job_program": ["true"]}
            run = nodes.play("playbooks/run.yml", "-e", json.dumps(given), expect=2)
            assert run.hosts_with("failed") == set(hosts)
            assert "mpi mpi" in run.output or "mpi run" in run.output
    finally:
        for name in hosts:
            nodes.on(name).check_output(
                "rm /home/mpi/run /var/tmp/run; ! ls /etc/train.py /etc/run"
            )


class Login:
    """Log in with a copy of a node's files, and with nothing else."""

    def __init__(self, nodes: Nodes, owner: str) -> None:
        self.nodes = nodes
        self.keys = nodes.on(owner).check_output(f"tar -c -C {OWN} . | base64 -w0")

    def __call__(self, source: str, target: str) -> str:
        """Return an empty text if the login succeeds, otherwise ssh's output."""
        ssh = (
            f"ssh -n -F /dev/null -i {OWN}.copy/id_ed25519 -o BatchMode=yes -o ConnectTimeout=10"
            f" -o StrictHostKeyChecking=yes -o UserKnownHostsFile={OWN}.copy/known_hosts"
        )
        host = self.nodes.on(source)
        unpack = f"install -d {OWN}.copy && echo {self.keys} | base64 -d | tar -x -C {OWN}.copy"
        host.check_output(f"{unpack} && chown mpi {OWN}.copy/id_ed25519")
        done = host.run(f"su -l mpi -c '{ssh} {target} hostname' || exit 1")
        host.check_output(f"rm -r {OWN}.copy")
        assert done.stdout.strip() == ("" if done.rc else target)
        return str(done.stderr) if done.rc else ""


def test_a_stolen_certificate_and_a_compute_node_get_no_further(attacker: Attacker) -> None:
    """Principals exclude compute nodes from the launcher, and addresses copies elsewhere."""
    nodes, owner = attacker.nodes, attacker.name
    elsewhere, target, *_rest = attacker.others
    launcher = attacker.others[-1]
    stolen = Login(nodes, owner)
    assert stolen(owner, target) == ""
    assert "Permission denied" in stolen(owner, launcher)
    assert "Permission denied" in stolen(elsewhere, target)
    attacker.host.check_output(f"rm {OWN}/id_ed25519")
    nodes.play("playbooks/ssh.yml")
    assert "Permission denied" in stolen(owner, target), "it has a successor"
    assert Login(nodes, owner)(owner, target) == ""


def test_an_emergency_ends_it(attacker: Attacker) -> None:
    nodes, name, target = attacker.nodes, attacker.name, attacker.others[0]
    attacker.answers('answer["sign"] = {"user": "asked", "host": "asked"}')
    revoke = f'--extra-vars={{"ssh_trust_revoke": ["{name}"]}}'
    run = attacker.play("playbooks/ssh.yml", revoke, named="nothing is signed for it")
    compute, launcher = attacker.others[:-1], attacker.others[-1]
    assert f"ssh: {name} refused by {', '.join([*compute, launcher])}" in run.output
    attacker.restore()
    assert "Permission denied" in Login(nodes, name)(name, target)
    attacker.host.check_output(
        "rm /etc/ssh/ssh_host_ed25519_key* && ssh-keygen -A && systemctl reload ssh*"
    )
    nodes.state(present=True)
    nodes.play("playbooks/ssh.yml")
    assert Login(nodes, name)(name, target) == ""


def test_a_user_cannot_hold_the_lock_of_a_layer(attacker: Attacker) -> None:
    lock = "/run/baremetal-mpi-roce/locks/ssh.lock"
    assert attacker.host.file(lock).exists
    done = attacker.host.run(f"su -s /bin/sh mpi -c 'exec 9<{lock} && flock 9' || exit 1")
    assert "Permission denied" in done.stderr
