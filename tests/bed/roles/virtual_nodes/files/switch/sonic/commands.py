# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Commands other than `config`: sonic-cfggen, sonic-db-cli, sonic-db-dump and pfcwd."""

from __future__ import annotations

import argparse
import copy
import json
import sys
from collections.abc import Sequence
from typing import Optional

from .database import CONFIG
from .switch import Sonic, as_text, here

REDIS = "Unable to connect to redis: Permission denied"


def cfggen(words: Sequence[str], switch: Optional[Sonic] = None) -> int:
    if list(words) != ["-d", "--print-data"]:
        sys.stderr.write(f"sonic-cfggen: this simulation has no {' '.join(words)}\n")
        return 1
    sys.stdout.write(as_text((switch or here(REDIS)).shown()))
    return 0


def db_cli(words: Sequence[str], switch: Optional[Sonic] = None) -> int:
    """`sonic-db-cli CONFIG_DB HSET 'PORT|Ethernet0' mtu 9100`: a write without checks."""
    switch = switch or here(REDIS)
    if words[:1] != [CONFIG] or words[1:2] not in (["HSET"], ["DEL"]) or len(words) < 3:
        sys.stderr.write(f"sonic-db-cli: this simulation has no {' '.join(words)}\n")
        return 1
    old, key, pairs = switch.config(), words[2], words[3:]
    row = {**switch.store.read(CONFIG, key), **dict(zip(pairs[::2], pairs[1::2]))}
    switch.store.write(CONFIG, {key: row if pairs else None})
    switch.log("write", key=key, by="sonic-db-cli")
    switch.daemons.react(old, switch.config())
    sys.stdout.write("1\n")
    return 0


def db_dump(words: Sequence[str], switch: Optional[Sonic] = None) -> int:
    """`sonic-db-dump -n APPL_DB -k 'PORT_TABLE:*' -y`"""
    parser = argparse.ArgumentParser("sonic-db-dump")
    parser.add_argument("-n", "--dbname", required=True)
    parser.add_argument("-k", "--keys", default="*")
    parser.add_argument("-y", "--pretty", action="store_true")
    wanted = parser.parse_args(list(words))
    switch = switch or here(REDIS)
    switch.settle()
    found = {
        key: {"expireat": 0, "ttl": -1, "type": "hash", "value": row}
        for key, row in switch.store.rows(wanted.dbname, wanted.keys).items()
    }
    sys.stdout.write(json.dumps(found, indent=2 if wanted.pretty else None) + "\n")
    return 0


def pfcwd(words: Sequence[str], switch: Optional[Sonic] = None) -> int:
    """`pfcwd interval 200`: the only way to create the row PFC_WD|GLOBAL."""
    if len(words) != 2 or words[0] != "interval" or not words[1].isdigit():
        sys.stderr.write("Usage: pfcwd interval POLL_INTERVAL (this simulation has no more)\n")
        return 2
    if not 100 <= int(words[1]) <= 3000:
        sys.stderr.write(f"Error: {words[1]} is not in the valid range of 100 to 3000.\n")
        return 2
    switch = switch or here()
    old = switch.config()
    new = copy.deepcopy(old)
    new.setdefault("PFC_WD", {})["GLOBAL"] = {"POLL_INTERVAL": words[1]}
    switch.log("write", key="PFC_WD|GLOBAL", by="pfcwd")
    switch.write(old, new)
    return 0
