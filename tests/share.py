# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What tests of several controllers compare: a report without the traces of how it was made."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

HOW = ("started", "seconds", "inventories", "execution", "remote_module_executions")
"""Times, paths, and the modules that a further run of a playbook executes."""
FIGURES = ("verbs", "smoke")
"""Layers in whose checks the values are figures."""


def found(report: Mapping[str, Any]) -> dict[str, Any]:
    """What a run found on the hosts; figures of measurements differ from run to run."""
    kept = {key: value for key, value in report.items() if key not in (*HOW, "layers")}
    layers: dict[str, Any] = {}
    for layer, own in report["layers"].items():
        out = ("found", "wanted") if layer in FIGURES else ()
        layers[layer] = {
            host: [{key: each[key] for key in each if key not in out} for each in entry["checks"]]
            for host, entry in own["hosts"].items()
        }
    return {**kept, "layers": layers}


def digest(report: Mapping[str, Any]) -> str:
    text = json.dumps(found(report), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
