# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A real slurmctld of the distribution, with munged, in a temporary directory: on the loopback
interface, without nodes that run."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.waiting import until

PROGRAMS = ("munged", "slurmctld", "scontrol", "sinfo")
MISSING = [name for name in PROGRAMS if shutil.which(name, path=f"{os.defpath}:/usr/sbin") is None]


READY_S = 10
"""Limit for slurmctld to read its files, of 1,000 nodes as well."""


class Controller:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.etc = directory / "etc"
        self.conf = self.etc / "slurm.conf"
        self.log = directory / "slurmctld.log"

    def scontrol(self, *words: str) -> str:
        return self.run("scontrol", *words)

    def run(self, *words: str) -> str:
        done = subprocess.run(
            words, env=self.environment, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}\n{self.logged()}"
        return done.stdout

    def logged(self) -> str:
        return self.log.read_text(errors="replace")[-4000:] if self.log.exists() else ""

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": f"{os.defpath}:/usr/sbin", "SLURM_CONF": str(self.conf)}

    def answers(self) -> bool:
        done = subprocess.run(
            ["scontrol", "ping"], env=self.environment, capture_output=True, text=True, timeout=60
        )
        return " is UP" in done.stdout


def main_lines(controller: Controller) -> list[str]:
    """slurm.conf without nodes."""
    directory = controller.directory
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [
        "ClusterName=test",
        "SlurmctldHost=localhost(127.0.0.1)",
        f"SlurmctldPort={port}",
        f"SlurmUser={pwd.getpwuid(os.getuid()).pw_name}",
        f"AuthInfo=socket={directory}/munge/socket",
        f"StateSaveLocation={directory}/state",
        f"SlurmctldPidFile={directory}/slurmctld.pid",
        f"SlurmctldLogFile={directory}/slurmctld.log",
    ]


@contextmanager
def prepared() -> Iterator[Controller]:
    """A directory with munged running, for `started`."""
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="slurm-", dir="/tmp"))
        directory = Path(name)
        for folder, mode in (("munge", 0o711), ("state", 0o700), ("etc", 0o755)):
            (directory / folder).mkdir(mode=mode)
        munge = directory / "munge"
        key = munge / "key"
        key.touch(0o600)
        key.write_bytes(os.urandom(64))
        paths = {
            "socket": munge / "socket",
            "key-file": key,
            "pid-file": munge / "pid",
            "seed-file": munge / "seed",
            "log-file": munge / "log",
        }
        options = [f"--{name}={path}" for name, path in paths.items()]
        stack.enter_context(_running(["munged", "--foreground", "--force", *options]))
        until((munge / "socket").exists, "munged")
        controller = Controller(directory)
        yield controller


@contextmanager
def started(controller: Controller, files: Mapping[str, str], lines: list[str]) -> Iterator[None]:
    """slurmctld with these files and lines of slurm.conf, which knows nothing of earlier ones."""
    for path in (controller.directory / "state").iterdir():
        path.unlink()
    for name, text in files.items():
        (controller.etc / name).write_text(text)
    controller.conf.write_text("\n".join([*lines, ""]))
    with _running(["slurmctld", "-D", "-f", str(controller.conf)], controller.environment) as main:

        def ready() -> bool:
            assert main.poll() is None, controller.logged()
            return controller.answers()

        until(ready, "slurmctld", READY_S)
        yield


@contextmanager
def _running(
    command: list[str], environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is terminated with the children that slurmctld forks."""
    path = {"PATH": f"{os.defpath}:/usr/sbin"}
    process = subprocess.Popen(
        command,
        env={**path, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
