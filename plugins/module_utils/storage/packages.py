# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Programs that mounting and serving NFS takes: the distribution's, present and not pinned.

They speak to kernels and servers of any version, so they have no place in the cluster's set.
Lustre's client is a kernel module of its own and has: `lustre/`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ..core.checks import compare
from ..core.commands import CommandError, Runner
from ..core.dataclass import dataclass
from ..core.part import Node, Plan, PlanError, Step, StepError, Verdict
from ..packages.apt import SOLVER, TRANSACTION
from ..packages.apt_view import options
from ..software.distribution import REDHAT

NFS_CLIENT, NFS_SERVER, XFS, EXT4 = "nfs client", "nfs server", "xfs", "ext4"

DEBIAN_NAMES: Mapping[str, Sequence[str]] = {
    NFS_CLIENT: ("nfs-common",),
    NFS_SERVER: ("nfs-kernel-server",),
    XFS: ("xfsprogs",),
    EXT4: ("e2fsprogs",),
}
REDHAT_NAMES: Mapping[str, Sequence[str]] = {
    NFS_CLIENT: ("nfs-utils",),
    NFS_SERVER: ("nfs-utils",),
    XFS: ("xfsprogs",),
    EXT4: ("e2fsprogs",),
}
CHECK = "storage_package"


def names(family: str, purposes: Collection[str]) -> tuple[str, ...]:
    """The packages of a distribution family for these purposes, in one order, each once."""
    table = REDHAT_NAMES if family == REDHAT else DEBIAN_NAMES
    wanted = [name for purpose in table if purpose in purposes for name in table[purpose]]
    return tuple(dict.fromkeys(wanted))


@dataclass
class Packages:
    """`install` runs the package manager, which may take long; `Node.look` only looks."""

    family: str
    purposes: frozenset[str]
    install: Runner

    def plan(self, node: Node) -> Plan:
        missing = self._missing(node)
        if not missing:
            return Plan()
        step = Step(
            "packages of shared storage",
            "\n".join(f"{name}: not installed" for name in missing),
            "\n".join(f"{name}: installed" for name in missing),
            lambda: self._install(missing),
            essential=True,
        )
        return Plan([], [step])

    def verify(self, node: Node) -> Verdict:
        missing = self._missing(node)
        return Verdict(
            [
                compare(
                    CHECK,
                    "installed",
                    "not installed" if name in missing else "installed",
                    subject=name,
                    check_mode=node.check_mode,
                )
                for name in names(self.family, self.purposes)
            ]
        )

    def _missing(self, node: Node) -> list[str]:
        wanted = names(self.family, self.purposes)
        if not wanted:
            return []
        try:
            if self.family == REDHAT:
                argv = ["rpm", "-q", "--qf", "%{NAME} ok installed\\n", *wanted]
            else:
                argv = ["dpkg-query", "-W", "-f", "${Package} ${Status}\\n", *wanted]
            told = node.look(argv, check=False).stdout
        except CommandError as error:
            raise PlanError(f"packages of shared storage: {error}") from error
        # `rpm -q` says in words which are not there, `dpkg-query` which were removed.
        rows = [line.split() for line in told.splitlines()]
        there = {row[0] for row in rows if len(row) > 2 and row[-2:] == ["ok", "installed"]}
        return [name for name in wanted if name not in there]

    def _install(self, missing: Sequence[str]) -> None:
        try:
            if self.family == REDHAT:
                self.install(
                    ["dnf", "-y", "-q", "--setopt=install_weak_deps=False", "install", *missing]
                )
                return
            # What the node knows of its repositories may be older than they are, or nothing.
            self.install(["apt-get", "-q", *options(TRANSACTION), "update"], check=False)
            words = options((*TRANSACTION, *SOLVER))
            self.install(["apt-get", "-y", "-q", *words, "--no-remove", "install", *missing])
        except CommandError as error:
            raise StepError(str(error)) from error
