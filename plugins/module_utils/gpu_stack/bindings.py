# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""pynvml.py of nvidia-ml-py, from the controller: with it a node asks NVML about its GPUs.

The node needs no Python package for it, and every node asks with the same version. It is large, so
it travels compressed and is not shown line by line.
"""

from __future__ import annotations

import base64
import binascii
import zlib

from ..dataclass import dataclass
from ..node.part import Node, Plan, PlanError, Step, Verdict


def packed(text: str) -> str:
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def unpacked(text: str) -> str:
    """Raises PlanError."""
    try:
        return zlib.decompress(base64.b64decode(text, validate=True)).decode()
    except (binascii.Error, zlib.error, UnicodeDecodeError) as error:
        raise PlanError(
            f"nvml_bindings: not what the lookup baremetal.mpi_roce.nvml_bindings gives ({error})"
        ) from error


@dataclass(frozen=True)
class Bindings:
    """`text` is the file's; empty, and what is on the node stays."""

    path: str
    text: str

    def plan(self, node: Node) -> Plan:
        if not self.text:
            return Plan()
        planned = node.record(self.path, self.text)
        if not planned.changed:
            return Plan()
        before = "absent" if planned.before is None else "another version"
        return Plan(steps=[Step(self.path, before, "that of the controller", planned.apply)])

    def verify(self, node: Node) -> Verdict:
        """Judged with the GPUs: NVML answers, or it does not."""
        return Verdict()
