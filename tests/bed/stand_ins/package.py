# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One stand-in package, in words that the builders of .deb and .rpm share."""

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
    """`version` is the full one as its package manager writes it: `[epoch:]upstream-revision`.

    Relations are in the package manager's own syntax. `modular` names the streams of dnf that have
    the package; empty: it is in none.
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
    """Shell before the files come (preinst, %pre)."""
    after: str = ""
    """Shell after the files came (postinst configure, %post)."""
    gone: str = ""
    """Shell after the package went for good."""
    settings: tuple[str, ...] = ()
    """Files of the operator's once installed (conffiles, %config(noreplace))."""
    modular: tuple[str, ...] = ()

    @property
    def epoch(self) -> str:
        return self.version.partition(":")[0] if ":" in self.version else ""

    @property
    def upstream(self) -> str:
        return self.version.partition(":")[2] or self.version

    @property
    def key(self) -> str:
        """What there is one of in a repository."""
        return f"{self.name} {self.version}"

    @property
    def libraries(self) -> bool:
        """Whether the linker has to look again when it comes and when it went."""
        return any(".so." in path for path in self.files)

    @property
    def filename(self) -> str:
        return f"{self.name}-{self.upstream}"
