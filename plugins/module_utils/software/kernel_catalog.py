# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Kernel, headers, and the meta packages that would bring a newer one under the drivers' feet."""

from __future__ import annotations

from ..packages.package import Stage, Wanted
from .distribution import REDHAT, Distribution
from .software_set import SoftwareSet


def version_of(kernel_release: str) -> str:
    """The package version of a kernel of EL: `uname -r` without the architecture."""
    return kernel_release.removesuffix(".x86_64").removesuffix(".aarch64")


def stages(software: SoftwareSet, distribution: Distribution, release: str) -> list[Stage]:
    """The kernel of the set, if it names one, and the headers that DKMS builds against."""
    if not release:
        return []
    version = version_of(release)
    if distribution.family == REDHAT:
        kernel = [Wanted("kernel", version, "kernel")]
        headers = [Wanted("kernel-devel", version, "kernel"), Wanted("kernel-headers")]
    else:
        kernel = [Wanted(f"linux-image-{release}", component="kernel")]
        headers = [Wanted(f"linux-headers-{release}", component="kernel")]
    named = [Stage("kernel", tuple(kernel))] if software.kernel else []
    return [*named, Stage("kernel headers", tuple(headers))]


def held(distribution: Distribution, release: str) -> tuple[str, ...]:
    """What brings kernels, as far as it is installed."""
    if distribution.family == REDHAT:
        return (
            "kernel",
            "kernel-core",
            "kernel-modules",
            "kernel-modules-core",
            "kernel-modules-extra",
            "kernel-devel",
            "kernel-devel-matched",
        )
    flavour = release.rpartition("-")[2] if release.count("-") >= 2 else "generic"
    tails = (flavour, f"{flavour}-hwe-{distribution.release}")
    return (
        *(f"linux-{kind}{tail}" for tail in tails for kind in ("", "image-", "headers-")),
        f"linux-image-{release}",
        f"linux-modules-{release}",
        f"linux-modules-extra-{release}",
    )
