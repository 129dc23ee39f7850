# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Mount options: what a model may add, what a unit says, and what of it is compared.

An option that is unknown is for mount(8) and the kernel to refuse, whose message is reported. Of
what runs, only that is compared which the kernel states as it was asked for: version, protocol,
port, `hard`, `timeo` and `retrans` of NFS, `flock` of Lustre, `ro`, and the flags of the mount
itself. All others are compared with the unit on disk, by which the file system was mounted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..core.dataclass import dataclass
from ..schema.findings import Findings, Path, dotted
from .file_system import CHECKPOINTS, LUSTRE, NFS, SCRATCH, FileSystem
from .mounted import Mount

TIMEO, RETRANS = 600, 2
"""Tenths of a second before a request is sent again, and how often before the log says so. With
`hard` and a connection that keeps order, sending again sooner only doubles the load of a server
that is slow."""
LUSTRE_DEFAULTS = ("noatime", "nosuid", "nodev", "user_xattr", "lazystatfs")
"""Unless the file system says otherwise: no write for a read, no devices and no set-user-ID
programs from a server, attributes for checkpoint and data set tools, and a df that does not wait
for a dead target."""
NOT_SET = "not set"

_OPPOSITE = {
    "nosuid": "suid",
    "nodev": "dev",
    "noexec": "exec",
    "nodiratime": "diratime",
    "nosymfollow": "symfollow",
}
"""The kernel states the first of each, and nothing for the second."""
_ACCESS_TIMES = ("noatime", "relatime", "strictatime", "atime")
_WRITING = ("ro", "rw")
FLAGS = frozenset([*_OPPOSITE, *_OPPOSITE.values(), *_ACCESS_TIMES, *_WRITING])
"""Options that the kernel keeps per mount. They alone can be changed while it is mounted (`mount
-o remount,bind`); all others belong to the connection with the server, which the kernel does not
exchange (EINVAL)."""
_HARD = ("hard", "soft", "softerr")
_FLOCK = ("flock", "localflock", "noflock")
_SUBJECTS = {
    **dict.fromkeys(_ACCESS_TIMES, "atime"),
    **dict.fromkeys(_WRITING, "ro"),
    **dict.fromkeys(_HARD, "hard"),
    **dict.fromkeys(_FLOCK, "flock"),
    "async": "sync",
}
_NOT_BY_UNIT = frozenset(
    ("vers", "proto", "port", "hard", "timeo", "retrans", "flock", "ro", "retry")
)
"""Subjects that are compared with what runs. `retry` is how long mount.nfs tries, no option of the
mount: it follows from shared_storage_mount_timeout_s."""

_BY_KEY = {
    NFS: {
        **dict.fromkeys(("vers", "nfsvers", "minorversion"), "version"),
        **dict.fromkeys(("v2", "v3", "v4", "v4.0", "v4.1", "v4.2"), "version"),
        **dict.fromkeys(("proto", "tcp", "udp", "rdma"), "transport"),
        **{"port": "port", "nconnect": "connections"},
    },
    LUSTRE: dict.fromkeys(_FLOCK, "flock"),
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


@dataclass(frozen=True)
class Difference:
    """An option that was asked for and does not run."""

    subject: str
    """As `subject` has it, such as `nconnect`."""
    wanted: str
    """As mount(8) takes it: `nconnect=8`, `nosuid`."""
    found: str
    """As the kernel or the unit on disk has it; `not set` where it does not."""

    @property
    def text(self) -> str:
        return f"{self.wanted} (runs: {self.found})"


def subject(word: str) -> str:
    """Of two words with one subject only one can hold."""
    name = word.partition("=")[0]
    plain = name[2:] if name.startswith("no") and name not in _SUBJECTS else name
    # `norelatime` switches relatime off, and asks for none of the others.
    return plain if plain != name and plain in _ACCESS_TIMES else _SUBJECTS.get(plain, plain)


# What a model may add


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


# What a unit says


def options(fs: FileSystem, timeout_s: int) -> tuple[str, ...]:
    """Words of `Options=`: what the file system does not say otherwise, then its own, in its order.

    `timeout_s`: how long the unit gives a mount to succeed. The client of Lustre has no option for
    it: it waits as its servers tell it to.
    """
    if fs.type == LUSTRE:
        words = [*LUSTRE_DEFAULTS, "flock" if fs.lustre.flock else "noflock"]
    else:
        nfs = fs.nfs
        words = [
            "hard",
            f"vers={nfs.version}",
            f"proto={nfs.transport}",
            f"port={nfs.port}",
            *([f"nconnect={nfs.connections}"] if nfs.connections > 1 else []),
            f"timeo={TIMEO}",
            f"retrans={RETRANS}",
            # mount.nfs gives up after two minutes of its own where the unit would wait on.
            f"retry={max(1, timeout_s // 60)}",
        ]
    own = {subject(word) for word in fs.options}
    return (*(word for word in words if subject(word) not in own), *fs.options)


# What is compared


def differences(wanted: Sequence[str], mount: Mount) -> list[Difference]:
    """What was asked for and runs otherwise. Flags that run unasked are none: a bind mount has
    those of the mount below it. But `ro` is, as whoever says nothing wants to write; unless the
    kernel made the disk read-only, which no mount of it would help."""
    found = [(word, _runs(word, mount)) for word in wanted]
    if "ro" in mount.flags and not set(_WRITING) & set(wanted):
        found.append(("rw", "ro"))
    return [Difference(subject(word), word, runs) for word, runs in found if runs != word]


def changed(before: Sequence[str], wanted: Sequence[str], mount: Mount) -> list[Difference]:
    """What the unit on disk asked for otherwise, or asked for and its successor does not."""
    old, new = ({subject(word): word for word in words} for words in (before, wanted))
    found = []
    for key in dict.fromkeys([*new, *old]):
        was, wants = old.get(key), new.get(key)
        if was == wants or key in _NOT_BY_UNIT or wants in FLAGS:
            continue
        # `relatime` is what the kernel does unasked.
        if was in FLAGS and (was == "relatime" or was not in mount.flags):
            continue
        found.append(Difference(key, wants or f"no {was}", was or NOT_SET))
    return found


def _runs(word: str, mount: Mount) -> str:
    """What the kernel states in place of a word; the word, where it runs or is not compared."""
    name = word.partition("=")[0]
    told = dict(each.partition("=")[::2] for each in mount.options)
    if word in _WRITING:
        # A file system that is read-only is so through every mount of it.
        return "ro" if "ro" in mount.flags or "ro" in told else "rw"
    if word in _OPPOSITE:
        return word if word in mount.flags else _OPPOSITE[word]
    if word in _OPPOSITE.values():
        return f"no{word}" if f"no{word}" in mount.flags else word
    if word in _ACCESS_TIMES:
        runs = next((each for each in _ACCESS_TIMES if each in mount.flags), "strictatime")
        return word if word == "atime" and runs != "noatime" else runs
    if word in _HARD:
        return next((each for each in _HARD if each in told), "hard")
    if word in _FLOCK:
        return next((each for each in _FLOCK if each in told), "noflock")
    if name in ("timeo", "retrans"):
        return f"{name}={told.get(name, NOT_SET)}"
    if name == "vers":
        return f"vers={told.get('vers', NOT_SET)}"
    if name == "proto":
        # tcp6 and rdma6 are the same over IPv6.
        return f"proto={told.get('proto', NOT_SET).rstrip('6')}"
    return f"port={told.get('port', '2049')}" if name == "port" else word


# What can be changed while it is mounted


def changeable(found: Sequence[Difference], mount: Mount) -> bool:
    """Whether all of them are flags of this mount alone."""
    return all(
        each.wanted in FLAGS and not (each.wanted == "rw" and "ro" in mount.options)
        for each in found
    )


def remount_words(wanted: Sequence[str], mount: Mount) -> list[str]:
    """For `mount -o remount,bind`: the wanted flags, and those that run and nobody spoke of."""
    asked: list[str] = [word for word in wanted if word in FLAGS]
    if not set(_WRITING) & set(asked):
        asked.append("rw")
    spoken = {subject(word) for word in asked}
    return [*(one for one in mount.flags if one in FLAGS and subject(one) not in spoken), *asked]
