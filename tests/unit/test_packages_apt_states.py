# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Nodes with earlier software, on the real apt and dpkg, as users reported them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.distribution import (
    distribution_of,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.apt_sources import (
    WHY,
    turned_off,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.package import (
    PackageError,
    PackageSet,
    Stage,
    WantedPackage,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.software.catalog import (
    gpu_packages,
)

from tests.unit.apt_root import MISSING, WHY_NOT, AptRepository
from tests.unit.software_sets import KEYS, software
from tests.unit.test_packages_apt import Site, keys  # noqa: F401

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=WHY_NOT),
    pytest.mark.slow,  # seconds each: apt and dpkg start several times
]


@pytest.fixture
def site(tmp_path, keys):  # noqa: F811
    return Site(tmp_path, keys)


# A file in two packages (Azure/azhpc-images, components/install_doca.sh at 0d4b898).

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
    stages = (Stage("DOCA", (WantedPackage("doca-ofed", "3.2.1", "rdma"),)),)
    return PackageSet(repositories=(doca.repository(),), stages=stages)


def test_file_conflict_names_file_and_package(site):
    wanted = with_pmix(site)
    for _run in range(2):
        with pytest.raises(PackageError) as failed:
            site.run(wanted)
        assert f"openmpi: trying to overwrite '/{SHARED}'" in str(failed.value)
        assert "also in package pmix 4.2.9-2" in str(failed.value)
        assert "--fix-broken" not in str(failed.value)
    site.root.run(["dpkg", "--purge", "pmix"])
    site.run(wanted)
    assert not site.run(wanted)[0].changed


def test_known_file_conflict_is_refused_before_any_change(site):
    wanted = replace(with_pmix(site), claims={f"/{SHARED}": "openmpi"})
    before = site.root.snapshot()
    for _run in range(2):
        (refused,) = site.refused(wanted)
        assert refused.code == "file_in_two_packages"
        assert refused.values == {"path": f"/{SHARED}", "name": "openmpi", "owner": "pmix"}
    assert site.root.snapshot() == before
    site.root.run(["dpkg", "--remove", "pmix"])
    site.run(wanted)
    assert not site.run(wanted)[0].changed


# A driver of another branch. Relations follow Ubuntu's packaging: each name contains the branch,
# and provides, conflicts with and replaces the name without it.

FULL = {"550": "550.163.01-0ubuntu1", "580": "580.95.05-0ubuntu1"}


def driver(repository, branch):
    """The packages of a branch: driver, modules and libraries."""
    full = FULL[branch]

    def one(name, tail="", *needs):
        same = dict.fromkeys(("Provides", "Conflicts", "Replaces"), name + tail)
        depends = {"Depends": ", ".join(f"{each} (= {full})" for each in needs)} if needs else {}
        repository.add(f"{name}-{branch}{tail}", full, **same, **depends)
        return f"{name}-{branch}{tail}"

    libraries = [one(each) for each in ("libnvidia-compute", "libnvidia-cfg1")]
    modules = [one("nvidia-kernel-source", "-open"), one("nvidia-kernel-common")]
    one("nvidia-driver", "-open", one("nvidia-dkms", "-open", *modules), *libraries)


def vendors(site):
    """NVIDIA's repository for a set with driver 580, and for earlier sets."""
    found = AptRepository("nv", site.where / "nv", site.vendor)
    driver(found, "550")
    driver(found, "580")
    one = f"nvidia-driver-550-open (= {FULL['550']})"
    found.add("cuda-drivers-550", "550.163.01-1", Depends=one)
    found.add("cuda-runtime-12-4", "12.4.1-1", Depends="cuda-drivers-550, cuda-toolkit-12-4")
    found.add("cuda-toolkit-12-4", "12.4.1-1")
    found.add("nvidia-fabricmanager-550", "550.163.01-1", files={FABRIC_MANAGER: "550"})
    one = f"nvidia-driver-580-open (= {FULL['580']})"
    found.add("nvidia-open-580", "580.95.05-1", Depends=one)
    for name in ("nvidia-persistenced", "nvidia-imex", "libnvidia-nscq"):
        found.add(name, "580.95.05-1")
    found.add("nvidia-fabricmanager", "580.95.05-1", files={FABRIC_MANAGER: "580"})
    found.publish()
    return found


FABRIC_MANAGER = "usr/bin/nv-fabricmanager"


def wanted_of(repository):
    nothing = dict.fromkeys(("cuda", "gdrcopy", "nccl", "dcgm"), "")
    driver = {"version": "580.95.05", "gpu": "H100"}
    found = software(driver=driver, rdma={"source": "inbox"}, **nothing)
    whole = gpu_packages(found, distribution_of("Ubuntu", "24.04"), "", KEYS)
    return replace(whole, repositories=(repository.repository(),), preferred={})


def before(site, repository, *names):
    """Installed by the operator from this repository, whose definition is gone."""
    apt = site.root.root / "etc/apt"
    (apt / "trusted.gpg.d/nv.asc").write_bytes(site.vendor.armoured)
    old = apt / "sources.list.d/old.list"
    old.write_text(f"deb file:{repository.where} ./\n")
    site.install(*names)
    old.unlink()


def test_branch_550_is_removed_in_the_same_plan(site):
    """NVIDIA/ansible-role-nvidia-driver, pull request 33; `apt-get install cuda` before."""
    repository = vendors(site)
    before(site, repository, "cuda-runtime-12-4", "nvidia-fabricmanager-550")
    wanted = wanted_of(repository)
    plan, _checks = site.run(wanted)
    gone = {each.name for each in plan.changes if each.kind == "remove"}
    assert {"cuda-drivers-550", "nvidia-fabricmanager-550", "cuda-runtime-12-4"} <= gone
    assert not [name for name in site.root.installed() if "550" in name]
    assert "cuda-toolkit-12-4" in site.root.installed()
    assert not site.run(wanted)[0].changed


def test_ubuntu_s_fabric_manager_is_replaced(site):
    """The same file in packages with different names: packages.ubuntu.com, fabric-manager-580."""
    archive = site.archive()
    archive.add("nvidia-fabricmanager-580", "580.126.20-0ubuntu1", files={FABRIC_MANAGER: "u"})
    archive.publish()
    site.install("nvidia-fabricmanager-580")
    wanted = wanted_of(vendors(site))
    site.run(wanted)
    assert (site.root.root / FABRIC_MANAGER).read_text() == "580"
    assert "nvidia-fabricmanager-580" not in site.root.installed()
    assert not site.run(wanted)[0].changed


# Another definition of a repository of the set (NVIDIA/cuda-repo-management issue 4).


def keyring(site, name, text):
    """As cuda-keyring leaves it: with another key, and metadata that apt has fetched with it."""
    apt = site.root.root / "etc/apt"
    key = apt / "keyrings/cuda-archive-keyring.asc"
    key.write_bytes(site.vendor.armoured)
    path = apt / name
    path.write_text(text.format(key=key, url=f"file:{site.cuda.where}/"))
    path.chmod(0o640)
    site.root.run(["apt-get", "update"])
    return path


ONE_LINE = "deb [signed-by={key}] {url} /\n"
DEB822 = "Types: deb\nURIs: {url}\nSuites: /\nEnabled: yes\nSigned-By: {key}\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sources.list.d/cuda-ubuntu2404-x86_64.list", ONE_LINE),
        ("sources.list", f"# of the site\n{ONE_LINE}"),
        ("sources.list.d/cuda.sources", DEB822),
    ],
)
def test_vendor_s_definition_is_disabled(site, name, text):
    path = keyring(site, name, text)
    written = path.read_text()
    plan, _checks = site.run(site.set(), check_mode=True)
    assert str(path) in {each["before_header"] for each in plan.diffs()}
    assert path.read_text() == written
    site.run(site.set())
    assert site.root.installed()["driver"].startswith("580.95.05")
    assert WHY in path.read_text() and path.stat().st_mode & 0o777 == 0o640
    site.root.run(["apt-get", "update"])  # all repositories, as an operator updates
    assert not site.run(site.set())[0].changed
    path.write_text(written)  # by an installation of cuda-keyring
    with pytest.raises(PackageError, match=f"{path}: .* run --tags rdma,gpu"):
        site.root.manager(site.set()).locations()  # as the preflight reads them
    site.run(site.set())
    assert WHY in path.read_text()


def test_a_refusal_turns_it_on_again(site):
    path = keyring(site, "sources.list.d/cuda-ubuntu2404-x86_64.list", ONE_LINE)
    written = path.read_text()
    assert site.refused(site.set("580.1.1"))
    assert path.read_text() == written


CUDA = "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64"


@pytest.mark.parametrize(
    ("suffix", "text", "wanted"),
    [
        (
            ".list",
            f"deb [a=b signed-by=/k] {CUDA}/ /\n",
            f"{WHY}\n# deb [a=b signed-by=/k] {CUDA}/ /\n",
        ),
        (".list", f"deb {CUDA} /", f"{WHY}\n# deb {CUDA} /"),
        (".list", f"# deb {CUDA}/ /\n", None),
        (".list", f"deb {CUDA}/ ./\n", None),
        (".list", f"deb {CUDA}x/ /\n", None),
        (".list", "deb [\nnot a line\n", None),
        (".sources", f"Types: deb\nuris:\n {CUDA}/\n http://other/\nSuites: /\n", None),
        (".sources", f"Enabled: no\nURIs: {CUDA}\nSuites: /\n", None),
        (".sources", f"URIs: {CUDA}\nSuites: noble\n", None),
        (".sources", "", None),
        (
            ".sources",
            f"Types: deb\nURIs: http://other\nSuites: a\n\nURIs: {CUDA}\nSuites: /\n",
            "Types: deb\nURIs: http://other\nSuites: a\n\n"
            f"{WHY}\nEnabled: no\nURIs: {CUDA}\nSuites: /\n",
        ),
    ],
)
def test_only_the_same_repository_is_turned_off(tmp_path, suffix, text, wanted):
    assert turned_off(tmp_path / f"x{suffix}", text, {CUDA}) == (text if wanted is None else wanted)
