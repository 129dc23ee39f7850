# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Access restrictions of real sites: sudo with a password, another port, a bastion, a user without
root on the controller.

All are tested together: a run that works with all of them works with each.
"""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.test_mpi_source import left, with_source
from tests.nodes import TOP, Nodes

__all__ = ["with_source"]

pytestmark = [pytest.mark.nodes, pytest.mark.long]

LOGIN, PASSWORD, PORT = "admin", "up and away", 2222
ADMIT = f"""
useradd --create-home {LOGIN} && echo '{LOGIN}:{PASSWORD}' | chpasswd &&
install -d -m 700 -o {LOGIN} /home/{LOGIN}/.ssh &&
install -m 600 -o {LOGIN} ~ops/.ssh/authorized_keys /home/{LOGIN}/.ssh/ &&
echo '{LOGIN} ALL=(ALL) ALL' >/etc/sudoers.d/{LOGIN} &&
printf 'Port 22\\nPort {PORT}\\n' >/etc/ssh/sshd_config.d/60-port.conf && systemctl restart sshd
"""
DISMISS = f"""
rm -f /etc/sudoers.d/{LOGIN} /etc/ssh/sshd_config.d/60-port.conf && systemctl restart sshd
pkill -KILL -u {LOGIN}; userdel --force --remove {LOGIN}
"""
"""Close the connections that Ansible leaves open for a while."""
UNPRIVILEGED = 65534


def hosts(nodes: Nodes) -> list[str]:
    return nodes.group("compute", "launcher")


def way(nodes: Nodes, home: Path) -> str:
    """Return the options for a run whose keys and known hosts are in this home."""
    state = home / nodes.ssh_config.parent.relative_to(Path.home())
    options = (
        "-o IdentitiesOnly=yes -o StrictHostKeyChecking=yes "
        f"-o UserKnownHostsFile={state}/known_hosts -o HostKeyAlias={{{{ inventory_hostname }}}}"
    )
    bastion = f"ssh -F {state}/ssh_config -W %h:%p {nodes.group('launcher')[0]}"
    variables = {
        "ansible_user": LOGIN,
        "ansible_port": PORT,
        "ansible_ssh_common_args": f"{options} -o ProxyCommand='{bastion}'",
    }
    return f"--extra-vars={json.dumps(variables)}"


def password_file(folder: Path) -> Path:
    path = folder / "password"
    path.write_text(f"{PASSWORD}\n", encoding="ascii")
    path.chmod(0o600)
    return path


@pytest.fixture(scope="module")
def guarded(nodes: Nodes) -> Iterator[Nodes]:
    try:
        for host in hosts(nodes):
            nodes.on(host).run_expect([0], ADMIT)
        yield nodes
    finally:
        for host in hosts(nodes):
            nodes.on(host).run(DISMISS)
        assert not [host for host in hosts(nodes) if nodes.on(host).user(LOGIN).exists]
        nodes.play("playbooks/ssh.yml")


def test_site_with_a_file_of_the_password_through_a_bastion(guarded: Nodes, tmp_path: Path) -> None:
    given = f"--become-password-file={password_file(tmp_path)}"
    run = guarded.play("site.yml", "--skip-tags=verbs", given, way(guarded, Path.home()))
    assert run.total("failed") == run.total("unreachable") == 0
    assert run.checks("smoke")
    ports = {
        check["found"]
        for check in run.checks("ssh")
        if (check["name"], check["subject"]) == ("ssh_client", "port")
    }
    assert ports == {str(PORT)}, "MPI uses the port of the operator's sshd"


NOT_TYPED = {"model", "site", "virtual_nodes", "virtual_nodes_down"}
"""Playbooks imported by others, site.yml (tested above), and those for this machine."""
SHORT: dict[str, dict[str, object]] = {
    "run": {"mpi_job_program": ["/bin/true"]},
    "bench": {"mpi_bench_iterations": 5, "mpi_bench_max_bytes": 1024},
}
"""Variables of playbooks that require them, or that take long without them."""
WORDS = {"reboot": ["--check"], "verify": ["--tags=names,hostfile"]}


def typed(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, password: str, playbook: str, *words: str
) -> tuple[int, str]:
    """Return the exit status of a run at a terminal, and its output there."""
    output = bytearray()

    def read(terminal: int) -> bytes:
        data = os.read(terminal, 65536)
        output.extend(data)
        if b"BECOME password: " in data:
            os.write(terminal, f"{password}\n".encode())
        return data

    for name, value in nodes.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(TOP)
    command = nodes.command(f"playbooks/{playbook}.yml", "-K", way(nodes, Path.home()), *words)
    status = os.waitstatus_to_exitcode(pty.spawn(command, read, lambda _: b""))
    text = output.decode(errors="replace")
    assert password not in text
    reports = (TOP / "reports").rglob("*.json")
    assert not [path for path in reports if password in path.read_text(encoding="utf-8")]
    return status, text


@pytest.mark.parametrize(
    "playbook", sorted({path.stem for path in (TOP / "playbooks").glob("*.yml")} - NOT_TYPED)
)
def test_a_password_that_is_typed(
    playbook: str, guarded: Nodes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    variables = {"discover_file": str(tmp_path / "draft.yml"), **SHORT.get(playbook, {})}
    words = [f"--extra-vars={json.dumps(variables)}", "-vvv", *WORDS.get(playbook, [])]
    status, output = typed(guarded, monkeypatch, PASSWORD, playbook, *words)
    assert status == 0, output


@pytest.mark.parametrize(("playbook", "wanted"), [("smoke", 2), ("preflight", 2), ("verify", 4)])
def test_a_wrong_password_is_named(
    playbook: str, wanted: int, guarded: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, output = typed(guarded, monkeypatch, "another one", playbook)
    assert (status, "Incorrect sudo password" in output) == (wanted, True), output


def test_a_user_whom_sudo_refuses_is_named(guarded: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong password is reported for its host, in the summary; the others continue."""
    rule, away = f"/etc/sudoers.d/{LOGIN}", f"/root/{LOGIN}"
    with guarded.by_hand("node03", f"mv {rule} {away}", f"mv {away} {rule}"):
        status, output = typed(guarded, monkeypatch, PASSWORD, "names")
    (failure,) = re.findall(r"^failed: (.*)\r?$", output.partition("SUMMARY")[2], re.MULTILINE)
    assert (
        status == 2
        and failure.startswith("node03: ")
        and f"{LOGIN} is not in the sudoers" in failure
    )


def test_site_by_a_user_without_root(guarded: Nodes) -> None:
    """The state is in the user's home; the checkout belongs to another user and is read-only."""
    with tempfile.TemporaryDirectory() as made:
        home = Path(made)
        state = guarded.ssh_config.parent
        own = home / state.relative_to(Path.home())
        shutil.copytree(state, own)
        config = (own / "ssh_config").read_text(encoding="ascii")
        (own / "ssh_config").write_text(config.replace(str(state), str(own)), encoding="ascii")
        given = f"--become-password-file={password_file(home)}"
        for path in (home, *home.rglob("*")):
            os.chown(path, UNPRIVILEGED, UNPRIVILEGED)

        def run(*words: str) -> subprocess.CompletedProcess[str]:
            ids = f"--reuid={UNPRIVILEGED} --regid={UNPRIVILEGED} --clear-groups"
            variables = [f"HOME={home}", f"BAREMETAL_MPI_ROCE_REPORTS={home}/reports"]
            return guarded.run("setpriv", *ids.split(), "env", *variables, *words)

        if run(guarded.command("")[0], "--version").returncode:
            pytest.skip("this checkout can be read by root only")
        tags = "--tags=names,hostfile,ssh,smoke"
        done = run(*guarded.command("site.yml", tags, given, way(guarded, home)))
        assert done.returncode == 0, done.stdout
        assert "none failed" in done.stdout
        reports = list((home / "reports").rglob("site-*.json"))
        assert [path.stat().st_uid for path in reports] == [UNPRIVILEGED]


def test_a_build_with_a_password_that_is_typed(
    guarded: Nodes, with_source: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last test here: afterwards the nodes differ in their MPI."""
    status, output = typed(with_source, monkeypatch, PASSWORD, "mpi", "--limit=node04")
    assert status == 0, output
    assert any(name.startswith("source-") for name in left(with_source, "node04"))
