# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Further mount options: each one known, said once, and said nowhere else."""

from __future__ import annotations

import re
from typing import Any

from ..schema.findings import Findings, Path, dotted, nearest
from .file_system import CHECKPOINTS, LUSTRE, NFS, SCRATCH
from .known_options import BY_KEY, FOR_UNITS, NEVER, NEVER_OF, ONLY_VERSION_3, PAIRS, VALUES

Value = dict[str, Any]


def check_options(entry: Value, findings: Findings, at: Path) -> None:
    """`entry` has a type, and options that are text."""
    first: dict[str, str] = {}
    for index, option in enumerate(entry["options"]):
        path = (*at, "options", index)
        if not _known(option, entry, findings, at, path):
            continue
        _fitting(option, entry, findings, at, path)
        # An option and its contrary are one thing that is said twice.
        said = _subject(option.partition("=")[0])
        if said in first:
            other = first[said]
            problem = "is there twice" if other == option else f"contradicts {other!r}"
            findings.add(
                "storage.option_twice",
                path,
                f"{option!r} {problem}",
                "Keep one of them",
                value=(option, other),
            )
        first.setdefault(said, option)


def _known(option: str, entry: Value, findings: Findings, at: Path, path: Path) -> bool:
    type_ = entry["type"]
    name, sign, value = option.partition("=")
    if name in BY_KEY[type_]:
        key = BY_KEY[type_][name]
        place = dotted((*at, type_, key))
        findings.add(
            "storage.option_is_key",
            path,
            f"{option!r} is what {place} is for",
            f"Leave it out, and write {key}",
            value=option,
        )
        return False
    never = {**NEVER, **NEVER_OF[type_]}
    if name in never or name.startswith(FOR_UNITS):
        why = never.get(name, "mounts have units of their own, which say it")
        # The name alone: what stands behind it may be a password.
        findings.add(
            "storage.option_never",
            path,
            f"{name!r} is not for these mounts: {why}",
            "Leave it out",
            value=name,
        )
        return False
    flags, values = _names(type_)
    if name not in flags and name not in values:
        other = LUSTRE if type_ == NFS else NFS
        theirs, with_value = _names(other)
        if name in theirs or name in with_value or name in BY_KEY[other]:
            problem = f"{name!r} is an option of {_CALLED[other]}, and the type is {type_}"
            findings.add("storage.option_of_other_type", path, problem, "Leave it out", value=name)
        else:
            findings.add(
                "storage.option_unknown",
                path,
                f"{name!r} is no mount option of {_CALLED[type_]}",
                nearest(name, sorted({*flags, *values, *BY_KEY[type_]})),
                value=name,
            )
        return False
    if sign and name not in values:
        findings.add(
            "storage.option_takes_no_value",
            path,
            f"{option!r} has a value, and {name} takes none",
            f"Write {name}",
            value=option,
        )
        return False
    if not sign and name not in flags:
        wanted = values[name][1]
        findings.add(
            "storage.option_needs_value",
            path,
            f"{option!r} has no value",
            f"Write {name}= and {wanted}",
            value=option,
        )
        return False
    if sign and not re.fullmatch(values[name][0], value):
        findings.add(
            "storage.option_value",
            path,
            f"{value!r} is no value of {name}",
            f"Write {values[name][1]}",
            value=value,
        )
        return False
    return True


def _fitting(option: str, entry: Value, findings: Findings, at: Path, path: Path) -> None:
    """A known option beside what the keys of its file system say."""
    name, _sign, value = option.partition("=")
    if name == "ro" and entry["purpose"] in (CHECKPOINTS, SCRATCH):
        findings.add(
            "storage.option_read_only",
            path,
            f"'ro' on a file system for {entry['purpose']}, which jobs write",
            "Leave it out, or change purpose",
        )
    if entry["type"] != NFS or not findings.clean((*at, "nfs")):
        return
    version = (entry["nfs"] or {}).get("version", "4.2")
    if name in ONLY_VERSION_3 and version != "3":
        findings.add(
            "storage.option_of_version_3",
            path,
            f"{option!r} is of NFS version 3, and {dotted((*at, 'nfs', 'version'))} is {version}",
            "Leave it out: later versions have no protocols beside themselves",
            value=option,
        )
    if name == "sec" and value != "sys" and entry["serve"]:
        findings.add(
            "storage.option_security",
            path,
            f"{option!r}, and the server of this cluster exports with sec=sys",
            "Leave it out, or use a server that has Kerberos, without serve",
            value=option,
        )


_CALLED = {NFS: "NFS", LUSTRE: "Lustre"}


def _names(type_: str) -> tuple[set[str], dict[str, tuple[str, str]]]:
    pairs = (*PAIRS["any"], *PAIRS[type_])
    flags = {name for pair in pairs for name in pair if name}
    return flags - set(NEVER_OF[type_]), {**VALUES["any"], **VALUES[type_]}


def _subject(name: str) -> str:
    pairs = [pair for of_type in PAIRS.values() for pair in of_type]
    return next((pair[0] for pair in pairs if name in pair), name)
