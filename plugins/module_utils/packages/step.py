# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A change of packages as what a step does."""

from __future__ import annotations

from ..core.part import StepError
from . import engine
from .manager import Manager, PackageError
from .package import PackageSet


def change(plan: engine.Plan, wanted: PackageSet, manager: Manager, layer: str) -> None:
    """Raises StepError, so that what comes after it is judged by the step."""
    try:
        engine.act(plan, wanted, manager, layer)
    except PackageError as error:
        raise StepError(str(error)) from error
