# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The machines of this directory, built as a /sys that tests can read, and change beforehand."""

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
"""A file system in memory, where there is one: a machine is two thousand small files."""


def names() -> list[str]:
    """What there is: `b300-8x800g` and the others."""
    return sorted(path.stem for path in RECORDINGS.glob("*.sysfs"))


def recording(name: str, *roots: str) -> Directory:
    """One machine, to be changed and then built; of it only some PCI roots, as that is quicker."""
    tree: Directory = pickle.loads(_recorded(name))
    devices = tree.at("devices")
    for root in list(devices) if roots else ():
        if root not in roots:
            del devices[root]
    return tree


@functools.cache
def _recorded(name: str) -> bytes:
    """To be read again is quicker than to parse the text again."""
    return pickle.dumps(load(RECORDINGS / f"{name}.sysfs"))


def build_sys(name: str, directory: Path) -> Path:
    """Build a machine below `directory` and return that: the root to survey."""
    build(recording(name), directory)
    return directory


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A directory for trees, gone afterwards."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        yield Path(directory)


@functools.cache
def machine(name: str) -> Machine:
    """What the survey finds on a machine that nobody changed."""
    return surveyed(recording(name))


def surveyed(tree: Directory) -> Machine:
    """What the survey finds on a machine, changed or not."""
    with scratch() as directory:
        build(tree, directory)
        return survey(directory)


def function(tree: Directory, pci: str) -> Directory:
    """The directory of a PCI function, wherever it hangs."""
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
    """A file of one line, as nearly all of sysfs is."""
    return File(f"{value}\n".encode("ascii"))


def link(target: str) -> Link:
    return Link(target)
