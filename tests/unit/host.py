# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A host in a separate directory whose programs are methods that change it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import machine, reboots
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    Result,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import Node


class Host:
    """A host. `gone` names programs that are not installed.

    A program is the method of its name. It takes the arguments and returns status and output.
    systemctl may have one method per verb.
    """

    layer: str
    root: Path
    container: Optional[str] = None
    boot = 1

    def __init__(self, root: Path, container: Optional[str] = None) -> None:
        self.root, self.container = root, container
        self.calls: list[list[str]] = []
        self.gone: set[str] = set()
        self.stdin = ""

    def node(self, check_mode: bool = False) -> Node:
        return Node(
            layer=self.layer,
            root=self.root,
            run=self.run,
            container=self.container or machine.container(self.root),
            boot_id=f"boot-{self.boot}",
            check_mode=check_mode,
            uid=os.getuid(),
            gid=os.getgid(),
            rebooted_for=tuple(reboots.recorded(self.layer, self.root)),
        )

    def read(self, name: str) -> str:
        return (self.root / name).read_text()

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def ran(self, *words: str) -> int:
        return sum(1 for call in self.calls if call[: len(words)] == list(words))

    def snapshot(self) -> dict[str, str]:
        """Return every file and directory, to detect changes."""
        found = {}
        for path in sorted(self.root.rglob("*")):
            name = str(path.relative_to(self.root))
            if path.is_symlink():
                found[name] = f"-> {path.readlink()}"
            elif path.is_file():
                found[name] = str(hash(path.read_bytes()))
            else:
                found[name] = oct(path.stat().st_mode)
        return found

    def run(
        self, argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None
    ) -> Result:
        words, self.stdin = list(argv), stdin or ""
        self.calls.append(words)
        if words[0] in self.gone:
            raise CommandError(f"{words[0]}: not installed (wanted to run: {' '.join(words)})")
        rc, stdout, stderr = (*self.program(words), "")[:3]
        if check and rc:
            raise CommandError(f"{' '.join(words)}: exit status {rc}: {stderr.strip() or stdout}")
        return Result(tuple(words), rc, stdout, stderr)

    def program(self, words: list[str]) -> tuple[Any, ...]:
        name = Path(words[0]).name.replace("-", "_").replace(".", "_")
        handler = getattr(self, f"_{name}", None)
        if handler is None and name == "systemctl":
            handler = getattr(self, f"_systemctl_{words[1].replace('-', '_')}", None)
        assert handler is not None, f"no program for {words}"
        result: tuple[Any, ...] = handler(words)
        return result
