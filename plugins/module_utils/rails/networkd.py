# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""systemd-networkd: one `.network` file per rail."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ..core.commands import Runner
from ..core.files import with_header
from .backend import NETWORKD, Blocks, FilePerRail
from .claims import NETWORK_PREFIX
from .plan import MAIN_TABLE, RailPlan

NETWORKD_UNIT = "systemd-networkd.service"


class Networkd(FilePerRail):
    """Files in /etc/systemd/network; taken over with `networkctl reload`, rail by rail."""

    name = NETWORKD
    unit = NETWORKD_UNIT

    def __init__(self, run: Runner, root: Path = Path("/")) -> None:
        super().__init__(run, root, "etc/systemd/network", f"{NETWORK_PREFIX}RAIL.network", 0o644)

    def render(self, rail: RailPlan) -> str:
        return with_header(network_file(rail))

    def validate(self, blocks: Blocks) -> None:
        """networkd has no such test; what it makes of the files is read back."""

    def owner(self, interface: str) -> str:
        return "/" + str(self._path(interface).relative_to(self._root))

    def owners(self, interfaces: Sequence[str]) -> dict[str, str]:
        return network_files(self._run, interfaces)

    def apply(self, written: Sequence[str], again: Sequence[str]) -> dict[str, str]:
        take_over(self._run, again)
        return {}


def network_file(rail: RailPlan) -> str:
    """The `.network` file of one rail."""
    lines = [
        "[Match]",
        f"Name={rail.interface}",
        "",
        "[Link]",
        "# A pulled cable must not keep the host from booting.",
        "RequiredForOnline=no",
        f"MTUBytes={rail.mtu}",
        "",
        "[Network]",
        f"Address={rail.cidr}",
        "DHCP=no",
        "IPv6AcceptRA=no",
        "LinkLocalAddressing=ipv6",
        "# Keep the address, and with it the RoCE GID, while the link is down.",
        "ConfigureWithoutCarrier=yes",
    ]
    for route in rail.routes:
        lines += ["", "[Route]", f"Destination={route.cidr}"]
        lines += [f"Gateway={route.gateway}"] if route.gateway else ["Scope=link"]
        if route.table != MAIN_TABLE:
            lines.append(f"Table={route.table}")
        if route.metric is not None:
            lines.append(f"Metric={route.metric}")
    if rail.rule:
        lines += [
            "",
            "[RoutingPolicyRule]",
            f"From={rail.rule.source}",
            f"Table={rail.rule.table}",
            f"Priority={rail.rule.priority}",
        ]
    return "\n".join(lines) + "\n"


def take_over(run: Runner, again: Sequence[str]) -> None:
    """Let networkd read its files; only links whose file is new or changed are touched by that.

    Links in `again` have drifted from a file that networkd knows already, so they are set up anew.
    """
    run(("networkctl", "reload"))
    if again:
        run(("networkctl", "reconfigure", *again))


def network_files(run: Runner, interfaces: Sequence[str]) -> dict[str, str]:
    """Which `.network` file networkd uses for each interface."""
    if not interfaces:
        return {}
    argv = ("networkctl", "--no-pager", "--lines=0", "status", "--", *interfaces)
    return parse_status(run(argv, check=False).stdout)


def parse_status(text: str) -> dict[str, str]:
    """Interface to network file, out of `networkctl status`; with its state until configured."""
    files: dict[str, str] = {}
    interface = path = ""
    for line in text.splitlines():
        head = re.match(r"\W*\d+:\s+(\S+)\s*$", line)
        if head:
            interface, path = head.group(1), ""
        key, _separator, value = (part.strip() for part in line.partition(":"))
        if key == "Network File" and interface and value != "n/a":
            path = value
            files[interface] = path
        elif key == "State" and path and "(configured)" not in value:
            files[interface] = f"{path}, {value}"
    return files
