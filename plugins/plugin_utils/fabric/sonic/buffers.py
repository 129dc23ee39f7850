# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Headroom on a switch: which profile holds for a port's lossless priority group.

In the dynamic buffer model (DEVICE_METADATA) a profile with sizes of its own overrides what the
switch computes. In the traditional one buffermgrd binds profiles that it makes itself
(`pg_lossless_800000_40m_profile`) to every port with PFC whose speed and cable length stand in
pg_profile_lookup.ini of the platform, and does so again after each change of the port. Where these
have the room that the contract wants they are left alone; a row with less is refused, since it
would come back.
"""

from __future__ import annotations

from ..system import SwitchError
from . import tables
from .reading import DYNAMIC, Present
from .tables import Config, Table
from .wanted import PortWanted

POOL = "ingress_lossless_pool"


def lossless_pool(config: Config) -> str:
    """The pool of lossless traffic on the way in. It is the platform's, and never changed."""
    pools = config.get(tables.BUFFER_POOL, {})
    if POOL not in pools:
        raise SwitchError(
            f"BUFFER_POOL has no {POOL}: the switch has no buffer for lossless traffic, and how "
            "much it can have is the platform's to say. Load the buffers of the platform (its "
            "buffers.json.j2, as its vendor describes), save, then run again"
        )
    mode = pools[POOL].get("mode", DYNAMIC)
    if mode != DYNAMIC:
        raise SwitchError(
            f"BUFFER_POOL|{POOL} has mode {mode}: profiles in it have a fixed limit, and nobody "
            "has published one for this platform. Only pools of mode dynamic are supported"
        )
    return POOL


def default_threshold(config: Config) -> str:
    """The switch's own choice of `dynamic_th`; empty where it has none."""
    for row in config.get(tables.DEFAULT_LOSSLESS_BUFFER_PARAMETER, {}).values():
        if "default_dynamic_th" in row:
            return row["default_dynamic_th"]
    return ""


def is_lossless(profile: str, profiles: Table) -> bool:
    """`NULL` is: the switch computes the room itself."""
    return profile == tables.COMPUTED or profiles.get(profile, {}).get("xoff", "0") != "0"


def check_egress(ports: tuple[PortWanted, ...], config: Config) -> None:
    """What is lossless on the way in has to be lossless on the way out."""
    rows, profiles = config.get(tables.BUFFER_QUEUE, {}), config.get(tables.BUFFER_PROFILE, {})
    keys = tables.by_port(rows)
    for port in ports:
        for queue in port.lossless_queues:
            for key in keys.get(port.name, []):
                profile = rows[key].get("profile", "")
                pool = profiles.get(profile, {}).get("pool", "")
                if queue in tables.numbers_of(key) and "lossy" in pool:
                    raise SwitchError(
                        f"BUFFER_QUEUE|{key} serves queue {queue}, that of RoCE data, from {pool} "
                        f"({profile}): full, it drops what was never paused. Bind that queue to "
                        "the platform's lossless egress profile, or give RoCE data the traffic "
                        "class of a queue that has it (roce_qos.roce.traffic_class)"
                    )


def bind(
    ports: tuple[PortWanted, ...], names: dict[str, str], config: Config, present: Present
) -> None:
    rows, profiles = config[tables.BUFFER_PG], config[tables.BUFFER_PROFILE]
    keys = tables.by_port(rows)
    for port in ports:
        for group, base in port.buffers.items():
            profile = names[base]
            covering = [k for k in keys.get(port.name, []) if group in tables.numbers_of(k)]
            if _left_to_the_switch(port, covering, int(profiles[profile]["xoff"]), present):
                continue
            for key in covering:
                _take_out(rows, key, group, profiles)
            rows[f"{port.name}|{group}"] = {"profile": profile}


def _left_to_the_switch(
    port: PortWanted, covering: list[str], wanted: int, present: Present
) -> bool:
    if present.buffer_model == DYNAMIC:
        return False
    made = present.lookup.get((port.speed, port.cable))
    if made is not None and made < wanted:
        raise SwitchError(
            f"{port.name}: in the traditional buffer model the switch itself gives {made} bytes "
            f"after XOFF to {port.cable} of cable at {port.speed} Mb/s, and {wanted} are needed. "
            "Correct this row of pg_profile_lookup.ini of the platform, or change to the dynamic "
            "model (DEVICE_METADATA|localhost buffer_model)"
        )
    bound = [present.config[tables.BUFFER_PG][key].get("profile", "") for key in covering]
    profiles = present.config.get(tables.BUFFER_PROFILE, {})
    return bool(bound) and all(
        name.startswith(tables.GENERATED)
        and tables.number(profiles.get(name, {}).get("xoff")) >= wanted
        for name in bound
    )


def _take_out(rows: Table, key: str, group: int, profiles: Table) -> None:
    """Of a range that holds this group the others keep a lossy profile, and lose a lossless one.

    PFC is on for no other priority, so lossless groups beside ours would only hold back buffer.
    """
    row = rows.pop(key)
    if is_lossless(row.get("profile", ""), profiles):
        return
    for left in tables.ranges(set(tables.numbers_of(key)) - {group}):
        rows[tables.key_of(tables.port_of(key), left)] = dict(row)
