# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# ruff: noqa: E501  (messages stand here as the operator sees them, in one line)
"""What each key of a file system holds, refused in the words that an operator reads."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.file_systems import DROP, lustre, one, refused

BAD: tuple[tuple[Any, list[str]], ...] = (
    # types
    (
        {},
        [
            "cluster_filesystems: a mapping is not a list. Write a list of a section with name, type, source, mount, purpose.",
        ],
    ),
    (
        "storage01:/srv",
        [
            "cluster_filesystems: 'storage01:/srv' is not a list. Write a list of a section with name, type, source, mount, purpose.",
        ],
    ),
    (
        ["storage01:/srv"],
        [
            "cluster_filesystems[0]: 'storage01:/srv' is not a mapping. Write keys below it.",
        ],
    ),
    (
        [{}],
        [
            "cluster_filesystems[0].name: is missing. Add it: a name of a to z, 0 to 9, - and _.",
            "cluster_filesystems[0].type: is missing. Add it: nfs or lustre.",
            "cluster_filesystems[0].source: is missing. Add it: the source of a file system.",
            "cluster_filesystems[0].mount: is missing. Add it: an absolute path.",
            "cluster_filesystems[0].purpose: is missing. Add it: checkpoints or datasets or home or software or scratch.",
        ],
    ),
    (
        one(type="nfs4"),
        [
            "cluster_filesystems[0].type: 'nfs4' is not a choice. Did you mean 'nfs'? Known here: nfs, lustre.",
        ],
    ),
    (
        one(type="gpfs"),
        [
            "cluster_filesystems[0].type: 'gpfs' is not a choice. Did you mean 'nfs'? Known here: nfs, lustre.",
        ],
    ),
    (
        one(name="Check Points"),
        [
            "cluster_filesystems[0].name: 'Check Points' is not a name of a to z, 0 to 9, - and _. Write one such as checkpoints.",
        ],
    ),
    (
        one(name=7),
        [
            "cluster_filesystems[0].name: 7 is not a name of a to z, 0 to 9, - and _. Write one such as checkpoints.",
        ],
    ),
    (
        one(purpose="backup"),
        [
            "cluster_filesystems[0].purpose: 'backup' is not a choice. Known here: checkpoints, datasets, home, software, scratch.",
        ],
    ),
    (
        one(nme="x"),
        [
            "cluster_filesystems[0].nme: unknown key. Did you mean 'name'? Known here: name, type, source, mount, purpose, owner, group, mode, space_gib, files, hosts, options, nfs, lustre, serve, expect.",
        ],
    ),
    (
        one(space_gib=-1),
        [
            "cluster_filesystems[0].space_gib: -1 is out of range. Write one from 0 to 1000000000 (GiB).",
        ],
    ),
    (
        one(space_gib="10T"),
        [
            "cluster_filesystems[0].space_gib: '10T' is not a whole number. Write one from 0 to 1000000000 (GiB).",
        ],
    ),
    (
        one(files=1.5),
        [
            "cluster_filesystems[0].files: 1.5 is not a whole number. Write one from 0 to 1000000000000 (files).",
        ],
    ),
    (
        one(expect={"write_gb_s": -1}),
        [
            "cluster_filesystems[0].expect.write_gb_s: -1 is out of range. Write one from 0 to 100000 (GB/s).",
        ],
    ),
    (
        one(expect={"write_gb_s": "fast", "read": 3}),
        [
            "cluster_filesystems[0].expect.read: unknown key. Did you mean 'read_gb_s'? Known here: write_gb_s, read_gb_s, together_write_gb_s, together_read_gb_s.",
            "cluster_filesystems[0].expect.write_gb_s: 'fast' is not a number. Write one from 0 to 100000 (GB/s).",
        ],
    ),
    (
        one(expect={"read_gb_s": float("nan")}),
        [
            "cluster_filesystems[0].expect.read_gb_s: nan is out of range. Write one from 0 to 100000 (GB/s).",
        ],
    ),
    # source
    (
        one(source=DROP),
        [
            "cluster_filesystems[0].source: is missing. Add it: the source of a file system.",
        ],
    ),
    (
        one(source=None),
        [
            "cluster_filesystems[0].source: an empty value is not the source of a file system. Write one such as storage01:/srv/checkpoints.",
        ],
    ),
    (
        one(source="storage01"),
        [
            "cluster_filesystems[0].source: 'storage01' names no directory. Write server:/directory, such as storage01:/srv/checkpoints.",
        ],
    ),
    (
        one(source="storage01:srv/checkpoints"),
        [
            "cluster_filesystems[0].source: 'storage01:srv/checkpoints' has a directory that does not begin at the root. Write storage01:/srv/checkpoints, if that is what is meant.",
        ],
    ),
    (
        one(source="/srv/checkpoints"),
        [
            "cluster_filesystems[0].source: '/srv/checkpoints' names no server. Write server:/directory, such as storage01:/srv/checkpoints.",
        ],
    ),
    (
        one(source="nfs://storage01/srv/checkpoints"),
        [
            "cluster_filesystems[0].source: 'nfs://storage01/srv/checkpoints' is a URL. Write server:/directory, such as storage01:/srv/checkpoints.",
        ],
    ),
    (
        one(source=":/srv/checkpoints"),
        [
            "cluster_filesystems[0].source: ':/srv/checkpoints' names no server. Write server:/directory, such as storage01:/srv/checkpoints.",
        ],
    ),
    (
        one(source="ops@storage01:/srv"),
        [
            "cluster_filesystems[0].source: 'ops@storage01:/srv' has a user or a NID in front. Write server:/directory, such as storage01:/srv/checkpoints.",
        ],
    ),
    (
        one(source="10.0.0.256:/srv"),
        [
            "cluster_filesystems[0].source: '10.0.0.256' is not an IPv4 address. Correct it.",
        ],
    ),
    (
        one(source="fd00::21:/srv"),
        [
            "cluster_filesystems[0].source: 'fd00::21' is an IPv6 address without brackets. Write [fd00::21]:/srv.",
        ],
    ),
    (
        one(source="[fd00::g]:/srv"),
        [
            "cluster_filesystems[0].source: '[fd00::g]' is not an IPv6 address. Correct it.",
        ],
    ),
    (
        one(source="stor_age:/srv"),
        [
            "cluster_filesystems[0].source: 'stor_age' is not the name or address of a server. Write server:/directory, such as storage01:/srv/checkpoints.",
        ],
    ),
    (
        one(source="storage01:/srv/../etc"),
        [
            "cluster_filesystems[0].source: '/srv/../etc' goes up by '..'. Write where it leads: /etc.",
        ],
    ),
    (
        one(source="storage01:/srv//x/"),
        [
            "cluster_filesystems[0].source: '/srv//x/' is not the plain path. Write /srv/x.",
        ],
    ),
    (
        one(source="storage01:/srv/my data"),
        [
            "cluster_filesystems[0].source: '/srv/my data' has ' ' in it, which units, exports and /proc write differently. Use letters, digits, and . _ - + @ = ~.",
        ],
    ),
    (
        lustre(source="10.0.0.31:/scratch"),
        [
            "cluster_filesystems[0].source: '10.0.0.31' has no network of LNet. Write 10.0.0.31@o2ib or @tcp.",
        ],
    ),
    (
        lustre(source="10.0.0.31@ib0:/scratch"),
        [
            "cluster_filesystems[0].source: 'ib0' of '10.0.0.31@ib0' is no network of LNet that is set up here. Write o2ib or tcp, with or without a number.",
        ],
    ),
    (
        lustre(source="10.0.0.31@o2ib:/scratch-of-all"),
        [
            "cluster_filesystems[0].source: 'scratch-of-all' is no name of a Lustre file system. Write the one that mkfs.lustre was given: letters, digits, _ and -, at most 8.",
        ],
    ),
    (
        lustre(source="10.0.0.31@o2ib:scratch"),
        [
            "cluster_filesystems[0].source: '10.0.0.31@o2ib:scratch' is not a source of Lustre. Write NIDs and the name, such as 10.0.0.5@o2ib:/scratch.",
        ],
    ),
    (
        lustre(source="10.0.0.3333@o2ib:/scratch"),
        [
            "cluster_filesystems[0].source: '10.0.0.3333' of '10.0.0.3333@o2ib' is not a name or IPv4 address. Write NIDs and the name, such as 10.0.0.5@o2ib:/scratch.",
        ],
    ),
    # mount points
    (
        one(mount=DROP),
        [
            "cluster_filesystems[0].mount: is missing. Add it: an absolute path.",
        ],
    ),
    (
        one(mount="/"),
        [
            "cluster_filesystems[0].mount: '/' is the root file system of the host. Mount it somewhere such as /mnt/checkpoints.",
        ],
    ),
    (
        one(mount="mnt/checkpoints"),
        [
            "cluster_filesystems[0].mount: 'mnt/checkpoints' does not begin at the root. Write all of the path, from / on.",
        ],
    ),
    (
        one(mount="/mnt/../checkpoints"),
        [
            "cluster_filesystems[0].mount: '/mnt/../checkpoints' goes up by '..'. Write where it leads: /checkpoints.",
        ],
    ),
    (
        one(mount="/mnt//checkpoints/"),
        [
            "cluster_filesystems[0].mount: '/mnt//checkpoints/' is not the plain path. Write /mnt/checkpoints.",
        ],
    ),
    (
        one(mount="/mnt/check points"),
        [
            "cluster_filesystems[0].mount: '/mnt/check points' has ' ' in it, which units, exports and /proc write differently. Use letters, digits, and . _ -.",
        ],
    ),
    (
        one(mount="/mnt/50%"),
        [
            "cluster_filesystems[0].mount: '/mnt/50%' has '%' in it, which units, exports and /proc write differently. Use letters, digits, and . _ -.",
        ],
    ),
    (
        one(mount="/usr"),
        [
            "cluster_filesystems[0].mount: '/usr' is a directory of the system. Mount it somewhere such as /mnt/checkpoints.",
        ],
    ),
    (
        one(mount="/usr/local"),
        [
            "cluster_filesystems[0].mount: '/usr/local' is in /usr, a directory of the system. Mount it somewhere such as /mnt/checkpoints.",
        ],
    ),
    (
        one(mount="/usr/local/lib/models"),
        [
            "cluster_filesystems[0].mount: '/usr/local/lib/models' is in /usr, a directory of the system. Mount it somewhere such as /mnt/checkpoints.",
        ],
    ),
    (
        one(mount="/etc/checkpoints"),
        [
            "cluster_filesystems[0].mount: '/etc/checkpoints' is in /etc, a directory of the system. Mount it somewhere such as /mnt/checkpoints.",
        ],
    ),
    (
        one(mount="/var/lib/checkpoints"),
        [
            "cluster_filesystems[0].mount: '/var/lib/checkpoints' is in /var, a directory of the system. Mount it somewhere such as /mnt/checkpoints.",
        ],
    ),
    (
        one(mount="/tmp/checkpoints"),
        [
            "cluster_filesystems[0].mount: '/tmp/checkpoints' is where the system deletes files that are old, on all hosts. Mount it somewhere such as /mnt/checkpoints.",
        ],
    ),
    (
        one(mount="/run/checkpoints"),
        [
            "cluster_filesystems[0].mount: '/run/checkpoints' is in /run, a directory of the system. Mount it somewhere such as /mnt/checkpoints.",
        ],
    ),
    (
        one(mount="/dev/shm"),
        [
            "cluster_filesystems[0].mount: '/dev/shm' is in /dev, a directory of the system. Mount it somewhere such as /mnt/checkpoints.",
        ],
    ),
    (
        one(mount="/boot"),
        [
            "cluster_filesystems[0].mount: '/boot' is a directory of the system. Mount it somewhere such as /mnt/checkpoints.",
        ],
    ),
    (
        one(mount="/proc/fs"),
        [
            "cluster_filesystems[0].mount: '/proc/fs' is in /proc, a directory of the system. Mount it somewhere such as /mnt/checkpoints.",
        ],
    ),
    (
        one(mount="/sys"),
        [
            "cluster_filesystems[0].mount: '/sys' is a directory of the system. Mount it somewhere such as /mnt/checkpoints.",
        ],
    ),
    (
        one(mount="/root"),
        [
            "cluster_filesystems[0].mount: '/root' is a directory of the system. Mount it somewhere such as /mnt/checkpoints.",
        ],
    ),
    (
        one(mount="/opt"),
        [
            "cluster_filesystems[0].mount: '/opt' would hide what packages have installed there. Mount it below, at /opt/NAME.",
        ],
    ),
    (
        one(mount="/opt/mellanox/checkpoints"),
        [
            "cluster_filesystems[0].mount: '/opt/mellanox/checkpoints' is in /opt/mellanox, a directory of the system. Mount it somewhere such as /mnt/checkpoints.",
        ],
    ),
    (
        one(mount="/home"),
        [
            "cluster_filesystems[0].mount: '/home' would hide the homes of every account, and purpose is checkpoints. Mount it elsewhere, or write purpose: home.",
        ],
    ),
    (
        one(mount="/mnt/" + "a-" * 60),
        [
            "cluster_filesystems[0].mount: '/mnt/a-a-a-a-a-a-a-a-a-a-a-a-a-a-a-a-a-a'... makes a unit name of 314 characters, and systemd takes 255. Write a shorter one; each - counts four times.",
        ],
    ),
    (
        one(mount=["/mnt"]),
        [
            "cluster_filesystems[0].mount: a list is not an absolute path. Write one such as /mnt/checkpoints.",
        ],
    ),
    # owners and modes
    (
        one(mode="0777"),
        [
            'cluster_filesystems[0].mode: \'0777\' lets every account of every host write there. Write "0770", or "2770" for files that belong to the group.',
        ],
    ),
    (
        one(mode="1777"),
        [
            'cluster_filesystems[0].mode: \'1777\' lets every account of every host write there. Write "0770", or "2770" for files that belong to the group.',
        ],
    ),
    (
        one(mode="rwx"),
        [
            "cluster_filesystems[0].mode: 'rwx' is not a mode of three or four octal digits. Write it in quotes, as in \"0770\".",
        ],
    ),
    (
        one(mode=0o770),
        [
            'cluster_filesystems[0].mode: 504 is not a mode of three or four octal digits. Write it in quotes, as in "0770".',
        ],
    ),
    (
        one(mode="4770"),
        [
            "cluster_filesystems[0].mode: '4770' has the set-user-ID bit, which no directory has. Remove it.",
        ],
    ),
    (
        one(mode="0570"),
        [
            "cluster_filesystems[0].mode: '0570' keeps its owner from using it. Write \"0770\".",
        ],
    ),
    (
        one(owner="root"),
        [
            "cluster_filesystems[0].owner: 'root', and jobs of the MPI user write what is for checkpoints. Leave it out: the MPI user owns it.",
        ],
    ),
    (
        one(owner="nobody", purpose="home"),
        [
            "cluster_filesystems[0].owner: 'nobody' is what root of every client is taken for: it would own all of it. Leave it out for the MPI user, or name another account.",
        ],
    ),
    (
        one(owner="MPI User"),
        [
            "cluster_filesystems[0].owner: 'MPI User' is not a user name. Write one such as mpi.",
        ],
    ),
    # NFS and Lustre
    (
        one(nfs__version="4.0"),
        [
            "cluster_filesystems[0].nfs.version: '4.0' has no sessions: after a break, requests may be done twice. Write 4.2 or 4.1.",
        ],
    ),
    (
        one(nfs__version=5),
        [
            "cluster_filesystems[0].nfs.version: 5 is not a choice. Known here: 4.2, 4.1, 3.",
        ],
    ),
    (
        one(nfs__connections=17),
        [
            "cluster_filesystems[0].nfs.connections: 17 is out of range. Write one from 1 to 16.",
        ],
    ),
    (
        one(nfs__connections=0),
        [
            "cluster_filesystems[0].nfs.connections: 0 is out of range. Write one from 1 to 16.",
        ],
    ),
    (
        one(nfs__transport="udp"),
        [
            "cluster_filesystems[0].nfs.transport: 'udp' is not a choice. Known here: tcp, rdma.",
        ],
    ),
    (
        one(nfs__port=0),
        [
            "cluster_filesystems[0].nfs.port: 0 is out of range. Write one from 1 to 65535.",
        ],
    ),
    (
        one(nfs={"transport": "rdma", "port": 2049}, hosts=["compute"]),
        [
            "cluster_filesystems[0].nfs.port: 2049 is the port of NFS over TCP, and cluster_filesystems[0].nfs.transport is rdma: nobody would answer there. Write 20049, or leave it out.",
        ],
    ),
    (
        one(nfs={"transport": "tcp", "port": 20049}),
        [
            "cluster_filesystems[0].nfs.port: 20049 is the port of NFS over RDMA, and cluster_filesystems[0].nfs.transport is tcp: nobody would answer there. Write 2049, or leave it out.",
        ],
    ),
    (
        one(nfs={"transport": "rdma"}),
        [
            "cluster_filesystems[0].hosts: launcher has no rails, and cluster_filesystems[0].nfs.transport is rdma. Write hosts: [compute], or transport: tcp.",
        ],
    ),
    (
        one(
            nfs={"version": "3", "transport": "rdma"},
            hosts=["compute"],
            options=["mountproto=rdma"],
        ),
        [
            "cluster_filesystems[0].options[0]: 'rdma' is no value of mountproto. Write tcp or tcp6: the MOUNT protocol has no RDMA.",
        ],
    ),
    (
        one(nfs={"soft": True}),
        [
            "cluster_filesystems[0].nfs.soft: unknown key. Leave it out: every mount is hard.",
        ],
    ),
    (
        one(nfs={"nconnect": 8}),
        [
            "cluster_filesystems[0].nfs.nconnect: unknown key. Write connections.",
        ],
    ),
    (
        one(nfs=None),
        [
            "cluster_filesystems[0].nfs: an empty value is not a mapping. Write keys below it.",
        ],
    ),
    (
        one(lustre={}),
        [
            "cluster_filesystems[0].lustre: is for the type lustre, and this one is nfs. Leave it out, or change type.",
        ],
    ),
    (
        lustre(nfs={"version": "4.2"}),
        [
            "cluster_filesystems[0].nfs: is for the type nfs, and this one is lustre. Leave it out, or change type.",
        ],
    ),
    (
        lustre(lustre__flock="yes"),
        [
            "cluster_filesystems[0].lustre.flock: 'yes' is not true or false. Write true or false.",
        ],
    ),
    (
        lustre(lustre__stripe_count=-2),
        [
            "cluster_filesystems[0].lustre.stripe_count: -2 is out of range. Write one from -1 to 2000.",
        ],
    ),
)


@pytest.mark.parametrize(("wrong", "findings"), BAD)
def test_every_reason_is_told(wrong: Any, findings: list[str]) -> None:
    assert refused(wrong) == findings
