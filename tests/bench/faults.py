#!/usr/bin/env python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Inject every fault of tests/faults.yml, find them with one verify.yml, repair them with the
commands that it prints, and list the times: tests/integration/test_drift.py, with pytest's options.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parents[2])
    argv = ["-m", "pytest", "-v", "--durations=0", "tests/integration/test_drift.py"]
    os.execv(sys.executable, [sys.executable, *argv, *sys.argv[1:]])
