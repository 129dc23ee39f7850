# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""UCX and Open MPI, built from archives on this host and packed for the others.

All of it is in one directory beside the place of the result. The pack gets its name when it is
complete, so that a build that was killed or ran out of space is never used: the next one starts
again. A shell in a unit of systemd builds, and ends at its time limit whatever became of this
process.
"""

from __future__ import annotations

import hashlib
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.commands import Runner
from ..core.files import write_atomically
from ..core.part import StepError
from .allreduce.launch import GRACE_S, bounded
from .causes import of_build

ARCHIVES, LOG, PACK, SCRIPT, UNIT = "archives", "log", "pack", "build.sh", "baremetal-mpi-build"
STEP = "@@ "
"""Begins a line of the log that names what is done next."""
LAST_LINES = 12
_POLL_S = 2.0

# A tree without configure is one of a repository, not of a release. Libtool's files name the
# directory in which the parts were installed for the pack, and nothing needs them.
BEGIN = f"""\
set -eu
umask 022
export LC_ALL=C
cd {{work}}
rm -rf tree root {PACK} {PACK}.part
mkdir tree root
"""
EACH = f"""
echo "{STEP}unpacking {{name}}"
mkdir tree/{{name}}
tar -xf {ARCHIVES}/{{name}} -C tree/{{name}} --strip-components=1
cd tree/{{name}}
[ -x configure ] || {{{{ echo "{STEP}autogen of {{name}}"; ./autogen.sh; }}}}
echo "{STEP}configuring {{name}}"
./configure {{options}}
echo "{STEP}compiling {{name}}"
make -j{{jobs}}
echo "{STEP}installing {{name}}"
make install DESTDIR={{work}}/root
cd {{work}}
rm -rf tree/{{name}}
find root -name '*.la' -delete
"""
END = f"""
echo "{STEP}packing"
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -czf {PACK}.part -C root{{place}}
rm -rf tree root
sync {PACK}.part
mv {PACK}.part {PACK}
"""
DIRECTORIES = {"openmpi": "ompi"}
"""As HPC-X names its parts."""


def work_of(prefix: str) -> Path:
    """Where a result is built. Host and controller both make the path from the model's prefix."""
    return Path(f"{prefix}.build")


@dataclass(frozen=True)
class Build:
    """What is built: `builds` in their order, each with `name` and `options` of configure."""

    prefix: str
    builds: Sequence[Mapping[str, Any]]
    jobs: int
    time_limit_s: float

    @property
    def work(self) -> Path:
        return work_of(self.prefix)

    def script(self) -> str:
        parts = [BEGIN.format(work=shlex.quote(str(self.work)))]
        for one in self.builds:
            name, own = one["name"], f"{self.prefix}/{DIRECTORIES.get(one['name'], one['name'])}"
            options = [f"--prefix={own}"]
            if name == "openmpi":
                options.append(f"--with-ucx={self.work}/root{self.prefix}/ucx")
                options.append(f"LDFLAGS=-Wl,-rpath,{self.prefix}/ucx/lib")
            fields = {"name": name, "jobs": self.jobs, "work": shlex.quote(str(self.work))}
            parts.append(EACH.format(options=shlex.join([*options, *one["options"]]), **fields))
        place, _slash, name = self.prefix.rpartition("/")
        return "".join([*parts, END.format(place=shlex.join([place, name]))])


def run(build: Build, runner: Runner, show: Callable[[str], None]) -> dict[str, Any]:
    """Build it, unless an earlier run has: checksum and size of the pack, and the seconds."""
    pack, log, script = (build.work / name for name in (PACK, LOG, SCRIPT))
    begin = time.monotonic()
    if not pack.is_file():
        # Of a run that was killed.
        runner(["systemctl", "stop", UNIT], check=False)
        write_atomically(script, build.script(), 0o644, 0, 0)
        log.write_text("", encoding="utf-8")
        rc = _watched(build, show, begin)
        seconds = time.monotonic() - begin
        if not pack.is_file():
            raise StepError(_failure(build, rc, seconds))
    return {
        "sha256": sha256(pack),
        "bytes": pack.stat().st_size,
        "seconds": round(time.monotonic() - begin, 1),
    }


def _watched(build: Build, show: Callable[[str], None], begin: float) -> int:
    argv = ["nice", "-n", "19", "/bin/sh", str(build.work / SCRIPT)]
    argv = bounded(argv, UNIT, build.time_limit_s, what="UCX and Open MPI", output=build.work / LOG)
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True)
    shown = ""
    while process.poll() is None:
        time.sleep(_POLL_S)
        step = _step(build.work / LOG)
        if step and step != shown:
            shown = step
            show(f"build: {step} ({time.monotonic() - begin:.0f} s)")
        if time.monotonic() - begin > build.time_limit_s + 4 * GRACE_S:
            process.kill()
    return process.wait()


def _step(log: Path) -> str:
    lines = _text(log).splitlines()
    found = (line[len(STEP) :] for line in reversed(lines) if line.startswith(STEP))
    return next(found, "")


def _failure(build: Build, rc: int, seconds: float) -> str:
    log = build.work / LOG
    step = _step(log) or "the start"
    why = f"exit status {rc} at: {step}"
    if seconds >= build.time_limit_s:
        why = f"ended after {build.time_limit_s:g} s (mpi_stack_build_limit_s) at: {step}"
    lines = _text(log).splitlines()
    early = of_build(lines[:-LAST_LINES])
    last = "\n".join(f"    {line}" for line in [*early, *lines[-LAST_LINES:]])
    return f"{why}\n{last}\n  the whole log: {log}; the next run builds again"


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        for part in iter(lambda: stream.read(1 << 20), b""):
            digest.update(part)
    return digest.hexdigest()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
