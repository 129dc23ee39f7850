# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""ECN thresholds that the hardware rounds.

A Spectrum counts them in steps of 64 buffer cells and rounds up. 150000 bytes become 159744 on
Spectrum-4 (13 steps of 64 cells of 192 bytes) and 156672 on Spectrum-2 and -3 (17 steps of 64 cells
of 144 bytes), as NVIDIA's documentation shows for both. Nothing but the next step is tolerated.
"""

from __future__ import annotations

from ...module_utils.fabric.asics import ASICS, Asic

STEP_CELLS = 64
_CELL_BYTES = {"spectrum": 96, "spectrum2": 144, "spectrum3": 144}
"""Of chips that have no headroom formula, which would say it."""


def _cells(asic: Asic) -> tuple[int, ...]:
    if asic.formula is not None:
        return (asic.formula.cell_bytes,)
    if asic.name in _CELL_BYTES:
        return (_CELL_BYTES[asic.name],)
    known = {chip.formula.cell_bytes for chip in ASICS.values() if chip.formula is not None}
    return tuple(sorted({*known, *_CELL_BYTES.values()}))


def rounded(asic: Asic, asked: int, found: int) -> bool:
    """Whether the chip makes `found` of `asked`."""
    steps = (STEP_CELLS * cell for cell in _cells(asic))
    return any(found == -(-asked // step) * step for step in steps)
