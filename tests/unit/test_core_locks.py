# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One at a time on a host: the second waits, gives up in time and names the first."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import locks


def test_a_second_holder_waits_and_names_the_first(tmp_path: Path) -> None:
    path = tmp_path / "run/x.lock"
    now = [0.0]
    seen: list[float] = []

    def sleep(seconds: float) -> None:
        now[0] += seconds

    with locks.alone(path):
        again = locks.alone(path, 1.0, waiting=seen.append, sleep=sleep, clock=lambda: now[0])
        with pytest.raises(locks.HeldError) as caught, again:
            pass
    assert caught.value.holder == str(os.getpid())
    assert seen[0] == 0 and 1.0 <= caught.value.waited_s < 1.5
    with locks.alone(path, 0):
        assert path.read_text() == f"{os.getpid()}\n"
