# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The packages of the Lustre client, by distribution, and the part that installs them.

Names are those that the specifications of Lustre 2.15 to 2.17 build (lustre.spec.in,
lustre-dkms.spec.in, debian/control): docs/lustre.md says which of them nobody has installed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import partial
from typing import Optional

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.checks import (
    FAILED,
    OK,
    PENDING,
    Check,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.dataclass import dataclass
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.node import secure_boot
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.node.packages import change
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.node.part import (
    Node,
    Plan,
    PlanError,
    Step,
    Verdict,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages import engine
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.manager import (
    Manager,
    PackageError,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.package import (
    INSTALL,
    PackageSet,
    Repository,
    Stage,
    Wanted,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.software import kernel_catalog
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.software.catalog import (
    VERSION_LOCK,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.software.distribution import (
    REDHAT,
    Distribution,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.software.software_set import DOCA

from . import lnet_file
from .kernel import Kernel
from .settings import DKMS, PREBUILT, PRESENT, LustreSettings

CLIENT = "lustre_client"
PROGRAMS = ("lnetctl", "lctl", "lfs", "mount.lustre")
SPLIT = (2, 16)
"""From this release on Ubuntu's prebuilt drivers of networks are packages of their own."""
COMPONENT = "shared_storage_lustre.packages"


class NotKnown(ValueError):
    """There are no packages for this node; the text says why and the way out."""


def client_packages(
    settings: LustreSettings,
    distribution: Distribution,
    kernel_release: str,
    key: bytes = b"",
    rdma_source: str = "",
) -> PackageSet:
    """What is installed; empty for the method `present`. `key`: content of the repository's key.

    `rdma_source` says whose RDMA drivers the node has: modules are built against one of them.
    Raises NotKnown.
    """
    packages = settings.packages
    if packages.method == PRESENT or packages.repository is None:
        return PackageSet()
    names = packages.names or _names(settings, distribution, kernel_release, rdma_source)
    wanted = tuple(Wanted(name, packages.version, COMPONENT) for name in names)
    stages = [Stage("Lustre client", wanted)]
    if packages.method == DKMS:
        stages.insert(0, _headers(distribution, kernel_release))
    if distribution.family == REDHAT:
        stages.insert(0, VERSION_LOCK)
    if not key:
        raise NotKnown(
            f"the key of the Lustre repository ({packages.repository.key}) was not handed over"
        )
    url = packages.repository.url
    for name, value in _fields(settings, distribution).items():
        url = url.replace(f"{{{name}}}", value)
    return PackageSet(
        repositories=(
            Repository(
                name="lustre",
                url=url,
                key=key,
                key_sha256=packages.repository.key_sha256,
                check_metadata=packages.repository.signed_metadata,
            ),
        ),
        stages=tuple(stages),
        absent=_absent(settings, distribution),
    )


def _fields(settings: LustreSettings, distribution: Distribution) -> Mapping[str, str]:
    layout = (
        f"el{distribution.release}"
        if distribution.family == REDHAT
        else distribution.name + distribution.release.replace(".", "")
    )
    return {
        "version": settings.packages.version,
        "distribution": layout,
        "architecture": distribution.architecture,
    }


def _names(
    settings: LustreSettings, distribution: Distribution, release: str, rdma_source: str
) -> tuple[str, ...]:
    method = settings.packages.method
    if distribution.family == REDHAT:
        modules = "lustre-client-dkms" if method == DKMS else "kmod-lustre-client"
        # Modules first by name: lustre-client asks for either, and a solver would choose.
        return (modules, "lustre-client")
    if distribution.name != "ubuntu":
        raise NotKnown(
            f"{distribution.label}: Lustre publishes no packages for it. Build them, and write "
            "their names (packages.names), or install the client yourself (method: present)"
        )
    if method == DKMS:
        return ("lustre-client-modules-dkms", "lustre-client-utils")
    names = [f"lustre-client-modules-{release}", "lustre-client-utils"]
    version = tuple(int(part) for part in settings.packages.version.split(".")[:2])
    if version >= SPLIT:
        names.append(f"lustre-lnet-module-socklnd-{release}")
        if lnet_file.uses_rdma(settings):
            where = "" if rdma_source == DOCA else "in-kernel-"
            names.append(f"lustre-lnet-module-{where}o2iblnd-{release}")
    return tuple(names)


def _headers(distribution: Distribution, release: str) -> Stage:
    """What DKMS builds against, of the kernel that has to run."""
    if distribution.family == REDHAT:
        version = kernel_catalog.version_of(release)
        return Stage("kernel headers", (Wanted("kernel-devel", version, "kernel"),))
    return Stage("kernel headers", (Wanted(f"linux-headers-{release}", component="kernel"),))


def _absent(settings: LustreSettings, distribution: Distribution) -> dict[str, str]:
    why = f"the method is {settings.packages.method}"
    if distribution.family == REDHAT:
        other = "kmod-lustre-client" if settings.packages.method == DKMS else "lustre-client-dkms"
        return {other: why}
    if settings.packages.method == PREBUILT:
        return {"lustre-client-modules-dkms": why}
    return {}


@dataclass
class ClientPackages:
    """`manager` is not asked for the method `present`."""

    settings: LustreSettings
    kernel: Kernel
    wanted: PackageSet
    manager: Optional[Manager]
    changing: bool = field(default=False, init=False)
    """Whether the plan puts other modules in the place of those there; known once it is made."""

    def plan(self, node: Node) -> Plan:
        if self.settings.packages.method == PRESENT:
            lacking = self._lacking(node)
            if lacking and not self.kernel.missing(node):
                raise PlanError(
                    f"the Lustre client is not installed: {lacking}. Install it (packages.method "
                    "present leaves that to you), or write shared_storage_lustre.packages with a "
                    "method, a version and a repository"
                )
            return Plan()
        try:
            return self._plan(node)
        except PackageError as error:
            raise PlanError(str(error)) from error

    def verify(self, node: Node) -> Verdict:
        if self.settings.packages.method == PRESENT or self.manager is None:
            lacking = self._lacking(node)
            missing = self.kernel.missing(node)
            if lacking and missing:
                return Verdict([Check(CLIENT, "installed", lacking, "not_applicable", "", missing)])
            found = lacking or "installed"
            return Verdict([Check(CLIENT, "installed", found, FAILED if lacking else OK)])
        try:
            checks = engine.verify(self.wanted, self.manager, node.layer, node.check_mode)
        except PackageError as error:
            return Verdict([Check(CLIENT, "installed", "unknown", FAILED, "", str(error))])
        lacking = self._lacking(node)
        status = OK if not lacking else PENDING if node.check_mode else FAILED
        why = "the packages are installed without it: names of the site's own?" if lacking else ""
        checks.append(Check(CLIENT, "installed", lacking or "installed", status, "", why))
        return Verdict(checks)

    def _plan(self, node: Node) -> Plan:
        if self.manager is None:
            raise PlanError("shared_storage_lustre.packages: no package manager was handed over")
        manager = self.manager
        plan = engine.plan(self.wanted, manager, node.layer)
        if plan.refused:
            raise PlanError("\n".join(plan.refused))
        if not plan.changed:
            return Plan()
        if self.settings.packages.method == DKMS and not self.kernel.missing(node):
            refusal = secure_boot.refusal(node, self.kernel.root)
            if refusal:
                raise PlanError(f"Lustre client: {refusal}")
        disturbing = [each for each in plan.changes if each.kind != INSTALL]
        self.changing = bool(disturbing)
        mounts = self.kernel.mounts() if disturbing and not self.kernel.missing(node) else ()
        if mounts and not node.check_mode:
            points = ", ".join(mount.point for mount in mounts)
            raise PlanError(
                f"Lustre client: a change of {len(disturbing)} packages ({disturbing[0].name}, "
                f"...) was not begun, for Lustre is mounted at {points}. Drain the node, unmount "
                "them, then run again"
            )
        step = Step(
            "packages of the Lustre client",
            "as installed",
            self.settings.packages.version,
            partial(change, plan, self.wanted, manager, node.layer),
            essential=True,
            shown=plan.diffs(),
        )
        return Plan([], [step])

    def _lacking(self, node: Node) -> str:
        """Programs of the client that are not there; empty where all are."""
        missing = [name for name in PROGRAMS if not _there(node, name)]
        return f"no {', '.join(missing)}" if missing else ""


def _there(node: Node, program: str) -> bool:
    places = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin")
    return any(node.path(f"{place}/{program}").exists() for place in places)
