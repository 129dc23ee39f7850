"""The module's own part: which files it plans, and what it says of those on the disk."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import FAILED, OK
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.files import HEADER
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi import hostfile
from ansible_collections.baremetal.mpi_roce.plugins.modules import mpi_hostfile

NODE = {
    "name": "node01",
    "role": "compute",
    "management_address": "10.10.0.11",
    "rack": "r1",
    "slots": 1,
    "gpus": 1,
    "drained": False,
    "rails": [{"interface": "rail0", "gpu": 0, "numa": 0}],
}


def arguments(folder: Path, **changes: Any) -> dict[str, Any]:
    return {
        "path": str(folder / "hostfile"),
        "format": "openmpi",
        "rankfile": False,
        "rankfile_path": str(folder / "rankfile"),
        "rankfile_cores": "divided",
        "numa_cores": {"0": "0-3"},
        "rankmap": False,
        "rankmap_path": str(folder / "rankmap"),
        **changes,
    }


def planned(folder: Path, **changes: Any) -> dict[str, str | None]:
    membership = hostfile.compile_membership([NODE])
    plans = mpi_hostfile.plan(membership, membership.hostfile(True), arguments(folder, **changes))
    return {plan.path.name: plan.after for plan in plans}


def test_rank_placement_is_written_when_asked_for(tmp_path: Path) -> None:
    assert list(planned(tmp_path)) == ["hostfile"]
    both = planned(tmp_path, rankfile=True, rankmap=True)
    assert (both["rankfile"] or "").endswith("rank 0=node01 slot=0-3\n")
    assert (both["rankmap"] or "").endswith("0 node01 0 0 rail0\n")


def test_a_stale_rankfile_of_ours_goes_and_an_operators_stays(tmp_path: Path) -> None:
    (tmp_path / "rankfile").write_text(f"# {HEADER}\nrank 0=node09 slot=0\n")
    (tmp_path / "rankmap").write_text("mine\n")
    plans = planned(tmp_path)
    assert plans["rankfile"] is None
    assert "rankmap" not in plans


def test_a_rankfile_for_another_mpi_is_refused(tmp_path: Path) -> None:
    with pytest.raises(hostfile.HostfileError, match="the format is mpich"):
        planned(tmp_path, rankfile=True, format="mpich")


def test_what_is_on_the_disk_is_read_back(tmp_path: Path) -> None:
    membership = hostfile.compile_membership([NODE])
    wanted = membership.hostfile(True)
    (root,) = mpi_hostfile.plan(membership, wanted, arguments(tmp_path))
    plans = [replace(root, uid=os.getuid(), gid=os.getgid())]

    def statuses() -> list[tuple[str, Any]]:
        checks = mpi_hostfile.read_back(plans, wanted, "openmpi", False)
        return [(check.status, check.found) for check in checks]

    assert statuses() == [(FAILED, "different"), (FAILED, "no hostfile")]
    target = tmp_path / "hostfile"
    target.write_text("node01:8\n")
    assert statuses()[1] == (FAILED, "line 1: 'node01:8' is not of the format openmpi")
    plans[0].apply()
    assert statuses() == [(OK, "as the model says"), (OK, 1)]
