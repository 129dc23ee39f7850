# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every key of `filesystems`. Validation, messages and docs/cluster-model.md come from here."""

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
"""The key of a cluster model."""
VARIABLE = "cluster_filesystems"
"""The variable that it is compiled to."""

PLAIN_PATH = r"(/(?!\.\.?(/|$))[A-Za-z0-9._-]+)+"
"""Written alike in unit names, unit files, exports and /proc, which escape all else differently."""

_ACCOUNT = r"[a-z_][a-z0-9_-]*"
_NUMBERED = (
    r"(sd|vd|xvd|hd)[a-z]+\d*|nvme\d+n\d+(p\d+)?|(md|mmcblk|rbd|nbd|bcache|pmem|loop)\d+(p\d+)?|"
    r"dm-\d+|zd\d+(p\d+)?|disk/by-diskseq/.*"
)
"""Names that the kernel gives in the order in which it finds devices."""
_DEVICE = Text(
    rf"/dev/(?!({_NUMBERED})$)(?!\.)[A-Za-z0-9_:+=@-][A-Za-z0-9._:+=@-]*(/[A-Za-z0-9_:+=@-]"
    r"[A-Za-z0-9._:+=@-]*)*",
    "the path of a device that stays with it after a boot",
    "/dev/disk/by-id/...",
    empty=True,
)
_RATE = Number(0, 100_000, "GB/s")

NFS_KEYS = Section(
    "filesystems.nfs",
    "How an NFS server is reached. There is no key for `soft`: every mount is hard, and a job "
    "waits for a server that is away.",
    (
        Key(
            "version",
            OneOf(("4.2", "4.1", "3")),
            "Of the protocol. 4.0 has no sessions and is left out.",
            default=Nfs.version,
        ),
        Key("transport", OneOf((TCP, RDMA)), "What it goes over.", default=Nfs.transport),
        Key(
            "port",
            Integer(1, 65535),
            "Of the server.",
            default_text=f"`{PORTS[TCP]}`; with rdma `{PORTS[RDMA]}`",
        ),
        Key(
            "connections",
            Integer(1, 16),
            "How many there are to the server (`nconnect`): one alone is bound to one core.",
            default=Nfs.connections,
        ),
    ),
)

LUSTRE_KEYS = Section(
    "filesystems.lustre",
    "What only Lustre has.",
    (
        Key(
            "flock",
            Boolean(),
            "Whether locks are seen by all nodes, as MPI-IO needs them.",
            default=Lustre.flock,
        ),
    ),
)

SERVE_KEYS = Section(
    "filesystems.serve",
    "For a file system that a host of this cluster serves by NFS: the directory that `source` "
    "names is made there and exported only to the addresses of this cluster's hosts, with root "
    "squashed.",
    (
        Key(
            "host",
            Text(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", "a host of the model", "storage01", 63),
            "The host. `source` begins with a name of it, or with one of its addresses: in the "
            "management network, or in the subnet of a leaf that it has a link to.",
            required=True,
        ),
        Key(
            "device",
            _DEVICE,
            "Block device that is mounted there, by a name such as `/dev/disk/by-id/...`. Left "
            "out, the directory is served as it is.",
            default=Serve.device,
        ),
        Key(
            "format",
            OneOf(("xfs", "ext4", "")),
            "What a blank device is formatted with; one that has anything on it never is.",
            default=Serve.format,
        ),
    ),
)

EXPECT_KEYS = Section(
    "filesystems.expect",
    "What its figures are compared with, in GB/s (10^9 bytes); `0`: with nothing.",
    tuple(
        Key(name, _RATE, text, default=getattr(Expectation, name))
        for name, text in (
            ("write_gb_s", "One node alone writes."),
            ("read_gb_s", "One node alone reads."),
            ("together_write_gb_s", "All nodes at once write, added up."),
            ("together_read_gb_s", "All nodes at once read, added up."),
        )
    ),
)

FILE_SYSTEM = Section(
    "filesystems",
    "One shared file system, the same on every host that mounts it.",
    (
        Key(
            "name",
            Text(r"[a-z][a-z0-9_-]*", "a name of a to z, 0 to 9, - and _", "checkpoints", 40),
            "Its name in messages and reports.",
            required=True,
        ),
        Key("type", OneOf((NFS, LUSTRE)), "Its type.", required=True),
        Key(
            "source",
            Text(r".+", "the source of a file system", "storage01:/srv/checkpoints", 500),
            "`server:/directory`; of Lustre `nid[,nid][:nid...]:/fsname[/directory]`, a nid as in "
            "`10.0.0.5@o2ib`. IPv6 addresses of NFS servers in brackets.",
            required=True,
        ),
        Key(
            "mount",
            Text(PLAIN_PATH, "an absolute path of letters, digits, . _ and -", "/mnt/checkpoints"),
            "Where hosts mount it. Not over directories of the system, nor over another one.",
            required=True,
        ),
        Key(
            "purpose",
            OneOf(PURPOSES),
            "What it is for. One alone is for checkpoints: jobs find it in "
            "`CLUSTER_CHECKPOINT_DIR`.",
            required=True,
        ),
        Key(
            "owner",
            Text(_ACCOUNT, "a user name", "mpi", 32, empty=True),
            "Owner of its top directory.",
            default=FileSystem.owner,
            default_text="`mpi.user`",
        ),
        Key(
            "group",
            Text(_ACCOUNT, "a group name", "mpi", 32, empty=True),
            "Group of it.",
            default=FileSystem.group,
            default_text="that of `mpi.user`",
        ),
        Key(
            "mode",
            Text(
                r"[0-3]7[0-7][0145]",
                "a mode of four octal digits that gives its owner all and lets no other account "
                "write",
                '"0770" (in quotes)',
            ),
            "Mode of it.",
            default=FileSystem.mode,
        ),
        Key(
            "space_gib",
            Integer(0, 10**9, "GiB"),
            "Free space that is needed; `0`: not judged.",
            default=FileSystem.space_gib,
        ),
        Key(
            "files",
            Integer(0, 10**12, "files"),
            "How many more files must fit; `0`: not judged.",
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
            "Further ones, each by itself.",
            default=[],
        ),
        Key("nfs", OrNull(NFS_KEYS), "For the type `nfs`."),
        Key("lustre", OrNull(LUSTRE_KEYS), "For the type `lustre`."),
        Key("serve", OrNull(SERVE_KEYS), "For one that a host of this cluster serves by NFS."),
        Key("expect", EXPECT_KEYS, "Expected figures."),
    ),
)

FILE_SYSTEMS = ListOf(FILE_SYSTEM)
