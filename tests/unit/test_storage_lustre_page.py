# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""docs/lustre.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.lustre import (
    client,
    health,
    lnet,
)

from tests.unit.lustre_node import settings_of
from tests.unit.programs import program

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/lustre.md").read_text(encoding="utf-8")


def test_the_table_is_what_the_code_has() -> None:
    assert program("docs/generate_lustre.py").page(PAGE) == PAGE, "run docs/generate_lustre.py"


def test_the_example_can_be_used() -> None:
    found = re.search(r"\n\n((    .*\n)+)\nand in `cluster.yml`", PAGE)
    assert found is not None
    value = yaml.safe_load(found[1])["shared_storage_lustre"]
    assert settings_of(value).packages.version == "2.15.7"


def test_checks_and_files_stand_in_it() -> None:
    names = (health.TARGETS, health.TARGET, health.SERVERS, health.MGS, health.ROOM)
    for name in (*names, client.CHECK):
        assert f"| `{name}` |" in PAGE
    assert lnet.NETWORK.startswith("lustre_lnet_")
    for path in (lnet.CONF, lnet.MODPROBE, lnet.DROP_IN):
        assert f"| `/{path}` |" in PAGE


def test_options_and_programs_stand_in_it() -> None:
    assert ", ".join(f"`{name}`" for name in client.PROGRAMS) in PAGE
