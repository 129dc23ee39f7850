# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The commands that read: show, sonic-cfggen, sonic-db-cli, sonic-db-dump; and pfcwd."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Sequence
from typing import Optional

from . import factory
from .redis import APPL, CONFIG, STATE, Redis, RedisError
from .switch import Sonic, as_text, here

DATABASES = {
    "APPL_DB": APPL,
    "ASIC_DB": 1,
    "COUNTERS_DB": 2,
    "CONFIG_DB": CONFIG,
    "STATE_DB": STATE,
}
REDIS = "Unable to connect to redis: Permission denied"
WRITING = {"HSET", "HMSET", "HDEL", "DEL", "HSETNX"}


def show(words: Sequence[str], switch: Optional[Sonic] = None) -> int:
    words, switch = list(words), switch or here()
    if words == ["version"]:
        _version(switch)
    elif words == ["runningconfiguration", "all"]:
        sys.stdout.write(as_text(switch.shown()))
    else:
        sys.stderr.write(f'Error: No such command "{" ".join(words)}".\n')
        return 2
    return 0


def _version(switch: Sonic) -> None:
    version = factory.version(switch.hardware)
    metadata = switch.config().get("DEVICE_METADATA", {}).get("localhost", {})
    sys.stdout.write(
        f"\nSONiC Software Version: SONiC.{version['build_version']}\n"
        f"SONiC OS Version: {version['sonic_os_version']}\n"
        f"Distribution: Debian {version['debian_version']}\nKernel: {version['kernel_version']}\n"
        f"Build commit: {version['commit_id']}\nBuild date: {version['build_date']}\n"
        f"Built by: {version['built_by']}\n\nPlatform: {metadata.get('platform', '')}\n"
        f"HwSKU: {metadata.get('hwsku', '')}\nASIC: {version['asic_type']}\nASIC Count: 1\n"
        "Serial Number: simulation\nModel Number: simulation\nHardware Revision: N/A\n"
    )


def cfggen(words: Sequence[str], switch: Optional[Sonic] = None) -> int:
    if list(words) != ["-d", "--print-data"]:
        sys.stderr.write(f"sonic-cfggen: this simulation has no {' '.join(words)}\n")
        return 1
    sys.stdout.write(as_text((switch or here(REDIS)).shown()))
    return 0


def db_cli(words: Sequence[str], switch: Optional[Sonic] = None) -> int:
    """`sonic-db-cli CONFIG_DB HSET 'PORT|Ethernet0' mtu 9100`: by hand, and checked by nobody."""
    words = [word for word in words if word not in ("-s", "--unixsocket")]
    switch = switch or here(REDIS)
    if words == ["PING"]:
        sys.stdout.write("PONG\n")
        return 0
    if len(words) < 2 or words[0] not in DATABASES:
        sys.stderr.write(f"Invalid database name input : '{words[0] if words else ''}'\n")
        return 1
    switch.settle()
    number = DATABASES[words[0]]
    old = switch.config()
    redis = switch.store
    if not isinstance(redis, Redis):
        raise TypeError("only redis takes commands")
    redis.select(number)
    try:
        answer = redis.command(*words[1:])
    except RedisError as error:
        sys.stderr.write(f"An exception of type RedisError occurred. {error}\n")
        return 1
    if words[1].upper() == "HGETALL":
        sys.stdout.write(f"{dict(zip(answer[::2], answer[1::2]))}\n")
    elif isinstance(answer, list):
        sys.stdout.write("".join(f"{entry}\n" for entry in answer))
    else:
        sys.stdout.write(f"{'' if answer is None else answer}\n")
    if number == CONFIG and words[1].upper() in WRITING:
        switch.log("write", key=words[2], by="sonic-db-cli")
        switch.daemons.react(old, switch.config())
    return 0


def db_dump(words: Sequence[str], switch: Optional[Sonic] = None) -> int:
    """`sonic-db-dump -n APPL_DB -k 'PORT_TABLE:*' -y`"""
    rest, name, pattern, pretty = list(words), "", "*", False
    while rest:
        word = rest.pop(0)
        if word in ("-y", "--pretty"):
            pretty = True
        elif word in ("-n", "--dbname") and rest:
            name = rest.pop(0)
        elif word in ("-k", "--keys") and rest:
            pattern = rest.pop(0)
        else:
            sys.stderr.write(f"sonic-db-dump: unrecognized arguments: {word}\n")
            return 2
    switch = switch or here(REDIS)
    if name not in DATABASES:
        sys.stderr.write(f"Invalid database name input : '{name}'\n")
        return 1
    switch.settle()
    number = DATABASES[name]
    found = {
        key: {"expireat": 0, "ttl": -1, "type": "hash", "value": switch.store.read(number, key)}
        for key in switch.store.keys(number, pattern)
    }
    sys.stdout.write(json.dumps(found, indent=2 if pretty else None) + "\n")
    return 0


def pfcwd(words: Sequence[str], switch: Optional[Sonic] = None) -> int:
    """`pfcwd interval 200`: the only way to a PFC_WD|GLOBAL that is not there yet."""
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
