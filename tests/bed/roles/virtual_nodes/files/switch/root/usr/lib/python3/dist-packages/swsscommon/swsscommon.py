# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The part of SONiC's swsscommon that reads COUNTERS_DB: ports' counters, by object id.

https://github.com/sonic-net/sonic-swss-common, `SonicV2Connector`; names of counters:
https://github.com/opencomputeproject/SAI, `saiport.h`.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, "/usr/lib/virtual-switch")

from common import switch
from common.traffic import Link, Traffic

COUNTERS = "COUNTERS_DB"
PORTS = "COUNTERS_PORT_NAME_MAP"
OID = "oid:0x1000000000000"


class SonicV2Connector:
    def __init__(self, use_unix_socket_path: bool = False) -> None:
        self._rows: dict[str, dict[str, str]] = {}

    def connect(self, database: str, retry_on: bool = True) -> None:
        """Read the ports. Without traffic there are no counters."""
        traffic = Traffic(switch.read(Path("/etc/virtual-switch/switch.json")))
        links = [link for link in traffic.links() if link.is_port] if traffic else []
        self._rows = {f"COUNTERS:{OID}{n:x}": _counters(link) for n, link in enumerate(links)}
        self._rows[PORTS] = {link.name: f"{OID}{n:x}" for n, link in enumerate(links)}

    def get_all(self, database: str, key: str, blocking: bool = False) -> dict[str, str]:
        return self._rows.get(key, {}) if database == COUNTERS else {}


def _counters(link: Link) -> dict[str, str]:
    return {
        f"SAI_PORT_STAT_IF_{direction}_{name}": str(counts[key])
        for direction, counts in (("IN", link.received), ("OUT", link.sent))
        for name, key in (
            ("OCTETS", "bytes"),
            ("UCAST_PKTS", "packets"),
            ("ERRORS", "errors"),
            ("DISCARDS", "dropped"),
        )
    }
