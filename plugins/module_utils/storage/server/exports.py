# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Who may mount what: one line per address in a file of ours, and what the server has in force.

Exports of the operator stay as they are, in whatever file or, given to exportfs by hand, in none.
A file system that is not served any more goes on being exported until somebody says that it is
gone: nodes may have it mounted, and would be told that their files are stale.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence, Set

from ...core.checks import FAILED, OK, PENDING, Check, compare, not_applicable
from ...core.commands import CommandError
from ...core.dataclass import dataclass
from ...core.part import Node, Plan, PlanError, Step, Verdict
from ...core.text import some
from . import exports_file
from .exports_file import (
    EXPORTS,
    FILE,
    MOUNTED,
    Block,
    Export,
    Foreign,
    parse,
    parse_exports,
    render,
)
from .served import Served

CHECK, OTHERS, LEFT = "nfs_exports", "nfs_exports_of_others", "nfs_exports_left"
COMPARED = frozenset(
    (
        *("rw", "ro", "sync", "async", "root_squash", "no_root_squash", "all_squash", "insecure"),
        *("subtree_check", "no_subtree_check", MOUNTED),
    )
)
"""Options that are compared, besides `sec=`; exportfs tells defaults too, which vary by version."""
SHOWN = 6
AT_ONCE = 1000
"""Words of one command: some 300 bytes each at most, of 2 MiB that the kernel takes."""


@dataclass
class Exports:
    """`absent`: served directories that are gone for good, and unmounted everywhere."""

    served: Sequence[Served]
    absent: Collection[str] = ()

    def plan(self, node: Node) -> Plan:
        blocks = self.blocks(node)
        if not blocks and not node.path(FILE).exists():
            return Plan()
        nobody = [each.system.name for each in self.served if not each.addresses]
        if nobody:
            raise PlanError(
                f"{', '.join(nobody)}: no host of its groups mounts it, so there is nobody to "
                "serve it to. Correct `hosts` of the file system, or take out `serve`"
            )
        files = [node.file(FILE, render(blocks) or None)]
        if node.read(EXPORTS) is None:  # exportfs stops where it is missing
            files.append(node.record(EXPORTS, ""))
        if node.container:
            return Plan(files)
        wanted = _wanted(blocks)
        right = {_compared(each) for each in wanted}
        paths = {each.path for each in wanted}
        there = {_compared(each) for each in self._in_force(node) if each.path in paths}
        if there == right and not any(each.changed for each in files):
            return Plan(files)
        step = Step(
            "exports in force",
            f"{len(there & right)} as wanted, {len(there - right)} others",
            f"{len(right)} as wanted",
            lambda: self._act(node, wanted),
        )
        return Plan(files, [step])

    def verify(self, node: Node) -> Verdict:
        checks = [self._check(node, each) for each in self.served]
        checks += self._of_others(node)
        checks += [_left(block) for block in self.left(node)]
        return Verdict(checks)

    # What is wanted.

    def blocks(self, node: Node) -> list[Block]:
        found = [
            *(each.block(mounted=not node.container) for each in self.served),
            *self.left(node),
        ]
        return sorted(found, key=lambda block: block.path)

    def left(self, node: Node) -> list[Block]:
        """Of file systems that were served here once, until they are said to be absent."""
        paths = {each.path for each in self.served}
        return [
            block
            for block in parse(node.read(FILE) or "")
            if block.path not in paths and block.path not in self.absent
        ]

    # What is in force.

    def _in_force(self, node: Node) -> list[Export]:
        try:
            return parse_exports(node.look(["exportfs", "-s"]).stdout)
        except CommandError:  # not installed yet, as on a fresh host
            return []

    def _act(self, node: Node, wanted: Collection[Export]) -> None:
        """`exportfs -ra` ends all that is in no file: where somebody relies on such, one by one."""
        ours = {(each.path, each.client) for each in wanted}
        paths = {each.path for each in wanted}
        in_force = parse_exports(node.look(["exportfs", "-s"]).stdout)
        stale = beyond(in_force, _in_files(node), ours)
        if all(each.path in paths for each in stale):
            node.run(["exportfs", "-ra"])
            return
        withdraw(node, [each for each in stale if each.path in paths])
        node.run(["exportfs", "-a"])

    # What is found.

    def _check(self, node: Node, each: Served) -> Check:
        wanted = f"{len(each.addresses)} addresses"
        if node.container:
            why = node.not_here("the kernel's NFS server is the host's")
            return not_applicable(CHECK, wanted, why, subject=each.path)
        try:
            found = parse_exports(node.look(["exportfs", "-s"]).stdout)
        except CommandError as error:
            status = PENDING if node.check_mode else FAILED
            return Check(CHECK, wanted, "unknown", status, each.path, str(error))
        there = {_compared(export) for export in found if export.path == each.path}
        right = {_compared(export) for export in _wanted([each.block()])}
        told = []
        missing = sorted(export.client for export in right - there)
        if missing:
            told.append(f"not, or with other options: {some(missing, SHOWN)}")
        more = sorted(export.text for export in there - right)
        if more:
            told.append(
                f"besides: {some(more, SHOWN)}; exportfs -u takes one away that is in no file"
            )
        return compare(
            CHECK,
            wanted,
            f"{len(there & right)} of them" if told else wanted,
            subject=each.path,
            check_mode=node.check_mode,
            reason="; ".join(told),
        )

    def _of_others(self, node: Node) -> list[Check]:
        foreign = [*exports_file.foreign(node), *self._by_hand(node)] if self.served else []
        nobody = "nobody but the cluster's nodes"
        checks = []
        for each in self.served:
            wide = exports_file.wider(foreign, each.path, frozenset(each.addresses))
            checks += [
                Check(
                    OTHERS,
                    nobody,
                    one.export.text,
                    FAILED,
                    each.path,
                    f"{one.place} exports {_relation(each.path, one.export.path)}, and what it "
                    f"allows holds for {each.path} too. Take that out, or serve a directory "
                    "on a file system of its own, then run exportfs -ra",
                )
                for one in wide
            ]
            if not wide:
                checks.append(Check(OTHERS, nobody, nobody, OK, each.path))
        return checks

    def _by_hand(self, node: Node) -> list[Foreign]:
        """What is in force and in no file, of other directories: ours are judged by `_check`."""
        if node.container:
            return []
        own = {(each.path, each.client) for each in _wanted(self.blocks(node))}
        paths = {each.path for each in self.served}
        return [
            Foreign("", each)
            for each in beyond(self._in_force(node), own, _in_files(node))
            if each.path not in paths
        ]


@dataclass
class Withdrawn:
    """Exports of what is gone for good, ended before our file forgets them.

    Interrupted in between, the file still names them, and the next run ends them.
    """

    exports: Exports

    def plan(self, node: Node) -> Plan:
        if node.container:
            return Plan()
        before = parse(node.read(FILE) or "")
        kept = {block.path for block in self.exports.blocks(node)}
        gone = [block for block in before if block.path not in kept]
        if not gone:
            return Plan()
        step = Step(
            f"exports of {', '.join(block.path for block in gone)}",
            "in force",
            "ended: nodes that have it mounted are told that their files are stale",
            lambda: self._act(node, {block.path for block in gone}),
            essential=True,
        )
        return Plan([], [step])

    def verify(self, node: Node) -> Verdict:
        return Verdict()

    def _act(self, node: Node, paths: Collection[str]) -> None:
        in_force = parse_exports(node.look(["exportfs", "-s"]).stdout)
        others = beyond(in_force, _in_files(node))
        withdraw(node, [each for each in others if each.path in paths])


def _in_files(node: Node) -> set[tuple[str, str]]:
    """What the operator's files export: a directory and a client each."""
    return {(each.export.path, each.export.client) for each in exports_file.foreign(node)}


def beyond(in_force: Iterable[Export], *known: Set[tuple[str, str]]) -> list[Export]:
    """Those that are in none of `known`, sets of directories with a client."""
    return [
        each for each in in_force if not any((each.path, each.client) in some for some in known)
    ]


def withdraw(node: Node, exports: Sequence[Export]) -> None:
    """Many at a time: exportfs writes all of its table again each time that it is run."""
    words = [
        f"[{each.client}]:{each.path}" if ":" in each.client else f"{each.client}:{each.path}"
        for each in exports
    ]
    for start in range(0, len(words), AT_ONCE):
        node.run(["exportfs", "-u", *words[start : start + AT_ONCE]])


def _wanted(blocks: Sequence[Block]) -> set[Export]:
    return {
        Export(block.path, address, block.options)
        for block in blocks
        for address in block.addresses
    }


def _compared(export: Export) -> Export:
    """With the options that matter, in one order, and without its line."""
    kept = {each for each in export.options if each in COMPARED or each.startswith("sec=")}
    return Export(export.path, export.client, tuple(sorted(kept)))


def _left(block: Block) -> Check:
    return Check(
        LEFT,
        "served, or gone",
        "exported, and not in the list",
        FAILED,
        block.path,
        f"file system {block.name} is not served by this host any more. Nodes may have it mounted: "
        f"unmount it there, then add {block.path} to shared_storage_absent",
    )


def _relation(path: str, other: str) -> str:
    if path == other:
        return "it as well"
    within = path.startswith(other.rstrip("/") + "/")
    return f"{other}, in which it lies" if within else f"{other}, which lies in it"
