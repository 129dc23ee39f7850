# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""docs/lustre.md has every key of its variable, every check and every file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.lustre import (
    client,
    health,
    lnet,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.report.storage import (
    lustre_settings,
)

from tests.unit.lustre_node import LUSTRE

PAGE = (Path(__file__).resolve().parents[2] / "docs/lustre.md").read_text(encoding="utf-8")


def keys(value: Any, prefix: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield f"{prefix}{key}"
            yield from keys(inner, f"{prefix}{key}.")
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner, prefix)


def test_the_example_has_every_key() -> None:
    found = re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    given = yaml.safe_load(found[1])["shared_storage_lustre"]
    assert set(keys(lustre_settings(given, [LUSTRE], LUSTRE.hosts))) == set(keys(given))


def test_checks_and_files_stand_in_it() -> None:
    names = (health.TARGETS, health.TARGET, health.SERVERS, health.MGS, health.ROOM, lnet.LEFT)
    for name in (*names, client.CHECK):
        assert f"| `{name}` |" in PAGE
    for path in (lnet.CONF, lnet.MODPROBE, lnet.DROP_IN):
        assert f"| `/{path}` |" in PAGE
