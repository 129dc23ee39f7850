# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The kernel's NFS server: settings, listeners, restarts."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import CommandError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.files import HEADER
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError

from tests.unit.storage_node import found, wrong
from tests.unit.storage_server import ServerHost, system

GOLDEN = Path(__file__).parent / "golden/storage"
CONF = "etc/nfs.conf.d/baremetal-mpi-roce.conf"
MODULES = "etc/modules-load.d/baremetal-mpi-roce-nfs-rdma.conf"
UNIT = "nfs-server.service"
TCP = system()
RDMA = system("datasets", transport="rdma", port=20049)


@pytest.fixture
def host(tmp_path: Path) -> ServerHost:
    return ServerHost(tmp_path)


def restarts(host: ServerHost) -> int:
    return host.ran("systemctl", "restart", UNIT)


@pytest.mark.parametrize(
    ("name", "systems"),
    [
        ("nfs_tcp.conf", [TCP]),
        ("nfs_rdma.conf", [TCP, RDMA]),
        ("nfs_v3.conf", [system(version="3", port=2050)]),
    ],
)
def test_settings_match_the_golden_files(host: ServerHost, name: str, systems: list) -> None:
    assert wrong(host.settle(*systems)) == []
    assert host.read(CONF) == f"# {HEADER}\n{(GOLDEN / name).read_text()}"


def test_a_new_host_serves(host: ServerHost) -> None:
    outcome = host.settle(TCP, RDMA, threads=32)
    assert wrong(outcome) == []
    assert host.units[UNIT] == "enabled, active"
    assert host.read("proc/fs/nfsd/threads") == "32\n"
    assert host.read("proc/fs/nfsd/portlist") == "tcp 2049\nrdma 20049\n"
    assert host.read(MODULES).endswith("rpcrdma\n")
    assert found(outcome, "nfs_rdma_module")["rpcrdma"].status == "ok"
    assert {check.wanted for check in outcome.checks if check.name == "nfs_listens"} == {
        "tcp 2049",
        "rdma 20049",
    }
    before, host.calls = host.snapshot(), []
    outcome = host.settle(TCP, RDMA, threads=32)
    assert not outcome.changed and wrong(outcome) == [] and host.snapshot() == before
    assert host.ran("tee") == 0 and restarts(host) == 0


def test_check_mode_writes_nothing(host: ServerHost) -> None:
    before = host.snapshot()
    outcome = host.settle(TCP, RDMA, check_mode=True)
    assert host.snapshot() == before
    assert {check.status for check in outcome.checks} <= {"pending", "ok", "not_applicable"}
    assert found(outcome, "nfs_service")[UNIT].status == "pending"


def test_a_server_started_by_its_package_is_restarted(host: ServerHost) -> None:
    """The package is installed after planning."""
    run = host.run

    def installing(argv, **given):  # type: ignore[no-untyped-def]
        if list(argv) == ["exportfs", "-a"]:
            assert not (host.root / CONF).exists()
            host.serve()
            host.units[UNIT] = "enabled, active"
        return run(argv, **given)

    host.run = installing  # type: ignore[method-assign]
    assert wrong(host.settle(TCP)) == []
    assert host.read("proc/fs/nfsd/threads") == "64\n"


def test_threads_and_an_rdma_port_need_no_restart(host: ServerHost) -> None:
    host.settle(TCP)
    host.connected("10.240.0.11")
    before = restarts(host)
    outcome = host.settle(TCP, RDMA, threads=16)
    assert wrong(outcome) == [] and restarts(host) == before
    assert host.read("proc/fs/nfsd/threads") == "16\n" and "threads=16\n" in host.read(CONF)
    (shown,) = [each for each in outcome.diff if "NFS threads" in each["before_header"]]
    assert (shown["before"], shown["after"]) == ("64\n", "16\n")
    assert host.read("proc/fs/nfsd/portlist") == "tcp 2049\nrdma 20049\n"
    order = [call[0] for call in host.calls]
    assert order.index("modprobe") < order.index("tee")


@pytest.mark.parametrize(
    ("systems", "why"),
    [
        ([system(port=2050)], "no listener on tcp 2050"),
        ([system(version="3")], "version 3 is off"),
    ],
)
def test_a_restart_with_clients_needs_permission(host: ServerHost, systems: list, why: str) -> None:
    host.write("etc/nfs.conf", "[nfsd]\nvers3=n\n")
    host.settle(TCP)
    host.connected("10.240.0.11", "10.240.0.12")
    files, count = host.snapshot(), restarts(host)
    with pytest.raises(PlanError) as error:
        host.settle(*systems)
    message = str(error.value)
    assert why in message and "10.240.0.11, 10.240.0.12" in message
    assert "shared_storage_server_restart: true" in message
    assert host.snapshot() == files and restarts(host) == count

    outcome = host.settle(*systems, restart=True)
    assert wrong(outcome) == [] and restarts(host) == count + 1


def test_a_failed_start_is_one_fault(host: ServerHost) -> None:
    run = host.run

    def failing(argv, **given):  # type: ignore[no-untyped-def]
        if list(argv[:2]) == ["systemctl", "restart"]:
            raise CommandError("Job for nfs-server.service failed")
        return run(argv, **given)

    host.run = failing  # type: ignore[method-assign]
    outcome = host.settle(TCP)
    assert found(outcome, "nfs_service")[UNIT].status == "failed"
    assert found(outcome, "nfs_listens")[UNIT].reason == "not read: see nfs_service"
    assert [each for each in outcome.checks if each.status == "failed"] == [
        found(outcome, "nfs_service")[UNIT]
    ]


def test_a_server_without_threads_is_started(host: ServerHost) -> None:
    host.settle(TCP)
    (host.root / "proc/fs/nfsd/threads").write_text("0\n")  # rpc.nfsd 0
    assert host.units[UNIT] == "enabled, active"
    count = restarts(host)
    outcome = host.settle(TCP)
    assert wrong(outcome) == [] and outcome.changed and restarts(host) == count + 1
    assert host.read("proc/fs/nfsd/threads") == "64\n"


@pytest.mark.parametrize("fresh", [True, False])
def test_a_missing_module_is_one_failure(host: ServerHost, fresh: bool) -> None:
    if not fresh:
        host.settle(TCP)
    loads = host._modprobe
    host._modprobe = lambda words: (1, "modprobe: Invalid argument")  # type: ignore
    for _run in range(2):
        host.calls = []
        outcome = host.settle(TCP, RDMA)
        error, line = wrong(outcome)
        check = found(outcome, "nfs_rdma_module")["rpcrdma"]
        assert check.status == "failed" and check.line() in line
        assert "modprobe: Invalid argument" in error
        assert "install mlnx-nfsrdma-dkms" in check.reason
        listens = {one.wanted: one for one in outcome.checks if one.name == "nfs_listens"}
        assert listens["tcp 2049"].status == "ok"
        assert listens["rdma 20049"].status == "not_applicable"
        assert "see nfs_rdma_module" in listens["rdma 20049"].reason
        assert host.ran("tee") == 0, "a kernel without it is not asked for a listener"
    host._modprobe = loads  # type: ignore[method-assign]
    count = restarts(host)
    assert wrong(host.settle(TCP, RDMA)) == [] and restarts(host) == count
    assert host.read("proc/fs/nfsd/portlist") == "tcp 2049\nrdma 20049\n"


def test_a_refused_listener_is_reported(host: ServerHost) -> None:
    host.settle(TCP, RDMA)
    host.write("proc/fs/nfsd/portlist", "tcp 2049\n")
    host._tee = lambda words: (1, "tee: Protocol not supported")  # type: ignore[assignment]
    outcome = host.settle(TCP, RDMA)
    assert any("Protocol not supported" in error for error in outcome.errors)
    check = next(each for each in outcome.checks if each.wanted == "rdma 20049")
    assert check.status == "failed" and check.found == "tcp 2049"


def test_settings_remain_with_remaining_exports(host: ServerHost) -> None:
    host.settle(RDMA)
    outcome = host.settle()
    assert not outcome.changed and (host.root / MODULES).exists() and (host.root / CONF).exists()
    host.settle(absent=["/srv/datasets"])
    assert not (host.root / MODULES).exists() and not (host.root / CONF).exists()
    assert host.units[UNIT] == "enabled, active"  # it may serve others


def test_a_container_runs_no_server(tmp_path: Path) -> None:
    host = ServerHost(tmp_path, container="podman")
    outcome = host.settle(TCP, RDMA)
    assert wrong(outcome) == [] and host.ran("systemctl") == 0 and host.ran("modprobe") == 0
    assert found(outcome, "nfs_service")[UNIT].status == "not_applicable"
    assert "threads=64" in host.read(CONF)


def test_an_overriding_file_causes_no_restart(host: ServerHost) -> None:
    host.write("etc/nfs.conf.d/site.conf", "[nfsd]\nvers3=n\nport=2055\n")
    three = system(version="3", port=2050)
    host.settle(three)
    host.connected("10.240.0.12")
    outcome, before = host.settle(three), restarts(host)
    assert outcome.errors == [] and not outcome.changed and restarts(host) == before
    for name in ("nfs_listens", "nfs_version"):
        assert "/etc/nfs.conf.d" in found(outcome, name)[UNIT].reason
    host.write("etc/nfs.conf.d/site.conf", "[nfsd]\nvers3=y\n")
    host.serve()  # the restart that the check asks for
    assert wrong(host.settle(three)) == []


@pytest.mark.parametrize("transport", ["tcp", "rdma"])
def test_two_ports_of_one_server_are_refused(host: ServerHost, transport: str) -> None:
    systems = [system(x, port=port, transport=transport) for x, port in (("a", 2049), ("b", 2050))]
    with pytest.raises(PlanError, match="one server has one port, not 2049, 2050"):
        host.settle(*systems)
