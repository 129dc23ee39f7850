# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ranks in containers: mpirun or srun on the host starts each rank by a container engine.

The image's MPI and UCX communicate, with the variables, devices and limits of the node; mpirun's
daemon or Slurm serves PMIx to them. Every rank has a container, in the namespaces of the host.

Command lines: apptainer.org/docs/user/main/mpi.html ("hybrid model"), podman.io/blogs/2019/09/26/
podman-in-hpc, doc/cmd/start.md of NVIDIA/enroot.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...core.commands import Runner
from ...core.messages import message
from ...core.part import PlanError
from ...core.text import some
from . import hosts
from .launcher import Launcher, OpenMpi
from .node import LaunchNode
from .readiness import by_reason

ENGINES = ("apptainer", "singularity", "enroot", "podman")
"""In the order in which they are chosen."""
OF_HOST = (
    *("OPAL_PREFIX", "PMIX_INSTALL_PREFIX", "MPI_HOME"),
    *("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH"),
)
"""Variables that would lead the image's programs to directories of the host's MPI."""
PASSED = ("UCX", "OMPI", "PMIX", "PRTE", "NCCL", "GLOO", "MPI_ROCE", "CLUSTER", "SLURM")
"""Beginnings of the variables that ranks get from mpirun's daemon, from srun and from mpi.env."""
SESSIONS = "/tmp"
"""Where mpirun's daemon and its ranks share files; /dev/shm is that of the host as well."""
CHECK_S = 120
"""Seconds within which a container must start on every node."""
MAX_VERSION = 40
OLDEST_UCX = (1, 13)
"""The oldest UCX whose variables are verified (module_utils/qos.py)."""
SEES_ROUTES = (1, 19)
"""Since then, UCX needs REACHABILITY (mpi/environment.py)."""
REACHABILITY = "UCX_IB_ROCE_REACHABILITY_MODE"
MAJOR = "4"
"""Of Open MPI, to whose ranks mpirun's daemon of version 4 serves PMIx."""

_IMAGE = re.compile(r"[A-Za-z0-9/][A-Za-z0-9._/:@+#%=-]{0,511}")
_DIRECTORY = re.compile(r"/[A-Za-z0-9._/+@=-]{0,255}")

ENROOT = r"""#!/bin/sh
# Start a rank by enroot, which passes only named variables. $1 image, $2 their pattern, $3 how many
# words of mounts follow; then the program.
image=$1 pattern=$2 count=$3
shift 3
names=$(env | sed -n "s/^\($pattern\)=.*/\1/p")
index=0
for word in "$@"; do
  [ "$index" -gt 0 ] || set --
  index=$((index + 1))
  if [ "$index" -le "$count" ]; then set -- "$@" "$word"; fi
  [ "$index" -ne "$count" ] || for name in $names; do set -- "$@" --env "$name"; done
  [ "$index" -ne "$count" ] || set -- "$@" -- "$image"
  if [ "$index" -gt "$count" ]; then set -- "$@" "$word"; fi
done
exec enroot start "$@"
"""

ENGINE_READY = r"""#!/bin/sh
# Report the engines of this node, of those in the arguments, and whether it has an NVIDIA driver.
for engine in "$@"; do
  if command -v "$engine" >/dev/null; then echo "mpi-ready engine $engine"; fi
done
if [ -e /dev/nvidiactl ]; then echo "mpi-ready nvidia yes"; fi
"""

START_READY = r"""#!/bin/sh
# Start a container as a rank does, within $1 s, with the variables of the node. $2 is the script
# inside, $3 the program; then the engine's words.
limit=$1 inside=$2 program=$3
shift 3
profile=/etc/profile.d/baremetal-mpi-roce.sh
# shellcheck source=/dev/null
if [ -r "$profile" ]; then . "$profile"; fi
locked=$(sed -n 's/^Max locked memory *\([^ ]*\).*/\1/p' /proc/self/limits)
echo "mpi-ready outside $locked ${UCX_TLS:-none}"
for device in /dev/infiniband/uverbs*; do
  if [ -e "$device" ]; then echo "mpi-ready device $device"; fi
done
timeout -s KILL "$limit" "$@" /bin/sh -c "$inside" sh "$program" 2>&1 || echo "mpi-ready failed $?"
"""

INSIDE = r"""#!/bin/sh
# What a rank finds in the image; runs there. $1 is the program.
locked=$(sed -n 's/^Max locked memory *\([^ ]*\).*/\1/p' /proc/self/limits)
echo "mpi-ready inside $locked ${UCX_TLS:-none}"
echo "mpi-ready mpi $(ompi_info --version 2>/dev/null | sed -n '1s/.* v\{0,1\}//p')"
echo "mpi-ready ucx $(ucx_info -v 2>/dev/null |
  sed -n 's/^# *\(Library v\|V\)ersion:\{0,1\} *\([0-9.]*\).*/\2/p' | head -n 1)"
echo "mpi-ready reachability ${UCX_IB_ROCE_REACHABILITY_MODE:-none}"
for device in /dev/infiniband/uverbs*; do
  if [ -e "$device" ]; then echo "mpi-ready seen $device"; fi
done
command -v -- "$1" >/dev/null || echo "mpi-ready problem the image has no program $1"
"""


@dataclass(frozen=True)
class Container:
    image: str
    """A path on every node, or an image that the engine of every node has or fetches."""
    engine: str = ""
    """One of ENGINES; empty for the first one that every node has."""
    mounts: tuple[str, ...] = ()
    """Directories of the host, at the same place in the image."""
    rdma: bool = False
    nvidia: bool = False
    """Whether nodes have RDMA devices, and the driver of NVIDIA's GPUs."""

    def __post_init__(self) -> None:
        if not _IMAGE.fullmatch(self.image):
            raise PlanError(
                message(
                    "job.container_image",
                    "mpi_job_container: {image!r} is neither a path nor an image: write "
                    "/images/NAME.sif, or docker://REGISTRY/NAME:TAG",
                    image=self.image[:80],
                )
            )
        wrong = [path for path in self.mounts if not _DIRECTORY.fullmatch(path)]
        if wrong:
            raise PlanError(
                f"mpi_job_container_mounts: {some(wrong, 3)}: give absolute directories"
            )

    @property
    def directories(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([SESSIONS, *self.mounts]))

    def prefix(self, work_directory: str, exported: Sequence[str] = ()) -> list[str]:
        """The words before the program of a rank. `exported`: names of the job's variables."""
        without = [word for name in OF_HOST for word in ("-u", name)]
        words = {
            "podman": self._podman,
            "enroot": self._enroot,
        }.get(self.engine, self._apptainer)
        return ["env", *without, *words(work_directory, exported)]

    def _apptainer(self, work_directory: str, _exported: Sequence[str]) -> list[str]:
        """It passes variables and mounts /dev, /proc, /sys and /tmp by default."""
        binds = [word for path in self.directories for word in ("--bind", path)]
        nvidia = ["--nv"] if self.nvidia else []
        name = self.engine or ENGINES[0]
        return [name, "exec", *nvidia, *binds, "--pwd", work_directory, self.image]

    def _podman(self, work_directory: str, exported: Sequence[str]) -> list[str]:
        """Limits are those of the rank, except nofile and nproc (containers.conf)."""
        words = ["podman", "run", "--rm", "--userns=keep-id", "--security-opt=label=disable"]
        words += [f"--{space}=host" for space in ("network", "pid", "ipc", "uts", "cgroupns")]
        words += ["--device=/dev/infiniband"] if self.rdma else []
        words += [f"--volume={path}:{path}" for path in self.directories]
        words += [f"--env={begin}_*" for begin in PASSED] + [f"--env={name}" for name in exported]
        words += ["--device=nvidia.com/gpu=all"] if self.nvidia else []
        return [*words, f"--workdir={work_directory}", "--entrypoint=", self.image]

    def _enroot(self, work_directory: str, exported: Sequence[str]) -> list[str]:
        """The command script of the image changes to no directory: `env --chdir` does."""
        names = [rf"{begin}_[A-Za-z0-9_]*" for begin in PASSED] + [*exported]
        mounts = [word for path in self.directories for word in ("--mount", f"{path}:{path}")]
        words = ["sh", "-c", ENROOT, "sh", self.image, r"\|".join(names), str(len(mounts))]
        return [*words, *mounts, "env", f"--chdir={work_directory}"]


def suited(launcher: Launcher) -> None:
    """Raise PlanError for a launcher that starts no ranks in containers."""
    if not isinstance(launcher, OpenMpi):
        raise PlanError(
            message(
                "job.container_launcher",
                "mpi_job_container needs Open MPI, but software.mpi.provider selects {name}",
                name=launcher.name,
            )
        )


def ready(
    wanted: Container,
    launcher: Launcher,
    run: Runner,
    user: str,
    nodes: Sequence[LaunchNode],
    *,
    program: str,
    work_directory: str,
    rdma: bool,
) -> tuple[Container, str]:
    """The container with its engine, and the versions in the image. Starts one on every node.

    Raises PlanError, listing the nodes that cannot start it and the reason.
    """
    suited(launcher)
    script = [hosts.remote(ENGINE_READY, ENGINES)]
    reports, problems = _reports(run, user, nodes, script)
    found = {host: report["engine"] for host, report in reports.items()}
    engine = wanted.engine or next(
        (each for each in ENGINES if found and all(each in has for has in found.values())), ""
    )
    for host, has in found.items():
        if not engine or engine not in has:
            problems[host] = message(
                "container.engine",
                "no engine that every node has ({wanted}); it has {has}",
                wanted=engine or ", ".join(ENGINES),
                has=some(has),
            )
    _refuse(problems, nodes)
    nvidia = any(report["nvidia"] for report in reports.values())
    chosen = replace(wanted, engine=engine, rdma=rdma, nvidia=nvidia)
    words = [str(CHECK_S), INSIDE, program, *chosen.prefix(work_directory)]
    reports, problems = _reports(run, user, nodes, [hosts.remote(START_READY, words)])
    versions = {host: _versions(report) for host, report in reports.items()}
    usual = Counter(versions.values()).most_common(1)
    for host, report in reports.items():
        reason = _obstacle(report, launcher, rdma)
        if not reason and versions[host] != usual[0][0]:
            reason = message(
                "container.other_image",
                "its image has {found}, that of most nodes {usual}",
                found=versions[host],
                usual=usual[0][0],
            )
        if reason:
            problems[host] = reason
    _refuse(problems, nodes)
    return chosen, message(
        "container.ready",
        "{engine}: {image} with {versions}",
        engine=engine,
        image=wanted.image,
        versions=usual[0][0],
    )


def _reports(
    run: Runner, user: str, nodes: Sequence[LaunchNode], script: Sequence[str]
) -> tuple[dict[str, dict[str, list[str]]], dict[str, str]]:
    answers = hosts.ask_all(run, user, {node.host: script for node in nodes})
    reports = {
        host: hosts.report(result.stdout) for host, (result, _why) in answers.items() if result
    }
    return reports, {host: why for host, (result, why) in answers.items() if result is None}


def _refuse(problems: Mapping[str, str], nodes: Sequence[LaunchNode]) -> None:
    if problems:
        listed = "\n  ".join(f"{names}: {why}" for names, why in by_reason(problems).items())
        count = f"{len(problems)} of {len(nodes)} nodes"
        raise PlanError(
            message(
                "job.container_not_ready",
                "{count} cannot run the image:\n  {listed}",
                count=count,
                listed=listed,
                reasons=dict(problems),
            )
        )


def _first(report: Mapping[str, Sequence[str]], key: str) -> str:
    return next(iter(report[key]), "")[:MAX_VERSION]


def _versions(report: Mapping[str, Sequence[str]]) -> str:
    return f"Open MPI {_first(report, 'mpi') or '-'}, UCX {_first(report, 'ucx') or '-'}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"[0-9]{1,6}", version)[:2])


def _obstacle(report: Mapping[str, Sequence[str]], launcher: Launcher, rdma: bool) -> str:
    """Why a rank cannot run in the image on this node; empty if it can."""
    inside, outside = _first(report, "inside").split(), _first(report, "outside").split()
    if not inside:
        status = _first(report, "failed")
        return message(
            "container.not_started",
            "the engine did not start it: {why}",
            why=f"no answer within {CHECK_S} s" if status == "137" else f"exit status {status}",
        )
    mpi, ucx = _first(report, "mpi"), _first(report, "ucx")
    if report["problem"]:
        return message("container.program", "{problem}", problem=report["problem"][0])
    if not mpi or not (launcher.scheduled or mpi.startswith(f"{MAJOR}.")):
        return message(
            "container.mpi",
            "the image has Open MPI {version} (ompi_info); mpirun's daemon starts ranks of "
            "Open MPI {major} only, and Slurm those of any version",
            version=mpi or "in no version",
            major=MAJOR,
        )
    if _numbers(ucx) < OLDEST_UCX:
        return message(
            "container.ucx",
            "the image has UCX {version} (ucx_info); the environment needs {oldest} or later",
            version=ucx or "in no version",
            oldest=".".join(map(str, OLDEST_UCX)),
        )
    if inside[1:] != outside[1:]:
        return message(
            "container.environment",
            "UCX_TLS is {outside} on the node and {inside} in the container",
            outside=outside[-1],
            inside=inside[-1],
        )
    return _rdma_obstacle(report, inside[0], outside[0], ucx) if rdma else ""


def _rdma_obstacle(report: Mapping[str, Sequence[str]], inside: str, outside: str, ucx: str) -> str:
    lacking = sorted(set(report["device"]) - set(report["seen"]))
    if lacking:
        devices = some(lacking, 3)
        return message("container.device", "the container lacks {devices}", devices=devices)
    if inside != "unlimited":
        return message(
            "container.memlock",
            "memlock is {inside} in the container and {outside} on the node, not unlimited",
            inside=inside,
            outside=outside,
        )
    if _numbers(ucx) >= SEES_ROUTES and _first(report, "reachability") == "none":
        return message(
            "container.routes",
            "UCX {version} of the image needs mpi_stack_environment: {{{variable}: all}}",
            version=ucx,
            variable=REACHABILITY,
        )
    return ""
