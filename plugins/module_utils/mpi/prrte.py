# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Open MPI 5, which this collection does not start ranks by yet: of the system-wide file its mpirun
translates nothing for PRRTE (openpmix/prrte src/mca/schizo/ompi/schizo_ompi.c, translate_params),
and ranks would not get the environment of their node.
"""

from __future__ import annotations

import re

_NUMBER = re.compile(r"(?:\(Open MPI\) )?(?:\d+:)?((\d{1,3})\.[\w.]{1,20})")


def too_new(version: str) -> str:
    """Why, with the remedy, for what mpirun (`(Open MPI) 5.0.10`) or a package (`5.0.10-1`) has."""
    found = _NUMBER.match(version)
    if found is None or int(found[2]) < 5:
        return ""
    return (
        f"Open MPI {found[1]} starts ranks by PRRTE's prted, and this collection by orted, which "
        "it has not: write software.mpi.provider: hpcx, impi, or source with Open MPI 4.1"
    )
