# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The serving node's program as one file that Python runs by itself, without the collection."""

from __future__ import annotations

import io
import pkgutil
import zipfile

from .wire import filters, packets, serve, sniffer, witness

PARTS = (filters, packets, serve, sniffer, witness)
START = """\
import sys
from pathlib import Path
from wire.serve import main
sys.exit(main(Path(sys.argv[1])))
"""


def bundle() -> bytes:
    """A zip archive with the package `wire` and a start."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("__main__.py", START)
        archive.writestr("wire/__init__.py", "")
        for part in PARTS:
            name = part.__name__.rpartition(".")[2]
            source = pkgutil.get_data(part.__name__.rpartition(".")[0], f"{name}.py")
            if source is None:
                raise OSError(f"the source of {part.__name__} cannot be read")
            archive.writestr(f"wire/{name}.py", source)
    return target.getvalue()
