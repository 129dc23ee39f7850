# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the engine asks of a package manager; apt.py and dnf.py answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Optional, Protocol

from ..files import FilePlan
from .package import Change, PackageSet, Repository, Stream


class PackageError(Exception):
    """The package manager refused; the text says which package or repository, why, what to do."""


class Manager(Protocol):
    """One node's package manager. Versions are full ones, as the package manager writes them.

    Reading methods change nothing on the node and work in check mode. `layer` (`rdma`, `gpu`) is
    part of the names of files that are planned, so that two layers do not undo each other.
    """

    def busy(self) -> bool:
        """Whether another package manager is at work now: what looks half done is not."""

    def wait(self) -> None:
        """Until it is done. Raises PackageError after the usual limit."""

    def warnings(self) -> Sequence[str]:
        """What the package manager said of repositories that it verified and took all the same."""

    def interrupted(self, names: Optional[Collection[str]] = None) -> str:
        """What an interrupted transaction left behind, in a line; empty when nothing did.

        With `names`, what concerns these packages alone. Empty while another one is at work.
        """

    def repair(self) -> None:
        """Finish or undo what was interrupted, with what is on the node alone."""

    def repository_files(self, repositories: Sequence[Repository], layer: str) -> list[FilePlan]:
        """Definitions and keys. Raises PackageError for a key whose checksum is another."""

    def refresh(self, repositories: Sequence[Repository]) -> None:
        """Fetch and verify the metadata of these into a place that nobody else reads.

        The definitions need not be on the node yet: this is part of planning, in check mode too.
        From here on `available`, `offered` and `simulate` know them, beside what the node has.
        Raises PackageError with the repository and, for a bad signature, the key. Not called in
        an unchanged run.
        """

    def lacking(self, repositories: Sequence[Repository]) -> Sequence[Repository]:
        """Those of them that no layer has defined on the node."""

    def adopt(self, repositories: Sequence[Repository]) -> None:
        """After the definitions were written: what `refresh` verified is what the node uses."""

    def installed(self) -> Mapping[str, str]:
        """Every installed package and its version."""

    def available(self, names: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Versions that the repositories have, newest first; empty for a name nobody has."""

    def offered(
        self, names: Sequence[str], repositories: Sequence[Repository]
    ) -> Mapping[str, Sequence[str]]:
        """The same, of these repositories alone."""

    def needs(self, names: Sequence[str]) -> frozenset[str]:
        """Installed packages that these need, at any depth; without `names` themselves."""

    def compare(self, one: str, other: str) -> int:
        """-1, 0 or 1, by the package manager's own rules."""

    def upstream(self, version: str) -> str:
        """The version without epoch and revision of the package."""

    def stream_changes(self, streams: Sequence[Stream]) -> list[Change]:
        """Module streams that are another one now, or none; always empty for apt."""

    def switch_streams(self, streams: Sequence[Stream]) -> None:
        """Enable these streams, away from others where they are enabled. Installs nothing."""

    def simulate(
        self,
        exact: Mapping[str, str],
        remove: Sequence[str] = (),
        prefer: Optional[Mapping[str, str]] = None,
    ) -> list[Change]:
        """Everything the solver would do for these versions. Raises PackageError when it cannot.

        As if what this layer pinned and held until now were let go, and other holds kept. `prefer`
        are versions of packages that may come in as dependencies; none is installed for its sake.
        """

    def apply(self, exact: Mapping[str, str], remove: Sequence[str] = ()) -> None:
        """The same for real, without questions and without touching files an operator changed.

        The pin files are on the node already. Nothing but `remove` may be removed.
        """

    def pin_files(self, pins: Mapping[str, str], wanted: PackageSet, layer: str) -> list[FilePlan]:
        """Files that keep every package of `pins` at its version, whoever asks for an upgrade."""

    def pinned(self, layer: str = "") -> Mapping[str, str]:
        """What the pin files of `layer` on the node say now; of all layers without one."""

    def held(self) -> frozenset[str]:
        """Packages that are held now."""

    def hold(self, names: Sequence[str]) -> None:
        """Hold these (apt-mark hold; where pin files hold by themselves: nothing to do)."""

    def release(self, names: Sequence[str]) -> None:
        """Let go of these, for a planned change."""
