# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Virtual clusters that a test may break, and the traces they may leave behind."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Collection
from pathlib import Path

from ansible_collections.baremetal.bed.plugins.module_utils.inventory import (
    controller_interface,
)

from tests import waiting
from tests.nodes import TOP, Nodes

STATE = Path.home() / ".local/state/baremetal.mpi_roce"
JOURNALS = Path("/run/baremetal-mpi-roce/virtual")
MACHINES = Path("/var/lib/baremetal-mpi-roce/virtual/machines")


def describe(folder: Path, model: str, like: str = "virtual") -> Nodes:
    """Write an inventory with this model and the group variables of an existing one."""
    shutil.copytree(TOP / "inventories" / like, folder)
    (folder / "cluster.yml").write_text(model)
    return Nodes(folder)


def output(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def traces(*mine: str) -> set[str]:
    """Return every trace on this machine that the clusters `mine` could have left, one per line."""
    links = [f"link {link['ifname']}" for link in json.loads(output("ip", "-json", "link"))]
    found = {
        *links,
        *(f"journal {path.stem}" for path in JOURNALS.glob("*")),
        *(f"state {path.name}" for path in STATE.glob("*")),
        *(f"machine {path.name}" for path in MACHINES.glob("*")),
        f"forwarding {Path('/proc/sys/net/ipv4/ip_forward').read_text()}",
        *(f"volume {name}" for name in volumes(mine)),
    }
    commands = [
        "ip netns list",
        "ip rule",
        "ip -6 rule",
        "ip route show table all",
        "podman ps -a --format {{.Names}}",
        "podman network ls -q",
        "iptables-save",
        "ip6tables-save",
        "nft list ruleset",
    ]
    for command in commands:
        if shutil.which(command.split()[0]):
            # Packet counters of chains are removed.
            lines = re.sub(r"\[\d+:\d+\]", "", output(*command.split())).splitlines()
            found.update(f"{command}: {line}" for line in lines if not line.startswith("#"))
    return {line for line in found if not any(word in line for word in others(mine))}


def volumes(mine: Collection[str]) -> set[str]:
    """Return podman's volumes, except those of other clusters. Volume names do not name the
    cluster."""
    found = set(output("podman", "volume", "ls", "-q").split())
    for container in output("podman", "ps", "-a", "--format", "{{.Names}}").split():
        if any(name in container for name in others(mine)):
            mounts = ["--format", "{{range .Mounts}}{{.Name}} {{end}}", container]
            messages = subprocess.run(
                ["podman", "inspect", *mounts], capture_output=True, text=True
            )
            found -= set(
                messages.stdout.split()
            )  # empty if the container was removed in the meantime
    return found


def others(mine: Collection[str]) -> set[str]:
    """Return names of other clusters, which may come and go while a test runs."""
    names = {path.name for path in [*STATE.glob("*"), *MACHINES.glob("*")]}
    names |= {path.stem for path in JOURNALS.glob("*")}
    seen.update(names)
    strangers = seen - set(mine)
    return strangers | {controller_interface(name) for name in strangers}


seen: set[str] = set()


def reboot_playbook(nodes: Nodes) -> Path:
    playbook = nodes.inventory.parent / "reboot.yml"
    playbook.write_text(
        "- hosts: compute\n  gather_facts: false\n  become: true\n"
        f"  tasks: [{{ansible.builtin.reboot: {{reboot_timeout: {waiting.deadline(300):.0f}}}}}]\n"
    )
    return playbook


def refuses_another_host_key(nodes: Nodes) -> None:
    """Verify that a changed host key of node01 is rejected until it is read from the node
    itself."""
    login = ["ssh", "-F", str(nodes.ssh_config), "-o", "BatchMode=yes"]
    login += ["-o", "ControlPath=none", "node01", "true"]
    refused = subprocess.run(login, capture_output=True, text=True, check=False)
    assert refused.returncode == 255
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in refused.stderr
    nodes.state(present=True)
    assert subprocess.run(login, capture_output=True, check=False).returncode == 0


def kill_after(nodes: Nodes, seconds: float) -> None:
    """Send SIGKILL to ansible-playbook and all its child processes."""
    running = subprocess.Popen(
        nodes.command("baremetal.bed.virtual_nodes"),
        cwd=TOP,
        env=nodes.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    time.sleep(seconds)
    os.killpg(running.pid, signal.SIGKILL)
    assert running.wait() in (0, -signal.SIGKILL)
