# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The kernel module of a client of NFS over RDMA, which the first mount loads.

mount.nfs says of a module that does not load: an incorrect mount option. So it is looked at by
itself, after the mounts: one that is loaded is well, whatever else is said of it here.
"""

from __future__ import annotations

from ..core.checks import FAILED, OK, Check, not_applicable
from ..core.commands import CommandError
from ..core.dataclass import dataclass
from ..core.part import Node, Plan, Verdict
from ..software.distribution import REDHAT

RPCRDMA, CORE = "rpcrdma", "ib_core"
CHECK = "storage_rdma_module"
INSTALL = {
    False: "apt-get install mlnx-nfsrdma-dkms",
    True: "dnf install kmod-mlnx-nfsrdma (from DOCA 3.2 on: what dnf search mlnx-nfsrdma finds)",
}
"""By whether it is EL."""
OF_DOCA = (
    "that of the distribution does not load beside DOCA-OFED's drivers, which have it in a package "
    "of its own"
)
INBOX = "/kernel/"
"""In the path of a module that came with the kernel; others are in `updates`, `extra`."""


@dataclass(frozen=True)
class RdmaModule:
    """Of a host that mounts by RDMA."""

    family: str

    def plan(self, node: Node) -> Plan:
        return Plan()

    def verify(self, node: Node) -> Verdict:
        return Verdict([self._check(node)])

    def _check(self, node: Node) -> Check:
        if node.container:
            why = node.not_here("modules are of the host's kernel")
            return not_applicable(CHECK, "loaded", why, subject=RPCRDMA)
        if node.path(f"sys/module/{RPCRDMA}").is_dir():
            return Check(CHECK, "loaded", "loaded", OK, RPCRDMA)
        core, module = _file(node, CORE), _file(node, RPCRDMA)
        if core and INBOX not in core and (not module or INBOX in module):
            reason = (
                f"{OF_DOCA}: {INSTALL[self.family == REDHAT]}, then modprobe {RPCRDMA}. It has to "
                f"be of the same release as {core}"
            )
            return Check(CHECK, "loaded", module or "not installed", FAILED, RPCRDMA, reason)
        if core and not module:
            reason = (
                "the kernel has none: on Ubuntu it is in linux-modules-extra-$(uname -r), on EL in "
                "kernel-modules"
            )
            return Check(CHECK, "loaded", "not installed", FAILED, RPCRDMA, reason)
        why = f"loaded by the first mount; where that fails, see modprobe {RPCRDMA} and dmesg"
        return not_applicable(CHECK, "loaded", why, subject=RPCRDMA)


def _file(node: Node, module: str) -> str:
    """Its file; `/kernel/` for one that is built in. Empty where there is none, or nobody knows."""
    try:
        told = node.look(["modinfo", "-F", "filename", module], check=False)
    except CommandError:
        return ""
    found = told.stdout.strip().split("\n")[0] if told.rc == 0 else ""
    return INBOX if found == "(builtin)" else found
