# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Build the recorded machines of this directory as trees of /sys, changed or unchanged."""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware import Machine, survey

from tools.record_hardware import Directory, File, Link, build, load

RECORDINGS = Path(__file__).parent
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""A file system in memory if available: a machine is two thousand small files."""


def names() -> list[str]:
    """Return the names of all recordings, such as `b300-8x800g`."""
    return sorted(path.stem for path in RECORDINGS.glob("*.sysfs"))


def recording(name: str, *roots: str) -> Directory:
    """Return a copy of a machine, limited to some PCI roots if given, which is faster."""
    tree: Directory = pickle.loads(_recorded(name))
    devices = tree.at("devices")
    for root in list(devices) if roots else ():
        if root not in roots:
            del devices[root]
    return tree


@functools.cache
def _recorded(name: str) -> bytes:
    """Pickled, because unpickling is faster than parsing the text again."""
    return pickle.dumps(load(RECORDINGS / f"{name}.sysfs"))


def build_sys(name: str, directory: Path) -> Path:
    """Build a machine below `directory` and return `directory`, the root to survey."""
    build(recording(name), directory)
    return directory


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A temporary directory for trees."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        yield Path(directory)


@functools.cache
def machine(name: str) -> Machine:
    """Survey an unchanged machine."""
    return surveyed(recording(name))


def surveyed(tree: Directory) -> Machine:
    """Build a tree and survey it."""
    with scratch() as directory:
        build(tree, directory)
        return survey(directory)


def function(tree: Directory, pci: str) -> Directory:
    """Return the directory of a PCI function at any depth. Raises KeyError."""
    above = _parent(tree.at("devices"), pci)
    if above is None:
        raise KeyError(pci)
    return above.at(pci)


def _parent(tree: Directory, name: str) -> Directory | None:
    if name in tree:
        return tree
    below = (node for node in tree.values() if isinstance(node, Directory))
    return next((found for node in below if (found := _parent(node, name)) is not None), None)


def line(value: object) -> File:
    """Return a file of one line, as nearly all files of sysfs are."""
    return File(f"{value}\n".encode("ascii"))


def link(target: str) -> Link:
    return Link(target)
