# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Runs a play of a test, with nothing of the operator's own configuration of Ansible."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run_play(folder: Path, play: str, inventory: Path, *options: str) -> tuple[int, str]:
    """Exit status and output. Relative paths of the play begin in `folder`."""
    (folder / "play.yml").write_text(play, encoding="utf-8")
    (folder / "ansible.cfg").write_text("[defaults]\n", encoding="utf-8")
    program = Path(sys.executable).with_name("ansible-playbook")
    done = subprocess.run(
        [str(program), "-i", str(inventory), *options, str(folder / "play.yml")],
        cwd=folder,
        env={
            **os.environ,
            "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections"),
            "ANSIBLE_NOCOLOR": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr
