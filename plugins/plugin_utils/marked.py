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

PROMPT = "waiting for privilege escalation prompt"
SUDO_RS = (
    "sudo-rs, which Ubuntu has from 25.10 on, does not show the prompt that Ansible waits for: "
    "allow sudo without a password there, or set ansible_become_exe to sudo.ws"
)
"""ansible/ansible issues 86441 and 86849; the way out by semaphoreui/semaphore issue 4077."""


def no_prompt(text: str) -> str:
    """What to do where sudo's prompt was waited for in vain; empty for another error."""
    return SUDO_RS if PROMPT in text else ""


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
