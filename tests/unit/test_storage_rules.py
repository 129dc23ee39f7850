# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What keys cannot be beside each other, beside other file systems and in their cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.storage import (
    read_filesystems,
)

from tests.unit.file_systems import (
    SERVED,
    SITE,
    changed,
    key_refused,
    lustre,
    one,
    refused,
    served,
    two,
)

DEVICE = "/dev/disk/by-id/wwn-0x1"
OF_ONE_KEY: tuple[tuple[Callable[..., Any], str, str, tuple[Any, ...]], ...] = (
    (one, "hosts", "model.not_a_list", ("compute",)),
    (one, "options", "model.not_a_list", ("ro,soft",)),
    (one, "option", "storage.no_option", (7, "", "=7")),
    (one, "option", "storage.option_never", ("soft", "softerr", "bg", "nolock")),
    (one, "option", "storage.option_is_key", ("vers=3", "nfsvers=4.1", "proto=rdma", "rdma")),
    (one, "option", "storage.option_is_key", ("port=20049", "nconnect=4")),
    (lustre, "option", "storage.option_is_key", ("flock", "localflock")),
    (served, "serve", "model.not_a_mapping", (True,)),
    (served, "serve__host", "storage.unknown_host", ("storage02",)),
    (served, "source", "storage.serves_root", ("storage01:/",)),
    (served, "source", "storage.serves_shared", ("storage01:/srv",)),
    (served, "source", "storage.serves_system", ("storage01:/etc/checkpoints",)),
    (served, "source", "storage.path_character", ("storage01:/srv/check@points",)),
    (served, "serve__device", "storage.no_device", ("sdb", "/srv/disk.img")),
    (served, "serve__device", "storage.device_numbered", ("/dev/sdb", "/dev/nvme0n1p1")),
    (served, "serve__device", "storage.device_not_plain", ("/dev/../etc/passwd",)),
    (served, "serve__format", "storage.format_without_device", ("xfs",)),
)


@pytest.mark.parametrize(("make", "key", "code", "values"), OF_ONE_KEY)
def test_a_value_is_refused_at_its_key(
    make: Callable[..., Any], key: str, code: str, values: tuple[Any, ...]
) -> None:
    key_refused(make, key, code, values)


BAD: tuple[tuple[Any, ...], ...] = (
    # beside each other
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
    (
        two(SERVED, mount="/srv"),
        "storage.mount_hides_served [1].mount ('/srv', '/srv/checkpoints')",
    ),
    (
        served(mount="/srv/checkpoints/here"),
        "storage.mount_hides_served [0].mount ('/srv/checkpoints/here', '/srv/checkpoints')",
    ),
    (
        two(changed(SERVED, serve__device=DEVICE)),
        f"storage.device_twice [1].serve.device '{DEVICE}'",
    ),
    (
        two(nfs={"transport": "rdma"}, hosts=["compute"]),
        "storage.transports_of_one_server [1].nfs.transport ('rdma', 'tcp')",
    ),
    # hosts
    (one(hosts=[]), "storage.no_groups [0].hosts"),
    (one(hosts=["compute", "computers"]), "storage.unknown_group [0].hosts[1] 'computers'"),
    (one(hosts=["compute", "compute"]), "storage.group_twice [0].hosts[1] 'compute'"),
    (one(hosts=["all"]), "storage.group_with_switches [0].hosts[0] 'all'"),
    (one(hosts=["node-01"]), "model.wrong_form [0].hosts[0] 'node-01'"),
    # options
    (
        one(options=["noatime,nodiratime"]),
        "storage.options_in_one [0].options[0] ('noatime', 'nodiratime')",
    ),
    (
        one(options=["username=ops, password=hunter2"]),
        "storage.options_in_one [0].options[0] ('username', 'password')",
    ),
    (
        one(options=["ac\nExecStart=x", "cto\\"]),
        "storage.options_in_one [0].options[0] ('ac', 'ExecStart')",
        "storage.options_in_one [0].options[1] ('cto', '')",
    ),
    (one(options=["ro"]), "storage.option_read_only [0].options[0]"),
    *(
        (
            one(options=[first, second], purpose="datasets"),
            f"storage.option_twice [0].options[1] ({second.partition('=')[0]!r}, "
            f"{first.partition('=')[0]!r})",
        )
        for first, second in (
            ("rw", "ro"),
            ("noatime", "noatime"),
            ("relatime", "noatime"),
            ("cto", "nocto"),
            ("timeo=600", "timeo=100"),
        )
    ),
    # served
    (served(serve={}), "model.missing_key [0].serve.host"),
    *(
        (
            served(source=f"{server}:/srv/checkpoints"),
            f"storage.source_of_other_host [0].source ({server!r}, 'node01')",
        )
        for server in ("10.0.0.11", "node01-rail0")
    ),
    (
        served(source="10.9.9.9:/srv/checkpoints", serve__host="node01"),
        "storage.source_of_other_host [0].source ('10.9.9.9', None)",
    ),
    (
        served(serve__device=DEVICE, serve__format="btrfs"),
        "model.wrong_form [0].serve.format 'btrfs'",
    ),
    (lustre(serve={"host": "storage01"}), "storage.lustre_not_served [0].serve"),
    # exported to the world
    (served(serve__clients="*"), "model.unknown_key [0].serve.clients"),
    (served(serve__no_root_squash=True), "model.unknown_key [0].serve.no_root_squash"),
    (served(serve__insecure=True), "model.unknown_key [0].serve.insecure"),
    (one(export="*(rw)"), "model.unknown_key [0].export"),
    (one(squash="none"), "model.unknown_key [0].squash"),
)


UNKNOWN_HERE = ("noattime", "nolruresize", "network=o2ib1", "rsize", "foreign_symlink=/archive")


def test_what_is_not_known_here_is_for_the_kernel_to_refuse() -> None:
    for make in (one, lustre):
        (fs,) = read_filesystems(make(options=list(UNKNOWN_HERE)), SITE)
        assert fs.options == UNKNOWN_HERE


@pytest.mark.parametrize("case", BAD)
def test_every_reason_is_told(case: tuple[Any, ...]) -> None:
    wrong, *told = case
    assert refused(wrong) == told
