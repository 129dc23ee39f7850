# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From settings and file systems to the parts of a node that is a client of Lustre."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Optional

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.commands import Runner
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.dataclass import dataclass
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.node.part import Node, Part
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.manager import Manager
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.package import PackageSet
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.roce import BOOT_UNIT

from ..file_system import LUSTRE, FileSystem
from .health import HealthPart
from .kernel import THIS, Kernel
from .left import LeftLnet
from .lnet import LnetPart
from .lnet_file import SERVICE
from .packages import ClientPackages
from .settings import LustreSettings
from .stripes import StripesPart, wishes

AFTER = (SERVICE,)
"""Units that a mount of Lustre comes after."""


@dataclass
class LustreParts:
    """`before` the mounts and `after` them; `simulated` has a line where nothing of it is real."""

    before: list[Part] = field(default_factory=list)
    after: list[Part] = field(default_factory=list)
    simulated: list[str] = field(default_factory=list)

    @property
    def all(self) -> list[Part]:
        return [*self.before, *self.after]


def lustre_parts(
    settings: LustreSettings,
    filesystems: Sequence[FileSystem],
    rails: Sequence[Mapping[str, Any]],
    node: Node,
    *,
    look: Optional[Runner] = None,
    manager: Optional[Manager] = None,
    packages: Optional[PackageSet] = None,
    user: str = "",
    root: Path = THIS,
    absent: Sequence[str] = (),
) -> LustreParts:
    """What a node needs to be a client of Lustre, around the part that mounts.

    `settings`     of `reading.read_settings(value, rails, filesystems)`, which raises LustreError
                   with every finding
    `filesystems`  those that this host mounts, of any type; without Lustre among them there is
                   only what looks for an LNet that was left
    `rails`        as the variable `cluster_rails`
    `look`         runs what may not come back: `partial(run, timeout_s=settings.time_limit_s)`
    `manager`      of `node.system.manager_of`, with `packages`, which is
                   `packages.client_packages(settings, distribution, kernel, key, rdma_source)`;
                   both may be left out with the method `present`
    `user`         the MPI user, whose quota is judged
    `root`         where sys and proc of the kernel are; another than `/` is a stand-in's, and
                   what runs there is a simulation
    `absent`       all that is to be taken away, of any kind

    Settle `before`, the mounts, `after`, in this order. Mount units of Lustre come after AFTER.
    """
    mine = [fs for fs in filesystems if fs.type == LUSTRE]
    simulated = root != THIS
    kernel = Kernel(root if simulated else node.root, look or node.look, simulated)
    left = LeftLnet(kernel, bool(mine), absent)
    told = (
        [f"Lustre and LNet are read below {root}: stand-ins, no kernel of this machine has them"]
        if simulated
        else []
    )
    if not mine:
        return LustreParts(after=[left], simulated=told if left.files(node) else [])
    names = [str(rail["interface"]) for rail in rails]
    after = (BOOT_UNIT,) if set(names) & set(settings.interfaces) else ()
    wanted = packages if packages is not None else PackageSet()
    client = ClientPackages(settings, kernel, wanted, manager)
    return LustreParts(
        before=[left, client, LnetPart(settings, kernel, after, lambda: client.changing, names)],
        after=[
            StripesPart(wishes(mine, settings.stripes), [fs.mount for fs in mine], kernel),
            HealthPart(settings, mine, kernel, user),
        ],
        simulated=told,
    )
