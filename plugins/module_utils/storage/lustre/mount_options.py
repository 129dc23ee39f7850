# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Options of Lustre mounts: what is mounted with, and what the kernel tells of it.

The module is the MountKind of Lustre. Names and what the kernel tells of each are those of
mount.lustre(8) and of the clients of Lustre 2.15 to 2.17.
"""

from __future__ import annotations

from typing import Optional

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.dataclass import dataclass
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.schema.kinds import Wrong

from .. import mount_flags
from ..file_system import FileSystem
from ..mount_kind import Difference
from ..mounted import Mount
from . import source as sources

TYPE = "lustre"
TYPES = ("lustre",)

NOT_SET = "not set"


@dataclass(frozen=True)
class Option:
    """`group`: of the options with the same one only one can hold. `told`: whether the kernel
    tells it; the others cannot be read back."""

    name: str
    group: str
    told: bool = True


def _pair(name: str) -> tuple[Option, Option]:
    return Option(name, name), Option(f"no{name}", name)


OPTIONS = {
    option.name: option
    for option in (
        Option("flock", "flock"),
        Option("localflock", "flock"),
        Option("noflock", "flock"),
        *_pair("user_xattr"),
        *_pair("lazystatfs"),
        *_pair("checksum"),
        *_pair("encrypt"),
        *_pair("lruresize"),
        *_pair("user_fid2path"),
        *_pair("statfs_project"),
        *_pair("verbose"),
        Option("always_ping", "always_ping"),
        Option("foreign_symlink", "foreign_symlink"),
        *(Option(name, name, told=False) for name in ("network", "mgssec", "skpath", "exclude")),
        # 2.17 has it first in its table, and begins to tell with the second.
        Option("32bitapi", "32bitapi", told=False),
    )
}
"""Besides the options of every mount (mount_flags)."""

DEFAULTS = ("noatime", "nosuid", "nodev", "user_xattr", "lazystatfs")
"""Unless the file system says otherwise: no write for a read, no devices and no set-user-ID
programs from a server, attributes for checkpoint and data set tools, and a df that does not wait
for a dead target."""

SINCE = {"statfs_project": (2, 16), "nostatfs_project": (2, 16)}
"""Options that no client before this release mounts with."""

_GROUPS = {
    **{name: name for name in mount_flags.OPPOSITE},
    **{yes: no for no, yes in mount_flags.OPPOSITE.items()},
    **dict.fromkeys(mount_flags.ACCESS_TIMES, "access times"),
    **dict.fromkeys(mount_flags.WRITING, "writing"),
}


def source(fs: FileSystem) -> str:
    """In the kernel's spelling, so that a unit and the kernel's table can be compared by eye."""
    return str(sources.read_source(fs.source))


def same_source(wanted: str, found: str) -> bool:
    return sources.same_source(wanted, found)


def options(fs: FileSystem, timeout_s: int = 0) -> tuple[str, ...]:
    """Defaults that the file system does not contradict, then its own, in its order.

    `timeout_s` has no option here: the client of Lustre waits as its servers tell it to.
    """
    own = tuple(dict.fromkeys(fs.options))
    spoken = {group_of(word) for word in own}
    words = (*DEFAULTS, "flock" if fs.lustre.flock else "noflock")
    return (*(word for word in words if group_of(word) not in spoken), *own)


def differences(fs: FileSystem, running: Mount) -> tuple[Difference, ...]:
    found = (_difference(word, running) for word in options(fs))
    return tuple(each for each in found if each is not None)


def group_of(word: str) -> str:
    name = mount_flags.name_of(word)
    return _GROUPS.get(name) or (OPTIONS[name].group if name in OPTIONS else name)


def wrong_options(fs: FileSystem, discovery: bool, version: str = "") -> list[Wrong]:
    """What does not go with LNet as it is set up, or with this release.

    What no Lustre mount can have is refused where the model is read (option_rules). `version` is
    empty where the site installs the client.
    """
    found = []
    if discovery and any(word.startswith("network=") for word in fs.options):
        found.append(
            Wrong(
                "lustre.network_with_discovery",
                "option 'network' with discovery of peers: a server that was discovered is spoken "
                "to over any network (mount.lustre(8))",
                "Leave it out, or set discovery: false in shared_storage_lustre",
            )
        )
    if not version:
        return found
    release = tuple(int(number) for number in version.split(".")[:2])
    for word in fs.options:
        since = SINCE.get(word)
        if since is not None and release < since:
            found.append(
                Wrong(
                    "lustre.option_of_later",
                    f"option {word!r} with Lustre {version}, which would mount nothing: it is "
                    f"known from {since[0]}.{since[1]} on",
                    "Leave it out",
                )
            )
    return found


def _difference(word: str, running: Mount) -> Optional[Difference]:
    option = OPTIONS.get(mount_flags.name_of(word))
    if option is None:
        return mount_flags.difference(word, running)
    if not option.told:
        return None
    told = [each for each in running.options if group_of(each) == option.group]
    if word in told:
        return None
    # Of a switched-off option that has no opposite in this client's table, it tells nothing.
    off = word == f"no{option.group}" and not told
    return None if off else Difference(option.group, word, ",".join(told) or NOT_SET)
