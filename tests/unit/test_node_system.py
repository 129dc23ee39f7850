# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which distribution a node is."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import system
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.software import (
    UnsupportedDistribution,
)


def test_the_distribution_is_what_os_release_says(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedDistribution, match="os-release"):
        system.distribution(tmp_path)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text('ID="rocky"\nVERSION_ID="9.6"\n')
    assert system.distribution(tmp_path).family == "redhat"
