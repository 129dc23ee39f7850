# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The figures of an allreduce as a table."""

from __future__ import annotations

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import text
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.allreduce import verdict
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.report import smoke, units


def result(**changes: object) -> dict:
    by_size = [verdict.figure(4, [10.0], 32), verdict.figure(1 << 20, [40000.0], 32)]
    base = {
        "ranks": 32,
        "nodes": 4,
        "transport": "tcp",
        "by_size": by_size,
        "best_busbw_gbytes_s": by_size[1]["busbw_gbytes_s"],
        "line_rate_gbytes_s": 10.0,
        "threshold_gbytes_s": None,
        "virtual": True,
    }
    checks = [{"name": "world_size", "status": "ok"}, {"name": "transport", "status": "failed"}]
    return {"figures": {**base, **changes}, "checks": checks, "seconds": 6.25}


def test_the_table_stands_in_columns() -> None:
    found = smoke.lines(result())
    assert found[0].startswith("allreduce of 32 ranks on 4 nodes over tcp")
    assert len({len(line) for line in found[1:4]}) == 1
    assert found[3].split()[:5] == ["1", "MiB", "1", "40.0", "ms"]
    assert found[3].endswith("50.79 MB/s")
    assert "FAILED: transport" in found[-1]


def test_a_virtual_line_rate_is_called_nominal_and_a_real_one_compared() -> None:
    assert "nominal" in smoke.against(result()["figures"])
    real = smoke.against(result(virtual=False, threshold_gbytes_s=5.0)["figures"])
    assert "nominal" not in real
    assert "%" in real
    assert "threshold 5 GB/s" in real
    assert "no threshold set" in smoke.against(result()["figures"])


def test_units() -> None:
    sizes = (4, 65536, 3 << 29)
    assert [text.bytes_text(count) for count in sizes] == ["4 B", "64 KiB", "1.50 GiB"]
    assert [text.bits_text(value) for value in (800, 0.0937)] == ["800 Gb/s", "93.7 Mb/s"]
    assert units.time_text(12.34) == "12.3 us"
    assert units.time_text(2_500_000) == "2.50 s"
    assert units.rate_text(391.2) == "391.20 GB/s"
    assert units.rate_text(0.0207) == "20.70 MB/s"
    assert units.rate_text(0.0000421) == "42.10 kB/s"


RAILS = [
    {
        "rail": f"rail{k}",
        "nodes": 4,
        "sent_bytes": (5 + 40 * k) << 20,
        "own_bytes": 384 << 10 if k else None,
        "own_nodes": 3 * k,
        "tcp_bytes": 100 * k or None,
        "gbps": 0.012 + 30 * k,
        "speed_gbps": 400.0 if k else None,
    }
    for k in (0, 1)
]


def test_rails_with_line_rate_and_tcp_bytes() -> None:
    totals = {"sent_bytes_per_node": 50 << 20, "least_bytes_per_node": 25 << 20}
    found = smoke.lines(result(transport="rc", rails=RAILS, **totals))
    head, first, second, total = found[5:9]
    assert " ".join(head.split()) == "rail sent by RDMA mean line rate own allreduce sent by TCP"
    assert " ".join(first.split()) == "rail0 5 MiB 12 Mb/s not known none not counted"
    own = "384 KiB (3 of 4 nodes)"
    assert " ".join(second.split()) == f"rail1 45 MiB 30.01 Gb/s 400 Gb/s {own} 100 B"
    assert len(head) == len(first) == len(second)
    assert total == "  each of 4 nodes sent 50 MiB or more; at least 25 MiB are expected"
    plain = smoke.lines(result(rails=RAILS, **totals))
    assert "RDMA" not in "".join(plain)
