# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A mount from the server that its source names: by address, and never failed on a guess."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import Check
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    Result,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage import mount_checks

from tests.unit.storage_node import ADDRESS, StorageNode, filesystem, found, served

POINT = "/mnt/checkpoints"
UNIT = "systemctl stop 'mnt-checkpoints.mount'"
OTHER = "10.0.0.9"


@pytest.fixture
def node(tmp_path: Path) -> StorageNode:
    return StorageNode(tmp_path)


def told(node: StorageNode, fs: Any, **given: Any) -> Optional[Check]:
    return found(node.settle(fs, **given), "storage_address").get(POINT)


def asked(node: StorageNode) -> int:
    return sum(1 for call in node.calls if "getent" in call)


def source(server: str, **given: Any) -> Any:
    return filesystem(source=f"{server}:/srv/checkpoints", **given)


def status(check: Optional[Check]) -> str:
    assert check is not None
    return check.status


@pytest.mark.parametrize("known", ["10.0.0.8", OTHER])
@pytest.mark.parametrize(("server", "wanted"), [(ADDRESS, "ok"), (OTHER, "failed")])
def test_an_address_is_what_it_is(node: StorageNode, server: str, wanted: str, known: str) -> None:
    check = told(node, served(source=f"{server}:/srv"), servers={"storage01": [known]})
    assert status(check) == wanted and asked(node) == 0
    assert check is not None and check.found == ADDRESS
    if wanted == "failed":
        assert "another address" in check.reason and UNIT in check.reason


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("fd00:0:0::1", "fd00::1"),
        ("fe80::1", "fe80::1%eth0"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.1"),
    ],
)
def test_an_address_has_one_spelling(one: str, other: str) -> None:
    assert mount_checks.plain(one) == mount_checks.plain(other) != ""
    assert mount_checks.plain("storage01") == ""


def test_an_address_of_version_6_is_read_without_its_brackets(node: StorageNode) -> None:
    node.settle(source("[fd00::1]"))
    text = node.read("proc/self/mountinfo").replace(f"addr={ADDRESS}", "addr=fd00::1")
    node.write("proc/self/mountinfo", text)
    assert status(told(node, source("[fd00::1]"))) == "ok"


def test_a_server_of_the_cluster_may_be_reached_by_each_of_its_addresses(node: StorageNode) -> None:
    servers = {"storage01": [OTHER, ADDRESS]}
    assert status(told(node, served(), servers=servers)) == "ok"
    assert asked(node) == 0, "what the model says is not asked for"


def test_another_host_than_the_one_that_serves_is_found(node: StorageNode) -> None:
    node.leads_to["storage01"] = [OTHER]
    check = told(node, served(), servers={"storage01": [OTHER, "10.1.0.9"]})
    assert status(check) == "failed" and check is not None
    assert "storage01 has 10.0.0.9, 10.1.0.9" in check.reason and UNIT in check.reason
    assert "shared_storage_client_addresses" in check.reason


def test_an_address_that_no_model_knows_is_right_where_the_name_leads_to_it(
    node: StorageNode,
) -> None:
    assert status(told(node, served(), servers={"storage01": [OTHER]})) == "ok"


@pytest.mark.parametrize(
    ("answer", "why"), [(None, "no answer within 10 s"), ([], "exit status 2, the name is not")]
)
@pytest.mark.parametrize("servers", [{}, {"storage01": [OTHER]}])
def test_a_name_that_cannot_be_resolved_fails_nothing(
    node: StorageNode, answer: Optional[list[str]], why: str, servers: dict[str, Sequence[str]]
) -> None:
    node.leads_to["storage01"] = answer
    check = told(node, served(), servers=servers)
    assert status(check) == "not_applicable" and check is not None
    assert f"getent ahosts storage01: {why}" in check.reason and ADDRESS in check.reason
    assert next(call for call in node.calls if "getent" in call)[:2] == ["timeout", "10"]


def test_a_name_of_dns_that_leads_elsewhere_now_is_told_and_fails_nothing(
    node: StorageNode,
) -> None:
    """Each question has another answer, for a server with many addresses."""
    node.leads_to["nas.example.org"] = [OTHER]
    check = told(node, source("nas.example.org"))
    assert status(check) == "not_applicable" and check is not None
    assert "nas.example.org leads to 10.0.0.9 now" in check.reason and UNIT in check.reason


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (f"{ADDRESS} nas NAS.example.org # x", {"nfs4": "ok", "nfs": "ok"}),
        (f"{OTHER} nas", {"nfs4": "not_applicable", "nfs": "failed"}),
    ],
)
def test_a_name_in_etc_hosts_is_what_it_is(
    node: StorageNode, line: str, wanted: dict[str, str]
) -> None:
    """By version 4 a server that is not of this cluster may have addresses that it alone knows."""
    node.leads_to["nas"] = [OTHER]
    node.write("etc/hosts", f"127.0.0.1 localhost\n{ADDRESS} old # nas\n{line}\n")
    node.settle(source("nas"))
    table = node.read("proc/self/mountinfo")
    for kind, result in wanted.items():
        node.write("proc/self/mountinfo", table.replace(" nfs4 ", f" {kind} "))
        checks = node.mounts(source("nas")).verify(node.node()).checks
        assert [each.status for each in checks if each.name == "storage_address"] == [result]


def test_another_address_of_the_same_server_is_told_as_that(node: StorageNode) -> None:
    fs = served(source=f"{OTHER}:/srv/checkpoints")
    check = told(node, fs, servers={"storage01": [OTHER, ADDRESS]})
    assert status(check) == "failed"


def test_a_server_that_is_not_ours_may_have_addresses_that_it_alone_knows(
    node: StorageNode,
) -> None:
    """The kernel goes over the connections of the first of two mounts, and tells their address."""
    first, second = filesystem("a", source=f"{ADDRESS}:/a"), filesystem("b", source=f"{OTHER}:/b")
    checks = found(node.settle(first, second), "storage_address")
    assert [check.status for check in checks.values()] == ["ok", "not_applicable"]
    assert ADDRESS in checks["/mnt/b"].reason and OTHER in checks["/mnt/b"].reason


def test_a_name_may_be_written_as_names_are(node: StorageNode) -> None:
    node.write("etc/hosts", f"{ADDRESS} nas.example.org\n")
    assert status(told(node, source("NAS.Example.org."))) == "ok" and asked(node) == 0


def test_addresses_of_the_model_are_compared_by_what_they_are(node: StorageNode) -> None:
    assert status(told(node, served(), servers={"storage01": [f"::ffff:{ADDRESS}"]})) == "ok"
    assert asked(node) == 0


@pytest.mark.parametrize("answer", [Result((), 2, f"{OTHER} STREAM\n", ""), CommandError("gone")])
def test_what_getent_says_beside_a_failure_is_no_answer(answer: Any) -> None:
    def look(argv: Sequence[str], **given: Any) -> Result:
        if isinstance(answer, CommandError):
            raise answer
        return answer

    addresses, why = mount_checks.resolve(look, "nas")
    assert addresses == [] and why


def test_nothing_is_said_of_what_has_no_address_or_another_source(node: StorageNode) -> None:
    assert told(node, served(), host="storage01", groups=["storage"]) is None  # a bind mount
    assert asked(node) == 0
    node.settle(source(OTHER), host="node01")
    checks = node.mounts(source("10.0.0.8")).verify(node.node()).checks
    assert "storage_address" not in {each.name for each in checks}
    text = node.read("proc/self/mountinfo").replace(f",addr={ADDRESS}", "")
    node.write("proc/self/mountinfo", text)
    checks = node.mounts(source(OTHER)).verify(node.node()).checks
    assert "storage_address" not in {each.name for each in checks}


def test_a_name_is_asked_for_once(node: StorageNode) -> None:
    node.leads_to["nas"] = None
    outcome = node.settle(source("nas"), filesystem("data", source="nas:/data"))
    assert len(found(outcome, "storage_address")) == 2 and asked(node) == 1
