# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The RDMA stack on nodes that imitate B300 nodes, of both families and with both sources."""

from __future__ import annotations

INBOX = ("node02", "node04")


def test_packages_are_of_the_source(compute):
    doca = compute.backend.get_hostname() not in INBOX
    assert compute.package("rdma-core").is_installed
    assert compute.package("doca-ofed").is_installed == doca


def test_modules_are_loaded_at_boot(compute):
    text = compute.file("/etc/modules-load.d/baremetal-mpi-roce-rdma.conf").content_string
    assert text.splitlines()[1:] == ["mlx5_ib", "ib_umad", "rdma_ucm"]


def test_every_rail_has_its_device_and_what_is_simulated_says_so(nodes, converge):
    run = nodes.play(converge)
    assert "SIMULATED: hardware is read below" in run.output
    assert set(run.report["layers"]["rdma"]["hosts"]) == set(nodes.group("compute"))
    for name in nodes.group("compute"):
        rails = [check for check in run.checks("rdma", name) if check["name"] == "rdma_device"]
        assert len(rails) == 8
        assert {check["status"] for check in rails} == {"ok"}


def test_an_upgrade_of_everything_leaves_the_set_alone(compute):
    before = compute.package("rdma-core").version
    if compute.file("/usr/lib/os-release").contains("ID=.*ubuntu"):
        compute.run("apt-get -q -y upgrade")
    else:
        compute.run("dnf -q -y upgrade")
    assert compute.package("rdma-core").version == before
