# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Programs on a node that need no Ansible: executable zips of the modules that run here."""

from __future__ import annotations

import base64
import io
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import MAGIC_NUMBER, find_spec, source_hash
from typing import Optional

from .commands import CommandError, Runner
from .files import HEADER

_BASE = __name__.rpartition(".core.")[0]
PYTHON = "/usr/bin/python3"
_HEAD = f"#!{PYTHON} -IS\n# {HEADER}\n"
_REFUSED = 97
"""Exit status by which a program under a lenient name says that it means its failure: Python that
is broken exits with others."""
_LENIENT_HEAD = f"""\
#!/bin/sh
# {HEADER}
case ${{{{0##*/}}}} in {{names}}) ;; *) exec {PYTHON} -IS "$0" "$@" ;; esac
{PYTHON} -IS "$0" "$@"
[ $? != {_REFUSED} ]
exit
"""
_RELATIVE = re.compile(
    r"^[ \t]*from (?P<level>\.+)(?P<module>[\w.]*) import (?:\((?P<listed>[^)]*)\)|(?P<names>.*))$",
    re.MULTILINE,
)
"""Relative imports. A parser of Python takes eight times as long for all modules."""
_MAIN = """\
import os, sys
kept = {{name: os.environ[name] for name in {kept!r} if name in os.environ}}
os.environ.clear()
os.environ.update(PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", LC_ALL="C")
os.environ.update(kept)
from {entry} import main
status = main({arguments})
sys.exit({refused} if status and os.path.basename(sys.argv[0]) in {lenient!r} else status)
"""
_UNCHECKED = b"\1\0\0\0"
_COMPILE = f"""\
import sys
sys.path.pop(0)
import base64, importlib.util, io, marshal, zipfile
whole = io.BytesIO(base64.b64decode(sys.stdin.buffer.read()))
with zipfile.ZipFile(whole, "a") as archive:
    for path in archive.namelist():
        source = archive.read(path)
        # Never compared with the source: both are replaced together.
        head = importlib.util.MAGIC_NUMBER + {_UNCHECKED!r} + importlib.util.source_hash(source)
        code = marshal.dumps(compile(source, path, "exec", dont_inherit=True))
        archive.writestr(zipfile.ZipInfo(path + "c"), head + code)
print(base64.b64encode(whole.getvalue()).decode())
"""


def text(
    entry: str,
    *,
    kept: Sequence[str] = (),
    named: bool = False,
    lenient: Sequence[str] = (),
) -> str:
    """The program: an uncompressed zip that Python runs, isolated (`-IS`) from its caller.

    `entry` is the module with `main`, which gets the arguments and, if `named`, first the name by
    which the program was called. `kept` are variables of the environment that it may read.
    Under the names `lenient` it fails only if `main` returns a failure: not if Python is missing
    or cannot run it, as while a package is upgraded.
    """
    return packed(sources(entry), entry, kept=kept, named=named, lenient=lenient)


def packed(
    files: Mapping[str, str],
    entry: str,
    *,
    kept: Sequence[str] = (),
    named: bool = False,
    lenient: Sequence[str] = (),
    compressed: bool = False,
) -> str:
    """The program made of `files`, Python sources by path; see `text`."""
    names = tuple(lenient)
    start = _MAIN.format(
        entry=entry,
        kept=tuple(kept),
        arguments="sys.argv" if named else "sys.argv[1:]",
        refused=_REFUSED,
        lenient=names,
    )
    stream = io.BytesIO()
    head = _LENIENT_HEAD.format(names=" | ".join(names)) if names else _HEAD
    stream.write(head.encode())
    with zipfile.ZipFile(stream, "w") as archive:
        for path, source in {**files, "__main__.py": start}.items():
            archive.writestr(
                zipfile.ZipInfo(path),
                source,
                zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED,
            )
    return stream.getvalue().decode("utf-8", "surrogateescape")


def compiled(program: str, look: Runner, present: Optional[str] = None) -> str:
    """The program with the bytecode of this node's Python, which halves the time of its start.
    Another version of Python uses the sources. Without Python, the program as it is.

    `present` is what the node has, and the result if it is already that."""
    if present is not None and _is_compiled(present, program):
        return present
    given = base64.b64encode(program.encode("utf-8", "surrogateescape")).decode()
    # The seed makes the bytecode the same in each run.
    words = ("env", "-i", "PYTHONHASHSEED=0", PYTHON, "-S", "-c", _COMPILE)
    try:
        made = base64.b64decode(look(words, stdin=given).stdout)
    except (CommandError, OSError, ValueError):
        return program
    return made.decode("utf-8", "surrogateescape")


def _is_compiled(present: str, program: str) -> bool:
    """Whether `present` is `program` and bytecode of its sources, made by a Python like this one.
    Reading verifies the checksum of each."""
    have, given = (text.encode("utf-8", "surrogateescape") for text in (present, program))
    try:
        with zipfile.ZipFile(io.BytesIO(given)) as plain, zipfile.ZipFile(io.BytesIO(have)) as both:
            paths = plain.namelist()
            return (
                have.startswith(given[: plain.start_dir])
                and both.namelist() == [*paths, *(f"{path}c" for path in paths)]
                and all(
                    both.read(f"{path}c").startswith(
                        MAGIC_NUMBER + _UNCHECKED + source_hash(source)
                    )
                    for path, source in ((path, both.read(path)) for path in paths)
                )
            )
    except (zipfile.BadZipFile, zlib.error, ValueError, RuntimeError, EOFError):
        return False


def sources(entry: str) -> dict[str, str]:
    """By path, the text of a module and of all that it imports from the collection, also in
    functions; from files, Ansible's zip or another program."""
    texts: dict[str, str] = {}
    todo = [entry]
    while todo:
        name = todo.pop()
        spec = find_spec(name)
        path = f"{name.replace('.', '/')}{'/__init__' if spec and _is_package(spec) else ''}.py"
        if spec is None or path in texts:
            continue
        read = getattr(spec.loader, "get_source", lambda _name: None)
        texts[path] = str(read(name) or "")
        parent = name.rpartition(".")[0]
        todo += [parent] if parent.startswith(_BASE) else []
        todo += _imported(texts[path], name if _is_package(spec) else parent)
    levels = _BASE.split(".")
    above = ("/".join(levels[:depth]) for depth in range(1, len(levels)))
    return dict(sorted({**texts, **{f"{folder}/__init__.py": "" for folder in above}}.items()))


def _is_package(spec: ModuleSpec) -> bool:
    return spec.submodule_search_locations is not None


def _imported(text: str, package: str) -> Iterator[str]:
    """Modules that the text of a module in `package` imports relative to it."""
    for found in _RELATIVE.finditer(text):
        words = package.split(".")
        base = ".".join(words[: len(words) - len(found["level"]) + 1])
        base = f"{base}.{found['module']}" if found["module"] else base
        yield base
        # Names inside a module are no modules.
        if _is_package(find_spec(base) or ModuleSpec(base, None)):
            listed = re.sub("#.*", "", found["listed"] or found["names"])
            yield from (f"{base}.{name.split()[0]}" for name in listed.split(",") if name.strip())
