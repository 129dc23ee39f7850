# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Find model files, read them, and compile them."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from ..schema.findings import Finding
from .cluster import Cluster
from .compiler import compile_model
from .schema import PLUGIN
from .source import ModelError, read

__all__ = ["is_model", "load", "read"]

_NAMED = re.compile(rf"""^[^#\n]*:\s*['"]?{re.escape(PLUGIN)}\b""", re.M)
_PLUGIN = re.compile(r"""^plugin\s*:\s*['"]?([\w.-]+)""", re.M)
_SECTION = re.compile(r"^(management|rails|addresses|leaves)\s*:", re.M)
_KEY = re.compile(r"^[^\s#-].*:", re.M)


def is_model(path: Path) -> bool:
    """Whether the file is a cluster model, or was meant to be one and must be reported as an error.

    This includes a model whose `plugin:` is misspelt or missing, and a `cluster.yml` without keys.
    Raises OSError if the file cannot be read.
    """
    # UTF-16 has a zero byte between letters.
    text = _content(path).decode("utf-8", "replace").replace("\0", "")
    sections = set(_SECTION.findall(text))
    if _NAMED.search(text) or len(sections) > 2:
        return True
    plugin = _PLUGIN.search(text)
    if plugin is not None:
        return bool(difflib.get_close_matches(plugin[1], [PLUGIN], cutoff=0.8))
    return path.stem == "cluster" and (bool(sections) or _KEY.search(text) is None)


def load(path: str) -> Cluster:
    """Read and compile the model at `path`. Raises ModelError, even if it cannot be read."""
    try:
        text = _text(_content(Path(path)))
    except OSError as error:
        remedy = "Check the path and its permissions, and save it as UTF-8"
        finding = Finding("model.cannot_be_read", (), f"cannot be read: {error}", remedy)
        raise ModelError(path, [finding]) from error
    return compile_model(read(path, text))


def _content(path: Path) -> bytes:
    if path.exists() and not path.is_file():
        raise OSError("it is not a regular file")  # reading a FIFO would block
    return path.read_bytes()


def _text(content: bytes) -> str:
    wrong = content.find(b"\0")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        wrong = error.start
    if wrong >= 0:
        line = content.count(b"\n", 0, wrong) + 1
        raise OSError(f"byte 0x{content[wrong]:02x} in line {line} is not UTF-8 text")
    return text
