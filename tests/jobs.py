# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Jobs of docs/examples that tests watch and stop, as one process or ranks on nodes; PyTorch for
nodes."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

import pytest

from tests import waiting

EXAMPLES = Path(__file__).resolve().parents[1] / "docs/examples"

TAG = re.compile(r"^\[1,\d+\]<std(?:out|err)>:", re.MULTILINE)
LOSS = re.compile(r"^step \d+ loss (\S+)", re.MULTILINE)
END = re.compile(
    r"^(?:done|stopped by a signal): step (\d+), same weights on (\d+) ranks, sha256 (\w{64})$",
    re.MULTILINE,
)
"""Step, ranks, and digest of the weights."""


class Job:
    """mpirun of the example. Its output goes to a file, so it never blocks."""

    def __init__(self, command: Sequence[str], environment: Optional[Mapping[str, str]] = None):
        self._file = tempfile.NamedTemporaryFile()  # noqa: SIM115  (as long as the job)
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._file,
            stderr=subprocess.STDOUT,
        )

    @property
    def output(self) -> str:
        """Output without the rank that mpirun adds to each line."""
        return TAG.sub("", Path(self._file.name).read_text(errors="replace"))

    def until_step(self, step: int) -> None:
        def there() -> bool:
            if self.process.poll() is not None:
                pytest.fail(f"exited before step {step}:\n{self.output}")
            return f"\nstep {step} " in self.output

        waiting.until(there, f"step {step}", 120, every=0.01)

    def end(self, good: bool = True) -> str:
        """Output of the process after its exit, with any status."""
        try:
            self.process.wait(waiting.deadline(180))
        finally:
            self.process.kill()
        assert (self.process.returncode == 0) == good, self.output
        return self.output


def falls(output: str) -> bool:
    """Whether the last step has a lower loss than the first."""
    losses = [float(loss) for loss in LOSS.findall(output)]
    return losses[-1] < 0.95 * losses[0]


def load(name: str) -> Any:
    """Load an example as a module, which later ones may import."""
    spec = importlib.util.spec_from_file_location(Path(name).stem, EXAMPLES / name)
    assert spec and spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Alone:
    """MPI with one rank."""

    SUM = IN_PLACE = None
    rank, size = 0, 1
    digests: Optional[list[tuple[str, str]]] = None

    def __init__(self) -> None:
        self.COMM_WORLD = self
        self.Op = types.SimpleNamespace(Create=lambda function, commute: None)

    def Dup(self) -> Alone:
        return self

    def Iallreduce(self, _: Any, values: Any, op: Any = None) -> Any:
        return types.SimpleNamespace(Test=lambda: True, Wait=lambda: None)

    def Reduce(self, values: Any, result: Any) -> None:
        result[:] = values

    def bcast(self, value: Any) -> Any:
        return value

    def allgather(self, value: Any) -> list[Any]:
        return self.digests or [value]


class AtStep7(list[int]):
    """Signals for the process, with one at step 7."""

    asked = 0

    def __len__(self) -> int:
        self.asked += 1
        return int(self.asked == 7)


TREE = EXAMPLES.parents[1] / "build/pytorch"
"""python3-torch of the nodes' Debian release, with its dependencies: it is in the nodes'
repositories, and independent of the Python and index that the tests use."""
LEND = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def done(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
tree = done(libc.syscall(428, -100, os.fsencode(sys.argv[2]), 1))  # open_tree, of a clone
done(libc.setns(os.open(f"/proc/{sys.argv[1]}/ns/mnt", os.O_RDONLY), 0))
os.makedirs("/opt/pytorch", exist_ok=True)
done(libc.syscall(429, tree, b"", -100, b"/opt/pytorch", 4))  # move_mount
"""
"""Mount a folder of this machine on a node: 1 GB that no node needs to copy or cache."""
LIBRARIES = [
    "/usr/lib/x86_64-linux-gnu",  # the node's files take precedence
    "/opt/pytorch/usr/lib/x86_64-linux-gnu",
    "/opt/pytorch/usr/lib",
    "/opt/pytorch/lib/x86_64-linux-gnu",
    "/opt/pytorch/usr/lib/x86_64-linux-gnu/blas",
    "/opt/pytorch/usr/lib/x86_64-linux-gnu/lapack",
]
WITH_TORCH = f"""\
#!/bin/sh
export LD_LIBRARY_PATH="${{LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}}{":".join(LIBRARIES)}"
export PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}/opt/pytorch/usr/lib/python3/dist-packages"
exec /usr/bin/python3 "$@"
"""


def lend_torch(container: str) -> None:
    """Mount PyTorch in a virtual node, for the program WITH_TORCH."""
    if not TREE.is_dir():
        partial = TREE.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        TREE.parent.mkdir(exist_ok=True)
        options = ["--variant=extract", '--aptopt=APT::Install-Recommends "false"']
        made = subprocess.run(
            ["mmdebstrap", *options, "--include=python3-torch", "bookworm", partial],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        # The nodes' images come from the same mirror, so it is reachable.
        assert made.returncode == 0, made.stderr.strip()[-500:]
        partial.rename(TREE)
    shown = ["podman", "inspect", "--format={{.State.Pid}}", container]
    pid = subprocess.run(shown, check=True, capture_output=True, text=True).stdout.strip()
    subprocess.run([sys.executable, "-c", LEND, pid, str(TREE)], check=True)
