# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Shell commands whose output starts with a marker, so that other output is ignored.

With a terminal, sudo prints an empty line after the password, "Sorry, try again." and its lecture.
PAM, banners and login scripts may print, too.
"""

from __future__ import annotations

import re
import shlex
from typing import Optional

MARK = "@@ baremetal.mpi_roce answers:"
_MARKED = re.compile(rf"^{re.escape(MARK)}[ \t]*(?:\n|\Z)", re.MULTILINE)

PROMPT = "waiting for privilege escalation prompt"
SUDO_RS = (
    "sudo-rs, in Ubuntu since 25.10, does not show the prompt that Ansible expects: "
    "allow sudo without a password there, or set ansible_become_exe to sudo.ws"
)
"""ansible/ansible issues 86441 and 86849; workaround from semaphoreui/semaphore issue 4077."""


def no_prompt(text: str) -> str:
    """The remedy if sudo's prompt did not appear; empty for other errors."""
    return SUDO_RS if PROMPT in text else ""


def question(script: str) -> str:
    """The command line of a script whose output starts with the marker.

    The marker is on a separate line even after an incomplete one.
    """
    text = f"printf '\\n%s\\n' '{MARK}'\n{script}"
    return f"/bin/sh -c {shlex.quote(text)}"


def answer(stdout: object) -> Optional[str]:
    """The output of the script, with Unix line ends; None if it did not start."""
    text = re.sub(r"\r+\n", "\n", str(stdout))
    found = _MARKED.search(text)
    return text[found.end() :] if found else None
