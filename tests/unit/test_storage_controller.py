# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Clients of a server, the key of Lustre's packages, and the role."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional

import pytest
import yaml
from ansible_collections.baremetal.mpi_roce.plugins.action import shared_storage
from ansible_collections.baremetal.mpi_roce.plugins.modules import lustre_packages, storage_use
from ansible_collections.baremetal.mpi_roce.plugins.modules import shared_storage as shared_module
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.key_files import KeyFileError
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.shared_storage import (
    ClientError,
    clients_of,
    lustre_key,
)

from tests.unit.ended import Ended, Module
from tests.unit.storage_node import filesystem, served

GROUPS = {"compute": ["node01", "node02"], "storage": ["storage01"], "launcher": ["launcher01"]}


def host(name: str, last: int, rails: int = 0) -> dict[str, Any]:
    return {
        "name": name,
        "management_address": f"10.0.0.{last}",
        "rails": [{"address": f"10.1.{rail}.{last}"} for rail in range(rails)],
    }


DIRECTORY = [
    host("node01", 11, 2),
    host("node02", 12, 2),
    host("launcher01", 10),
    host("storage01", 9),
]


@pytest.mark.parametrize(
    ("host", "serving", "addresses"),
    [
        ("storage01", "storage01", "0.0.11 0.0.12 1.0.11 1.0.12 1.1.11 1.1.12"),
        ("node01", "node01", "0.0.9 0.0.12 1.0.12 1.1.12"),  # it is not its own client
    ],
)
def test_clients_are_all_addresses_of_mounting_hosts(host, serving, addresses):
    found = clients_of(host, [served(host=serving)], DIRECTORY, GROUPS)
    assert found == {"checkpoints": [f"10.{address}" for address in addresses.split()]}


def test_a_host_that_serves_nothing_gets_no_clients():
    assert clients_of("node01", [served(), filesystem("datasets")], DIRECTORY, GROUPS) == {}


def further(*addresses: str) -> list[str]:
    only = {"node02": addresses}
    found = clients_of("storage01", [served()], DIRECTORY, GROUPS, lambda name: only.get(name, ()))
    return found["checkpoints"]


def test_additional_addresses_of_a_host():
    assert further("10.9.9.9", "FD00::1")[-2:] == ["10.9.9.9", "fd00::1"]


@pytest.mark.parametrize(
    "address", ["10.0.0.0/24", "*", "node01", "0.0.0.0", "127.0.0.1", "224.0.0.1"]
)
def test_only_single_addresses_are_accepted(address):
    with pytest.raises(ClientError) as error:
        further(address)
    assert "node02" in str(error.value) and repr(address) in str(error.value)


def settings(path: str, digest: str) -> dict[str, Any]:
    return {"packages": {"repository": {"url": "file:///srv", "key": path, "key_sha256": digest}}}


def test_the_key_of_lustre_packages_is_verified(tmp_path: Path):
    key = b"-----BEGIN PGP PUBLIC KEY BLOCK-----"
    (tmp_path / "l.asc").write_bytes(key)
    good = settings("l.asc", hashlib.sha256(key).hexdigest())
    assert lustre_key(good, tmp_path) == key
    assert lustre_key({}, tmp_path) == b""
    with pytest.raises(KeyFileError, match=r"l\.asc, whose SHA-256 is"):
        lustre_key(settings("l.asc", "0" * 64), tmp_path)


@pytest.mark.parametrize(
    ("failed", "managed", "names"),
    [
        (False, True, ["lustre_packages", "shared_storage"]),
        (True, True, ["lustre_packages"]),
        (False, False, ["shared_storage"]),
    ],
)
def test_packages_of_lustre_are_installed_first(
    tmp_path: Path, failed: bool, managed: bool, names: list[str]
):
    (tmp_path / "l.asc").write_bytes(b"public")
    digest = hashlib.sha256(b"public").hexdigest()
    repository = {"url": "file:///srv", "key": "l.asc", "key_sha256": digest}
    packages = {"method": "dkms", "version": "2.15.7", "repository": repository}
    fs = filesystem(type="lustre", source="10.9.0.1@o2ib:/l", managed=managed)
    calls: dict[str, dict[str, Any]] = {}

    def execute(name: str, module_args: dict[str, Any], task_vars: Any) -> dict[str, Any]:
        calls[name.rpartition(".")[2]] = module_args
        return {"changed": len(calls) == 1, "checks": [{"name": name}], "failed": failed}

    action = object.__new__(shared_storage.ActionModule)
    action._execute_module = execute
    given = {"filesystems": [fs.as_variable()], "lustre": {"packages": packages}}
    task_vars = {
        "inventory_hostname": "node01", "group_names": ["compute"], "groups": GROUPS,
        "hostvars": {}, "inventory_dir": str(tmp_path),
    }  # fmt: skip
    action._task = SimpleNamespace(args={**given, "rdma_source": "doca"}, check_mode=False)
    found = action.act(task_vars)
    assert list(calls) == names and found["changed"]
    assert len(found["checks"]) == len(names)
    if managed:
        assert calls["lustre_packages"]["o2ib"] is True
        assert calls["lustre_packages"]["rdma_source"] == "doca"


@pytest.mark.parametrize("of", [shared_module, storage_use, lustre_packages])
def test_modules_support_check_mode(of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Any] = {}

    def create(**given: Any) -> None:
        made.update(given)
        raise Ended(False, {})

    monkeypatch.setattr(of, "AnsibleModule", create)
    with pytest.raises(Ended):
        of.main()
    assert made == {"argument_spec": of.ARGUMENTS, "supports_check_mode": True}


@pytest.mark.parametrize("uid", [None, 2000])
def test_a_round_on_a_host(uid: Optional[int], monkeypatch: pytest.MonkeyPatch) -> None:
    ended = Module()
    ended.params = {"user": "no-such-user", "uid": uid, "filesystems": [], "round": "write"}  # type: ignore[attr-defined]
    ended.params |= {"host": "node01", "groups": []}  # type: ignore[attr-defined]
    monkeypatch.setattr(storage_use, "AnsibleModule", lambda **_given: ended)
    with pytest.raises(Ended) as caught:
        storage_use.main()
    result = caught.value.result
    assert (result["layer"], result["checks"]) == ("storage", [])
    assert caught.value.failed == (uid is None) == ("no-such-user" in result.get("msg", ""))
    if uid:
        assert result["measured"] == {} and result["invocation"] == {} and "virtual" in result


# The role

ROOT = Path(__file__).resolve().parents[2]
ROLE = ROOT / "roles/shared_storage"


TASKS = yaml.safe_load((ROLE / "tasks/configure.yml").read_text())


def test_order_of_the_tasks():
    main = yaml.safe_load((ROLE / "tasks/main.yml").read_text())
    assert [task["ansible.builtin.import_tasks"] for task in main] == ["configure.yml", "use.yml"]
    (used,) = yaml.safe_load((ROLE / "tasks/use.yml").read_text())
    settle, use = TASKS[1]["block"], used["block"]
    assert settle[0]["when"] == "inventory_hostname in __shared_storage_servers"
    assert settle[1]["when"] == "inventory_hostname not in __shared_storage_servers"
    given = TASKS[1]["module_defaults"]["baremetal.mpi_roce.shared_storage"]
    assert set(given) <= set(shared_module.ARGUMENTS)
    # Built for each host: for ten thousand hosts it would be a day's work.
    assert "directory" not in given
    arguments = [task["baremetal.mpi_roce.shared_storage"] or {} for task in settle]
    assert ["directory" in each for each in arguments] == [True, False]
    rounds = [task["baremetal.mpi_roce.storage_use"]["round"] for task in use]
    after = used["always"]
    rounds += [task["baremetal.mpi_roce.storage_use"]["round"] for task in after]
    assert rounds == ["plan", "write", "read", "report", "verdict"]
    registered = [task.get("register") for task in [*use, *after]]
    assert registered == [*(f"__shared_storage_{each}" for each in rounds)]
    # A verdict that runs once would end the play for all hosts.
    once = [name for name, task in zip(rounds, [*use, *after]) if task.get("run_once", False)]
    assert once == ["plan", "report"]
