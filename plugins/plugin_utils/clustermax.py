# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""ClusterMAX's auditor (`cmax audit`, PyPI package clustermax): what answers each of its checks,
why a verdict is not `pass`, and the statuses of the last run next to it.

The keys are those of `cmax audit --slurm --show` in the pinned version (requirements/audit.in).
docs/clustermax.md has the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..module_utils.core.checks import FAILED, NOT_APPLICABLE, OK, PENDING, REBOOT
from ..module_utils.core.text import columns, counted
from .answers import AnswerError, Form, mapping, sentence, sequence, shown, whole
from .report.preflight import ranges

FAIL, WARNING, PASS, SKIPPED = "fail", "warning", "pass", "skipped"
VERDICTS = (FAIL, WARNING, PASS, SKIPPED)
MOST_VERDICTS = 500
KEY = Form("a name of a check of cmax", r"[A-Za-z][A-Za-z0-9_.-]{0,79}")
TARGET = Form("a target of cmax", r"slurm|standalone|container")
NOT_RUN = "not run"
SEVERITY = (FAILED, PENDING, REBOOT, NOT_APPLICABLE, OK)
"""Statuses of checks, the worst first."""

OPEN, POLICY, ANSWERED, EXPLAINED = "open", "policy", "answered", "explained"
CLASSES = (OPEN, POLICY, ANSWERED, EXPLAINED, PASS)
"""Why a verdict is not `pass`, in the order of the table. Skipped checks are not shown."""

GPU, NIC, HOST = "no GPU", "no RDMA NIC", "container"
CAUSES = {GPU: "no GPU here", NIC: "no RDMA NIC here", HOST: "of the host of this container"}
"""What nodes lack, as they read it themselves; the kernel of a container is its host's."""
MOST_DEVICES = 1 << 16
UNREAD = (
    "no compute node was read, so no verdict is explained: run without --limit, see failed hosts"
)

SITE = "not managed here"
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
    """GPU, NIC or HOST, if there is nothing to audit without."""
    unread: bool = False
    """Whether its lack explains only a value that cmax could not read."""
    settles: bool = False
    """Whether `by`, if all are ok, do what cmax looks for under another name."""
    policy: bool = False
    """Whether this collection decided against it; `open` is the reason."""


def _is(*by: str, open: str = "", needs: str = "", **more: bool) -> Answer:
    return Answer(by, open, needs, **more)


ANSWERS: Mapping[str, Answer] = {
    "securityVersions.nvidiaDriver.status": _is("any.floor", "gpu.gpu_driver_version", needs=GPU),
    "securityVersions.nvidiaContainerToolkit.status": _is(
        "any.floor", open="it is installed by the operator", needs=GPU
    ),
    "securityVersions.cudaToolkit.status": _is("any.floor", "gpu.cuda_toolkit", needs=GPU),
    "securityVersions.runc.status": _is(
        "any.floor", open="it is installed by the operator", needs=HOST, unread=True
    ),
    "securityVersions.docker.status": _is(open=f"Docker is {SITE}", needs=HOST, unread=True),
    "securityVersions.connectxFirmware.status": _is("any.floor", "rdma.rdma_firmware", needs=NIC),
    "securityVersions.dcgm.status": _is("any.floor", needs=GPU),
    "securityVersions.dcgmExporter.status": _is(open=f"exporters are {SITE}", needs=GPU),
    "securityVersions.virtioNetBluefield.status": _is(open=NO_BLUEFIELD, needs=NIC),
    "securityVersions.virtioNetBluefield.exposure": _is(open=NO_BLUEFIELD, needs=NIC),
    "securityVersions.dpuHostIsolation.status": _is(open=NO_BLUEFIELD, needs=NIC),
    "security.januscape.status": _is(
        open="a kernel with the fix in `software.kernel`, or no nested virtualization",
        needs=HOST,
    ),
    "security.guestKernel.newerInstalled": _is(
        "rdma.kernel_release",
        "rdma.packages_held",
        open="the kernel is held; another one needs a change of `software.kernel`",
        needs=HOST,
    ),
    "security.fragnesia.status": _is(
        "rdma.kernel_release", open="a kernel with the fix in `software.kernel`", needs=HOST
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
    "vm_iommu.status": _is("rdma.iommu_group", needs=HOST),
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
        "os.sysctl",
        open="`os_baseline_extra_sysctls: {kernel.perf_event_paranoid: 1}`",
        needs=HOST,
    ),
    "software.perf.kptrRestrict": _is(
        "os.sysctl",
        open="`os_baseline_extra_sysctls: {kernel.kptr_restrict: 0}`",
        needs=HOST,
    ),
    "containers.nvidiaContainerToolkit": _is(open=f"container runtimes are {SITE}", needs=GPU),
    "containers.enroot": _is(open="no distribution packages it: NVIDIA's releases"),
    "containers.enrootImportWorks": _is(open="needs access to a registry"),
    "containers.dockerOnWorkers": _is(
        open=f"Docker is {SITE}; whoever may use its daemon is root on the node"
    ),
    "containers.singularity": _is(
        open="`os_baseline_extra_packages: [apptainer]` (EPEL, Ubuntu 26.04) or "
        "`[singularity-container]` (Ubuntu 24.04)"
    ),
    "containers.workerCheckOk": _is("slurm.slurm_node", open="it needs a free node with GPUs"),
    "containers.pyxisRuntimeWorks": _is(
        open="no distribution packages it: build it for this Slurm, and install Enroot"
    ),
    "kubelet_cpu_manager_policy.status": _is(open="Kubernetes only"),
    "slurm.accounting.sacctAvailable": _is(open="slurmdbd is installed by the operator"),
    "nccl_topo_file.status": _is("gpu.gpu_rail", open="only virtual machines need the file"),
    "nccl_ib_qps.status": _is("mpi.file", open="several leaf sets", needs=NIC),
    "networking.topologyConfigured": _is("slurm.slurm_topology"),
    "networking.hcaNamingValid": _is("rails.rail_rdma", "mpi.contract", needs=NIC),
    "networking.ncclAutoConfig": _is("mpi.nccl_file", "mpi.file"),
    "storage.rwxStatus": _is("storage.storage_neighbour", open="Kubernetes only"),
    "healthChecks.nhcInstalled": _is(
        "node_check.node_check",
        "node_check.node_check_slurm",
        "slurm.slurm_config",
        open="cmax looks for the program of mej/nhc; HealthCheckProgram is `node-check`",
        settles=True,
    ),
    "healthChecks.monitoringStack.dcgmExporter": _is(open=f"exporters are {SITE}", needs=GPU),
    "healthChecks.dcgmInstalled": _is("gpu.package", "gpu.service", needs=GPU),
    "healthChecks.dcgmSlurm": _is(
        "node_check.node_check_slurm",
        open="cmax looks for `dcgm` in the name of the program",
        needs=GPU,
    ),
    "access.sudoAvailable": _is(
        open="accounts of jobs have no sudo; that of Ansible has", policy=True
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


def lacks(host: str, answer: Any) -> set[str]:
    """What a node lacks, as its module read it. Raises AnswerError."""
    node = mapping(answer)
    found = {
        what: whole(node.get(key), f"{host}: {key}", MOST_DEVICES)
        for what, key in ((GPU, "gpus"), (NIC, "rdma_nics"))
    }
    if not isinstance(node.get("container"), bool):
        raise AnswerError(f"{host}: container is {shown(node.get('container'))}, not a boolean")
    return {what for what, count in found.items() if not count} | (
        {HOST} if node["container"] else set()
    )


def missing(nodes: Sequence[Collection[str]]) -> set[str]:
    """What every node lacks; nothing if none was read."""
    return set(nodes[0]).intersection(*nodes[1:]) if nodes else set()


def classify(
    answer: Answer,
    observed: Collection[str],
    statuses: Mapping[str, Counter[str]],
    lacking: Collection[str],
) -> tuple[str, str]:
    """The class of a verdict that is not `pass`, and the reason.

    `lacking`: what all nodes lack; `observed`: the values of cmax on all hosts.
    """
    absent = answer.needs in lacking
    if absent and (not answer.unread or all("unknown" in value for value in observed)):
        return EXPLAINED, CAUSES[answer.needs]
    if answer.settles and all(set(statuses.get(name, ())) == {OK} for name in answer.by):
        return ANSWERED, answer.open
    return POLICY if answer.policy else OPEN, answer.open


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


@dataclass(frozen=True)
class Classified:
    """A verdict of cmax on one check, with the hosts that have it."""

    key: str
    verdict: str
    hosts: tuple[str, ...]
    kind: str
    """One of CLASSES."""
    why: str


def classified(
    verdicts: Mapping[str, Sequence[Verdict]],
    statuses: Mapping[str, Counter[str]],
    lacking: Collection[str],
) -> list[Classified]:
    """Every verdict that cmax could give, what remains to do first."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for host, of_host in verdicts.items():
        for one in of_host:
            if one.verdict != SKIPPED:
                found.setdefault((one.key, one.verdict), {})[host] = one.observed
    rows = []
    for (key, verdict), observed in found.items():
        answer = ANSWERS.get(key, Answer(open="not a check of the pinned version"))
        kind, why = PASS, ""
        if verdict != PASS:
            kind, why = classify(answer, observed.values(), statuses, lacking)
        rows.append(Classified(key, verdict, tuple(observed), kind, why.replace("`", "")))
    first = {name: place for place, name in enumerate((*CLASSES, *VERDICTS))}
    return sorted(rows, key=lambda row: (first[row.kind], first[row.verdict], row.key))


def counts(rows: Sequence[Classified]) -> dict[str, int]:
    """Number of checks by class, and by cause of those that are explained."""
    shorter = {cause: name for name, cause in CAUSES.items()}
    names = Counter(shorter[row.why] if row.kind == EXPLAINED else row.kind for row in rows)
    return {name: names[name] for name in (PASS, *CAUSES, ANSWERED, POLICY, OPEN)}


def lines(
    rows: Sequence[Classified],
    verdicts: Mapping[str, Sequence[Verdict]],
    statuses: Mapping[str, Counter[str]],
    title: str,
) -> list[str]:
    """A table of the checks that cmax could evaluate on any host; below it, the open ones."""
    total = Counter(one.verdict for of_host in verdicts.values() for one in of_host)
    table = [["class", "verdict", "cmax", "on", "ours", "why"]]
    for row in rows:
        own = own_verdict(ANSWERS.get(row.key, Answer()), statuses)
        kind = "" if row.kind == PASS else row.kind
        table.append([kind, row.verdict, row.key, ranges([*row.hosts]), own, row.why])
    said = ", ".join(f"{total[verdict]} {verdict}" for verdict in VERDICTS)
    by_class = ", ".join(f"{count} {name}" for name, count in counts(rows).items())
    still = [row.key for row in rows if row.kind == OPEN]
    return [
        f"{title}, {counted(len(verdicts), 'host')}: {said}",
        *(f"  {line.rstrip()}" for line in columns(table, {0, 1, 2, 3, 4, 5})),
        f"audit: {by_class}",
        f"audit: open: {', '.join(still) or 'none'}",
    ]


def as_report(
    rows: Sequence[Classified],
    verdicts: Mapping[str, Sequence[Verdict]],
    statuses: Mapping[str, Counter[str]],
) -> list[dict[str, Any]]:
    """Every check of cmax with its verdicts by host and their class, and ours."""
    classes = {(row.key, row.verdict): row for row in rows}
    found: dict[str, dict[str, Any]] = {}
    for host, of_host in verdicts.items():
        for one in of_host:
            answer = ANSWERS.get(one.key, Answer())
            entry = found.setdefault(one.key, {**asdict(answer), "ours": {}, "hosts": {}})
            entry["ours"] = {name: dict(statuses.get(name, {})) for name in answer.by}
            row = classes.get((one.key, one.verdict))
            entry["hosts"][host] = {
                **{"verdict": one.verdict, "observed": one.observed},
                **({"class": row.kind, "why": row.why} if row else {}),
            }
    return [{"key": key, **entry} for key, entry in found.items()]
