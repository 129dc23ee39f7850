# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Package sets with the real dnf and rpm: modular repositories, locks, and failures."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import failures
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.distribution import (
    REDHAT,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.messages import Message
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.installer import (
    NOTHING_CHANGED,
    Installer,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.package import (
    ModuleStream,
    PackageError,
    PackageSet,
    Repository,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.planning import (
    PackagePlan,
)

from tests.unit.dnf_root import ARCHITECTURE, DIE, WHY_NOT, DnfRoot, Rpm, Workshop, a_set
from tests.unit.software_sets import install

pytestmark = [
    pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT),
    pytest.mark.slow,  # seconds each: dnf starts several times
]

VERIFIED = r"repository cuda .*verified by the key"
OLD, NEW, NEXT = "3:580.95.05-1.el9", "3:580.105.08-1.el9", "3:590.44.01-1.el9"
ONCE = f'local f = io.open("/armed"); if f then f:close(); os.remove("/armed"); {DIE} end'
"""A scriptlet that kills dnf once, if a test has armed it."""
FAILING = 'error("the module does not build")'


def driver(evr: str, stream: str = "", post: str = "", key: str = "ours") -> list[Rpm]:
    """A driver with its library."""
    modular = f"nvidia-driver:{stream}" if stream else ""
    return [
        Rpm("nvidia-open", evr, requires=[f"libnvidia = {evr.rpartition('-')[0]}"], stream=modular),
        Rpm("libnvidia", evr, stream=modular, post=post, key=key),
    ]


STREAMS = [*driver(OLD, "580-open"), *driver(NEW, "580-open"), *driver(NEXT, "590-open")]


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    where = tmp_path_factory.getbasetemp()
    shared = where.parent if where.name.startswith("popen-") else where
    made = Workshop(shared / "rpms")
    yield made
    made.end()


@pytest.fixture
def node(tmp_path: Path, workshop: Workshop) -> DnfRoot:
    return DnfRoot(tmp_path, workshop)


def the_set(repository: Repository, version: str = "580.95.05", **more: object) -> PackageSet:
    return a_set(repository, stages={"driver": {"nvidia-open": version}}, **more)


def modular(repository: Repository, version: str, stream: str) -> PackageSet:
    return the_set(repository, version, streams=[ModuleStream("nvidia-driver", stream)])


def plan_of(node: DnfRoot, wanted: PackageSet) -> PackagePlan:
    return installer(node, wanted).plan()


def installer(node: DnfRoot, wanted: PackageSet, layer: str = "gpu") -> Installer:
    return Installer(wanted, node.manager(wanted, layer), layer)


def refusal(node: DnfRoot, wanted: PackageSet) -> list[Message]:
    with pytest.raises(PackageError) as refused:
        converge(node, wanted)
    lines = "\n".join(refused.value.refusals)
    assert str(refused.value).removesuffix(f"\n{NOTHING_CHANGED}") == lines
    return refused.value.refusals


def converge(
    node: DnfRoot, wanted: PackageSet, *, allow_downgrade: bool = False, layer: str = "gpu"
) -> PackagePlan:
    """Plan, act and verify, as a layer does."""
    found = replace(installer(node, wanted, layer), allow_downgrade=allow_downgrade)
    done = install(found)
    assert not failures(found.verify())
    return done


def installed(node: DnfRoot) -> dict[str, str]:
    return dict(node.manager(PackageSet()).installed())


def tree(root: Path) -> dict[str, tuple[int, bytes]]:
    """Every file of the root except dnf's cache and rpm's database, which rpm -q changes."""
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(root.rglob("*"))
        if path.is_file() and not {".rpmdb", "cache"} & set(path.parts)
    }


def test_first_installation_is_idempotent(node: DnfRoot) -> None:
    wanted = modular(node.publish("cuda", STREAMS), "580.95.05", "580-open")
    done = converge(node, wanted)
    assert installed(node) == {"nvidia-open": OLD, "libnvidia": OLD}
    assert [change.after for change in done.streams] == ["580-open"]
    # Without its repository: an unchanged run fetches nothing, and does not start dnf.
    shutil.rmtree(node.repositories)
    second = installer(node, wanted)
    second.manager._ask = None  # type: ignore[attr-defined]
    plan = second.plan()
    assert not failures(second.verify())
    assert (plan.changed, plan.diffs()) == (False, [])


def test_planning_on_a_fresh_node_writes_nothing(node: DnfRoot) -> None:
    wanted = modular(node.publish("cuda", STREAMS), "580.95.05", "580-open")
    before = tree(node.root)
    plan = plan_of(node, wanted)
    (change,) = plan.changes
    assert (change.name, change.after) == ("nvidia-open", "580.95.05")
    assert tree(node.root) == before


def test_a_newer_version_that_appears_changes_nothing(node: DnfRoot) -> None:
    wanted = the_set(node.publish("cuda", driver(OLD)))
    converge(node, wanted)
    node.publish("cuda", [*driver(OLD), *driver(NEW)])
    assert not plan_of(node, wanted).changed
    node.dnf("--refresh", "upgrade")
    node.dnf("install", "nvidia-open")
    asked = node.dnf("install", "nvidia-open-3:580.105.08", check=False)
    assert asked.returncode != 0
    assert installed(node) == {"nvidia-open": OLD, "libnvidia": OLD}
    # Only the locks held it.
    node.locks.write_text("")
    node.dnf("upgrade")
    assert installed(node) == {"nvidia-open": NEW, "libnvidia": NEW}


def test_upgrade_switches_the_stream(node: DnfRoot) -> None:
    repository = node.publish("cuda", STREAMS, modules={"nvidia-driver": "590-open"})
    theirs = "# mine\nother-0:1.0-1.*\n"
    node.locks.write_text(theirs)
    converge(node, modular(repository, "580.95.05", "580-open"))
    wanted = modular(repository, "590.44.01", "590-open")
    plan = plan_of(node, wanted)
    assert [(one.name, one.before, one.after) for one in plan.streams] == [
        ("module nvidia-driver", "580-open", "590-open")
    ]
    assert {(one.kind, one.name, one.before, one.after) for one in plan.changes} == {
        ("upgrade", "nvidia-open", OLD, NEXT),
        ("upgrade", "libnvidia", OLD, NEXT),
    }
    converge(node, wanted)
    assert installed(node) == {"nvidia-open": NEXT, "libnvidia": NEXT}
    assert node.locks.read_text() == (
        f"{theirs}# BEGIN baremetal.mpi_roce gpu\nlibnvidia-{NEXT}.*\nnvidia-open-{NEXT}.*\n"
        "# END baremetal.mpi_roce gpu\n"
    )
    assert not plan_of(node, wanted).changed


def test_a_downgrade_is_refused_and_can_be_forced(node: DnfRoot) -> None:
    repository = node.publish("cuda", STREAMS)
    converge(node, modular(repository, "590.44.01", "590-open"))
    lower = modular(repository, "580.95.05", "580-open")
    (refused,) = refusal(node, lower)
    assert (refused.code, refused.values["role"]) == ("package_downgrade", "nvidia_gpu")
    converge(node, lower, allow_downgrade=True)
    assert installed(node) == {"nvidia-open": OLD, "libnvidia": OLD}


def test_a_key_that_was_replaced_vouches_for_nothing(node: DnfRoot) -> None:
    """libdnf still trusts every key that it has imported for a repository."""
    repository = node.publish("cuda", driver(OLD), key="foreign")
    public = node.workshop.public("foreign")
    digest = hashlib.sha256(public).hexdigest()
    with pytest.raises(PackageError, match="must be signed by"):  # signed by another key
        converge(node, the_set(replace(repository, key=public, key_sha256=digest)))
    with pytest.raises(PackageError, match=VERIFIED):
        converge(node, the_set(repository))


def test_metadata_without_a_signature_are_refused(node: DnfRoot) -> None:
    repository = node.publish("cuda", driver(OLD))
    (node.repositories / "cuda/repodata/repomd.xml.asc").unlink()
    with pytest.raises(PackageError, match="repository cuda"):
        converge(node, the_set(repository))
    assert not list((node.root / "etc/yum.repos.d").iterdir())
    unsigned = replace(repository, check_metadata=False)
    converge(node, the_set(unsigned))  # the packages are signed


@pytest.mark.parametrize("key", ["foreign", ""])
def test_wrongly_signed_package_is_not_installed(node: DnfRoot, key: str) -> None:
    converge(node, the_set(node.publish("cuda", driver(OLD))))
    repository = node.publish("cuda", [*driver(OLD), *driver(NEW, key=key)])
    locks, definitions = node.locks.read_text(), tree(node.root / "etc/yum.repos.d")
    with pytest.raises(PackageError, match=r"libnvidia-3:580\.105\.08.* of repository .*cuda"):
        converge(node, the_set(repository, "580.105.08"))
    assert installed(node) == {"nvidia-open": OLD, "libnvidia": OLD}
    assert node.locks.read_text() == locks
    assert tree(node.root / "etc/yum.repos.d").keys() == definitions.keys()


def test_killed_transaction_is_repaired(node: DnfRoot) -> None:
    post = f'{ONCE}; io.open("/settled", "w"):close()'
    repository = node.publish("cuda", [*driver(OLD), *driver(NEW, post=post)])
    converge(node, the_set(repository))
    node.write("armed", "")
    wanted = the_set(repository, "580.105.08")
    with pytest.raises(PackageError, match="killed"):
        converge(node, wanted)
    assert "libnvidia-580.95.05" in node.rpm("-qa")
    assert "libnvidia-580.105.08" in node.rpm("-qa")
    assert not (node.root / "settled").exists()
    repairs = plan_of(node, wanted).repairs
    assert f"libnvidia-{OLD}.x86_64 is still recorded next to libnvidia-{NEW}.x86_64" in repairs
    converge(node, wanted)
    assert installed(node) == {"nvidia-open": NEW, "libnvidia": NEW}
    assert "580.95.05" not in node.rpm("-qa")
    assert (node.root / "settled").exists(), "the scriptlet that was killed ran again"
    assert not plan_of(node, wanted).changed


def test_a_failed_scriptlet_is_an_error(node: DnfRoot) -> None:
    """dnf exits with 0, and rpm lists the package as installed."""
    wanted = the_set(node.publish("cuda", driver(OLD, post=FAILING)))
    with pytest.raises(PackageError, match="POSTIN scriptlet in rpm package libnvidia"):
        converge(node, wanted)
    assert installed(node)["libnvidia"] == OLD


def test_an_unwanted_removal_is_refused_by_name(node: DnfRoot) -> None:
    other = Rpm("in-the-way", "1.0-1.el9")
    plain = Rpm("nvidia-open", OLD, conflicts=["in-the-way"])
    repository = node.publish("cuda", [plain, other])
    converge(node, a_set(repository, stages={"other": {"in-the-way": ""}}))
    wanted = the_set(repository)
    node.locks.write_text("")
    (refused,) = refusal(node, wanted)
    assert (refused.code, refused.values["name"]) == ("package_removal", "in-the-way")
    assert installed(node) == {"in-the-way": "1.0-1.el9"}
    converge(node, replace(wanted, absent={"in-the-way": "it conflicts with the driver"}))
    assert installed(node) == {"nvidia-open": OLD}


def test_preferred_repository_wins_over_a_newer_version(
    node: DnfRoot,
) -> None:
    """One repository's module lists the package, which hides the other's from plain dnf."""
    doca = node.publish("doca", [Rpm("mft", "4.33.0-1.el9")])
    newer = Rpm("mft", "4.34.1-1.el9", stream="nvidia-driver:580-open")
    cuda = node.publish("cuda", [*driver(OLD, "580-open"), newer])
    preferred = {"mft": "doca", "mft-*": "doca"}
    rdma = a_set(doca, stages={"tools": {"mft": "4.33.0"}}, preferred=preferred)
    converge(node, rdma, layer="rdma")
    gpu = replace(modular(cuda, "580.95.05", "580-open"), preferred=preferred)
    converge(node, gpu)
    node.dnf("--refresh", "upgrade")
    assert installed(node)["mft"] == "4.33.0-1.el9"
    node.rpm("-e", "mft")
    converge(node, rdma, layer="rdma")
    assert installed(node)["mft"] == "4.33.0-1.el9", "found although a module has one of its name"
    manager = node.manager(gpu)
    assert manager.available(["mft"]) == {"mft": ["4.33.0-1.el9"]}
    assert set(manager.pinned("rdma")) == {"mft"}, "the layers keep out of each other's locks"


def test_conflicting_operator_lock_is_refused(node: DnfRoot) -> None:
    repository = node.publish("cuda", [*driver(OLD), *driver(NEW)])
    converge(node, the_set(repository))
    node.locks.write_text(node.locks.read_text() + f"nvidia-open-{OLD}.*\n")
    (refused,) = refusal(node, the_set(repository, "580.105.08"))
    assert "dnf versionlock list" in refused
    assert installed(node) == {"nvidia-open": OLD, "libnvidia": OLD}


def test_every_installed_kernel_is_held(node: DnfRoot) -> None:
    provided = ["installonlypkg(kernel)"]
    kernels = [Rpm("kernel-core", f"5.14.0-{x}.el9", provides=provided) for x in (570, 611, 620)]
    repository = node.publish("base", kernels[:2])
    converge(node, a_set(repository, stages={"kernel": {"kernel-core": "5.14.0-570.el9"}}))
    node.locks.write_text("")
    node.dnf("install", "kernel-core-5.14.0-611.el9")
    wanted = replace(the_set(node.publish("cuda", driver(OLD))), held=["kernel*"])
    converge(node, wanted)
    node.publish("base", kernels)
    node.dnf("--refresh", "upgrade")
    assert "620" not in node.rpm("-q", "kernel-core")
    assert not plan_of(node, wanted).changed


@pytest.mark.parametrize("name", ["kernel-rt-core", "kernel-uek-core"])
def test_no_upgrade_brings_a_kernel_of_any_name(node: DnfRoot, name: str) -> None:
    """Recognised by a capability, as dnf's installonlypkgs: dnf.conf(5)."""
    versions, provided = ("5.14.0-570.el9", "5.14.0-611.el9"), ["installonlypkg(kernel)"]
    kernels = [Rpm(name, version, provides=provided) for version in versions]
    base = node.publish("base", kernels[:1])
    converge(node, a_set(base, stages={"kernel": {name: "5.14.0-570.el9"}}))
    node.locks.write_text("")
    wanted = replace(
        the_set(node.publish("cuda", driver(OLD))),
        held=REDHAT.kernel_parts,
        kernels=REDHAT.kernel_patterns,
    )
    converge(node, wanted)
    node.publish("base", kernels)
    node.dnf("--refresh", "upgrade")
    assert node.rpm("-q", name).split() == [f"{name}-5.14.0-570.el9.x86_64"]
    assert not plan_of(node, wanted).changed


def test_kernels_install_in_parallel(node: DnfRoot) -> None:
    """A newer kernel is no reason to refuse the set's, whether that is installed or not.

    Parts of it come from the distribution, and the other layer holds the installed kernel.
    """
    beside = ["installonlypkg(kernel)"]
    kernels = [
        package
        for build in (570, 611)
        for package in (
            Rpm("kernel", f"5.14.0-{build}.el9", [f"kernel-core = 5.14.0-{build}.el9"], beside),
            Rpm("kernel-core", f"5.14.0-{build}.el9", provides=beside),
        )
    ]
    node.publish("base", kernels)
    node.write(
        "etc/yum.repos.d/base.repo",
        f"[base]\nname=base\nbaseurl={(node.repositories / 'base').as_uri()}\ngpgcheck=0\n",
    )
    node.dnf("install", "kernel-5.14.0-611.el9")
    held = ["kernel", "kernel-core"]
    cuda = node.publish("cuda", driver(OLD))
    converge(node, replace(the_set(cuda), held=held))
    older, newer = (
        a_set(stages={"kernel": {"kernel": f"5.14.0-{build}.el9"}}, held=held)
        for build in (570, 611)
    )
    for wanted, changes in ((older, {"kernel", "kernel-core"}), (newer, set()), (older, set())):
        plan = installer(node, wanted, "rdma").plan()
        assert {each.name for each in plan.changes} == changes
        converge(node, wanted, layer="rdma")
        assert not installer(node, wanted, "rdma").plan().changed
    assert node.rpm("-q", "kernel").split() == [
        "kernel-5.14.0-611.el9.x86_64",
        "kernel-5.14.0-570.el9.x86_64",
    ]


def test_a_stream_that_no_repository_has_is_refused(node: DnfRoot) -> None:
    repository = node.publish("cuda", driver(OLD))
    with pytest.raises(PackageError, match=r"nvidia-driver:580-open.*modules\.yaml"):
        converge(node, modular(repository, "580.95.05", "580-open"))


@pytest.mark.parametrize("how", ["no plugin", "switched off"])
def test_locks_that_dnf_does_not_read_hold_nothing(node: DnfRoot, how: str) -> None:
    wanted = the_set(node.publish("cuda", driver(OLD)))
    converge(node, wanted)
    found = installer(node, wanted)
    if how == "no plugin":
        node.plugins.unlink()
    else:
        node.write("etc/dnf/plugins/versionlock.conf", "[main]\nenabled = 0\n")
    assert found.manager.held() == frozenset()
    assert [check.name for check in failures(found.verify())] == ["packages_held"]


def test_another_dnf_is_waited_for(node: DnfRoot) -> None:
    """The lock file names a living process: this one."""
    wanted = the_set(node.publish("cuda", driver(OLD)))
    lock = node.root / "var/lib/dnf/rpmdb_lock.pid"
    lock.parent.mkdir(parents=True)
    lock.write_text("1")
    found = installer(node, wanted)
    found.manager.wait_s = 0
    with pytest.raises(PackageError, match="another package manager is running"):
        found.plan()
    lock.write_text("999999999")  # no process has this number
    converge(node, wanted)


def test_repositories_are_asked_as_dnf_is_set_up(node: DnfRoot) -> None:
    node.write("etc/dnf/dnf.conf", "[main]\nproxy=http://proxy.example:3128\nproxy_username=ann\n")
    node.write(
        "etc/yum.repos.d/site.repo",
        "[base]\nname=base\nbaseurl=https://near.example/$basearch/\nproxy=\n"
        "sslclientcert=/etc/pki/c.pem\nsslclientkey=/etc/pki/k.pem\nskip_if_unavailable=1\n"
        "[epel]\nname=epel\nmetalink=https://far.example/link?arch=$basearch\n"
        "sslcacert=/etc/pki/site.pem\n[off]\nname=off\nenabled=0\nbaseurl=https://off.example/\n",
    )
    repository = Repository("cuda", "https://cuda.example/rhel9", b"", "")
    base, epel, cuda = node.manager(the_set(repository)).locations()
    login = "http://ann:@proxy.example:3128"
    assert base.urls == [f"https://near.example/{ARCHITECTURE}/repodata/repomd.xml"]
    assert (base.proxy, base.client) == ("", ["/etc/pki/c.pem", "/etc/pki/k.pem"])
    assert (base.needed, epel.needed) == (False, True)
    assert epel.urls == [f"https://far.example/link?arch={ARCHITECTURE}"]
    assert (epel.proxy, epel.ca, epel.client) == (login, "/etc/pki/site.pem", [])
    assert cuda.urls == ["https://cuda.example/rhel9/repodata/repomd.xml"]
    assert cuda.proxy == login
