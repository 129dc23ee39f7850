# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The distribution's slurmctld reads the files of a model, and reports what the model says."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import OK
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.launch import slurm
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.launch.launcher import Srun
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.slurm import compare, conf, texts
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.slurm.cluster import SlurmCluster
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.slurm.state import (
    SlurmError,
    parse_config,
    parse_nodes,
    parse_topology,
    parse_version,
)

from tests.unit import slurm_controller
from tests.unit.slurm_cluster import cluster, mixed
from tests.unit.slurm_controller import Controller, main_lines, prepared, started

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(slurm_controller.MISSING),
        reason=f"not installed: {', '.join(slurm_controller.MISSING)} (requirements/apt-test.txt)",
    ),
]
USER = pwd.getpwuid(os.getuid()).pw_name
LARGE = "examples/superpod-b300-16su"
"""1,024 nodes in 32 leaf sets and 16 units."""


@pytest.fixture(scope="module")
def controller() -> Iterator[Controller]:
    with prepared() as controller:
        yield controller


def settings(controller: Controller) -> texts.Settings:
    version = parse_version(controller.run("slurmctld", "-V"))
    assert version is not None
    return texts.Settings(version, reboot_program="/sbin/reboot", prolog="/bin/true")


def differences(made: SlurmCluster, controller: Controller, given: texts.Settings) -> list[str]:
    """Checks that are not good, except that no node runs."""
    nodes = parse_nodes(controller.scontrol("--oneliner", "show", "node"))
    topology = parse_topology(controller.scontrol("show", "topology"))
    config = parse_config(controller.scontrol("show", "config"))
    checks = [
        *compare.nodes(made.nodes, nodes),
        *compare.topology(made, topology),
        *compare.config(texts.wanted(made, given), config),
        *compare.strangers(made, nodes),
    ]
    assert len(checks) > 4 * len(made.nodes)
    return [check.line() for check in checks if check.status != OK and check.name != "slurm_state"]


@pytest.mark.parametrize("name", ["mixed", "b300", "examples/unequal-pods", LARGE])
def test_slurmctld_reports_the_model(name: str, controller: Controller) -> None:
    made = mixed() if name == "mixed" else cluster(name)
    made = replace(made, nodes=(replace(made.nodes[0], drained=True), *made.nodes[1:]))
    given = settings(controller)
    lines = [*main_lines(controller), *texts.include_lines()]
    with started(controller, texts.texts(made, given), lines):
        assert differences(made, controller, given) == []
        first = made.nodes[0].name
        reasons = controller.run("sinfo", "-R", "--noheader", f"--nodes={first}", "--format=%N %E")
        assert reasons.strip() == f"{first} {texts.MODEL_DRAIN}"


def test_a_wrong_file_is_seen(controller: Controller) -> None:
    made, given = cluster("b300"), settings(controller)
    files = texts.texts(made, given)
    changed = {
        **files,
        texts.NODES: files[texts.NODES].replace("RealMemory=2063000", "RealMemory=1000", 1),
        texts.TOPOLOGY_CONF: files.get(texts.TOPOLOGY_CONF, "").replace("set01", "set99"),
    }
    lines = [*main_lines(controller), *texts.include_lines()]
    with started(controller, changed, lines):
        found = differences(made, controller, given)
    words = sorted({line.partition(":")[0] for line in found})
    assert words == [
        *("slurm_node node01", "slurm_node node02"),
        *("slurm_topology set01", "slurm_topology set99"),
    ]


def test_slurmctld_keeps_the_reason_of_a_job_that_waited(controller: Controller) -> None:
    made, given = cluster("b300"), settings(controller)
    lines = [*main_lines(controller), *texts.include_lines()]
    ours = "--job-name=baremetal-mpi-0123456789ab"
    words = ["salloc", "--immediate=2", "--nodes=1", "--nodelist=node01", ours, "true"]

    def here(argv: Sequence[str], **_more: Any) -> Result:
        env = controller.environment
        done = subprocess.run(["sh", "-c", argv[-1]], env=env, capture_output=True, text=True)
        return Result(tuple(argv), done.returncode, done.stdout, done.stderr)

    with started(controller, texts.texts(made, given), lines):
        waited = subprocess.run(words, env=controller.environment, capture_output=True, text=True)
        found = slurm.scheduler_reason(here, USER, Srun(), "0123456789ab", waited.stderr)
    assert found.code == "slurm.pending", (waited.stderr, found)
    assert found.values["reason"].startswith("ReqNodeNotAvail")


def test_a_model_without_nodes_is_refused(controller: Controller) -> None:
    with pytest.raises(SlurmError, match="no compute nodes"):
        texts.texts(replace(cluster("b300"), nodes=()), settings(controller))


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("NodeName=node01 CPUs=4", "NodeName"),
        ("PartitionName=all Nodes=node01", "PartitionName"),
    ],
)
def test_fatal_contradictions_are_those_of_slurmctld(
    line: str, key: str, controller: Controller
) -> None:
    made, given = cluster("b300"), settings(controller)
    files, include = texts.texts(made, given), texts.include_lines()
    found = compare.contradictions(made, given, conf.parse(line))
    assert [(each.key, each.fatal) for each in found] == [(key, True)]
    with (
        pytest.raises(AssertionError, match=r"fatal: .*[Dd]uplicate"),
        started(controller, files, [*main_lines(controller), line, *include]),
    ):
        pass
