# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What each key of a file system holds: codes, places and values of what it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.file_systems import DROP, key_refused, lustre, one, refused

LONG = f"/mnt/{'a-' * 60}"
OF_ONE_KEY: tuple[tuple[Callable[..., Any], str, str, tuple[Any, ...]], ...] = (
    (one, "type", "model.not_a_choice", ("nfs4", "gpfs")),
    (one, "name", "model.wrong_form", ("Check Points", 7)),
    (one, "purpose", "model.not_a_choice", ("backup",)),
    (one, "space_gib", "model.not_a_whole_number", ("10T",)),
    (one, "files", "model.not_a_whole_number", (1.5,)),
    (one, "source", "storage.source_without_directory", ("storage01",)),
    (one, "source", "storage.source_relative", ("storage01:srv/checkpoints",)),
    (one, "source", "storage.source_is_path", ("/srv/checkpoints",)),
    (one, "source", "storage.source_is_url", ("nfs://storage01/srv/checkpoints",)),
    (one, "source", "storage.source_without_server", (":/srv/checkpoints",)),
    (one, "source", "storage.source_with_user", ("ops@storage01:/srv",)),
    (one, "source", "storage.source_ipv4", ("10.0.0.256:/srv",)),
    (one, "source", "storage.source_without_brackets", ("fd00::21:/srv",)),
    (one, "source", "storage.source_ipv6", ("[fd00::g]:/srv",)),
    (one, "source", "storage.source_server", ("stor_age:/srv",)),
    (one, "source", "storage.path_goes_up", ("storage01:/srv/../etc",)),
    (one, "source", "storage.path_not_plain", ("storage01:/srv//x/",)),
    (one, "source", "storage.path_character", ("storage01:/srv/my data",)),
    (lustre, "source", "storage.nid_without_network", ("10.0.0.31:/scratch",)),
    (lustre, "source", "storage.nid_network", ("10.0.0.31@ib0:/scratch",)),
    (lustre, "source", "storage.lustre_name", ("10.0.0.31@o2ib:/scratch-of-all",)),
    (lustre, "source", "storage.source_not_lustre", ("10.0.0.31@o2ib:scratch",)),
    (lustre, "source", "storage.nid_address", ("10.0.0.3333@o2ib:/scratch",)),
    (one, "mount", "storage.mount_on_root", ("/",)),
    (one, "mount", "storage.path_relative", ("mnt/checkpoints",)),
    (one, "mount", "storage.path_goes_up", ("/mnt/../checkpoints",)),
    (one, "mount", "storage.path_not_plain", ("/mnt//checkpoints/",)),
    (one, "mount", "storage.path_character", ("/mnt/check points", "/mnt/50%")),
    (one, "mount", "storage.mount_in_system", ("/usr", "/usr/local", "/usr/local/lib/models")),
    (one, "mount", "storage.mount_in_system", ("/etc/checkpoints", "/var/lib/checkpoints")),
    (one, "mount", "storage.mount_in_system", ("/tmp/checkpoints", "/run/checkpoints", "/dev/shm")),
    (one, "mount", "storage.mount_in_system", ("/boot", "/proc/fs", "/sys", "/root")),
    (one, "mount", "storage.mount_in_system", ("/opt/mellanox/checkpoints",)),
    (one, "mount", "storage.mount_on_opt", ("/opt",)),
    (one, "mount", "storage.mount_too_long", (LONG,)),
    (one, "mode", "storage.mode_for_all", ("0777", "1777", "0772")),
    (one, "mode", "storage.no_mode", ("rwx", 0o770)),
    (one, "mode", "storage.mode_set_user_id", ("4770",)),
    (one, "mode", "storage.mode_not_for_owner", ("0570",)),
    (one, "owner", "model.wrong_form", ("MPI User",)),
    (one, "nfs__version", "storage.nfs_without_sessions", ("4.0",)),
    (one, "nfs__version", "model.not_a_choice", (5,)),
    (one, "nfs__transport", "model.not_a_choice", ("udp",)),
    (lustre, "lustre__flock", "model.wrong_type", ("yes",)),
)


@pytest.mark.parametrize(("make", "key", "code", "values"), OF_ONE_KEY)
def test_a_value_is_refused_at_its_key(
    make: Callable[..., Any], key: str, code: str, values: tuple[Any, ...]
) -> None:
    key_refused(make, key, code, values)


BAD: tuple[tuple[Any, ...], ...] = (
    ({}, "model.not_a_list dict"),
    ("storage01:/srv", "model.not_a_list 'storage01:/srv'"),
    (["storage01:/srv"], "model.not_a_mapping [0] 'storage01:/srv'"),
    (
        [{}],
        *(f"model.missing_key [0].{key}" for key in ("name", "type", "source", "mount", "purpose")),
    ),
    (one(nme="x"), "model.unknown_key [0].nme"),
    (one(source=DROP), "model.missing_key [0].source"),
    (one(source=None), "model.wrong_form [0].source"),
    (one(space_gib=-1), "model.out_of_range [0].space_gib (-1, 0, 1000000000)"),
    (
        one(expect={"write_gb_s": "fast", "read": 3}),
        "model.unknown_key [0].expect.read",
        "model.not_a_number [0].expect.write_gb_s 'fast'",
    ),
    (one(expect={"write_gb_s": -1}), "model.out_of_range [0].expect.write_gb_s (-1, 0, 100000)"),
    (
        one(expect={"read_gb_s": float("nan")}),
        "model.out_of_range [0].expect.read_gb_s (nan, 0, 100000)",
    ),
    (one(mount=DROP), "model.missing_key [0].mount"),
    (one(mount=["/mnt"]), "storage.no_mount_point [0].mount list"),
    (one(mount="/home"), "storage.mount_on_home [0].mount"),
    (one(owner="root"), "storage.owner_root [0].owner"),
    (one(owner="nobody", purpose="home"), "storage.owner_squashed [0].owner 'nobody'"),
    (one(nfs__connections=17), "model.out_of_range [0].nfs.connections (17, 1, 16)"),
    (one(nfs__connections=0), "model.out_of_range [0].nfs.connections (0, 1, 16)"),
    (one(nfs__port=0), "model.out_of_range [0].nfs.port (0, 1, 65535)"),
    (
        one(nfs={"transport": "rdma", "port": 2049}, hosts=["compute"]),
        "storage.port_of_other_transport [0].nfs.port 2049",
    ),
    (one(nfs={"port": 20049}), "storage.port_of_other_transport [0].nfs.port 20049"),
    (one(nfs={"transport": "rdma"}), "storage.groups_without_rails [0].hosts ('launcher',)"),
    (one(nfs={"soft": True}), "model.unknown_key [0].nfs.soft"),
    (one(nfs={"nconnect": 8}), "model.unknown_key [0].nfs.nconnect"),
    (one(nfs=None), "model.not_a_mapping [0].nfs"),
    (one(lustre={}), "storage.section_of_other_type [0].lustre"),
    (lustre(nfs={"version": "4.2"}), "storage.section_of_other_type [0].nfs"),
    (lustre(lustre__stripe_count=-2), "model.out_of_range [0].lustre.stripe_count (-2, -1, 2000)"),
)


@pytest.mark.parametrize("case", BAD)
def test_every_reason_is_told(case: tuple[Any, ...]) -> None:
    wrong, *told = case
    assert refused(wrong) == told
