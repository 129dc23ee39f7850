# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Programs that mounting and serving NFS takes: the distribution's, present and not pinned.

They work with kernels and servers of any version, so they have no place in the cluster's set.
Lustre's client is a kernel module of its own and has: `lustre/`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..core.checks import compare
from ..core.commands import CommandError, Runner
from ..core.dataclass import dataclass
from ..core.part import Node, Plan, Step, StepError, Verdict
from ..packages.apt import SOLVER, TRANSACTION, options
from ..software.distribution import REDHAT

CLIENT, SERVER = "client", "server"
_NAMES = {CLIENT: "nfs-common", SERVER: "nfs-kernel-server"}
_OF_FORMAT = {"xfs": "xfsprogs", "ext4": "e2fsprogs"}
CHECK = "storage_package"


def names(family: str, purposes: Sequence[str]) -> list[str]:
    """The packages for `client`, `server`, and formats of devices, each once."""
    of_nfs = dict.fromkeys(_NAMES, "nfs-utils") if family == REDHAT else _NAMES
    table = {**of_nfs, **_OF_FORMAT}
    return list(dict.fromkeys(table[each] for each in purposes))


@dataclass
class Packages:
    """`install` runs the package manager, which may take long; `Node.look` only looks."""

    family: str
    purposes: Sequence[str]
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
        found = {
            name: "not installed" if name in missing else "installed"
            for name in names(self.family, self.purposes)
        }
        return Verdict(
            [
                compare(CHECK, "installed", state, subject=name, check_mode=node.check_mode)
                for name, state in found.items()
            ]
        )

    def _missing(self, node: Node) -> list[str]:
        wanted = names(self.family, self.purposes)
        if not wanted:
            return []
        if self.family == REDHAT:
            argv = ["rpm", "-q", "--qf", "%{NAME} ok installed\\n", *wanted]
        else:
            argv = ["dpkg-query", "-W", "-f", "${Package} ${Status}\\n", *wanted]
        # `rpm -q` prints a sentence for those that are not there, `dpkg-query` those removed.
        rows = [line.split() for line in node.look(argv, check=False).stdout.splitlines()]
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
