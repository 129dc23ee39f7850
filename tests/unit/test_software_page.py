# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""docs/software-set.md is what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.key_files import FROM
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.software import read_software

from tests.unit.programs import program

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/software-set.md").read_text(encoding="utf-8")


def test_the_tables_are_what_the_code_has() -> None:
    generator = program("docs/generate_software_set.py")
    assert generator.page(PAGE) == PAGE, "run docs/generate_software_set.py"


def test_the_example_can_be_installed_and_is_the_one_of_the_reference() -> None:
    found = re.search(r"```yaml\n(.*?)```", PAGE, re.S)
    assert found is not None
    example = yaml.safe_load(found[1])["software"]
    read_software(example)
    text = (ROOT / "inventories/b300/cluster.yml").read_text(encoding="utf-8")
    assert yaml.safe_load(text)["software"] == example


def test_the_page_and_the_message_name_the_same_keys() -> None:
    for text in FROM.values():
        for word in re.findall(r"[0-9A-F]{40}|\w+\.pub", text):
            assert word in PAGE
