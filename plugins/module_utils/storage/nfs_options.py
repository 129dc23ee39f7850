# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Options of an NFS mount: as they are asked for, as the kernel tells them, and the comparison.

The kernel tells more than was asked (addresses, negotiated sizes), leaves out what is its default,
and spells some of it otherwise. Only what was asked for is compared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from . import mount_flags
from .file_system import RDMA, FileSystem
from .mount_flags import name_of
from .mount_kind import Difference
from .mounted import Mount

TYPE = "nfs"
TYPES = ("nfs", "nfs4")
TIMEO, RETRANS = 600, 2
"""Tenths of a second before a request is sent again, and how often before the log says so. With
`hard` and a connection that keeps order, sending again sooner only doubles the load of a server
that is slow."""

NOT_SET = "not set"
_ALIASES = {
    "nfsvers": "vers",
    "tcp": "proto=tcp",
    "udp": "proto=udp",
    "rdma": "proto=rdma",
}
_DEFAULTS: Mapping[str, str] = {
    "nconnect": "1",
    "sec": "sys",
    "lookupcache": "all",
    "local_lock": "none",
    "acregmin": "3",
    "acregmax": "60",
    "acdirmin": "30",
    "acdirmax": "60",
}
"""What runs where the kernel does not tell it."""
_PORT = "2049"
_CACHE_TIMES = ("acregmin", "acregmax", "acdirmin", "acdirmax")
_AT_MOST = ("rsize", "wsize")
"""Negotiated with the server: it may have less."""
_ONE_OF = ("hard", "soft", "softerr")
_UNTOLD_HERE = frozenset(
    [
        *("mounthost", "mountport", "mountproto", "mountvers", "intr", "nointr", "namlen"),
        *("minorversion", "port_is_default", "addr", "clientaddr", "max_connect", "trunkdiscovery"),
        *("notrunkdiscovery", "migration", "nomigration", "nofsc"),
    ]
)
"""Not told, or told in other words."""
_POSITIVE = {
    "cto": "nocto",
    "ac": "noac",
    "lock": "nolock",
    "acl": "noacl",
    "rdirplus": "nordirplus",
    "sharecache": "nosharecache",
    "resvport": "noresvport",
    "nosoftreval": "softreval",
    "async": "sync",
}
"""Defaults, of which the kernel tells only the opposite."""
_SLASHES = re.compile(r"/{2,}")


def source(fs: FileSystem) -> str:
    return _normal(fs.source)


def same_source(wanted: str, found: str) -> bool:
    return _normal(wanted) == _normal(found)


def options(fs: FileSystem, timeout_s: int) -> tuple[str, ...]:
    """What the operator adds comes last, and takes the place of what is said here."""
    nfs = fs.nfs
    words = [
        "hard",
        f"vers={nfs.version}",
        f"proto={nfs.transport}",
        f"port={nfs.port}",
        f"timeo={TIMEO}",
        f"retrans={RETRANS}",
        # mount.nfs gives up after two minutes of its own where the unit would wait on.
        f"retry={max(1, timeout_s // 60)}",
    ]
    if nfs.connections > 1:
        words.insert(4, f"nconnect={nfs.connections}")
    own = {_key(word) for word in fs.options}
    return (*(word for word in words if _key(word) not in own), *fs.options)


def differences(fs: FileSystem, running: Mount) -> tuple[Difference, ...]:
    return compare(options(fs, 0), running)


def compare(wanted: Sequence[str], running: Mount) -> tuple[Difference, ...]:
    told = _told(running)
    found = []
    for word in wanted:
        if mount_flags.is_untold(word) or name_of(word) in _UNTOLD_HERE:
            continue
        if word in mount_flags.FLAGS:
            flag = mount_flags.difference(word, running)
            found += [flag] if flag else []
        elif name_of(word) == "actimeo":
            found += _cache_times(word, told)
        else:
            found += _one(word, told)
    return tuple(found)


def _one(word: str, told: Mapping[str, str]) -> list[Difference]:
    name, equals, value = _spelled(word).partition("=")
    if not equals:
        runs = _flag(name, told)
        return [] if runs == name else [Difference(name, word, runs)]
    if name not in told:
        # A default, or an option of which this kernel says nothing.
        return []
    if name in _AT_MOST and _number(told[name]) <= _number(value):
        return []
    if told[name] == value:
        return []
    return [Difference(name, word, f"{name}={told[name]}")]


def _flag(name: str, told: Mapping[str, str]) -> str:
    """The word that runs in place of `name`, itself where it does."""
    if name in _ONE_OF:
        return next((each for each in _ONE_OF if each in told), "hard")
    if name in _POSITIVE:
        return _POSITIVE[name] if _POSITIVE[name] in told else name
    return name if name in told else NOT_SET


def _cache_times(word: str, told: Mapping[str, str]) -> list[Difference]:
    """`actimeo` is four options to the kernel."""
    value = word.partition("=")[2]
    wrong = [f"{name}={told[name]}" for name in _CACHE_TIMES if told[name] != value]
    return [Difference("actimeo", word, ",".join(wrong))] if wrong else []


def _told(running: Mount) -> dict[str, str]:
    """Every option that runs, by its one name."""
    found = dict(_DEFAULTS)
    seen = set()
    for word in running.options:
        name, _equals, value = _spelled(word).partition("=")
        found[name] = value
        seen.add(name)
    found.setdefault("port", _PORT)
    # tcp6 and rdma6 are the same over IPv6.
    if found.get("proto", "").endswith("6"):
        found["proto"] = found["proto"][:-1]
    if found.get("proto") == RDMA and "nconnect" not in seen:
        # Kernels before 6.10 have one connection over RDMA, whatever is asked for.
        del found["nconnect"]
    return found


def _spelled(word: str) -> str:
    name, equals, value = word.partition("=")
    plain = _ALIASES.get(name, name)
    if "=" in plain:
        return plain
    if plain == "vers" and value == "4":
        value = "4.2"
    return f"{plain}{equals}{value}"


def _key(word: str) -> str:
    """What two words are about that cannot both hold."""
    name = name_of(_spelled(word))
    return "hard" if name in _ONE_OF else name


def _number(value: str) -> int:
    return int(value) if value.isdigit() else 0


def _normal(text: str) -> str:
    """One spelling of a source: no slash at the end, none twice, host names in small letters."""
    server, colon, path = text.rpartition(":/")
    if not colon:
        return text
    return f"{server.lower()}:{_SLASHES.sub('/', '/' + path).rstrip('/') or '/'}"
