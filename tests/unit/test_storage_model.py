# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""File systems in the model: read with all defaults, or refused with code and position."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.file_system import (
    Expectation,
    FileSystem,
    Nfs,
    Serve,
)

from tests.unit import small_model
from tests.unit.file_systems import (
    LUSTRE,
    NFS,
    SERVED,
    changed,
    lustre,
    one,
    read_filesystems,
    refused,
    served,
    two,
)
from tests.unit.small_model import compiled, doubts
from tests.unit.small_model import refused as refused_model

DEVICE = "/dev/disk/by-id/wwn-0x1"


def read_one(value: list[dict[str, Any]]) -> FileSystem:
    (found,) = read_filesystems(value)
    return found


def test_defaults_are_those_of_the_dataclass() -> None:
    assert read_filesystems(None) == read_filesystems([]) == ()
    assert read_one(one()) == FileSystem(**NFS)
    assert read_one(lustre()) == FileSystem(**LUSTRE)
    assert read_one(one(nfs={"transport": "rdma"}, hosts=["compute"])).nfs.port == 20049


def test_every_key_is_read() -> None:
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
    variable = [found.as_variable(), *(entry.as_variable() for entry in read_filesystems(lustre()))]
    assert json.loads(json.dumps(variable)) == variable, "Ansible passes it on as JSON"
    assert [each.as_variable() for each in read_filesystems(variable)] == variable


UNKNOWN_HERE = ["noattime", "nolruresize", "network=o2ib1", "rsize", "foreign_symlink=/archive"]


@pytest.mark.parametrize(
    "value",
    [
        one(mount="/usr/local/apps"),
        one(mount="/opt/apps", purpose="software"),
        served(mount="/srv/checkpoints"),
        one(mount="/mnt/a.b_c-d", source="[fd00::21]:/a@b+c"),
        one(source="storage.example.net:/", nfs=None),
        one(options=UNKNOWN_HERE),
        # VAST's own lines (kb.vastdata.com/kb/docs/7-vast-client-nfs-multipathing)
        one(
            nfs={"version": "3", "connections": 34},
            options=[
                *("pconnect=4", "mdconnect=2", "spread_reads", "spread_writes", "noextend"),
                *("lookupcache=pos", "remoteports=dns", "localports=192.168.0.100~192.168.0.200"),
            ],
        ),
        one(nfs={"version": "4.1", "connections": 32}, options=["remoteports=10.9.0.1-10.9.0.32"]),
        one(nfs={"connections": 16}),
        one(type="wekafs", managed=False, source="backend01,backend02/scratch", options=["ro"]),
        one(type="gpfs", managed=False, source="fs1"),
        one(type="fuse.juicefs", managed=False, source="JuiceFS:myjfs"),
        one(managed=False, source="vast.example.net:/data"),
        lustre(managed=False),
        lustre(options=UNKNOWN_HERE),
        lustre(source="10.0.0.31@o2ib,10.0.1.31@o2ib1:10.0.0.32@tcp:/scratch/project"),
        served(source="10.1.0.2:/srv/checkpoints", serve={"host": "node01"}),
        two(nfs={"version": "4.1", "transport": "rdma"}, hosts=["compute"]),
        two(changed(NFS, nfs__version="3"), nfs__transport="rdma", hosts=["compute"]),
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
def test_valid_file_systems(value: list[dict[str, Any]]) -> None:
    read_filesystems(value)


BAD: tuple[tuple[Any, ...], ...] = (
    ({}, "model.not_a_list dict"),
    (
        [{}],
        *(f"model.missing_key [0].{key}" for key in ("name", "type", "source", "mount", "purpose")),
    ),
    (one(nme="x"), "model.unknown_key [0].nme"),
    (one(type="gpfs"), "storage.type_of_others [0].type 'gpfs'"),
    (one(type="nfs4.2.1"), "model.wrong_form [0].type 'nfs4.2.1'"),
    (
        one(type="wekafs", managed=False, source="{x}/fs"),
        "storage.source [0].source '{x}/fs'",
    ),
    (one(managed=False, source="backend/fs"), "storage.source [0].source 'backend/fs'"),
    (
        served(managed=False, nfs={"connections": 2}, options=["noatime"]),
        "storage.of_managed [0].nfs",
        "storage.of_managed [0].serve",
        "storage.of_managed [0].options",
    ),
    (
        one(type="wekafs", managed=False, source="b/fs", nfs={"version": "3"}),
        "storage.section_of_other_type [0].nfs",
    ),
    (one(nfs={"connections": 17}), "storage.connections [0].nfs.connections 17"),
    (
        one(nfs={"connections": 65}, options=["remoteports=dns"]),
        "model.out_of_range [0].nfs.connections (65, 1, 64)",
    ),
    (one(options=["nconnect=34"]), "storage.option_is_key [0].options[0] 'nconnect'"),
    (
        one(expect={"read_gb_s": float("nan")}),
        "model.out_of_range [0].expect.read_gb_s (nan, 0, 100000)",
    ),
    # mount points
    *(
        (one(mount=path), f"model.wrong_form [0].mount {path!r}")
        for path in ("/", "mnt", "/mnt/../x", "/mnt//x", "/mnt/x/", "/mnt/check points", "/mnt/50%")
    ),
    *(
        (one(mount=path), f"storage.mount_in_system [0].mount {path!r}")
        for path in ("/opt", "/home", "/usr/local", "/usr/local/libexec/x", "/opt/mellanox/x")
    ),
    *((one(mode=mode), f"model.wrong_form [0].mode {mode!r}") for mode in ("0777", "4770", "0570")),
    # sources
    *(
        (one(source=source), f"storage.source [0].source {source!r}")
        for source in (
            *("storage01:srv", "/srv", "nfs://storage01/srv", ":/srv", "ops@storage01:/srv"),
            *("fd00::21:/srv", "storage01:/my data", "10.0.0.300:/srv", "\uff110.0.0.1:/srv"),
        )
    ),
    *(
        (lustre(source=source), f"storage.source [0].source {source!r}")
        for source in (
            *("10.0.0.31:/scratch", "10.0.0.31@ib0:/scratch", "10.0.0.31@o2ib:scratch"),
            *("10.0.0.31@o2ib:/scratch-of-all", "mgs1@o2ib:/scratch", "10.0.0.300@o2ib:/scratch"),
        )
    ),
    # sections of types
    (one(nfs={"transport": "rdma"}), "storage.groups_without_rails [0].hosts ('launcher',)"),
    (one(lustre={}), "storage.section_of_other_type [0].lustre"),
    (lustre(nfs={"version": "4.2"}), "storage.section_of_other_type [0].nfs"),
    (lustre(lustre__flock="yes"), "model.wrong_type [0].lustre.flock 'yes'"),
    # hosts
    (one(hosts=[]), "model.not_a_list [0].hosts list"),
    (one(hosts=["compute", "computers"]), "storage.unknown_group [0].hosts[1] 'computers'"),
    (one(hosts=["all"]), "storage.unknown_group [0].hosts[0] 'all'"),
    # options; an invalid one may contain a password
    *(
        (one(options=[option]), "model.wrong_form [0].options[0] 'a secret'")
        for option in ("a, password=hunter2", "cto\\", "=7")
    ),
    (one(options=["ac\nExecStart=x"]), "model.character [0].options[0] 'a secret'"),
    *(
        (one(options=[name]), f"storage.option_never [0].options[0] {name!r}")
        for name in ("soft", "softerr", "nolock")
    ),
    (one(options=["vers=3"]), "storage.option_is_key [0].options[0] 'vers'"),
    (one(options=["rdma"]), "storage.option_is_key [0].options[0] 'rdma'"),
    (lustre(options=["localflock"]), "storage.option_is_key [0].options[0] 'localflock'"),
    # served
    (served(serve={}), "model.missing_key [0].serve.host"),
    (served(serve__format="xfs"), "storage.format_without_device [0].serve.format 'xfs'"),
    (served(serve__host="storage02"), "storage.unknown_host [0].serve.host 'storage02'"),
    *(
        (served(source=f"storage01:{path}"), f"storage.served_directory [0].source {path!r}")
        for path in ("/srv", "/home", "/opt", "/etc/x", "/srv/check@points", "/srv/../etc")
    ),
    (
        served(source="node01:/srv/checkpoints"),
        "storage.source_of_other_host [0].source ('node01', 'storage01')",
    ),
    *(
        (served(serve__device=path), f"model.wrong_form [0].serve.device {path!r}")
        for path in (
            *("sdb", "/srv/disk.img", "/dev/sdb", "/dev/nvme0n1p1", "/dev/../etc/passwd"),
            *("/dev/md127", "/dev/dm-0", "/dev/disk/by-diskseq/9"),
        )
    ),
    (lustre(serve={"host": "storage01"}), "storage.lustre_not_served [0].serve"),
    # next to each other
    *(
        (two(mount=mount), f"storage.mounts_overlap [1].mount ({mount!r}, '/mnt/checkpoints')")
        for mount in ("/mnt/checkpoints", "/mnt/checkpoints/old", "/mnt")
    ),
    (two(name="checkpoints"), "storage.name_twice [1].name 'checkpoints'"),
    (two(purpose="checkpoints"), "storage.checkpoints_twice [1].purpose"),
    *(
        (
            two(SERVED, source=f"storage01:{path}"),
            f"storage.served_overlap [1].source ({path!r}, '/srv/checkpoints')",
        )
        for path in ("/srv/checkpoints", "/srv/checkpoints/old")
    ),
    *(
        (
            served(mount=path),
            f"storage.mount_hides_served [0].mount ({path!r}, '/srv/checkpoints')",
        )
        for path in ("/srv/checkpoints/here", "/srv")
    ),
    (
        two(changed(SERVED, serve__device=DEVICE)),
        f"storage.device_twice [1].serve.device '{DEVICE}'",
    ),
    (
        two(
            changed(SERVED, source="10.9.9.9:/srv/checkpoints"),
            source="10.9.9.9:/srv/checkpoints",
            serve__host="node01",
        ),
        "storage.servers_share_address [1].source ('10.9.9.9', 'storage01')",
    ),
    (
        two(nfs={"transport": "rdma"}, hosts=["compute"]),
        "storage.transports_of_one_server [1].nfs.transport ('rdma', 'tcp')",
    ),
)


@pytest.mark.parametrize("case", BAD)
def test_invalid_file_systems(case: tuple[Any, ...]) -> None:
    wrong, *wanted = case
    assert refused(wrong) == wanted


# In a model

MODEL = f"{small_model.MODEL}domain: example.net\n"
MODEL += "storage: [{name: storage01, management: 10.0.0.21}]\nfilesystems:\n"


def model(*entries: dict[str, Any]) -> str:
    """A list in block style, one line per entry."""
    return MODEL + "".join(f"  - {json.dumps(entry)}\n" for entry in entries)


def test_yaml_scalars_are_read_as_written() -> None:
    """YAML reads 0770 as 504 and 4.10 as a number; the model reads the file."""
    text = MODEL
    text += "  - {name: a, type: nfs, source: s:/a, mount: /mnt/a, purpose: home, mode: 0770"
    text += ", nfs: {version: 4.2}}\n"
    (entry,) = compiled(text).group_variables["all"]["cluster_filesystems"]
    assert (entry["mode"], entry["nfs"]["version"]) == ("0770", "4.2")
    assert refused_model(text.replace("4.2", "4.20")) == [
        "13 model.not_a_choice filesystems[0].nfs.version '4.20'"
    ]


def test_every_finding_has_its_line() -> None:
    text = model(SERVED, changed(NFS, source="fd00::1:/x", mount="/mnt"), LUSTRE)
    text += "  - name: later\n    type: nfs\n    source: a:/b\n    mount: /etc\n"
    text += "    purpose: home\n    options:\n      - noatime\n      - soft\n"
    assert refused_model(text) == [
        "14 storage.source filesystems[1].source 'fd00::1:/x'",
        "14 storage.name_twice filesystems[1].name 'checkpoints'",
        "14 storage.checkpoints_twice filesystems[1].purpose",
        "14 storage.mounts_overlap filesystems[1].mount ('/mnt', '/mnt/checkpoints')",
        "15 storage.mounts_overlap filesystems[2].mount ('/mnt/scratch', '/mnt')",
        "19 storage.mount_in_system filesystems[3].mount '/etc'",
        "23 storage.option_never filesystems[3].options[1] 'soft'",
    ]


def test_groups_and_hosts_are_those_of_the_model() -> None:
    compiled(model(changed(SERVED, source="node02-rail1:/srv/ck", serve__host="node02")))
    assert refused_model(model(changed(SERVED, serve__host="leaf01"))) == [
        "13 storage.unknown_host filesystems[0].serve.host 'leaf01'"
    ]
    compiled(model(changed(NFS, hosts=["rack_r01", "storage"])))
    assert refused_model(model(changed(NFS, hosts=["rack_r02"]))) == [
        "13 storage.unknown_group filesystems[0].hosts[0] 'rack_r02'"
    ]


LINKED = "10.0.0.21, links: [{leaf: leaf01, port: Ethernet63, interface: e0}]}]"
PLANS = {
    "linked": MODEL.replace("10.0.0.21}]", LINKED),
    "unlinked": MODEL,
    "of two": MODEL.replace("10.0.0.21}]", LINKED).replace("{pool", "{plan: point_to_point, pool"),
}
ADDRESSES = """
linked storage01: 10.1.0.250 10.1.0.4 10.0.0.21 10.0.0.77
linked storage01 doubt: 192.168.5.5
linked storage01 not: 10.1.0.0 10.1.0.1 10.1.0.255 10.1.0.2 10.1.1.250 10.1.9.9
linked storage01 not: 10.0.0.0 10.0.0.255 10.0.0.11 127.0.0.1 239.0.0.1 0.0.0.0
linked node02: 10.1.0.3 10.1.1.3 10.0.0.12
linked node02 not: 10.1.0.2 10.1.1.250
linked node02 doubt: 192.168.5.5
linked nas: 10.1.0.250 10.1.9.1 192.168.5.5 10.0.0.10 10.0.0.21 10.0.0.77
linked nas not: 10.1.0.0 10.1.1.1 10.1.1.255 169.254.0.1 10.1.0.2 10.1.1.3 10.0.0.12 10.0.0.101
linked storage01 not: 10.0.0.102
unlinked storage01: 10.0.0.21
unlinked storage01 not: 10.1.0.250
of two storage01: 10.1.0.21 10.0.0.21
of two storage01 not: 10.1.0.0 10.1.0.1 10.1.0.6
of two node02: 10.1.0.5 10.1.0.7
of two nas not: 10.1.0.4 10.1.0.5
"""
"""Address plan and server (`nas` is not in the model), with its addresses, others (`not`), and
possible ones in unknown networks."""


@pytest.mark.parametrize("case", ADDRESSES.strip().splitlines())
def test_the_source_must_have_an_address_of_its_server(case: str) -> None:
    of, _colon, addresses = case.partition(": ")
    plan, server = of.removesuffix(" not").removesuffix(" doubt").rsplit(" ", 1)
    for address in addresses.split():
        serve = {} if server == "nas" else {"serve": {"host": server}}
        entry = changed(NFS, source=f"{address}:/srv/x", **serve)
        text = PLANS[plan] + f"  - {json.dumps(entry)}\n"
        found = [f"13 storage.source_address filesystems[0].source {address!r}"]
        if of.endswith(" not"):
            assert refused_model(text) == found
        else:
            assert doubts(text) == (found if of.endswith(" doubt") else [])


def test_names_and_further_addresses_are_those_of_a_server() -> None:
    for name in ("node01", "leaf02", "node02-rail1", "Node01.example.net", "leaf01.example.net"):
        assert refused_model(model(changed(NFS, source=f"{name}:/x"))) == [
            f"13 storage.source_name filesystems[0].source {name!r}"
        ]
    for name in ("launcher01", "storage01", "node01-nas", "node01.example.org", "node03"):
        assert compiled(model(changed(NFS, source=f"{name}:/x")))
    ports = "remoteports=10.9.0.1-10.1.0.2~10.9.0.7"
    entry = changed(NFS, options=["noatime", ports], nfs={"connections": 34})
    assert refused_model(model(entry)) == [
        "13 storage.source_address filesystems[0].options[1] '10.1.0.2'"
    ]
    weka = {"type": "wekafs", "managed": False, "source": "10.9.0.1,10.0.0.11/scratch"}
    assert refused_model(model(changed(NFS, **weka))) == [
        "13 storage.source_address filesystems[0].source '10.0.0.11'"
    ]


def test_a_mount_of_others_is_compiled_with_its_type() -> None:
    weka = {"type": "wekafs", "managed": False, "source": "backend/fs"}
    text = model(changed(NFS, **weka), changed(LUSTRE, managed=True))
    first, second = compiled(text).group_variables["all"]["cluster_filesystems"]
    assert (first["type"], first["managed"], "nfs" in first, "lustre" in first) == (
        *("wekafs", False),
        *(False, False),
    )
    assert "managed" not in second


def test_nids_are_validated() -> None:
    assert refused_model(
        model(changed(LUSTRE, source="10.9.0.1@o2ib,10.1.1.1@o2ib1:/scratch"))
    ) == ["13 storage.source_address filesystems[0].source '10.1.1.1'"]
    rdma = changed(SERVED, nfs={"transport": "rdma"}, hosts=["compute"])
    assert doubts(model(rdma)) == [
        "13 storage.served_without_link filesystems[0].nfs.transport 'storage01'"
    ]
    assert doubts(PLANS["linked"] + f"  - {json.dumps(rdma)}\n") == []


def test_file_systems_are_checked_whatever_the_leaves_are() -> None:
    text = model(changed(SERVED, serve__host="node09", hosts=["rack_r09"], options=["soft"]))
    assert refused_model(text.replace("leaves: {count: 2", "leaves: {count: 1")) == [
        "8 model.rail_without_leaf leaves.count (1, 2)",
        "13 storage.option_never filesystems[0].options[0] 'soft'",
    ]
