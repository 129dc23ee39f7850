# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Where kernel arguments are configured for the next boot: GRUB's drop-in, or grubby's entries."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Optional, Protocol

from ..core.dataclass import dataclass
from ..core.files import FilePlan
from ..core.part import NAME, Node

GRUB_DROP_IN = f"etc/default/grub.d/90-{NAME}.cfg"
GRUB_CONFIG = "boot/grub/grub.cfg"
OWN_KERNELS = "/etc/grub.d/10_linux"
"""The script whose entries start this system; it marks its section of GRUB_CONFIG."""


class BootLoader(Protocol):
    @property
    def exclusive(self) -> bool:
        """True when our arguments stand in a place of their own."""

    def entries(self) -> list[list[str]]:
        """The arguments of each boot entry that is not a recovery one."""

    def holds(self, argument: str) -> bool:
        """Whether it is among what this collection configured for the next boot."""

    def files(self, arguments: Sequence[str]) -> list[FilePlan]:
        """Files that hold exactly the arguments of all layers."""

    def stale(self) -> bool:
        """Whether what boots is older than what is configured."""

    def configure(self, add: Sequence[str], remove: Sequence[str]) -> None: ...


@dataclass(frozen=True)
class Grub:
    """Debian and Ubuntu: a drop-in after all others, then update-grub.

    It appends to the variable that stands last on the command line, so ours win, and that recovery
    entries leave out, so a bad argument does not take the way back.
    """

    node: Node
    exclusive: bool = True

    def entries(self) -> list[list[str]]:
        """Those of this system's own kernels: neither memory tests nor other systems found."""
        found = []
        section = OWN_KERNELS
        for line in (self.node.read(GRUB_CONFIG) or "").splitlines():
            words = line.split()
            if words[:2] == ["###", "BEGIN"] and len(words) > 2:
                section = words[2]
            elif words[:1] == ["linux"] and section.startswith(OWN_KERNELS) and "vmlinu" in line:
                found.append(words[2:])
        return [words for words in found if not {"single", "recovery"} & set(words)]

    def holds(self, argument: str) -> bool:
        return argument in re.findall(r'[^\s"]+', self.node.read(GRUB_DROP_IN) or "")

    def files(self, arguments: Sequence[str]) -> list[FilePlan]:
        path = self.node.path(GRUB_DROP_IN)
        if not arguments and not path.exists():
            return []
        name = "GRUB_CMDLINE_LINUX_DEFAULT"
        line = f'{name}="${name} {" ".join(arguments)}"\n' if arguments else ""
        return [self.node.file(GRUB_DROP_IN, line)]

    def stale(self) -> bool:
        drop_in = self.node.path(GRUB_DROP_IN)
        config = self.node.path(GRUB_CONFIG)
        if not drop_in.exists():
            return False
        return not config.exists() or config.stat().st_mtime < drop_in.stat().st_mtime

    def configure(self, add: Sequence[str], remove: Sequence[str]) -> None:
        self.node.run(["update-grub"])


@dataclass(frozen=True)
class Grubby:
    """RHEL and Rocky: grubby changes every entry, and what kernels to come start from."""

    node: Node
    exclusive: bool = False

    def entries(self) -> list[list[str]]:
        text = self.node.run(["grubby", "--info=ALL"]).stdout
        found = re.findall(r'^args="(.*)"$', text, re.MULTILINE)
        return [line.split() for line in found]

    def holds(self, argument: str) -> bool:
        entries = self.entries()
        return bool(entries) and all(argument in entry for entry in entries)

    def files(self, arguments: Sequence[str]) -> list[FilePlan]:
        return []

    def stale(self) -> bool:
        return False

    def configure(self, add: Sequence[str], remove: Sequence[str]) -> None:
        words = ["grubby", "--update-kernel=ALL"]
        words += [f"--remove-args={' '.join(remove)}"] if remove else []
        words += [f"--args={' '.join(add)}"] if add else []
        self.node.run(words)


def boot_loader(node: Node) -> Optional[BootLoader]:
    """The tool this node configures its boot with, or None (a diskless node, for instance)."""
    if node.path("usr/sbin/grubby").exists():
        return Grubby(node)
    if node.path("usr/sbin/update-grub").exists():
        return Grub(node)
    return None
