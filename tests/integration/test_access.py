# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ways in that sites have: sudo that asks, another port, a bastion, no root on the controller.

All at a time: what works with every one of them works with one.
"""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nodes import TOP, Nodes

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
"""Ansible keeps its connections open for a while."""
UNPRIVILEGED = 65534


def hosts(nodes: Nodes) -> list[str]:
    return nodes.group("compute", "launcher")


def way(nodes: Nodes, home: Path) -> str:
    """The words for a run whose keys and known hosts are those in this home."""
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
    assert ports == {str(PORT)}, "MPI goes to the port of the operator's sshd as well"


TYPED = {
    "smoke": {},
    "run": {"mpi_job_program": ["/bin/true"]},
    "bench": {"mpi_bench_iterations": 5, "mpi_bench_max_bytes": 1024},
    "preflight": {},
    "reboot": {},
    **{layer: {} for layer in ("names", "os", "rails", "storage", "mpi", "hostfile", "ssh")},
}
"""Playbooks that site.yml does not show with a password, with variables that keep them short."""


@pytest.mark.parametrize("playbook", TYPED)
def test_a_password_that_is_typed(
    playbook: str, guarded: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = bytearray()

    def read(terminal: int) -> bytes:
        data = os.read(terminal, 65536)
        shown.extend(data)
        if b"BECOME password: " in data:
            os.write(terminal, f"{PASSWORD}\n".encode())
        return data

    for name, value in guarded.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(TOP)
    words = ["-K", way(guarded, Path.home()), f"--extra-vars={json.dumps(TYPED[playbook])}"]
    words += ["--check"] if playbook == "reboot" else []
    command = guarded.command(f"playbooks/{playbook}.yml", *words)
    status = pty.spawn(command, read, lambda _: b"")
    assert os.waitstatus_to_exitcode(status) == 0, shown.decode(errors="replace")
    assert PASSWORD.encode() not in shown


def test_site_by_a_user_without_root(guarded: Nodes) -> None:
    """His home has the state; the checkout is another user's, and he can only read it."""
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
        unprivileged = [
            *("setpriv", f"--reuid={UNPRIVILEGED}", f"--regid={UNPRIVILEGED}", "--clear-groups"),
            *("env", f"HOME={home}", f"BAREMETAL_MPI_ROCE_REPORTS={home}/reports"),
        ]
        readable = subprocess.run(
            [*unprivileged, guarded.command("")[0], "--version"],
            cwd=TOP,
            env=guarded.environment,
            capture_output=True,
            check=False,
        )
        if readable.returncode:
            pytest.skip("this checkout can be read by root only")
        tags = "--tags=names,hostfile,ssh,smoke"
        done = subprocess.run(
            [*unprivileged, *guarded.command("site.yml", tags, given, way(guarded, home))],
            cwd=TOP,
            env=guarded.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        assert "none failed" in done.stdout
        reports = list((home / "reports").rglob("site-*.json"))
        assert [path.stat().st_uid for path in reports] == [UNPRIVILEGED]
