# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The CUDA toolkit for everybody on the node: PATH of logins, linker, the link /usr/local/cuda."""

from __future__ import annotations

import re
from functools import partial

from ..checks import compare
from ..commands import CommandError
from ..dataclass import dataclass
from ..node.part import NAME, Node, Plan, Step, Verdict
from .shared import Shared, run

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


@dataclass(frozen=True)
class Cuda:
    shared: Shared
    version: str
    """`13.0`"""

    @property
    def library(self) -> str:
        return f"libcudart.so.{self.version.split('.')[0]}"

    def plan(self, node: Node) -> Plan:
        files = [node.file(PROFILE, BODY), node.file(LINKER, f"/{HOME}/lib64\n")]
        steps = []
        found = _release(node)
        if found != self.version:
            steps.append(Step(f"/{HOME}", found, self.version, partial(self._link, node)))
        if files[1].changed or not self._known(node):
            act = partial(run, node, ["ldconfig"])
            steps.append(Step(f"linker, {self.library}", "not known", "known", act))
        return Plan(files, steps)

    def verify(self, node: Node) -> Verdict:
        cause, version, check_mode = self.shared.without_cuda, self.version, node.check_mode
        if cause.name:
            return Verdict([cause.hides("cuda_toolkit", version)])
        found = _release(node)
        why = f"update-alternatives --set cuda /{HOME}-{version} chooses between several toolkits"
        checks = [compare("cuda_toolkit", version, found, check_mode=check_mode, reason=why)]
        if found == version:  # else the library is another one as well
            known = self.library if self._known(node) else "not known to the linker"
            why = "ldconfig -p does not have it: run ldconfig, and look for it in /usr/local/cuda"
            linker = compare("cuda_linker", self.library, known, check_mode=check_mode, reason=why)
            checks.append(linker)
        return Verdict(checks)

    def _known(self, node: Node) -> bool:
        told = node.look(["ldconfig", "-p"], check=False).stdout
        return any(line.split()[:1] == [self.library] for line in told.splitlines())

    def _link(self, node: Node) -> None:
        folder = f"{HOME}-{self.version}"
        if _release(node) != self.version and node.path(folder).is_dir():
            node.run(["update-alternatives", "--set", "cuda", f"/{folder}"])


def _release(node: Node) -> str:
    """The toolkit to which /usr/local/cuda leads, or why that is not known."""
    try:
        told = node.look([str(node.path(f"{HOME}/bin/nvcc")), "--version"]).stdout
    except CommandError as error:
        return str(error)
    return "".join(RELEASE.findall(told))
