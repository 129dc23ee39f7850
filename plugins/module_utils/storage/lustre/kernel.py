# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Where the kernel's side of Lustre is read: this machine, or a stand-in for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.commands import Runner
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.dataclass import dataclass
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.node.part import Node

from .. import mounted

THIS = Path("/")
ALIKE = ("lustre", "lustre_tgt")
"""What mountinfo calls clients, and targets of a server."""


@dataclass(frozen=True)
class Kernel:
    """`root` holds sys, and proc/self/mountinfo. `look` is what has the time limit of one look."""

    root: Path
    look: Runner
    simulated: bool = False

    def missing(self, node: Node) -> str:
        """Why nothing of it can hold here; empty where it can."""
        if node.container is None or self.simulated:
            return ""
        return node.not_here("Lustre and LNet are modules of the host's kernel")

    def mounts(self) -> Sequence[mounted.Mount]:
        """Every mount of Lustre, whoever mounted it. OSError where the table cannot be read."""
        return [each for each in mounted.read(self.root) if each.kind in ALIKE]

    def has_rdma(self, interface: str) -> bool:
        """Whether an RDMA device has this interface; also one of Soft-RoCE."""
        ports = (self.root / "sys/class/infiniband").glob("*/ports/*/gid_attrs/ndevs/*")
        for path in ports:
            try:
                if path.read_text().strip() == interface:
                    return True
            except OSError:  # an index of the table that nothing is at
                continue
        return False

    def has_interface(self, interface: str) -> bool:
        return (self.root / "sys/class/net" / interface).exists()
