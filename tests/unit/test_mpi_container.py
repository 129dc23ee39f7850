# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ranks in containers: command lines of engines, and refusals before the start.

Stand-ins of engines start the program on this machine, with the options that the real ones take."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.job import plan, run
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.launch import container
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.launch.container import (
    ENGINES,
    Container,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.launch.launcher import (
    HYDRA,
    OPEN_MPI,
    Launcher,
    Srun,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.launch.node import LaunchNode

IMAGE = "/images/train.sif"
NODES = (LaunchNode("node01", 2, ("rail0",)), LaunchNode("node02", 2, ("rail0",)))
ENGINE = r"""#!/bin/sh
# {name}: a stand-in that starts the words after the image, like the engine on this machine.
echo "$@" >> {log}
while [ "$1" != {image} ]; do shift; done
shift
{more}
exec "$@"
"""
GOLDEN = Path(__file__).parent / "golden/containers.txt"


class Nodes:
    """Nodes that run scripts of the launcher with their own programs on the path."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.hosts = folder, ("node01", "node02")
        self.variables = {"UCX_TLS": "tcp,sm,self"}
        for host in self.hosts:
            (folder / host).mkdir()
            self.program(host, "ompi_info", "echo 'Open MPI v4.1.4'")
            self.program(host, "ucx_info", "echo '# Library version: 1.13.1'")
            self.program(host, "train", "true")

    def program(self, host: str, name: str, text: str) -> None:
        path = self.folder / host / name
        path.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n", "utf-8")
        path.chmod(0o755)

    def engine(self, name: str, *hosts: str, more: str = "") -> None:
        for host in hosts or self.hosts:
            log = self.folder / f"{host}.log"
            self.program(host, name, ENGINE.format(name=name, log=log, image=IMAGE, more=more))

    def __call__(self, argv: Sequence[str], **_more: Any) -> Result:
        [host] = [word for word in argv if word in self.hosts]
        path = f"{self.folder / host}:/usr/bin:/bin"
        done = subprocess.run(
            ["/bin/sh", "-c", argv[-1]],
            env={**self.variables, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        return Result(tuple(argv), done.returncode, done.stdout, done.stderr)

    def ready(
        self, launcher: Launcher = OPEN_MPI, rdma: bool = False, **given: Any
    ) -> tuple[Container, Any]:
        return container.ready(
            Container(IMAGE, **given),
            launcher,
            self,
            "mpi",
            NODES,
            program="train",
            work_directory="/tmp",
            rdma=rdma,
        )


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    return Nodes(tmp_path)


def codes(nodes: Nodes, *given: Any, **more: Any) -> dict[str, str]:
    """Codes of the reasons by host for which nothing is started."""
    with pytest.raises(PlanError) as caught:
        nodes.ready(*given, **more)
    refused = caught.value.args[0]
    assert refused.code == "job.container_not_ready"
    return {host: reason.code for host, reason in refused.values["reasons"].items()}


def test_the_first_engine_of_all_nodes_is_chosen(nodes: Nodes) -> None:
    nodes.engine("apptainer", "node01")
    nodes.engine("podman")
    chosen, told = nodes.ready()
    assert chosen.engine == told.values["engine"] == "podman"
    assert told.values["versions"] == "Open MPI 4.1.4, UCX 1.13.1"
    assert codes(nodes, engine="apptainer") == {"node02": "container.engine"}
    assert codes(nodes, engine="enroot") == dict.fromkeys(nodes.hosts, "container.engine")


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_starts_the_program(nodes: Nodes, engine: str) -> None:
    nodes.engine(engine)
    assert nodes.ready(mounts=("/srv/data", "/tmp"))[0].engine == engine
    words = (nodes.folder / "node01.log").read_text("utf-8").split("\n")[0].split()
    mounted = {word.partition(":")[0].rpartition("=")[2] for word in words}
    assert {"/srv/data", "/tmp"} <= mounted


@pytest.mark.parametrize(
    ("program", "text", "code"),
    [
        ("ompi_info", "echo 'Open MPI v5.0.5'", "mpi"),
        ("ompi_info", "exit 127", "mpi"),
        ("ucx_info", "echo '# UCT version=1.10.0'; echo '# Version 1.10.0'", "ucx"),
        ("ucx_info", "exit 127", "ucx"),
        ("apptainer", "exit 255", "not_started"),
    ],
)
def test_an_unsuited_image_is_refused(nodes: Nodes, program: str, text: str, code: str) -> None:
    nodes.engine("apptainer")
    for host in nodes.hosts:
        nodes.program(host, program, text)
    assert codes(nodes) == dict.fromkeys(nodes.hosts, f"container.{code}")


def test_an_image_without_the_program_is_refused(nodes: Nodes) -> None:
    nodes.engine("apptainer")
    (nodes.folder / "node02/train").unlink()
    assert codes(nodes) == {"node02": "container.program"}


def test_nodes_with_another_image_are_refused(nodes: Nodes) -> None:
    nodes.engine("apptainer")
    nodes.program("node02", "ucx_info", "echo '# Library version: 1.17.0'")
    assert codes(nodes) == {"node02": "container.other_image"}


def test_an_engine_that_hides_the_environment_is_refused(nodes: Nodes) -> None:
    nodes.engine("apptainer", more="unset UCX_TLS")
    assert codes(nodes) == dict.fromkeys(nodes.hosts, "container.environment")


def test_slurm_starts_other_versions_of_open_mpi(nodes: Nodes) -> None:
    nodes.engine("apptainer")
    for host in nodes.hosts:
        nodes.program(host, "ompi_info", "echo 'Open MPI v5.0.5'")
    assert nodes.ready(Srun())[1].values["versions"] == "Open MPI 5.0.5, UCX 1.13.1"
    with pytest.raises(PlanError) as caught:
        nodes.ready(HYDRA)
    assert getattr(caught.value.args[0], "code", "") == "job.container_launcher"


REPORT = {
    "inside": ["unlimited rc"],
    "outside": ["unlimited rc"],
    "mpi": ["4.1.7"],
    "ucx": ["1.19.0"],
    "reachability": ["all"],
    "device": ["/dev/infiniband/uverbs0"],
    "seen": ["/dev/infiniband/uverbs0"],
    "problem": [],
    "failed": [],
}


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({}, ""),
        ({"seen": []}, "container.device"),
        ({"inside": ["64 rc"]}, "container.memlock"),
        ({"inside": ["64 rc"], "outside": ["64 rc"]}, "container.memlock"),
        ({"reachability": ["none"]}, "container.routes"),
        ({"reachability": ["none"], "ucx": ["1.18.1"]}, ""),
        ({"inside": [], "failed": ["137"]}, "container.not_started"),
    ],
)
def test_rdma_needs_devices_memory_and_variables(changed: dict[str, Any], code: str) -> None:
    found = container._obstacle({**REPORT, **changed}, OPEN_MPI, rdma=True)
    assert getattr(found, "code", "") == code


@pytest.mark.parametrize("image", ["-v", "a b", "x;reboot", "$(id)", "", "a" * 600, "{{ x }}"])
def test_an_image_is_one_plain_word(image: str) -> None:
    with pytest.raises(PlanError) as caught:
        Container(image)
    assert getattr(caught.value.args[0], "code", "") == "job.container_image"


@pytest.mark.parametrize("path", ["data", "/a:/b", "/a b", "/a,ro"])
def test_a_mount_is_a_directory(path: str) -> None:
    with pytest.raises(PlanError, match="mpi_job_container_mounts"):
        Container(IMAGE, mounts=(path,))


def a_job(folder: Path, **given: Any) -> plan.Job:
    base = plan.Job(
        nodes=NODES,
        program=("train", "--steps", "it's"),
        user="mpi",
        run_id="0123456789ab",
        directory=Path("/jobs/1"),
        hostfile=folder / "hostfile",
        environment={"OMP_NUM_THREADS": "1"},
        container=Container(IMAGE, "apptainer", ("/mnt/checkpoints",)),
    )
    return replace(base, **given)


def test_a_job_starts_the_image_before_its_ranks(nodes: Nodes) -> None:
    nodes.engine("singularity")
    job = a_job(nodes.folder, container=Container(IMAGE, "", ("/srv",)), work_directory="/tmp")
    told: list[str] = []
    chosen = run._contained(job, NODES, "/mnt/checkpoints", nodes, told.append)
    assert chosen.container == Container(
        IMAGE, "singularity", ("/tmp", "/mnt/checkpoints", "/srv"), rdma=False
    )
    assert len(told) == 1
    on_nodes = replace(job, container=None)
    assert run._contained(on_nodes, NODES, "", nodes, told.append) is on_nodes


def test_command_lines(tmp_path: Path) -> None:
    """Every engine with mpirun, and one with srun."""
    cases: dict[str, dict[str, Any]] = {
        engine: {"container": Container(IMAGE, engine, ("/mnt/checkpoints",))} for engine in ENGINES
    }
    nvidia = replace(cases["podman"]["container"], rdma=True, nvidia=True)
    cases["podman, GPUs"] = {"container": nvidia}
    cases["apptainer, GPUs"] = {"container": replace(nvidia, engine="apptainer")}
    cases["srun"] = {"launcher": Srun()}
    shown = []
    for name, given in cases.items():
        words = a_job(tmp_path, **given).command(NODES)
        shown.append(f"== {name}\n" + "\n".join(map(shlex.quote, words)))
    text = "\n".join(shown) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


def test_variables_that_select_programs_are_refused(tmp_path: Path) -> None:
    for name in plan.SEARCHED:
        with pytest.raises(PlanError, match="mpi_job_environment"):
            a_job(tmp_path, environment={name: "/x"})
    assert a_job(tmp_path, program=("python3", "/srv/x.py")).script_of_program == ""


def test_enroot_passes_variables_of_ranks_only(tmp_path: Path) -> None:
    fake = tmp_path / "enroot"
    fake.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n', encoding="utf-8")
    fake.chmod(0o755)
    one = Container("train.sqsh", "enroot", ("/srv/data",))
    words = [*one.prefix("/work", ["OMP_NUM_THREADS"]), "train", "a b"]
    environment = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "UCX_TLS": "rc",
        "PMIX_RANK": "1",
        "OMP_NUM_THREADS": "2",
        "OMP_OTHER": "3",
        "OPAL_PREFIX": "/opt/hpcx",
        "SECRET": "UCX_X=1\nUCX_FAKE=2",
    }
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    given = done.stdout.splitlines()
    at = given.index("--")
    assert given[at:] == ["--", "train.sqsh", "env", "--chdir=/work", "train", "a b"]
    assert given[0] == "start" and given[1:5] == [
        "--mount",
        "/tmp:/tmp",
        "--mount",
        "/srv/data:/srv/data",
    ]
    names = given[6:at:2]
    assert {"UCX_TLS", "PMIX_RANK", "OMP_NUM_THREADS"} <= set(names)
    assert not {"OMP_OTHER", "OPAL_PREFIX", "SECRET", "PATH"} & set(names)
    assert all(re.fullmatch(r"[A-Z_]+", name) for name in names)
