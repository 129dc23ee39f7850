# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""ClusterMAX's auditor (`cmax audit`, PyPI package clustermax): what answers each of its checks,
and its verdicts next to the statuses of the last run.

The keys are those of `cmax audit --slurm --show` in the pinned version (requirements/audit.in).
docs/clustermax.md has the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..module_utils.core.checks import FAILED, NOT_APPLICABLE, OK, PENDING, REBOOT
from ..module_utils.core.text import columns, counted
from .answers import AnswerError, Form, mapping, sentence, sequence, shown
from .report.preflight import ranges

FAIL, WARNING, PASS, SKIPPED = "fail", "warning", "pass", "skipped"
VERDICTS = (FAIL, WARNING, PASS, SKIPPED)
MOST_VERDICTS = 500
KEY = Form("a name of a check of cmax", r"[A-Za-z][A-Za-z0-9_.-]{0,79}")
TARGET = Form("a target of cmax", r"slurm|standalone|container")
NOT_RUN = "not run"
SEVERITY = (FAILED, PENDING, REBOOT, NOT_APPLICABLE, OK)
"""Statuses of checks, the worst first."""

SITE = "not managed here"
GPU, NIC = "GPU", "RDMA NIC"
ABSENT = {GPU: "gpu.gpu_stack", NIC: "rdma.rdma_device"}
"""The check that is not applicable anywhere if no node has this hardware."""
NO_BLUEFIELD = "BlueField DPUs are not managed here"
X86 = "nodes are x86_64"
BARE = "nodes are bare metal of one tenant"


@dataclass(frozen=True)
class Answer:
    """What answers a check of cmax: `layer.check`, or a layer that has no check for it."""

    by: tuple[str, ...] = ()
    open: str = ""
    """What remains for the operator, or why nothing can answer."""
    needs: str = ""
    """GPU or NIC, if there is nothing to audit without."""


def _is(*by: str, open: str = "", needs: str = "") -> Answer:
    return Answer(by, open, needs)


ANSWERS: Mapping[str, Answer] = {
    "securityVersions.nvidiaDriver.status": _is("any.floor", "gpu.gpu_driver_version", needs=GPU),
    "securityVersions.nvidiaContainerToolkit.status": _is(
        "any.floor", open="it is installed by the operator", needs=GPU
    ),
    "securityVersions.cudaToolkit.status": _is("any.floor", "gpu.cuda_toolkit", needs=GPU),
    "securityVersions.runc.status": _is("any.floor", open="it is installed by the operator"),
    "securityVersions.docker.status": _is(open=f"Docker is {SITE}"),
    "securityVersions.connectxFirmware.status": _is("any.floor", "rdma.rdma_firmware", needs=NIC),
    "securityVersions.dcgm.status": _is("any.floor", needs=GPU),
    "securityVersions.dcgmExporter.status": _is(open=f"exporters are {SITE}", needs=GPU),
    "securityVersions.virtioNetBluefield.status": _is(open=NO_BLUEFIELD, needs=NIC),
    "securityVersions.virtioNetBluefield.exposure": _is(open=NO_BLUEFIELD, needs=NIC),
    "securityVersions.dpuHostIsolation.status": _is(open=NO_BLUEFIELD, needs=NIC),
    "security.januscape.status": _is(
        open="a kernel with the fix in `software.kernel`, or no nested virtualization"
    ),
    "security.guestKernel.newerInstalled": _is(
        "rdma.kernel_release",
        "rdma.packages_held",
        open="the kernel is held; another one needs a change of `software.kernel`",
    ),
    "security.fragnesia.status": _is(
        "rdma.kernel_release", open="a kernel with the fix in `software.kernel`"
    ),
    "bmc-ipmi": _is(open="isolate the network of the BMCs, and refuse /dev/ipmi* to users"),
    "ufm-profile": _is(open="InfiniBand only"),
    "pcie-passthrough": _is("rdma.iommu_group", "rdma.acs_redirect", open=BARE, needs=GPU),
    "nvlink-boundary": _is("gpu.gpu_fabric", "gpu.gpu_nvlinks", open=BARE, needs=GPU),
    "gpus.gdrcopy.installed": _is("gpu.package", "gpu.kernel_module", needs=GPU),
    "gpus.gpuDirectRdmaPath": _is("gpu.gpu_open_modules", "gpu.gpu_direct", needs=GPU),
    "gpus.gpuDirectRdmaPath.nvidiaPeermemLegacy": _is(
        "gpu.gpu_open_modules", "gpu.gpu_direct", needs=GPU
    ),
    "gpu_controls.vboost.allowed": _is(open="boost sliders are decided by the operator", needs=GPU),
    "hbm_memory_exposure.status": _is(open=X86),
    "vm_iommu.status": _is("rdma.iommu_group"),
    "arm_smmu_virtualization.status": _is(open=X86),
    "gpus.pcieAcs.enabled": _is("rdma.acs_redirect", "rdma.acs_boot", needs=GPU),
    "software.nvhpc.status": _is(open="the HPC SDK is installed by the operator", needs=GPU),
    "software.ncu.installed": _is("gpu.cuda_toolkit", open="part of the CUDA toolkit", needs=GPU),
    "software.ncu.profilingEnabled": _is(
        open="`NVreg_RestrictProfilingToAdminUsers=0` lets users read counters: decide it yourself",
        needs=GPU,
    ),
    "software.lmod.modulesStatus": _is(
        "mpi.mpi_modules", open="`mpi_stack_modules: true`, with lmod installed", needs=GPU
    ),
    "software.cudaVisibleDevicesStatus": _is("slurm.slurm_gres"),
    "software.nccl.installed": _is("gpu.package", needs=GPU),
    "software.perf.installed": _is("os"),
    "software.perf.perfEventParanoid": _is(
        "os.sysctl", open="`os_baseline_extra_sysctls: {kernel.perf_event_paranoid: 1}`"
    ),
    "software.perf.kptrRestrict": _is(
        "os.sysctl", open="`os_baseline_extra_sysctls: {kernel.kptr_restrict: 0}`"
    ),
    "containers.nvidiaContainerToolkit": _is(open=f"container runtimes are {SITE}", needs=GPU),
    "containers.enroot": _is(open=f"container runtimes are {SITE}"),
    "containers.enrootImportWorks": _is(open="needs access to a registry"),
    "containers.dockerOnWorkers": _is(open=f"container runtimes are {SITE}"),
    "containers.singularity": _is(open=f"container runtimes are {SITE}"),
    "containers.workerCheckOk": _is("slurm.slurm_node", open="it needs a free node with GPUs"),
    "containers.pyxisRuntimeWorks": _is(open=f"container runtimes are {SITE}"),
    "kubelet_cpu_manager_policy.status": _is(open="Kubernetes only"),
    "slurm.accounting.sacctAvailable": _is(open="slurmdbd is installed by the operator"),
    "nccl_topo_file.status": _is("gpu.gpu_rail", open="only virtual machines need the file"),
    "nccl_ib_qps.status": _is("mpi.file", open="several leaf sets", needs=NIC),
    "networking.topologyConfigured": _is("slurm.slurm_topology"),
    "networking.hcaNamingValid": _is("rails.rail_rdma", "mpi.contract", needs=NIC),
    "networking.ncclAutoConfig": _is("mpi.nccl_file", "mpi.file"),
    "storage.rwxStatus": _is("storage.storage_neighbour", open="Kubernetes only"),
    "healthChecks.nhcInstalled": _is(
        "node_check.node_check", open="cmax looks for the program of mej/nhc"
    ),
    "healthChecks.monitoringStack.dcgmExporter": _is(open=f"exporters are {SITE}", needs=GPU),
    "healthChecks.dcgmInstalled": _is("gpu.package", "gpu.service", needs=GPU),
    "healthChecks.dcgmSlurm": _is(
        "node_check.node_check_slurm",
        open="cmax looks for `dcgm` in the name of the program",
        needs=GPU,
    ),
    "access.sudoAvailable": _is(
        "preflight.node_read", open="for the account of Ansible; the MPI user has no sudo"
    ),
    "access.userManagement": _is("ssh.account", open="other accounts are the site's"),
    "access.sshToComputeNodes": _is("ssh.ssh_login"),
    "access.externalIdp.detected": _is(open=f"identity providers are {SITE}"),
    "access.slurmCommandsOk": _is("slurm.slurm_controller"),
}


def page_rows() -> list[str]:
    """The rows of the table in docs/clustermax.md."""
    rows = ["| cmax | answered by | open |", "|---|---|---|"]
    for key, answer in ANSWERS.items():
        by = ", ".join(f"`{name}`" if "." in name else f"layer `{name}`" for name in answer.by)
        rows.append(f"| `{key}` | {by or '-'} | {answer.open} |".replace("|  |", "| |"))
    return rows


@dataclass(frozen=True)
class Verdict:
    """What cmax says about one check on one host."""

    key: str
    verdict: str
    observed: str = ""


def read(host: str, answer: Any) -> list[Verdict]:
    """Parse the verdicts of a host. Raises AnswerError."""
    rows = sequence(mapping(answer).get("verdicts"))
    if not 0 < len(rows) <= MOST_VERDICTS:
        raise AnswerError(f"{host}: {len(rows)} verdicts, not 1 to {MOST_VERDICTS}")
    found = []
    for row in map(mapping, rows):
        verdict = row.get("verdict")
        if verdict not in VERDICTS:
            raise AnswerError(f"{host}: a verdict is {shown(verdict)}, not one of {VERDICTS}")
        key = KEY.of(row.get("key"), f"{host}: key of a verdict")
        found.append(Verdict(key, verdict, sentence(row.get("observed"), 200)))
    return found


def ours(report: Any) -> dict[str, Counter[str]]:
    """Statuses of each check (`layer.check`) in a saved report of a run, over all hosts."""
    found: dict[str, Counter[str]] = {}
    for layer, of_layer in mapping(mapping(report).get("layers")).items():
        for of_host in mapping(mapping(of_layer).get("hosts")).values():
            for check in map(mapping, sequence(mapping(of_host).get("checks"))):
                name, status = check.get("name"), check.get("status")
                if isinstance(name, str) and status in SEVERITY:
                    for key in (f"{layer}.{name}", f"any.{name}"):
                        found.setdefault(key, Counter())[str(status)] += 1
    return found


def absent(statuses: Mapping[str, Counter[str]]) -> set[str]:
    """Hardware that no node has, as the last run found."""
    only = {NOT_APPLICABLE}
    return {what for what, name in ABSENT.items() if set(statuses.get(name, ())) == only}


def explanation(
    answer: Answer, statuses: Mapping[str, Counter[str]], missing: Collection[str]
) -> str:
    """Why a verdict says nothing about these hosts; empty if it does."""
    if answer.needs in missing:
        return f"no {answer.needs} here"
    known = {status for name in answer.by for status in statuses.get(name, ())}
    return "not applicable here" if known == {NOT_APPLICABLE} else ""


def own_verdict(answer: Answer, statuses: Mapping[str, Counter[str]]) -> str:
    """`rdma.acs_redirect ok, rdma.acs_boot not run`: the worst status of each check."""
    shown_of = []
    for name in answer.by:
        if "." not in name:
            shown_of.append(f"layer {name}")
            continue
        counts = statuses.get(name) or Counter()
        worst = [status for status in SEVERITY if counts[status]]
        shown_of.append(f"{name} {worst[0] if worst else NOT_RUN}")
    return ", ".join(shown_of) or "-"


def lines(
    verdicts: Mapping[str, Sequence[Verdict]], statuses: Mapping[str, Counter[str]], title: str
) -> list[str]:
    """A table of the checks that cmax could evaluate on any host, failures first."""
    by_check: dict[tuple[int, str], dict[str, list[str]]] = {}
    total: Counter[str] = Counter()
    for host, of_host in verdicts.items():
        for one in of_host:
            total[one.verdict] += 1
            if one.verdict != SKIPPED:
                place = (VERDICTS.index(one.verdict), one.key)
                by_check.setdefault(place, {}).setdefault(one.observed, []).append(host)
    missing = absent(statuses)
    rows, explained = [["verdict", "cmax", "on", "ours", "open"]], 0
    for (rank, key), observed in sorted(by_check.items()):
        answer = ANSWERS.get(key, Answer(open="not a check of the pinned version"))
        hosts = ranges([host for of_value in observed.values() for host in of_value])
        verdict = VERDICTS[rank]
        remaining = "" if verdict == PASS else answer.open.replace("`", "")
        cause = "" if verdict == PASS else explanation(answer, statuses, missing)
        remaining, explained = cause or remaining, explained + bool(cause)
        rows.append([verdict, key, hosts, own_verdict(answer, statuses), remaining])
    counts = ", ".join(f"{total[verdict]} {verdict}" for verdict in VERDICTS)
    head = f"{title}, {counted(len(verdicts), 'host')}: {counts}"
    head += f"; {explained} of the checks do not apply here" if explained else ""
    return [head, *(f"  {line.rstrip()}" for line in columns(rows, {0, 1, 2, 3, 4}))]


def as_report(
    verdicts: Mapping[str, Sequence[Verdict]], statuses: Mapping[str, Counter[str]]
) -> list[dict[str, Any]]:
    """Every check of cmax with its verdicts by host, and ours."""
    found: dict[str, dict[str, Any]] = {}
    for host, of_host in verdicts.items():
        for one in of_host:
            answer = ANSWERS.get(one.key, Answer())
            entry = found.setdefault(one.key, {**asdict(answer), "ours": {}, "hosts": {}})
            entry["ours"] = {name: dict(statuses.get(name, {})) for name in answer.by}
            entry["hosts"][host] = {"verdict": one.verdict, "observed": one.observed}
    return [{"key": key, **entry} for key, entry in found.items()]
