# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Commands on every node over ssh, as the MPI user, many at once: before a run and after it."""

from __future__ import annotations

import base64
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address
from typing import Optional

from ...core.commands import CommandError, NoAnswerError, Result, Runner
from ...core.text import bytes_text, some
from ...os_baseline import filters
from ...ssh import paths
from ..hostfile import is_host_name, rail_name
from ..launcher import OPEN_MPI, Launcher
from ..prrte import too_new
from .plan import Node

SSH = (
    *("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"),
    *("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"),
)
AT_ONCE = 64
"""Connections open at a time: sshd turns more away on a small launcher."""

LINE = 500
"""Characters of a reason, which a host chose."""

TERMINAL = "-tt"
"""The remote side is hung up on when its ssh ends: also a login file that waits for ever."""

MARK = "mpi-ready "
"""Starts every line of a script's answer; login files may print others."""

READY = r"""
program=$1 nccl=$2 daemon=$3 call=$4 port=$5 peers=$6
shift 6
report() { echo "mpi-ready $*"; }
sum() { if [ -r "$1" ]; then sha256sum < "$1" | cut -d' ' -f1; else echo missing; fi; }
report program "$(sum "$program")"
profile=/etc/profile.d/baremetal-mpi-roce.sh
if [ -r "$profile" ]; then . "$profile"; fi
if command -v "$daemon" >/dev/null; then report daemon yes; else report daemon no; fi
version=$(mpirun --version 2>/dev/null | sed -n '1s/^\(mpirun \)\{0,1\}//p')
report version "$version${OPAL_PREFIX:+ in $OPAL_PREFIX}${I_MPI_ROOT:+ in $I_MPI_ROOT}"
report ucx "$(ucx_info -v 2>/dev/null | sed -n 's/^# *\(Library v\|V\)ersion:\{0,1\} *//p')"
for rail in "$@"; do
  state=$(cat "/sys/class/net/$rail/operstate" 2>/dev/null || echo missing)
  case $state in up | unknown) ;; *) report rail "$rail" "$state" ;; esac
done
# mpirun's daemon calls the launcher, where a port listens, and ranks call each other, which a port
# without a listener refuses by itself. By /etc/hosts only: a name server may be dead.
case ${SSH_CONNECTION:-} in
  *:* | '') calls= ;; # IPv6, which no network of the model has
  *) calls=${SSH_CONNECTION%% *}; report launcher "$calls" ;;
esac
for peer in $peers; do
  address=$(getent -s files ahostsv4 "$peer" 2>/dev/null | sed -n '1s/ .*//p')
  if [ -n "$address" ]; then report peer "$peer" "$address"; calls="$calls $address"; fi
done
if [ -n "$calls" ]; then
  /usr/bin/python3 -ISc "$call" "$port" $calls 2>/dev/null | sed -n 's/^mpi-back /mpi-ready back /p'
fi
gpus=0
for device in /dev/nvidia[0-9]*; do if [ -e "$device" ]; then gpus=$((gpus + 1)); fi; done
report gpus "$gpus"
if [ "$gpus" -gt 0 ]; then
  case ",${UCX_TLS:-}," in *,cuda_copy,*) report cuda UCX ;; esac
  if ompi_info --parsable --all 2>/dev/null | grep -q mpi_built_with_cuda_support:value:true; then
    report cuda Open MPI
  fi
  if command -v "$nccl" >/dev/null; then report nccl yes; fi
fi
if cd /sys/class/infiniband 2>/dev/null; then
  grep -sH . */ports/*/gid_attrs/ndevs/* |
    sed -n 's|^\([^/]*\)/ports/\([^/]*\)/[^:]*:\(.*\)$|mpi-ready device \1:\2 \3|p' | sort -u
  grep -sH . */ports/*/state |
    sed -n 's|^\([^/]*\)/ports/\([^/]*\)/state:[0-9]*: *\(.*\)$|mpi-ready port \1:\2 \3|p'
  for device in *; do
    if [ -d "$device/ports" ] && [ ! -e "$device/device" ]; then report software "$device"; fi
  done
fi
# Where ranks of a job keep what they share: a killed job leaves its own there.
for place in /tmp /dev/shm; do
  report space "$place" "$(stat -f -c '%a %S %d %c' "$place" 2>/dev/null)"
done
report end
"""
ROOM_BYTES, ROOM_FILES = 16 << 20, 64
"""Free on /tmp and /dev/shm: session directories, and shared memory of a rank's peers."""

# Processes of the MPI user that are already ending get a moment; the rest is killed, and again
# until none is left. The run id does not stand in its own command line (see `remote`).
SWEEP = """
id=$1
# An empty id would be found in every process of the user: less than 12 digits kill nothing.
if [ "$(printf '%s' "$id" | tr -cd '0-9a-f' | wc -c)" -lt 12 ]; then
  echo "no run id: nothing was looked for" >&2
  exit 2
fi
found() {
  printf '%s\\n' "$id" | grep -lsaF -f - /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null |
    cut -d/ -f3 | sort -u | while read -r pid; do
      if [ -O "/proc/$pid" ]; then echo "$pid"; fi
    done
}
tries=0
while [ -n "$(found)" ] && [ "$tries" -lt 5 ]; do sleep 0.2; tries=$((tries + 1)); done
killed=$(found | wc -l)
tries=0
while [ -n "$(found)" ] && [ "$tries" -lt 10 ]; do
  kill -KILL $(found) 2>/dev/null
  sleep 0.1
  tries=$((tries + 1))
done
echo "mpi-ready killed $killed left $(found | wc -l)"
"""


@dataclass(frozen=True)
class Answer:
    """What a node reported before a run."""

    program: str = ""
    """Its checksum, or `missing`."""
    daemon: bool = False
    """Whether it has the program that mpirun starts on each node."""
    version: str = ""
    """Of mpirun, and where it was unpacked: `(Open MPI) 4.1.9a1 in /opt/.../ompi`."""
    ucx: str = ""
    """Version of UCX, as the environment of ranks finds it."""
    down: tuple[str, ...] = ()
    """Rails that cannot carry anything, with their state: `rail1 is down`."""
    devices: tuple[tuple[str, str], ...] = ()
    """RDMA device and port, and a network interface that is behind it."""
    ports: Mapping[str, str] = field(default_factory=dict)
    """State of each RDMA device and port: `ACTIVE`."""
    software: bool = False
    """Whether RDMA devices are made of software."""
    gpus: int = 0
    cuda: tuple[str, ...] = ()
    """Which of `UCX` and `Open MPI` were built with CUDA."""
    nccl_tests: bool = False
    full: tuple[str, ...] = ()
    """Directories without room: `/dev/shm has 0 B and 12 files free`."""
    launcher: str = ""
    """The address by which the launcher came."""
    peers: Mapping[str, str] = field(default_factory=dict)
    """Address of the next node, by each of its names."""
    called: Mapping[str, int] = field(default_factory=dict)
    """What came of a connection to each of these addresses: an errno."""
    whole: bool = False


@dataclass(frozen=True)
class Swept:
    """What the sweep after a run found: processes killed by node, still there by node, and nodes
    that could not be asked with the reason."""

    killed: Mapping[str, int]
    left: Mapping[str, int]
    unknown: Mapping[str, str]


def as_user(user: str, argv: Sequence[str]) -> list[str]:
    """Run `argv` as `user` without a login, so that no session of theirs is opened."""
    return ["runuser", "-u", user, "--", *argv]


def remote(script: str, words: Sequence[str] = ()) -> str:
    """A command line that runs a script for sh with these arguments, whatever the user's shell is.

    csh takes no line break inside quotes, and fish quotes differently: in base64 nothing is
    special to any of them. Standard input stays free, which login files may read.
    """
    text = f"set -- {shlex.join(words)}\n{{\n{script}\n}} </dev/null\n"
    coded = base64.b64encode(text.encode("utf-8", "surrogateescape")).decode("ascii")
    return f"echo {coded} | /usr/bin/base64 -d | /bin/sh"


def said(text: str) -> list[list[str]]:
    """The words of a script's own lines; others are a login file's."""
    return [
        line[len(MARK) :].split()
        for line in text.splitlines()
        if line.startswith(MARK) and line[len(MARK) :].strip()
    ]


def ask_all(
    run: Runner,
    user: str,
    commands: Mapping[str, Sequence[str]],
    options: Sequence[str] = (),
) -> dict[str, tuple[Optional[Result], str]]:
    """A command on every host: its result, or None with the reason."""

    def ask(host: str) -> tuple[Optional[Result], str]:
        try:
            argv = as_user(user, [*SSH, *options, host, *commands[host]])
            result = run(argv, check=False)
        except NoAnswerError as error:
            return None, f"no answer within {error.timeout_s:g} s"
        except CommandError as error:
            return None, str(error)
        if result.rc != 0:
            # Not the farewell of an ssh that had a terminal, which also merges both outputs.
            printed = re.sub(r"(?m)^(Shared c|C)onnection to \S+ closed.*$", "", result.stderr)
            printed = printed.strip() or result.stdout.strip() or f"exit status {result.rc}"
            return None, printed.splitlines()[-1].strip()[:LINE]
        return result, ""

    if not commands:
        return {}
    with ThreadPoolExecutor(max_workers=min(AT_ONCE, len(commands))) as pool:
        return dict(zip(commands, pool.map(ask, commands)))


def preflight(
    run: Runner,
    user: str,
    nodes: Sequence[Node],
    program: str,
    sha256: str,
    transport: str,
    nccl_tests: str,
    launcher: Launcher = OPEN_MPI,
) -> tuple[dict[str, str], tuple[Node, ...]]:
    """What keeps hosts from taking part in a run over `transport`; and the nodes with what those
    that can take part reported."""
    problems: dict[str, str] = {}
    commands = {}
    found = []
    versions: dict[str, dict[str, str]] = {"mpirun": {}, "UCX": {}}
    heard: dict[str, Answer] = {}
    with paths.Listener({}) as listener:
        for node, peer in zip(nodes, after(nodes)):
            names = [peer.host] if peer is not node else []
            if names and transport == "tcp":
                names += [rail_name(peer.name, rail) for rail in peer.given]
            words = [program, nccl_tests, launcher.daemon]
            words += [paths.CALL, str(listener.port), " ".join(names), *node.rails]
            commands[node.host] = [remote(READY, words)]
        answers = ask_all(run, user, commands, options=[TERMINAL])
    for node in nodes:
        result, reason = answers[node.host]
        if result is None:
            problems[node.host] = (
                f"no answer over ssh as {user}: {reason}; check its power, sshd and the login "
                f"files of {user}, then run --tags names,ssh"
            )
            continue
        here = answer(result.stdout)
        carries = node.of_devices(here.devices) if transport == "rc" else node
        problem = keeps_back(here, carries, program, sha256, transport, launcher)
        if problem:
            problems[node.host] = problem
        else:
            heard[node.host] = here
        versions["mpirun"][node.host], versions["UCX"][node.host] = here.version, here.ucx
        same = ("devices", "software", "gpus", "cuda", "nccl_tests")
        found.append(replace(carries, **{name: getattr(here, name) for name in same}))
    for what, by_host in versions.items():
        (usual, _count), *others = Counter(by_host.values()).most_common() or [("", 0)]
        for host, version in by_host.items() if others else ():
            if version != usual and host not in problems:
                problems[host] = (
                    f"{what} is {version or 'of no version'}, and {usual or 'of none'} on most"
                    f" nodes; run --tags mpi --limit {host}"
                )
    return {**unreached(run, nodes, heard), **problems}, tuple(found)


def by_reason(problems: Mapping[str, str]) -> dict[str, str]:
    """A reason once, with the hosts that have it: one firewall keeps all nodes back."""
    hosts: dict[str, list[str]] = {}
    for host, why in problems.items():
        hosts.setdefault(why, []).append(host)
    return {some(of, 50): why for why, of in hosts.items()}


def after(nodes: Sequence[Node]) -> list[Node]:
    """The node that each one calls: the next, so that every one is called once."""
    return [*nodes[1:], *nodes[:1]]


def unreached(run: Runner, nodes: Sequence[Node], heard: Mapping[str, Answer]) -> dict[str, str]:
    """Of the nodes that are otherwise ready, those between which and the launcher or the next node
    no connection comes about: a run over them would hang until its limit."""
    problems: dict[str, str] = {}
    for node, peer in zip(nodes, after(nodes)):
        here = heard.get(node.host, Answer())
        for name, address in here.peers.items() if peer.host in heard else ():
            code = here.called.get(address, 0)
            failed = f"no connection {node.name} -> {name} ({address}): {paths.told(code)}"
            if code in paths.FILTERED:
                problems.setdefault(
                    peer.host,
                    f"{failed}; if --tags ssh finds no loss there, a firewall on {peer.name}: set "
                    f"{filters.OPEN}, then run --tags os --limit {peer.name}, or admit the "
                    "cluster's networks in its nft and iptables rules",
                )
            elif code in paths.ELSEWHERE:
                look = f"look on {node.name} at ip route get and at what filters its output"
                problems.setdefault(node.host, f"{failed}; {look}")
    said: dict[str, str] = {}
    for host, here in heard.items():
        code = here.called.get(here.launcher, 0)
        if not code:
            continue
        if here.launcher not in said:
            found, step = filters.filters(run, [here.launcher])
            seen = f"{found[here.launcher]}; {step}"
            said[here.launcher] = f"a firewall (os_baseline_firewall) on the launcher: {seen}"
        why = said[here.launcher]
        if code in paths.ELSEWHERE:
            why = f"look on {host} at ip route get and at what filters its output"
        problems[host] = (
            f"no connection back to the launcher ({here.launcher}), which mpirun needs: "
            f"{paths.told(code)}; {why}"
        )
    return problems


def lost(run: Runner, user: str, nodes: Sequence[Node]) -> dict[str, str]:
    """Hosts that do not answer, and again do not, with the reason."""
    found = {node.host: "" for node in nodes}
    for _unused in range(2):
        answers = ask_all(run, user, dict.fromkeys(found, ("true",)))
        found = {host: reason for host, (result, reason) in answers.items() if result is None}
    return found


def answer(text: str) -> Answer:
    """What READY reported."""
    lines: dict[str, list[list[str]]] = {}
    for word, *rest in said(text):
        lines.setdefault(word, []).append(rest)

    def one(word: str) -> str:
        return next((rest[0] for rest in lines.get(word, []) if rest), "")

    return Answer(
        program=one("program"),
        daemon=one("daemon") == "yes",
        version=" ".join(next(iter(lines.get("version", [])), [])),
        ucx=" ".join(next(iter(lines.get("ucx", [])), [])),
        down=tuple(" is ".join(rest) for rest in lines.get("rail", [])),
        devices=tuple((rest[0], rest[1]) for rest in lines.get("device", []) if len(rest) == 2),
        ports={rest[0]: rest[1] for rest in lines.get("port", []) if len(rest) == 2},
        software="software" in lines,
        gpus=_number(one("gpus")),
        cuda=tuple(" ".join(rest) for rest in lines.get("cuda", [])),
        nccl_tests="nccl" in lines,
        full=tuple(filter(None, (_full(rest) for rest in lines.get("space", [])))),
        launcher=_address(one("launcher")),
        peers={
            rest[0]: _address(rest[1])
            for rest in lines.get("peer", [])
            if len(rest) == 2 and is_host_name(rest[0])
        },
        called={
            rest[0]: _number(rest[1])
            for rest in lines.get("back", [])
            if len(rest) == 2 and len(rest[1]) < 5
        },
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
    """Why a directory has no room for ranks; empty where it has, or where none can tell."""
    if len(words) != 5:
        return ""
    blocks, size, free, files = map(_number, words[1:])
    # A file system without a table of inodes has none of them.
    if blocks * size >= ROOM_BYTES and (free >= ROOM_FILES or not files):
        return ""
    return f"{words[0]} has {bytes_text(blocks * size)} and {free} files free"


def keeps_back(
    here: Answer,
    node: Node,
    program: str,
    sha256: str,
    transport: str,
    launcher: Launcher = OPEN_MPI,
) -> str:
    """Why a node that answered cannot take part, with the remedy; empty when it can."""
    if not here.whole:
        return "the answer was cut short; look at the login files of the MPI user on it"
    if here.down:
        return f"{', '.join(here.down)}; run --tags rails --limit {node.name}"
    if here.full:
        return f"{', '.join(here.full)}; remove there what ended jobs have left (du -x)"
    wrong = []
    if here.program == "missing":
        wrong.append(f"{program} not found")
    elif sha256 and here.program != sha256:
        wrong.append(f"{program} is of another version")
    if not here.daemon and too_new(here.version):
        return too_new(here.version)
    if not here.daemon:
        wrong.append(f"{launcher.name}'s {launcher.daemon} not found")
    behind = {interface: device for device, interface in here.devices}
    for rail in node.given if transport == "rc" else ():
        device = behind.get(rail)
        if device is None:
            wrong.append(f"{rail} has no RDMA device")
        elif here.ports.get(device) != "ACTIVE":
            wrong.append(f"{device} of {rail} is {here.ports.get(device) or 'in no state'}")
    return f"{', '.join(wrong)}; run --tags rails,mpi --limit {node.name}" if wrong else ""


def sweep(run: Runner, user: str, hosts: Sequence[str], run_id: str) -> Swept:
    """Kill what a run left behind on the nodes and here, and count it."""
    killed: dict[str, int] = {}
    left: dict[str, int] = {}
    unknown: dict[str, str] = {}
    script = remote(SWEEP, [run_id])
    answers = ask_all(run, user, dict.fromkeys(hosts, (script,)))
    try:
        local = run(as_user(user, ["/bin/sh", "-c", script]), check=False)
        answers["the launcher"] = (local, local.stderr.strip())
    except CommandError as error:
        answers["the launcher"] = (None, str(error))
    for host, (result, reason) in answers.items():
        text = result.stdout if result is not None else ""
        counts = re.findall(rf"(?m)^{MARK}killed ([0-9]{{1,9}}) left ([0-9]{{1,9}})$", text)
        if len(counts) != 1:
            unknown[host] = reason or "unexpected answer"
            continue
        for found, count in zip((killed, left), map(int, counts[0])):
            if count:
                found[host] = count
    return Swept(killed, left, unknown)
