# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Causes of failed apt-get runs, from output of dpkg, DKMS and apt that users reported."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.apt_failure import (
    MAX_CHARACTERS,
    refusal,
)

HEADING = "dpkg: error processing package"
SUMMARY = "E: Sub-process /usr/bin/dpkg returned an error code (1)"
SCRIPT = "post-installation script subprocess returned error exit status"

# The format is that of ROCm/legacy-rocm-build issue 1375 and ROCm/amdgpu issue 192.
MAKE_LOG = "var/lib/dkms/mlnx-ofed-kernel/25.10.OFED.25.10.1.7.1.1/build/make.log"
DKMS_OUT = """\
Setting up mlnx-ofed-kernel-dkms (25.10.OFED.25.10.1.7.1.1-1) ...
Loading new mlnx-ofed-kernel-25.10.OFED.25.10.1.7.1.1 DKMS files...
Building for 6.14.0-24-generic
Building initial module for 6.14.0-24-generic
"""
# A second failure finds the report of the first (linux-surface/linux-surface issue 573).
DKMS_ERROR = f"""\
ERROR (dkms apport): kernel package linux-headers-6.14.0-24-generic is not supported
ERROR: Cannot create report: [Errno 17] File exists: '/var/crash/mlnx-ofed-kernel-dkms.0.crash'
Error! Bad return status for module build on kernel: 6.14.0-24-generic (x86_64)
Consult /{MAKE_LOG} for more information.
{HEADING} mlnx-ofed-kernel-dkms (--configure):
 installed mlnx-ofed-kernel-dkms package {SCRIPT} 10
dpkg: dependency problems prevent configuration of doca-ofed:
 doca-ofed depends on mlnx-ofed-kernel-dkms; however:
  Package mlnx-ofed-kernel-dkms is not configured yet.

{HEADING} doca-ofed (--configure):
 dependency problems - leaving unconfigured
Errors were encountered while processing:
 mlnx-ofed-kernel-dkms
 doca-ofed
{SUMMARY}
"""
# Azure/azhpc-images, components/install_doca.sh at 0d4b898, and pull request 538.
OVERWRITE = f"""\
dpkg: error processing archive /var/cache/apt/archives/openmpi_4.1.9a1-1_amd64.deb (--unpack):
 trying to overwrite '/etc/pmix-mca-params.conf', which is also in package pmix 4.2.9-2
dpkg-deb: error: paste subprocess was killed by signal (Broken pipe)
Errors were encountered while processing:
 /var/cache/apt/archives/openmpi_4.1.9a1-1_amd64.deb
{SUMMARY}
"""
# initramfs-tools with a full /boot.
NO_SPACE = f"""\
update-initramfs: Generating /boot/initrd.img-6.8.0-79-generic
zstd: error 70 : Write error : cannot write block : No space left on device
E: mkinitramfs failure zstd -q -1 -T0 70
update-initramfs: failed for /boot/initrd.img-6.8.0-79-generic with 1.
{HEADING} initramfs-tools (--configure):
 installed initramfs-tools package {SCRIPT} 1
{SUMMARY}
"""
# dpkg's prompt ends without a newline.
CONFFILE = f"""\
Setting up pmix (4.2.9-2) ...
*** pmix-mca-params.conf (Y/I/N/O/D/Z) [default=N] ? {HEADING} pmix (--configure):
 end of file on stdin at conffile prompt
{SUMMARY}
"""
SERVICE_OUT = "Setting up nvidia-fabricmanager (580.95.05-1) ...\nJob for x.service failed.\n"
SERVICE_ERROR = f"{HEADING} nvidia-fabricmanager (--configure):\n installed {SCRIPT} 1\n{SUMMARY}\n"
# apt 3 of Ubuntu 26.04 and Debian 13.
SOLVER_3 = """\
Unsatisfied dependencies:
 openroad : Depends: libpython3.10 (>= 3.10.0) but it is not installable
Error: Unable to satisfy dependencies. Reached two conflicting assignments:
   1. openroad:amd64=2.0 is selected for install
   2. openroad:amd64 Depends libpython3.10 (>= 3.10.0)
      but none of the choices are installable:
      [no choices]
"""


def said(stdout: str, stderr: str = "", root: Path = Path("/nowhere")) -> str:
    text = refusal(Result((), 100, stdout, stderr), root)
    assert "\n" not in text
    return text


CASES = (
    (
        (DKMS_OUT, DKMS_ERROR),
        "mlnx-ofed-kernel-dkms: Error! Bad return status for module build",
        ["6.14.0-24-generic", f"/{MAKE_LOG}", "choose a version that supports this kernel"],
    ),
    (
        ("", OVERWRITE),
        "openmpi: trying to overwrite '/etc/pmix-mca-params.conf'",
        ["which is also in package pmix 4.2.9-2", "apt-get remove pmix"],
    ),
    (
        ("", NO_SPACE),
        "initramfs-tools: zstd: error 70 : Write error : cannot write block : No space left",
        ["/boot/initrd.img-6.8.0-79-generic", "df -h"],
    ),
    (
        (CONFFILE, ""),
        "pmix: ",
        ["end of file on stdin at conffile prompt", "--force-confold --configure -a"],
    ),
    # The cause and the heading are on different streams.
    ((SERVICE_OUT, SERVICE_ERROR), "nvidia-fabricmanager: Job for x.service failed.", []),
    (
        (SOLVER_3, ""),
        "openroad : Depends: libpython3.10",
        ["two conflicting assignments", "1. openroad:amd64=2.0 is selected", "[no choices]"],
    ),
    # /var is full before any package is unpacked.
    (
        ("", "E: You don't have enough free space in /var/cache/apt/archives/.\n"),
        "E: You don't have enough free space in /var/cache/apt/archives/.",
        ["df -h"],
    ),
    (
        (
            "The following packages will be REMOVED:\n  libucx0 openmpi-bin\n",
            "E: Packages need to be removed but remove is disabled.\n",
        ),
        "E: Packages need to be removed but remove is disabled.",
        ["it would remove libucx0 openmpi-bin"],
    ),
    # The script of a package being unpacked, from one of apt's numbered archives.
    (
        (
            "Preparing to unpack .../03-mlnx-tools_25.10-1_amd64.deb ...\nError: mlx5_ib is used\n",
            "dpkg: error processing archive /tmp/apt-dpkg-install-a/03-mlnx-tools_25.10-1_amd64.deb"
            " (--unpack):\n new mlnx-tools package pre-installation script subprocess failed 1\n",
        ),
        "mlnx-tools: Error: mlx5_ib is used; new mlnx-tools package pre-installation",
        [],
    ),
    # dosemu2/dosemu2 issue 2859 (apt 3).
    (
        (
            "",
            "Warning: OpenPGP signature verification failed: https://a InRelease: Sub-process "
            "/usr/bin/sqv returned an error code (1), error message is: Signing key on 6D9 is not "
            "bound:            No binding signature   because: SHA1 is not considered secure\n"
            "Error: The repository 'https://a noble InRelease' is not signed.\n",
        ),
        "Warning: OpenPGP signature verification failed: ",
        ["SHA1 is not considered secure", "is not signed"],
    ),
    (("on stdout", "on stderr"), "exit status 100: ", ["on stdout", "on stderr"]),
    (("", ""), "exit status 100: no output", []),
)


@pytest.mark.parametrize(("printed", "begins", "has"), CASES)
def test_cause_and_remedy_come_first(printed: tuple[str, str], begins: str, has: list[str]) -> None:
    text = " ".join(said(*printed).split())
    assert text.startswith(begins)
    for word in has:
        assert word in text


@pytest.mark.parametrize("printed", [(DKMS_OUT + DKMS_ERROR, ""), (DKMS_OUT, DKMS_ERROR)])
def test_dependent_packages_are_no_cause(printed: tuple[str, str]) -> None:
    text = said(*printed)
    assert "doca-ofed" not in text
    assert SUMMARY not in text


def test_the_log_that_dkms_names_is_read(tmp_path: Path) -> None:
    log = tmp_path / MAKE_LOG
    log.parent.mkdir(parents=True)
    log.write_text("CC [M] main.o\nmain.c:7:2: error: too few arguments\nmake: *** [x] Error 1\n")
    assert "make.log: main.c:7:2: error: too few arguments" in said(DKMS_OUT, DKMS_ERROR, tmp_path)
    log.write_text("CC [M] main.o\nKilled\n")
    assert "make.log: CC [M] main.o; Killed" in said(DKMS_OUT, DKMS_ERROR, tmp_path)
    log.write_text(f"{'x' * 99999}\nmain.c:7:2: error: {'y' * 99999}\n")
    assert len(said(DKMS_OUT, DKMS_ERROR, tmp_path)) < 2 * MAX_CHARACTERS
    outside = DKMS_ERROR.replace("mlnx-ofed-kernel/25.10.OFED.25.10.1.7.1.1", "../dkms")
    (tmp_path / "var/lib/dkms/build").mkdir()
    (tmp_path / "var/lib/dkms/build/make.log").write_text("of another folder\n")
    assert "make.log: " not in said(DKMS_OUT, outside, tmp_path)


@pytest.mark.parametrize(
    ("path", "owner"),
    [("/a" * 99999, "pmix"), ("/a", "b" * 99999), ("/a", "x;reboot"), ("/a", "--purge")],
)
def test_no_remedy_for_hostile_names(path: str, owner: str) -> None:
    found = f" trying to overwrite '{path}', which is also in package {owner} 1"
    text = said("", f"{HEADING} evil (--unpack):\n{found}\n{SUMMARY}\n")
    assert len(text) < 2 * MAX_CHARACTERS
    assert "apt-get remove" not in text


def test_script_output_is_bounded() -> None:
    long = "".join(f"failed {at} \x1b[2J\n" for at in range(9999))
    text = said(f"Setting up evil (1) ...\n{long}", f"{HEADING} evil (--configure):\n x\x1b\n")
    assert "\x1b" not in text and "failed 9998" in text
    assert len(text) < 2 * MAX_CHARACTERS
