# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One stand-in package, as input of the builders of .deb and .rpm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

NOTE = "Stand-in for tests of baremetal.mpi_roce: a simulation, nothing of the vendor is in it."


@dataclass(frozen=True)
class File:
    """Content, or with `link` the target of a symbolic link."""

    content: bytes = b""
    mode: int = 0o644
    link: str = ""


@dataclass(frozen=True, eq=False)
class Package:
    """`version` is the full version in the syntax of the package manager:
    `[epoch:]upstream-revision`.

    Relations are in the package manager's syntax. `modular` names the dnf streams that contain the
    package. Empty: it is not modular.
    """

    name: str
    version: str
    requires: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    """Debian's Replaces, RPM's Obsoletes."""
    files: Mapping[str, File] = field(default_factory=dict)
    before: str = ""
    """Shell script before the files are installed (preinst, %pre)."""
    after: str = ""
    """Shell script after the files are installed (postinst configure, %post)."""
    gone: str = ""
    """Shell script after the package was removed, but not after an upgrade."""
    settings: tuple[str, ...] = ()
    """Configuration files (conffiles, %config(noreplace))."""
    modular: tuple[str, ...] = ()

    @property
    def epoch(self) -> str:
        return self.version.partition(":")[0] if ":" in self.version else ""

    @property
    def upstream(self) -> str:
        return self.version.partition(":")[2] or self.version

    @property
    def key(self) -> str:
        """Key that is unique within a repository."""
        return f"{self.name} {self.version}"

    @property
    def libraries(self) -> bool:
        """Whether ldconfig must run after installation and removal."""
        return any(".so." in path for path in self.files)

    @property
    def filename(self) -> str:
        return f"{self.name}-{self.upstream}"
