# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Mount options that a model may add. One that is unknown is refused by mount(8) and the kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..schema.findings import Findings, Path, dotted
from .file_system import CHECKPOINTS, LUSTRE, NFS, SCRATCH
from .units import subject

_BY_KEY = {
    NFS: {
        **dict.fromkeys(("vers", "nfsvers", "minorversion"), "version"),
        **dict.fromkeys(("v2", "v3", "v4", "v4.0", "v4.1", "v4.2"), "version"),
        **dict.fromkeys(("proto", "tcp", "udp", "rdma"), "transport"),
        **{"port": "port", "nconnect": "connections"},
    },
    LUSTRE: dict.fromkeys(("flock", "localflock", "noflock"), "flock"),
}
"""Options that the section of the type says by a key."""
_LOST = "it ends in an error when the server is slow, and what a job has written is lost"
_LOCKS = "locks that one node takes would not be seen by the others"
_NEVER = {
    **dict.fromkeys(("soft", "softerr"), _LOST),
    **dict.fromkeys(("nolock", "local_lock"), _LOCKS),
    "bg": "a mount in the background is reported before it is there",
    "mgsname": "the kernel states it in place of the source",
    **dict.fromkeys(("remount", "bind", "rbind", "move"), "it is an action of mount(8)"),
}
"""Options that no file system gets, and why."""


def check_options(entry: Mapping[str, Any], findings: Findings, at: Path) -> None:
    """`entry` has a type, and options of which each is one word."""
    first: dict[str, str] = {}
    for index, option in enumerate(entry["options"]):
        path, name = (*at, "options", index), option.partition("=")[0]
        key = _BY_KEY[entry["type"]].get(name)
        if key is not None:
            findings.add(
                "storage.option_is_key",
                path,
                f"{option!r} is what {dotted((*at, entry['type'], key))} is for",
                f"Leave it out, and write {key}",
                value=option,
            )
        elif name in _NEVER:
            findings.add(
                "storage.option_never",
                path,
                f"{name!r} is not for these mounts: {_NEVER[name]}",
                "Leave it out",
                value=name,
            )
        elif name == "ro" and entry["purpose"] in (CHECKPOINTS, SCRATCH):
            findings.add(
                "storage.option_read_only",
                path,
                f"'ro' on a file system for {entry['purpose']}, which jobs write",
                "Leave it out, or change purpose",
            )
        said = subject(option)
        if said in first:
            # The names alone: what stands behind them may be a password.
            other = first[said].partition("=")[0]
            findings.add(
                "storage.option_twice",
                path,
                f"{name!r} {'is there twice' if other == name else f'contradicts {other!r}'}",
                "Keep one of them",
                value=(name, other),
            )
        first.setdefault(said, option)
