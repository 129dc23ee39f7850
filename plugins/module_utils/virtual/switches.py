# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What makes a container a switch: its description, certificate and password.

A folder per switch on the controller, which the container has at /etc/virtual-switch."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.commands import Runner
from ..core.files import FilePlan, plan_file
from .inventory import VirtualError

DAYS = 365
RENEW_S = 30 * 24 * 3600
"""A certificate with less time left than this is made anew."""
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key."""

    certificate: Path
    key: Path

    @property
    def there(self) -> bool:
        return self.certificate.is_file() and self.key.is_file()


class Authority:
    """Signs for the switches of one cluster, and is trusted for nothing else."""

    def __init__(self, pair: Pair, run: Runner) -> None:
        self.pair = pair
        self._run = run

    def lasts(self) -> bool:
        return self.pair.there and self._lasts(self.pair.certificate)

    def make(self, cluster: str) -> None:
        """A new one: whatever the former signed is not trusted any more."""
        with _replacing(self.pair) as new:
            self._run([
                "openssl", "req", "-x509", "-batch", *KEY, "-days", str(DAYS * 3),
                "-subj", f"/CN=switches of {cluster}",
                "-addext", "basicConstraints=critical,CA:TRUE,pathlen:0",
                "-addext", "keyUsage=critical,keyCertSign",
                "-keyout", str(new.key), "-out", str(new.certificate),
            ])  # fmt: skip

    def signed(self, pair: Pair, name: str, address: str) -> bool:
        """Whether a switch's certificate is there, ours, its own, and lasts."""
        if not pair.there or not self._lasts(pair.certificate):
            return False
        for subject in (["-verify_hostname", name], ["-verify_ip", address]):
            ours = ["openssl", "verify", "-CAfile", str(self.pair.certificate)]
            if self._run([*ours, *subject, str(pair.certificate)], check=False).rc != 0:
                return False
        return True

    def sign(self, pair: Pair, name: str, address: str) -> None:
        with _replacing(pair) as new:
            self._run([
                "openssl", "req", "-x509", "-batch", *KEY, "-days", str(DAYS),
                "-subj", f"/CN={name}",
                "-addext", f"subjectAltName=DNS:{name},IP:{address}",
                "-addext", "basicConstraints=critical,CA:FALSE",
                "-addext", "keyUsage=critical,digitalSignature",
                "-addext", "extendedKeyUsage=serverAuth",
                "-CA", str(self.pair.certificate), "-CAkey", str(self.pair.key),
                "-keyout", str(new.key), "-out", str(new.certificate),
            ])  # fmt: skip

    def _lasts(self, certificate: Path) -> bool:
        asked = ["openssl", "x509", "-noout", "-checkend", str(RENEW_S), "-in", str(certificate)]
        return self._run(asked, check=False).rc == 0


@contextlib.contextmanager
def _replacing(pair: Pair) -> Iterator[Pair]:
    """Where to write a new pair; the old one stays until both halves are there.

    Killed between the two renames, the halves do not match: so the certificate goes first.
    """
    pair.certificate.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=pair.certificate.parent, prefix=".new-") as folder:
        new = Pair(Path(folder) / "certificate", Path(folder) / "key")
        yield new
        new.key.chmod(0o600)
        new.certificate.chmod(0o644)
        pair.certificate.unlink(missing_ok=True)
        new.key.replace(pair.key)
        new.certificate.replace(pair.certificate)


SYSTEMS = ("sonic", "nvue", "eos")
PASSWORD_BYTES = 18
LANES = 8
"""By which SONiC counts ports on."""


@dataclass(frozen=True)
class Switch:
    name: str
    address: str
    system: str
    asic: str
    ports: tuple[Mapping[str, Any], ...]
    """As `switch.json` has them: name, speed_gbps, peer, peer_interface, peer_mac."""

    @property
    def description(self) -> str:
        """`switch.json`: the truth for LLDP and for the state a factory leaves."""
        about = {
            "name": self.name,
            "system": self.system,
            "asic": self.asic,
            "ports": list(self.ports),
        }
        return json.dumps(about, indent=1) + "\n"

    @property
    def environment(self) -> str:
        """For the unit that starts the simulation."""
        return f"SYSTEM={self.system}\nADDRESS={self.address}\n"


def parse_switches(
    management: Mapping[str, Mapping[str, Any]],
    systems: Mapping[str, str],
    asics: Mapping[str, str],
    ports: Mapping[str, Sequence[Mapping[str, Any]]],
) -> tuple[Switch, ...]:
    """From the inventory's variables, each by host name."""
    for name in management:
        if systems.get(name) not in SYSTEMS:
            raise VirtualError(
                f"{name}: there is no simulation of {systems.get(name) or 'no system'!r}, only of "
                f"{', '.join(SYSTEMS)}. Write one of them as leaves.system or spines.system in "
                "cluster.yml, or leave the host out of virtual_nodes_names."
            )
    return tuple(
        Switch(
            name=name,
            address=str(settings["address"]),
            system=systems[name],
            asic=asics.get(name) or "",
            ports=_ports(ports.get(name) or (), systems),
        )
        for name, settings in management.items()
    )


def _ports(
    groups: Sequence[Mapping[str, Any]], systems: Mapping[str, str]
) -> tuple[Mapping[str, Any], ...]:
    """`cluster_ports`, port by port, in the order of the model."""
    return tuple(
        {
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
    """SONiC tells its neighbours what the front panel calls a port: Ethernet8 is etp2."""
    found = re.fullmatch(r"Ethernet(\d+)", interface)
    if system != "sonic" or not found:
        return interface
    place, lane = divmod(int(found[1]), LANES)
    return f"etp{place + 1}{'abcdefgh'[lane] if lane else ''}"


class Folders:
    """The controller's files of all switches of a cluster. Planned first, then made."""

    def __init__(self, directory: Path, cluster: str, run: Runner) -> None:
        self._directory = directory
        self._cluster = cluster
        ca = Pair(directory / "switch-ca.pem", directory / "switch-ca.key")
        self._authority = Authority(ca, run)
        self._password = directory / "switch_password"

    def of(self, switch: Switch) -> Path:
        return self._directory / "switches" / switch.name

    def plan(self, switches: Sequence[Switch]) -> tuple[list[str], list[FilePlan]]:
        """What is to be made by openssl (`authority`, or a switch's name), and plain files."""
        lasts = self._authority.lasts()
        signed = {
            switch.name: lasts
            and self._authority.signed(self._pair(switch), switch.name, switch.address)
            for switch in switches
        }
        made = [] if lasts else ["authority"]
        made += [name for name, there in signed.items() if not there]
        return made, self._files(switches)

    def _files(self, switches: Sequence[Switch]) -> list[FilePlan]:
        password = self._known_password() or secrets.token_urlsafe(PASSWORD_BYTES)
        text = f"{password}\n"
        plans = [_file(self._password, text, secret=True)]
        for switch in switches:
            folder = self.of(switch)
            plans += [
                _file(folder / "switch.json", switch.description),
                _file(folder / "environment", switch.environment),
                _file(folder / "password", text, secret=True),
            ]
        return [plan for plan in plans if plan.changed]

    def make(
        self, switches: Sequence[Switch], signatures: Sequence[str], files: Sequence[FilePlan]
    ) -> None:
        for plan in files:
            plan.apply()
        if "authority" in signatures:
            self._authority.make(self._cluster)
        for switch in switches:
            if switch.name in signatures:
                self._authority.sign(self._pair(switch), switch.name, switch.address)

    def digest(self, switch: Switch) -> str:
        """Of all that a switch is made with: another one makes its container anew."""
        inputs = [switch.description, switch.environment, self._known_password()]
        certificate = self._pair(switch).certificate
        inputs.append(certificate.read_text(encoding="ascii") if certificate.exists() else "")
        return hashlib.sha256("\0".join(inputs).encode()).hexdigest()[:16]

    def _pair(self, switch: Switch) -> Pair:
        folder = self.of(switch)
        return Pair(folder / "certificate.pem", folder / "key.pem")

    def _known_password(self) -> str:
        try:
            return self._password.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return ""


def _file(path: Path, text: str, *, secret: bool = False) -> FilePlan:
    mode = 0o600 if secret else 0o644
    return plan_file(path, text, mode=mode, uid=os.geteuid(), gid=os.getegid(), secret=secret)
