# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Patches (RFC 6902) of CONFIG_DB as JSON, the patch between two states, and SONiC's checks."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

Config = dict[str, Any]
Operation = dict[str, Any]


class PatchError(Exception):
    """The patch cannot be applied to this document."""


def tokens(pointer: str) -> list[str]:
    if pointer == "":
        return []
    if not pointer.startswith("/"):
        raise PatchError("Location must start with /")
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/")]


def pointer(parts: Sequence[str]) -> str:
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)


def applied(patch: Sequence[Operation], document: Config) -> Config:
    """Return the patched document. Raises PatchError and leaves the document unchanged."""
    result = copy.deepcopy(document)
    for operation in patch:
        _apply(operation, result)
    return result


def _apply(operation: Operation, document: Any) -> None:
    try:
        kind, path = operation["op"], tokens(operation["path"])
    except (KeyError, TypeError) as error:
        raise PatchError(f"Operation does not contain {error} member") from error
    if kind not in ("add", "remove", "replace"):
        raise PatchError(f"Unknown operation {kind!r}")
    parent, last = _parent(document, path)
    if kind != "add" and last not in parent:
        raise PatchError(f"can't {kind} a non-existent object '{last}'")
    if kind == "remove":
        del parent[last]
    else:
        parent[last] = copy.deepcopy(operation["value"])


def _parent(document: Any, path: Sequence[str]) -> tuple[dict[str, Any], str]:
    if not path:
        raise PatchError("the whole document cannot be changed")
    parent = _found(document, path[:-1])
    if not isinstance(parent, dict):
        raise PatchError(f"{pointer(path[:-1])} is no object")
    return parent, path[-1]


def _found(document: Any, path: Sequence[str]) -> Any:
    for part in path:
        if not isinstance(document, dict) or part not in document:
            raise PatchError(f"member '{part}' not found in {str(document)[:200]}")
        document = document[part]
    return document


def difference(old: Config, new: Config) -> list[Operation]:
    """Create a patch as jsonpatch does: a removal and an addition of the same value are a move."""
    gone: dict[str, list[Operation]] = {}
    rest: list[Operation] = []
    for operation in _difference((), old, new):
        if operation["op"] == "remove":
            gone.setdefault(_text(_found(old, tokens(operation["path"]))), []).append(operation)
        else:
            rest.append(operation)
    for number, operation in enumerate(rest):
        same = gone.get(_text(operation["value"])) if operation["op"] == "add" else None
        if same:
            source = same.pop()["path"]
            rest[number] = {"op": "move", "from": source, "path": operation["path"]}
    return [operation for same in gone.values() for operation in same] + rest


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _difference(path: tuple[str, ...], old: Any, new: Any) -> Iterator[Operation]:
    if not (isinstance(old, dict) and isinstance(new, dict)):
        if old != new:
            yield {"op": "replace", "path": pointer(path), "value": new}
        return
    for name in old:
        if name not in new:
            yield {"op": "remove", "path": pointer((*path, name))}
    for name, value in new.items():
        if name not in old:
            yield {"op": "add", "path": pointer((*path, name)), "value": value}
        else:
            yield from _difference((*path, name), old[name], value)


VALIDATORS = "generic_config_updater.field_operation_validators"
FEC = ("rs", "fc", "none", "auto")
PFC_WD_FIELDS = {
    "restoration_time", "detection_time", "action", "global/poll_interval", "pfc_stat_history", "",
}  # fmt: skip
PROFILE_FIELDS = {
    "dynamic_th": ("replace",),
    "xoff": ("replace",),
    "packet_discard_action": ("add", "replace"),
}
NEVER_REMOVED = ("/PFC_WD/GLOBAL/POLL_INTERVAL", "/PFC_WD/GLOBAL", "/LOOPBACK_INTERFACE/Loopback0")


class IllegalOperationError(Exception):
    """A change that is not permitted for this field."""


def permitted(old: Config, new: Config) -> list[Operation]:
    """Return the changes between two states. Raises if one of them is not permitted."""
    operations = difference(old, new)
    for operation in operations:
        if operation["op"] == "remove" and operation["path"] in NEVER_REMOVED:
            raise IllegalOperationError(
                "Given patch operation is invalid. Operation: remove is illegal on field: "
                + str(operation["path"])
            )
    for operation in operations:
        permit(operation, old)
    return operations


LISTED = (
    "acs-msn2700", "acs-msn3700", "acs-msn4700", "acs-sn5600", "acs-sn5640", "acs-sn6600_ld",
    "arista-7060x6-64pe", "nokia-ixr7220-h5-64d",
)  # fmt: skip
"""Hardware SKUs of gcu_field_operation_validators.conf.json that the simulation supports. On
others the fields of PFC_WD and BUFFER_PROFILE cannot be changed."""


def permit(operation: Operation, config: Config) -> None:
    hwsku = config.get("DEVICE_METADATA", {}).get("localhost", {}).get("hwsku", "")
    listed = hwsku.lower() in LISTED
    parts = tokens(operation["path"])
    table, validator, allowed = parts[0], "rdma_config_update_validator", True
    if table == "BUFFER_POOL":
        allowed = False
    elif table == "BUFFER_PROFILE":
        validator = "buffer_profile_config_update_validator"
        allowed = _profile(operation, parts, listed)
    elif table == "PFC_WD":
        allowed = listed and _watchdog(operation, parts)
    elif table == "PORT":
        validator, allowed = "port_config_update_validator", _port(operation, parts)
    if not allowed:
        raise IllegalOperationError(
            f"Modification of {table} table is illegal- validating function "
            f"{VALIDATORS}.{validator} returned False"
        )


def _fields(operation: Operation, parts: Sequence[str]) -> list[str]:
    cleaned = "/".join(parts).lower()
    value = operation.get("value")
    if isinstance(value, dict):
        return [f"{cleaned}/{name}" if cleaned else name for name in value]
    return [cleaned]


def _profile(operation: Operation, parts: Sequence[str], listed: bool) -> bool:
    if len(parts) == 2:
        return operation["op"] in ("add", "remove", "replace")
    return listed and all(
        operation["op"] in PROFILE_FIELDS.get(field.rsplit("/", maxsplit=1)[-1], ())
        for field in _fields(operation, parts[1:])
    )


def _watchdog(operation: Operation, parts: Sequence[str]) -> bool:
    without_port = [part for part in parts[1:] if not re.search(r"\d", part)]
    return operation["op"] in ("add", "remove", "replace") and all(
        field in PFC_WD_FIELDS for field in _fields(operation, without_port)
    )


def _port(operation: Operation, parts: Sequence[str]) -> bool:
    value = operation.get("value")
    if parts[-1] == "fec" and isinstance(value, str):
        return value in FEC
    return True
