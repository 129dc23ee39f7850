# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a switch says of itself, read by one command line.

`sonic-cfggen` gives CONFIG_DB as `config apply-patch` sees it, `sonic-db-dump` the state of ports
and neighbours: both are JSON, and both are on every release. What `show` prints is for people.
"""

from __future__ import annotations

import json
import re
from dataclasses import field
from shlex import quote
from typing import Any, Optional

from ....module_utils.core.dataclass import dataclass
from ..shell import Completed, told
from ..system import SwitchError
from . import tables
from .tables import Config, Row

CONFIG, SAVED, VERSION = "config", "saved", "version"
PORTS, NEIGHBOURS, UNITS = "ports", "neighbours", "units"
OURS = "baremetal-mpi-roce-"
"""Checkpoints and units of ours begin with it."""

_ONLY_TABLES = """\
import json, subprocess, sys
ran = subprocess.run(["sonic-cfggen", "-d", "--print-data"], stdout=subprocess.PIPE)
if ran.returncode:
    sys.exit(ran.returncode if ran.returncode > 0 else 128 - ran.returncode)
try:
    found = json.loads(ran.stdout).items()
except (ValueError, AttributeError):
    sys.exit("it printed no JSON object")
json.dump({table: rows for table, rows in found if table in sys.argv[1:]}, sys.stdout)
"""
"""Runs on the switch, so that the rest of CONFIG_DB stays there: whatever comes here Ansible shows
at -vvv and writes into its log."""

SAVED_FILE = "/etc/sonic/config_db.json"
_ONLY_SAVED_TABLES = """\
import json, sys
try:
    with open(sys.argv[1], "rb") as file:
        found = json.load(file).items()
except (FileNotFoundError, ValueError, AttributeError):
    found = ()
json.dump({table: rows for table, rows in found if table in sys.argv[2:]}, sys.stdout)
"""
"""No file, or half of one, is nothing that the switch could come up with."""


def only_tables(program: str, *words: str) -> str:
    return " ".join(("python3 -I -c", quote(program), *map(quote, words), *tables.LOOKED_AT))


PARTS = {
    CONFIG: only_tables(_ONLY_TABLES),
    SAVED: only_tables(_ONLY_SAVED_TABLES, SAVED_FILE),
    VERSION: "cat /etc/sonic/sonic_version.yml",
    PORTS: "sonic-db-dump -n APPL_DB -k 'PORT_TABLE:*' -y",
    NEIGHBOURS: "sonic-db-dump -n APPL_DB -k 'LLDP_ENTRY_TABLE:*' -y",
    UNITS: f"systemctl list-units --all --plain --no-legend '{OURS}*'",
}
SHOWN = {
    **PARTS,
    CONFIG: "sonic-cfggen -d --print-data",
    SAVED: f"python3 -m json.tool {SAVED_FILE}",
}
"""What an operator would run by hand."""

DYNAMIC, TRADITIONAL = "dynamic", "traditional"
MARK = "=== baremetal.mpi_roce"
READ = "; ".join(
    f"{command}; printf '\\n{MARK} %s %s\\n' {name} $?" for name, command in PARTS.items()
)


@dataclass(frozen=True)
class Present:
    config: Config
    """The tables of CONFIG_DB that are looked at, with the operator's rows too."""
    version: str = ""
    asic_type: str = ""
    """Family of the switch's chip: `mellanox`, `broadcom`, ..."""
    ports: dict[str, Row] = field(default_factory=dict)
    """State of ports, by name."""
    neighbours: Optional[dict[str, Row]] = field(default_factory=dict)
    """What LLDP heard, by port; None: could not be read."""
    units: tuple[str, ...] = ()
    """Timers and services of ours that systemd knows, as it lists them."""
    saved: Optional[Config] = None
    """The same tables as the switch would come up with; None: nobody looked."""
    unconfirmed: bool = False
    """A change of this run is in force: it is saved when it has been proved."""
    lookup: dict[tuple[str, str], int] = field(default_factory=dict)
    """Bytes after XOFF by speed and cable length (`800000`, `40m`), for which the switch makes
    buffer profiles itself; of the traditional buffer model alone."""

    @property
    def metadata(self) -> Row:
        return self.config.get(tables.DEVICE_METADATA, {}).get("localhost", {})

    @property
    def buffer_model(self) -> str:
        return self.metadata.get("buffer_model", TRADITIONAL)


def parsed(answer: Completed) -> Present:
    """SwitchError where the switch did not say what is needed; `said` are its own words."""
    parts = _parts(answer)
    for name in (CONFIG, SAVED, VERSION, PORTS):
        rc, _out = parts.get(name, (None, ""))
        if rc != 0:
            raise SwitchError(
                f"`{SHOWN[name]}` "
                + ("was not answered" if rc is None else f"ended with status {rc}")
                + f"{told(answer)}. Is this SONiC, and are its services up (`docker ps`)?"
            )
    rc, neighbours = parts.get(NEIGHBOURS, (1, ""))
    return Present(
        config=_config(CONFIG, parts[CONFIG][1]),
        saved=_config(SAVED, parts[SAVED][1]),
        version=_word(parts[VERSION][1], "build_version"),
        asic_type=_word(parts[VERSION][1], "asic_type"),
        ports=_hashes(PORTS, parts[PORTS][1]),
        neighbours=_hashes(NEIGHBOURS, neighbours) if rc == 0 else None,
        units=tuple(filter(None, map(str.strip, parts.get(UNITS, (1, ""))[1].splitlines()))),
    )


def _parts(answer: Completed) -> dict[str, tuple[int, str]]:
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


def _json(what: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise SwitchError(
            f"`{SHOWN[what]}` printed no JSON ({error}). Run it on the switch: it has to, "
            "and whatever else it prints has to go"
        ) from None
    if not isinstance(value, dict):
        raise SwitchError(f"`{SHOWN[what]}` printed a {type(value).__name__}, not an object")
    return value


def _config(what: str, text: str) -> Config:
    """Tables of rows of text; what has another form is nobody's that we look at."""
    return {
        table: {
            key: {name: _text(value) for name, value in row.items()}
            for key, row in rows.items()
            if isinstance(row, dict)
        }
        for table, rows in _json(what, text).items()
        if isinstance(rows, dict)
    }


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _hashes(what: str, text: str) -> dict[str, Row]:
    """`{"PORT_TABLE:Ethernet0": {"type": "hash", "value": {...}}}`, by what follows the colon."""
    found: dict[str, Row] = {}
    for key, entry in _json(what, text).items():
        value = entry.get("value") if isinstance(entry, dict) else None
        if isinstance(value, dict):
            found[key.partition(":")[2]] = {name: str(text) for name, text in value.items()}
    return found


def _word(text: str, key: str) -> str:
    """One line of a flat YAML file, without quotes."""
    found = re.search(rf"^{key}:\s*(['\"]?)(.*?)\1\s*$", text, re.MULTILINE)
    return found[2] if found else ""


def lookup_file(present: Present) -> str:
    """Where the platform says what buffers it makes; empty where there is none to read."""
    platform, sku = present.metadata.get("platform", ""), present.metadata.get("hwsku", "")
    if present.buffer_model == DYNAMIC or not (platform and sku):
        return ""
    return f"/usr/share/sonic/device/{platform}/{sku}/pg_profile_lookup.ini"


def lookup_of(text: str) -> dict[tuple[str, str], int]:
    """Rows of `speed cable size xon xoff threshold ...`, as buffermgrd reads them."""
    found = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 6 and not line.startswith("#") and tables.is_number(words[4]):
            found[words[0], words[1]] = tables.number(words[4])
    return found
