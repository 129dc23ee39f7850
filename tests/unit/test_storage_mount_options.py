# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Mount options: the words of units, and what of them is compared with what runs."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage import (
    mount_options,
    mounted,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.file_system import Lustre
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.mounted import Mount
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.source import plain_nfs
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
LUSTRE = "rw,flock,user_xattr,lazystatfs,nouser_fid2path,verbose,encrypt"


def running(options: str, flags: str = "rw,relatime") -> Mount:
    return mounted.parse(f"30 20 0:50 / /mnt/x {flags} - nfs4 s:/x {options}\n")[0]


def wrong(words: list[str], options: str = TCP42, flags: str = "rw,relatime") -> list[str]:
    return [each.text for each in mount_options.differences(words, running(options, flags))]


def changed(before: str, wanted: str, flags: str = "rw,relatime") -> list[str]:
    found = mount_options.changed(before.split(","), wanted.split(","), running(TCP42, flags))
    return [each.text for each in found]


# The words of a unit


def test_the_words_of_a_unit():
    words = mount_options.options(filesystem(), 600)
    assert ",".join(words) == (
        "hard,vers=4.2,proto=tcp,port=2049,nconnect=8,timeo=600,retrans=2,retry=10"
    )


def test_the_mount_program_tries_as_long_as_the_unit_waits():
    assert "retry=3" in mount_options.options(filesystem(), 180)
    assert "retry=1" in mount_options.options(filesystem(), 5)


def test_the_operators_word_takes_the_place_of_ours():
    words = mount_options.options(filesystem(options=("timeo=100", "nosuid")), 600)
    assert "timeo=600" not in words and words[-2:] == ("timeo=100", "nosuid")


def test_the_words_of_lustre():
    fs = filesystem(type="lustre", options=("relatime", "nolazystatfs", "suid"))
    assert mount_options.options(filesystem(type="lustre"), 90) == (
        *("noatime", "nosuid", "nodev", "user_xattr", "lazystatfs", "flock"),
    )
    assert mount_options.options(fs, 90) == (
        *("nodev", "user_xattr", "flock", "relatime", "nolazystatfs", "suid"),
    )
    without = filesystem(type="lustre", lustre=Lustre(flock=False))
    assert mount_options.options(without, 90)[-1] == "noflock"


# Compared with what runs


@pytest.mark.parametrize(
    ("fs", "told", "flags"),
    [
        (filesystem(), TCP42, "rw,relatime"),
        (
            filesystem(nfs=nfs(version="4.1", transport="rdma", port=20049, connections=1)),
            RDMA41,
            "rw,relatime",
        ),
        (filesystem(nfs=nfs(version="3", connections=4)), TCP3, "rw,relatime"),
        (filesystem(type="lustre"), LUSTRE, "rw,nosuid,nodev,noatime"),
    ],
)
def test_what_was_asked_for_is_seen_to_run(fs, told, flags):
    assert wrong(list(mount_options.options(fs, 600)), told, flags) == []


@pytest.mark.parametrize(
    ("word", "options", "flags", "runs"),
    [
        ("vers=4.1", TCP42, "rw,relatime", "vers=4.2"),
        ("proto=rdma", TCP42, "rw,relatime", "proto=tcp"),
        ("port=20049", TCP42, "rw,relatime", "port=2049"),
        ("port=2049", RDMA41, "rw,relatime", "port=20049"),
        ("hard", TCP42.replace("hard", "soft"), "rw,relatime", "soft"),
        ("timeo=100", TCP42, "rw,relatime", "timeo=600"),
        ("noflock", LUSTRE, "rw", "flock"),
        ("ro", TCP42, "rw,relatime", "rw"),
        ("rw", TCP42, "ro,relatime", "ro"),
        ("rw", TCP42.replace("rw,", "ro,", 1), "rw,relatime", "ro"),
        ("nosuid", TCP42, "rw,relatime", "suid"),
        ("exec", TCP42, "rw,noexec,relatime", "noexec"),
        ("noatime", TCP42, "rw,relatime", "relatime"),
        ("noatime", LUSTRE, "rw", "strictatime"),
        ("atime", TCP42, "rw,noatime", "noatime"),
    ],
)
def test_a_difference_says_what_runs(word, options, flags, runs):
    words = [word] if word in ("ro", "rw") else [word, "ro" if flags[:2] == "ro" else "rw"]
    assert wrong(words, options, flags) == [f"{word} (runs: {runs})"]


@pytest.mark.parametrize(
    "word",
    [
        *("hard", "vers=4.2", "proto=tcp", "port=2049", "rw", "suid", "dev", "relatime", "atime"),
        *("nconnect=16", "rsize=65536", "sec=krb5p", "nocto", "actimeo=5"),
    ],
)
def test_what_runs_or_is_told_otherwise_by_the_kernel_is_no_difference(word):
    assert wrong([word]) == []


@pytest.mark.parametrize("flags", ["rw,nosuid,nodev,noexec,noatime,nodiratime", "rw"])
def test_flags_that_run_unasked_are_no_difference(flags):
    """A bind mount has those of what is below it."""
    assert wrong(["bind", "nofail"], "rw,noquota", flags) == []


def test_read_only_that_nobody_asked_for_is_one():
    assert wrong(["bind", "nofail"], "rw,noquota", "ro,noatime") == ["rw (runs: ro)"]
    assert wrong(["bind", "nofail"], "ro,noquota") == [], "a mount would not help the disk"
    assert wrong(["bind", "ro"], "rw,noquota", "ro,noatime") == []


# Compared with the unit on disk


@pytest.mark.parametrize(
    ("before", "wanted", "said"),
    [
        ("hard,rsize=65536", "hard,rsize=1048576", "rsize=1048576 (runs: rsize=65536)"),
        ("hard", "hard,nconnect=8", "nconnect=8 (runs: not set)"),
        ("hard,actimeo=5", "hard", "no actimeo=5 (runs: actimeo=5)"),
        ("cto", "nocto", "nocto (runs: cto)"),
    ],
)
def test_a_changed_option_is_a_changed_unit(before, wanted, said):
    assert changed(before, wanted) == [said]


@pytest.mark.parametrize(
    ("before", "wanted"),
    [
        ("hard,noatime", "noatime,hard"),
        ("hard,retry=10", "hard,retry=3"),
        ("soft,vers=4.1,proto=rdma,port=20049", "hard,vers=4.2,proto=tcp,port=2049"),
        ("ro", "rw"),
        ("ro", "hard"),
        ("hard,relatime", "hard"),
        ("noexec", "exec"),
    ],
)
def test_what_follows_otherwise_or_is_compared_with_what_runs(before, wanted):
    assert changed(before, wanted) == []


def test_a_flag_that_is_asked_for_no_more_has_to_go_where_it_runs():
    assert changed("bind,noexec", "bind", "rw,noexec") == ["no noexec (runs: noexec)"]
    assert changed("bind,noexec", "bind", "rw,relatime") == []
    assert changed("bind", "bind", "rw,noexec,noatime") == [], "it never was asked for"


# Changed in place


def test_only_flags_of_the_mount_change_in_place():
    table = running(TCP42)
    flags = mount_options.differences(["nosuid", "noatime"], table)
    assert len(flags) == 2 and mount_options.changeable(flags, table)
    other = mount_options.differences(["nosuid", "vers=3"], table)
    assert not mount_options.changeable(other, table)
    gone = mount_options.changed(["noexec"], [], running(TCP42, "rw,noexec"))
    assert gone and not mount_options.changeable(gone, table)
    only_reading = running(TCP42.replace("rw,", "ro,", 1))
    again = mount_options.differences(["rw"], only_reading)
    assert not mount_options.changeable(again, only_reading), "the file system itself is read-only"


def test_remounting_keeps_flags_nobody_spoke_of():
    words = mount_options.remount_words(("hard", "nosuid", "noatime"), running(TCP42, "ro,noexec"))
    assert words == ["noexec", "nosuid", "noatime", "rw"]
    words = mount_options.remount_words(("rw", "exec"), running(TCP42, "ro,noexec,relatime"))
    assert words == ["relatime", "rw", "exec"]


# Sources


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
    assert (plain_nfs(one) == plain_nfs(other)) is same


@given(
    st.sampled_from(["3", "4.1", "4.2"]),
    st.sampled_from(["tcp", "rdma"]),
    st.sampled_from([2049, 20049, 3049]),
    st.integers(1, 16),
    st.lists(st.sampled_from(["nosuid,nodev", "rsize=65536", "ro"]), unique=True),
)
def test_whatever_is_asked_for_is_seen_when_it_runs(version, transport, port, connections, more):
    own = tuple(word for words in more for word in words.split(","))
    fs = filesystem(
        nfs=nfs(version=version, transport=transport, port=port, connections=connections),
        options=own,
    )
    words = mount_options.options(fs, 600)
    flags = ",".join(["rw", *(word for word in own if word in ("nosuid", "nodev"))])
    assert wrong(list(words), told_of(words), flags) == []
    assert mount_options.changed(words, words, running(TCP42)) == []
