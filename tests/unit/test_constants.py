# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Each number of the QoS contract and each version of the software set is defined once.

A second definition, such as a driver version in a role, would be forgotten at the next change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SIMULATORS = "tests/bed/roles/virtual_nodes/files/switch"

QOS = re.compile(
    r"\b(9_?216|150_?000|1_?500_?000)\b"
    r"|(?i:dscp|tos|traffic_?class|tclass)\w*\W{1,4}(26|48|104|106)\b"
    r"|(?i:prio|priority|pfc|pfc_priorities)\W{1,4}[36]\b(?!\.)"
    r"|\bkey\(_\w+, \"[^\"]*\", \d+\)"
)
"""Distinctive defaults anywhere, common numbers after a name, or a key with its default."""
VERSION = re.compile(
    r"(?<![\d.])[4-6]\d\d\.\d{2,3}(\.\d\d)?(?![\d.])"  # a driver
    r"|(?i:driver|cuda|doca|dcgm|gdrcopy|nccl|toolkit|ofed)(?!\w*_share)[\w\"'-]*\s*(?::|=|==|>=|~=|,)\s*"
    r"[\"']?v?(?:\d+\.\d+(?:\.\d+)?|[4-9]\d\d)(?![\w.])"
    r"|(?i:nvidia-[a-z-]+|nvlink5|cuda-drivers|cuda-toolkit|libnvidia-\w+)-\d{2,3}(-\d)?\b"
)
ALLOWED = {
    QOS: {
        "plugins/plugin_utils/qos/contract.py",
        "plugins/plugin_utils/fabric/nvue/__init__.py",  # its largest MTU
        "plugins/plugin_utils/fabric/sonic/__init__.py",  # its largest MTU
        f"{SIMULATORS}/nvue/vendor.py",  # defaults of Cumulus Linux
        f"{SIMULATORS}/sonic/yang.py",  # the largest MTU of SONiC's models
    },
    VERSION: {
        "plugins/module_utils/core/distribution.py",  # NVIDIA's first packages for a release
        "plugins/module_utils/software/floors.py",  # published minimum versions
        "plugins/plugin_utils/model/software_rules.py",  # bounds of the rules for software sets
        "plugins/plugin_utils/model/software.py",  # examples in messages
    },
}


def lines(text: str, suffix: str) -> Iterator[str]:
    """Yield lines without comments, docstrings and the documentation of modules."""
    if suffix == ".py":
        text = re.sub(
            r'^(DOCUMENTATION|EXAMPLES|RETURN) = r?""".*?"""', "", text, flags=re.S | re.M
        )
        text = re.sub(r'^\s*r?""".*?"""', "", text, flags=re.S | re.M)
    for line in text.splitlines():
        yield re.sub(r"(^|\s)#.*", "", line)


@cache
def code() -> list[tuple[str, str]]:
    """Return every line of code with the path of its file."""
    return [
        (str(path.relative_to(ROOT)), line)
        for folder in ("roles", "plugins", "playbooks", "tests/bed/plugins", "tests/bed/roles")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in (".py", ".yml", ".yaml", ".j2", ".sh", "")
        and path.is_file()
        and "__pycache__" not in path.parts
        for line in lines(path.read_text(encoding="utf-8"), path.suffix)
    ]


@pytest.mark.parametrize("pattern", [QOS, VERSION], ids=["qos", "version"])
def test_constants_are_defined_once(pattern: re.Pattern[str]) -> None:
    matches = [(name, line) for name, line in code() if pattern.search(line)]
    assert [match for match in matches if match[0] not in ALLOWED[pattern]] == []
    assert {name for name, _line in matches} == ALLOWED[pattern]
