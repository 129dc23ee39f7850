# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a kind of file system says of its mounts: `nfs_options`, and `lustre/` for Lustre."""

from __future__ import annotations

from typing import Protocol

from ..dataclass import dataclass
from .file_system import FileSystem
from .mounted import Mount


@dataclass(frozen=True)
class Difference:
    """An option that was asked for and does not run."""

    option: str
    """Its name, such as `nconnect`."""
    wanted: str
    """As mount(8) takes it: `nconnect=8`, `nosuid`."""
    found: str
    """As the kernel tells it; `not set` where it does not."""

    @property
    def text(self) -> str:
        return f"{self.wanted} (runs: {self.found})"


class MountKind(Protocol):
    """Pure functions. A module with these names is one."""

    @property
    def TYPE(self) -> str:
        """`Type=` of the mount unit."""

    @property
    def TYPES(self) -> tuple[str, ...]:
        """What mountinfo calls it: `nfs` is mounted and `nfs4` is there."""

    def source(self, fs: FileSystem) -> str:
        """As mount(8) takes it."""

    def same_source(self, wanted: str, found: str) -> bool:
        """Whether mountinfo's source is the wanted one, however it is spelled."""

    def options(self, fs: FileSystem, timeout_s: int) -> tuple[str, ...]:
        """Words of `Options=`. `timeout_s`: how long the unit gives a mount to succeed."""

    def differences(self, fs: FileSystem, running: Mount) -> tuple[Difference, ...]:
        """What was asked for and runs differently. What was not asked for is left alone."""
