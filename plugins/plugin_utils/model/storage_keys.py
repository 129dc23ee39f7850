# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every key of `filesystems`: source of validation, messages and docs/cluster-model.md."""

from __future__ import annotations

from ...module_utils.storage.file_system import (
    PORTS,
    PURPOSES,
    RDMA,
    TCP,
    Expectation,
    FileSystem,
    Lustre,
    Nfs,
    Serve,
)
from ..schema.kinds import (
    Boolean,
    Integer,
    Key,
    ListOf,
    Number,
    OneOf,
    OrNull,
    Section,
    Text,
    needed,
)

VARIABLE = "cluster_filesystems"
"""Variable with the compiled value."""

PLAIN_PATH = r"(/(?!\.\.?(/|$))[A-Za-z0-9._-]+)+"
"""Characters that need no escaping in unit names, unit files, exports or /proc, whose rules
differ.
"""

_ACCOUNT = r"[a-z_][a-z0-9_-]*"
_NUMBERED = (
    r"(sd|vd|xvd|hd)[a-z]+\d*|nvme\d+n\d+(p\d+)?|(md|mmcblk|rbd|nbd|bcache|pmem|loop)\d+(p\d+)?|"
    r"dm-\d+|zd\d+(p\d+)?|disk/by-diskseq/.*"
)
"""Device names that depend on the order of detection."""
_DEVICE = Text(
    rf"/dev/(?!({_NUMBERED})$)(?!\.)[A-Za-z0-9_:+=@-][A-Za-z0-9._:+=@-]*(/[A-Za-z0-9_:+=@-]"
    r"[A-Za-z0-9._:+=@-]*)*",
    "a device path that is stable across boots",
    "/dev/disk/by-id/...",
    empty=True,
)
_HOST = Text(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", "a host of the model", "storage01", 63)
_RATE = Number(0, 100_000, "GB/s")
_NAME = Text(r"[a-z][a-z0-9_-]*", "a name of a to z, 0 to 9, - and _", "checkpoints", 40)
_TYPE = Text(
    r"[a-z][a-z0-9_-]*(\.[a-z0-9_-]+)?", "a type of file system, as in /proc/mounts", "nfs", 30
)
_SOURCE = Text(r".+", "the source of a file system", "storage01:/srv/checkpoints", 500)
_MOUNT = Text(PLAIN_PATH, "an absolute path of letters, digits, . _ and -", "/mnt/checkpoints")
_MODE = Text(
    r"[0-3]7[0-7][0145]",
    "a mode of four octal digits: all access for the owner, no write access for others",
    '"0770" (in quotes)',
)
_GROUP = Text(r"[A-Za-z_][A-Za-z0-9_]*", "a group", "compute", 100)
_OPTION = Text(
    r"[^\s,\\=][^\s,\\]*",
    "one mount option, without blanks, commas and backslashes",
    "noatime",
    500,
    secret=True,
)

NFS_KEYS = Section(
    "filesystems.nfs",
    "Every mount is hard: jobs wait while a server is unavailable. There is no key for `soft`.",
    (
        Key("version", OneOf(("4.2", "4.1", "3")), "Protocol version.", default=Nfs.version),
        Key("transport", OneOf((TCP, RDMA)), "", default=Nfs.transport),
        Key("port", Integer(1, 65535), "", default_text=f"`{PORTS[TCP]}`; rdma `{PORTS[RDMA]}`"),
        Key(
            "connections",
            Integer(1, 64),
            "`nconnect`. More than 16 need VAST's client, which others install, and one of its "
            "options, such as `remoteports=dns`, under `options`.",
            default=Nfs.connections,
        ),
    ),
)

LUSTRE_KEYS = Section(
    "filesystems.lustre",
    "Keys of Lustre.",
    (Key("flock", Boolean(), "Cluster-wide locks, for MPI-IO.", default=Lustre.flock),),
)

SERVE_KEYS = Section(
    "filesystems.serve",
    "For a file system that a host of this cluster serves by NFS. The directory in "
    "`source` is created and exported to hosts of this cluster only, with `root_squash`.",
    (
        needed("host", _HOST, "Server; `source` begins with its name or an address."),
        Key("device", _DEVICE, "To mount there. Empty: serve as is.", default=Serve.device),
        Key(
            "format",
            OneOf(("xfs", "ext4", "")),
            "For a blank device; a device with data is never formatted.",
            default=Serve.format,
        ),
    ),
)

EXPECT_KEYS = Section(
    "filesystems.expect",
    "Expected throughput in GB/s (10^9 bytes); `0`: none. `together_`: sum of all nodes.",
    tuple(Key(name, _RATE, "", default=value) for name, value in vars(Expectation()).items()),
)

FILE_SYSTEM = Section(
    "filesystems",
    "One shared file system, identical on every host that mounts it.",
    (
        needed("name", _NAME, "In messages and reports."),
        needed("type", _TYPE, "`nfs` or `lustre`; with `managed: false` any other, as mounted."),
        needed(
            "source",
            _SOURCE,
            "`server:/directory` (IPv6 in brackets), or for Lustre "
            "`nid[,nid][:nid...]:/fsname[/directory]`.",
        ),
        Key(
            "managed",
            Boolean(),
            "`false`: others install the client (WEKA, GPFS, BeeGFS) and mount it. The layer "
            "`storage` only verifies the mount, by writing and reading.",
            default=FileSystem.managed,
        ),
        needed("mount", _MOUNT, "Not in a system directory or another file system."),
        needed("purpose", OneOf(PURPOSES), "At most one is for checkpoints."),
        Key(
            "owner",
            Text(_ACCOUNT, "a user name", "mpi", 32, empty=True),
            "Of the top directory.",
            default=FileSystem.owner,
            default_text="`mpi.user`",
        ),
        Key(
            "group",
            Text(_ACCOUNT, "a group name", "mpi", 32, empty=True),
            "",
            default=FileSystem.group,
            default_text="that of `mpi.user`",
        ),
        Key("mode", _MODE, "", default=FileSystem.mode),
        Key("space_gib", Integer(0, 10**9, "GiB"), "Required space.", default=FileSystem.space_gib),
        Key("files", Integer(0, 10**12, "files"), "Required inodes.", default=FileSystem.files),
        Key(
            "hosts",
            ListOf(_GROUP, "groups", least=1),
            "Groups whose hosts mount it.",
            default=["compute", "launcher"],
        ),
        Key("options", ListOf(_OPTION, "mount options"), "One per entry.", default=[]),
        Key("nfs", OrNull(NFS_KEYS), ""),
        Key("lustre", OrNull(LUSTRE_KEYS), ""),
        Key("serve", OrNull(SERVE_KEYS), ""),
        Key("expect", EXPECT_KEYS, ""),
    ),
)

FILE_SYSTEMS = ListOf(FILE_SYSTEM)
