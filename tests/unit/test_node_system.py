# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which distribution a node is, and what its package manager's refusals lack."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import system
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.manager import (
    PackageError,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.package import PackageSet
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.software import (
    Distribution,
    UnsupportedDistribution,
    distribution_of,
)

EL = distribution_of("rocky", "9.6", "x86_64")
UBUNTU = distribution_of("ubuntu", "24.04", "x86_64")
SOLVER = "  - nothing provides dkms >= 3.1.8 needed by kmod-nvidia-open-dkms-580.95.05-1.noarch"


def raised(found: Distribution, error: Exception, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(system, "DnfManager", lambda *_arguments: nullcontext("dnf"))
    with pytest.raises(type(error)) as caught, system.manager_of(found, PackageSet(), "gpu"):
        raise error
    assert type(caught.value) is type(error)
    return str(caught.value)


@pytest.mark.parametrize("kind", [PlanError, PackageError])
def test_on_el_a_refusal_for_want_of_dkms_names_epel(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = raised(EL, kind(f"a finding\n{SOLVER}"), monkeypatch)
    assert told == f"a finding\n{SOLVER}\n{system.EPEL}"
    assert "dnf install epel-release" in told


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (EL, "nothing provides dkms-x needed by y"),
        (EL, "held by somebody"),
        (UBUNTU, SOLVER),
    ],
)
def test_another_refusal_stays_as_it_is(
    found: Distribution, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert raised(found, PlanError(text), monkeypatch) == text


def test_the_distribution_is_what_os_release_says(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedDistribution, match="os-release"):
        system.distribution(tmp_path)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text('ID="rocky"\nVERSION_ID="9.6"\n')
    assert system.distribution(tmp_path).family == EL.family
