# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Reports on the controller: results of a layer as JSON, named after their time, and folders of
pages."""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from itertools import chain
from pathlib import Path
from typing import Any, Union

from ...module_utils.core.files import make_directories, write_atomically
from ...module_utils.core.text import some
from ..answers import finite, json_parts


def save(path: Path, report: Union[str, Mapping[str, Any]]) -> None:
    """Write a page or a report, readable by the operator and the group of the directory.

    If the operator is not in that group (in /tmp, for example), the operator's group is used.
    """
    make_directories(path.parent, 0o750)
    if path.is_symlink():
        path.unlink()  # do not write through a link

    def text() -> Union[str, Iterable[str]]:
        return report if isinstance(report, str) else chain(json_parts(report), "\n")

    try:
        write_atomically(path, text(), 0o640, os.getuid(), path.parent.stat().st_gid)
    except PermissionError:
        write_atomically(path, text(), 0o640, os.getuid(), os.getgid())


def keep(directory: Path, layer: str, found: Mapping[str, Any], display: Any, setting: str) -> str:
    """Save the report of a layer and display its path; return "" with a warning on failure.

    Writes `<layer>-<UTC time>.json` and `<layer>-latest.json`. `setting` is the variable that
    names the directory.
    """
    directory = directory.absolute()
    now = datetime.now(timezone.utc)
    text = json.dumps(finite({"made": f"{now:%Y%m%dT%H%M%SZ}", **found}), indent=1) + "\n"
    path = directory / f"{layer}-{now:%Y%m%dT%H%M%S.%f}Z.json"  # two runs may end in one second
    try:
        for target in (path, directory / f"{layer}-latest.json"):
            save(target, text)
    except OSError as error:
        # The results are valid even if they cannot be saved.
        display.warning(
            f"{layer}: the report was not saved: {error}. Make the directory writable, or set "
            f"{setting}"
        )
        return ""
    display.display(f"{layer}: report in {path}")
    return str(path)


class FolderError(Exception):
    """The folder contains something else; the message says what."""


def replace_folder(
    folder: Path, files: Mapping[str, str], ours: str, check_mode: bool = False
) -> list[str]:
    """Replace a folder as a whole and return the names of files that differ. An interrupted run
    leaves the old folder or the new one, both complete; a killed one may leave the old one under
    another name, from which the next run takes it back.

    `ours`: form of the names that an earlier run may have written. Raises FolderError for others.
    """
    try:
        folder = folder.resolve()
    except (RuntimeError, ValueError) as error:  # links in a circle, NUL
        raise FolderError(str(error)) from error
    prefix = f".{folder.name}.replaced-"
    unfinished = [] if check_mode else list(folder.parent.glob(f"{glob.escape(prefix)}*"))
    for each in unfinished:
        if not folder.exists() and (each / "old").is_dir():
            (each / "old").rename(folder)
    before = {path.name: path for path in folder.iterdir()} if folder.exists() else {}
    foreign = [
        name
        for name, path in sorted(before.items())
        if not re.fullmatch(ours, name) or (path.is_dir() and not path.is_symlink())
    ]
    if foreign:
        raise FolderError(
            f"{folder} contains other files, which would be lost: {some(foreign, 5)}. Name a new "
            "or empty folder"
        )
    changed = [
        name
        for name in sorted({*before, *files})
        if name not in before or name not in files or _differs(before[name], files[name])
    ]
    if changed and not check_mode:
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=prefix))
        try:
            new, old = made / "new", made / "old"
            for name, text in files.items():
                save(new / name, text)
            if folder.exists():
                folder.rename(old)
            new.rename(folder)
        except BaseException:
            if (made / "old").exists() and not folder.exists():
                (made / "old").rename(folder)
            raise
        finally:
            shutil.rmtree(made, ignore_errors=True)
    for each in unfinished:
        shutil.rmtree(each, ignore_errors=True)
    return changed


def _differs(path: Path, text: str) -> bool:
    return not path.is_file() or path.read_bytes() != text.encode()
