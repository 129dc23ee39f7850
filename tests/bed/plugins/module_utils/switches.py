# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Files that turn a container into a switch: its description, certificate and password.

Each switch has a folder on the controller, which its container mounts at /etc/virtual-switch.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Runner
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.files import (
    FilePlan,
    plan_file,
)

from .bgp import Rails, frr_configuration
from .cabling import Switches
from .inventory import VirtualError, interface_of

SYSTEMS = ("sonic", "nvue", "eos")
PASSWORD_BYTES = 18
LANES = 8
"""Increment between the port numbers of SONiC."""


@dataclass(frozen=True)
class Routing:
    """Routes and traffic of a fabric with BGP, from inventory variables by host name."""

    asns: Mapping[str, Optional[int]]
    rails: Rails
    rate_mbits: int = 0

    def frr(self, name: str, ports: Switches, router_id: str) -> str:
        return frr_configuration(name, ports, self.asns, self.rails, router_id)

    def rates(self, name: str, ports: Switches) -> str:
        """Twice the rate between switches, for two flows that are hashed to the same cable."""
        peers = {port: peer for group in ports[name] for port, peer in group["peers"].items()}
        return "".join(
            f"{interface_of(port)} {self.rate_mbits * (2 if peer in ports else 1)}\n"
            for port, peer in peers.items()
            if self.rate_mbits
        )


@dataclass(frozen=True)
class SimulatedSwitch:
    name: str
    address: str
    system: str
    asic: str
    ports: tuple[Mapping[str, Any], ...]
    """Ports as in `switch.json`: name, speed_gbps, peer, peer_interface, peer_mac, device."""
    frr: str = ""
    """Configuration of FRR. Empty: no traffic passes the switch."""
    rates: str = ""
    """Lines `Ethernet0 100`: rate in Mbit/s that an interface sends at. Empty: not limited."""

    @property
    def description(self) -> str:
        """Content of `switch.json`: the source for LLDP and for the factory configuration."""
        about = {
            "name": self.name,
            "system": self.system,
            "asic": self.asic,
            "ports": list(self.ports),
        }
        return json.dumps(about, indent=1) + "\n"

    @property
    def environment(self) -> str:
        """Environment of the unit that starts the simulation."""
        return f"SYSTEM={self.system}\nADDRESS={self.address}\n"


def parse_switches(
    management: Mapping[str, Mapping[str, Any]],
    systems: Mapping[str, str],
    asics: Mapping[str, str],
    ports: Switches,
    routing: Optional[Routing] = None,
) -> tuple[SimulatedSwitch, ...]:
    """Parse switches from inventory variables, each by host name."""
    for name in management:
        if systems.get(name) not in SYSTEMS:
            raise VirtualError(
                f"{name}: {systems.get(name) or 'no system'!r} cannot be simulated; "
                f"simulated are {', '.join(SYSTEMS)}. Set one of them as leaves.system or "
                "spines.system in cluster.yml, or leave the host out of virtual_nodes_names."
            )
    return tuple(
        SimulatedSwitch(
            name=name,
            address=str(settings["address"]),
            system=systems[name],
            asic=asics.get(name) or "",
            ports=_ports(ports.get(name) or (), systems, carries=routing is not None),
            frr=routing.frr(name, ports, str(settings["address"])) if routing else "",
            rates=routing.rates(name, ports) if routing else "",
        )
        for name, settings in management.items()
    )


def _ports(
    groups: Sequence[Mapping[str, Any]], systems: Mapping[str, str], *, carries: bool
) -> tuple[Mapping[str, Any], ...]:
    """Return the ports of `cluster_ports`, in the order of the model.

    `carries`: traffic passes these ports, so each has an interface in the container.
    """
    return tuple(
        {
            **({"device": interface_of(port)} if carries else {}),
            "name": port,
            "speed_gbps": int(group["speed_gbps"]),
            "peer": peer,
            "peer_interface": _announced(
                str(group.get("peer_interface") or ""), systems.get(peer, "")
            ),
            "peer_mac": None,
        }
        for group in groups
        for port, peer in group["peers"].items()
    )


def _announced(interface: str, system: str) -> str:
    """Return the front panel name that SONiC announces: etp2 for Ethernet8."""
    port = re.fullmatch(r"Ethernet(\d+)", interface)
    if system != "sonic" or not port:
        return interface
    index, lane = divmod(int(port[1]), LANES)
    return f"etp{index + 1}{'abcdefgh'[lane] if lane else ''}"


DAYS = 365
RENEW_S = 30 * 24 * 3600
"""A certificate with less time left is renewed."""
AUTHORITY = "authority"


class Folders:
    """The controller's files of all switches of a cluster: planned first, then written.

    An authority signs the certificates of these switches and is trusted for nothing else.
    """

    def __init__(self, directory: Path, cluster: str, run: Runner) -> None:
        self._directory = directory
        self._cluster = cluster
        self._run = run
        self._ca, self._ca_key = directory / "switch-ca.pem", directory / "switch-ca.key"
        self._password = directory / "switch_password"

    def of(self, switch: SimulatedSwitch) -> Path:
        return self._directory / "switches" / switch.name

    def plan(self, switches: Sequence[SimulatedSwitch]) -> tuple[list[str], list[FilePlan]]:
        """Return what openssl must create (`authority`, or a switch's name) and the plain files."""
        if not self._valid(self._ca, self._ca_key):
            made = [AUTHORITY, *(switch.name for switch in switches)]
        else:
            made = [switch.name for switch in switches if not self._signed(switch)]
        return made, self._files(switches)

    def _files(self, switches: Sequence[SimulatedSwitch]) -> list[FilePlan]:
        password = self._known_password() or secrets.token_urlsafe(PASSWORD_BYTES)
        text = f"{password}\n"
        plans = [_file(self._password, text, secret=True)]
        for switch in switches:
            folder = self.of(switch)
            plans += [
                _file(folder / "switch.json", switch.description),
                _file(folder / "environment", switch.environment),
                _file(folder / "password", text, secret=True),
                _file(folder / "frr.conf", switch.frr),
                _file(folder / "rates", switch.rates),
            ]
        return [plan for plan in plans if plan.changed]

    def make(
        self,
        switches: Sequence[SimulatedSwitch],
        signatures: Sequence[str],
        files: Sequence[FilePlan],
    ) -> None:
        for plan in files:
            plan.apply()
        if AUTHORITY in signatures:
            self._certify(
                self._ca, self._ca_key, f"switches of {self._cluster}", DAYS * 3,
                "basicConstraints=critical,CA:TRUE,pathlen:0", "keyUsage=critical,keyCertSign",
            )  # fmt: skip
        for switch in switches:
            if switch.name in signatures:
                self._certify(
                    self.of(switch) / "certificate.pem", self.of(switch) / "key.pem",
                    switch.name, DAYS,
                    f"subjectAltName=DNS:{switch.name},IP:{switch.address}",
                    "basicConstraints=critical,CA:FALSE",
                    "keyUsage=critical,digitalSignature", "extendedKeyUsage=serverAuth",
                    signed_by=("-CA", str(self._ca), "-CAkey", str(self._ca_key)),
                )  # fmt: skip

    def _certify(
        self,
        certificate: Path,
        key: Path,
        name: str,
        days: int,
        *extensions: str,
        signed_by: Sequence[str] = (),
    ) -> None:
        """Create a certificate and its key. The key is written first: both exist or neither."""
        certificate.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        certificate.unlink(missing_ok=True)
        new = certificate.with_suffix(".new")
        self._run([
            "openssl", "req", "-x509", "-batch", "-newkey", "ec", "-pkeyopt",
            "ec_paramgen_curve:P-256", "-nodes", "-days", str(days), "-subj", f"/CN={name}",
            *(word for extension in extensions for word in ("-addext", extension)),
            *signed_by, "-keyout", str(key), "-out", str(new),
        ])  # fmt: skip
        key.chmod(0o600)
        new.chmod(0o644)
        new.replace(certificate)

    def _signed(self, switch: SimulatedSwitch) -> bool:
        folder = self.of(switch)
        subject = ("-verify_hostname", switch.name, "-verify_ip", switch.address)
        return self._valid(folder / "certificate.pem", folder / "key.pem", *subject)

    def _valid(self, certificate: Path, key: Path, *subject: str) -> bool:
        """Return whether a certificate of this subject exists and will not expire soon."""
        later = str(int(time.time()) + RENEW_S)
        verify = ["openssl", "verify", "-CAfile", str(self._ca), "-attime", later, *subject]
        exist = certificate.is_file() and key.is_file()
        return exist and self._run([*verify, str(certificate)], check=False).rc == 0

    def digest(self, switch: SimulatedSwitch) -> str:
        """Return the digest of all files of a switch; a change recreates its container."""
        inputs = [switch.description, switch.environment, switch.frr, switch.rates]
        inputs.append(self._known_password())
        certificate = self.of(switch) / "certificate.pem"
        inputs.append(certificate.read_text(encoding="ascii") if certificate.exists() else "")
        return hashlib.sha256("\0".join(inputs).encode()).hexdigest()[:16]

    def _known_password(self) -> str:
        try:
            return self._password.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return ""


def _file(path: Path, text: str, *, secret: bool = False) -> FilePlan:
    mode = 0o600 if secret else 0o644
    return plan_file(path, text, mode=mode, uid=os.geteuid(), gid=os.getegid(), secret=secret)
