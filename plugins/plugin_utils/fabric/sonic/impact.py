# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a change of CONFIG_DB costs the traffic on a switch.

`config apply-patch` takes a port down and up again for any change of its rows in the tables below
(its patch sorter says so; it may do so for nothing else).
"""

from __future__ import annotations

from ....module_utils.schema.findings import counted
from ..system import Change, Impact
from . import tables
from .tables import Config, port_of

BOUNCING = (tables.PORT_QOS_MAP, tables.QUEUE, tables.BUFFER_PG, tables.BUFFER_QUEUE)

_ASYMMETRIC = "PORT pfc_asym"
_OF_PORTS = {
    _ASYMMETRIC: "{} no longer obeys pauses of every priority",
    tables.PORT: "the MTU of {} changes: larger packets are dropped until both ends have it",
    tables.PFC_WD: "the PFC watchdog of {} starts anew: a stuck queue is noticed later",
}
_OF_SWITCH = {
    tables.CABLE_LENGTH: "cable lengths change, and with them headroom that the switch computes",
    tables.DSCP_TO_TC_MAP: "the map from DSCP changes under traffic: packets can be missorted",
    tables.TC_TO_QUEUE_MAP: "the map to queues changes under traffic: packets can be reordered",
    tables.TC_TO_PRIORITY_GROUP_MAP: "the map to priority groups changes under traffic: packets "
    "without headroom can be lost",
    tables.MAP_PFC_PRIORITY_TO_QUEUE: "pauses hold another queue: packets can be lost",
    tables.PFC_PRIORITY_TO_PRIORITY_GROUP_MAP: "pauses are sent for another priority group: "
    "packets can be lost",
    tables.WRED_PROFILE: "ECN thresholds change under traffic",
    tables.SCHEDULER: "shares of the queues change under traffic",
    tables.BUFFER_PROFILE: "thresholds of lossless buffers change: packets can be lost",
}


def impact(changes: tuple[Change, ...], before: Config) -> Impact:
    touched: dict[str, dict[str, None]] = {}
    for change in changes:
        table, _bar, rest = change.path.partition("|")
        key, _blank, field = rest.partition(" ")
        if (
            table in tables.OBJECTS
            and (change.found is None or change.wanted is None)
            and not field
        ):
            continue  # nothing refers to it yet, or any more
        table = _ASYMMETRIC if f"{table} {field}" == _ASYMMETRIC else table
        touched.setdefault(table, {})[port_of(key)] = None
    down = _down(touched, before)
    losses = []
    for table, keys in touched.items():
        if table in _OF_PORTS:
            ports = [key for key in keys if key not in down and key != tables.GLOBAL]
            if ports:
                losses.append(_OF_PORTS[table].format(counted(len(ports), "port")))
            if tables.GLOBAL in keys:
                losses.append("the PFC watchdog of every port polls at another interval")
        elif table in _OF_SWITCH:
            losses.append(_OF_SWITCH[table])
    return Impact(tuple(down), tuple(losses))


def _down(touched: dict[str, dict[str, None]], before: Config) -> dict[str, None]:
    """In the order of the switch's ports. One that is down by configuration cannot go down."""
    bounced = {key for table in BOUNCING for key in touched.get(table, {})}
    ports = before.get(tables.PORT, {})
    return {
        name: None
        for name, row in ports.items()
        if name in bounced and row.get("admin_status") != "down"
    }
