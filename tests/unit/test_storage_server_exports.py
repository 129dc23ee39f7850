# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Who may mount what: the file of exports, what is in force, and others that have access."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.files import HEADER
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.server.exports_file import (  # noqa: E501
    OPTIONS,
    WORLD,
    Block,
    Export,
    parse,
    parse_exports,
    render,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.server.served import (
    ClientError,
    read_clients,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.storage_server import DISK, NODES, OURS, ServerHost, found, system, wrong

GOLDEN = Path(__file__).parent / "golden/storage"


@pytest.fixture
def host(tmp_path: Path) -> ServerHost:
    return ServerHost(tmp_path)


addresses = st.lists(
    st.ip_addresses(v=4).map(str) | st.ip_addresses(v=6).map(str), min_size=1, unique=True
)
names = st.from_regex(r"[a-z][a-z0-9_-]{0,12}", fullmatch=True)
paths = st.from_regex(r"/srv/[A-Za-z0-9._-]{1,12}", fullmatch=True)
blocks = st.lists(
    st.builds(
        Block,
        names,
        names.map(lambda name: f"/mnt/{name}"),
        paths,
        addresses.map(tuple),
        st.sampled_from([OPTIONS, (*OPTIONS, "mountpoint")]),
    ),
    unique_by=(lambda block: block.name, lambda block: block.path),
)


@given(blocks)
def test_what_is_written_is_read_again(wanted: list[Block]) -> None:
    assert parse(render(wanted)) == tuple(wanted)
    assert parse(f"# {HEADER}\n{render(wanted)}") == tuple(wanted)


@given(blocks)
def test_it_means_the_same_to_exportfs(wanted: list[Block]) -> None:
    told = {(each.path, each.client, each.options) for each in parse_exports(render(wanted))}
    assert told == {
        (block.path, address, block.options) for block in wanted for address in block.addresses
    }


def test_the_file_is_as_it_was(host: ServerHost) -> None:
    host.disk()
    host.settle(
        system(device=DISK, format="xfs"),
        system("datasets"),
        clients=[*NODES, {"name": "six", "addresses": ["fd00:1::11"]}],
    )
    assert host.read(OURS) == (GOLDEN / "served.exports").read_text()


def test_the_order_is_that_of_addresses() -> None:
    clients = [
        {"name": "b", "addresses": ["10.0.0.10", "10.0.0.9"]},
        {"name": "a", "addresses": ["10.0.0.100", "10.0.0.9"]},
    ]
    assert read_clients(clients) == ("10.0.0.9", "10.0.0.10", "10.0.0.100")
    assert read_clients(reversed(clients)) == read_clients(clients)


def test_what_anybody_may_write_is_understood() -> None:
    text = (
        "# nothing\n"
        "/srv/a  -sync,rw 10.0.0.1 \\\n"
        "   10.0.0.0/8(ro) @group # end\n"
        '"/srv/b c"  (ro)\n'
        "/srv/d\\040e *(rw)\n"
        "/srv/world\n"
    )
    assert parse_exports(text) == [
        Export("/srv/a", "10.0.0.1", ("sync", "rw"), 2),
        Export("/srv/a", "10.0.0.0/8", ("sync", "rw", "ro"), 2),
        Export("/srv/a", "@group", ("sync", "rw"), 2),
        Export("/srv/b c", WORLD, ("ro",), 4),
        Export("/srv/d e", WORLD, ("rw",), 5),
        Export("/srv/world", WORLD, (), 6),
    ]


def test_what_exportfs_of_a_real_server_printed_is_understood() -> None:
    told = parse_exports((GOLDEN / "exportfs-s").read_text())
    assert [(each.path, each.client) for each in told][:4] == [
        ("/srv/checkpoints", "10.240.0.11"),
        ("/srv/checkpoints", "10.240.0.12"),
        ("/srv/checkpoints", "fd00:1::11"),
        ("/srv/with space", "10.1.1.1"),
    ]
    assert told[-1].client == WORLD
    assert "mountpoint" in told[2].options


@pytest.mark.parametrize(
    ("address", "part"),
    [
        ("10.0.0.0/24", "no address of one host"),
        ("*", "no address of one host"),
        ("node01", "no address of one host"),
        ("0.0.0.0", "no address of one host"),
        ("127.0.0.1", "no address of one host"),
        ("224.0.0.1", "no address of one host"),
    ],
)
def test_nothing_but_addresses_of_hosts_is_let_in(address: str, part: str) -> None:
    with pytest.raises(ClientError, match=part) as error:
        read_clients([{"name": "node01", "addresses": ["10.0.0.1", address]}])
    assert "node01" in str(error.value) and address in str(error.value)


def test_a_client_has_addresses() -> None:
    with pytest.raises(ClientError, match="client node01: it has no address"):
        read_clients([{"name": "node01", "addresses": []}])
    assert read_clients([{"name": "n", "addresses": ["FD00::1"]}]) == ("fd00::1",)


@given(st.ip_addresses())
def test_every_address_of_a_host_is_let_in_as_it_is_written_best(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    entry = {"name": "n", "addresses": [address.exploded]}
    if address.is_unspecified or address.is_loopback or address.is_multicast:
        with pytest.raises(ClientError):
            read_clients([entry])
    else:
        assert read_clients([entry]) == (str(address),)


def test_a_fresh_host_exports_to_the_nodes_alone(host: ServerHost) -> None:
    outcome = host.settle(system())
    assert wrong(outcome) == []
    told = {(each.path, each.client) for each in parse_exports("\n".join(host.etab))}
    assert told == {("/srv/checkpoints", each) for each in read_clients(NODES)}
    assert all("root_squash" in line and "(rw" not in line for line in host.etab)


def test_a_second_run_changes_nothing(host: ServerHost) -> None:
    host.settle(system())
    host.calls.clear()
    before = host.snapshot()
    outcome = host.settle(system())
    assert not outcome.changed and wrong(outcome) == []
    assert host.ran("exportfs", "-ra") == 0 and host.snapshot() == before


def test_check_mode_says_it_and_writes_nothing(host: ServerHost) -> None:
    host.unable.add("exportfs")  # the packages are not there yet
    before = host.snapshot()
    outcome = host.settle(system(), check_mode=True)
    assert host.snapshot() == before and outcome.changed
    assert {check.status for check in outcome.checks} <= {"pending", "ok"}
    assert found(outcome, "nfs_exports")["/srv/checkpoints"].status == "pending"


def test_a_client_that_is_gone_is_gone(host: ServerHost) -> None:
    host.settle(system())
    outcome = host.settle(system(), clients=NODES[:1])
    assert wrong(outcome) == [] and outcome.changed
    assert "10.240.0.12" not in host.read(OURS)
    assert not [line for line in host.etab if "10.240.0.12" in line]
    assert host.ran("systemctl", "restart", "nfs-server.service") == 1  # of the first run


def test_what_an_interrupted_run_left_is_put_in_force(host: ServerHost) -> None:
    host.settle(system())
    host.etab = host.etab[1:]
    outcome = host.settle(system())
    assert outcome.changed and wrong(outcome) == [] and len(host.etab) == 4


def test_exports_of_the_operator_stay(host: ServerHost) -> None:
    host.write("etc/exports", "/export/home 10.9.0.0/16(rw,no_root_squash)\n")
    host.write("etc/exports.d/site.exports", "/export/iso *(ro)\n")
    host.settle(system())
    assert wrong(host.settle(system(), clients=NODES[:1])) == []
    assert host.read("etc/exports") == "/export/home 10.9.0.0/16(rw,no_root_squash)\n"
    told = {(each.path, each.client) for each in parse_exports("\n".join(host.etab))}
    assert {("/export/home", "10.9.0.0/16"), ("/export/iso", "*")} <= told


def test_exports_that_somebody_gave_by_hand_stay(host: ServerHost) -> None:
    host.settle(system())
    by_hand = "/export/ha  10.9.9.9(sync,rw,root_squash,no_subtree_check,sec=sys)"
    host.etab.append(by_hand)
    assert wrong(host.settle(system(), clients=NODES[:1])) == []
    assert by_hand in host.etab
    assert not [line for line in host.etab if "10.240.0.12" in line]


def test_somebody_who_was_let_in_by_hand_is_not_any_more(host: ServerHost) -> None:
    host.settle(system())
    host.etab.append("/srv/checkpoints  10.9.9.9(sync,rw,root_squash,no_subtree_check,sec=sys)")
    checked = host.settle(system(), check_mode=True)
    assert "10.9.9.9" in found(checked, "nfs_exports")["/srv/checkpoints"].reason
    assert wrong(host.settle(system())) == []
    assert not [line for line in host.etab if "10.9.9.9" in line]


@pytest.mark.parametrize(
    ("file", "line", "relation"),
    [
        ("etc/exports", "/srv/checkpoints *(rw)", "exports it as well"),
        ("etc/exports", "/srv/checkpoints 10.240.0.11(rw)", "exports it as well"),
        ("etc/exports", "/srv 10.9.9.9(rw)", "exports /srv, in which it lies"),
        ("etc/exports", "/srv 10.0.0.0/8(ro)", "exports /srv, in which it lies"),
        ("etc/exports.d/a.exports", "/ node*.example.org(ro)", "exports /, in which it lies"),
        ("etc/exports", "/srv 10.240.0.11(rw,no_root_squash)", "exports /srv, in which it lies"),
        ("etc/exports", "/srv/checkpoints/old", "/srv/checkpoints/old, which lies in it"),
    ],
)
def test_others_who_may_have_it_are_found(
    host: ServerHost, file: str, line: str, relation: str
) -> None:
    host.write(file, f"# of the site\n{line}\n")
    outcome = host.settle(system())
    check = found(outcome, "nfs_exports_of_others")["/srv/checkpoints"]
    assert check.status == "failed"
    assert f"/{file}:2 " in check.reason and relation in check.reason
    assert host.read(file) == f"# of the site\n{line}\n"


def test_others_who_were_let_in_above_it_by_hand_are_found(host: ServerHost) -> None:
    host.settle(system())
    host.etab.append("/export/ha  10.9.9.9(sync,rw)")
    assert wrong(host.settle(system())) == []
    host.etab.append("/srv  *(sync,wdelay,rw,no_root_squash,no_all_squash,sec=sys)")
    outcome = host.settle(system())
    check = found(outcome, "nfs_exports_of_others")["/srv/checkpoints"]
    assert check.status == "failed" and "by hand" in check.reason
    assert "exports /srv, in which it lies" in check.reason
    assert "/srv  *(" in "".join(host.etab)  # it is somebody's


@pytest.mark.parametrize("line", ["/srv 10.240.0.11(rw)", "/srv2 10.240.0.12(rw)", "/disk *(rw)"])
def test_others_who_have_something_else_are_not(host: ServerHost, line: str) -> None:
    disk = "90 22 8:16 / /disk rw - ext4 /dev/sdb rw\n"
    host.write("proc/self/mountinfo", host.read("proc/self/mountinfo") + disk)
    host.write("etc/exports", f"{line}\n")
    outcome = host.settle(system())
    assert found(outcome, "nfs_exports_of_others")["/srv/checkpoints"].status == "ok"


def test_what_is_served_no_more_is_exported_until_somebody_says_so(host: ServerHost) -> None:
    host.settle(system(), system("datasets"))
    outcome = host.settle(system("datasets"))
    check = found(outcome, "nfs_exports_left")["/srv/checkpoints"]
    assert check.status == "failed" and "/srv/checkpoints to shared_storage_absent" in check.reason
    assert len(host.etab) == 8 and not outcome.changed

    outcome = host.settle(system("datasets"), absent=["/srv/checkpoints"])
    assert wrong(outcome) == [] and len(host.etab) == 4
    assert "/srv/checkpoints" not in host.read(OURS)


def test_the_last_of_them_takes_the_file_along(host: ServerHost) -> None:
    host.settle(system())
    outcome = host.settle(absent=["/srv/checkpoints"])
    assert wrong(outcome) == [] and host.etab == [] and not (host.root / OURS).exists()
    assert not host.settle(absent=["/srv/checkpoints"]).changed


def test_a_directory_may_be_written_with_a_slash_at_its_end(host: ServerHost) -> None:
    host.settle(system())
    assert wrong(host.settle(absent=["/srv/checkpoints/"])) == [] and host.etab == []


def test_an_end_that_was_interrupted_is_ended(host: ServerHost) -> None:
    host.settle(system())
    run = host.run

    def failing(argv, **given):  # type: ignore[no-untyped-def]
        if list(argv[:2]) == ["exportfs", "-u"]:
            host.etab.pop()
            raise OSError("no space left")
        return run(argv, **given)

    host.run = failing  # type: ignore[method-assign]
    assert host.settle(absent=["/srv/checkpoints"]).errors
    host.run = run  # type: ignore[method-assign]
    assert wrong(host.settle(absent=["/srv/checkpoints"])) == [] and host.etab == []


def many(count: int) -> list[dict[str, Any]]:
    first = ipaddress.ip_address("10.0.0.0")
    return [{"name": f"n{one}", "addresses": [str(first + one)]} for one in range(1, count)]


def test_many_exports_are_ended_by_few_commands(host: ServerHost) -> None:
    clients = many(2501)
    host.settle(system(), clients=clients)
    assert wrong(host.settle(clients=clients, absent=["/srv/checkpoints"])) == []
    assert host.etab == [] and host.ran("exportfs", "-u") == 3

    host.settle(system(), clients=clients)
    host.etab.append("/export/ha  10.9.9.9(sync,rw)")  # which exportfs -ra would end
    host.calls.clear()
    assert wrong(host.settle(system(), clients=clients[:1])) == []
    assert host.ran("exportfs", "-u") == 3 and len(host.etab) == 2


def test_a_file_system_that_got_another_name_goes_on(host: ServerHost) -> None:
    host.settle(system())
    outcome = host.settle(system("saved", path="/srv/checkpoints"))
    assert wrong(outcome) == [] and host.read(OURS).count("10.240.0.11") == 1


def test_a_file_system_that_nobody_mounts_is_refused(host: ServerHost) -> None:
    with pytest.raises(PlanError, match="checkpoints: no host of its groups mounts it"):
        host.settle(system(), clients=[])


def test_a_missing_file_of_exports_does_not_stop_exportfs(host: ServerHost) -> None:
    (host.root / "etc/exports").unlink()
    assert wrong(host.settle(system())) == []
    assert host.read("etc/exports") == ""


def test_in_a_container_the_file_is_written_and_nothing_more(tmp_path: Path) -> None:
    host = ServerHost(tmp_path, container="podman")
    outcome = host.settle(system())
    check = found(outcome, "nfs_exports")["/srv/checkpoints"]
    assert check.status == "not_applicable" and "podman" in check.reason
    assert host.ran("exportfs") == 0 and "10.240.0.11" in host.read(OURS)


def test_what_another_host_serves_is_not_served_here(host: ServerHost) -> None:
    outcome = host.settle(system(host="storage02"))
    assert not outcome.changed and outcome.checks == []


def test_a_host_that_serves_nothing_is_left_alone(host: ServerHost) -> None:
    before = host.snapshot()
    outcome = host.settle()
    assert not outcome.changed and outcome.checks == [] and host.snapshot() == before
    assert host.calls == []
