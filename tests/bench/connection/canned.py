# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Connection plugin of tests/bench/controller.py: every module returns a canned result.

Only the controller's work remains of a run. For each execution, one line with host, module and the
number of bytes to send is appended to the file named by CANNED_SENT; and host, module and arguments
to the file named by CANNED_ARGUMENTS, if any. With CANNED_UNCHANGED, the look finds all unchanged.
"""

from __future__ import annotations

import ast
import json
import os
import re
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.connection import ConnectionBase

DOCUMENTATION = r"""
name: canned
short_description: Answers each module from canned results
description: Executes nothing. Used to measure the controller.
author: Baremetal MPI RoCE founders (@baremetal)
extends_documentation_fragment: [connection_pipelining]
"""
FACTS = {
    "ansible_facts": {
        "ansible_distribution": "Debian",
        "ansible_distribution_major_version": "12",
        "ansible_distribution_release": "bookworm",
        "ansible_distribution_version": "12.8",
        "ansible_os_family": "Debian",
        "ansible_pkg_mgr": "apt",
    }
}
MARK = "@@ baremetal.mpi_roce answers:"
CHECKS, OWN = 40, 10
"""Checks in the result of a layer's module, about as many as a converged node returns; those with a
value that differs from node to node."""
PACKAGES = ("apt", "package", "dnf")
MODULE = re.compile(rb"module_fqn='[\w.]*?\.modules\.(\w+)'")
PARAMETERS = re.compile(rb"^params=('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"),?$", re.MULTILINE)
"""Python's literal of a JSON text, in the program that Ansible sends."""


def answer(module: str, host: str) -> dict[str, Any]:
    if module == "setup":
        return FACTS
    if module in PACKAGES:
        return {"changed": False, "cache_updated": False}
    if module == "command":
        # The shell command of os_baseline: no other time service is active.
        return {"changed": False, "rc": 0, "stdout": "time services were read", "stderr": ""}
    checks = []
    for number in range(CHECKS):
        value = host if number < OWN else "1"
        check = {"name": f"check_{number}", "subject": f"rail{number % 8}", "wanted": value}
        checks.append({**check, "found": value, "status": "ok", "reason": ""})
    return {"changed": False, "layer": module, "checks": checks, "diff": []}


class Connection(ConnectionBase):
    transport = "canned"
    has_pipelining = True

    def _connect(self) -> Connection:
        self._connected = True
        return self

    def exec_command(self, cmd: str, in_data: Any = None, sudoable: bool = True) -> Any:
        sent = in_data or b""
        found = MODULE.search(sent)
        look = sent.startswith(b'{"layers"')
        module = found.group(1).decode() if found else "look" if look else "unknown"
        host = str(self._play_context.remote_addr)
        with open(os.environ["CANNED_SENT"], "a", encoding="ascii") as stream:
            stream.write(f"{host} {module} {len(sent)}\n")
        self._keep(module, PARAMETERS.search(sent))
        if look:
            layers = {tag: answer(module, host) for tag, module, _key in json.loads(sent)["layers"]}
            known = layers if os.environ.get("CANNED_UNCHANGED") else {}
            return 0, f"{MARK}\n{json.dumps({'layers': known})}\n".encode(), b""
        return 0, json.dumps(answer(module, host)).encode(), b""

    def _keep(self, module: str, given: Any) -> None:
        path = os.environ.get("CANNED_ARGUMENTS")
        if path and given:
            told = json.loads(ast.literal_eval(given.group(1).decode()))["ANSIBLE_MODULE_ARGS"]
            with open(path, "a", encoding="utf-8") as stream:
                stream.write(json.dumps([self._play_context.remote_addr, module, told]) + "\n")

    def put_file(self, in_path: str, out_path: str) -> None:
        raise AnsibleError("with pipelining no file is copied")

    def fetch_file(self, in_path: str, out_path: str) -> None:
        raise AnsibleError("no layer fetches files")

    def close(self) -> None:
        self._connected = False
