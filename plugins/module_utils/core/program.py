# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Programs on a node that need no Ansible: executable zips of the modules that run here."""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Collection, Sequence

from .files import HEADER

_BASE = __name__.rpartition(".core.")[0]
_MAIN = """\
import os, sys
kept = {{name: os.environ[name] for name in {kept!r} if name in os.environ}}
os.environ.clear()
os.environ.update(PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", LC_ALL="C")
os.environ.update(kept)
try:
    from {entry} import main
except Exception as error:
    if os.path.basename(sys.argv[0]) not in {lenient!r}:
        raise
    print(error, file=sys.stderr)
    sys.exit(0)
sys.exit(main({arguments}))
"""


def text(
    entry: str,
    packages: Collection[str],
    *,
    kept: Sequence[str] = (),
    named: bool = False,
    lenient: Sequence[str] = (),
) -> str:
    """The program: an uncompressed zip that Python runs, isolated (`-IS`) from its caller.

    `entry` is the module with `main`, which gets the arguments and, if `named`, first the name by
    which the program was called. `kept` are variables of the environment that it may read.
    Under the names `lenient` it succeeds if it cannot be loaded, as while Python is upgraded.
    """
    arguments = "sys.argv" if named else "sys.argv[1:]"
    start = _MAIN.format(entry=entry, kept=tuple(kept), arguments=arguments, lenient=tuple(lenient))
    stream = io.BytesIO()
    stream.write(f"#!/usr/bin/python3 -IS\n# {HEADER}\n".encode())
    with zipfile.ZipFile(stream, "w") as archive:
        for path, source in {**sources(packages), "__main__.py": start}.items():
            archive.writestr(zipfile.ZipInfo(path), source)
    return stream.getvalue().decode("utf-8", "surrogateescape")


def sources(packages: Collection[str]) -> dict[str, str]:
    """By path, the text of the loaded modules of these packages, from files or Ansible's zip."""
    levels = _BASE.split(".")
    found = {f"{'/'.join(levels[:depth])}/__init__.py": "" for depth in range(1, len(levels) + 1)}
    for name, module in sorted(sys.modules.items()):
        if name.startswith(f"{_BASE}.") and name[len(_BASE) :].split(".")[1] in packages:
            source = module.__spec__.loader.get_source(name)  # type: ignore[union-attr]
            init = "/__init__" if hasattr(module, "__path__") else ""
            found[f"{name.replace('.', '/')}{init}.py"] = source
    return dict(sorted(found.items()))
