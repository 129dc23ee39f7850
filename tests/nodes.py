# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The virtual nodes as used by tests: run playbooks on them, and examine them over SSH."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Optional, Union

import testinfra
import yaml
from testinfra.host import Host

from tests import waiting

TOP = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
INVENTORY = TOP / os.environ.get("NODES_INVENTORY", "inventories/virtual-mixed")
"""Inventory of the nodes. With another one, tests can run in parallel to those of the default."""
MACHINES = TOP / os.environ.get("MACHINES_INVENTORY", "inventories/virtual-rdma")
"""Inventory of the virtual machines."""

RECAP = re.compile(r"^(\S+)\s+: ((?:\w+=\d+\s*)+)$", re.MULTILINE)
REPORT = re.compile(r"^report: (.+\.json)$", re.MULTILINE)


@dataclass(frozen=True)
class Run:
    """One run of ansible-playbook: its output, its recap, and the report of the summary."""

    rc: int
    output: str
    seconds: float
    recap: dict[str, dict[str, int]]
    report: dict[str, Any] = field(default_factory=dict)

    def total(self, word: str) -> int:
        return sum(counts[word] for counts in self.recap.values())

    def hosts_with(self, word: str) -> set[str]:
        return {host for host, counts in self.recap.items() if counts[word]}

    def checks(self, layer: str, *hosts: str) -> list[dict[str, Any]]:
        found = self.report["layers"][layer]["hosts"]
        return [check for host in hosts or found for check in found[host]["checks"]]

    def failed(self, layer: str, *hosts: str) -> list[dict[str, Any]]:
        return [check for check in self.checks(layer, *hosts) if check["status"] == "failed"]


class PlaybookFailed(AssertionError):
    """ansible-playbook exited with an unexpected status. The text is its output."""


class Nodes:
    def __init__(self, inventory: Path) -> None:
        self.inventory = inventory
        self.environment = {
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_FORCE_COLOR": "0",
        }

    def changed(self, folder: Path, change: Callable[[dict[str, Any]], None]) -> Nodes:
        """Return the same nodes with a copy of their inventory and a changed cluster.yml."""
        copy = folder / self.inventory.name
        shutil.copytree(self.inventory, copy, dirs_exist_ok=True)
        model = yaml.safe_load((self.inventory / "cluster.yml").read_text(encoding="utf-8"))
        change(model)
        (copy / "cluster.yml").write_text(yaml.safe_dump(model), encoding="utf-8")
        return Nodes(copy)

    def command(self, playbook: str, *words: str) -> list[str]:
        return [str(BIN / "ansible-playbook"), playbook, f"--inventory={self.inventory}", *words]

    def start(
        self, playbook: str, *words: str, output: Union[int, IO[str]] = subprocess.PIPE
    ) -> subprocess.Popen[str]:
        """Start a run in a separate process group, so that it can be interrupted or killed."""
        return subprocess.Popen(
            self.command(playbook, *words),
            cwd=TOP,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(
        self, *argv: str, environment: Optional[dict[str, str]] = None, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of Ansible from the top of the checkout; stdout has stderr too."""
        options = {"stderr": subprocess.STDOUT, "check": False, **options}
        return subprocess.run(
            argv,
            cwd=TOP,
            env={**self.environment, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            **options,
        )

    def play(
        self,
        playbook: str,
        *words: str,
        expect: Optional[int] = 0,
        environment: Optional[dict[str, str]] = None,
    ) -> Run:
        """Run a playbook. With `expect` None any exit status is accepted."""
        began = time.monotonic()
        done = self.run(*self.command(playbook, *words), environment=environment)
        if expect is not None and done.returncode != expect:
            raise PlaybookFailed(f"exit status {done.returncode}, wanted {expect}\n{done.stdout}")
        recap = {
            host: {word: int(count) for word, count in re.findall(r"(\w+)=(\d+)", counts)}
            for host, counts in RECAP.findall(done.stdout.partition("PLAY RECAP")[2])
        }
        saved = REPORT.search(done.stdout)
        return Run(
            done.returncode,
            done.stdout,
            time.monotonic() - began,
            recap,
            json.loads((TOP / saved[1]).read_text(encoding="utf-8")) if saved else {},
        )

    @functools.cached_property
    def variables(self) -> dict[str, Any]:
        argv = [str(BIN / "ansible-inventory"), "--list", f"--inventory={self.inventory}"]
        listed = self.run(*argv, stderr=subprocess.PIPE, check=True)
        return dict(json.loads(listed.stdout))

    def of(self, name: str) -> dict[str, Any]:
        return dict(self.variables["_meta"]["hostvars"][name])

    @property
    def ssh_config(self) -> Path:
        """SSH configuration of the nodes, written by the role virtual_nodes."""
        cluster = self.variables["_meta"]["hostvars"][self.group("launcher")[0]]["cluster_name"]
        return Path.home() / f".local/state/baremetal.mpi_roce/{cluster}/ssh_config"

    @functools.cache  # noqa: B019  (lives as long as the test session)
    def on(self, name: str, sudo: bool = True) -> Host:
        """Return a node to examine over SSH, without the modules under test."""
        return testinfra.get_host(
            f"ssh://{name}", ssh_config=str(self.ssh_config), sudo=sudo, controlpersist=60
        )

    def as_user(self, name: str, command: str) -> str:
        """Return the output of a command in a login shell of the MPI user."""
        user = self.of(name)["cluster_mpi_user"]
        return str(self.on(name).check_output("runuser -l %s -c %s", user, command))

    @contextlib.contextmanager
    def by_hand(self, name: str, command: str, undo: str) -> Iterator[Host]:
        """Run a command as root on a host, and `undo` afterwards."""
        self.on(name).check_output(command)
        try:
            yield self.on(name)
        finally:
            self.on(name).check_output(undo)

    @contextlib.contextmanager
    def new(self) -> Iterator[Nodes]:
        """Start the nodes in the state of their images. KEEP_NODES=1 leaves them running."""
        self.state(present=False)
        self.state(present=True)
        yield self
        if not os.environ.get("KEEP_NODES"):
            self.state(present=False)

    def state(self, present: bool) -> Run:
        return self.play(f"baremetal.bed.virtual_nodes{'' if present else '_down'}")

    def reboot(self, pattern: str) -> None:
        """Reboot hosts without the modules under test, and wait until they are up again."""
        limit = f"--args=reboot_timeout={waiting.deadline(600):.0f}"
        words = [pattern, f"--inventory={self.inventory}", "--become", limit]
        done = self.run(str(BIN / "ansible"), "--module-name=ansible.builtin.reboot", *words)
        assert done.returncode == 0, done.stdout

    def stop(self, name: str, *how: str) -> None:
        """Shut a virtual node down; with `kill` as when it loses power."""
        container = f"{self.of(name)['cluster_name']}.{name}"
        argv = ["podman", *(how or ("stop", "--time=5")), container]
        subprocess.run(argv, check=True, capture_output=True)

    def group(self, *names: str) -> list[str]:
        return [host for name in names for host in self.variables.get(name, {}).get("hosts", [])]


class Cluster:
    """The cluster that tests share. Each test requests the state that it starts from."""

    playbook = "site.yml"
    words: tuple[str, ...] = ()
    """Arguments of the playbook that converges it."""

    def __init__(self, inventory: Path) -> None:
        self.nodes = Nodes(inventory)
        self._state = ""
        """`fresh`, `used` or `converged`; empty before the nodes were started."""

    def fresh(self) -> Nodes:
        """Return nodes in the state of their images. A test that changes them calls `used`."""
        if self._state != "fresh":
            self.nodes.state(present=False)
            self.nodes.state(present=True)
            self._state = "fresh"
        return self.nodes

    def used(self) -> None:
        self._state = "used"

    def converge(self) -> Run:
        if not self._state:
            self.fresh()
        run = self.nodes.play(self.playbook, *self.words)
        self._state = "converged"
        return run

    def converged(self) -> Nodes:
        """Return nodes after that run. A test that changes a node restores it."""
        if self._state != "converged":
            self.converge()
        return self.nodes

    def down(self) -> None:
        """Remove the nodes if they were started. KEEP_NODES=1 leaves them."""
        if self._state and not os.environ.get("KEEP_NODES"):
            self.nodes.state(present=False)
            self._state = ""


CLUSTER = Cluster(INVENTORY)
