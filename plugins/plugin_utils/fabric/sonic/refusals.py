# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What `config` refuses, and what an operator can do about it."""

from __future__ import annotations

import re

from ..shell import Completed

_KNOWN = (
    (
        r"Modification of (WRED_PROFILE|BUFFER_PROFILE) table is illegal",
        "This release of SONiC lets no patch add such an object, or does not know the hardware SKU "
        "(gcu_field_operation_validators.conf.json): sonic-utilities of January 2026 or later does",
    ),
    (
        r"Modification of PFC_WD table is illegal",
        "This release of SONiC lets no patch set the PFC watchdog on this hardware SKU "
        "(gcu_field_operation_validators.conf.json): use a release that knows it, or set "
        "roce_qos.pfc.watchdog.enabled to false",
    ),
    (
        r"No such command .?(apply-patch|checkpoint|rollback)|invalid choice",
        "This release of SONiC has no generic updates: 202111 or later is needed",
    ),
    (
        r"No space left on device",
        "The switch's disk is full: make room (`df -h`; old images: `sonic-installer list`)",
    ),
    (
        r"Root privileges|must be root|Permission denied",
        "Log in as a user who may become root",
    ),
    (
        r"unit .* already|already loaded",
        "Another run is changing this switch: wait for it",
    ),
)


def advice(answer: Completed) -> str:
    """A sentence with a blank after it; empty where the reason is not a known one."""
    text = f"{answer.stderr}\n{answer.stdout}"
    for pattern, words in _KNOWN:
        if re.search(pattern, text, re.IGNORECASE):
            return f"{words}. "
    if answer.rc == 124:
        return "It took too long and was stopped. "
    return ""
