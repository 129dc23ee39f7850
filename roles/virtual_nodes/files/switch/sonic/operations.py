# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which changes SONiC refuses although both states would be valid."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .database import Config
from .patch import Operation, difference, tokens

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
    """A change that is not permitted on this field."""


def validate(old: Config, new: Config) -> list[Operation]:
    """What changes between two states, once it is known that each of it may."""
    operations = difference(old, new)
    for operation in operations:
        if operation["op"] == "remove" and operation["path"] in NEVER_REMOVED:
            raise IllegalOperationError(
                "Given patch operation is invalid. Operation: remove is illegal on field: "
                + str(operation["path"])
            )
    for operation in operations:
        _permit(operation)
    return operations


def _permit(operation: Operation) -> None:
    parts = tokens(operation["path"])
    table, validator, allowed = parts[0], "rdma_config_update_validator", True
    if table == "BUFFER_POOL":
        allowed = False
    elif table == "BUFFER_PROFILE":
        validator = "buffer_profile_config_update_validator"
        allowed = _profile(operation, parts)
    elif table == "PFC_WD":
        allowed = _watchdog(operation, parts)
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


def _profile(operation: Operation, parts: Sequence[str]) -> bool:
    if len(parts) == 2:
        return operation["op"] in ("add", "remove", "replace")
    return all(
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
