# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Facts about the operating system of a machine that no model describes yet; nothing is changed.

Output of `lldpcli`: lldpd, tests/integration/test_lldpcli.py (test_json0_output) at
4c8e6e37142b2d92dc4879ef502cca9e8b02ddd9 (https://github.com/lldpd/lldpd, read on 2026-11-25).
"""

from __future__ import annotations

import json
import platform
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from ..core.commands import CommandError, Runner
from ..core.processes import login_address
from . import tree
from .iproute import MAIN_TABLE, read_state
from .survey import interface_speed

LLDP = ("lldpcli", "-f", "json0", "show", "neighbors", "details")
PACKAGES = ("doca-ofed", "doca-all", "doca-roce", "mlnx-ofa_kernel", "mlnx-ofed-kernel-dkms")
"""Packages that have the version of the RDMA drivers; without them, rdma-core's version applies."""
DPKG = ("dpkg-query", "-W", "-f", "${Package}\\t${Version}\\t${db:Status-Status}\\n")
RPM = ("rpm", "-q", "--qf", "%{NAME}\\t%{VERSION}\\tinstalled\\n")
NETWORK = (
    ("netplan", "etc/netplan/*.yaml"),
    ("networkd", "etc/systemd/network/*.network"),
    ("NetworkManager", "etc/NetworkManager/system-connections/*"),
    ("ifcfg", "etc/sysconfig/network-scripts/ifcfg-*"),
    ("ifupdown", "etc/network/interfaces.d/*"),
)
"""Configuration files of each network service."""


def read_host(run: Runner, root: Path = Path("/")) -> dict[str, Any]:
    """Return the facts, except hardware, as JSON. Raises CommandError if `ip` fails."""
    state = read_state(run)
    release = _os_release(root)
    default = [
        name
        for name, routes in state.routes.items()
        if any((route.table, route.destination) == (MAIN_TABLE, "default") for route in routes)
    ]
    net = root / "sys/class/net"
    return {
        "name": platform.node(),
        "distribution": f"{release.get('ID', '')} {release.get('VERSION_ID', '')}".strip(),
        "kernel": platform.release(),
        "packages": _packages(run, release),
        "gpu_driver": tree.text(root / "sys/module/nvidia/version"),
        "cpu": processors(root),
        "interfaces": {
            name: {
                "mtu": link.mtu,
                "carrier": link.carrier,
                "speed_gbps": interface_speed(net / name),
                "addresses": list(link.addresses),
                "plain": name != "lo" and _plain(net / name),
            }
            for name, link in state.links.items()
        },
        "default_interface": min(default, default=""),
        "login": login_address(root / "proc"),
        "network": {
            service: files
            for service, pattern in NETWORK
            if (files := [f"/{path.relative_to(root)}" for path in sorted(root.glob(pattern))])
        },
        "neighbours": _neighbours(run),
    }


def processors(root: Path = Path("/")) -> dict[str, int]:
    """Processors and memory, as Slurm counts them: `sockets`, `cores` of a socket, `threads` of a
    core, `numa_nodes` and `memory_mb`. Empty if sockets or cores differ from each other."""
    system = root / "sys/devices/system"
    cores: dict[tuple[str, str], set[str]] = {}
    for name in tree.names(system / "cpu"):
        topology = system / "cpu" / name / "topology"
        siblings = tree.text(topology / "thread_siblings_list")
        if re.fullmatch(r"cpu\d+", name) and siblings:
            socket = tree.text(topology / "physical_package_id")
            cores.setdefault((socket, siblings), set()).add(name)
    per_socket = Counter(socket for socket, _siblings in cores)
    threads = {len(own) for own in cores.values()}
    memory = re.search(r"^MemTotal:\s+(\d+) kB$", tree.text(root / "proc/meminfo"), re.MULTILINE)
    if len({*per_socket.values()}) != 1 or len(threads) != 1 or memory is None:
        return {}
    numa = [name for name in tree.names(system / "node") if re.fullmatch(r"node\d+", name)]
    return {
        "sockets": len(per_socket),
        "cores": next(iter(per_socket.values())),
        "threads": threads.pop(),
        "numa_nodes": sum(bool(tree.text(system / "node" / name / "cpulist")) for name in numa),
        "memory_mb": int(memory[1]) // 1024,
    }


def versions(rails: Sequence[str], root: Path = Path("/")) -> dict[str, Any]:
    """Versions of the kernel and the NVIDIA driver, and the firmware of each rail's NIC; empty
    where unknown."""
    net = root / "sys/class/net"
    firmware = {
        rail: next((tree.text(path) for path in net.glob(f"{rail}/device/infiniband/*/fw_ver")), "")
        for rail in rails
    }
    driver = tree.text(root / "sys/module/nvidia/version")
    return {"kernel": platform.release(), "gpu_driver": driver, "firmware": firmware}


def _plain(entry: Path) -> bool:
    """Return whether an interface is a device or a veth, not a bridge, bond, VLAN or tunnel."""
    stacked = "DEVTYPE=" in tree.text(entry / "uevent") or (entry / "tun_flags").exists()
    return tree.number(entry / "type") == 1 and not stacked


def _os_release(root: Path) -> dict[str, str]:
    lines = [line.partition("=") for line in tree.text(root / "etc/os-release").splitlines()]
    return {key.strip(): value.strip().strip("\"'") for key, _equals, value in lines}


def _packages(run: Runner, release: dict[str, str]) -> dict[str, str]:
    """Return the versions of the installed PACKAGES and of rdma-core."""
    family = f"{release.get('ID', '')} {release.get('ID_LIKE', '')}".split()
    query = DPKG if "debian" in family or "ubuntu" in family else RPM
    try:
        text = run([*query, *PACKAGES, "rdma-core"], check=False).stdout
    except CommandError:
        return {}
    rows = [line.split("\t") for line in text.splitlines() if line.endswith("\tinstalled")]
    return {name: version for name, version, _status in rows}


def _neighbours(run: Runner) -> Optional[dict[str, dict[str, str]]]:
    """Return the LLDP neighbour by interface; None if lldpd does not run."""
    try:
        answer = run(LLDP, check=False)
        if answer.rc != 0:
            return None
        heard = json.loads(answer.stdout)["lldp"]
    except (CommandError, ValueError, KeyError):
        return None
    found: dict[str, dict[str, str]] = {}
    for entry in (entry for table in heard for entry in table.get("interface", ())):
        chassis, port = (_first(entry.get(key)) for key in ("chassis", "port"))
        system = _value(chassis.get("name")) or _value(chassis.get("id"))
        address = next(
            (each["value"] for each in chassis.get("mgmt-ip", ()) if "." in each["value"]), ""
        )
        found.setdefault(
            entry["name"],
            {
                "system": system,
                "description": _value(chassis.get("descr")),
                "address": address,
                "port": _value(port.get("id")),
                "port_description": _value(port.get("descr")),
            },
        )
    return found


def _first(values: Optional[Sequence[dict[str, Any]]]) -> dict[str, Any]:
    return values[0] if values else {}


def _value(values: Optional[Sequence[dict[str, Any]]]) -> str:
    return str(_first(values).get("value", ""))
