# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The recorder: its output can be rebuilt, and nothing in it identifies the machine."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware import survey
from hypothesis import given
from hypothesis import strategies as st

from tests.hardware.trees import RECORDINGS, function, line, recording, scratch
from tests.unit.test_hardware_survey import BOARD, BRIDGES, RAIL0
from tools import record_hardware
from tools.record_hardware import Directory, File, Link, RecordError

B300 = "b300-8x800g"


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as directory:
        yield directory


def no_base(name: str) -> Directory:
    raise AssertionError(name)


def parsed(text: str) -> Directory:
    return record_hardware.parse(text, "x.sysfs", no_base)


# The form

file_names = st.text("abcdefghijklmnop0123456789_:.", min_size=1, max_size=12).filter(
    lambda name: (
        name not in (".", "..")
        and not name.startswith(("#", "-"))
        and name != "base:"
        and not name.endswith(":")
    )
)
nodes = st.recursive(
    st.binary(max_size=20).map(File)
    | st.text("abc/._ 0123456789:", max_size=20).map(lambda text: line(text))
    | st.from_regex(r"(\.\./){0,4}[a-z0-9:._]{1,12}", fullmatch=True).map(Link),
    lambda below: st.dictionaries(file_names, below, max_size=4).map(Directory),
    max_leaves=20,
)
trees = st.dictionaries(file_names, nodes, max_size=5).map(Directory)


@given(trees)
def test_what_is_written_is_read_again(tree: Directory) -> None:
    assert parsed("\n".join(record_hardware.dump(tree))) == tree


def test_a_machine_can_be_described_by_what_differs_from_another(root: Path) -> None:
    (root / "well.sysfs").write_text("a/\n  b: 1\n  c: 2\n  d/\n    e: 3\n")
    (root / "ill.sysfs").write_text("# why\nbase: well.sysfs\na/\n  b: 9\n  - c\n  d/\n    - e\n")
    assert record_hardware.load(root / "ill.sysfs") == {"a": {"b": b"9\n", "d": {}}}


# Recording


def test_a_recording_shows_the_same_machine(root: Path) -> None:
    """Build a machine, record it, and build the recording: both surveys are equal."""
    record_hardware.build(recording("b300-vfs", BOARD, BRIDGES, "pci0000:25"), root / "sys")
    text, _notes = record_hardware.record(root / "sys", "node07")
    record_hardware.build(parsed(text), root / "again")
    before, after = survey(root / "sys"), survey(root / "again")
    blank = re.compile(r"address='[^']*'")
    assert blank.sub("", repr(after.ports)) == blank.sub("", repr(before.ports))
    assert (after.functions, after.slots, after.modules) == (
        before.functions,
        before.slots,
        before.modules,
    )
    assert [len(port.gids) for port in after.ports] == [len(port.gids) for port in before.ports]


# Secrets

MAC = "94:6d:ae:c0:ff:ee"
EUI64 = "966d:aeff:fec0:ffee"
GUID = "946d:ae03:00c0:ffee"
SERIAL = "MT2519K04242"
UUID = "5e0a2f9ac3d4e511b0f2946daec0ffee"
HOST = "gpunode0042"

PLANTED = (MAC, EUI64, GUID, SERIAL, UUID, HOST, "10.20.30.40", "0a14:1e28", "2a02:c0de")


def with_secrets() -> Directory:
    """A machine with a secret in every place where Linux has one."""
    tree = recording(B300, RAIL0)
    nic = function(tree, "0000:11:00.0")
    nic["vpd"] = File(f"SN\r{SERIAL}V3 {UUID}VAMLX:SMDL=SW_MNG".encode())
    rdma = nic.at("infiniband/mlx5_1")
    rdma.update(
        {"node_guid": line(GUID), "sys_image_guid": line(GUID), "node_desc": line(f"{HOST} mlx5_1")}
    )
    gids = rdma.at("ports/1/gids")
    gids["0"] = gids["1"] = line(f"fe80:0000:0000:0000:{EUI64}")
    gids["2"] = line("0000:0000:0000:0000:0000:ffff:0a14:1e28")
    gids["3"] = line("2a02:c0de:0000:0000:0000:0000:0000:0001")
    nic.at("net/rail0").update(
        {
            "address": line(MAC),
            "phys_switch_id": line(UUID),
            "phys_port_id": line(MAC.replace(":", "")),
            "ifalias": line(f"to leaf of {HOST}"),
        }
    )
    dmi = {"product_serial": SERIAL, "product_uuid": UUID, "chassis_asset_tag": "RACK7-0042"}
    tree.at("class/dmi/id").update({name: line(value) for name, value in dmi.items()})
    return tree


def test_no_secret_is_recorded(root: Path) -> None:
    record_hardware.build(with_secrets(), root)
    text, notes = record_hardware.record(root, f"{HOST}.example.com")
    bare = re.sub(r"[:.\-]", "", text).lower()
    for secret in (*PLANTED, "RACK7"):
        assert secret.lower() not in text.lower()
        assert re.sub(r"[:.\-]", "", secret).lower() not in bare
    assert any("addresses (GIDs) replaced" in each for each in notes)
    assert "vpd = b'SW_MNG'" in text


@pytest.mark.parametrize(
    ("place", "content", "what"),
    [
        ("net/rail0/phys_port_name", MAC, "holds a MAC address"),
        ("infiniband/mlx5_1/fw_ver", f"1.2 {SERIAL}", "holds a serial number"),
        ("infiniband/mlx5_1/board_id", GUID, "holds a GUID"),
        ("infiniband/mlx5_1/board_id", f"of {HOST}", "holds a host name"),
        ("infiniband/mlx5_1/hca_type", UUID.upper(), "holds a switch ID"),
    ],
)
def test_a_secret_in_a_place_that_is_unexpected_stops_the_recording(
    place: str, content: str, what: str, root: Path
) -> None:
    tree = with_secrets()
    function(tree, "0000:11:00.0").put(place, line(content))
    record_hardware.build(tree, root)
    with pytest.raises(RecordError, match="nothing was written") as error:
        record_hardware.record(root, HOST)
    assert what in str(error.value)
    assert Path(place).name in str(error.value)
    assert content not in str(error.value), "nor is it in the message"


# The command


def command(*words: str) -> subprocess.CompletedProcess[str]:
    script = RECORDINGS.parents[1] / "tools/record_hardware.py"
    argv = [sys.executable, "-I", "-S", str(script), *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def test_the_command_records_and_builds_by_itself(root: Path) -> None:
    record_hardware.build(recording(B300, RAIL0), root / "sys")
    out = root / "node07.sysfs"
    ran = command("--root", str(root / "sys"), str(out))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert (
        "MAC addresses, GUIDs, serial numbers, node descriptions, host and DMI data left out"
        in ran.stdout
    )
    ran = command("--build", str(out), str(root / "again"))
    assert ran.returncode == 0
    assert survey(root / "again").at("0000:11:00.0") is not None
