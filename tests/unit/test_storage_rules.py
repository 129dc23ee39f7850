# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# ruff: noqa: E501  (messages stand here as the operator sees them, in one line)
"""What keys cannot be beside each other, beside other file systems and in their cluster."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.reading import (
    read_filesystems,
)

from tests.unit.file_systems import SERVED, SITE, changed, lustre, one, refused, served, two

BAD: tuple[tuple[Any, list[str]], ...] = (
    # beside each other
    (
        two(mount="/mnt/checkpoints"),
        [
            "cluster_filesystems[1].mount: '/mnt/checkpoints' is also that of cluster_filesystems[0]: one would hide the other. Mount them beside each other.",
        ],
    ),
    (
        two(mount="/mnt/checkpoints/old"),
        [
            "cluster_filesystems[1].mount: '/mnt/checkpoints/old' meets '/mnt/checkpoints', that of cluster_filesystems[0]: one would hide the other. Mount them beside each other.",
        ],
    ),
    (
        two(mount="/mnt"),
        [
            "cluster_filesystems[1].mount: '/mnt' meets '/mnt/checkpoints', that of cluster_filesystems[0]: one would hide the other. Mount them beside each other.",
        ],
    ),
    (
        two(name="checkpoints"),
        [
            "cluster_filesystems[1].name: 'checkpoints' is also the name of cluster_filesystems[0]. Rename one of them.",
        ],
    ),
    (
        two(purpose="checkpoints"),
        [
            "cluster_filesystems[1].purpose: checkpoints are also the purpose of cluster_filesystems[0], and jobs are told of one. Write scratch for the other one.",
        ],
    ),
    (
        two(SERVED, source="storage01:/srv/checkpoints"),
        [
            "cluster_filesystems[1].source: '/srv/checkpoints' on storage01 is also that of cluster_filesystems[0]: each has its own owner, space and exports. Serve directories beside each other.",
        ],
    ),
    (
        two(SERVED, source="storage01:/srv/checkpoints/old"),
        [
            "cluster_filesystems[1].source: '/srv/checkpoints/old' on storage01 meets '/srv/checkpoints', that of cluster_filesystems[0]: each has its own owner, space and exports. Serve directories beside each other.",
        ],
    ),
    (
        two(SERVED, mount="/srv"),
        [
            "cluster_filesystems[1].mount: '/srv' meets '/srv/checkpoints', which storage01 serves for cluster_filesystems[0]: a mount there would hide what is served. Mount it elsewhere, such as in /mnt.",
        ],
    ),
    (
        served(mount="/srv/checkpoints/here"),
        [
            "cluster_filesystems[0].mount: '/srv/checkpoints/here' meets '/srv/checkpoints', which storage01 serves for cluster_filesystems[0]: a mount there would hide what is served. Mount it elsewhere, such as in /mnt.",
        ],
    ),
    (
        two(changed(SERVED, serve__device="/dev/disk/by-id/wwn-0x1")),
        [
            "cluster_filesystems[1].serve.device: '/dev/disk/by-id/wwn-0x1' of storage01 is also that of cluster_filesystems[0]. Give each file system its own.",
        ],
    ),
    # hosts
    (
        one(hosts="compute"),
        [
            "cluster_filesystems[0].hosts: 'compute' is not a list. Write a list of groups.",
        ],
    ),
    (
        one(hosts=[]),
        [
            "cluster_filesystems[0].hosts: the list is empty: nobody would mount it. Name groups, such as [compute].",
        ],
    ),
    (
        one(hosts=["compute", "computers"]),
        [
            "cluster_filesystems[0].hosts[1]: there is no group 'computers'. Did you mean 'compute'? Known here: compute, launcher, storage, rack_r01.",
        ],
    ),
    (
        one(hosts=["compute", "compute"]),
        [
            "cluster_filesystems[0].hosts[1]: 'compute' is there twice. Remove one of them.",
        ],
    ),
    (
        one(hosts=["all"]),
        [
            "cluster_filesystems[0].hosts[0]: 'all' has hosts that mount nothing in it, such as switches. Name those that do: compute, launcher, storage or a rack.",
        ],
    ),
    (
        one(hosts=["node-01"]),
        [
            "cluster_filesystems[0].hosts[0]: 'node-01' is not a group. Write one such as compute.",
        ],
    ),
    # options
    (
        one(options="ro,soft"),
        [
            "cluster_filesystems[0].options: 'ro,soft' is not a list. Write a list of mount options.",
        ],
    ),
    (
        one(options=["noatime,nodiratime"]),
        [
            "cluster_filesystems[0].options[0]: noatime, nodiratime: these stand in one entry, with commas or blanks between them. Give each an entry of its own, without blanks.",
        ],
    ),
    (
        one(options=["username=ops, password=hunter2"]),
        [
            "cluster_filesystems[0].options[0]: username, password: these stand in one entry, with commas or blanks between them. Give each an entry of its own, without blanks.",
        ],
    ),
    (
        one(options=[7]),
        [
            "cluster_filesystems[0].options[0]: 7 is not a mount option. Write one such as noatime.",
        ],
    ),
    (
        one(options=["soft"]),
        [
            "cluster_filesystems[0].options[0]: 'soft' is not for these mounts: it ends in an error when the server is slow, and what a job has written is lost. Leave it out.",
        ],
    ),
    (
        one(options=["softerr"]),
        [
            "cluster_filesystems[0].options[0]: 'softerr' is not for these mounts: it ends in an error when the server is slow, and what a job has written is lost. Leave it out.",
        ],
    ),
    (
        one(options=["hard"]),
        [
            "cluster_filesystems[0].options[0]: 'hard' is not for these mounts: every mount is hard. Leave it out.",
        ],
    ),
    (
        one(options=["bg"]),
        [
            "cluster_filesystems[0].options[0]: 'bg' is not for these mounts: a mount in the background is reported before it is there. Leave it out.",
        ],
    ),
    (
        one(options=["noauto", "nofail", "_netdev"]),
        [
            "cluster_filesystems[0].options[0]: 'noauto' is not for these mounts: mounts are units of systemd, which wait for the network and never block the boot. Leave it out.",
            "cluster_filesystems[0].options[1]: 'nofail' is not for these mounts: mounts are units of systemd, which wait for the network and never block the boot. Leave it out.",
            "cluster_filesystems[0].options[2]: '_netdev' is not for these mounts: mounts are units of systemd, which wait for the network and never block the boot. Leave it out.",
        ],
    ),
    (
        one(options=["x-systemd.automount"]),
        [
            "cluster_filesystems[0].options[0]: 'x-systemd.automount' is not for these mounts: mounts have units of their own, which say it. Leave it out.",
        ],
    ),
    (
        one(options=["defaults"]),
        [
            "cluster_filesystems[0].options[0]: 'defaults' is not for these mounts: mounts are units of systemd, which wait for the network and never block the boot. Leave it out.",
        ],
    ),
    (
        one(options=["vers=3"]),
        [
            "cluster_filesystems[0].options[0]: 'vers=3' is what cluster_filesystems[0].nfs.version is for. Leave it out, and write version.",
        ],
    ),
    (
        one(options=["nfsvers=4.1"]),
        [
            "cluster_filesystems[0].options[0]: 'nfsvers=4.1' is what cluster_filesystems[0].nfs.version is for. Leave it out, and write version.",
        ],
    ),
    (
        one(options=["proto=rdma"]),
        [
            "cluster_filesystems[0].options[0]: 'proto=rdma' is what cluster_filesystems[0].nfs.transport is for. Leave it out, and write transport.",
        ],
    ),
    (
        one(options=["rdma"]),
        [
            "cluster_filesystems[0].options[0]: 'rdma' is what cluster_filesystems[0].nfs.transport is for. Leave it out, and write transport.",
        ],
    ),
    (
        one(options=["port=20049"]),
        [
            "cluster_filesystems[0].options[0]: 'port=20049' is what cluster_filesystems[0].nfs.port is for. Leave it out, and write port.",
        ],
    ),
    (
        one(options=["nconnect=4"]),
        [
            "cluster_filesystems[0].options[0]: 'nconnect=4' is what cluster_filesystems[0].nfs.connections is for. Leave it out, and write connections.",
        ],
    ),
    (
        one(options=["ro"]),
        [
            "cluster_filesystems[0].options[0]: 'ro' on a file system for checkpoints, which jobs write. Leave it out, or change purpose.",
        ],
    ),
    (
        one(options=["rw", "ro"], purpose="datasets"),
        [
            "cluster_filesystems[0].options[1]: 'ro' contradicts 'rw'. Keep one of them.",
        ],
    ),
    (
        one(options=["noatime", "noatime"]),
        [
            "cluster_filesystems[0].options[1]: 'noatime' is there twice. Keep one of them.",
        ],
    ),
    (
        one(options=["timeo=600", "timeo=100"]),
        [
            "cluster_filesystems[0].options[1]: 'timeo=100' contradicts 'timeo=600'. Keep one of them.",
        ],
    ),
    (
        one(options=["nolock"]),
        [
            "cluster_filesystems[0].options[0]: 'nolock' is not for these mounts: locks that one node takes would not be seen by the others. Leave it out.",
        ],
    ),
    (
        one(options=["acl"]),
        [
            "cluster_filesystems[0].options[0]: 'acl' is of NFS version 3, and cluster_filesystems[0].nfs.version is 4.2. Leave it out: later versions have no protocols beside themselves.",
        ],
    ),
    (
        one(options=["local_lock=all"]),
        [
            "cluster_filesystems[0].options[0]: 'all' is no value of local_lock. Write none: with others, locks of one node are not seen by the others.",
        ],
    ),
    (
        one(options=["noattime"]),
        [
            "cluster_filesystems[0].options[0]: 'noattime' is no mount option of NFS. Did you mean 'noatime'? Known here: ac, acdirmax, acdirmin, acl, acregmax, acregmin, actimeo, async, atime, clientaddr, context, cto, dev, diratime, dirsync, exec, fsc, lazytime, local_lock, lock and 58 more.",
        ],
    ),
    (
        one(options=["rsize=1M"]),
        [
            "cluster_filesystems[0].options[0]: '1M' is no value of rsize. Write a whole number.",
        ],
    ),
    (
        one(options=["rsize"]),
        [
            "cluster_filesystems[0].options[0]: 'rsize' has no value. Write rsize= and a whole number.",
        ],
    ),
    (
        one(options=["noatime=1"]),
        [
            "cluster_filesystems[0].options[0]: 'noatime=1' has a value, and noatime takes none. Write noatime.",
        ],
    ),
    (
        one(options=["no_root_squash"]),
        [
            "cluster_filesystems[0].options[0]: 'no_root_squash' is not for these mounts: it belongs to an export of the server, not to a mount. Leave it out.",
        ],
    ),
    (
        one(options=["password=hunter2"]),
        [
            "cluster_filesystems[0].options[0]: 'password' is not for these mounts: it is an option of CIFS. Leave it out.",
        ],
    ),
    (
        one(options=["flock"]),
        [
            "cluster_filesystems[0].options[0]: 'flock' is an option of Lustre, and the type is nfs. Leave it out.",
        ],
    ),
    (
        one(options=["lazystatfs"]),
        [
            "cluster_filesystems[0].options[0]: 'lazystatfs' is an option of Lustre, and the type is nfs. Leave it out.",
        ],
    ),
    (
        served(options=["sec=krb5p"]),
        [
            "cluster_filesystems[0].options[0]: 'sec=krb5p', and the server of this cluster exports with sec=sys. Leave it out, or use a server that has Kerberos, without serve.",
        ],
    ),
    (
        lustre(options=["flock"]),
        [
            "cluster_filesystems[0].options[0]: 'flock' is what cluster_filesystems[0].lustre.flock is for. Leave it out, and write flock.",
        ],
    ),
    (
        lustre(options=["nconnect=4"]),
        [
            "cluster_filesystems[0].options[0]: 'nconnect' is an option of NFS, and the type is lustre. Leave it out.",
        ],
    ),
    (
        lustre(options=["rsize=1048576"]),
        [
            "cluster_filesystems[0].options[0]: 'rsize' is an option of NFS, and the type is lustre. Leave it out.",
        ],
    ),
    (
        lustre(options=["user_xatr"]),
        [
            "cluster_filesystems[0].options[0]: 'user_xatr' is no mount option of Lustre. Did you mean 'user_xattr'? Known here: 32bitapi, always_ping, async, atime, checksum, context, dev, diratime, encrypt, exclude, exec, flock, foreign_symlink, lazystatfs, localflock, lruresize, mgssec, network, noatime, nochecksum and 25 more.",
        ],
    ),
    (
        lustre(options=["acl"]),
        [
            "cluster_filesystems[0].options[0]: 'acl' is not for these mounts: the metadata targets say it, when they are mounted. Leave it out.",
        ],
    ),
    (
        lustre(options=["lazytime"]),
        [
            "cluster_filesystems[0].options[0]: 'lazytime' is not for these mounts: the client of Lustre does not know it, and would mount nothing. Leave it out.",
        ],
    ),
    (
        lustre(options=["noalways_ping"]),
        [
            "cluster_filesystems[0].options[0]: 'noalways_ping' is not for these mounts: it is what holds without always_ping, and Lustre has no word for it. Leave it out.",
        ],
    ),
    (
        lustre(options=["mgssec=krb6"]),
        [
            "cluster_filesystems[0].options[0]: 'krb6' is no value of mgssec. Write null, plain, gssnull, krb5n, krb5a, krb5i, krb5p, skn, ska, ski or skpi.",
        ],
    ),
    (
        lustre(options=["exclude=OST0003"]),
        [
            "cluster_filesystems[0].options[0]: 'OST0003' is no value of exclude. Write targets with colons between them, such as lustre-OST0003:lustre-OST0007.",
        ],
    ),
    (
        lustre(options=["vers=4.2"]),
        [
            "cluster_filesystems[0].options[0]: 'vers' is an option of NFS, and the type is lustre. Leave it out.",
        ],
    ),
    # served
    (
        served(serve__host="storage02"),
        [
            "cluster_filesystems[0].serve.host: there is no host 'storage02'. Did you mean 'storage01'? Known here: launcher01, node01, storage01.",
        ],
    ),
    (
        served(serve={}),
        [
            "cluster_filesystems[0].serve.host: is missing. Add it: a host of the model.",
        ],
    ),
    (
        served(serve=True),
        [
            "cluster_filesystems[0].serve: true is not a mapping. Write keys below it.",
        ],
    ),
    (
        served(source="10.0.0.11:/srv/checkpoints"),
        [
            "cluster_filesystems[0].source: '10.0.0.11' is of node01, and cluster_filesystems[0].serve.host is storage01. Begin it with one of 10.0.0.21, storage01, storage01.example.net.",
        ],
    ),
    (
        served(source="node01-rail0:/srv/checkpoints"),
        [
            "cluster_filesystems[0].source: 'node01-rail0' is of node01, and cluster_filesystems[0].serve.host is storage01. Begin it with one of 10.0.0.21, storage01, storage01.example.net.",
        ],
    ),
    (
        served(source="10.9.9.9:/srv/checkpoints", serve__host="node01"),
        [
            "cluster_filesystems[0].source: '10.9.9.9' is no name or address of node01, and cluster_filesystems[0].serve.host is node01. Begin it with one of 10.0.0.11, 10.1.0.2, node01, node01-rail0, node01.example.net.",
        ],
    ),
    (
        served(source="storage01:/"),
        [
            "cluster_filesystems[0].source: '/' would hand out the whole host. Serve a directory of its own, such as /srv/checkpoints.",
        ],
    ),
    (
        served(source="storage01:/srv"),
        [
            "cluster_filesystems[0].source: '/srv' would be given the owner and mode of this file system, with all else that is in it. Serve a directory of its own, such as /srv/checkpoints.",
        ],
    ),
    (
        served(source="storage01:/etc/checkpoints"),
        [
            "cluster_filesystems[0].source: '/etc/checkpoints' is in /etc, a directory of the system. Serve a directory of its own, such as /srv/checkpoints.",
        ],
    ),
    (
        served(source="storage01:/srv/check@points"),
        [
            "cluster_filesystems[0].source: '/srv/check@points' has '@' in it, which units, exports and /proc write differently. Use letters, digits, and . _ -.",
        ],
    ),
    (
        served(serve__device="sdb"),
        [
            "cluster_filesystems[0].serve.device: 'sdb' is not the path of a device. Write /dev/disk/by-id/..., a name that stays with the device.",
        ],
    ),
    (
        served(serve__device="/dev/sdb"),
        [
            "cluster_filesystems[0].serve.device: '/dev/sdb' may be another device after the next boot. Write /dev/disk/by-id/..., a name that stays with the device: `ls -l /dev/disk/by-id` has it.",
        ],
    ),
    (
        served(serve__device="/dev/nvme0n1p1"),
        [
            "cluster_filesystems[0].serve.device: '/dev/nvme0n1p1' may be another device after the next boot. Write /dev/disk/by-id/..., a name that stays with the device: `ls -l /dev/disk/by-id` has it.",
        ],
    ),
    (
        served(serve__device="/srv/disk.img"),
        [
            "cluster_filesystems[0].serve.device: '/srv/disk.img' is not the path of a device. Write /dev/disk/by-id/..., a name that stays with the device.",
        ],
    ),
    (
        served(serve__device="/dev/../etc/passwd"),
        [
            "cluster_filesystems[0].serve.device: '/dev/../etc/passwd' is not the plain path of a device. Write /dev/disk/by-id/..., a name that stays with the device.",
        ],
    ),
    (
        served(serve__format="xfs"),
        [
            "cluster_filesystems[0].serve.format: 'xfs' without a device to put it on. Write device, or leave it out.",
        ],
    ),
    (
        served(serve__device="/dev/disk/by-id/wwn-0x1", serve__format="btrfs"),
        [
            "cluster_filesystems[0].serve.format: 'btrfs' is not xfs or ext4. Write one such as xfs.",
        ],
    ),
    (
        lustre(serve={"host": "storage01"}),
        [
            "cluster_filesystems[0].serve: Lustre is not served from here: its servers have metadata and object targets that are set up with their own tools. Leave it out, and name their NIDs in source.",
        ],
    ),
    # exported to the world
    (
        served(serve__clients="*"),
        [
            "cluster_filesystems[0].serve.clients: unknown key. Leave it out: it is exported to the addresses of this cluster's hosts and to nobody else, and root is squashed.",
        ],
    ),
    (
        served(serve__no_root_squash=True),
        [
            "cluster_filesystems[0].serve.no_root_squash: unknown key. Leave it out: it is exported to the addresses of this cluster's hosts and to nobody else, and root is squashed.",
        ],
    ),
    (
        served(serve__insecure=True),
        [
            "cluster_filesystems[0].serve.insecure: unknown key. Leave it out: it is exported to the addresses of this cluster's hosts and to nobody else, and root is squashed.",
        ],
    ),
    (
        one(export="*(rw)"),
        [
            "cluster_filesystems[0].export: unknown key. Leave it out: it is exported to the addresses of this cluster's hosts and to nobody else, and root is squashed.",
        ],
    ),
    (
        one(squash="none"),
        [
            "cluster_filesystems[0].squash: unknown key. Leave it out: it is exported to the addresses of this cluster's hosts and to nobody else, and root is squashed.",
        ],
    ),
)


OF_LUSTRE = (
    *("nolruresize", "32bitapi", "nostatfs_project", "always_ping", "noencrypt", "nochecksum"),
    *("mgssec=skpi", "exclude=lustre-OST0003:lustre-OST000a", "network=o2ib1", "retry=3"),
    *("foreign_symlink=/archive", "skpath=/etc/lustre/keys", "nolazystatfs", "relatime"),
)


def test_all_that_clients_of_lustre_take_is_taken() -> None:
    (fs,) = read_filesystems(lustre(options=list(OF_LUSTRE)), SITE)
    assert fs.options == OF_LUSTRE


@pytest.mark.parametrize(("wrong", "findings"), BAD)
def test_every_reason_is_told(wrong: Any, findings: list[str]) -> None:
    assert refused(wrong) == findings
