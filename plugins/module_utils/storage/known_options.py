# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Mount options: which there are, and which the model says by a key, or never says.

After mount(8), nfs(5) of nfs-utils and mount.lustre(8), the last with what the clients of Lustre
2.15 to 2.17 take beside it. What is not here is refused: the kernel would refuse it on every node,
when the first job comes.
"""

from __future__ import annotations

PAIRS = {
    "any": (
        *(("ro", "rw"), ("async", "sync"), ("atime", "noatime"), ("relatime", "norelatime")),
        *(("strictatime", "nostrictatime"), ("diratime", "nodiratime"), ("dev", "nodev")),
        *(("exec", "noexec"), ("suid", "nosuid"), ("lazytime", "nolazytime"), ("dirsync", "")),
    ),
    "nfs": (
        *(("ac", "noac"), ("cto", "nocto"), ("acl", "noacl"), ("fsc", "nofsc")),
        *(("rdirplus", "nordirplus"), ("sharecache", "nosharecache"), ("lock", "")),
        *(("resvport", "noresvport"), ("migration", "nomigration"), ("softreval", "nosoftreval")),
        *(("trunkdiscovery", "notrunkdiscovery"),),
    ),
    "lustre": (
        *(("user_xattr", "nouser_xattr"), ("lazystatfs", "nolazystatfs")),
        *(("user_fid2path", "nouser_fid2path"), ("checksum", "nochecksum")),
        *(("verbose", "noverbose"), ("encrypt", "noencrypt"), ("lruresize", "nolruresize")),
        *(("statfs_project", "nostatfs_project"), ("always_ping", ""), ("32bitapi", "")),
    ),
}
"""Options without a value, each beside its contrary; `any` are those of every file system."""

_NUMBER = (r"\d{1,9}", "a whole number")
VALUES = {
    "any": {"context": (r"[A-Za-z0-9_.:-]+", "an SELinux context without quotes")},
    "nfs": {
        **dict.fromkeys(("acregmin", "acregmax", "acdirmin", "acdirmax", "actimeo"), _NUMBER),
        **dict.fromkeys(("timeo", "retrans", "rsize", "wsize", "max_connect", "retry"), _NUMBER),
        **dict.fromkeys(("mountport", "namlen"), _NUMBER),
        "mountproto": (r"tcp6?", "tcp or tcp6: the MOUNT protocol has no RDMA"),
        "lookupcache": (r"all|none|pos|positive", "all, positive or none"),
        "local_lock": (r"none", "none: with others, locks of one node are not seen by the others"),
        "sec": (r"sys|krb5[ip]?", "sys, krb5, krb5i or krb5p"),
        "xprtsec": (r"none|tls|mtls", "none, tls or mtls"),
        "write": (r"lazy|eager|wait", "lazy, eager or wait"),
        "clientaddr": (r"[0-9A-Fa-f.:]+", "an address"),
        "rdirplus": (r"none|force", "none or force"),
    },
    "lustre": {
        "retry": _NUMBER,
        "network": (r"(tcp|o2ib)\d*", "a network of LNet, such as o2ib1"),
        "skpath": (r"/[A-Za-z0-9._/-]+", "a file or directory of keys"),
        "mgssec": (
            r"null|plain|gssnull|krb5[naip]|sk[nai]|skpi",
            "null, plain, gssnull, krb5n, krb5a, krb5i, krb5p, skn, ska, ski or skpi",
        ),
        "exclude": (
            r"[\w-]{1,8}-OST[0-9a-fA-F]{4}(:[\w-]{1,8}-OST[0-9a-fA-F]{4})*",
            "targets with colons between them, such as lustre-OST0003:lustre-OST0007",
        ),
        "foreign_symlink": (r"/[A-Za-z0-9._/-]*", "an absolute path"),
    },
}
"""Options with a value: its form, and that in words."""
ONLY_VERSION_3 = ("mountport", "mountproto", "namlen", "acl", "noacl", "lock")

BY_KEY = {
    "nfs": {
        **dict.fromkeys(("vers", "nfsvers", "minorversion"), "version"),
        **dict.fromkeys(("v2", "v3", "v4", "v4.0", "v4.1", "v4.2"), "version"),
        **dict.fromkeys(("proto", "tcp", "udp", "rdma"), "transport"),
        "port": "port",
        "nconnect": "connections",
    },
    "lustre": dict.fromkeys(("flock", "localflock", "noflock"), "flock"),
}
"""Options that the section of the type says by a key."""

_LOST = "it ends in an error when the server is slow, and what a job has written is lost"
_BY_UNIT = "mounts are units of systemd, which wait for the network and never block the boot"
_OF_EXPORTS = "it belongs to an export of the server, not to a mount"
NEVER = {
    **dict.fromkeys(("soft", "softerr"), _LOST),
    "hard": "every mount is hard",
    **dict.fromkeys(("bg", "fg"), "a mount in the background is reported before it is there"),
    **dict.fromkeys(("noauto", "auto", "nofail", "_netdev", "_rnetdev", "defaults"), _BY_UNIT),
    **dict.fromkeys(("user", "users", "owner", "group", "nouser", "comment"), _BY_UNIT),
    **dict.fromkeys(("remount", "bind", "rbind", "move"), "it is an action and no option"),
    "nolock": "locks that one node takes would not be seen by the others",
    **dict.fromkeys(("intr", "nointr"), "kernels take no notice of it since 2.6.25"),
    **dict.fromkeys(("addr", "mountaddr", "mounthost"), "it follows from the source"),
    **dict.fromkeys(("username", "password", "credentials"), "it is an option of CIFS"),
    **dict.fromkeys(("root_squash", "no_root_squash", "all_squash", "no_all_squash"), _OF_EXPORTS),
    **dict.fromkeys(("insecure", "secure", "subtree_check", "no_subtree_check"), _OF_EXPORTS),
    **dict.fromkeys(("fsid", "anonuid", "anongid", "crossmnt", "no_wdelay"), _OF_EXPORTS),
}
"""Options that no file system gets, and why."""
_UNKNOWN = "the client of Lustre does not know it, and would mount nothing"
NEVER_OF = {
    "nfs": {},
    "lustre": {
        **dict.fromkeys(("acl", "noacl"), "the metadata targets say it, when they are mounted"),
        **dict.fromkeys(("lazytime", "nolazytime", "dirsync", "nostrictatime"), _UNKNOWN),
        "noalways_ping": "it is what holds without always_ping, and Lustre has no word for it",
        "mgsname": "the kernel would tell it in place of the source, which could not be checked",
    },
}
"""The same of one type: what others have and it has not, or what cannot be read back."""
FOR_UNITS = "x-systemd."
