# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""No version of the set stands in roles or plugins: it would be the one that is forgotten."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.stand_ins import versions
from tests.unit.qos_constants import DOCUMENTATION

ROOT = Path(__file__).resolve().parents[2]
SOFTWARE = "plugins/module_utils/software"
KEYS = "plugins/plugin_utils/model/software_keys.py"
KNOWN = {
    f"{SOFTWARE}/known_versions.py": "published bounds that a set is compared with",
    KEYS: "examples in messages",
}
"""Files that may have them, and why."""

DRIVER = re.compile(r"(?<![\d.])[4-6]\d\d\.\d{2,3}(\.\d\d)?(?![\d.])")
"""A driver: a branch, and at least one number of two digits."""
NAMED = re.compile(
    r"(driver|cuda|doca|dcgm|gdrcopy|nccl|toolkit|ofed)[\w\"'-]*\s*(:|=|==|>=|~=|,)\s*"
    r"[\"']?v?(\d+\.\d+(\.\d+)?|[4-9]\d\d)(?![\w.])",
    re.I,
)
"""A name of the set, and a version beside it."""
SUFFIXED = re.compile(
    r"(nvidia-[a-z-]+|nvlink5|cuda-drivers|cuda-toolkit|libnvidia-\w+)-\d{2,3}(-\d)?\b", re.I
)
"""A package that has its branch or release in its name."""


def code() -> Iterator[Path]:
    for folder in ("roles", "plugins", "playbooks"):
        for path in sorted((ROOT / folder).rglob("*")):
            text = path.suffix in (".py", ".yml", ".yaml", ".j2", ".sh", "")
            if text and path.is_file() and "__pycache__" not in path.parts:
                yield path


def search(text: str, suffix: str = ".py") -> list[str]:
    return [
        found[0]
        for line in _lines(text, suffix)
        for pattern in (DRIVER, NAMED, SUFFIXED)
        for found in pattern.finditer(line)
    ]


def _lines(text: str, suffix: str) -> Iterator[str]:
    """Without comments, docstrings, and what a module says of itself."""
    if suffix == ".py":
        names = "|".join(DOCUMENTATION)
        text = re.sub(rf'^({names}) = r?""".*?"""', "", text, flags=re.S | re.M)
        text = re.sub(r'^\s*r?""".*?"""', "", text, flags=re.S | re.M)
    for line in text.splitlines():
        yield re.sub(r"(^|\s)#.*", "", line)


def test_no_version_of_the_set_stands_anywhere_else() -> None:
    found = {
        str(path.relative_to(ROOT)): search(path.read_text(encoding="utf-8"), path.suffix)
        for path in code()
    }
    second = {name: lines for name, lines in found.items() if lines and name not in KNOWN}
    assert second == {}, "take it from cluster_software"
    assert {name for name in KNOWN if found[name]} == set(KNOWN), "one is there no more"


def of_the_set(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key != "repositories":
                yield from of_the_set(item)
    elif re.search(r"\d\.\d", str(value)):
        yield str(value)


def test_the_versions_of_the_reference_and_of_the_stand_ins_stand_nowhere() -> None:
    """Whatever is written around them."""
    model = yaml.safe_load((ROOT / "inventories/b300/cluster.yml").read_text(encoding="utf-8"))
    wanted = {found for found in of_the_set(model["software"]) if found.count(".") >= 2}
    wanted |= {driver.version for driver in versions.DRIVERS}
    assert len(wanted) >= 7
    for path in code():
        name = str(path.relative_to(ROOT))
        if name not in KNOWN:
            text = "\n".join(_lines(path.read_text(encoding="utf-8"), path.suffix))
            assert [one for one in wanted if one in text] == [], name


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        ('DRIVER = "580.95.05"', True),
        ('name = "nvidia-open-580"', True),
        ("nvidia_gpu_driver_version: 580", True),
        ('if toolkit == "12.9":', True),
        ('Wanted("cuda-toolkit-13-0")', True),
        ('"nccl": "2.28.3"', True),
        ("# driver: 580.95.05", False),
        ('name = f"nvidia-open-{branch}"', False),
        ('version_added: "0.1.0"', False),
        ("kernel >= 5.12", False),
        ("datacenter-gpu-manager-4", False),
    ],
)
def test_the_search_finds_versions_of_the_set_alone(line: str, is_one: bool) -> None:
    assert bool(search(line)) is is_one
