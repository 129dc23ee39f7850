#!/usr/bin/env python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Record the NICs, GPUs and RDMA devices of a machine in one text file, without its secrets.

    sudo python3 -I record_hardware.py node07.sysfs     record this machine
    python3 record_hardware.py --build node07.sysfs DIR rebuild the recorded /sys in DIR

`-I` protects root: no other file in this directory is imported.

Needs only Python 3.9, and no other file of this project. Root is needed only for the vital product
data, which distinguishes NVSwitch bridges from NICs.

Only attributes listed in this file are recorded, and addresses are replaced by others of the same
kind. Before the file is written, its text is searched for every MAC address, GUID, serial number
and name of this machine; if one is found, nothing is written. Review the file nevertheless before
you send it.

The format follows the tree:

    name/          a directory; its content follows, indented
    name: value    a file with one line
    name = b'...'  any other file
    name -> path   a symbolic link
    # ...          a comment

The links below class/ and bus/*/devices/ are left out: they are rebuilt from the `subsystem` link
of each device, as in the kernel. A file may begin with `base: FILE`, the tree that it modifies;
there, `- name` removes an entry.
"""

from __future__ import annotations

import argparse
import ast
import fnmatch
import ipaddress
import os
import re
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Optional, Union

PCI_FILES = (
    "class", "vendor", "device", "revision", "subsystem_vendor", "subsystem_device", "numa_node",
    "current_link_speed", "current_link_width", "max_link_speed", "max_link_width",
    "sriov_totalvfs", "sriov_numvfs",
)  # fmt: skip
PCI_LINKS = ("driver", "subsystem", "physfn", "virtfn*")
RDMA_FILES = (
    "node_type", "fw_ver", "board_id", "hca_type", "hw_rev", "parent", "tc/*/traffic_class",
    "ports/*/state", "ports/*/phys_state", "ports/*/link_layer", "ports/*/rate",
)  # fmt: skip
NET_FILES = (
    "type", "flags", "mtu", "operstate", "carrier", "speed", "dev_port", "phys_port_name",
    "ecn/*/enable/*", "ecn/roce_np/cnp_dscp", "ecn/roce_np/cnp_802p_prio",
)  # fmt: skip
DEVICE_LINKS = ("device", "driver", "subsystem")
MODULES = (
    "bnxt_re", "ib_core", "ib_umad", "ib_uverbs", "irdma", "mlx5_core", "mlx5_ib", "nvidia",
    "nvidia_peermem", "rdma_cm", "rdma_rxe", "siw",
)  # fmt: skip
CLASSES = ("02", "03", "0801")
"""PCI classes that are recorded, with all bridges above them: network, display, DMA."""
MELLANOX = "0x15b3"

SWITCH_MANAGEMENT = b"SW_MNG"
"""Of vital product data, only the presence of this text is recorded. The rest contains serial
numbers.
"""

TREE = "  "
Node = Union["Directory", "File", "Link"]


class RecordError(Exception):
    """Nothing was written. The text gives the reason."""


class File(bytes):
    """The content of a file."""


class Link(str):
    """Target of a symbolic link, as readlink prints it."""


class Directory(dict[str, "Node"]):
    """A directory: its entries by name."""

    def at(self, path: str) -> Directory:
        """Return the directory at a path below this one; create it if it is missing."""
        here = self
        for part in Path(path).parts:
            below = here.setdefault(part, Directory())
            if not isinstance(below, Directory):
                raise RecordError(f"{path}: {part} is no directory")
            here = below
        return here

    def put(self, path: str, node: Node) -> None:
        parent, _, name = path.rpartition("/")
        self.at(parent)[name] = node


# The text format


def dump(tree: Directory, indent: str = "") -> Iterator[str]:
    """Return the lines of a tree: files, then links, then directories."""
    kinds = (File, Link, Directory)
    for kind in kinds:
        for name, node in sorted(tree.items(), key=lambda item: _natural(item[0])):
            if not isinstance(node, kind):
                continue
            if isinstance(node, Directory):
                yield f"{indent}{name}/"
                yield from dump(node, indent + TREE)
            elif isinstance(node, Link):
                yield f"{indent}{name} -> {node}"
            elif _plain(node):
                yield f"{indent}{name}: {node[:-1].decode('ascii')}"
            else:
                yield f"{indent}{name} = {bytes(node)!r}"


def _plain(content: bytes) -> bool:
    """Return whether the content is one printable line without leading or trailing spaces."""
    line = content[:-1]
    printable = all(32 <= byte < 127 for byte in line)
    return content.endswith(b"\n") and printable and line == line.strip()


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort key that puts `virtfn10` after `virtfn9`."""
    return [(int(part or 0), text) for text, part in re.findall(r"(\D*)(\d*)", name)]


def load(path: Path) -> Directory:
    """Return the tree that a file describes, on top of its base if it names one."""
    return parse(path.read_text(encoding="ascii"), str(path), lambda name: load(path.parent / name))


def parse(text: str, source: str, base: Callable[[str], Directory]) -> Directory:
    """Parse a tree. `base` returns the tree that its first line may name."""
    tree = Directory()
    open_directories = [tree]
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        where = f"{source} line {number}"
        depth, odd = divmod(len(raw) - len(raw.lstrip(" ")), len(TREE))
        if odd or depth >= len(open_directories):
            raise RecordError(f"{where}: indented by {len(raw) - len(raw.lstrip(' '))}: {line}")
        if line.startswith("base: ") and not tree:
            tree.update(base(line.removeprefix("base: ")))
            continue
        del open_directories[depth + 1 :]
        here = open_directories[depth]
        if line.startswith("- "):
            if here.pop(line.removeprefix("- "), None) is None:
                raise RecordError(f"{where}: there is nothing to remove called {line[2:]}")
            continue
        name, node = _entry(line, where)
        if isinstance(node, Directory):
            open_directories.append(here.at(name))
        else:
            here[name] = node
    return tree


def _entry(line: str, where: str) -> tuple[str, Node]:
    for sign, read in ((": ", _text), (" -> ", Link), (" = ", _bytes)):
        name, found, value = line.partition(sign)
        if found and " " not in name:
            try:
                return name, read(value)
            except (ValueError, SyntaxError) as error:
                raise RecordError(f"{where}: {line}: {error}") from error
    if line.endswith("/") and " " not in line:
        return line[:-1], Directory()
    if line.endswith(":") and " " not in line:
        return line[:-1], File(b"\n")
    raise RecordError(f"{where}: neither a file, a link nor a directory: {line}")


def _text(value: str) -> File:
    return File(value.encode("ascii") + b"\n")


def _bytes(value: str) -> File:
    content = ast.literal_eval(value)
    if not isinstance(content, bytes):
        raise ValueError("not a bytes literal")
    return File(content)


# Building


def build(tree: Directory, directory: Path) -> None:
    """Write the tree to a directory, with the links that the kernel derives from `subsystem`."""
    directory.mkdir(parents=True, exist_ok=True)
    for path, node in _walk(tree):  # a directory before its content
        place = f"{directory}/{path}"
        if isinstance(node, Directory):
            os.makedirs(place, exist_ok=True)  # noqa: PTH103 - thousands of them
        elif isinstance(node, Link):
            os.symlink(node, place)  # noqa: PTH211
        else:
            with open(place, "wb", buffering=0) as stream:
                stream.write(node)
    for path, node in _walk(tree):
        subsystem = node.get("subsystem") if isinstance(node, Directory) else None
        if isinstance(subsystem, Link):
            kind, name = Path(subsystem).parts[-2:]
            members = directory / kind / name / ("devices" if kind == "bus" else "")
            members.mkdir(parents=True, exist_ok=True)
            (members / Path(path).name).symlink_to(os.path.relpath(directory / path, members))


def _walk(tree: Directory, prefix: str = "") -> Iterator[tuple[str, Node]]:
    for name, node in tree.items():
        yield f"{prefix}{name}", node
        if isinstance(node, Directory):
            yield from _walk(node, f"{prefix}{name}/")


# Recording


class Recorder:
    """Reads a /sys into a tree."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.tree = Directory()
        self.seen: set[Path] = set()
        self.addresses: dict[str, str] = {}
        self.notes: list[str] = []

    def record(self) -> Directory:
        if not (self.root / "class").is_dir():
            raise RecordError(f"{self.root} is no /sys: it has no class/")
        self.tree.at("class")
        functions = _entries(self.root / "bus/pci/devices")
        for function in functions:
            if self._wanted(function):
                self._function(function.resolve())
        named: set[str] = set()
        for device in _entries(self.root / "class/infiniband"):
            self._rdma(device.resolve())
            named |= self._interfaces_named_by(device)
        for interface in _entries(self.root / "class/net"):
            if (interface / "device").exists() or interface.name in named:
                self._interface(interface.resolve())
        for slot in _entries(self.root / "bus/pci/slots"):
            self._files(slot, ("address",))
        for module in MODULES:
            if (self.root / "module" / module).is_dir():
                self.tree.at(f"module/{module}")
                self._files(self.root / "module" / module, ("version",))
        return self.tree

    def _wanted(self, function: Path) -> bool:
        kind = _read(function / "class").removeprefix("0x")
        return kind.startswith(CLASSES) or (
            _read(function / "vendor") == MELLANOX and not kind.startswith("0604")
        )

    def _function(self, path: Path) -> None:
        """Record one PCI function, after the bridges above it."""
        if not _is_function(path) or path in self.seen:
            return
        self.seen.add(path)
        self._function(path.parent)
        self._files(path, PCI_FILES)
        self._links(path, PCI_LINKS)
        if (path / "vpd").exists() and _read(path / "vendor") == MELLANOX:
            try:
                found = SWITCH_MANAGEMENT in (path / "vpd").read_bytes()
            except OSError as error:
                hint = "run as root to distinguish bridges from NICs"
                self.notes.append(f"{path / 'vpd'}: {error.strerror}; {hint}")
                return
            content = File(SWITCH_MANAGEMENT if found else b"")
            self.tree.put(self._relative(path / "vpd"), content)

    def _rdma(self, path: Path) -> None:
        self._between(path)
        self._files(path, RDMA_FILES)
        self._links(path, DEVICE_LINKS)
        for kind in sorted(path.glob("ports/*/gid_attrs/types/*")):
            port, index = kind.parents[2], kind.name
            gid = _read(port / "gids" / index)
            if not _read(kind) or not gid:
                continue
            self._put(kind, _read(kind))
            self._put(port / "gids" / index, self._other_address(gid))
            ndev = port / "gid_attrs/ndevs" / index
            if _read(ndev):
                self._put(ndev, _read(ndev))

    def _interfaces_named_by(self, device: Path) -> set[str]:
        files = [device / "parent", *device.glob("ports/*/gid_attrs/ndevs/*")]
        return {_read(each) for each in files} - {""}

    def _interface(self, path: Path) -> None:
        self._between(path)
        self._files(path, NET_FILES)
        self._links(path, DEVICE_LINKS)

    def _between(self, path: Path) -> None:
        """Record the devices between a PCI function and a class device: virtio or auxiliary
        devices."""
        for above in reversed(path.parents):
            if self.root not in above.parents:
                continue
            if _is_function(above):
                self._function(above)
            elif (above / "subsystem").is_symlink():
                self._links(above, DEVICE_LINKS)

    def _files(self, directory: Path, patterns: Iterable[str]) -> None:
        for pattern in patterns:
            for path in sorted(directory.glob(pattern)):
                content = _read(path)
                if content:
                    self._put(path, content)

    def _links(self, directory: Path, patterns: Iterable[str]) -> None:
        for path in sorted(directory.iterdir()):
            if path.is_symlink() and any(fnmatch.fnmatch(path.name, each) for each in patterns):
                self.tree.put(self._relative(path), Link(path.readlink()))

    def _put(self, path: Path, content: str) -> None:
        self.tree.put(self._relative(path), File(content.encode("ascii", "replace") + b"\n"))

    def _relative(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def _other_address(self, gid: str) -> str:
        """Return another address of the same kind, always the same one for the same input.

        The ranges are link-local, or reserved for benchmarks or documentation.
        """
        if gid not in self.addresses:
            address = ipaddress.IPv6Address(gid)
            kind = LINK_LOCAL if address.is_link_local else DOCUMENTATION
            kind = BENCHMARKS if address.ipv4_mapped else kind
            number = int(ipaddress.IPv6Address(kind)) + len(self.addresses) + 1
            self.addresses[gid] = ":".join(re.findall("....", f"{number:032x}"))
        return self.addresses[gid]


LINK_LOCAL, BENCHMARKS, DOCUMENTATION = "fe80::", "::ffff:198.18.0.0", "2001:db8::"


def _is_function(path: Path) -> bool:
    return re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", path.name) is not None


def _entries(directory: Path) -> list[Path]:
    return sorted(directory.iterdir()) if directory.is_dir() else []


def _read(path: Path) -> str:
    """Return one line, or None: many files return an error if a value does not apply."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


# The check for secrets


def secrets(root: Path, host_name: str) -> dict[str, str]:
    """Return what a recording must not contain: each value, its meaning, and its file."""
    found = dict.fromkeys((host_name, host_name.partition(".")[0]), "a host name")
    for pattern, what in (
        ("class/net/*/address", "a MAC address"),
        ("class/net/*/phys_switch_id", "a switch ID"),
        ("class/infiniband/*/node_guid", "a GUID"),
        ("class/infiniband/*/sys_image_guid", "a GUID"),
        ("class/infiniband/*/node_desc", "a host name"),
        ("class/dmi/id/*serial", "a serial number"),
        ("class/dmi/id/*_uuid", "a UUID"),
        ("class/dmi/id/*asset_tag", "an asset tag"),
    ):
        for path in root.glob(pattern):
            found.setdefault(_read(path), f"{what} ({path.relative_to(root).as_posix()})")
    # Empty values, zeros and fillers are not secrets.
    return {value: what for value, what in found.items() if len(set(_bare(value))) > 2}


def _bare(text: str) -> str:
    return re.sub(r"[:.\-]", "", text).lower()


def leaks(lines: Iterable[str], found: dict[str, str]) -> Iterator[str]:
    """Describe the lines that hold a secret, without repeating it."""
    for number, line in enumerate(lines, 1):
        for value, what in sorted(found.items()):
            word = rf"(?<!\w){re.escape(value)}(?!\w)"
            long = len(_bare(value)) >= 8 and _bare(value) in _bare(line)
            if long or re.search(word, line, re.IGNORECASE):
                name = re.split(r": | = | -> ", line.strip())[0]
                yield f"line {number} holds {what}: {name}"


# The commands


def record(root: Path, host_name: str) -> tuple[str, list[str]]:
    """Return the text of a recording, and notes about it."""
    recorder = Recorder(root)
    lines = list(dump(recorder.record()))
    found = list(leaks(lines, secrets(root, host_name)))
    if found:
        raise RecordError(
            "nothing was written, because the recording would hold what names this machine:\n  "
            + "\n  ".join(found[:20])
            + f"\nIn brackets: the file below {root} that has it. If that is only a common word, "
            "such as an asset tag,\nchange it there while you record. Otherwise rename the "
            "interface in question, or report this."
        )
    head = [
        "# Hardware as /sys shows it, by tools/record_hardware.py; docs/rdma.md has the form.",
        f"# Linux {os.uname().release}. No MAC address, GUID, serial number or host name is in it;",
        f"# {len(recorder.addresses)} RDMA addresses are replaced.",
    ]
    notes = [
        f"{len(lines)} lines",
        f"{len(recorder.addresses)} RDMA addresses (GIDs) replaced by others of their kind",
        "MAC addresses, GUIDs, serial numbers, node descriptions, host and DMI data left out",
        "kept: PCI addresses, interface and device names, board IDs, firmware versions",
        *recorder.notes,
    ]
    return "\n".join(head + lines) + "\n", notes


def main(argv: Optional[list[str]] = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--build", metavar="RECORDING", type=Path, help="build this one below OUT")
    parser.add_argument("--root", type=Path, default=Path("/sys"), help="instead of /sys")
    parser.add_argument("out", metavar="OUT", type=Path, help="file to write, new")
    given = parser.parse_args(argv)
    try:
        if given.build:
            build(load(given.build), given.out)
            print(f"{given.build} is built below {given.out}")
            return 0
        text, notes = record(given.root, socket.gethostname())
        with open(given.out, "x", encoding="ascii") as stream:
            stream.write(text)
    except (RecordError, OSError) as error:
        print(f"record_hardware: {error}", file=sys.stderr)
        return 1
    print(f"{given.out}: " + "\n  ".join(notes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
