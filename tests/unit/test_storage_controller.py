# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Who may mount what a host serves, and the key of Lustre's packages."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleUndefinedVariable
from ansible_collections.baremetal.mpi_roce.plugins.action import shared_storage as action
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.key_files import KeyFileError
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.report.storage import (
    ADDRESSES,
    clients_of,
    lustre_key,
    servers_of,
)

from tests.unit.storage_node import filesystem, served

GROUPS = {"compute": ["node01", "node02"], "storage": ["storage01"], "launcher": ["launcher01"]}
LUSTRE = filesystem(type="lustre", source="10.0.0.1@o2ib:/lfs", hosts=("compute",))


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


def test_every_host_that_mounts_by_every_address_and_nobody_else():
    assert clients_of("storage01", [served()], DIRECTORY, GROUPS) == {
        "checkpoints": [
            {"name": "node01", "addresses": ["10.0.0.11", "10.1.0.11", "10.1.1.11"]},
            {"name": "node02", "addresses": ["10.0.0.12", "10.1.0.12", "10.1.1.12"]},
        ]
    }


def test_a_host_that_serves_nothing_hears_of_nobody():
    assert clients_of("node01", [served(), filesystem("datasets")], DIRECTORY, GROUPS) == {}


def test_a_node_that_serves_is_no_client_of_itself():
    found = clients_of("node01", [served(host="node01")], DIRECTORY, GROUPS)
    assert [each["name"] for each in found["checkpoints"]] == ["node02", "storage01"]


def test_further_addresses_of_a_host():
    further = {"node02": ["10.9.9.9"]}
    found = clients_of(
        "storage01", [served()], DIRECTORY, GROUPS, lambda name: further.get(name, [])
    )
    assert found["checkpoints"][1]["addresses"][-1] == "10.9.9.9"
    assert "10.9.9.9" not in found["checkpoints"][0]["addresses"]


def settings(path: str, digest: str) -> dict[str, Any]:
    return {"packages": {"repository": {"url": "file:///srv", "key": path, "key_sha256": digest}}}


def test_a_key_is_read_where_lustre_is_mounted_alone(tmp_path: Path):
    (tmp_path / "l.asc").write_bytes(b"public")
    good = settings("l.asc", hashlib.sha256(b"public").hexdigest())
    assert lustre_key(good, [LUSTRE], ["compute"], tmp_path) == b"public"
    for filesystems, groups in (([filesystem()], ["compute"]), ([LUSTRE], ["storage"])):
        assert lustre_key(good, filesystems, groups, tmp_path) == b""
    assert lustre_key({}, [LUSTRE], ["compute"], tmp_path) == b""
    assert lustre_key(None, [LUSTRE], ["compute"], tmp_path) == b""


@pytest.mark.parametrize(
    ("content", "digest", "said"),
    [
        (None, "", "cannot be read: No such file"),
        (b"other", "0" * 64, "has the SHA-256"),
        (b"public", "", "key_sha256 says nothing"),
        (b"-----BEGIN PGP PRIVATE KEY BLOCK-----", "", "no public key"),
    ],
)
def test_a_key_that_is_not_to_be_trusted_is_refused(tmp_path, content, digest, said):
    if content is not None:
        (tmp_path / "l.asc").write_bytes(content)
    with pytest.raises(KeyFileError, match=said) as error:
        lustre_key(settings("l.asc", digest), [LUSTRE], ["compute"], tmp_path)
    assert "BEGIN" not in str(error.value)


VARIABLES: dict[str, dict[str, Any]] = {
    "storage01": {
        "cluster_management": {"address": "10.0.0.9", "prefix": 24},
        "cluster_rails": [{"address": "10.1.0.9"}, {"address": "10.1.1.9"}],
        "shared_storage_client_addresses": "10.9.9.9",
    },
    "storage02": {},
}


def servers(host: str, *filesystems: Any, groups: tuple[str, ...] = ("compute",)) -> Any:
    asked: list[str] = []

    def variables(name: str) -> dict[str, Any]:
        asked.append(name)
        return VARIABLES[name]

    found = servers_of(host, filesystems, groups, variables)
    assert asked == list(found), "each once"
    return found


def test_who_serves_what_a_host_mounts_by_every_address():
    wanted = {"storage01": ["10.0.0.9", "10.1.0.9", "10.1.1.9", "10.9.9.9"]}
    assert servers("node01", served(), served("scratch")) == wanted
    assert servers("node01", served(host="storage02")) == {"storage02": []}


def test_nobody_is_asked_for_who_serves_nothing_that_this_host_mounts():
    others = (filesystem("datasets"), LUSTRE)
    assert servers("node01", *others) == {}
    assert servers("storage01", served(), groups=("storage",)) == {}, "by itself"
    assert servers("launcher01", served(), groups=("launcher",)) == {}


def test_variables_are_those_of_hosts_that_there_are():
    hostvars = {"storage01": {"cluster_management": {"address": "10.0.0.9"}}}
    assert action._variables(hostvars, "storage01") == hostvars["storage01"]
    assert action._variables(hostvars, "somebody") == {}


class Lazy(list):
    """As Ansible gives a value that has templates: whoever looks at it finds what is wrong."""

    def __iter__(self):
        raise AnsibleUndefinedVariable("object of type 'dict' has no attribute 'fast'")


def test_a_server_that_the_play_is_not_for_may_have_addresses_by_its_facts(monkeypatch):
    """Variables of it that cannot be templated are no failure of those that mount from it."""
    given: dict[str, Any] = {}

    def execute(self, name, module_args, task_vars):
        given.update(module_args)
        return {}

    monkeypatch.setattr(action.ActionModule, "_execute_module", execute)
    monkeypatch.setattr(action.ActionBase, "run", lambda self, tmp, task_vars: {})
    of_servers = {"datasets": "storage01", "scratch": "storage02"}
    mounted = [
        served(name, host=of, source=f"{of}:/srv/{name}", purpose=name).as_variable()
        for name, of in of_servers.items()
    ]
    hostvars = {
        "storage01": {"cluster_management": {"address": "10.0.0.9"}, ADDRESSES: Lazy(["x"])},
        "storage02": {"cluster_management": {"address": "10.0.0.8"}},
    }
    task_vars = {
        "groups": {"compute": ["node01"], "storage": list(hostvars)},
        "group_names": ["compute"],
        "inventory_hostname": "node01",
        "hostvars": hostvars,
    }
    it = action.ActionModule.__new__(action.ActionModule)
    it._task = SimpleNamespace(args={"filesystems": mounted})
    assert it.run(task_vars=task_vars) == {}
    assert given["servers"] == {"storage01": [], "storage02": ["10.0.0.8"]}
