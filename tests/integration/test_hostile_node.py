# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One node is in the hands of an attacker, who is root there: nothing is reached beyond it.

Its Python is a program that changes what modules answer. The summary of each run names the attempt.
"""

from __future__ import annotations

import hashlib
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
find /home /root /etc/cron* /etc/sudoers.d -newer /run/before-attack ! -name '*history*' 2>/dev/null
"""


class Attacker:
    """Root on one node, and what else the cluster has."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.name = nodes.group("compute")[-1]
        self.host = nodes.on(self.name)
        self.real = self.host.check_output(f"readlink -f {PYTHON}")
        self.link = self.host.check_output(f"readlink {PYTHON}")
        self.others = [*nodes.group("compute")[:-1], *nodes.group("launcher")]

    def answers(self, attack: str) -> None:
        """From now on modules on this node answer so: `answer` is what they would have."""
        for path, text in (("/root/attack", attack), ("/root/python3", self.program)):
            self.host.check_output(f"printf %s {shlex.quote(textwrap.dedent(text))} >{path}")
        self.host.check_output(f"chmod 755 /root/python3 && mv /root/python3 {PYTHON}")

    @property
    def program(self) -> str:
        return HOSTILE.format(real=self.real)

    def restore(self) -> None:
        self.host.check_output(f"ln -sfn {self.link} {PYTHON} && rm -f /root/attack")

    def reached(self) -> dict[str, str]:
        """What an attack on the others would change."""
        return {name: self.nodes.on(name).check_output(OTHERS) for name in self.others}

    def play(self, playbook: str, *words: str, named: str) -> Run:
        """A run in which this node attacks; the summary has to name it."""
        run = self.nodes.play(playbook, *words, expect=2)
        messages = run.output.partition("SUMMARY")[2]
        assert f"failed: {self.name}: " in messages
        assert named in messages, messages
        assert run.hosts_with("failed") == {self.name}
        return run


@pytest.fixture(scope="module")
def attacker(nodes: Nodes) -> Iterator[Attacker]:
    one = Attacker(nodes)
    for name in one.others:
        nodes.on(name).check_output("touch /run/before-attack")
    before = one.reached()
    yield one
    one.restore()
    assert one.reached() == before
    assert nodes.play("playbooks/ssh.yml").total("failed") == 0


def state_of(nodes: Nodes) -> tuple[Path, str]:
    """The authority's directory, and a digest of what it has trusted and signed."""
    state = nodes.ssh_config.parent / "ssh-ca"
    return state, hashlib.sha256((state / "journal.jsonl").read_bytes()).hexdigest()


FORGED = {
    "a second line": 'key + "\\n@cert-authority * " + key',
    "an option before it": '"restrict,pty " + key',
    "RSA": '"ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAQQ=="',
    "no text": '{"a": [key]}',
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_a_forged_key_is_not_signed(attacker: Attacker, forged: str) -> None:
    _state, before = state_of(attacker.nodes)
    attacker.answers(
        f"""
        if "public_keys" in answer:
            key = answer["public_keys"]["user"]
            answer["public_keys"]["user"] = {forged}
            answer["sign"] = {{"user": "asked"}}
        """
    )
    attacker.play("playbooks/ssh.yml", named="its user key is not one ed25519 public key")
    assert state_of(attacker.nodes)[1] == before


ANSWERS = {
    "deep": ('print("[" * 100000 + "]" * 100000); raise SystemExit', "levels"),
    "huge": ('answer["checks"] = ["A" * 1000] * 60000', "MiB"),
    "no JSON": ('print("\\x1b[2J\\x1b[1;1Hok=99"); raise SystemExit', "Module result"),
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
    run = attacker.play("playbooks/names.yml", "-vvv", "--diff", named=named)
    assert not {each for each in run.output if not each.isprintable() and each != "\n"}
    assert len(run.output) < 4_000_000


def test_facts_set_no_variable(attacker: Attacker) -> None:
    """Neither longer than the others, nor from elsewhere, nor by another authority."""
    wanted = {"ssh_trust_validity_days": 9999, "ssh_trust_extra_sources": ["0.0.0.0/0"]}
    wanted = {**wanted, "ssh_trust_state_dir": "/root/of-the-attacker"}
    attacker.answers(
        f"""
        answer["ansible_facts"] = {{**answer.get("ansible_facts", {{}}), **{wanted!r}}}
        if "sign" in answer:
            answer["sign"] = {{"user": "asked"}}
        """
    )
    state, before = state_of(attacker.nodes)
    words = ("--tags=names,ssh", f"--limit={attacker.name},{attacker.others[-1]}")
    attacker.nodes.play("site.yml", *words, expect=None)
    attacker.restore()
    assert not Path("/root/of-the-attacker").exists()
    lines = (state / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    issued = [json.loads(line) for line in lines if '"serial"' in line]
    assert state_of(attacker.nodes)[1] != before, "it may ask for a certificate"
    assert {one["node"] for one in issued[-1:]} == {attacker.name}
    assert issued[-1]["valid_before"] - issued[-1]["time"] < 91 * 86400
    assert not [one for one in issued if "0.0.0.0" in str(one["sources"])]
