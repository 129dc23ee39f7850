# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Nodes that had something before, on the real apt and dpkg: what users came with."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.package import (
    PackageError,
    PackageSet,
    Stage,
    Wanted,
)

from tests.unit.apt_root import MISSING, WHY_NOT, AptRepository
from tests.unit.test_packages_apt import Site, keys  # noqa: F401

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=WHY_NOT),
    pytest.mark.slow,  # seconds each: apt and dpkg start several times
]


@pytest.fixture
def site(tmp_path, keys):  # noqa: F811
    return Site(tmp_path, keys)


# A file of two packages (Azure/azhpc-images, components/install_doca.sh at 0d4b898).

SHARED = "etc/pmix-mca-params.conf"


def with_pmix(site):
    archive = site.archive()
    archive.add("pmix", "4.2.9-2", files={SHARED: "slurm's"}, conffiles=[SHARED])
    archive.publish()
    site.install("pmix")
    doca = AptRepository("doca", site.where / "doca", site.vendor)
    doca.add("doca-ofed", "3.2.1-044000", Depends="openmpi (= 4.1.9a1-1), mlnx-ofed-kernel-dkms")
    doca.add("mlnx-ofed-kernel-dkms", "25.10-1")
    doca.add("openmpi", "4.1.9a1-1", files={SHARED: "doca's"}, conffiles=[SHARED])
    doca.publish()
    stages = (Stage("DOCA", (Wanted("doca-ofed", "3.2.1", "rdma"),)),)
    return PackageSet(repositories=(doca.repository(),), stages=stages)


def test_every_run_names_the_file_and_the_package_that_has_it_too(site):
    wanted = with_pmix(site)
    for _run in range(2):
        with pytest.raises(PackageError) as failed:
            site.run(wanted)
        assert f"openmpi: trying to overwrite '/{SHARED}'" in str(failed.value)
        assert "also in package pmix 4.2.9-2" in str(failed.value)
    site.root.run(["dpkg", "--purge", "pmix"])
    site.run(wanted)
    assert not site.run(wanted)[0].changed
