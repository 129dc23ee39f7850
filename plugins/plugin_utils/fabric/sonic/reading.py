# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read a switch by one command line, whose programs print JSON on every release, and report its
state."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from shlex import quote
from typing import Any, Optional

from ....module_utils.core.text import one_line, printable
from ...qos.compiled import PfcWatchdog
from ...qos.contract import DSCPS, PRIORITIES
from .. import system
from ..asics import Headroom
from . import tables
from .tables import Config, Row, Table

OURS = "baremetal-mpi-roce-"
"""Prefix of the collection's checkpoints and units."""
SAVED_FILE = "/etc/sonic/config_db.json"


def last_lines(answer: system.Completed) -> str:
    """`: last lines`; empty if the command printed nothing."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", f"{answer.stdout if answer.rc else ''}\n{answer.stderr}")
    lines = list(filter(None, map(one_line, text.splitlines())))
    printed = "; ".join(lines[-3:])[:600]
    return f": {printed.rstrip('.')}" if printed else ""


CONFIG, SAVED, VERSION = "config", "saved", "version"
PORTS, NEIGHBOURS, UNITS = "ports", "neighbours", "units"
CHANNELS = "channels"
LISTED = "listed"

_ONLY_TABLES = """\
import json, subprocess, sys
saved, tables = sys.argv[1], sys.argv[2:]
if saved:
    try:
        with open(saved, "rb") as file:
            found = json.load(file).items()
    except (FileNotFoundError, ValueError, AttributeError):
        found = ()  # the switch would boot without configuration
else:
    ran = subprocess.run(["sonic-cfggen", "-d", "--print-data"], stdout=subprocess.PIPE)
    if ran.returncode:
        sys.exit(ran.returncode if ran.returncode > 0 else 128 - ran.returncode)
    try:
        found = json.loads(ran.stdout).items()
    except (ValueError, AttributeError):
        sys.exit("it printed no JSON object")
json.dump({table: rows for table, rows in found if table in tables}, sys.stdout)
"""
"""Runs on the switch, as Ansible shows all output at -vvv, and the rest of CONFIG_DB is secret."""


def _only_tables(saved: str) -> str:
    return " ".join(("python3 -I -c", quote(_ONLY_TABLES), quote(saved), *tables.READ))


_MAY_CHANGE = """\
from generic_config_updater.field_operation_validators import rdma_config_update_validator as may
times = {"action": "drop", "detection_time": "200", "restoration_time": "400"}
print(may("", {"op": "add", "path": "/PFC_WD/Ethernet0", "value": times}))
"""
"""The check that `config apply-patch` makes by its list of hardware SKUs and releases
(sonic-utilities 691b1bbc, gcu_field_operation_validators.conf.json), which has 69 of 158 SKUs with
400G or more."""
LIST_UNITS = f"systemctl list-units --all --plain --no-legend '{OURS}*'"
PARTS = {
    CONFIG: _only_tables(""),
    SAVED: _only_tables(SAVED_FILE),
    VERSION: "cat /etc/sonic/sonic_version.yml",
    PORTS: "sonic-db-dump -n APPL_DB -k 'PORT_TABLE:*' -y",
    NEIGHBOURS: "sonic-db-dump -n APPL_DB -k 'LLDP_ENTRY_TABLE:*' -y",
    CHANNELS: "sonic-db-dump -n APPL_DB -k 'LAG_*TABLE:*' -y",
    UNITS: LIST_UNITS,
    LISTED: f"python3 -I -c {quote(_MAY_CHANGE)}",
}
COMMANDS = {
    **PARTS,
    CONFIG: "sonic-cfggen -d --print-data",
    SAVED: f"python3 -m json.tool {SAVED_FILE}",
}
"""Equivalents that an operator can run by hand."""

DYNAMIC, TRADITIONAL = "dynamic", "traditional"
MARK = "=== baremetal.mpi_roce"
READ = "; ".join(
    f"{command}; printf '\\n{MARK} %s %s\\n' {name} $?" for name, command in PARTS.items()
)


@dataclass(frozen=True)
class Present:
    config: Config
    version: str = ""
    asic_type: str = ""
    ports: dict[str, Row] = field(default_factory=dict)
    neighbours: Optional[dict[str, Row]] = field(default_factory=dict)
    """By port; None if they could not be read."""
    channels: dict[str, Row] = field(default_factory=dict)
    """Port channels and their members (`PortChannel1:Ethernet0`), if they could be read."""
    units: tuple[str, ...] = ()
    """Lines of `systemctl list-units` for the collection's timers and services."""
    saved: Optional[Config] = None
    unconfirmed: bool = False
    """A change of this run is in force and not yet confirmed, so it is not saved."""
    listed: Optional[bool] = None
    """Whether patches may change PFC_WD and fields of BUFFER_PROFILE; None if unknown."""
    lookup: Mapping[tuple[int, int], Headroom] = field(default_factory=dict)
    """The table that the switch creates buffer profiles from in the traditional buffer model, by
    speed (Gb/s) and cable length (m)."""

    @property
    def metadata(self) -> Row:
        return self.config.get("DEVICE_METADATA", {}).get("localhost", {})

    @property
    def buffer_model(self) -> str:
        return self.metadata.get("buffer_model", TRADITIONAL)


def parsed(answer: system.Completed) -> Present:
    """Parse the answer. Raises SwitchError if a required part is missing."""
    parts = parts_of(answer)
    for name in (CONFIG, SAVED, VERSION, PORTS):
        rc, _out = parts.get(name, (None, ""))
        if rc != 0:
            raise system.SwitchError(
                f"`{COMMANDS[name]}` "
                + ("was not answered" if rc is None else f"failed with status {rc}")
                + f"{last_lines(answer)}. Is this SONiC, and are its services up (`docker ps`)?"
            )
    rc, neighbours = parts.get(NEIGHBOURS, (1, ""))
    read, channels = parts.get(CHANNELS, (1, ""))
    return Present(
        config=_config(CONFIG, parts[CONFIG][1]),
        saved=_config(SAVED, parts[SAVED][1]),
        version=_word(parts[VERSION][1], "build_version"),
        asic_type=_word(parts[VERSION][1], "asic_type"),
        ports=_hashes(PORTS, parts[PORTS][1]),
        neighbours=_hashes(NEIGHBOURS, neighbours) if rc == 0 else None,
        channels=_hashes(CHANNELS, channels) if read == 0 else {},
        listed={"True": True, "False": False}.get(parts.get(LISTED, (1, ""))[1].strip()),
        units=tuple(filter(None, map(one_line, parts.get(UNITS, (1, ""))[1].splitlines()))),
    )


def parts_of(answer: system.Completed) -> dict[str, tuple[int, str]]:
    found: dict[str, tuple[int, str]] = {}
    lines: list[str] = []
    for line in answer.stdout.splitlines():
        end = re.fullmatch(rf"{MARK} ([a-z]+) ([0-9]{{1,3}})\s*", line)
        if end:
            found[end[1]] = (int(end[2]), "\n".join(lines))
            lines = []
        else:
            lines.append(line)
    return found


def _json(what: str, text: str) -> dict[str, dict[str, Any]]:
    """An object of objects; other values are ignored."""
    try:
        value = printable(json.loads(text or "{}"))
    except (ValueError, RecursionError) as error:
        raise system.SwitchError(
            f"`{COMMANDS[what]}` printed no JSON ({error}). Run it on the switch: it must "
            "print JSON and nothing else"
        ) from None
    if not isinstance(value, dict):
        raise system.SwitchError(
            f"`{COMMANDS[what]}` printed a {type(value).__name__}, not an object"
        )
    return {key: inner for key, inner in value.items() if isinstance(inner, dict)}


def _config(what: str, text: str) -> Config:
    return {
        table: {key: _row(row) for key, row in rows.items() if isinstance(row, dict)}
        for table, rows in _json(what, text).items()
    }


def _row(fields: dict[str, Any]) -> Row:
    return {
        name: ",".join(map(str, value)) if isinstance(value, list) else str(value)
        for name, value in fields.items()
    }


def _hashes(what: str, text: str) -> dict[str, Row]:
    """`{"PORT_TABLE:Ethernet0": {"type": "hash", "value": {...}}}`, by the text after the colon."""
    return {
        key.partition(":")[2]: _row(entry["value"])
        for key, entry in _json(what, text).items()
        if isinstance(entry.get("value"), dict)
    }


def _word(text: str, key: str) -> str:
    """The value of a key in a flat YAML file, without quotes."""
    found = re.search(rf"^{key}:\s*(['\"]?)(.*?)\1\s*$", text, re.MULTILINE)
    return one_line(found[2]) if found else ""


def lookup_file(present: Present) -> str:
    platform, sku = present.metadata.get("platform", ""), present.metadata.get("hwsku", "")
    if present.buffer_model == DYNAMIC or not (platform and sku):
        return ""
    return f"/usr/share/sonic/device/{platform}/{sku}/pg_profile_lookup.ini"


_LOOKUP_ROW = re.compile(
    r"\s*([0-9]{1,9})\s+([0-9]{1,6})m\s+([0-9]{1,12})\s+([0-9]{1,12})\s+([0-9]{1,12})"
    r"\s+(-?[0-9]{1,12})(?:\s+([0-9]{1,12}))?(?:\s.*)?"
)


def lookup_of(text: str) -> dict[tuple[int, int], Headroom]:
    """The rows `speed cable size xon xoff threshold [xon_offset]`. The last one of a kind holds, as
    for buffermgrd (sonic-swss e6b0c5b5, cfgmgr/buffermgr.cpp)."""
    found = {}
    for row in filter(None, map(_LOOKUP_ROW.fullmatch, text.splitlines())):
        speed, metres, size, xon, xoff, threshold = map(int, row.groups()[:6])
        offset = None if row[7] is None else int(row[7])
        if speed % 1000 == 0:
            found[speed // 1000, metres] = Headroom(size, xon, xoff, threshold, offset)
    return found


def report(intent: system.SwitchIntent, present: Present) -> system.SwitchReport:
    state = present.config.get("FEATURE", {}).get("lldp", {}).get("state", "enabled")
    lldp = present.neighbours is not None and state != "disabled"
    return system.SwitchReport.of(intent, present.version, _Switch(present).port, lldp)


class _Switch:
    def __init__(self, present: Present) -> None:
        self.present = present
        self.queues = tables.by_port(self.table("QUEUE"))
        self.groups = tables.by_port(self.table("BUFFER_PG"))
        self.channels = tables.channels(present.config)

    def table(self, name: str) -> Table:
        return self.present.config.get(name, {})

    def port(self, name: str) -> system.PortReport:
        row = self.table("PORT").get(name)
        if row is None:
            return system.PortReport(name, present=False)
        state = self.present.ports.get(name, {})
        everywhere = self.table("PORT_QOS_MAP").get("global", {}).get("dscp_to_tc_map", "")
        qos = {"dscp_to_tc_map": everywhere, **self.table("PORT_QOS_MAP").get(name, {})}
        groups = self._lossless(name, qos)
        queues = self._numbered("QUEUE", self.queues.get(name, []))
        schedulers = {n: self._object("SCHEDULER", q, "scheduler") for n, q in queues.items()}
        words = map(str.strip, qos.get("pfc_enable", "").split(","))
        paused = tuple(sorted(tables.number(word) for word in words if tables.is_number(word)))
        trust = "pcp" if qos.get("dot1p_to_tc_map") else "none"
        megabits = _number(state.get("speed") or row.get("speed"))
        dscps = self._object("DSCP_TO_TC_MAP", qos, "dscp_to_tc_map")
        lengths = {each[name] for each in self.table("CABLE_LENGTH").values() if name in each}
        cable = _number(lengths.pop().rstrip("m")) if len(lengths) == 1 else None
        channel, mtu = self.channels.get(name, ""), row.get("mtu")
        if channel:
            mtu = self.present.channels.get(channel, {}).get("mtu")
        own = self.present.lookup.get(((megabits or 0) // 1000, cable or 0))
        return system.PortReport(
            name=name,
            present=True,
            alias=row.get("alias", ""),
            up=state["oper_status"] == "up" if "oper_status" in state else None,
            speed_gbps=None if megabits is None else megabits // 1000,
            mtu_ip=_number(mtu),
            mtu_of=channel,
            in_channel=self._in_channel(channel, name),
            trust="dscp" if qos.get("dscp_to_tc_map") else trust,
            dscp_to_traffic_class=tuple(
                tables.number(dscps.get(str(dscp))) for dscp in range(DSCPS)
            )
            if dscps
            else None,
            pfc_priorities=paused,
            lossless_priorities=tuple(groups),
            strict_queues=tuple(n for n, s in schedulers.items() if s.get("type") == "STRICT"),
            weights={
                n: tables.number(s.get("weight"), 1)
                for n, s in schedulers.items()
                if s and s.get("type") != "STRICT"
            },
            ecn=self._ecn(queues),
            cable_metres=cable,
            headroom_bytes=self._headroom([groups[p] for p in paused if p in groups]),
            platform_headroom_bytes=own.xoff_bytes if own else None,
            watchdog=self._watchdog(name, qos),
            neighbour=self._neighbour(name),
        )

    def _in_channel(self, channel: str, name: str) -> Optional[bool]:
        """Written by teamsyncd (sonic-swss, teamsyncd/teamsync.cpp)."""
        status = self.present.channels.get(f"{channel}:{name}", {}).get("status")
        return None if status is None else status == "enabled"

    def _object(self, table: str, row: Row, field: str) -> Row:
        return self.table(table).get(row.get(field, ""), {})

    def _numbered(self, table: str, keys: list[str]) -> dict[int, Row]:
        rows = self.table(table)
        found = {n: rows[key] for key in keys for n in tables.numbers_of(key)}
        return dict(sorted(found.items(), key=lambda item: item[0]))

    def _lossless(self, port: str, qos: Row) -> dict[int, str]:
        bound = self._numbered("BUFFER_PG", self.groups.get(port, []))
        to_group = self._object("PFC_PRIORITY_TO_PRIORITY_GROUP_MAP", qos, "pfc_to_pg_map")
        found = {}
        for priority in range(PRIORITIES):
            group = tables.number(to_group.get(str(priority)), priority)
            profile = bound.get(group, {}).get("profile", "")
            if profile and tables.is_lossless(profile, self.table("BUFFER_PROFILE")):
                found[priority] = profile
        return found

    def _headroom(self, profiles: list[str]) -> Optional[int]:
        """The smallest headroom. None: the switch computes it and does not report it."""
        rows = self.table("BUFFER_PROFILE")
        if not all("xoff" in rows.get(profile, {}) for profile in profiles):
            return None
        return min((tables.number(rows[profile]["xoff"]) for profile in profiles), default=None)

    def _ecn(self, queues: dict[int, Row]) -> dict[int, system.EcnReport]:
        found = {}
        for number, queue in queues.items():
            profile = self._object("WRED_PROFILE", queue, "wred_profile")
            if profile.get("ecn", "ecn_none") in ("ecn_all", "ecn_green"):
                found[number] = system.EcnReport(
                    minimum_bytes=tables.number(profile.get("green_min_threshold")),
                    maximum_bytes=tables.number(profile.get("green_max_threshold")),
                    probability_percent=tables.number(profile.get("green_drop_probability"), 100),
                )
        return found

    def _watchdog(self, port: str, qos: Row) -> PfcWatchdog:
        rows = self.table("PFC_WD")
        row, poll = rows.get(port, {}), rows.get(tables.GLOBAL, {}).get("POLL_INTERVAL")
        return PfcWatchdog(
            enabled=bool(row) and bool(qos.get("pfcwd_sw_enable")),
            poll_ms=tables.number(poll),
            detection_ms=tables.number(row.get("detection_time")),
            restoration_ms=tables.number(row.get("restoration_time")),
            action=row.get("action", ""),
        )

    def _neighbour(self, port: str) -> Optional[system.Neighbour]:
        heard = (self.present.neighbours or {}).get(port)
        if heard is None:
            return None
        identity = system.port_id(heard.get("lldp_rem_port_id", ""))
        return system.Neighbour(heard.get("lldp_rem_sys_name", ""), identity)


def _number(text: Optional[str]) -> Optional[int]:
    return tables.number(text) if tables.is_number(text) else None
