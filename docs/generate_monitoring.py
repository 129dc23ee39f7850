#!/usr/bin/env python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write docs/monitoring/ (the files for inventories/b300) and the tables of docs/monitoring.md.

The program has no options. A unit test compares the files with its output.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE, FOLDER = ROOT / "docs/monitoring.md", ROOT / "docs/monitoring"

if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "collections")]

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.node_check import (  # noqa: E402
    counters,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.source import (  # noqa: E402
    read_file,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.versions import (  # noqa: E402
    compiled,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.monitoring import (  # noqa: E402
    dashboards,
    rules,
    targets,
)

ETC = "/etc/baremetal-mpi-roce/monitoring"


def reference() -> Mapping[str, Mapping[str, Any]]:
    """Variables of the hosts of inventories/b300."""
    return compiled(read_file(str(ROOT / "inventories/b300/cluster.yml"))).hosts


def files() -> dict[str, str]:
    hosts = reference()
    return {
        **dashboards.files(),
        **targets.files(hosts),
        targets.RULES_FILE: rules.rules(rules.Facts.of(hosts)),
        targets.PROMETHEUS_FILE: targets.prometheus("b300", targets.Scraping(ETC)),
        targets.ALERTMANAGER_FILE: targets.alertmanager(),
    }


def alerts() -> Iterator[str]:
    seen = set()
    yield "| alert | meaning | next step |\n|---|---|---|\n"
    for each in rules.alerts(rules.Facts.of(reference())):
        if each.name not in seen:
            seen.add(each.name)
            name = f'<a id="{each.name.lower()}"></a>`{each.name}` ({each.severity})'
            step = each.next_step.replace("{{ $labels.instance }}", "the host")
            yield f"| {name} | {each.summary} | {step} |\n"


def thresholds() -> Iterator[str]:
    yield "| threshold | default | source |\n|---|---|---|\n"
    for name, each in rules.LIMITS.items():
        yield f"| `{name}` | {each.value:g} {each.unit} | {each.source} |\n"


def metrics() -> Iterator[str]:
    yield "| metric | meaning |\n|---|---|\n"
    for name, (_kind, what) in counters.METRICS.items():
        if not name.startswith("rdma_"):
            yield f"| `{counters.PREFIX}{name}` | {what} |\n"
    rdma = ", ".join(f"`{n}`" for n in counters.health.EVENTS)
    yield f"| `{counters.PREFIX}rdma_COUNTER_total` | hw_counters of the RDMA device: {rdma} |\n"


TABLES = {"alerts": alerts, "thresholds": thresholds, "metrics": metrics}


def page(text: str) -> str:
    for name, rows in TABLES.items():
        begin, end = f"<!-- {name}: made by docs/generate_monitoring.py -->\n", "<!-- end -->"
        head, found, rest = text.partition(begin)
        if found:
            text = head + begin + "".join(rows()) + rest[rest.index(end) :]
    return text


def main() -> None:
    for name, text in files().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
