# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The CUDA toolkit for everybody on the node: PATH of logins, linker, the link /usr/local/cuda."""

from __future__ import annotations

import re
from functools import partial
from pathlib import PurePosixPath

from ..checks import Check, compare
from ..commands import CommandError
from ..dataclass import dataclass
from ..node.part import NAME, Node, Plan, Step, Verdict
from .cause import Cause

HOME = "usr/local/cuda"
PROFILE = f"etc/profile.d/{NAME}-cuda.sh"
LINKER = f"etc/ld.so.conf.d/90-{NAME}-cuda.conf"
BODY = """\
export CUDA_HOME=/usr/local/cuda
case ":$PATH:" in
  *:/usr/local/cuda/bin:*) ;;
  *) export PATH=/usr/local/cuda/bin:$PATH ;;
esac
"""
RELEASE = re.compile(r"release (\d+\.\d+)")
LINKS = 8
"""More links than these one after another are a circle."""


@dataclass(frozen=True)
class Cuda:
    version: str
    """`13.0`"""
    cause: Cause

    @property
    def folder(self) -> str:
        return f"{HOME}-{self.version}"

    @property
    def library(self) -> str:
        return f"libcudart.so.{self.version.split('.')[0]}"

    def plan(self, node: Node) -> Plan:
        files = [node.file(PROFILE, BODY), node.file(LINKER, f"/{HOME}/lib64\n")]
        steps = []
        linked = _target(node, HOME)
        if linked != self.folder:
            act = partial(self._link, node)
            before = f"/{linked}" if linked else "absent"
            steps.append(Step(f"/{HOME}", before, f"/{self.folder}", act))
        if files[1].changed or not self._known(node):
            act = partial(self._ldconfig, node)
            steps.append(Step(f"linker, {self.library}", "not known", "known", act))
        return Plan(files, steps)

    def verify(self, node: Node) -> Verdict:
        if self.cause.name:
            return Verdict([self.cause.hides("cuda_toolkit", self.version)])
        checks = [self._toolkit(node)]
        if checks[0].wanted == checks[0].found:  # else the library is another one as well
            found = self.library if self._known(node) else "not known to the linker"
            why = "ldconfig -p does not have it: run ldconfig, and look for it in /usr/local/cuda"
            checks.append(
                compare("cuda_linker", self.library, found, check_mode=node.check_mode, reason=why)
            )
        return Verdict(checks)

    def _toolkit(self, node: Node) -> Check:
        try:
            told = node.look([str(node.path(f"{HOME}/bin/nvcc")), "--version"]).stdout
            match = RELEASE.search(told)
            found = match.group(1) if match else "nvcc names no release"
        except CommandError as error:
            found = str(error)
        why = f"update-alternatives --set cuda /{self.folder} chooses between several toolkits"
        return compare("cuda_toolkit", self.version, found, check_mode=node.check_mode, reason=why)

    def _known(self, node: Node) -> bool:
        told = node.look(["ldconfig", "-p"], check=False).stdout
        return any(line.split()[:1] == [self.library] for line in told.splitlines())

    def _link(self, node: Node) -> None:
        if _target(node, HOME) != self.folder and node.path(self.folder).is_dir():
            node.run(["update-alternatives", "--set", "cuda", f"/{self.folder}"])

    def _ldconfig(self, node: Node) -> None:
        node.run(["ldconfig"])


def _target(node: Node, name: str) -> str:
    """Where a chain of links ends, below the node's root; empty when nothing is there."""
    for _link in range(LINKS):
        path = node.path(name)
        if not path.is_symlink():
            return name if path.exists() else ""
        target = str(path.readlink())
        name = str(PurePosixPath("/") / PurePosixPath(name).parent / target).lstrip("/")
    return ""
