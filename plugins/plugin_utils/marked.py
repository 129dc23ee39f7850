# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Shell commands on a host whose answer is found by a mark, whatever else is printed there.

On a terminal, sudo prints an empty line after the password, "Sorry, try again.", and its lecture
into the output; PAM, banners and login files may print as well.
"""

from __future__ import annotations

import re
import shlex
from typing import Optional

MARK = "@@ baremetal.mpi_roce answers:"
_MARKED = re.compile(rf"^{re.escape(MARK)}[ \t]*(?:\n|\Z)", re.MULTILINE)


def question(script: str) -> str:
    """The command line of a script whose output begins with the mark.

    The mark has a line to itself also where something printed half a line before.
    """
    text = f"printf '\\n%s\\n' '{MARK}'\n{script}"
    return f"/bin/sh -c {shlex.quote(text)}"


def answer(stdout: object) -> Optional[str]:
    """What the script printed, with line ends of Unix; None where it did not begin."""
    text = re.sub(r"\r+\n", "\n", str(stdout))
    found = _MARKED.search(text)
    return text[found.end() :] if found else None
