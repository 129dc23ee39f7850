# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The parts of a node that is a client of Lustre, and of them the packages, by distribution.

Names are those that the specifications of Lustre 2.15 to 2.17 build (lustre.spec.in,
lustre-dkms.spec.in, debian/control): docs/lustre.md says which of them are not tried yet.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any, Optional

from ...core import secure_boot
from ...core.checks import FAILED, OK, PENDING, Check, compare, not_applicable
from ...core.commands import CommandError, NoAnswerError, Runner
from ...core.dataclass import dataclass
from ...core.part import Node, Part, Plan, PlanError, Step, Verdict
from ...core.text import some
from ...nic import BOOT_UNIT
from ...packages.engine import Installer
from ...packages.package import INSTALL, Manager, PackageSet, Repository, Stage, Wanted
from ...software import kernel_catalog
from ...software.catalog import VERSION_LOCK
from ...software.distribution import REDHAT, Distribution
from ...software.software_set import DOCA
from .. import mounted, units
from ..file_system import LUSTRE, FileSystem
from ..mounted import within
from .health import HealthPart
from .lnet import SERVICE, Kernel, LeftLnet, LnetPart
from .settings import DKMS, PREBUILT, PRESENT, LustreSettings, Stripes

# Stripe defaults of directories: where the files that are made there are spread.
# Files that are there keep their layout. A directory is looked at only while its file system is
# mounted, by a program with a time limit, and no further one on a file system that did not answer.


CHECK = "lustre_stripes"
MIB = 1 << 20
_VALUE = re.compile(r"(?:^|\s)(?:lmm_)?(stripe_count|stripe_size|pool):\s*(\S+)")
_MANY = ("65535", "4294967295")
"""How releases print -1."""


@dataclass(frozen=True)
class Layout:
    count: int = 0
    size: int = 0
    """Bytes."""
    pool: str = ""
    composite: bool = False
    """PFL; then the rest is meaningless."""

    def text(self, wanted: Stripes) -> str:
        """The part of it that is asked for."""
        if self.composite:
            return "composite layout"
        whole, rest = divmod(self.size, MIB)
        words = (
            f"count {self.count}" if wanted.count else "",
            f"size {f'{self.size} bytes' if rest else f'{whole} MiB'}" if wanted.size_mib else "",
            f"pool {self.pool or 'none'}" if wanted.pool else "",
        )
        return ", ".join(word for word in words if word)


def wanted_text(wanted: Stripes) -> str:
    return Layout(wanted.count, wanted.size_mib * MIB, wanted.pool).text(wanted)


def read_layout(text: str) -> Optional[Layout]:
    """Of what `lfs getstripe -d` prints, with -y or without; None where it shows no layout."""
    if "lcme_id:" in text:
        return Layout(composite=True)
    found = dict(_VALUE.findall(text))
    try:
        count = found["stripe_count"]
        return Layout(
            -1 if count in _MANY else int(count), int(found["stripe_size"]), found.get("pool", "")
        )
    except (KeyError, ValueError):
        return None


def wanted_stripes(filesystems: Sequence[FileSystem], further: Sequence[Stripes]) -> list[Stripes]:
    """Of the file systems themselves, and of directories in them; without those that ask nothing.

    A directory of `further` that is a mount point comes in place of what its file system says.
    """
    found = {
        fs.mount: Stripes(
            fs.mount, fs.lustre.stripe_count, fs.lustre.stripe_size_mib, fs.lustre.pool
        )
        for fs in filesystems
    }
    found.update({each.directory.rstrip("/"): each for each in further})
    return [each for each in found.values() if each.count or each.size_mib or each.pool]


@dataclass
class StripesPart:
    """`points`: mount points of Lustre on this host. Comes after what mounts them."""

    wanted: Sequence[Stripes]
    points: Sequence[str]
    kernel: Kernel
    _silent: dict[str, str] = field(default_factory=dict, init=False)
    """Mount point to what did not answer there."""

    def plan(self, node: Node) -> Plan:
        steps = []
        for each in self.wanted if not self.kernel.missing(node) else ():
            try:
                layout = self._layout(each)
            except CommandError:
                continue  # which its check reports
            if layout is None and (node.container or self._is_armed(self._point(each))):
                continue  # what cannot be mounted by this run: its own check reports why
            before = "not mounted yet" if layout is None else layout.text(each)
            if before != wanted_text(each):
                what = f"stripes of new files in {each.directory}"
                steps.append(Step(what, before, wanted_text(each), partial(self._set, each)))
        return Plan([], steps)

    def verify(self, node: Node) -> Verdict:
        missing = self.kernel.missing(node)
        return Verdict([self._check(node, each, missing) for each in self.wanted])

    def _check(self, node: Node, each: Stripes, missing: str) -> Check:
        wanted, subject = wanted_text(each), each.directory
        try:
            layout = None if missing or not self._runs(each) else self._layout(each)
        except CommandError as error:
            return Check(CHECK, wanted, "unknown", FAILED, subject, str(error))
        if layout is None:
            why = missing or f"{self._point(each)} is not mounted now, which its own check judges"
            return not_applicable(CHECK, wanted, why, subject=subject)
        why = "lfs getstripe -d shows another default"
        found, check_mode = layout.text(each), node.check_mode
        return compare(CHECK, wanted, found, subject=subject, check_mode=check_mode, reason=why)

    def _set(self, each: Stripes) -> None:
        layout = self._layout(each)
        if layout is None or layout.text(each) == wanted_text(each):
            return  # that it is not mounted, the check of the mount reports
        # What is not given goes back to the file system's default: give what is set there.
        now = self._layout(each, "--raw")
        kept = now if now is not None and not now.composite else Layout()
        words = {
            "-c": each.count or kept.count,
            "-S": each.size_mib * MIB or kept.size,
            "-p": each.pool or kept.pool,
        }
        given = [word for key, value in words.items() if value for word in (key, str(value))]
        self.kernel.look(["lfs", "setstripe", *given, each.directory])

    def _layout(self, each: Stripes, *more: str) -> Optional[Layout]:
        """None where it is not mounted. Raises CommandError where it is not known."""
        point = self._point(each)
        if not self._is_mounted(point):
            return None
        if point in self._silent:
            raise CommandError(f"{self._silent[point]}: not queried again")
        argv = ["lfs", "getstripe", "-d", "-y", *more, each.directory]
        try:
            result = self.kernel.look(argv)
        except NoAnswerError as error:
            self._silent[point] = f"{error}: a server of {point} does not answer"
            raise
        layout = read_layout(result.stdout)
        if layout is None:
            raise CommandError(f"{' '.join(argv)}: no layout in {result.stdout[-500:]!r}")
        return layout

    def _point(self, each: Stripes) -> str:
        """The innermost mount point of Lustre that the directory lies in."""
        return max((p for p in self.points if within(each.directory, p)), key=len)

    def _runs(self, each: Stripes) -> bool:
        return self._point(each) in self.kernel.points()

    def _is_armed(self, point: str) -> bool:
        return mounted.trap(mounted.read(self.kernel.root), point) is not None

    def _is_mounted(self, point: str) -> bool:
        """What waits for its first use is mounted."""
        if point in self.kernel.points():
            return True
        if self._is_armed(point) and point not in self._silent:
            try:
                self.kernel.look(["systemctl", "start", units.unit_name(point, units.MOUNT)])
            except NoAnswerError as error:
                self._silent[point] = str(error)
            except CommandError:
                pass  # the check of the mount shows it, with the error of systemd
        return point in self.kernel.points()


CLIENT = "lustre_client"
PROGRAMS = ("lnetctl", "lctl", "lfs", "mount.lustre")
SPLIT = (2, 16)
"""From this release on Ubuntu's prebuilt drivers of networks are packages of their own."""
COMPONENT = "shared_storage_lustre.packages"
THIS = Path("/")
AFTER = (SERVICE,)
"""Units that a mount of Lustre comes after."""


class NotKnown(ValueError):
    """There are no packages for this node; the text has the reason and the remedy."""


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
    packages, repository = settings.packages, settings.packages.repository
    if packages.method == PRESENT:
        return PackageSet()
    if repository is None or not packages.version:
        raise NotKnown(
            f"{COMPONENT}: the method {packages.method} needs a version and a repository; write "
            "them, or method: present where the site installs the client"
        )
    family = _redhat if distribution.family == REDHAT else _ubuntu
    layout, before, names, other = family(settings, distribution, kernel_release, rdma_source)
    wanted = [Wanted(name, packages.version, COMPONENT) for name in packages.names or names]
    if not wanted:
        raise NotKnown(
            f"{distribution.label}: Lustre publishes no packages for it. Build them, and write "
            "their names (packages.names), or install the client yourself (method: present)"
        )
    if not key:
        raise NotKnown(f"the key of the Lustre repository ({repository['key']}) is missing")
    url = repository["url"].replace("{version}", packages.version).replace("{distribution}", layout)
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


_Family = tuple[str, list[Stage], list[str], str]
"""Its folder in a repository, stages that come before, names, and the package of the other method.

Modules are first of the names: the client asks for either kind, and a solver would choose.
"""


def _redhat(settings: LustreSettings, of: Distribution, release: str, _rdma: str) -> _Family:
    dkms, prebuilt, before = "lustre-client-dkms", "kmod-lustre-client", [VERSION_LOCK]
    if settings.packages.method == PREBUILT:
        return f"el{of.release}", before, [prebuilt, "lustre-client"], dkms
    headers = Wanted("kernel-devel", kernel_catalog.version_of(release), "kernel")
    before.append(Stage("kernel headers", (headers,)))
    return f"el{of.release}", before, [dkms, "lustre-client"], prebuilt


def _ubuntu(settings: LustreSettings, of: Distribution, release: str, rdma: str) -> _Family:
    layout, dkms = of.name + of.release.replace(".", ""), "lustre-client-modules-dkms"
    known = of.name == "ubuntu"
    if settings.packages.method == DKMS:
        headers = Wanted(f"linux-headers-{release}", component="kernel")
        names = [dkms, "lustre-client-utils"] if known else []
        return layout, [Stage("kernel headers", (headers,))], names, ""
    names = [f"lustre-client-modules-{release}", "lustre-client-utils"]
    version = tuple(int(part) for part in settings.packages.version.split(".")[:2])
    if version >= SPLIT:
        names.append(f"lustre-lnet-module-socklnd-{release}")
        if settings.uses_rdma:
            where = "" if rdma == DOCA else "in-kernel-"
            names.append(f"lustre-lnet-module-{where}o2iblnd-{release}")
    return layout, [], names if known else [], dkms


@dataclass
class ClientPackages:
    """`manager` is None for the method `present`."""

    settings: LustreSettings
    kernel: Kernel
    wanted: PackageSet
    manager: Optional[Manager]
    changing: bool = field(default=False, init=False)
    """Whether the plan puts other modules in the place of those there; known once it is made."""

    def plan(self, node: Node) -> Plan:
        missing, lacking = self.kernel.missing(node), self._lacking(node)
        if self.manager is None:
            if lacking and not missing:
                raise PlanError(
                    f"the Lustre client is not installed: {lacking}. Install it (packages.method "
                    "present leaves that to you), or write shared_storage_lustre.packages with a "
                    "method, a version and a repository"
                )
            return Plan()
        installer = Installer(self.wanted, self.manager, node.layer)
        plan = installer.plan()
        if not plan.changed:
            return Plan()
        if self.settings.packages.method == DKMS and not missing:
            refusal = secure_boot.refusal(node, self.kernel.root)
            if refusal:
                raise PlanError(f"Lustre client: {refusal}")
        disturbing = [each.name for each in plan.changes if each.kind != INSTALL]
        self.changing = bool(disturbing)
        if not plan.solved:  # dependencies are not known yet
            disturbing = [each.name for each in plan.changes]
        points = self.kernel.points() if disturbing and not missing else []
        if points and not node.check_mode:
            raise PlanError(
                f"Lustre client: a change of {some(disturbing)} was not begun, for Lustre is "
                f"mounted at {some(points)}. Drain the node, unmount them, then run again"
            )
        what, version = "packages of the Lustre client", self.settings.packages.version
        return Plan([], [installer.step(plan, what, "as installed", version)])

    def verify(self, node: Node) -> Verdict:
        missing, lacking = self.kernel.missing(node), self._lacking(node)
        found = lacking or "installed"
        if not lacking:
            check = Check(CLIENT, "installed", found, OK)
        elif self.manager is None and missing:
            check = not_applicable(CLIENT, "installed", missing)
        else:
            status = PENDING if node.check_mode and self.manager is not None else FAILED
            check = Check(CLIENT, "installed", found, status)
        if self.manager is None:
            return Verdict([check])
        checks = Installer(self.wanted, self.manager, node.layer).verify(node.check_mode)
        return Verdict([*checks, check])

    def _lacking(self, node: Node) -> str:
        """Programs of the client that are not there; empty where all are."""
        places = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin")
        there = {name for name in PROGRAMS for at in places if node.path(f"{at}/{name}").exists()}
        missing = [name for name in PROGRAMS if name not in there]
        return f"no {', '.join(missing)}" if missing else ""


@dataclass
class LustreParts:
    """`before` the mounts and `after` them; `simulated` has a line where nothing of it is real."""

    before: list[Part] = field(default_factory=list)
    after: list[Part] = field(default_factory=list)
    simulated: list[str] = field(default_factory=list)


def lustre_parts(
    settings: LustreSettings,
    filesystems: Sequence[FileSystem],
    rails: Sequence[Mapping[str, Any]],
    node: Node,
    *,
    look: Optional[Runner] = None,
    manager: Optional[Manager] = None,
    packages: Optional[PackageSet] = None,
    root: Path = THIS,
    absent: Sequence[str] = (),
) -> LustreParts:
    """What a node needs to be a client of Lustre, around the part that mounts.

    `filesystems`  those that this host mounts, of any type; without Lustre among them there is
                   only what looks for an LNet that was left
    `rails`        as the variable `cluster_rails`
    `look`         runs what may not come back: it has `settings.time_limit_s`
    `manager`      with `packages`, which are those of `client_packages`; neither is needed with
                   the method `present`
    `root`         where sys and proc of the kernel are; another than `/` is a stand-in's
    `absent`       all that is to be taken away, of any kind
    """
    mine = [fs for fs in filesystems if fs.type == LUSTRE]
    simulated = root != THIS
    kernel = Kernel(root if simulated else node.root, look or node.look, simulated)
    left = LeftLnet(kernel, bool(mine), absent)
    notice = f"Lustre and LNet are read below {root}: stand-ins, no kernel of this machine has them"
    result = [notice] if simulated else []
    if not mine:
        return LustreParts(after=[left], simulated=result if left.files(node) else [])
    on_rails = settings.interfaces.intersection(str(rail["interface"]) for rail in rails)
    client = ClientPackages(settings, kernel, packages or PackageSet(), manager)
    return LustreParts(
        before=[
            left,
            client,
            LnetPart(settings, kernel, (BOOT_UNIT,) if on_rails else (), lambda: client.changing),
        ],
        after=[
            StripesPart(wanted_stripes(mine, settings.stripes), [fs.mount for fs in mine], kernel),
            HealthPart(settings, mine, kernel),
        ],
        simulated=result,
    )
