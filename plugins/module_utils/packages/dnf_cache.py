# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A place of our own for what is planned: definitions, keys, metadata, a list of locks.

Planning reads metadata that the node may not have yet and writes nothing where dnf, or an operator,
would find it. What was verified here can be handed to dnf afterwards, so that it is fetched once.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Collection
from pathlib import Path

CACHE = Path("var/cache/dnf")
STATE = Path("var/lib/dnf")


class Place:
    """A temporary directory, with dnf's cache, repository definitions and lock list in it."""

    def __init__(self, root: Path) -> None:
        parent = root / "var/tmp"  # mostly on the same file system as dnf's cache: links suffice
        where = parent if parent.is_dir() else None
        self.path = Path(tempfile.mkdtemp(prefix="baremetal-mpi-roce-", dir=where))
        self.state = self.path / "state"
        if (root / STATE).is_dir():
            shutil.copytree(root / STATE, self.state)  # dnf writes there although it only reads
        else:
            self.state.mkdir()
        self.cache = self.path / "cache"
        self.definitions = self.path / "repos.d"
        self.plugins = self.path / "plugins"
        for folder in (self.cache, self.definitions, self.plugins):
            folder.mkdir()
        self._system = root / CACHE

    def seed(self, without: str = "") -> None:
        """Metadata that the node has, but for repositories whose id begins with `without`."""
        for place in sorted(self._system.glob("*-*/")):
            if (without and place.name.startswith(without)) or not (place / "repodata").is_dir():
                continue
            target = self.cache / place.name
            if not target.exists():
                _tree(place, target, _link_or_copy)

    def adopt(self, repositories: Collection[str]) -> None:
        """Hand the metadata of these repositories to dnf; each is the old or the new one."""
        for name in repositories:
            for place in self.cache.glob(f"{name}-*/"):
                if place.name.rpartition("-")[0] != name:
                    continue
                self._system.mkdir(parents=True, exist_ok=True)
                target = self._system / place.name
                coming = self._system / f".{place.name}.{self.path.name}"
                _tree(place, coming, _plain_copy)
                if (target / "packages").is_dir():
                    (target / "packages").rename(coming / "packages")
                shutil.rmtree(target, ignore_errors=True)
                coming.rename(target)

    def lock_list(self, text: str) -> None:
        """Let versionlock read this list: its configuration is read here last."""
        path = self.plugins / "versionlock.list"
        path.write_text(text, encoding="utf-8")
        configuration = self.plugins / "versionlock.conf"
        configuration.write_text(f"[main]\nlocklist = {path}\n", encoding="utf-8")

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def _tree(source: Path, target: Path, copy: Callable[[str, str], object]) -> None:
    ignore = shutil.ignore_patterns("packages")
    shutil.copytree(source, target, copy_function=copy, ignore=ignore)


def _link_or_copy(source: str, target: str) -> None:
    """Metadata are replaced and never changed in place: a link is as good as a copy."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _plain_copy(source: str, target: str) -> None:
    """With its age, which says when it expires, but labelled (SELinux) as its new place is."""
    shutil.copyfile(source, target)
    status = Path(source).stat()
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
