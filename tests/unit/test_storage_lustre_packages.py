# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Packages of the Lustre client by distribution, and their installation."""

from __future__ import annotations

import base64
from types import SimpleNamespace

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import (
    FAILED,
    OK,
    Check,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.distribution import (
    distribution_of,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.engine import settle
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError, Step
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.package import (
    INSTALL,
    UPGRADE,
    PackageChange,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.planning import (
    PackagePlan,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage import (
    lustre_packages as client,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.lustre import LustreKernel
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.lustre_packages import (
    ClientPackages,
    client_packages,
)
from ansible_collections.baremetal.mpi_roce.plugins.modules import lustre_packages as module

from tests.unit.lustre_node import LustreNode, settings_of
from tests.unit.storage_node import wrong

UBUNTU, EL = distribution_of("ubuntu", "24.04"), distribution_of("rocky", "9.6")
KERNELS = {UBUNTU: "6.8.0-60-generic", EL: "5.14.0-570.12.1.el9_6.x86_64"}
LOCK, UTILS = "python3-dnf-plugin-versionlock", "lustre-client-utils"
MODULES, LND = "lustre-client-modules", "lustre-lnet-module"
REPOSITORY = {
    "url": "file:///srv/lustre/{version}/{distribution}/client",
    "key": "keys/lustre.asc",
    "key_sha256": "0" * 64,
}


def settings(method="dkms", version="2.15.7", **more):
    given = {"method": method, "version": version, "repository": REPOSITORY, **more}
    return settings_of({"packages": given}).packages


def wanted(where, method, version="2.15.7", rdma="inbox", **more):
    of = client_packages(
        settings(method, version, **more), where, KERNELS[where], b"key", True, rdma
    )
    return of, {each.name: each.version for stage in of.stages for each in stage.packages}


KERNEL_MODULES = f"{MODULES}-{{}} {UTILS}"


@pytest.mark.parametrize(
    ("where", "method", "version", "rdma", "before", "names"),
    [
        (EL, "dkms", "2.15.7", "inbox", f"{LOCK} kernel-devel", "lustre-client-dkms lustre-client"),
        (EL, "prebuilt", "2.16.1", "doca", LOCK, "kmod-lustre-client lustre-client"),
        (UBUNTU, "dkms", "2.15.7", "doca", "linux-headers-{}", f"{MODULES}-dkms {UTILS}"),
        (UBUNTU, "prebuilt", "2.15.7", "doca", "", KERNEL_MODULES),
        *(
            (
                *(UBUNTU, "prebuilt", version, rdma, ""),
                f"{KERNEL_MODULES} {LND}-socklnd-{{}} {LND}-{driver}-{{}}",
            )
            for version, rdma, driver in (
                ("2.16.1", "inbox", "in-kernel-o2iblnd"),
                ("2.17.0", "doca", "o2iblnd"),
            )
        ),
    ],
)
def test_names_and_versions(where, method, version, rdma, before, names):
    found = wanted(where, method, version, rdma)[1]
    release = KERNELS[where]
    assert list(found) == [name.replace("{}", release) for name in f"{before} {names}".split()]
    for name in names.split():
        assert found[name.replace("{}", release)] == version
    assert found.get("kernel-devel", "") in ("", "5.14.0-570.12.1.el9_6")


def test_the_repository_and_its_key():
    (repository,) = wanted(EL, "dkms")[0].repositories
    assert repository.url == "file:///srv/lustre/2.15.7/el9.6/client"
    assert (repository.key, repository.key_sha256) == (b"key", "0" * 64)
    assert wanted(UBUNTU, "dkms")[0].repositories[0].url.split("/")[-2] == "ubuntu2404"


def test_packages_of_the_other_method_are_removed():
    assert set(wanted(EL, "dkms")[0].absent) == {"kmod-lustre-client"}
    assert set(wanted(EL, "prebuilt")[0].absent) == {"lustre-client-dkms"}
    assert set(wanted(UBUNTU, "prebuilt")[0].absent) == {"lustre-client-modules-dkms"}


def test_unpublished_packages_are_refused():
    with pytest.raises(PlanError, match="debian 12: Lustre publishes"):
        client_packages(settings(), distribution_of("debian", "12"), "6.1.0-1-amd64", b"key")


class Engine:
    """Replace the package engine."""

    def __init__(self, changes=(), solved=True):
        self.changes, self.solved = list(changes), solved
        self.acted = 0

    def __call__(self, wanted, manager, layer):
        return self

    def plan(self):
        stages = [("Lustre client", self.changes)] if self.changes else []
        return PackagePlan(stages=stages, solved=self.solved)

    def step(self, plan, name, before, after):
        return Step(name, before, after, self._act, essential=True, shown=plan.diffs())

    def _act(self):
        self.acted += 1
        self.changes = []

    def verify(self, check_mode=False):
        return [Check("package", "2.15.7", "2.15.7", OK, "lustre-client")]


@pytest.fixture
def node(tmp_path):
    return LustreNode(tmp_path)


def outcome(node, monkeypatch, engine, method="dkms", *, check_mode=False):
    monkeypatch.setattr(client, "Installer", engine)
    kernel = LustreKernel(node.root, node.run)
    of = client_packages(settings(method), EL, KERNELS[EL], b"key")
    part = ClientPackages(settings(method), kernel, of, SimpleNamespace())
    return settle([part], node.node(check_mode=check_mode))


FRESH = [PackageChange(INSTALL, "lustre-client", "", "2.15.7-1.el9")]
NEWER = [PackageChange(UPGRADE, "lustre-client", "2.15.6-1.el9", "2.15.7-1.el9")]


class TestPart:
    def test_installation_and_read_back(self, node, monkeypatch):
        engine = Engine(FRESH)
        done = outcome(node, monkeypatch, engine)
        assert (engine.acted, done.errors, wrong(done)) == (1, [], [])
        assert done.diff[0]["after"] == "lustre-client 2.15.7-1.el9\n"
        assert not outcome(node, monkeypatch, engine).changed

    @pytest.mark.parametrize("engine", [Engine(NEWER), Engine(FRESH, solved=False)])
    def test_modules_are_not_replaced_while_mounted(self, node, monkeypatch, engine):
        node.settle()
        node.mount()
        with pytest.raises(PlanError, match=r"Lustre is mounted at /lustre\. Drain the node"):
            outcome(node, monkeypatch, engine)
        assert outcome(node, monkeypatch, engine, check_mode=True).changed
        assert engine.acted == 0
        node.unmount()
        assert outcome(node, monkeypatch, engine).errors == []

    def test_missing_programs_fail(self, node, monkeypatch):
        (node.root / "usr/sbin/lctl").unlink()
        done = outcome(node, monkeypatch, Engine())
        (check,) = [each for each in done.checks if each.name == "lustre_client"]
        assert (check.status, check.found) == (FAILED, "no lctl")

    def test_secure_boot_refuses_dkms(self, node, monkeypatch):
        monkeypatch.setattr(client.secure_boot, "refusal", lambda node, root: "Secure Boot is on")
        with pytest.raises(PlanError, match="Lustre client: Secure Boot is on"):
            outcome(node, monkeypatch, Engine(FRESH))
        assert wrong(outcome(node, monkeypatch, Engine(FRESH), "prebuilt")) == []


def test_the_module_plans_for_the_running_kernel(node, monkeypatch):
    node.write("proc/sys/kernel/osrelease", f"{KERNELS[EL]}\n")
    monkeypatch.setattr(module, "read_distribution", lambda: EL)
    monkeypatch.setattr(module, "settle", lambda parts, node: parts)
    packages = {"method": "dkms", "version": "2.15.7", "repository": vars(settings())["repository"]}
    key = base64.b64encode(b"key").decode()
    given = {"packages": packages, "key": key, "root": str(node.root), "o2ib": True}
    (part,) = module.converge({**given, "rdma_source": "inbox"}, node.node()).outcome
    assert part.wanted == wanted(EL, "dkms")[0]
    assert (part.kernel.root, part.kernel.simulated) == (node.root, True)
