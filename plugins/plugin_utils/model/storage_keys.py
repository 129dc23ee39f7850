# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every key of `filesystems`. Validation, messages and docs/cluster-model.md come from here."""

from __future__ import annotations

import re
from typing import Any

from ...module_utils.core.dataclass import dataclass
from ...module_utils.core.text import nearest
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
from ..schema.kinds import (
    Boolean,
    Integer,
    Key,
    Kind,
    ListOf,
    Number,
    OneOf,
    OrNull,
    Section,
    Text,
    Wrong,
    shown,
)
from .storage_places import wrong_form, wrong_mount

KEY = "filesystems"
"""The key of a cluster model."""
VARIABLE = "cluster_filesystems"
"""The variable that it is compiled to."""

_ACCOUNT = r"[a-z_][a-z0-9_-]*"
_EXPORTED = (
    "Leave it out: it is exported to the addresses of this cluster's hosts and to nobody else, and "
    "root is squashed"
)
_NO_EXPORT = dict.fromkeys(
    (
        *("clients", "client", "export", "exports", "export_options", "networks", "allow", "world"),
        *("no_root_squash", "root_squash", "squash", "insecure", "secure", "public"),
    ),
    _EXPORTED,
)
"""What people would write to export to more than the cluster, and why there is no key for it."""

VERSIONS = ("4.2", "4.1", "3")
STABLE = "/dev/disk/by-id/..., a name that stays with the device"
_NUMBERED = re.compile(r"/dev/((sd|vd|xvd|hd)[a-z]+\d*|nvme\d+n\d+(p\d+)?|mmcblk\d+(p\d+)?)")
"""Names that the kernel gives in the order in which it finds devices."""


@dataclass(frozen=True)
class MountPoint(Kind):
    reads_text = True

    def convert(self, value: Any) -> str:
        if not isinstance(value, str) or not value:
            raise Wrong(
                "storage.no_mount_point",
                f"{shown(value)} is not an absolute path",
                "Write one such as /mnt/checkpoints",
            )
        wrong = wrong_form(value) or wrong_mount(value)
        if wrong is not None:
            raise wrong
        return value

    def describe(self) -> str:
        return "an absolute path"


@dataclass(frozen=True)
class Device(Kind):
    reads_text = True

    def convert(self, value: Any) -> str:
        if value == "":
            return ""
        if not isinstance(value, str) or not re.fullmatch(r"/dev/[A-Za-z0-9._:+=@/-]+", value):
            raise Wrong(
                "storage.no_device",
                f"{shown(value)} is not the path of a device",
                f"Write {STABLE}",
            )
        if {"", ".", ".."} & set(value.split("/")[1:]):
            raise Wrong(
                "storage.device_not_plain",
                f"{value!r} is not the plain path of a device",
                f"Write {STABLE}",
            )
        if _NUMBERED.fullmatch(value):
            raise Wrong(
                "storage.device_numbered",
                f"{value!r} may be another device after the next boot",
                f"Write {STABLE}: `ls -l /dev/disk/by-id` has it",
            )
        return value

    def describe(self) -> str:
        return "`/dev/disk/by-id/...`"


@dataclass(frozen=True)
class Mode(Kind):
    """Four octal digits. Not for everybody to write: the file system is seen by every account."""

    reads_text = True

    def convert(self, value: Any) -> str:
        if not isinstance(value, str) or not re.fullmatch(r"[0-7]{3,4}", value):
            raise Wrong(
                "storage.no_mode",
                f"{shown(value)} is not a mode of three or four octal digits",
                'Write it in quotes, as in "0770"',
            )
        mode = value.rjust(4, "0")
        if int(mode[3]) & 2:
            raise Wrong(
                "storage.mode_for_all",
                f"{value!r} lets every account of every host write there",
                'Write "0770", or "2770" for files that belong to the group',
            )
        if mode[0] not in "0123":
            raise Wrong(
                "storage.mode_set_user_id",
                f"{value!r} has the set-user-ID bit, which no directory has",
                "Remove it",
            )
        if mode[1] != "7":
            raise Wrong(
                "storage.mode_not_for_owner",
                f"{value!r} keeps its owner from using it",
                f'Write "{mode[0]}7{mode[2:]}"',
            )
        return mode

    def describe(self) -> str:
        return "mode `0770`"


@dataclass(frozen=True)
class NfsVersion(Kind):
    reads_text = True

    def convert(self, value: Any) -> str:
        # Unquoted in YAML, 4.2 is a number; nothing else is written like it.
        text = str(value) if isinstance(value, (int, float)) else value
        if isinstance(value, bool) or text not in VERSIONS:
            if text in ("4", "4.0"):
                raise Wrong(
                    "storage.nfs_without_sessions",
                    f"{shown(value)} has no sessions: after a break, requests may be done twice",
                    "Write 4.2 or 4.1",
                )
            raise Wrong(
                "model.not_a_choice",
                f"{shown(value)} is not a choice",
                nearest(str(value), VERSIONS),
            )
        return str(text)

    def describe(self) -> str:
        return " or ".join(f"`{version}`" for version in VERSIONS)


@dataclass(frozen=True)
class MountOption(Kind):
    """One option. Of several in one only the names are told: a value may be a password."""

    reads_text = True

    def convert(self, value: Any) -> str:
        if not isinstance(value, str) or not value.partition("=")[0]:
            raise Wrong(
                "storage.no_option",
                f"{shown(value)} is not a mount option",
                "Write one such as noatime",
            )
        names = [part.partition("=")[0] for part in re.split(r"[\s,\\]+", value)]
        if len(names) > 1:
            raise Wrong(
                "storage.options_in_one",
                f"{', '.join(filter(None, names))}: these stand in one entry, with commas, "
                "blanks or backslashes between them",
                "Give each an entry of its own, without any of these",
                tuple(names),
            )
        return value

    def describe(self) -> str:
        return "mount option"


NFS_KEYS = Section(
    "filesystems.nfs",
    "How an NFS server is spoken to. There is no key for `soft`: every mount is hard, and a job "
    "waits for a server that is away.",
    (
        Key(
            "version",
            NfsVersion(),
            "Of the protocol. 4.2 where the server has it; 4.0 has no sessions and is left out.",
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
    {
        "nconnect": "Write connections",
        "proto": "Write transport",
        "vers": "Write version",
        "nfsvers": "Write version",
        **dict.fromkeys(("soft", "hard"), "Leave it out: every mount is hard"),
    },
)

LUSTRE_KEYS = Section(
    "filesystems.lustre",
    "What is of Lustre alone.",
    (
        Key(
            "flock",
            Boolean(),
            "Whether locks are seen by all nodes, as MPI-IO needs them.",
            default=Lustre.flock,
        ),
        Key(
            "stripe_count",
            Integer(-1, 2000),
            "Objects that a new file is spread over: `-1` for all there are, `0` to leave it.",
            default=Lustre.stripe_count,
        ),
        Key(
            "stripe_size_mib",
            Integer(0, 4095, "MiB"),
            "How much lies in one object before the next; `0` to leave it.",
            default=Lustre.stripe_size_mib,
        ),
        Key(
            "pool",
            Text(r"[A-Za-z0-9_-]+", "the name of a pool", "flash", 15, empty=True),
            "The pool of targets that new files lie in.",
            default=Lustre.pool,
        ),
    ),
)

SERVE_KEYS = Section(
    "filesystems.serve",
    "For a file system that a host of this cluster serves by NFS: the directory that `source` "
    "names is made there and exported to the addresses of this cluster's hosts, and to nobody "
    "else, with root squashed.",
    (
        Key(
            "host",
            Text(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", "a host of the model", "storage01", 63),
            "The host. `source` begins with one of its names or addresses.",
            required=True,
        ),
        Key(
            "device",
            Device(),
            "Block device that is mounted there. Left out, the directory is served as it is.",
            default=Serve.device,
        ),
        Key(
            "format",
            Text(r"xfs|ext4", "xfs or ext4", "xfs", empty=True),
            "What the device gets where it has nothing on it at all; one that has anything on it "
            "is never formatted.",
            default=Serve.format,
        ),
    ),
    {
        **_NO_EXPORT,
        "directory": "Leave it out: it is the path of source",
        "path": "Leave it out: it is the path of source",
        "force": "Leave it out: a device that has anything on it is never formatted",
    },
)

_RATE = Number(100_000, "GB/s")
EXPECT_KEYS = Section(
    "filesystems.expect",
    "What its figures are compared with, in GB/s (10^9 bytes); `0`: with nothing.",
    (
        Key("write_gb_s", _RATE, "One node alone writes.", default=Expectation.write_gb_s),
        Key("read_gb_s", _RATE, "One node alone reads.", default=Expectation.read_gb_s),
        Key(
            "together_write_gb_s",
            _RATE,
            "All nodes at once write, added up.",
            default=Expectation.together_write_gb_s,
        ),
        Key(
            "together_read_gb_s",
            _RATE,
            "All nodes at once read, added up.",
            default=Expectation.together_read_gb_s,
        ),
    ),
)

_HOSTS = ["compute", "launcher"]

FILE_SYSTEM = Section(
    "filesystems",
    "One shared file system, the same on every host that mounts it.",
    (
        Key(
            "name",
            Text(r"[a-z][a-z0-9_-]*", "a name of a to z, 0 to 9, - and _", "checkpoints", 40),
            "What messages and reports call it.",
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
            MountPoint(),
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
        Key("mode", Mode(), "Mode of it, in quotes.", default=FileSystem.mode),
        Key(
            "space_gib",
            Integer(0, 10**9, "GiB"),
            "Free space that there has to be; `0`: not judged.",
            default=FileSystem.space_gib,
        ),
        Key(
            "files",
            Integer(0, 10**12, "files"),
            "How many more files there has to be room for; `0`: not judged.",
            default=FileSystem.files,
        ),
        Key(
            "hosts",
            ListOf(Text(r"[A-Za-z_][A-Za-z0-9_]*", "a group", "compute", 100), "groups"),
            "Groups whose hosts mount it.",
            default=_HOSTS,
        ),
        Key(
            "options",
            ListOf(MountOption(), "mount options"),
            "Further ones, each by itself.",
            default=[],
        ),
        Key("nfs", NFS_KEYS, "For the type `nfs`."),
        Key("lustre", LUSTRE_KEYS, "For the type `lustre`."),
        Key("serve", OrNull(SERVE_KEYS), "For one that a host of this cluster serves by NFS."),
        Key("expect", EXPECT_KEYS, "What its figures have to be.", default=EXPECT_KEYS.defaults()),
    ),
    {
        **_NO_EXPORT,
        "server": "Write it in source: server:/directory",
        "path": "Write mount, and source: server:/directory",
        "mountpoint": "Write mount",
        "mount_point": "Write mount",
        "fstype": "Write type",
        "opts": "Write options, a list",
        "quota": "Write space_gib and files: what has to be free",
        "device": "Write it under serve, with the host that has it",
        "format": "Write it under serve, with the device",
        "nconnect": "Write it under nfs: {connections: ...}",
        "proto": "Write it under nfs: {transport: ...}",
        "transport": "Write it under nfs",
        "version": "Write it under nfs",
        "port": "Write it under nfs",
        "state": "Leave it out: removal is asked of the role shared_storage",
    },
)

FILE_SYSTEMS = ListOf(FILE_SYSTEM)
