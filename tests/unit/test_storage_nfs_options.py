# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Options of NFS mounts, compared with lines of mountinfo as kernels write them."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage import (
    mount_flags,
    mounted,
    nfs_options,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.mounted import Mount
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.storage_node import filesystem, nfs, told_of

TCP42 = (
    "rw,vers=4.2,rsize=1048576,wsize=1048576,namlen=255,hard,proto=tcp,nconnect=8,timeo=600,"
    "retrans=2,sec=sys,clientaddr=10.0.0.11,local_lock=none,addr=10.0.0.1"
)
RDMA41 = (
    "rw,vers=4.1,rsize=1048576,wsize=1048576,namlen=255,hard,proto=rdma,port=20049,timeo=600,"
    "retrans=2,sec=sys,clientaddr=10.0.0.11,local_lock=none,addr=10.0.0.1"
)
TCP3 = (
    "rw,vers=3,rsize=1048576,wsize=1048576,namlen=255,hard,proto=tcp6,nconnect=4,port=2049,"
    "timeo=600,retrans=2,sec=sys,mountaddr=fd00::1,mountvers=3,mountport=20048,mountproto=tcp6,"
    "local_lock=none,addr=fd00::1"
)


def running(options: str, flags: str = "rw,relatime", source: str = "s:/x") -> Mount:
    return mounted.parse(f"30 20 0:50 / /mnt/x {flags} - nfs4 {source} {options}\n")[0]


def wrong(words: list[str], options: str, flags: str = "rw,relatime") -> list[str]:
    return [each.text for each in nfs_options.compare(words, running(options, flags))]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (nfs(), TCP42),
        (nfs(version="4.1", transport="rdma", port=20049, connections=1), RDMA41),
        (nfs(version="3", connections=4), TCP3),
    ],
)
def test_what_was_asked_for_is_seen_to_run(given, told):
    assert nfs_options.differences(filesystem(nfs=given), running(told)) == ()


def test_the_words_of_a_unit():
    words = nfs_options.options(filesystem(), 600)
    assert ",".join(words) == (
        "hard,vers=4.2,proto=tcp,port=2049,nconnect=8,timeo=600,retrans=2,retry=10"
    )


def test_the_mount_program_tries_as_long_as_the_unit_waits():
    assert "retry=3" in nfs_options.options(filesystem(), 180)
    assert "retry=1" in nfs_options.options(filesystem(), 5)


def test_the_operators_word_takes_the_place_of_ours():
    words = nfs_options.options(filesystem(options=("timeo=100", "nosuid", "nfsvers=4.1")), 600)
    assert "timeo=600" not in words and "vers=4.2" not in words
    assert words[-3:] == ("timeo=100", "nosuid", "nfsvers=4.1")


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("vers=4.1", "vers=4.1 (runs: vers=4.2)"),
        ("nfsvers=3", "nfsvers=3 (runs: vers=4.2)"),
        ("proto=rdma", "proto=rdma (runs: proto=tcp)"),
        ("rdma", "rdma (runs: proto=tcp)"),
        ("port=20049", "port=20049 (runs: port=2049)"),
        ("nconnect=16", "nconnect=16 (runs: nconnect=8)"),
        ("timeo=100", "timeo=100 (runs: timeo=600)"),
        ("sec=krb5p", "sec=krb5p (runs: sec=sys)"),
        ("rsize=65536", "rsize=65536 (runs: rsize=1048576)"),
        ("soft", "soft (runs: hard)"),
        ("nocto", "nocto (runs: not set)"),
        ("actimeo=5", "actimeo=5 (runs: acregmin=3,acregmax=60,acdirmin=30,acdirmax=60)"),
        ("lookupcache=none", "lookupcache=none (runs: lookupcache=all)"),
        ("ro", "ro (runs: rw)"),
        ("nosuid", "nosuid (runs: suid)"),
        ("noatime", "noatime (runs: relatime)"),
    ],
)
def test_a_difference_says_what_runs(word, said):
    assert wrong([word], TCP42) == [said]


@pytest.mark.parametrize(
    "word",
    [
        *("hard", "vers=4.2", "vers=4", "nfsvers=4.2", "tcp", "proto=tcp", "port=2049", "sec=sys"),
        *("nconnect=8", "rsize=1048576", "rsize=2097152", "wsize=4194304", "cto", "ac", "lock"),
        *("acregmin=3", "lookupcache=all", "local_lock=none", "rw", "suid", "dev", "relatime"),
        *("_netdev", "retry=10", "bg", "nofail", "x-systemd.automount", "defaults", "noauto"),
        *("mountport=20048", "intr", "sharecache", "resvport", "namlen=255", "atime"),
    ],
)
def test_what_is_asked_for_and_runs_however_it_is_told(word):
    assert wrong([word], TCP42) == []


def test_one_connection_is_told_by_no_word():
    assert wrong(["nconnect=1"], RDMA41) == []


def test_older_kernels_have_one_connection_over_rdma_and_no_word_for_it():
    assert wrong(["nconnect=8"], RDMA41) == []
    told = RDMA41.replace("proto=rdma", "proto=rdma,nconnect=4")
    assert wrong(["nconnect=8"], told) == ["nconnect=8 (runs: nconnect=4)"]


def test_a_read_only_file_system_is_so_through_every_mount():
    assert wrong(["rw"], TCP42.replace("rw,", "ro,", 1)) == ["rw (runs: ro)"]
    assert wrong(["ro"], TCP42, "ro,relatime") == []


def test_negative_words_are_seen_where_they_run():
    told = f"{TCP42},nocto,noac,softreval"
    assert wrong(["nocto", "noac", "softreval"], told) == []
    assert wrong(["cto"], told) == ["cto (runs: nocto)"]


def test_cache_times_that_run():
    told = f"{TCP42},acregmin=5,acregmax=5,acdirmin=5,acdirmax=5"
    assert wrong(["actimeo=5"], told) == []


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("s:/x", "s:/x/", True),
        ("S:/x", "s:/x", True),
        ("s:/x", "s://x//", True),
        ("[fd00::1]:/x", "[FD00::1]:/x", True),
        ("s:/", "s:/", True),
        ("s:/x", "s:/X", False),
        ("s:/x", "t:/x", False),
        ("s:/x", "s:/xy", False),
    ],
)
def test_sources(one, other, same):
    assert nfs_options.same_source(one, other) is same


def test_only_flags_of_the_mount_change_in_place():
    table = running(TCP42)
    flags = nfs_options.compare(["nosuid", "noatime"], table)
    assert mount_flags.changeable(flags, table)
    assert not mount_flags.changeable(nfs_options.compare(["nosuid", "timeo=1"], table), table)
    only_reading = running(TCP42.replace("rw,", "ro,", 1))
    again = nfs_options.compare(["rw"], only_reading)
    assert not mount_flags.changeable(again, only_reading), "the file system itself is read-only"


def test_remounting_keeps_flags_nobody_spoke_of():
    words = mount_flags.remount_words(("hard", "nosuid", "noatime"), running(TCP42, "ro,noexec"))
    assert words == ["noexec", "nosuid", "noatime", "rw"]
    words = mount_flags.remount_words(("rw", "exec"), running(TCP42, "ro,noexec,relatime"))
    assert words == ["relatime", "rw", "exec"]


@given(
    st.sampled_from(["3", "4.1", "4.2"]),
    st.sampled_from(["tcp", "rdma"]),
    st.sampled_from([2049, 20049, 3049]),
    st.integers(1, 16),
    st.lists(st.sampled_from(["_netdev", "nosuid,nodev", "retry=3", "ro"]), unique=True),
)
def test_whatever_is_asked_for_is_seen_when_it_runs(version, transport, port, connections, more):
    own = tuple(word for words in more for word in words.split(","))
    fs = filesystem(
        nfs=nfs(version=version, transport=transport, port=port, connections=connections),
        options=own,
    )
    words = nfs_options.options(fs, 600)
    flags = ",".join(["rw", *(word for word in own if word in ("nosuid", "nodev"))])
    assert nfs_options.differences(fs, running(told_of(words), flags)) == ()
