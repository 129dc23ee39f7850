# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The server in user space, where the kernel's cannot run."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.files import HEADER
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.node.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.server.clients import (
    Client,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.server.ganesha_conf import (  # noqa: E501
    GaneshaExport,
    identities,
    parse,
    render,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.server.parts import chosen
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.server.served import Wire
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.storage_server import NODES, OURS, ServerHost, found, system, wrong

GOLDEN = Path(__file__).parent / "golden/storage"
CONF = "etc/ganesha/ganesha.conf"
UNIT = "nfs-ganesha.service"
OWN = render(Wire(), [GaneshaExport(7, "/export/home", ("10.9.9.9",))])


@pytest.fixture
def host(tmp_path: Path) -> ServerHost:
    return ServerHost(tmp_path, container="podman")


exports = st.lists(
    st.builds(
        GaneshaExport,
        st.integers(1, 65534),
        st.from_regex(r"/srv/[A-Za-z0-9._-]{1,12}", fullmatch=True),
        st.lists(st.ip_addresses().map(str), min_size=1, unique=True).map(tuple),
    )
)


@given(exports, st.booleans())
def test_what_is_written_is_read_again(wanted: list[GaneshaExport], older: bool) -> None:
    assert parse(f"# {HEADER}\n{render(Wire(version_3=older), wanted)}") == tuple(wanted)


@given(st.sets(st.text(min_size=1), max_size=20), st.text(min_size=1))
def test_numbers_are_of_their_own(names: set[str], more: str) -> None:
    numbers = identities(names)
    assert len(set(numbers.values())) == len(names)
    assert all(1 <= number <= 65534 for number in numbers.values())


def test_another_file_system_changes_no_number() -> None:
    before = identities(["checkpoints", "datasets"])
    after = identities(["a", "checkpoints", "datasets", "home"])
    assert {name: after[name] for name in before} == before


def test_names_that_would_have_one_number_have_two() -> None:
    seen: dict[int, str] = {}
    for number in range(10_000):
        name = f"fs{number}"
        (identity,) = identities([name]).values()
        if identity in seen:
            break
        seen[identity] = name
    one, other = seen[identity], name
    assert identities([one])[one] == identities([other])[other]
    assert identities([one, other]) == identities([other, one])
    assert len(set(identities([one, other]).values())) == 2
    assert identities([one], {identity})[one] != identity


def test_the_file_is_as_it_was(host: ServerHost) -> None:
    host.settle(system(), system("datasets"))
    assert host.read(CONF) == (GOLDEN / "ganesha.conf").read_text()


@pytest.mark.parametrize(
    ("backend", "container", "result"),
    [
        ("auto", None, "kernel"),
        ("auto", "podman", "ganesha"),
        ("kernel", "podman", "kernel"),
        ("ganesha", None, "ganesha"),
    ],
)
def test_which_server_serves(backend: str, container: str | None, result: str) -> None:
    assert chosen(backend, container) == result


def test_a_fresh_container_serves_the_nodes_alone(host: ServerHost) -> None:
    outcome = host.settle(system())
    assert wrong(outcome) == []
    assert host.units[UNIT] == "enabled, active"
    assert found(outcome, "nfs_exports")["/srv/checkpoints"].found == "4 addresses"
    assert not (host.root / OURS).exists() and host.ran("exportfs") == 0


def test_addresses_of_both_versions_are_told_apart_from_nothing(host: ServerHost) -> None:
    clients = [Client("six", ("fd00:1::11", "10.0.0.1"))]
    assert wrong(host.settle(system(), clients=clients)) == []
    assert not host.settle(system(), clients=clients).changed


def test_a_network_that_has_access_is_found(host: ServerHost) -> None:
    host.settle(system())
    busctl = host._busctl

    def wide(words: list[str]) -> tuple[int, str]:
        rc, text = busctl(words)
        return rc, text.replace("10.240.0.11/32", "10.240.0.0/24")

    host._busctl = wide  # type: ignore[method-assign]
    check = found(host.settle(system(), check_mode=True), "nfs_exports")["/srv/checkpoints"]
    assert check.status == "pending" and "10.240.0.0/24" in check.found


def test_a_second_run_changes_nothing(host: ServerHost) -> None:
    host.settle(system())
    before, host.calls = host.snapshot(), []
    outcome = host.settle(system())
    assert not outcome.changed and wrong(outcome) == [] and host.snapshot() == before
    assert host.ran("systemctl", "restart") == host.ran("systemctl", "reload") == 0


def test_check_mode_says_it_and_writes_nothing(host: ServerHost) -> None:
    before = host.snapshot()
    outcome = host.settle(system(), check_mode=True)
    assert host.snapshot() == before and outcome.changed
    assert {check.status for check in outcome.checks} <= {"pending", "ok"}


def test_a_client_that_is_gone_takes_a_reload(host: ServerHost) -> None:
    host.settle(system())
    host.calls.clear()
    host.reloads_to_wait = 3  # it exports after it has answered systemd
    assert wrong(host.settle(system(), clients=NODES[:1])) == []
    assert host.told[0]["clients"] == ["10.140.0.11", "10.240.0.11"]
    assert host.ran("systemctl", "reload", UNIT) == 1
    assert host.ran("systemctl", "restart", UNIT) == 0


def test_another_port_takes_a_restart_and_says_so(host: ServerHost) -> None:
    host.settle(system())
    host.calls.clear()
    outcome = host.settle(system(port=2050))
    assert wrong(outcome) == [] and host.ran("systemctl", "restart", UNIT) == 1
    assert any("grace period" in each["after"] for each in outcome.diff)


def test_what_it_does_not_export_is_found(host: ServerHost) -> None:
    host.settle(system())
    host.told, take = [], host.take
    host.take = lambda: None  # type: ignore[method-assign]
    outcome = host.settle(system())
    check = found(outcome, "nfs_exports")["/srv/checkpoints"]
    assert check.status == "failed" and check.found == "not exported"
    host.take = take  # type: ignore[method-assign]
    assert wrong(host.settle(system())) == []


def test_one_that_cannot_be_asked_is_found(host: ServerHost) -> None:
    host.settle(system())
    host.unable.add("busctl")
    check = found(host.settle(system()), "nfs_exports")["/srv/checkpoints"]
    assert check.status == "failed" and "busctl: not installed" in check.reason


def test_the_file_of_the_package_is_replaced(host: ServerHost) -> None:
    host.write(CONF, "## An example\n#EXPORT {\n#}\n\n")
    host.verified = f"??5?????? c /{CONF}\n"
    assert wrong(host.settle(system())) == []


def test_one_as_the_package_brought_it_is_replaced(host: ServerHost) -> None:
    host.write(CONF, OWN)
    host.verified = "??5?????? c /etc/default/nfs-ganesha\n"
    assert wrong(host.settle(system())) == []


def test_one_that_somebody_wrote_is_refused(host: ServerHost) -> None:
    host.write(CONF, OWN)
    host.verified = f"??5?????? c /{CONF}\n"
    with pytest.raises(PlanError, match="is somebody's own") as error:
        host.settle(system())
    assert "shared_storage_server: kernel" in str(error.value)
    assert host.read(CONF) == OWN


def test_it_does_not_serve_by_rdma(host: ServerHost) -> None:
    with pytest.raises(PlanError, match="checkpoints: nfs-ganesha serves by TCP alone here"):
        host.settle(system(transport="rdma", port=20049))


def test_it_has_one_port(host: ServerHost) -> None:
    with pytest.raises(PlanError, match="ports 2049, 2050, and a server has one"):
        host.settle(system(), system("b", port=2050))


def test_somebody_has_to_mount_it(host: ServerHost) -> None:
    with pytest.raises(PlanError, match="no host of its groups mounts it"):
        host.settle(system(), clients=[])


def test_what_is_served_no_more_stays_until_somebody_says_so(host: ServerHost) -> None:
    host.settle(system(), system("datasets"))
    outcome = host.settle(system("datasets"))
    check = found(outcome, "nfs_exports_left")["/srv/checkpoints"]
    assert check.status == "failed" and "shared_storage_absent" in check.reason
    assert not outcome.changed and len(host.told) == 2
    assert wrong(host.settle(system("datasets"), absent=["/srv/checkpoints"])) == []
    assert [each["path"] for each in host.told] == ["/srv/datasets"]
    assert wrong(host.settle(absent=["/srv/datasets"])) == []
    assert not (host.root / CONF).exists() and host.units[UNIT] == "disabled, inactive"


def test_the_operators_own_daemon_is_left_alone_where_nothing_is_served(host: ServerHost) -> None:
    host.write(CONF, OWN)
    host.units[UNIT] = "enabled, active"
    outcome = host.settle()
    assert not outcome.changed and outcome.checks == [] and host.read(CONF) == OWN


def test_the_kernel_does_not_take_over_what_it_serves(host: ServerHost) -> None:
    assert wrong(host.settle(system())) == []
    before = host.snapshot()
    with pytest.raises(PlanError, match="/srv/checkpoints: nfs-ganesha serves it here") as error:
        host.settle(system(), backend="kernel")
    assert "systemctl disable --now nfs-ganesha.service, remove /etc/ganesha/" in str(error.value)
    assert host.snapshot() == before

    host.units[UNIT] = "disabled, inactive"
    (host.root / CONF).unlink()
    assert wrong(host.settle(system(), backend="kernel")) == []


def test_it_does_not_take_over_what_the_kernel_serves(tmp_path: Path) -> None:
    host = ServerHost(tmp_path)
    assert wrong(host.settle(system())) == []
    before = host.snapshot()
    for wanted in ([system()], []):
        with pytest.raises(PlanError, match="/srv/checkpoints: the kernel serves it here") as error:
            host.settle(*wanted, backend="ganesha", absent=["/srv/checkpoints"])
        assert "nfs-server.service, which ends exports of your own" in str(error.value)
    assert host.snapshot() == before


def test_a_file_of_exports_in_a_container_is_no_other_server(host: ServerHost) -> None:
    host.settle(system(), backend="kernel")
    assert wrong(host.settle(system())) == [] and not (host.root / OURS).exists()
