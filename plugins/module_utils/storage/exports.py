# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Exports: one line per address in a file of the collection, and what is in force.

An address, never a name or a network: a name is resolved by something else, and a network has more
than the nodes. Exports of the operator, in other files or in none, stay as they are. A file system
that is not served any more stays exported until it is declared absent: nodes may have it mounted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ..core.checks import FAILED, PENDING, Check, compare, not_applicable
from ..core.commands import CommandError
from ..core.dataclass import dataclass
from ..core.part import NAME, Node, Plan, PlanError, Step, Verdict
from ..core.text import some
from .file_system import NFS, FileSystem
from .mounted import overlap

CHECK, LEFT = "nfs_exports", "nfs_exports_left"
FILE = f"etc/exports.d/{NAME}.exports"
EXPORTS = "etc/exports"
OPTIONS = ("rw", "sync", "no_subtree_check", "root_squash", "sec=sys")
"""`sync`: what was acknowledged survives the server. `no_subtree_check`: the check
fails for files that are renamed while they are open. `root_squash`: root of a node is nobody."""
MOUNTED = "mountpoint"
"""Exported only while the device is mounted: never the empty directory below it."""
COMPARED = frozenset(
    (
        *("rw", "ro", "sync", "async", "root_squash", "no_root_squash", "all_squash", "insecure"),
        *("subtree_check", "no_subtree_check", "sec=sys", MOUNTED),
    )
)
"""exportfs prints defaults as well, which vary by version."""
SHOWN = 6
AT_ONCE = 1000
"""Words of one command: some 300 bytes each at most, of 2 MiB that the kernel takes."""


@dataclass(frozen=True)
class Served:
    fs: FileSystem
    addresses: tuple[str, ...]
    """All that requests of the hosts that mount it may come from."""

    @property
    def path(self) -> str:
        return self.fs.path

    @property
    def device(self) -> str:
        return self.fs.serve.device if self.fs.serve else ""

    def lines(self, node: Node) -> list[str]:
        """Its block of the file. In a container no device is mounted."""
        mounted = [MOUNTED] if self.device and not node.container else []
        options = ",".join([*OPTIONS, *mounted])
        return [
            f"# {self.fs.name}: mounted at {self.fs.mount}",
            *(f"{self.path} {address}({options})" for address in self.addresses),
        ]


def served_by(
    host: str, filesystems: Sequence[FileSystem], clients: Mapping[str, Sequence[str]]
) -> list[Served]:
    """What a host serves. `clients`: by file system, addresses of the hosts that mount it."""
    return [
        Served(each, tuple(clients.get(each.name, ())))
        for each in filesystems
        if each.type == NFS and each.serve is not None and each.serve.host == host
    ]


@dataclass(frozen=True)
class Export:
    """One directory for one client, with the options that are compared."""

    path: str
    client: str
    options: frozenset[str]

    @property
    def text(self) -> str:
        return f"{self.path} {self.client}({','.join(sorted(self.options))})"

    def reaches(self, served: Served) -> bool:
        """Whether a client has more of a served directory than ours have.

        A directory above or below gives all of the file system: with `no_subtree_check` a guessed
        file handle is as good as one that was given.
        """
        narrow = self.client in served.addresses and "no_root_squash" not in self.options
        return self.path != served.path and overlap(self.path, served.path) and not narrow


def read_exports(text: str) -> set[Export]:
    """Of a file of exports, or of `exportfs -s`."""
    exports = set()
    for line in text.replace("\\\n", " ").split("\n"):
        path, *clients = line.partition("#")[0].split() or [""]
        for word in clients if path.startswith("/") else ():
            client, _bracket, options = word.rstrip(")").partition("(")
            exports.add(Export(path, client or "*", COMPARED.intersection(options.split(","))))
    return exports


def _keys(exports: Collection[Export]) -> set[tuple[str, str]]:
    return {(each.path, each.client) for each in exports}


def _of_operator(node: Node) -> set[Export]:
    """In files of others, in force or not."""
    files = sorted(node.path("etc/exports.d").glob("*.exports"))
    names = [EXPORTS, *(f"etc/exports.d/{file.name}" for file in files)]
    texts = [node.read(name) or "" for name in names if name != FILE]
    return {each for text in texts for each in read_exports(text)}


def _blocks(text: str) -> dict[str, list[str]]:
    """Of our file: directory to its lines."""
    found: dict[str, list[str]] = {}
    heading = ""
    for line in text.split("\n"):
        if line.startswith("#"):
            heading = line
        elif line:
            found.setdefault(line.split()[0], [heading]).append(line)
    return found


@dataclass
class Exports:
    """`absent`: served directories that are gone for good, and unmounted everywhere."""

    served: Sequence[Served]
    absent: Collection[str] = ()

    def plan(self, node: Node) -> Plan:
        blocks = {**self.left(node), **{each.path: each.lines(node) for each in self.served}}
        if not blocks and not node.path(FILE).exists():
            return Plan()
        unused = [each.fs.name for each in self.served if not each.addresses]
        if unused:
            raise PlanError(
                f"{', '.join(unused)}: no other host mounts it. Correct `hosts` of the file "
                "system, or remove `serve`"
            )
        text = "\n".join(
            "".join(f"{line}\n" for line in lines) for _path, lines in sorted(blocks.items())
        )
        files = [node.file(FILE, text or None)]
        if node.read(EXPORTS) is None:  # exportfs stops where it is missing
            files.append(node.record(EXPORTS, ""))
        if node.container:
            return Plan(files)
        wanted = read_exports(text)
        kept = _keys(_of_operator(node)) - _keys(wanted)
        there = {
            each
            for each in self._in_force(node)
            if each.path in blocks and (each.path, each.client) not in kept
        }
        if there == wanted and not any(each.changed for each in files):
            return Plan(files)
        step = Step(
            "exports in force",
            f"{len(there & wanted)} as wanted, {len(there - wanted)} others",
            f"{len(wanted)} as wanted",
            lambda: self._act(node, wanted, blocks),
        )
        return Plan(files, [step])

    def verify(self, node: Node) -> Verdict:
        checks = [self._check(node, each) for each in self.served]
        return Verdict([*checks, *map(_left, self.left(node))])

    def left(self, node: Node) -> dict[str, list[str]]:
        """Of file systems that were served here once, until they are declared absent."""
        keep = {*(each.path for each in self.served), *self.absent}
        blocks = _blocks(node.read(FILE) or "")
        return {path: lines for path, lines in blocks.items() if path not in keep}

    def _in_force(self, node: Node) -> set[Export]:
        try:
            return read_exports(node.look(["exportfs", "-s"]).stdout)
        except CommandError:  # not installed yet, as on a fresh host
            return set()

    def _act(self, node: Node, wanted: Collection[Export], paths: Collection[str]) -> None:
        """Not `exportfs -ra`, which ends exports that the operator made by hand."""
        kept = _keys(wanted) | _keys(_of_operator(node))
        in_force = self._in_force(node)
        withdraw(
            node,
            [x for x in in_force if x.path in paths and (x.path, x.client) not in kept],
        )
        node.run(["exportfs", "-a"])

    def _check(self, node: Node, each: Served) -> Check:
        promise = f"{len(each.addresses)} addresses"
        if node.container:
            why = node.not_here("the kernel's NFS server is the host's")
            return not_applicable(CHECK, promise, why, subject=each.path)
        try:
            found = read_exports(node.look(["exportfs", "-s"]).stdout)
        except CommandError as error:
            status = PENDING if node.check_mode else FAILED
            return Check(CHECK, promise, "unknown", status, each.path, str(error))
        known = _keys(found)
        coming = {one for one in _of_operator(node) if (one.path, one.client) not in known}
        others = sorted(one.text for one in found | coming if one.reaches(each))
        if others:
            reason = (
                "further exports give access to it: remove them from /etc/exports and "
                "/etc/exports.d and run exportfs -ra, or serve a directory on a file system of "
                "its own"
            )
            return Check(CHECK, promise, some(others, SHOWN), FAILED, each.path, reason)
        there = {one for one in found | coming if one.path == each.path}
        right = read_exports("\n".join(each.lines(node)))
        missing = sorted(one.client for one in right - there)
        more = sorted(one.text for one in there - right)
        result = [f"missing or with other options: {some(missing, SHOWN)}"] if missing else []
        result += [f"besides: {some(more, SHOWN)}"] if more else []
        count = f"{len(there & right)} of them" if result else promise
        return compare(
            *(CHECK, promise, count),
            subject=each.path,
            check_mode=node.check_mode,
            reason="; ".join(result),
        )


@dataclass
class Withdrawn:
    """Exports of what is gone for good, ended before the file forgets them: interrupted in between,
    the next run ends them."""

    exports: Exports

    def plan(self, node: Node) -> Plan:
        served = {each.path for each in self.exports.served}
        blocks = _blocks(node.read(FILE) or "")
        gone = [path for path in blocks if path in self.exports.absent and path not in served]
        if node.container or not gone:
            return Plan()

        def act() -> None:
            in_force = read_exports(node.look(["exportfs", "-s"]).stdout)
            withdraw(node, [each for each in in_force if each.path in gone])

        step = Step(
            f"exports of {', '.join(gone)}",
            "in force",
            "ended: files of nodes that have it mounted become stale",
            act,
            essential=True,
        )
        return Plan([], [step])

    def verify(self, node: Node) -> Verdict:
        return Verdict()


def withdraw(node: Node, exports: Sequence[Export]) -> None:
    """Many at a time: exportfs writes all of its table again each time that it is run."""
    words = [
        f"[{each.client}]:{each.path}" if ":" in each.client else f"{each.client}:{each.path}"
        for each in exports
    ]
    for start in range(0, len(words), AT_ONCE):
        node.run(["exportfs", "-u", *words[start : start + AT_ONCE]])


def _left(path: str) -> Check:
    return Check(
        *(LEFT, "served, or gone", "exported, and not in the list", FAILED, path),
        "it is not served by this host any more. Nodes may have it mounted: unmount it there, then "
        f"add {path} to shared_storage_absent",
    )
