# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Metrics of node-check: counters of rails by device and priority, ends of certificates, and a text
that Prometheus accepts whatever a node says."""

from __future__ import annotations

import os
import re
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result, run
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware import Machine
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware.inventory import (
    RdmaDevice,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.node_check import counters, looks
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.node_check.counters import Sample
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.rails_host import rail
from tests.unit.test_monitoring_rules import needs_promtool, promtool
from tests.unit.test_node_check_looks import sight, unused

PORT = {
    "rx_prio3_bytes": 700,
    "rx_prio3_packets": 7,
    "rx_prio3_pause": 5,
    "tx_prio0_pause": 1,
    "rx_prio3_pause_duration": 2_500_000,
    "tx_global_pause": 4,
    "rx_prio3_buf_discard": 3,
    "rx_prio5_discards": 9,
    "rx_discards_phy": 3,
    "rx_pause_ctrl_phy": 6,
}
DEVICE = {"np_cnp_sent": 11, "local_ack_timeout_err": 2, "lifespan": 10}
EXPECTED = """\
baremetal_rail_info{rail="rail0",device="mlx5_0",leaf="leaf01",leaf_port="Ethernet0"} 1
baremetal_rail_pause_frames_total{rail="rail0",device="mlx5_0",direction="rx",priority="3"} 5
baremetal_rail_pause_frames_total{rail="rail0",device="mlx5_0",direction="tx",priority="0"} 1
baremetal_rail_pause_frames_total{rail="rail0",device="mlx5_0",direction="tx",priority="link"} 4
baremetal_rail_pause_seconds_total{rail="rail0",device="mlx5_0",direction="rx",priority="3"} 2.500
baremetal_rail_discards_total{rail="rail0",device="mlx5_0",priority="3",reason="buffer"} 3
baremetal_rail_discards_total{rail="rail0",device="mlx5_0",priority="5",reason="any"} 9
baremetal_rail_lost_packets_total{rail="rail0",device="mlx5_0",counter="rx_discards_phy"} 3
baremetal_rail_bytes_total{rail="rail0",device="mlx5_0",direction="rx",priority="3"} 700
baremetal_rdma_local_ack_timeout_err_total{rail="rail0",device="mlx5_0"} 2
baremetal_rdma_np_cnp_sent_total{rail="rail0",device="mlx5_0"} 11
"""


class Port:
    def statistics(self, interface: str) -> dict[str, int]:
        if interface != "rail0":
            raise OSError(95, "Operation not supported")
        return PORT


def samples(text: str) -> str:
    return "".join(f"{line}\n" for line in text.splitlines() if not line.startswith("#"))


@pytest.fixture
def sys(tmp_path: Path) -> Path:
    folder = tmp_path / "sys/class/infiniband/mlx5_0/ports/1/hw_counters"
    folder.mkdir(parents=True)
    for name, value in DEVICE.items():
        (folder / name).write_text(f"{value}\n")
    return tmp_path / "sys"


@needs_promtool
def test_counters_by_rail_device_and_priority(
    sys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine((RdmaDevice("rail", "mlx5_0", netdev="rail0"),))
    monkeypatch.setattr(looks, "survey", lambda _sys: machine)
    rails = [rail(0, leaf="leaf01", leaf_port="Ethernet0"), rail(1)]
    seen = replace(sight(tmp_path, rails=rails), ethtool=Port())
    checks, state = looks.rail_counters(seen, unused)
    text = counters.text(counters.parsed(state[looks.SAMPLES]))
    of_second = 'baremetal_rail_info{rail="rail1",device="",leaf="",leaf_port=""} 1\n'
    first, rest = EXPECTED.split("\n", 1)
    assert checks == [] and samples(text) == f"{first}\n{of_second}{rest}"
    promtool("check", "metrics", cwd=tmp_path, text=text)


def test_a_bond_is_read_by_its_ports() -> None:
    members = [{"interface": "rail0p0"}, {"interface": "rail0p1"}]
    assert counters.ports(rail(0, members=members)) == members
    assert [port["interface"] for port in counters.ports(rail(0))] == ["rail0"]


def test_ends_of_certificates(tmp_path: Path) -> None:
    now = int(time.time())
    keys = tmp_path / "etc/baremetal-mpi-roce/ssh"
    keys.mkdir(parents=True)
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "ca"], check=True
    )
    for name in ("id_ed25519", "ssh_host_ed25519_key"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", keys / name], check=True
        )
        sign = ["ssh-keygen", "-q", "-s", tmp_path / "ca", "-I", "x", "-n", "mpi/compute"]
        for_ever = ["-V", "+2d"] if name == "id_ed25519" else []
        subprocess.run([*sign, *for_ever, keys / f"{name}.pub"], check=True)
    tls = tmp_path / counters.TLS_CERTIFICATE
    tls.parent.mkdir()
    request = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    more = ["-nodes", "-subj", "/CN=x", "-days", "3", "-keyout", "/dev/null", "-out", tls]
    subprocess.run([*request, *more], check=True, capture_output=True)
    found = {s.labels["certificate"]: s.value for s in counters.of_certificates(tmp_path, run)}
    assert found.keys() == {"ssh_user", "tls"}
    assert found["ssh_user"] == pytest.approx(now + 2 * 86400, abs=120)
    assert found["tls"] == pytest.approx(now + 3 * 86400, abs=120)
    tls.write_text("-----BEGIN CERTIFICATE-----\nx\n")
    assert counters.tls_end(tls, run) is None
    odd = lambda argv, **_more: Result(tuple(argv), 0, "notAfter=soon\n", "")  # noqa: E731
    assert counters.tls_end(tls, odd) is None


@given(st.binary(max_size=200))
def test_no_file_is_too_odd_for_a_certificate(content: bytes) -> None:
    path = Path(f"/dev/shm/baremetal-certificate-{os.getpid()}")
    path.write_bytes(b"ssh-ed25519-cert-v01@openssh.com " + content)
    try:
        assert counters.ssh_end(path) is None
    finally:
        path.unlink()


@given(st.text(), st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_a_label_never_leaves_its_line(label: str, value: float) -> None:
    sample = Sample("rail_info", value, {"rail": label})
    text = counters.text([sample, sample])
    assert re.fullmatch(
        r'baremetal_rail_info\{rail="([^"\\\n]|\\["\\])*"\} -?[\d.]+', text.splitlines()[-1]
    )
    assert len(text.splitlines()) == 3


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("rail_bytes_total", 1 << 63, True),
        ("rail_bytes_total", -1, False),  # a counter that wrapped
        ("rail_bytes_total", 10**4000, False),
        ("rail_bytes_total", float("nan"), False),
        ("rail_info", float("inf"), False),
        ("rail_info", -float("inf"), False),
        ("certificate_end_time_seconds", -1, True),
    ],
)
def test_a_value_that_would_cost_the_whole_file_is_left_out(
    name: str, value: float, shown: bool
) -> None:
    text = counters.text([Sample(name, value, {"rail": "rail0"}), Sample("rail_info", 1, {})])
    assert (f'baremetal_{name}{{rail="rail0"}}' in text) is shown
    assert "baremetal_rail_info 1\n" in text


def test_rows_of_another_form_are_left_out() -> None:
    good = Sample("rail_info", 1, {"rail": "rail0"})
    odd = [
        None,
        [],
        ["rail_info"],
        ["rail_info", 1, 5],
        ["x", 1, {}],
        ["rail_info", "1", {}],
        good.as_list(),
    ]
    assert counters.parsed(odd) == [good]
    assert counters.parsed("x") == [] and len(counters.parsed([good.as_list()] * 30_000)) == 20_000
