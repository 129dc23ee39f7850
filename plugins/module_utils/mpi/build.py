# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Build UCX and Open MPI from archives on this host, and pack them for the other hosts.

The build runs in a directory next to the prefix of the result. The pack gets its final name only
when it is complete, so the pack of a build that was killed or ran out of space is never used: the
next run starts again. A systemd unit runs the build and stops it at the time limit, even if this
process has been killed.
"""

from __future__ import annotations

import hashlib
import re
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
from .launch.unit import bounded

ARCHIVES, LOG, PACK, SCRIPT, UNIT = "archives", "log", "pack", "build.sh", "baremetal-mpi-build"
STEP = "@@ "
MAX_LINES = 12
ERROR = re.compile(r"(^|: )(fatal )?error: |No space left|cannot find -l|undefined reference to")
"""Errors of configure, compilers and linkers, which in parallel continue after one."""
DIRECTORIES = {"ucx": "ucx", "openmpi": "ompi"}
"""Directory of an archive below the prefix, as in HPC-X."""
_POLL_S = 2.0

FUNCTIONS = r"""#!/bin/sh
# A build is this text, followed by calls of its functions with quoted arguments.
set -eu
umask 022
export LC_ALL=C

# begin WORK: the directory of the build, with the archives.
begin() {
  work=$1
  cd "$work"
  rm -rf tree root pack pack.part
  mkdir tree root
}

# build NAME JOBS OPTION...: unpack, configure, compile and install one archive below root.
build() {
  name=$1 jobs=$2
  shift 2
  echo "@@ unpacking $name"
  mkdir "tree/$name"
  tar -xf "archives/$name" -C "tree/$name" --strip-components=1
  cd "tree/$name"
  # Only the tree of a repository has no configure; a release has.
  [ -x configure ] || { echo "@@ autogen of $name"; ./autogen.sh; }
  echo "@@ configuring $name"
  ./configure "$@"
  echo "@@ compiling $name"
  make "-j$jobs"
  echo "@@ installing $name"
  make install DESTDIR="$work/root"
  cd "$work"
  rm -rf "tree/$name"
  # Files of libtool contain the path below root, and no program needs them.
  find root -name '*.la' -delete
}

# pack PARENT NAME: pack the directory root/PARENT/NAME. The pack gets its name when it is complete.
pack() {
  echo "@@ packing"
  tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -czf pack.part -C "root$1" "$2"
  rm -rf tree root
  sync pack.part
  mv pack.part pack
}
"""


def work_of(prefix: str) -> Path:
    """Directory of the build. Host and controller both derive it from the prefix in the model."""
    return Path(f"{prefix}.build")


@dataclass(frozen=True)
class Build:
    """`builds` in their order, each with `name` and the `options` of configure."""

    prefix: str
    builds: Sequence[Mapping[str, Any]]
    jobs: int
    time_limit_s: float

    @property
    def work(self) -> Path:
        return work_of(self.prefix)

    def script(self) -> str:
        calls = [["begin", str(self.work)]]
        for archive in self.builds:
            name = archive["name"]
            options = [f"--prefix={self.prefix}/{DIRECTORIES[name]}"]
            if name == "openmpi":
                options.append(f"--with-ucx={self.work}/root{self.prefix}/ucx")
                options.append(f"LDFLAGS=-Wl,-rpath,{self.prefix}/ucx/lib")
            calls.append(["build", name, str(self.jobs), *options, *archive["options"]])
        parent, _slash, name = self.prefix.rpartition("/")
        calls.append(["pack", parent, name])
        return "\n".join([FUNCTIONS, *map(shlex.join, calls), ""])


def run(build: Build, runner: Runner, show: Callable[[str], None]) -> dict[str, Any]:
    """Build, unless an earlier run has. Returns SHA-256 and size of the pack, and seconds."""
    pack, log, script = (build.work / name for name in (PACK, LOG, SCRIPT))
    begin = time.monotonic()
    if not pack.is_file():
        # The unit of a run that was killed may still be active.
        runner(["systemctl", "stop", UNIT], check=False)
        write_atomically(script, build.script(), 0o644, 0, 0)
        log.write_text("", encoding="utf-8")
        rc = _watch(build, show, begin)
        seconds = time.monotonic() - begin
        if not pack.is_file():
            raise StepError(_failure(build, rc, seconds))
    return {
        "sha256": sha256(pack),
        "bytes": pack.stat().st_size,
        "seconds": round(time.monotonic() - begin, 1),
    }


def _watch(build: Build, show: Callable[[str], None], begin: float) -> int:
    log, argv = build.work / LOG, ["nice", "-n", "19", "/bin/sh", str(build.work / SCRIPT)]
    argv = bounded(argv, UNIT, build.time_limit_s, description="UCX and Open MPI", output=log)
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True)
    shown = ""
    while process.poll() is None:
        time.sleep(_POLL_S)
        step = _step(log)
        if step != shown:
            shown = step
            show(f"build: {step} ({time.monotonic() - begin:.0f} s)")
    return process.wait()


def _step(log: Path) -> str:
    steps = (line[len(STEP) :] for line in reversed(_lines(log)) if line.startswith(STEP))
    return next(steps, "")


def _failure(build: Build, rc: int, seconds: float) -> str:
    log = build.work / LOG
    step = _step(log) or "the start"
    reason = f"exit status {rc} at: {step}"
    if seconds >= build.time_limit_s:
        reason = f"stopped after {build.time_limit_s:g} s (mpi_stack_build_limit_s) at: {step}"
    lines = _lines(log)
    first = [line for line in lines[:-MAX_LINES] if ERROR.search(line)][:3]
    last = "\n".join(f"    {line[:400]}" for line in [*first, *lines[-MAX_LINES:]])
    return f"{reason}\n{last}\n  full log: {log}; the next run builds again"


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        for chunk in iter(lambda: stream.read(1 << 20), b""):
            digest.update(chunk)
    return digest.hexdigest()


def _lines(log: Path) -> list[str]:
    return log.read_text(encoding="utf-8", errors="replace").splitlines()
