# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""mlxconfig (MFT, DOCA) and mstconfig (mstflint): the firmware's own settings of one NIC.

Both are the same program and print the same table. The table is read, not the JSON form: the
distributions' mstconfig has none, and where there is one it goes through a file.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from typing import Optional

from ..core.commands import CommandError, Runner
from ..core.dataclass import dataclass

TOOLS = ("mlxconfig", "mstconfig")
"""In order of preference: MFT knows a NIC at least as early as mstflint does."""
PACKAGES = "mstflint (the distribution's) or mft (NVIDIA's, with DOCA)"

_HEADING = "Configurations:"
_COLUMNS = ("Default", "Current", "Next Boot")
_NUMBERED = re.compile(r".*\((\d+)\)")
"""`ETH(2)`, `False(0)`: the number is what counts, the word differs between versions."""


@dataclass(frozen=True)
class Parameter:
    """One setting of the firmware. `current` is None where the firmware does not tell it."""

    current: Optional[int]
    next_boot: int


def find_tool(which: Callable[[str], Optional[str]] = shutil.which) -> Optional[str]:
    """The tool that this host has, or None."""
    return next((name for name in TOOLS if which(name)), None)


def query(tool: str, pci: str, run: Runner) -> dict[str, Parameter]:
    """Every parameter that the firmware of this NIC knows, as numbers. Raises CommandError.

    All are asked for at once: a list with one unknown name in it is refused as a whole.
    """
    result = run((tool, "-d", pci, "-e", "q"), check=False)
    known = parse(result.stdout)
    if not known:
        told = (result.stderr.strip() or result.stdout.strip() or "it printed nothing")[-1000:]
        raise CommandError(f"{tool} -d {pci} -e q: exit status {result.rc}: {told}")
    return known


def set_for_next_boot(tool: str, pci: str, values: Mapping[str, int], run: Runner) -> None:
    """One call for all of them. The firmware takes them up at its next reset, which is not done."""
    words = [f"{name}={value}" for name, value in sorted(values.items())]
    run((tool, "-y", "-d", pci, "set", *words))


def parse(text: str) -> dict[str, Parameter]:
    """The table of `-e q`. What is no number (arrays, keys, N/A) is left out."""
    columns: tuple[str, ...] = ()
    found: dict[str, Parameter] = {}
    for line in text.splitlines():
        if line.startswith(_HEADING):
            columns = tuple(name for name in _COLUMNS if name in line)
            continue
        words = line.split()
        while words and words[0] in ("*", "RO", "*RO"):
            words.pop(0)
        if not columns or len(words) != len(columns) + 1:
            continue
        values = dict(zip(columns, map(_number, words[1:])))
        next_boot = values.get("Next Boot")
        if next_boot is not None:
            found[words[0]] = Parameter(values.get("Current"), next_boot)
    return found


def _number(word: str) -> Optional[int]:
    match = _NUMBERED.fullmatch(word)
    digits = match.group(1) if match else word
    return int(digits) if digits.isdigit() else None
