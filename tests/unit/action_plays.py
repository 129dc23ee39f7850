# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Runs Ansible for a test, and a play without the operator's own configuration."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.waiting import deadline

ROOT = Path(__file__).resolve().parents[2]


def ansible(
    program: str, *words: object, cwd: Path = ROOT, **environment: str
) -> subprocess.CompletedProcess[str]:
    """A program of Ansible. From the top of the checkout it has the collection's ansible.cfg."""
    return subprocess.run(
        [str(Path(sys.executable).with_name(program)), *map(str, words)],
        cwd=cwd,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1", **environment},
        capture_output=True,
        text=True,
        timeout=deadline(300),
        check=False,
    )


def run_play(folder: Path, play: str, inventory: Path, *options: str) -> tuple[int, str]:
    """Exit status and output. Relative paths of the play begin in `folder`."""
    (folder / "play.yml").write_text(play, encoding="utf-8")
    (folder / "ansible.cfg").write_text("[defaults]\n", encoding="utf-8")
    done = ansible(
        "ansible-playbook",
        "-i",
        inventory,
        *options,
        folder / "play.yml",
        cwd=folder,
        ANSIBLE_CONFIG=str(folder / "ansible.cfg"),
        ANSIBLE_COLLECTIONS_PATH=str(ROOT / "collections"),
    )
    return done.returncode, done.stdout + done.stderr
