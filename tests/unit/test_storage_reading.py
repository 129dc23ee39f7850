# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""File systems: read with every default, and the same again when they are read once more."""

from __future__ import annotations

import json
import posixpath
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.mounts import overlap
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.file_system import (
    PURPOSES,
    Expectation,
    FileSystem,
    Lustre,
    Nfs,
    Serve,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.storage import (
    StorageError,
    read_filesystems,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.storage_keys import (
    FILE_SYSTEM,
    MountPoint,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.storage_places import (
    OF_THE_SYSTEM,
    UNIT_NAME,
    wrong_mount,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.schema.findings import dotted
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.schema.kinds import Wrong
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.file_systems import LUSTRE, NFS, SITE, changed, lustre, one, served


def read_one(value: list[dict[str, Any]]) -> FileSystem:
    (found,) = read_filesystems(value, SITE)
    return found


def test_nothing_said_is_nothing() -> None:
    assert read_filesystems(None) == read_filesystems([]) == ()


def test_what_nobody_writes_is_as_the_dataclass_has_it() -> None:
    assert read_one(one()) == FileSystem(**NFS)
    assert read_one(lustre()) == FileSystem(**LUSTRE)


def test_everything_said_is_read() -> None:
    found = read_one(
        served(
            owner="data",
            group="data",
            mode="2750",
            space_gib=100,
            files=1000,
            hosts=["compute", "rack_r01"],
            options=["noatime", "rsize=1048576"],
            nfs={"version": "4.1", "transport": "rdma", "port": 20050, "connections": 16},
            serve={"host": "storage01", "device": "/dev/mapper/data", "format": "xfs"},
            expect={"write_gb_s": 1, "together_read_gb_s": 2.5},
        )
    )
    assert found == FileSystem(
        name="checkpoints",
        type="nfs",
        source="storage01:/srv/checkpoints",
        mount="/mnt/checkpoints",
        purpose="checkpoints",
        owner="data",
        group="data",
        mode="2750",
        space_gib=100,
        files=1000,
        hosts=("compute", "rack_r01"),
        options=("noatime", "rsize=1048576"),
        nfs=Nfs("4.1", "rdma", 20050, 16),
        serve=Serve("storage01", "/dev/mapper/data", "xfs"),
        expect=Expectation(1.0, 0.0, 0.0, 2.5),
    )
    assert (found.server, found.path) == ("storage01", "/srv/checkpoints")


def test_rdma_has_a_port_of_its_own() -> None:
    assert read_one(one()).nfs.port == 2049
    assert read_one(one(nfs={"transport": "rdma"}, hosts=["compute"])).nfs.port == 20049


@pytest.mark.parametrize(
    "value",
    [
        one(mount="/usr/local/apps"),
        one(mount="/opt/apps", purpose="software"),
        one(mount="/home", purpose="home"),
        served(mount="/srv/checkpoints"),
        one(mount="/mnt/a.b_c-d", source="[fd00::21]:/a@b+c"),
        one(owner="root", mode="755", purpose="datasets", options=["ro", "noatime"]),
        one(
            nfs={"version": "3", "transport": "rdma"},
            hosts=["compute", "rack_r01"],
            options=["mountproto=tcp", "mountport=892", "noacl"],
        ),
        one(source="storage.example.net:/"),
        lustre(source="10.0.0.31@o2ib,10.0.1.31@o2ib1:mgs2@tcp:/scratch/project"),
        lustre(options=["user_xattr", "noatime", "network=o2ib1"]),
        served(source="10.9.9.9:/srv/checkpoints"),
        served(source="node01-rail0:/srv/checkpoints", serve={"host": "node01"}),
        served(source="10.1.0.2:/srv/checkpoints", serve={"host": "node01"}),
        [*served(), *lustre(), *one(name="n", mount="/mnt/n", purpose="home")],
        [
            *served(),
            *served(
                name="of-node01",
                purpose="scratch",
                mount="/mnt/of-node01",
                source="node01:/srv/checkpoints",
                serve={"host": "node01"},
            ),
        ],
    ],
)
def test_what_can_be_is_not_refused(value: list[dict[str, Any]]) -> None:
    read_filesystems(value, SITE)


@pytest.mark.parametrize(("written", "version"), [(4.2, "4.2"), (3, "3"), ("4.1", "4.1")])
def test_a_version_may_be_a_number(written: Any, version: str) -> None:
    """In group_vars it is one, unless it stands in quotes."""
    assert read_one(one(nfs__version=written)).nfs.version == version


def test_a_mode_has_four_digits() -> None:
    assert read_one(one(mode="750")).mode == "0750"


def test_without_the_cluster_groups_and_servers_are_taken_as_they_are() -> None:
    (found,) = read_filesystems(served(source="elsewhere:/srv/x", hosts=["login"]))
    assert (found.hosts, found.serve) == (("login",), Serve("storage01"))


def test_one_wrong_key_hides_no_other() -> None:
    wrong = changed(served()[0], mount="/etc", mode=7, serve__host="nobody", options=["soft"])
    with pytest.raises(StorageError) as caught:
        read_filesystems([wrong, *one(name="other", hosts=[])], SITE)
    assert [dotted(finding.path) for finding in caught.value.findings] == [
        "cluster_filesystems[0].mount",
        "cluster_filesystems[0].mode",
        "cluster_filesystems[0].options[0]",
        "cluster_filesystems[0].serve.host",
        "cluster_filesystems[1].hosts",
        "cluster_filesystems[1].purpose",
    ]


def test_no_password_is_told() -> None:
    for options in (["username=a,password=hunter2"], ["password=hunter2", "password=a"]):
        with pytest.raises(StorageError) as caught:
            read_filesystems(one(options=options), SITE)
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("directory", ["/home", "/media", "/mnt", "/opt", "/srv"])
def test_what_many_share_gets_no_owner_of_one(directory: str) -> None:
    with pytest.raises(StorageError, match="would be given the owner and mode"):
        read_filesystems(served(source=f"storage01:{directory}"), SITE)
    read_filesystems(served(source=f"storage01:{directory}/of-its-own"), SITE)


@pytest.mark.parametrize("directory", OF_THE_SYSTEM)
def test_nothing_is_mounted_over_the_system_nor_served_from_it(directory: str) -> None:
    for path in (directory, f"{directory}/below"):
        for wrong in (one(mount=path), served(source=f"storage01:{path}")):
            with pytest.raises(StorageError):
                read_filesystems(wrong, SITE)


def test_every_key_of_the_dataclass_can_be_written() -> None:
    assert {key.name for key in FILE_SYSTEM.keys} == set(vars(FileSystem(**NFS)))
    below = {key.name: key.kind for key in FILE_SYSTEM.keys}
    for name, made in (
        ("nfs", Nfs()),
        ("lustre", Lustre()),
        ("serve", Serve("storage01")),
        ("expect", Expectation()),
    ):
        section: Any = getattr(below[name], "kind", below[name])
        assert {key.name for key in section.keys} == set(vars(made)), name


NAMES = st.from_regex(r"[a-z][a-z0-9_-]{0,8}", fullmatch=True)
NUMBERS = st.floats(0, 1000, allow_nan=False)
ENTRIES: dict[str, st.SearchStrategy[Any]] = {
    "owner": NAMES.filter(lambda name: name not in ("root", "nobody", "nfsnobody")),
    "group": NAMES,
    "mode": st.sampled_from(["0770", "2770", "750", "0755"]),
    "space_gib": st.integers(0, 10**6),
    "files": st.integers(0, 10**9),
    "hosts": st.lists(st.sampled_from(["compute", "storage"]), min_size=1, unique=True),
    "options": st.lists(st.sampled_from(["noatime", "nodev", "nosuid", "rw"]), unique=True),
    "expect": st.fixed_dictionaries(
        {}, optional={"write_gb_s": NUMBERS, "together_read_gb_s": NUMBERS}
    ),
}
OF_NFS = {
    "nfs": st.fixed_dictionaries(
        {},
        optional={
            "version": st.sampled_from(["4.2", "4.1", "3", 4.2, 3]),
            "transport": st.sampled_from(["tcp", "rdma"]),
            "port": st.sampled_from([2050, 20050]),
            "connections": st.integers(1, 16),
        },
    ),
    "serve": st.sampled_from(
        [
            None,
            {"host": "storage01"},
            {"host": "storage01", "device": "/dev/disk/by-id/wwn-0x1", "format": "ext4"},
        ]
    ),
}
OF_LUSTRE = {
    "lustre": st.fixed_dictionaries(
        {},
        optional={
            "flock": st.booleans(),
            "stripe_count": st.integers(-1, 100),
            "stripe_size_mib": st.integers(0, 64),
            "pool": st.sampled_from(["", "flash"]),
        },
    )
}


def device(serve: Any, number: int) -> dict[str, Any]:
    """One of its own, for a file system that has any."""
    if not serve or "device" not in serve:
        return {}
    return {"serve": {**serve, "device": f"{serve['device']}{number}"}}


def lists() -> st.SearchStrategy[list[dict[str, Any]]]:
    def placed(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            {
                **entry,
                "name": f"fs{number}",
                "mount": f"/mnt/fs{number}",
                "source": entry["source"] + str(number),
                "purpose": PURPOSES[number % 5],
                **device(entry.get("serve"), number),
            }
            for number, entry in enumerate(entries)
        ]

    nfs = st.fixed_dictionaries(
        {"type": st.just("nfs"), "source": st.just("storage01:/srv/fs")},
        optional={**ENTRIES, **OF_NFS},
    )
    of_lustre = st.fixed_dictionaries(
        {"type": st.just("lustre"), "source": st.just("10.0.0.31@o2ib:/fs")},
        optional={**ENTRIES, **OF_LUSTRE},
    )
    entry = st.one_of(nfs, of_lustre).map(lambda made: {"hosts": ["compute"], **made})
    return st.lists(entry, max_size=5).map(placed)


@given(lists())
def test_what_it_is_compiled_to_is_read_as_the_same(value: list[dict[str, Any]]) -> None:
    found = read_filesystems(value, SITE)
    variable = [entry.as_variable() for entry in found]
    assert json.loads(json.dumps(variable)) == variable, "Ansible hands it on as JSON"
    again = read_filesystems(variable, SITE)
    assert again == found
    assert [entry.as_variable() for entry in again] == variable


PATHS = st.lists(st.sampled_from(["a", "ab", "b", "mnt", "usr", "..", ".", ""]), max_size=4).map(
    lambda parts: "/" + "/".join(parts)
)


NEAR = st.lists(st.sampled_from(["a", "ab"]), max_size=2).map(lambda parts: "/" + "/".join(parts))


@given(NEAR, NEAR)
def test_paths_overlap_both_ways_and_only_where_one_lies_in_the_other(one: str, two: str) -> None:
    assert overlap(one, two) == overlap(two, one)
    common = posixpath.commonpath([one, two])
    assert overlap(one, two) == (common in (one, two))


@given(PATHS)
def test_a_mount_point_that_is_taken_is_plain_and_not_of_the_system(path: str) -> None:
    try:
        taken = MountPoint().convert(path)
    except Wrong:
        return
    assert taken == posixpath.normpath(path)
    assert not any(posixpath.commonpath([taken, of]) in (of, taken) for of in OF_THE_SYSTEM)


@given(st.text("ab-.", min_size=1, max_size=120).filter(lambda name: name.strip(".")))
def test_the_longest_mount_point_is_the_longest_name_of_a_unit(path: str) -> None:
    """As systemd escapes a path: everything but letters, digits and inner dots."""
    unit = "".join(
        each if each.isalnum() or (each == "." and place) else f"\\x{ord(each):02x}"
        for place, each in enumerate(path)
    )
    wrong = wrong_mount(f"/{path}")
    assert (wrong is not None and "unit name" in wrong.problem) == (
        len(f"{unit}.automount") > UNIT_NAME
    )
