# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Execution nodes: hosts of one group of the inventory, and the racks that each of them serves."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...module_utils.core.text import nearest, some
from ..answers import NAME, Form
from ..schema.findings import Findings, RefusedError

RACKS, PYTHON, DIRECTORY = "share_racks", "share_python", "share_directory"
"""Variables of an execution node."""
DEFAULTS = {PYTHON: "/usr/bin/python3", DIRECTORY: "/dev/shm"}
PATH = Form("an absolute path of letters, digits and ._+-", r"(/[A-Za-z0-9._+-]+)+")
USER = Form("a user name", r"[A-Za-z0-9_][A-Za-z0-9_.@\\-]{0,63}")
PASSWORDS = ("ansible_password", "ansible_ssh_password", "ansible_ssh_pass")
RECEPTOR_PORT = 27199
FORWARDED_PORT = 22000
"""First local port that Receptor forwards to the SSH server of an execution node."""


class NodesError(RefusedError):
    what = "execution nodes: no host was touched"


@dataclass(frozen=True)
class ExecutionNode:
    name: str
    racks: tuple[str, ...]
    python: str
    directory: str
    """For everything that is sent to it."""
    ssh: tuple[str, ...]
    """The command that logs in, without the command to run."""

    def command(self, program: str) -> list[str]:
        """`program` is the text of node.py."""
        return [*self.ssh, shlex.join([self.python, "-I", "-c", program])]


def read(
    group: str, hosts: Mapping[str, Mapping[str, Any]], racks: Sequence[str]
) -> list[ExecutionNode]:
    """The nodes of a group, whose variables are templated. `racks` are those of the model.

    Raises NodesError with all errors.
    """
    findings, nodes = Findings(), []
    if not hosts:
        problem = f"the inventory has no group {group!r} with execution nodes"
        findings.add("share.no_nodes", (), problem, "Add one (docs/several-controllers.md)")
    owner: dict[str, str] = {}
    for name, variables in hosts.items():
        own = variables.get(RACKS)
        if not isinstance(own, list) or not own or not all(isinstance(one, str) for one in own):
            problem = "is not a list of racks"
            findings.add("share.racks", (name, RACKS), problem, "Name at least one", own)
            own = []
        for rack in own:
            if rack not in racks:
                remedy = nearest(rack, racks)
                findings.add("share.unknown_rack", (name, RACKS), f"no rack {rack!r}", remedy, rack)
            elif rack in owner:
                problem = f"rack {rack} is also of {owner[rack]}"
                findings.add("share.rack_twice", (name, RACKS), problem, "Name it once", rack)
            owner.setdefault(rack, name)
        nodes.append(_node(name, variables, tuple(own), findings))
    if findings:
        raise NodesError(findings.found)
    return nodes


def _node(
    name: str, variables: Mapping[str, Any], racks: tuple[str, ...], findings: Findings
) -> ExecutionNode:
    if any(variables.get(key) for key in PASSWORDS):
        problem = "the controller logs in to execution nodes with a key"
        remedy = "Set ansible_ssh_private_key_file, or load an agent"
        findings.add("share.password", (name, "ansible_password"), problem, remedy)
    texts = {
        "ansible_host": (str(variables.get("ansible_host") or name), NAME),
        "ansible_port": (str(variables.get("ansible_port") or 22), Form("a port", r"[0-9]{1,5}")),
        "ansible_user": (str(variables.get("ansible_user") or ""), USER),
        **{key: (str(variables.get(key) or text), PATH) for key, text in DEFAULTS.items()},
    }
    for key, (text, form) in texts.items():
        # An address of IPv6 is no name.
        if text and not form.fits(text.replace(":", "") if key == "ansible_host" else text):
            findings.add("share.value", (name, key), f"is not {form.what}", "Correct it", text)
    words = [("-o", "BatchMode=yes"), ("-o", "ServerAliveInterval=15"), ("-o", "ConnectTimeout=30")]
    words += [("-p", texts["ansible_port"][0])]
    user, identity = texts["ansible_user"][0], variables.get("ansible_ssh_private_key_file")
    words += [("-l", user)] if user else []
    words += [("-i", str(Path(str(identity)).expanduser()))] if identity else []
    ssh = [word for pair in words for word in pair]
    for option in ("ansible_ssh_common_args", "ansible_ssh_extra_args"):
        try:
            ssh += shlex.split(str(variables.get(option) or ""))
        except ValueError as error:
            findings.add(
                "share.ssh_arguments", (name, option), f"cannot be split: {error}", "Correct it"
            )
    host, python, directory = (texts[key][0] for key in ("ansible_host", PYTHON, DIRECTORY))
    return ExecutionNode(name, racks, python, directory, ("ssh", *ssh, "-T", "--", host))


def refusals(
    answers: Mapping[str, Mapping[str, Any]], versions: Mapping[str, str], bytes_needed: int
) -> list[str]:
    """Why nodes cannot run a share, by their answers to a probe; `versions` are those here."""
    found = []
    for name, answer in answers.items():
        if answer.get("share") != "ready":
            found.append(f"{name}: {answer.get('reason')}")
            continue
        theirs = answer.get("versions")
        theirs = theirs if isinstance(theirs, Mapping) else {}
        for package, version in versions.items():
            if theirs.get(package) != version:
                shown = theirs.get(package) or "missing"
                found.append(
                    f"{name}: {package} is {shown}, here {version}: install the same version in "
                    f"the environment of {PYTHON}"
                )
        free = answer.get("free_bytes")
        if answer.get("writable") is not True:
            found.append(f"{name}: share_directory is not writable")
        elif not isinstance(free, int) or free < bytes_needed:
            found.append(
                f"{name}: {bytes_needed >> 20} MiB are needed in share_directory, free are "
                f"{free >> 20 if isinstance(free, int) else '?'} MiB: free some, or name another"
            )
    return found


def receptor(nodes: Sequence[ExecutionNode], addresses: Mapping[str, str]) -> dict[str, str]:
    """Files that let SSH to execution nodes pass through a Receptor mesh. No Receptor has read
    them in a test."""
    tls = "  cert: /etc/receptor/tls/receptor.crt\n  key: /etc/receptor/tls/receptor.key\n"
    peers, servers, hosts = "", "", ""
    files = {}
    for number, node in enumerate(nodes, 1):
        port = FORWARDED_PORT + number
        host = addresses[node.name]
        host = f"[{host}]" if ":" in host else host
        peers += f"- address: '{host}:{RECEPTOR_PORT}'\n  tls: mesh\n"
        servers += f"- bindaddr: 127.0.0.1\n  port: {port}\n  remotenode: {node.name}\n"
        servers += "  remoteservice: ssh\n"
        hosts += f"    {node.name}:\n      ansible_host: 127.0.0.1\n      ansible_port: {port}\n"
        hosts += f"      ansible_ssh_extra_args: -o HostKeyAlias={node.name}\n"
        files[f"{node.name}.yml"] = (
            f"---\nversion: 2\nnode:\n  id: {node.name}\ntls-servers:\n- name: mesh\n{tls}"
            "  requireclientcert: true\n  clientcas: /etc/receptor/tls/ca.crt\n"
            f"tcp-listeners:\n- port: {RECEPTOR_PORT}\n  tls: mesh\n  allowedpeers: [controller]\n"
            "tcp-clients:\n- service: ssh\n  address: 127.0.0.1:22\n"
        )
    files["controller.yml"] = (
        f"---\nversion: 2\nnode:\n  id: controller\ntls-clients:\n- name: mesh\n{tls}"
        f"  rootcas: /etc/receptor/tls/ca.crt\ntcp-peers:\n{peers}tcp-servers:\n{servers}"
    )
    files["inventory.yml"] = f"---\nall:\n  hosts:\n{hosts}"
    return files


def racks_text(node: ExecutionNode) -> str:
    return f"{node.name} ({some(node.racks, 8)})"
