# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Packages of the Lustre client, by the package specifications of Lustre 2.15 to 2.17
(lustre.spec.in, lustre-dkms.spec.in, debian/control)."""

from __future__ import annotations

from dataclasses import dataclass

from ..core import secure_boot
from ..core.checks import OK, Check, differs
from ..core.distribution import REDHAT, Distribution
from ..core.part import Node, Plan, PlanError, Verdict
from ..core.text import some
from ..packages.installer import Installer
from ..packages.package import INSTALL, Manager, PackageSet, Repository, Stage, WantedPackage
from .lustre import DKMS, PREBUILT, LustreKernel, LustrePackages, lacking_programs

CLIENT = "lustre_client"
SPLIT = (2, 16)
"""From this release on Ubuntu's prebuilt network drivers are separate packages."""
COMPONENT = "shared_storage_lustre.packages"


def client_packages(
    packages: LustrePackages,
    distribution: Distribution,
    kernel_release: str,
    key: bytes,
    o2ib: bool = False,
    rdma_source: str = "",
) -> PackageSet:
    """The packages to install. `rdma_source` names the RDMA drivers, against which modules are
    built. Raises PlanError."""
    repository = packages.repository
    if repository is None or not packages.version:
        raise PlanError(
            f"{COMPONENT}: the method {packages.method} needs a version and a repository; set "
            "them, or method: present if the site installs the client"
        )
    if distribution.family is REDHAT:
        before, names, other = _redhat(packages, distribution, kernel_release)
    else:
        driver = "" if not o2ib else "o2iblnd" if rdma_source == "doca" else "in-kernel-o2iblnd"
        before, names, other = _ubuntu(packages, distribution, kernel_release, driver)
    wanted = [WantedPackage(name, packages.version, COMPONENT) for name in packages.names or names]
    if not wanted:
        raise PlanError(
            f"{distribution.label}: Lustre publishes no packages for it. Build them and set "
            "packages.names, or install the client yourself (method: present)"
        )
    url = repository["url"].replace("{version}", packages.version)
    url = url.replace("{distribution}", distribution.lustre_folder)
    return PackageSet(
        repositories=(
            Repository(
                name="lustre",
                url=url.replace("{architecture}", distribution.architecture),
                key=key,
                key_sha256=repository["key_sha256"],
                check_metadata=repository["signed_metadata"],
            ),
        ),
        stages=(*before, Stage("Lustre client", tuple(wanted))),
        absent={other: f"the method is {packages.method}"} if other else {},
    )


_Family = tuple[list[Stage], list[str], str]
"""Preceding stages, package names (kernel modules first, as a solver would choose either kind), and
the package of the other method."""


def _headers(of: Distribution, release: str) -> Stage:
    name, version = of.family.kernel_package(of.family.kernel_headers, release)
    return Stage("kernel headers", (WantedPackage(name, version, "kernel"),))


def _redhat(packages: LustrePackages, of: Distribution, release: str) -> _Family:
    dkms, prebuilt = "lustre-client-dkms", "kmod-lustre-client"
    before = [Stage("version lock", (WantedPackage("python3-dnf-plugin-versionlock"),))]
    if packages.method == PREBUILT:
        return before, [prebuilt, "lustre-client"], dkms
    before.append(_headers(of, release))
    return before, [dkms, "lustre-client"], prebuilt


def _ubuntu(packages: LustrePackages, of: Distribution, release: str, driver: str) -> _Family:
    dkms = "lustre-client-modules-dkms"
    known = of.name == "ubuntu"
    if packages.method == DKMS:
        names = [dkms, "lustre-client-utils"] if known else []
        return [_headers(of, release)], names, ""
    names = [f"lustre-client-modules-{release}", "lustre-client-utils"]
    version = tuple(int(part) for part in packages.version.split(".")[:2])
    if version >= SPLIT:
        drivers = ["socklnd", *([driver] if driver else [])]
        names += [f"lustre-lnet-module-{driver}-{release}" for driver in drivers]
    return [], names if known else [], dkms


@dataclass
class ClientPackages:
    packages: LustrePackages
    kernel: LustreKernel
    wanted: PackageSet
    manager: Manager

    def plan(self, node: Node) -> Plan:
        missing = self.kernel.missing(node)
        installer = Installer(self.wanted, self.manager, node.layer)
        plan = installer.plan()
        if not plan.changed:
            return Plan()
        if self.packages.method == DKMS and not missing:
            refusal = secure_boot.refusal(node, self.kernel.root)
            if refusal:
                raise PlanError(f"Lustre client: {refusal}")
        disturbing = [change.name for change in plan.changes if change.kind != INSTALL]
        if not plan.solved:  # dependencies are unknown
            disturbing = [change.name for change in plan.changes]
        points = self.kernel.points() if disturbing and not missing else []
        if points and not node.check_mode:
            raise PlanError(
                f"Lustre client: {some(disturbing)} would change while Lustre is mounted "
                f"at {some(points)}. Drain the node, unmount them, then run again"
            )
        name, version = "packages of the Lustre client", self.packages.version
        return Plan([], [installer.step(plan, name, "as installed", version)])

    def verify(self, node: Node) -> Verdict:
        lacking = lacking_programs(node)
        status = differs(node.check_mode) if lacking else OK
        check = Check(CLIENT, "installed", lacking or "installed", status)
        checks = Installer(self.wanted, self.manager, node.layer).verify(node.check_mode)
        return Verdict([*checks, check])
