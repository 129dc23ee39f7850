# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every key of `filesystems`: source of validation, messages and docs/cluster-model.md."""

from __future__ import annotations

from ...module_utils.storage.file_system import (
    LUSTRE,
    NFS,
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
from ..schema.kinds import Boolean, Integer, Key, ListOf, Number, OneOf, OrNull, Section, Text

KEY = "filesystems"
"""Key in the cluster model."""
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
_RATE = Number(0, 100_000, "GB/s")

NFS_KEYS = Section(
    "filesystems.nfs",
    "Every mount is hard: jobs wait while a server is unavailable. There is no key for `soft`.",
    (
        Key(
            "version",
            OneOf(("4.2", "4.1", "3")),
            "Protocol version.",
            default=Nfs.version,
        ),
        Key("transport", OneOf((TCP, RDMA)), "Transport.", default=Nfs.transport),
        Key(
            "port",
            Integer(1, 65535),
            "Server port.",
            default_text=f"`{PORTS[TCP]}`; with rdma `{PORTS[RDMA]}`",
        ),
        Key(
            "connections",
            Integer(1, 16),
            "Connections to the server (`nconnect`). A single one is limited to one CPU core.",
            default=Nfs.connections,
        ),
    ),
)

LUSTRE_KEYS = Section(
    "filesystems.lustre",
    "Keys of Lustre.",
    (
        Key(
            "flock",
            Boolean(),
            "Make locks visible to all nodes, as MPI-IO requires.",
            default=Lustre.flock,
        ),
    ),
)

SERVE_KEYS = Section(
    "filesystems.serve",
    "For a file system that a host of this cluster serves by NFS. The directory in "
    "`source` is created and exported to hosts of this cluster only, with `root_squash`.",
    (
        Key(
            "host",
            Text(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", "a host of the model", "storage01", 63),
            "Server. `source` must begin with its name or one of its addresses: "
            "management, or in the subnet of a leaf to which it has a link.",
            required=True,
        ),
        Key(
            "device",
            _DEVICE,
            "Block device to mount at the directory, by a stable name such as "
            "`/dev/disk/by-id/...`. If empty, the directory is served as is.",
            default=Serve.device,
        ),
        Key(
            "format",
            OneOf(("xfs", "ext4", "")),
            "File system for a blank device; a device with data is never formatted.",
            default=Serve.format,
        ),
    ),
)

EXPECT_KEYS = Section(
    "filesystems.expect",
    "Expected throughput in GB/s (10^9 bytes); `0`: none.",
    tuple(
        Key(name, _RATE, text, default=getattr(Expectation, name))
        for name, text in (
            ("write_gb_s", "Write, one node."),
            ("read_gb_s", "Read, one node."),
            ("together_write_gb_s", "Write, sum of all nodes simultaneously."),
            ("together_read_gb_s", "Read, sum of all nodes simultaneously."),
        )
    ),
)

FILE_SYSTEM = Section(
    "filesystems",
    "One shared file system, identical on every host that mounts it.",
    (
        Key(
            "name",
            Text(r"[a-z][a-z0-9_-]*", "a name of a to z, 0 to 9, - and _", "checkpoints", 40),
            "Name in messages and reports.",
            required=True,
        ),
        Key("type", OneOf((NFS, LUSTRE)), "Type.", required=True),
        Key(
            "source",
            Text(r".+", "the source of a file system", "storage01:/srv/checkpoints", 500),
            "`server:/directory`, or for Lustre `nid[,nid][:nid...]:/fsname[/directory]` "
            "with NIDs such as `10.0.0.5@o2ib`. Write IPv6 addresses of NFS servers in "
            "brackets.",
            required=True,
        ),
        Key(
            "mount",
            Text(PLAIN_PATH, "an absolute path of letters, digits, . _ and -", "/mnt/checkpoints"),
            "Mount point; not in a system directory or another file system.",
            required=True,
        ),
        Key(
            "purpose",
            OneOf(PURPOSES),
            "Purpose. At most one file system may be for checkpoints; jobs find it in "
            "`CLUSTER_CHECKPOINT_DIR`.",
            required=True,
        ),
        Key(
            "owner",
            Text(_ACCOUNT, "a user name", "mpi", 32, empty=True),
            "Owner of the top directory.",
            default=FileSystem.owner,
            default_text="`mpi.user`",
        ),
        Key(
            "group",
            Text(_ACCOUNT, "a group name", "mpi", 32, empty=True),
            "Its group.",
            default=FileSystem.group,
            default_text="that of `mpi.user`",
        ),
        Key(
            "mode",
            Text(
                r"[0-3]7[0-7][0145]",
                "a mode of four octal digits: all access for the owner, no write access for others",
                '"0770" (in quotes)',
            ),
            "Its mode.",
            default=FileSystem.mode,
        ),
        Key(
            "space_gib",
            Integer(0, 10**9, "GiB"),
            "Required free space; `0`: not checked.",
            default=FileSystem.space_gib,
        ),
        Key(
            "files",
            Integer(0, 10**12, "files"),
            "Required number of free inodes; `0`: not checked.",
            default=FileSystem.files,
        ),
        Key(
            "hosts",
            ListOf(Text(r"[A-Za-z_][A-Za-z0-9_]*", "a group", "compute", 100), "groups", least=1),
            "Groups whose hosts mount it.",
            default=["compute", "launcher"],
        ),
        Key(
            "options",
            ListOf(
                Text(
                    r"[^\s,\\=][^\s,\\]*",
                    "one mount option, without blanks, commas and backslashes",
                    "noatime",
                    500,
                    secret=True,
                ),
                "mount options",
            ),
            "Extra mount options, one per entry.",
            default=[],
        ),
        Key("nfs", OrNull(NFS_KEYS), "For type `nfs`."),
        Key("lustre", OrNull(LUSTRE_KEYS), "For type `lustre`."),
        Key("serve", OrNull(SERVE_KEYS), "If a host of this cluster serves it by NFS."),
        Key("expect", EXPECT_KEYS, "Expected throughput."),
    ),
)

FILE_SYSTEMS = ListOf(FILE_SYSTEM)
