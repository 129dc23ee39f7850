# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Conditions on a node that would stop its layers, from the layers' own plans. What a layer
installs itself is not missing; a condition that stops no layer is `ok`, with a reason."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable

from ..core.checks import FAILED, OK, Check
from ..core.commands import CommandError
from ..core.distribution import REDHAT, Distribution, Family, read_distribution
from ..core.part import Node, Part, PlanError
from ..core.processes import login_address
from ..core.text import bytes_text, some
from ..gpu.shared import GpuKernel
from ..gpu.stack import Suitable, installs
from ..hardware import SurveyError
from ..mpi.launch.launcher import too_new
from ..packages.installer import manager_of
from ..packages.package import Location, Manager, PackageSet, WantedPackage
from ..packages.planning import any_matches, claimed, satisfied, unwanted
from ..rails.backends import AUTO, backend_of
from ..rails.management import ManagementNetwork
from ..rails.plan import plan_rails
from ..rails.survey import CLAIM, NAME, RailsRequest, Survey
from ..rdma import THIS, Hardware, drivers
from ..reboot import busy
from ..software import doca_kernels
from ..software.catalog import gpu_packages, rdma_packages
from ..software.software_set import DISTRIBUTION, DOCA, NO_RDMA, SoftwareSet
from ..ssh.keys import refused_by_fips
from . import answers

RDMA, GPU = "rdma", "gpu"
NO_KEYS = {"doca": b"", "cuda": b""}
"""With empty keys, planning is done as before the first installation, which fetches nothing."""
PLACES, FULL = ("/", "/usr", "/var", "/boot", "/opt", "/tmp"), 16 << 20
"""Free bytes below which a file system counts as full; files of layers and modules need less."""
WAIT_S = 60.0
"""Seconds to wait for another package manager; the layers wait longer."""
ROUND = 64 << 20
"""Required space is rounded up, so that similar findings of many hosts are merged."""
DOCA_SPACE = 1 << 30
"""MLNX_OFED 24.10-3.2.5.0 LTS, "Hardware and Software Requirements" (docs.nvidia.com/networking,
read on 2026-11-25): 1 GB. DOCA-OFED is its successor."""
CUDA_SPACE, CUDA_ARCHIVES = 4700 << 20, 2200 << 20
"""cuda 13.1.1-1 of Arch Linux (archlinux.org/packages/extra/x86_64/cuda, built on 2026-01-13):
installed 4.7 GB, packed 2.2 GB."""
BEHIND_S, AHEAD_S = 10.0, 60.0
"""apt refuses metadata from the future (Acquire::Max-FutureTime of apt.conf(5))."""


class Preflight:
    """`given`: options of the module cluster_preflight."""

    def __init__(self, given: Mapping[str, Any], node: Node) -> None:
        self.given, self.node, self.off = given, node, time.time() - given["clock"]
        self.software = SoftwareSet.of(given["software"])
        root = Path(given["hardware_root"])
        self.hardware = Hardware(root, simulated=root != THIS)
        self.release = self.hardware.release(node)
        self.coming: set[str] = set()
        """Components with packages that are not installed yet."""

    def checks(self) -> list[Check]:
        found: list[Check] = []
        for look in (self.packages, self.rails, self.disks, self.clock, self.use, self.ssh):
            try:
                found += look()
            except (PlanError, SurveyError, CommandError, OSError) as error:
                found.append(_refusal(look.__name__, str(error)))
        return found

    def packages(self) -> Iterator[Check]:
        system, software, sets = read_distribution(self.node.root), self.software, {}
        release = self.release
        wanted_of: dict[str, Callable[[], PackageSet]] = {}
        if self.given["rails"] and software.rdma.source != NO_RDMA:
            # The layer `rdma` installs it, and the layer `gpu` needs it running.
            release = software.kernel or self.release
            own = self.node.container is None
            wanted_of[RDMA] = lambda: rdma_packages(
                software, system, NO_KEYS, release, own_kernel=own
            )
        if installs(self.given, software, self.node):
            wanted_of[GPU] = lambda: gpu_packages(software, system, release, NO_KEYS)
        for layer, packages_of in wanted_of.items():
            try:
                sets[layer] = packages_of()
            except PlanError as error:
                yield _refusal(layer, str(error))
        repositories = [repository for one in sets.values() for repository in one.repositories]
        node = manager_of(system, PackageSet(repositories), "preflight")
        answered = answers.checks([*node.locations(), *self._hpcx(system)])
        yield from answered
        yield _interrupted(node, system.family)
        if not any(each.status == FAILED for each in answered):
            yield from self._mpi(node, system.mpi.launcher)
        for layer, wanted in sets.items():
            manager = manager_of(system, wanted, layer)
            there = manager.installed()
            away = [
                package
                for package in wanted.packages
                if not satisfied(package, there.get(package.name, ""))
            ]
            # An optional package may be in no repository.
            self.coming |= {each.component for each in away if not each.optional}
            if layer == RDMA and software.rdma.source == DOCA and RDMA in self.coming:
                yield from _build(software.rdma.version, release)
            if not any(each.status == FAILED for each in answered):
                yield from _headers(layer, [x for x in away if x.component == "kernel"], manager)
            for planned in manager.rivals():
                reason = "defines a repository of the set too, with another key: will be disabled"
                yield Check("repository_twice", "once", "twice", OK, str(planned.path), reason)
            if not there.keys() & {*wanted.claims.values()}:
                yield from (_refusal(layer, reason) for reason in claimed(wanted, manager).values())
            replaced = [each for stage in wanted.stages for each in stage.replaced]
            gone = {*unwanted(wanted, there), *(x for x in there if any_matches(x, replaced))}
            if gone:
                reason = "packages of the set may replace them: end what uses them"
                yield Check("packages_replaced", [], sorted(gone), OK, layer, reason)
            part: Part = drivers.SecureBoot(self.hardware, software.rdma.source)
            if layer == GPU:
                kernel = GpuKernel(self.hardware.root, self.node.root)
                if release != self.release:
                    reason = "the layer rdma installs it: run reboot.yml before the layer gpu"
                    yield Check("kernel_release", release, self.release, OK, layer, reason)
                    software = replace(software, kernel="")
                part = Suitable(software, kernel, len(self.given["gpus"]), there)
            try:
                part.plan(self.node)
            except PlanError as error:
                yield from (_refusal(layer, reason) for reason in str(error).splitlines())

    def _mpi(self, manager: Manager, name: str) -> Iterator[Check]:
        if self.software.mpi.provider != DISTRIBUTION:
            return
        has = manager.installed().get(name) or next(iter(manager.available([name])[name]), "")
        reason = too_new(has)
        if reason:
            yield _refusal("mpi", reason)

    def _hpcx(self, system: Distribution) -> list[Location]:
        """Location of HPC-X, for nodes with rails that do not have it yet."""
        names = system.hpcx_names
        found = (x for x in self.software.mpi.archives if x.distribution in names)
        archive = next(found, None) if self.given["rails"] else None
        away = archive is not None and not self.node.path(archive.prefix).is_dir()
        return [Location([archive.url])] if archive is not None and away else []

    def rails(self) -> Iterator[Check]:
        """Rails that the layer would refuse: claimed by another file, or the management path."""
        if not self.given["rails"]:
            return
        plan = plan_rails(self.given["rails"])
        request = RailsRequest(
            plan, management=ManagementNetwork.of(self.given["management"], login_address())
        )
        survey = Survey(request, backend_of(AUTO, self.node), self.node)
        for check in (check for rail in plan for check in survey.checks_of(rail, check_mode=True)):
            if check.name == CLAIM:
                yield check
            elif check.name == NAME and check.status == FAILED:
                # Drivers of the set may create the interface.
                there = check.found or check.subject in survey.state.links
                yield check if there or RDMA not in self.coming else replace(check, status=OK)

    def disks(self) -> Iterator[Check]:
        """Free space compared with what will be written, by file system."""
        needs = dict.fromkeys(PLACES, 0)
        if self.software.rdma.source == DOCA and RDMA in self.coming:
            needs["/usr"] += DOCA_SPACE
        if "cuda" in self.coming:
            needs["/usr"] += CUDA_SPACE
            needs["/var"] += CUDA_ARCHIVES
        for name in (f"boot/initrd.img-{self.release}", f"boot/initramfs-{self.release}.img"):
            if self.coming and self.node.path(name).exists():  # the new file is written next to it
                size = self.node.path(name).stat().st_size
                needs["/boot"] += -(-size // ROUND) * ROUND
        systems: dict[int, list[str]] = {}
        for place in (each for each in PLACES if self.node.path(each).is_dir()):
            systems.setdefault(self.node.path(place).stat().st_dev, []).append(place)
        for places in systems.values():
            need, found = (
                FULL + sum(needs[place] for place in places),
                os.statvfs(self.node.path(places[0])),
            )
            free = found.f_bavail * found.f_frsize
            reason = "" if free >= need else "the layers would fill it: free space"
            words = (f"{bytes_text(need)} free", f"{bytes_text(free)} free")
            yield Check("disk_space", *words, FAILED if reason else OK, ", ".join(places), reason)

    def clock(self) -> Iterator[Check]:
        if self.node.container is not None:
            return
        found, right = f"{self.off:.0f} s off", -BEHIND_S <= self.off <= AHEAD_S
        reason = "" if right else "set it: metadata and certificates have dates"
        yield Check("clock", "in step", found, OK if right else FAILED, "", reason)

    def use(self) -> Iterator[Check]:
        root = self.node.root
        jobs = [*(process.text() for process in busy.processes(root)), *drivers.users(root)]
        reason = "they delay a change of drivers and a reboot" if jobs else ""
        yield Check("node_busy", "none", some(jobs, busy.SHOWN), OK, "", reason)
        if self.node.container is None and not self.node.path("dev/ipmi0").exists():
            reason = "no BMC responds here: know a way to power the node on if a reboot fails"
            yield Check("remote_power", "/dev/ipmi0", "missing", OK, "", reason)

    def ssh(self) -> Iterator[Check]:
        reason = refused_by_fips(self.node)
        if reason:
            yield _refusal("ssh", reason)


def _refusal(what: str, why: str) -> Check:
    return Check("layer_plan", "can start", "refused", FAILED, what, why)


def _interrupted(manager: Manager, family: Family) -> Check:
    """A layer finishes packages of its set. dnf continues after an interruption; apt does not."""
    manager.wait_s = WAIT_S
    half, sets = manager.interrupted(), manager.pinned()
    others = [name for name in half if name.partition(":")[0] not in sets]
    found = "; ".join(half.values())
    status = FAILED if others and family is not REDHAT else OK
    reason = "the package manager refuses other changes until it is finished" if found else ""
    step = "dpkg --configure -a && apt-get -f install" if status == FAILED else ""
    return Check("packages_interrupted", "", found, status, reason=reason, by_hand=step)


def _build(doca: str, release: str) -> Iterator[Check]:
    """Check DOCA against the kernel that must run, even if the set names none."""
    found, reason = doca_kernels.verdict(doca, release), doca_kernels.doubt(doca, release)
    if found:
        status = FAILED if found == doca_kernels.FAILS else OK
        yield Check("doca_kernel", "known to build", release, status, "", reason)


def _headers(layer: str, away: Sequence[WantedPackage], manager: Manager) -> Iterator[Check]:
    has = manager.available([*(each.name for each in away), "dpkg", "rpm"]) if away else {}
    lacking = [each.name for each in away if not any(satisfied(each, at) for at in has[each.name])]
    # Without package lists, dpkg and rpm are unknown too.
    if lacking and (has["dpkg"] or has["rpm"]):
        reason = "DKMS builds for this kernel: add their repository, or boot another kernel"
        yield Check("kernel_headers", "in a repository", lacking, FAILED, layer, reason)
