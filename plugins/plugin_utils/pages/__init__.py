# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Pages of reports: one HTML file per report, next to it, and an index per cluster (docs/pages.md).

A page is made from the JSON file only, and every text in it may come from a compromised host.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Optional, Union

from ...module_utils.core.text import shortened
from ..report.reports import save
from . import acceptance, bench, drift, index, run
from .html import Markup, document

MAX_BYTES, MAX_ERROR = 256 << 20, 300
CERTIFICATES = "certificates"
"""Folder of acceptance's certificates, whose pages are in the index of the folder above."""
Made = tuple[str, list[Markup], dict[str, Any]]


def kind_of(report: Any) -> Optional[Callable[[Mapping[str, Any]], Made]]:
    """What makes the page of a report; None if this kind has none."""
    if not isinstance(report, dict):
        return None
    if report.get("kind") == "drift":
        return drift.page
    if "verdict" in report and "coverage" in report:
        return acceptance.page
    if "sweeps" in report and "program" in report:
        return bench.page
    return run.page if "playbook" in report and "layers" in report else None


def write(report: Union[str, Path], display: Any = None) -> str:
    """Write the page of a saved report, and the index; display and return its path. On failure,
    warn; without a page, return "": a page never fails a run."""
    path, page = Path(report), ""
    try:
        target, cluster = _write(path)
        page = str(target)
        if display is not None:
            shown = os.path.relpath(page) if target.is_relative_to(Path.cwd()) else page
            display.display(f"page: {shown}")
        index.write(_folder(path), cluster)
    except Exception as error:  # whatever a report contains
        if display is not None:
            what = "the index of runs" if page else "its page"
            why = shortened(f"{type(error).__name__}: {error}", MAX_ERROR)
            display.warning(f"{path.name}: {what} was not written: {why}")
    return page


class _Shared:
    """Equal checks as one object: most hosts of a cluster have the same ones."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], dict[str, Any]] = {}

    def of(self, found: dict[str, Any]) -> dict[str, Any]:
        if "status" not in found:
            return found
        types = type(found.get("wanted")), type(found.get("found"))  # True equals 1
        try:
            return self._known.setdefault((*found.items(), *types), found)
        except TypeError:  # a list
            return found


def _folder(path: Path) -> Path:
    return path.parent.parent if path.parent.name == CERTIFICATES else path.parent


def _write(path: Path) -> tuple[Path, str]:
    """The page, and the name of the cluster."""
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"the report has more than {MAX_BYTES >> 20} MiB")
    with path.open(encoding="utf-8") as stream:
        report = json.load(stream, object_hook=_Shared().of)
    make = kind_of(report)
    if make is None:
        raise ValueError("this kind of report has no page")
    folder = _folder(path)
    title, body, summary = make({"cluster": folder.name, **report})
    target = path.with_suffix(".html")
    home = os.path.relpath(folder / index.NAME, target.parent)
    charts = summary.pop("charts", ())
    text = document(title, body, home=home, source=path.name, summary=summary, charts=charts)
    save(target, text)
    return target, str(report.get("cluster") or folder.name)
