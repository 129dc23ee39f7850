# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A job of docs/examples/train.py that tests watch and end, on this machine or on nodes."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Optional

import pytest

from tests import waiting

LOSS = re.compile(r"^step \d+ loss (\S+)", re.MULTILINE)
END = re.compile(
    r"^(?:done|stopped by a signal): step (\d+), same weights on (\d+) ranks, sha256 (\w{64})$",
    re.MULTILINE,
)
"""Step, ranks, and digest of the weights."""


class Job:
    """mpirun of the example. Its output goes to a file: it never waits until it is read."""

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
        return Path(self._file.name).read_text(errors="replace")

    def until_step(self, step: int) -> None:
        def there() -> bool:
            if self.process.poll() is not None:
                pytest.fail(f"ended before step {step}:\n{self.output}")
            return f"\nstep {step} " in self.output

        waiting.until(there, f"step {step}", 120, every=0.01)

    def end(self, good: bool = True) -> str:
        """What it printed, once it has ended, well or not."""
        try:
            self.process.wait(waiting.deadline(180))
        finally:
            self.process.kill()
        assert (self.process.returncode == 0) == good, self.output
        return self.output


def falls(output: str) -> bool:
    """Whether the loss of the last step is below that of the first."""
    losses = [float(loss) for loss in LOSS.findall(output)]
    return losses[-1] < 0.95 * losses[0]
