# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One node of a small cluster is added, and one is replaced by a machine with other host keys."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.nodes import INVENTORY, Nodes, Run

pytestmark = [pytest.mark.nodes, pytest.mark.long]

OWN = "/etc/baremetal-mpi-roce/ssh"
HOSTS = "/etc/hosts"
SERVER = """\
import socket
def answer(query):
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode())
        at += 1 + query[at]
    end, kind, name = at + 5, query[at + 1 : at + 3], ".".join(labels)
    lines = (line.split() for line in open("/etc/hosts") if not line.startswith("#"))
    found = [words[0] for words in lines if name in words[1:] and ":" not in words[0]]
    if not found:
        return query[:2] + b"\\x81\\x83" + query[4:6] + bytes(6) + query[12:end]
    found = found if kind == b"\\0\\1" else []
    head = query[:2] + b"\\x81\\x80" + query[4:6] + bytes([0, len(found)]) + bytes(4)
    record = b"\\xc0\\x0c\\0\\1\\0\\1" + bytes(4) + b"\\0\\4"
    return head + query[12:end] + b"".join(record + socket.inet_aton(each) for each in found)
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("", 53))
while True:
    query, peer = server.recvfrom(512)
    server.sendto(answer(query), peer)
"""
"""A name server with the names of /etc/hosts, in place of dnsmasq."""
LIGHT = "names,os,rails,mpi,hostfile,ssh"
"""Layers of these tests. The others do nothing in containers, or measure."""


def smaller(model: dict[str, Any]) -> None:
    """A cluster with other addresses, of nodes with one rail."""
    model["name"] = "virtual-replace"
    model["management"]["subnet"] = "10.252.0.0/24"
    nodes = {"count": 3, "management_first": "10.252.0.11", "slots": 1, "overrides": {}}
    model["nodes"].update(nodes)
    model["gpus"] = {"count": 1}
    model["rails"]["count"] = model["leaves"]["count"] = 1
    model["leaves"]["management_first"] = "10.252.0.101"
    model["addresses"]["pool"] = "10.152.0.0/16"
    model["launcher"]["management"] = "10.252.0.10"
    del model["filesystems"]


@pytest.fixture(scope="module")
def known_hosts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The operator's file. The role virtual_nodes writes another one."""
    return tmp_path_factory.mktemp("operator") / "known_hosts"


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory, known_hosts: Path) -> Iterator[Nodes]:
    """Three nodes, of which two are configured, and a resolver that has all names."""
    nodes = Nodes(INVENTORY).changed(tmp_path_factory.mktemp("inventory"), smaller)
    variables = nodes.inventory / "group_vars/all.yml"
    content = yaml.safe_load(variables.read_text(encoding="utf-8"))
    content["cluster_hosts_mode"] = "resolver"
    with nodes.new():
        state = nodes.ssh_config.parent
        shutil.copy(state / "known_hosts", known_hosts)
        options = f"-o StrictHostKeyChecking=yes -o UserKnownHostsFile={known_hosts}"
        content["ansible_ssh_common_args"] = f"-o IdentitiesOnly=yes {options}"
        variables.write_text(yaml.safe_dump(content), encoding="utf-8")
        yield nodes


@pytest.fixture(scope="module")
def two(three: Nodes, tmp_path_factory: pytest.TempPathFactory) -> Nodes:
    """Two of them after a run. The launcher has the names first, for the others to find."""

    def change(model: dict[str, Any]) -> None:
        model["nodes"]["count"] = 2

    two = three.changed(tmp_path_factory.mktemp("two"), change)
    launcher = two.group("launcher")[0]
    write = f"cat >/root/names.py <<'END'\n{SERVER}END\n"
    start = "systemd-run --unit=names.service --property=Restart=always python3 /root/names.py"
    two.on(launcher).check_output(f"{write}{start}")
    for name in three.group("compute"):
        resolve_by(three, name)
    two.play("playbooks/names.yml", f"--limit={launcher}")
    two.play("site.yml", f"--tags={LIGHT}")
    return two


def resolve_by(nodes: Nodes, name: str) -> None:
    server = nodes.of(nodes.group("launcher")[0])["ansible_host"]
    nodes.on(name).check_output(f"echo nameserver {server} >/etc/resolv.conf")


def files(nodes: Nodes, name: str) -> str:
    """Digests of everything that the layers write on a node."""
    where = "/etc /usr/local/libexec /var/lib/baremetal-mpi-roce"
    return str(nodes.on(name).check_output(f"find {where} -type f -exec sha256sum {{}} + | sort"))


def changed(run: Run) -> set[str]:
    return run.hosts_with("changed")


class TestOneMore:
    def test_names_of_others_come_from_the_resolver(self, two: Nodes) -> None:
        first, second = two.group("compute")
        launcher = two.group("launcher")[0]
        lines = two.on(first).file(HOSTS).content_string
        assert (launcher in lines, second in lines) == (True, False)
        assert second in two.on(launcher).file(HOSTS).content_string
        found = two.on(first).check_output(f"getent ahosts {second}-rail0").split()[0]
        assert found == two.of(second)["cluster_rails"][0]["address"]
        assert two.play("site.yml", f"--tags={LIGHT}").total("changed") == 0

    def test_the_printed_command_touches_the_node_and_the_launcher(
        self, two: Nodes, three: Nodes
    ) -> None:
        *others, new = three.group("compute")
        launcher = three.group("launcher")[0]
        shown = three.play("playbooks/model.yml", f"-eagainst={two.inventory}/cluster.yml").output
        (limit,) = re.findall(r"site\.yml .*--limit (\S+) --skip-tags smoke", shown)
        assert set(limit.split(",")) == {new, "launcher", *three.group("leaf")}
        assert "--tags names" not in shown
        before = {name: files(three, name) for name in others}
        run = three.play("site.yml", f"--limit={limit}", f"--tags={LIGHT}")
        print(f"one node more: {run.seconds:.0f} s, {sorted(changed(run))} changed")
        assert changed(run) == {new, launcher}
        assert {name: files(three, name) for name in others} == before
        again = three.play("site.yml", f"--tags={LIGHT}")
        assert again.total("changed") == 0, "nothing was left to do on any host"
        line = three.on(launcher).file("/etc/baremetal-mpi-roce/hostfile").content_string
        assert new in line


class TestReplaced:
    @pytest.fixture(scope="class")
    @staticmethod
    def former(three: Nodes, known_hosts: Path, tmp_path_factory: Any) -> dict[str, str]:
        """The last node becomes another machine; what the former one had."""
        name = three.group("compute")[-1]
        node = three.on(name)
        kept = {
            "name": name,
            "key": node.file(f"{OWN}/id_ed25519").content_string,
            "certificate": node.file(f"{OWN}/id_ed25519-cert.pub").content_string,
            "host": node.file("/etc/ssh/ssh_host_ed25519_key.pub").content_string,
        }
        subprocess.run(
            ["podman", "rm", "--force", "--time=0", f"virtual-replace.{name}"],
            check=True,
            capture_output=True,
        )
        three.state(present=True)
        three.on.cache_clear()  # type: ignore[attr-defined]
        subprocess.run(
            ["ssh", "-F", str(three.ssh_config), "-O", "exit", name], capture_output=True
        )
        resolve_by(three, name)
        kept["new"] = three.on(name).file("/etc/ssh/ssh_host_ed25519_key.pub").content_string
        assert kept["new"].split()[1] != kept["host"].split()[1]
        return kept

    def replace(self, three: Nodes, known_hosts: Path, name: str, key: str, **more: Any) -> Run:
        tags = LIGHT.replace("hostfile,", "")  # no host of it is replaced
        words = [f"--limit={name}", f"--tags={tags}", f"-ereplace_known_hosts={known_hosts}"]
        given = yaml.safe_dump({"replace_host_key": key.strip()}, default_flow_style=True)
        return three.play("playbooks/replace.yml", *words, f"-e{given.strip()}", **more)

    def test_another_host_key_is_refused(
        self, three: Nodes, known_hosts: Path, former: dict[str, str]
    ) -> None:
        name = former["name"]
        run = three.play("playbooks/names.yml", f"--limit={name}", expect=None)
        assert run.rc
        assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in run.output
        assert self.replace(three, known_hosts, name, former["host"], expect=None).rc
        assert self.replace(three, known_hosts, "compute", former["new"], expect=None).rc

    def test_one_command_replaces_the_node(
        self, three: Nodes, known_hosts: Path, former: dict[str, str]
    ) -> None:
        name, (first, *_rest) = former["name"], three.group("compute")
        before = files(three, first)
        run = self.replace(three, known_hosts, name, former["new"])
        print(f"a node replaced: {run.seconds:.0f} s")
        assert changed(run) - {"localhost"} == {name}
        assert files(three, first) == before
        assert "nodes with an old revocation list" in run.output
        assert three.on(first).check_output(f"su -l mpi -c 'ssh {name} hostname'") == name
        assert three.on(name).check_output(f"su -l mpi -c 'ssh {first} hostname'") == first

    def test_the_former_machine_is_refused_after_the_next_run(
        self, three: Nodes, former: dict[str, str]
    ) -> None:
        name, first = former["name"], three.group("compute")[0]
        node = three.on(name)
        for file, content in (("id", former["key"]), ("id-cert.pub", former["certificate"])):
            write = f"install -m 600 -o mpi /dev/stdin /home/{file} <<'END'\n{content}END"
            node.check_output(write)
        command = (
            "ssh -n -F none -o BatchMode=yes -o IdentitiesOnly=yes "
            "-o StrictHostKeyChecking=no "  # the former machine may trust any host: it is refused
            "-o UserKnownHostsFile=/dev/null "  # and has no record of hosts
            f"-i /home/id {first} hostname"
        )
        login = f"su -l mpi -c '{command}' || exit 1"
        assert node.run(login).stdout.strip() == first, "its list is from before"
        three.play("playbooks/ssh.yml")
        assert "Permission denied" in node.run(login).stderr
        assert three.play("site.yml", f"--tags={LIGHT}").total("changed") == 0
