"""Files that the module plans."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import run
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.files import HEADER
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import Node, PlanError
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


def planned(folder: Path, **changes: Any) -> dict[str, str | None]:
    defaults = {name: of.get("default") for name, of in mpi_hostfile.ARGUMENTS.items()}
    places = {"path": "/hostfile", "rankfile_path": "/rankfile", "rankmap_path": "/rankmap"}
    given = {"directory": [NODE], "numa_cores": {"0": "0-3"}, **places, **changes}
    arguments = {**defaults, **given}
    plan = mpi_hostfile.Hostfile(arguments).plan(Node("hostfile", folder, run, None, "b"))
    return {each.path.name: each.after for each in plan.files}


def test_rank_placement_is_written_when_asked_for(tmp_path: Path) -> None:
    assert list(planned(tmp_path)) == ["hostfile"]
    both = planned(tmp_path, rankfile=True, rankmap=True)
    assert (both["rankfile"] or "").endswith("rank 0=node01 slot=0-3\n")
    assert (both["rankmap"] or "").endswith("0 node01 0 0 rail0\n")


def test_only_own_stale_rankfiles_are_removed(tmp_path: Path) -> None:
    (tmp_path / "rankfile").write_text(f"# {HEADER}\nrank 0=node09 slot=0\n")
    (tmp_path / "rankmap").write_text("mine\n")
    plans = planned(tmp_path)
    assert plans["rankfile"] is None
    assert "rankmap" not in plans


def test_a_rankfile_for_another_mpi_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="the format is mpich"):
        planned(tmp_path, rankfile=True, format="mpich")
