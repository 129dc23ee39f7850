# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Readiness of nodes before a run: software, rails, free space, and connections between them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address

from ...core.checks import FAILED, OK, Check
from ...core.commands import Runner
from ...core.text import bytes_text, some
from ...names import is_host_name, rail_name
from ...os_baseline import filters
from ...ssh import paths
from ..environment import PROGRAM
from . import slurm
from .hosts import TERMINAL, ask_all, remote, report
from .launcher import OPEN_MPI, Launcher, too_new
from .node import LaunchNode
from .scripts import LIMITS, READY
from .unit import bounded, login_shell

MIN_FREE_BYTES, MIN_FREE_INODES = 16 << 20, 64
"""Free space required on /tmp (session directories) and /dev/shm (shared memory between ranks)."""
DEFAULT_LIMIT, SPARE = 1024, 256
"""Usual limit of open files; what a launcher of ranks needs on any number of nodes."""
LIMITS_S = 30.0
OF_NODE = ("devices", "software", "gpus", "cuda", "nccl_tests")
"""Fields of a report that are also those of LaunchNode."""
OUTGOING = "check ip route get and the filters of outgoing traffic on"


@dataclass(frozen=True)
class NodeReport:
    program: str = ""
    """SHA-256 of the program, or `missing`."""
    daemon: bool = False
    """Whether the program that mpirun starts on each node is installed."""
    version: str = ""
    """Version and directory of mpirun: `(Open MPI) 4.1.9a1 in /opt/.../ompi`."""
    ucx: str = ""
    down: tuple[str, ...] = ()
    """Rails without a link, with their state: `rail1 is down`."""
    devices: tuple[tuple[str, str], ...] = ()
    ports: Mapping[str, str] = field(default_factory=dict)
    """State by RDMA device and port: `ACTIVE`."""
    software: bool = False
    gpus: int = 0
    cuda: tuple[str, ...] = ()
    nccl_tests: bool = False
    full: tuple[str, ...] = ()
    """Directories without free space: `/dev/shm has 0 B and 12 files free`."""
    launcher: str = ""
    """Address of the launcher, as the node sees it."""
    peers: Mapping[str, str] = field(default_factory=dict)
    """Address of the next node, by each of its names."""
    called: Mapping[str, int] = field(default_factory=dict)
    """Errno of a connection, by address; 0 for success."""
    whole: bool = False


def preflight(
    run: Runner,
    user: str,
    nodes: Sequence[LaunchNode],
    transport: str,
    launcher: Launcher = OPEN_MPI,
    sha256: str = "",
    nccl_tests: str = "",
) -> tuple[dict[str, str], tuple[LaunchNode, ...]]:
    """Ask every node. Returns the reason for each unready host, and the nodes that responded."""
    problems: dict[str, str] = {}
    commands = {}
    reported = []
    versions: dict[str, dict[str, str]] = {"mpirun": {}, "UCX": {}}
    ready: dict[str, NodeReport] = {}
    with paths.Listener({}) as listener:
        for node, peer in _ring(nodes):
            names = [peer.host] if peer is not node else []
            if names and transport == "tcp":
                names += [rail_name(peer.name, rail) for rail in peer.given]
            arguments = [PROGRAM, nccl_tests, launcher.daemon, paths.CALL, str(listener.port)]
            commands[node.host] = [remote(READY, [*arguments, " ".join(names), *node.rails])]
        answers = ask_all(run, user, commands, options=[TERMINAL])
    for node in nodes:
        result, reason = answers[node.host]
        if result is None:
            problems[node.host] = (
                f"no answer over ssh as {user}: {reason}; check its power, sshd and the login "
                f"files of {user}, then run --tags names,ssh"
            )
            continue
        state = answer(result.stdout)
        carries = node.of_devices(state.devices) if transport == "rc" else node
        problem = obstacle(state, carries, sha256, transport, launcher)
        if problem:
            problems[node.host] = problem
        else:
            ready[node.host] = state
        versions["mpirun"][node.host], versions["UCX"][node.host] = state.version, state.ucx
        reported.append(replace(carries, **{name: getattr(state, name) for name in OF_NODE}))
    for software, by_host in versions.items():
        counted = Counter(by_host.values()).most_common(1)
        for host, version in by_host.items():
            if version != counted[0][0]:
                reason = f"{version or 'unknown'}, and {counted[0][0] or 'unknown'} on most nodes"
                told = f"{software} has version {reason}; run --tags mpi --limit {host}"
                problems.setdefault(host, told)
    if launcher.scheduled:
        closed, gpus = slurm.offered(run, user, nodes)
        problems = {**closed, **problems}
        reported = [replace(node, slurm_gpus=gpus.get(node.host, 0)) for node in reported]
    return {**unreached(run, nodes, ready, launcher), **problems}, tuple(reported)


def limits(
    run: Runner, user: str, launcher: Launcher, count: int, run_id: str = "limits"
) -> list[Check]:
    """Whether the launcher of ranks may open the files and start the processes that `count` nodes
    require, where it will run. Small clusters are not asked: default limits suffice."""
    wanted = {
        subject: SPARE + of_node * count
        for subject, of_node in (("files", launcher.files), ("processes", launcher.processes))
        if SPARE + of_node * count > DEFAULT_LIMIT
    }
    if not wanted:
        return []
    argv = login_shell(user, ["/bin/sh", "-c", LIMITS])
    done = run(bounded(argv, f"baremetal-mpi-limits-{run_id}", LIMITS_S), check=False)
    checks = []
    for subject, lines in report(done.stdout).items():
        found = min((int(line) for line in lines if re.fullmatch("[0-9]{1,18}", line)), default=0)
        least = wanted.get(subject, 0)
        if found >= least or not found:  # unlimited
            continue
        step = (
            f"os_baseline_limits: nofile of {least} or more, and no ulimit in login files of {user}"
            if subject == "files"
            else "DefaultTasksMax of systemd, kernel.threads-max, and the launcher's container"
        )
        reason = f"{launcher.name} on {count} nodes: {step}"
        checks.append(Check("launcher_limits", least, found, FAILED, subject, reason))
    right = ", ".join(f"{least} {subject}" for subject, least in wanted.items())
    return checks or [Check("launcher_limits", right, right, OK)]


def by_reason(problems: Mapping[str, str]) -> dict[str, str]:
    """Reasons merged for the hosts that share them: one firewall may block all nodes."""
    hosts: dict[str, list[str]] = {}
    for host, reason in problems.items():
        hosts.setdefault(reason, []).append(host)
    return {some(names, 50): reason for reason, names in hosts.items()}


def _ring(nodes: Sequence[LaunchNode]) -> Iterator[tuple[LaunchNode, LaunchNode]]:
    """Each node with the peer to which it connects, so that each node is tested once."""
    return zip(nodes, [*nodes[1:], *nodes[:1]])


def unreached(
    run: Runner,
    nodes: Sequence[LaunchNode],
    ready: Mapping[str, NodeReport],
    launched_by: Launcher = OPEN_MPI,
) -> dict[str, str]:
    """Ready nodes that cannot connect to the launcher, or to the next node: a run over them would
    hang until its time limit."""
    problems: dict[str, str] = {}
    for node, peer in _ring(nodes):
        state = ready.get(node.host, NodeReport())
        for name, address in state.peers.items() if peer.host in ready else ():
            code = state.called.get(address, 0)
            failed = f"no connection {node.name} -> {name} ({address}): {paths.told(code)}"
            if code in paths.FILTERED:
                problems.setdefault(
                    peer.host,
                    f"{failed}; if --tags ssh reports no loss, a firewall on {peer.name}: set "
                    f"{filters.OPEN}, then run --tags os --limit {peer.name}, or admit the "
                    "cluster's networks in its nft and iptables rules",
                )
            elif code in paths.ELSEWHERE:
                problems.setdefault(node.host, f"{failed}; {OUTGOING} {node.name}")
    remedies: dict[str, str] = {}
    for host, state in ready.items():
        code, launcher = state.called.get(state.launcher, 0), state.launcher
        if not code:
            continue
        remedy = f"{OUTGOING} {host}"
        if code not in paths.ELSEWHERE:
            if launcher not in remedies:
                filtering, step = filters.filters(run, [launcher])
                remedies[launcher] = (
                    f"a firewall (os_baseline_firewall) on the launcher: {filtering[launcher]}; "
                    f"{step}"
                )
            remedy = remedies[launcher]
        problems[host] = (
            f"no connection back to the launcher ({launcher}), which {launched_by.program} needs: "
            f"{paths.told(code)}; {remedy}"
        )
    return problems


def answer(text: str) -> NodeReport:
    lines = report(text)

    def first(word: str) -> str:
        return " ".join(" ".join(lines[word][:1]).split())

    def pairs(word: str) -> list[tuple[str, str]]:
        return [(words[0], words[1]) for words in map(str.split, lines[word]) if len(words) == 2]

    return NodeReport(
        program=first("program"),
        daemon=first("daemon") == "yes",
        version=first("version"),
        ucx=first("ucx"),
        down=tuple(" is ".join(line.split()) for line in lines["rail"]),
        devices=tuple(pairs("device")),
        ports=dict(pairs("port")),
        software="software" in lines,
        gpus=_number(first("gpus")),
        cuda=tuple(lines["cuda"]),
        nccl_tests="nccl" in lines,
        full=tuple(filter(None, (_full(line.split()) for line in lines["space"]))),
        launcher=_address(first("launcher")),
        peers={name: _address(address) for name, address in pairs("peer") if is_host_name(name)},
        called={address: _number(code) for address, code in pairs("back") if len(code) < 5},
        whole="end" in lines,
    )


def _number(text: str) -> int:
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else 0


def _address(text: str) -> str:
    try:
        return str(IPv4Address(text))
    except ValueError:
        return ""


def _full(words: Sequence[str]) -> str:
    """Free space of a directory that has too little for ranks; empty for other directories."""
    if len(words) != 5:
        return ""
    blocks, size, inodes, total = map(_number, words[1:])
    # A file system without a table of inodes reports 0 of 0.
    if blocks * size >= MIN_FREE_BYTES and (inodes >= MIN_FREE_INODES or not total):
        return ""
    return f"{words[0]} has {bytes_text(blocks * size)} and {inodes} files free"


def obstacle(
    state: NodeReport,
    node: LaunchNode,
    sha256: str,
    transport: str,
    launcher: Launcher = OPEN_MPI,
) -> str:
    """Why a node that responded cannot take part, with the remedy; empty if it can."""
    if not state.whole:
        return "the answer was cut short; check the login files of the MPI user on it"
    if state.down:
        return f"{', '.join(state.down)}; run --tags rails --limit {node.name}"
    if state.full:
        return f"{', '.join(state.full)}; remove the files that former jobs left there (du -x)"
    missing = []
    if state.program == "missing":
        missing.append(f"{PROGRAM} not found")
    elif sha256 and state.program != sha256:
        missing.append(f"{PROGRAM} has a different version")
    if not state.daemon and too_new(state.version):
        return too_new(state.version)
    if not state.daemon:
        missing.append(f"{launcher.name}'s {launcher.daemon} not found")
    behind = {interface: device for device, interface in state.devices}
    for rail in node.given if transport == "rc" else ():
        device = behind.get(rail)
        if device is None:
            missing.append(f"{rail} has no RDMA device")
        elif state.ports.get(device) != "ACTIVE":
            missing.append(f"{device} of {rail} is {state.ports.get(device) or 'in no state'}")
    return f"{', '.join(missing)}; run --tags rails,mpi --limit {node.name}" if missing else ""
