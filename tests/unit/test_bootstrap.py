# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""tools/bootstrap.sh names missing programs and packages, and the remedy."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
NEEDED = ["cat", "cut", "dirname", "grep", "head", "mktemp", "paste", "rm", "sed", "sha256sum"]
NEEDED += ["sort", "tail", "tr"]


class Machine:
    """Stubs. `has` adds a program, `run` runs a line with the functions loaded."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.programs = root / "bin"
        self.programs.mkdir()
        for name in NEEDED:
            (self.programs / name).symlink_to(Path("/usr/bin") / name)
        self.has("id", "echo 0")
        (root / "os-release").write_text('ID=debian\nVERSION_ID="12"\n')
        (root / "requirements").mkdir()
        for name in ("apt.txt", "controller.txt"):
            (root / "requirements" / name).write_text("# why\npodman\nrunc  # why\n")

    def has(self, name: str, script: str) -> None:
        path = self.programs / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        script = f"set -euo pipefail; . {TOP}/tools/bootstrap.sh; {line}"
        return subprocess.run(
            ["/bin/bash", "-c", script, "./demo"],
            cwd=self.root,
            env={"PATH": str(self.programs), "OS_RELEASE": str(self.root / "os-release")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def log(self) -> str:
        path = self.root / "log"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """With stubs of apt-get and dpkg-query: podman is installed, runc is not."""
    machine = Machine(tmp_path)
    machine.has("dpkg-query", f'grep -qx "$3" {machine.root}/installed && printf installed')
    (machine.root / "installed").write_text("podman\n")
    machine.has(
        "apt-get",
        f'echo "$@" >> {machine.root}/log; for last; do :; done; '
        f'echo "$last" >> {machine.root}/installed',
    )
    machine.has("env", 'while case "$1" in *=*) true;; *) false;; esac; do shift; done; exec "$@"')
    return machine


def test_only_what_is_missing_is_installed_and_told(machine):
    done = machine.run("bootstrap_apt apt.txt")
    assert done.returncode == 0
    assert done.stderr == "Installing Debian packages: runc\n"
    assert machine.log().endswith("install --no-install-recommends runc\n")


def test_old_package_lists_are_refreshed_once(machine):
    fresh = machine.root / "fresh"
    machine.has(
        "apt-get",
        f'echo "$@" >> {machine.root}/log\n'
        f'case "$*" in *update*) : > {fresh}; exit 0;; esac\n'
        f'[ -e {fresh} ] || {{ echo "E: Unable to locate package"; exit 100; }}',
    )
    done = machine.run("bootstrap_apt apt.txt")
    assert done.returncode == 0
    assert "E: Unable to locate package" in done.stderr
    assert [("update" in line) for line in machine.log().splitlines()] == [False, True, False]


def test_an_unknown_system_or_user_is_told_what_to_use(machine):
    machine.has("id", "echo 1000")
    done = machine.run("bootstrap_apt apt.txt")
    assert done.returncode == 3
    assert "Missing: root, or sudo without a password, to install: runc" in done.stderr
    assert "sudo ./demo" in done.stderr
    assert machine.run("require_root").returncode == 3
    (machine.programs / "apt-get").unlink()
    (machine.root / "os-release").write_text("ID=plan9\nVERSION_ID=4\n")
    done = machine.run("bootstrap_apt apt.txt")
    assert done.returncode == 3
    assert "Missing: a Debian or Ubuntu system (this one is: plan9 4)" in done.stderr
    assert machine.log() == ""


@pytest.mark.parametrize("problem", ["exit 1", "exit 127"], ids=["too old", "no venv module"])
def test_a_python_that_cannot_do_is_told_with_the_way_out(machine, problem):
    machine.has("python3", f'[ "$1" = -V ] && echo Python 3.9.2 || {problem}')
    done = machine.run("find_python() { return 1; }; bootstrap_python controller")
    assert done.returncode == 3
    assert "Missing: Python 3.11 or later with its venv module (python3 here is Python 3.9.2)" in (
        done.stderr
    )
    assert "PYTHON=/path/to/python3 ./demo" in done.stderr


def has_venv(machine: Machine) -> None:
    """Add a program that records its arguments."""
    (machine.root / ".venv/bin").mkdir(parents=True)
    python = machine.root / ".venv/bin/python"
    python.write_text(f'#!/bin/sh\necho "$@" >> {machine.root}/log\n')
    python.chmod(0o755)


def test_the_second_time_pip_is_not_asked(machine):
    """The stamp contains the digest of the requirements; a changed file runs pip again."""
    has_venv(machine)
    for _round in range(2):
        assert machine.run("bootstrap_python controller").returncode == 0
    assert machine.log().count("-m pip install") == 1
    (machine.root / "requirements/controller.txt").write_text("ansible-core==2.20.0\n")
    assert machine.run("bootstrap_python controller").returncode == 0
    assert machine.log().count("-m pip install") == 2


def test_another_ansible_core_replaces_the_pinned_one_as_long_as_it_is_asked_for(machine):
    has_venv(machine)
    for core in ("", "2.20", "2.20", ""):
        assert machine.run(f"ANSIBLE_CORE={core} bootstrap_python controller").returncode == 0
    asked = [line for line in machine.log().splitlines() if "pip install" in line]
    pinned = "requirements/controller.txt"
    assert [line.split()[-1] for line in asked] == [pinned, pinned, "ansible-core==2.20.*", pinned]
    hashed = [" --require-hashes --only-binary :all: -r " in line for line in asked]
    assert hashed == [True, True, False, True]
