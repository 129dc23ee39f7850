# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Asking every node over ssh, as the MPI user and many at once: before a run, and after it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Optional

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.commands import (
    CommandError,
    Result,
    Runner,
)

SSH = (
    "ssh",
    "-o",
    "BatchMode=yes",
    "-o",
    "ConnectTimeout=10",
    "-o",
    "ServerAliveInterval=5",
    "-o",
    "ServerAliveCountMax=3",
)
AT_ONCE = 64
"""Connections open at a time: sshd turns more away on a small launcher."""

READY = """
program=$1
shift
if [ -r "$program" ]; then sha256sum < "$program" | cut -d' ' -f1; else echo missing; fi
profile=/etc/profile.d/baremetal-mpi-roce.sh
if [ -r "$profile" ]; then . "$profile"; fi
command -v orted >/dev/null && echo orted || echo no-orted
for rail in "$@"; do
  state=$(cat "/sys/class/net/$rail/operstate" 2>/dev/null || echo missing)
  case $state in up | unknown) ;; *) echo "$rail=$state" ;; esac
done
"""

# The run id arrives on standard input, so that this script does not find itself. Processes of the
# MPI user that are already ending get a moment; the rest is killed, and again until none is left.
SWEEP = """
read -r id
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
echo "killed $killed left $(found | wc -l)"
"""


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


def ask_all(
    run: Runner, user: str, commands: Mapping[str, Sequence[str]], stdin: str
) -> dict[str, tuple[Optional[Result], str]]:
    """A command on every host: its result, or None with the reason."""

    def ask(host: str) -> tuple[Optional[Result], str]:
        try:
            argv = as_user(user, [*SSH, host, *commands[host]])
            result = run(argv, check=False, stdin=stdin)
        except CommandError as error:
            return None, str(error)
        if result.rc != 0:
            lines = [line for line in result.stderr.splitlines() if line.strip()]
            return None, lines[-1].strip() if lines else f"exit status {result.rc}"
        return result, ""

    if not commands:
        return {}
    with ThreadPoolExecutor(max_workers=min(AT_ONCE, len(commands))) as pool:
        return dict(zip(commands, pool.map(ask, commands)))


def preflight(
    run: Runner, user: str, rails: Mapping[str, Sequence[str]], program: str, sha256: str
) -> dict[str, str]:
    """What keeps each host of `rails` from taking part; empty when all are ready."""
    problems: dict[str, str] = {}
    commands = {host: ["sh", "-s", program, *names] for host, names in rails.items()}
    for host, (result, reason) in ask_all(run, user, commands, READY).items():
        if result is None:
            problems[host] = f"no ssh as {user}: {reason}; run --tags ssh"
            continue
        words = result.stdout.split()
        down = [word.replace("=", " is ") for word in words if "=" in word]
        words = [word for word in words if "=" not in word]
        if len(words) < 2:
            problems[host] = f"unexpected answer {result.stdout.strip()!r}"
        elif down:
            problems[host] = f"{', '.join(down)}; run --tags rails --limit {host}"
        elif words[-2] == "missing":
            problems[host] = f"{program} is not there; run --tags mpi --limit {host}"
        elif sha256 and words[-2] != sha256:
            problems[host] = f"{program} is of another version; run --tags mpi --limit {host}"
        elif words[-1] != "orted":
            problems[host] = f"Open MPI's orted is not there; run --tags mpi --limit {host}"
    return problems


def sweep(run: Runner, user: str, hosts: Sequence[str], run_id: str) -> Swept:
    """Kill what a run left behind on the nodes and here, and say how much that was."""
    killed: dict[str, int] = {}
    left: dict[str, int] = {}
    unknown: dict[str, str] = {}
    script = [f"sh -c {shlex.quote(SWEEP)}"]
    answers = ask_all(run, user, dict.fromkeys(hosts, script), run_id + "\n")
    try:
        local = run(as_user(user, ["sh", "-c", SWEEP]), check=False, stdin=run_id + "\n")
        answers["the launcher"] = (local, local.stderr.strip())
    except CommandError as error:
        answers["the launcher"] = (None, str(error))
    for host, (result, reason) in answers.items():
        words = result.stdout.split() if result is not None else []
        if len(words) != 4:
            unknown[host] = reason or "unexpected answer"
            continue
        if int(words[1]):
            killed[host] = int(words[1])
        if int(words[3]):
            left[host] = int(words[3])
    return Swept(killed, left, unknown)
