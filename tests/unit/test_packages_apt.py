# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Package sets with the real apt and dpkg, in a separate root directory."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.distribution import (
    distribution_of,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.apt_sources import (
    WHY,
    turned_off,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.installer import (
    NOTHING_CHANGED,
    Installer,
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

from tests.unit import software_sets
from tests.unit.apt_root import MISSING, WHY_NOT, AptRepository, AptRoot, signing_keys
from tests.unit.software_sets import KEYS, software

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=WHY_NOT),
    pytest.mark.slow,  # seconds each: apt and dpkg start several times
]

LAYER = "gpu"


@pytest.fixture(scope="session")
def keys():
    with signing_keys("vendor", "stranger") as made:
        yield made


class Site:
    """A root, the vendor's repository, and sets of packages from it."""

    def __init__(self, where, keys):
        self.vendor, self.stranger = keys
        self.where = where
        self.root = AptRoot(where)
        self.cuda = AptRepository("cuda", where / "cuda", self.vendor)
        for version in ("580.95.05", "580.105.08"):
            full = f"{version}-0ubuntu1"
            self.cuda.add("driver", full, Depends=f"driver-lib (= {full}), tool")
            self.cuda.add("driver-lib", full)
            self.cuda.add("manager", f"1:{full}", Depends=f"nscq (>= {version})")
            self.cuda.add("nscq", full)
        self.cuda.add("tool", "1.0")
        self.cuda.publish()

    def archive(self, archive=None):
        """A repository defined by the operator, such as the distribution's."""
        archive = archive or AptRepository("archive", self.where / "archive", self.vendor)
        apt = self.root.root / "etc/apt"
        (apt / "trusted.gpg.d/archive.asc").write_bytes(self.vendor.armoured)
        (apt / "sources.list.d/archive.list").write_text(f"deb file:{archive.where} ./\n")
        return archive

    def install(self, *names):
        """Install packages as the operator."""
        self.root.run(["apt-get", "update"])
        self.root.run(["apt-get", "-y", "install", *names])

    def set(self, version="580.95.05", **more):
        return PackageSet(
            **{
                "repositories": [self.cuda.repository()],
                "stages": [
                    Stage("driver", [WantedPackage("driver", version, "driver")]),
                    Stage("fabric", [WantedPackage("manager", version, "driver")]),
                ],
                **more,
            }
        )

    def run(self, wanted, *, check_mode=False, allow_downgrade=False, layer=LAYER):
        """Run as a module does: a new manager, plan, act, verify."""
        self.root.calls.clear()
        installer = Installer(wanted, self.root.manager(wanted, layer), layer, allow_downgrade)
        plan = installer.plan() if check_mode else software_sets.install(installer)
        checks = installer.verify(check_mode)
        assert [check.line() for check in checks if check.status == "failed"] == []
        return plan, checks

    def refused(self, wanted, **more):
        """The refusals of a plan."""
        with pytest.raises(PackageError) as refusal:
            self.run(wanted, **more)
        assert str(refusal.value).removesuffix(f"\n{NOTHING_CHANGED}") == "\n".join(
            refusal.value.refusals
        )
        return refusal.value.refusals

    def statuses(self, wanted):
        checks = Installer(wanted, self.root.manager(wanted), LAYER).verify(True)
        return {check.status for check in checks}


@pytest.fixture
def site(tmp_path, keys):
    return Site(tmp_path, keys)


FIRST = {
    "driver": "580.95.05-0ubuntu1",
    "driver-lib": "580.95.05-0ubuntu1",
    "manager": "1:580.95.05-0ubuntu1",
    "nscq": "580.95.05-0ubuntu1",
    "tool": "1.0",
}
SECOND = {name: at.replace("95.05", "105.08") for name, at in FIRST.items()}


def moves(plan):
    return {(stage, each.kind, each.name) for stage, changes in plan.stages for each in changes}


def test_first_installation_is_exact_pinned_and_held(site):
    plan, checks = site.run(site.set())
    assert site.root.installed() == FIRST
    assert moves(plan) == {
        ("driver", "install", "driver"),
        ("driver", "install", "driver-lib"),
        ("driver", "install", "tool"),
        ("fabric", "install", "manager"),
        ("fabric", "install", "nscq"),
    }
    assert site.root.held() == FIRST.keys()
    assert site.root.manager().pinned(LAYER) == FIRST
    assert {check.status for check in checks} == {"ok"}


def test_second_run_is_idle(site):
    site.run(site.set())
    before = site.root.snapshot()
    plan, _checks = site.run(site.set())
    assert not plan.changed, plan.diffs()
    assert plan.diffs() == []
    assert site.root.snapshot() == before
    assert not site.root.fetched()
    assert not site.root.called("apt-get", "-s")
    assert len(site.root.calls) <= 6, site.root.calls


def test_check_mode_on_a_fresh_root(site):
    before = site.root.snapshot()
    plan, checks = site.run(site.set(), check_mode=True)
    assert moves(plan) == {("driver", "install", "driver"), ("fabric", "install", "manager")}
    assert plan.changed and not plan.solved
    assert {check.status for check in checks} == {"ok", "pending"}
    assert site.root.snapshot() == before


def test_pins_alone_keep_the_versions_without_the_holds(site):
    site.run(site.set())
    site.root.run(["apt-mark", "unhold", *site.root.held()])
    site.cuda.add("driver", "580.200.01-0ubuntu1")
    site.cuda.add("tool", "2.0")
    site.cuda.publish()
    site.root.upgrade_everything()
    assert site.root.installed() == FIRST
    assert site.statuses(site.set()) == {"ok", "pending"}
    plan, _checks = site.run(site.set())
    assert sorted(plan.held) == sorted(FIRST.keys())


def test_upgrade(site):
    site.run(site.set())
    plan, _checks = site.run(site.set("580.105.08"), check_mode=True)
    assert moves(plan) == {
        ("driver", "upgrade", "driver"),
        ("driver", "upgrade", "driver-lib"),
        ("fabric", "upgrade", "manager"),
        ("fabric", "upgrade", "nscq"),
    }
    shown = {each["before_header"]: (each["before"], each["after"]) for each in plan.diffs()}
    assert shown["packages, stage fabric"] == (
        "nscq 580.95.05-0ubuntu1\nmanager 1:580.95.05-0ubuntu1\n",
        "nscq 580.105.08-0ubuntu1\nmanager 1:580.105.08-0ubuntu1\n",
    )
    assert site.root.installed() == FIRST
    real, _checks = site.run(site.set("580.105.08"))
    assert moves(real) == moves(plan)
    assert site.root.installed() == SECOND
    assert site.root.held() == SECOND.keys()
    assert site.root.manager().pinned(LAYER)["nscq"] == "580.105.08-0ubuntu1"
    assert not site.run(site.set("580.105.08"))[0].changed


def test_downgrade_of_a_dependency_needs_permission(site):
    site.archive(site.cuda)
    site.install("driver-lib=580.105.08-0ubuntu1")
    (refused,) = site.refused(site.set())
    assert (refused.code, refused.values["name"]) == ("package_downgrade", "driver-lib")
    assert site.root.installed() == {"driver-lib": "580.105.08-0ubuntu1"}


def test_downgrade_needs_permission(site):
    site.run(site.set("580.105.08"))
    before = site.root.snapshot()
    refused = site.refused(site.set())
    assert [each.code for each in refused] == ["package_downgrade"] * 2
    values = refused[0].values
    assert (values["name"], values["role"]) == ("driver", "nvidia_gpu")
    assert (values["before"], values["after"]) == ("580.105.08-0ubuntu1", "580.95.05-0ubuntu1")
    assert site.root.snapshot() == before
    site.run(site.set(), allow_downgrade=True)
    # nscq is satisfied as it is (>=), so the solver does not change it.
    assert site.root.installed() == {**FIRST, "nscq": SECOND["nscq"]}


def test_an_unknown_version_names_those_there_are(site):
    refused = site.refused(site.set("580.95.0"))
    assert refused[0].code == "package_version_unknown"
    assert refused[0].values == {
        "wanted": "driver 580.95.0",
        "component": " (software.driver)",
        "available": "580.105.08-0ubuntu1, 580.95.05-0ubuntu1",
    }
    nowhere = site.set(stages=[Stage("one", [WantedPackage("no-such-package")])])
    values = {"wanted": "no-such-package", "component": "", "available": "none"}
    assert [each.values for each in site.refused(nowhere)] == [values]


def test_holds_alone_keep_the_versions_without_the_pins(site):
    site.run(site.set())
    (site.root.root / "etc/apt/preferences.d/00-baremetal-mpi-roce-gpu.pref").unlink()
    site.root.upgrade_everything()
    assert site.root.installed() == FIRST
    plan, _checks = site.run(site.set())
    assert plan.changed and not plan.changes


def test_what_the_distribution_brings_is_not_pinned(site):
    archive = site.archive()
    archive.add("helper", "1.0")
    archive.publish()
    site.root.run(["apt-get", "update"])
    site.cuda.add("suite", "1", Depends="tool, helper (>= 1)", Recommends="unneeded")
    site.cuda.add("unneeded", "1")
    site.cuda.publish()
    wanted = site.set(stages=[Stage("one", [WantedPackage("suite", "1")])])
    site.run(wanted)
    assert site.root.installed() == {"suite": "1", "tool": "1.0", "helper": "1.0"}
    assert site.root.held() == site.root.manager().pinned(LAYER).keys() == {"suite", "tool"}
    archive.add("helper", "1.1")
    archive.publish()
    site.root.upgrade_everything()
    assert site.root.installed()["helper"] == "1.1"  # a security update
    assert not site.run(wanted)[0].changed


def test_dependency_gets_its_exact_version(site):
    for version in ("2.0", "3.0"):
        site.cuda.add("part", version)
    site.cuda.add("suite", "1", Depends="part (= 2.0)")
    site.cuda.publish()
    site.run(site.set(stages=[Stage("one", [WantedPackage("suite", "1")])]))
    assert site.root.installed() == {"suite": "1", "part": "2.0"}


def broken(site, wanted, words):
    """Planning fails with this text and changes nothing, even when repeated."""
    before = site.root.snapshot()
    for _try in range(2):
        with pytest.raises(PackageError, match=words):
            site.run(wanted)
    assert site.root.snapshot() == before


VERIFIED = "repository cuda .*could not be fetched and verified by the key of the set"


def test_wrongly_signed_repository_is_refused(site):
    site.run(site.set())
    site.cuda.publish(site.stranger)
    digest = site.cuda.repository().key_sha256
    broken(site, site.set("580.105.08"), f"{VERIFIED}.*{digest}")
    assert not site.run(site.set())[0].changed  # installed packages need no repository


def test_an_unsigned_repository_is_refused_whatever_apt_conf_says(site):
    (site.root.root / "etc/apt/apt.conf.d/loose").write_text(
        'Acquire::AllowInsecureRepositories "true";\nAPT::Get::AllowUnauthenticated "true";\n'
    )
    (site.cuda.where / "InRelease").unlink()
    broken(site, site.set(), VERIFIED)


def test_broken_foreign_repository_is_tolerated(site):
    site.archive()  # never published
    site.run(site.set())
    assert site.root.installed() == FIRST


def test_new_url_is_verified_before_it_replaces_the_old(site):
    site.run(site.set())
    mirror = AptRepository("mirror", site.where / "mirror", site.stranger)
    mirror.publish()
    moved = site.cuda.repository(url=f"file://{mirror.where}")
    broken(site, site.set(repositories=[moved]), VERIFIED)


def test_dropped_packages_are_released_unless_another_layer_needs_them(site):
    site.run(site.set())
    site.run(PackageSet(stages=[Stage("one", [WantedPackage("tool", "1.0")])]), layer="rdma")
    nothing = PackageSet()
    site.run(nothing)
    assert site.root.held() == {"tool"}
    for folder in ("sources.list.d", "keyrings"):
        assert not list((site.root.root / "etc/apt" / folder).iterdir())
    assert not site.run(nothing)[0].changed
    site.run(nothing, layer="rdma")
    assert site.root.held() == set()


@pytest.mark.parametrize("preferred", ["cuda", "doca"])
def test_preferred_repository(site, preferred):
    doca = AptRepository("doca", site.where / "doca", site.stranger)
    doca.add("mft-tools", "4.32")
    doca.publish()
    site.cuda.add("mft-tools", "4.33")
    site.cuda.add("nvlink", "1.0", Depends="mft-tools")
    site.cuda.publish()
    wanted = site.set(
        repositories=[site.cuda.repository(), doca.repository()],
        stages=[Stage("one", [WantedPackage("nvlink", "1.0")])],
        preferred={"mft*": preferred},
    )
    site.run(wanted)
    version = {"cuda": "4.33", "doca": "4.32"}[preferred]
    assert site.root.installed() == {"mft-tools": version, "nvlink": "1.0"}
    assert not site.run(wanted)[0].changed
    for path in (site.root.root / "var/lib/apt/lists").glob("*"):
        if path.is_file():
            path.unlink()
    assert not site.run(wanted)[0].changed  # as in an image without package lists


def test_repository_of_another_layer_must_be_defined(site):
    site.cuda.add("mft", "4.33")
    site.cuda.add("nvlink", "1.0", Depends="mft")
    site.cuda.publish()
    stages = [Stage("one", [WantedPackage("nvlink", "1.0")])]
    (refused,) = site.refused(site.set(stages=stages, preferred={"mft*": "doca"}))
    assert "repository doca" in refused and "--tags rdma,gpu" in refused
    assert site.root.installed() == {}


def test_a_conflict_is_named(site):
    site.cuda.add("picky", "1", Depends="tool (>= 9)")
    site.cuda.publish()
    (refused,) = site.refused(site.set(stages=[Stage("one", [WantedPackage("picky", "1")])]))
    assert (refused.code, refused.values["stage"]) == ("package_conflict", "one")
    assert "picky : Depends: tool (>= 9)" in str(refused.values["error"])


def test_classic_solver(site):
    """Ubuntu 26.04's apt defaults to solver 3.0, which this apt does not have."""
    (site.root.root / "etc/apt/apt.conf.d/solver").write_text('APT::Solver "3.0";\n')
    site.run(site.set())
    assert site.root.installed() == FIRST


def test_the_operators_packages_are_not_removed(site):
    archive = site.archive()
    archive.add("mine", "1", Conflicts="driver")
    archive.publish()
    site.install("mine")
    before = site.root.snapshot()
    (refused,) = site.refused(site.set())
    assert refused.code == "package_removal"
    values = [refused.values[key] for key in ("stage", "name", "before")]
    assert values == ["driver", "mine", "1"]
    assert site.root.snapshot() == before
    site.run(site.set(absent={"mine": "conflicts with the driver"}))
    assert site.root.installed() == FIRST


def test_following_package(site):
    def wanted(release):
        repository = AptRepository(f"doca{release}", site.where / release, site.vendor)
        repository.add("profile", f"{release}-1")
        repository.add("nfs", f"2{release}-1")
        repository.publish()
        stage = Stage(
            "one", [WantedPackage("profile", release), WantedPackage("nfs", follows=True)]
        )
        return site.set(repositories=[repository.repository(name="doca")], stages=[stage])

    first, later = wanted("3.2.1"), wanted("3.3.0")
    site.run(first)
    site.run(later)
    assert site.root.installed() == {"profile": "3.3.0-1", "nfs": "23.3.0-1"}
    assert not site.run(later)[0].changed


def test_replaced_packages_are_removed_in_their_stage(site):
    """As with DOCA's ucx, dependents of the distribution's library accept the vendor's."""
    archive = site.archive()
    archive.add("inbox-lib", "1.13")
    archive.add("inbox-tools", "1.13", Depends="inbox-lib (= 1.13)")
    archive.add("needs-inbox", "1", Depends="inbox-lib (>= 1.13)")
    archive.publish()
    site.install("inbox-tools", "needs-inbox")
    place = "inbox-lib (<< 1.20), inbox-tools (<< 1.20)"
    provided = "inbox-lib (= 1.20), inbox-tools (= 1.20)"
    site.cuda.add("lib", "1.20", Conflicts=place, Replaces=place, Provides=provided)
    site.cuda.add("profile", "3.2.1-1", Depends="lib (= 1.20)")
    site.cuda.publish()
    first = Stage("first", [WantedPackage("tool")])

    def wanted(*replaced):
        return site.set(
            stages=[first, Stage("profile", [WantedPackage("profile", "3.2.1")], replaced)]
        )

    refused = site.refused(wanted())
    gone = [each.values for each in refused if each.code == "package_removal"]
    assert ("profile", "inbox-lib") in [(each["stage"], each["name"]) for each in gone]
    plan, _checks = site.run(wanted("inbox-*"))
    removed = [(stage, name) for stage, kind, name in moves(plan) if kind == "remove"]
    assert sorted(removed) == [("profile", "inbox-lib"), ("profile", "inbox-tools")]
    assert site.root.installed().keys() == {"tool", "lib", "profile", "needs-inbox"}
    assert not site.run(wanted("inbox-*"))[0].changed


def test_incomplete_optional_component_is_left_out(site):
    copy = [WantedPackage(each, "2.5", "copy", optional=True) for each in ("copy", "copy-dkms")]
    wanted = site.set(stages=[*site.set().stages, Stage("copy", copy)])

    def added(*versions):
        for version in versions:
            site.cuda.add("copy-dkms", version)
        site.cuda.publish()
        site.root.run(["apt-get", "update"])

    def run(status, **more):
        plan, checks = site.run(wanted, **more)
        assert {x.status for x in checks if x.subject.startswith("copy")} == {status}
        return plan

    site.cuda.add("copy", "2.5-1")
    site.cuda.publish()
    run("pending", check_mode=True)
    run("not_applicable")
    assert site.root.installed() == FIRST
    assert not run("not_applicable").changed
    assert not site.root.fetched()
    added("2.4-1")
    (refused,) = site.refused(wanted)
    assert refused.code == "package_version_unknown"
    assert refused.values["available"] == "2.4-1"
    added("2.5-1")
    run("ok")
    assert not run("ok").changed


def test_absent_packages_are_removed(site):
    archive = site.archive()
    archive.add("inbox-tool", "1")
    archive.add("needs-inbox", "1", Depends="inbox-tool")
    archive.publish()
    site.run(site.set())
    site.install("needs-inbox")
    wanted = site.set(absent={"inbox-*": "two sources of one tool"})
    (refused,) = site.refused(wanted)
    assert (refused.code, refused.values["name"]) == ("package_removal", "needs-inbox")
    both = {"inbox-*": "two sources of one tool", "needs-inbox": "likewise"}
    wanted = site.set(absent=both)
    plan, _checks = site.run(wanted)
    assert {name for _stage, _kind, name in moves(plan)} == {"inbox-tool", "needs-inbox"}
    assert site.root.installed() == FIRST
    assert not site.run(wanted)[0].changed


def test_kernel_is_held_against_dependencies(site):
    archive = site.archive()
    archive.add("linux-image", "6.8.0-1")
    archive.publish()
    site.install("linux-image")
    archive.add("linux-image", "6.8.0-2")
    archive.add("headers", "1", Depends="linux-image (>= 6.8.0-2)")
    archive.publish()
    site.root.run(["apt-get", "update"])
    wants_newer = site.set(stages=[Stage("one", [WantedPackage("headers")])], held=["linux-image*"])
    (refused,) = site.refused(wants_newer)
    assert refused.code == "package_held"
    assert (refused.values["before"], refused.values["after"]) == ("6.8.0-1", "6.8.0-2")


IMAGE, NEXT_IMAGE = "linux-image-6.8.0-79-{}", "linux-image-6.8.0-90-{}"


def kernel(archive, image, metas):
    """A release with metapackages that depend on each other, as in Ubuntu's linux-meta."""
    abi = image.split("-")[3]
    version = f"6.8.0-{abi}.{abi}"
    archive.add(image, version)
    archive.add(image.replace("image", "headers"), version)
    below = image
    for meta in metas:
        exact = "" if below == image else f" (= {version})"
        needs = f"{below}{exact}, {image.replace('image', 'headers')}"
        archive.add(meta, version, Depends=needs)
        below = meta
    archive.publish()


@pytest.mark.parametrize(
    ("flavour", "metas"),
    [
        # Dependencies: packages.ubuntu.com/noble, packages.debian.org/bookworm.
        ("generic", ["linux-image-virtual", "linux-virtual"]),
        ("generic", ["linux-image-generic-hwe-24.04", "linux-generic-hwe-24.04-edge"]),
        ("oem", ["linux-image-oem-24.04a", "linux-oem-24.04"]),
        ("amd64", ["linux-image-amd64"]),
    ],
)
def test_no_upgrade_brings_another_kernel(site, flavour, metas):
    archive = site.archive()
    kernel(archive, IMAGE.format(flavour), metas)
    archive.add("linux-modules-nvidia-580-6.8.0-79", "1", Depends=IMAGE.format(flavour))
    archive.add("linux-modules-nvidia-580", "1", Depends="linux-modules-nvidia-580-6.8.0-79")
    # debian/control.main of lustre/lustre-release@10b8429: headers of any kernel.
    lustre = "lustre-client-modules-dkms"
    archive.add(lustre, "1", Depends=f"{metas[0]} | linux-headers | dpkg-dev")
    archive.add("dpkg-dev", "1")
    archive.publish()
    site.install(metas[-1], "linux-modules-nvidia-580", "dpkg-dev", lustre)
    software = software_sets.software(rdma={"source": "inbox"})
    release, ubuntu = IMAGE[12:].format(flavour), distribution_of("Ubuntu", "24.04")
    whole = gpu_packages(software, ubuntu, release, software_sets.KEYS)
    wanted = site.set(held=whole.held, kernels=whole.kernels)
    site.run(wanted)
    image = IMAGE.format(flavour)
    held = {name for name in site.root.held() if name.startswith(("linux-", "lustre-"))}
    assert held == {image, *metas, "linux-modules-nvidia-580"}
    kernel(archive, NEXT_IMAGE.format(flavour), metas)
    site.root.upgrade_everything()
    assert NEXT_IMAGE.format(flavour) not in site.root.installed()
    assert site.statuses(wanted) == {"ok"}
    assert not site.run(wanted)[0].changed


def test_operator_s_hold_is_respected(site):
    archive = site.archive()
    archive.add("helper", "1.0")
    archive.publish()
    site.install("helper")
    site.root.run(["apt-mark", "hold", "helper"])
    archive.add("helper", "2.0")
    archive.publish()
    site.root.run(["apt-get", "update"])
    site.cuda.add("new", "1", Depends="helper (>= 2)")
    site.cuda.publish()
    (refused,) = site.refused(site.set(stages=[Stage("one", [WantedPackage("new")])]))
    assert "helper (>= 2)" in refused
    site.run(site.set())
    assert "helper" in site.root.held()


def test_forced_dependency_is_pinned(site):
    site.run(site.set())
    site.cuda.add("tool", "2.0")
    site.cuda.publish()
    site.root.run(["dpkg", "-i", str(site.cuda.where / "tool_2.0_amd64.deb")])
    assert site.statuses(site.set()) == {"ok", "pending"}
    site.run(site.set())
    assert site.root.manager().pinned(LAYER) == {**FIRST, "tool": "2.0"}
    assert not site.run(site.set())[0].changed


def test_conflicting_dependency_of_the_old_branch_is_removed(site):
    site.run(site.set())
    site.cuda.add("driver", "590.44.01-1", Depends="driver-lib-590", Conflicts="driver-lib")
    site.cuda.add("driver-lib-590", "590.44.01-1")
    site.cuda.add("manager", "1:590.44.01-1")
    site.cuda.publish()
    plan, _checks = site.run(site.set("590.44.01"))
    assert ("driver", "remove", "driver-lib") in moves(plan)
    assert "driver-lib" not in site.root.installed()
    assert "driver-lib" not in site.root.manager().pinned(LAYER)
    assert "nscq" not in site.root.held()  # still installed, but no longer in the set


KILLS_ITS_PARENT = 'if [ -e "{flag}" ]; then kill -KILL $PPID; fi'
"""A maintainer script that kills dpkg while the flag exists."""


@contextmanager
def another_apt(site):
    """Another process, because a process is not blocked by its own locks."""
    path = site.root.root / "var/lib/dpkg/lock-frontend"
    text = (
        "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.lockf(f, fcntl.LOCK_EX); "
        "print('held', flush=True); sys.stdin.read()"
    )
    argv = [sys.executable, "-c", text, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(argv, **pipes) as process:
        assert process.stdout.readline() == b"held\n"
        yield process
        process.stdin.close()


def half_done(site, name):
    status = site.root.root / "var/lib/dpkg/status"
    before, found, after = status.read_text().partition(f"Package: {name}\n")
    assert found
    after = after.replace(" ok installed", " ok unpacked", 1)
    status.write_text(before + found + after)


def test_running_apt_is_waited_for(site):
    site.run(site.set())
    half_done(site, "driver-lib")
    installer = Installer(site.set(), site.root.manager(site.set()), LAYER)
    installer.manager.wait_s = 0
    with another_apt(site), pytest.raises(PackageError, match="another package manager"):
        installer.plan()
    assert "driver-lib" in site.run(site.set())[0].repairs


def test_unfinished_foreign_packages_are_reported(site):
    archive = site.archive()
    archive.add("stranger", "1")
    archive.publish()
    site.install("stranger")
    site.run(site.set())
    half_done(site, "stranger")
    plan, checks = site.run(site.set())
    assert not plan.changed
    (check,) = [each for each in checks if each.name == "packages_interrupted"]
    assert check.status == "ok"
    assert check.reason == "not of the set: dpkg left stranger half done (unpacked)"
    next((site.root.root / "etc/apt/sources.list.d").glob("*cuda*")).write_text("")
    plan, checks = site.run(site.set())
    assert plan.changed and site.root.manager().interrupted()
    # apt refuses to work around it, so it is finished before any change.
    assert site.run(site.set("580.105.08"))[0].repairs
    assert site.root.installed()["driver"] == SECOND["driver"]


def killer(site):
    flag = site.where / "kill"
    flag.touch()
    return flag, KILLS_ITS_PARENT.format(flag=flag)


@pytest.mark.parametrize("script", ["preinst", "postinst"])
def test_first_installation_after_a_killed_dpkg(site, script):
    flag, body = killer(site)
    site.cuda.add("late", "1", scripts={script: body}, Depends="tool")
    site.cuda.publish()
    stages = [*site.set().stages, Stage("late", [WantedPackage("late", "1")])]
    wanted = site.set(stages=stages)
    with pytest.raises(PackageError) as failed:
        site.run(wanted)
    assert "stage late (3 of 3)" in str(failed.value)
    assert "Completed stages: driver, fabric; not started: none" in str(failed.value)
    assert "run again" in str(failed.value)
    assert "driver" in site.root.held()
    assert "late" in site.root.manager().interrupted()
    flag.unlink()
    plan, checks = site.run(wanted, check_mode=True)
    assert "late" in plan.repairs
    assert "pending" in {check.status for check in checks}
    plan, _checks = site.run(wanted)
    assert plan.repairs
    assert site.root.installed() == {**FIRST, "late": "1"}
    assert not site.run(wanted)[0].changed


@pytest.mark.parametrize("script", ["preinst", "postrm"])
def test_upgrade_after_a_killed_dpkg(site, script):
    flag, body = killer(site)
    flag.unlink()
    for version in ("580.300.01-1", "580.300.02-1"):
        site.cuda.add("driver", version, scripts={script: body}, Depends="driver-lib, tool")
        site.cuda.add("manager", f"1:{version}")
    site.cuda.publish()
    site.run(site.set("580.300.01"))
    flag.touch()
    wanted = site.set("580.300.02")
    with pytest.raises(PackageError, match="stage driver"):
        site.run(wanted)
    flag.unlink()
    plan, _checks = site.run(wanted)
    assert plan.repairs
    installed = site.root.installed()
    assert (installed["driver"], installed["manager"]) == ("580.300.02-1", "1:580.300.02-1")
    assert not site.run(wanted)[0].changed


def test_killed_upgrade_can_be_abandoned(site):
    """Broken at the version that the set wants, which apt does not consider an upgrade."""
    site.run(site.set())
    flag, body = killer(site)
    site.cuda.add("driver", "580.300.02-1", scripts={"preinst": body}, Depends="tool")
    site.cuda.add("manager", "1:580.300.02-1")
    site.cuda.publish()
    with pytest.raises(PackageError, match="stage driver"):
        site.run(site.set("580.300.02"))
    assert flag.exists()
    site.run(site.set())
    assert site.root.installed() == FIRST


def test_a_repair_that_cannot_succeed_is_an_error(site):
    site.cuda.add("bad", "1", scripts={"postinst": "echo no licence >&2; exit 1"})
    site.cuda.publish()
    wanted = site.set(stages=[Stage("one", [WantedPackage("bad", "1")])])
    for _run in range(2):
        with pytest.raises(PackageError, match=r"stage one \(1 of 1\): bad: no licence"):
            site.run(wanted)


def cut_short(site, name):
    deb = site.cuda.where / name
    deb.write_bytes(deb.read_bytes()[:-1] + b"x")


def test_failed_download_changes_nothing(site):
    site.run(site.set())
    before = site.root.snapshot()
    cut_short(site, "driver-lib_580.105.08-0ubuntu1_amd64.deb")
    with pytest.raises(PackageError, match="Nothing was changed"):
        site.run(site.set("580.105.08"))
    after = site.root.snapshot()
    changed = {name for name in before if before[name] != after.get(name)}
    assert not [name for name in changed if "status-old" not in name]
    assert site.root.held() == FIRST.keys()
    assert not site.run(site.set())[0].changed


def test_failed_download_holds_no_package_of_the_operator(site):
    """Pins that were restored hold nothing, or the packages would stay held without a layer."""
    site.archive(site.cuda)
    site.install("driver=580.95.05-0ubuntu1", "driver-lib=580.95.05-0ubuntu1")
    cut_short(site, "driver-lib_580.105.08-0ubuntu1_amd64.deb")
    with pytest.raises(PackageError, match="Nothing was changed"):
        site.run(site.set("580.105.08"))
    assert site.root.held() == set()


def test_repositories_are_asked_as_apt_is_set_up(site):
    # Only addresses are read (`--print-uris`); nothing is fetched.
    names = ("own", "socks", "blind", "mirror", "near")
    lines = [f"deb https://{name}.example/ubuntu noble main\n" for name in names]
    apt = site.root.root / "etc/apt"
    (apt / "sources.list.d/site.list").write_text("".join(lines))
    with site.root.config.open("a") as config:
        for key, value in (
            ("http::Proxy", "http://proxy.example:3128"),
            ("http::Proxy::near.example", "DIRECT"),
            ("https::CaInfo", "/etc/ssl/site.pem"),
            ("https::CaInfo::own.example", "/etc/ssl/own.pem"),
            ("https::SSLCert::own.example", "/etc/ssl/me.pem"),
            ("https::SSLKey::own.example", "/etc/ssl/me.key"),
            ("https::Proxy::socks.example", "socks5h://near:1080"),
            ("https::Verify-Peer::blind.example", "false"),
        ):
            config.write(f'Acquire::{key} "{value}";\n')
    before = site.root.snapshot()
    found = site.root.manager(site.set()).locations()
    assert site.root.snapshot() == before
    assert found.pop().urls[0] == f"file://{site.cuda.where}/InRelease"
    by_name = {each.urls[0].split("/")[2].split(".")[0]: each for each in found}
    own, socks, blind, mirror, near = (by_name[name] for name in names)
    index = "https://own.example/ubuntu/dists/noble/"
    assert own.urls == [f"{index}InRelease", f"{index}Release"]
    assert (own.ca, [*own.client]) == ("/etc/ssl/own.pem", ["/etc/ssl/me.pem", "/etc/ssl/me.key"])
    assert (mirror.ca, [*mirror.client]) == ("/etc/ssl/site.pem", [])
    assert (mirror.proxy, near.proxy) == ("http://proxy.example:3128", "DIRECT")
    assert [name for name in names if by_name[name].needed] == ["own", "mirror", "near"]
    assert socks.proxy.startswith("socks5h") and blind.ca == mirror.ca


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
        (
            ".sources",
            f"Types: deb\nuris:\n {CUDA}/\n http://other/\nSuites: /\n",
            "Types: deb\nuris: http://other/\nSuites: /\n",
        ),
        (".sources", f"Enabled: no\nURIs: {CUDA}\nSuites: /\n", None),
        (".sources", f"URIs: {CUDA}\nSuites: noble\n", None),
        (".sources", "URIs:\n http://other\nSuites: /\n", None),
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
