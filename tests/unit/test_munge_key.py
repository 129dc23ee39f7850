# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The munge key on the controller: made once, private, and passed to a host only when it writes."""

from __future__ import annotations

import base64
import stat
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible import constants as C
from ansible_collections.baremetal.mpi_roce.plugins.action import slurm as munge_key
from ansible_collections.baremetal.mpi_roce.plugins.action.slurm import ABSENT, ActionModule
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.slurm.munge import digest
from ansible_collections.baremetal.mpi_roce.plugins.modules.slurm import ARGUMENTS
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils import look


def test_it_is_made_once_and_private(tmp_path: Path) -> None:
    path = tmp_path / "state/cluster/munge.key"
    assert munge_key.read(path) == b""
    key = munge_key.made(path)
    assert len(key) == 1024 and len({*key}) > 200
    assert munge_key.made(path) == munge_key.read(path) == key
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent)]
    assert modes == [0o600, 0o700]
    assert [each.name for each in path.parent.iterdir()] == ["munge.key"]


def test_hosts_that_make_it_at_the_same_time_get_the_same_key(tmp_path: Path) -> None:
    """In processes, as Ansible has one for each host."""
    path = tmp_path / "munge.key"
    for _round in range(10):
        with ProcessPoolExecutor(8) as pool:
            keys = set(pool.map(munge_key.made, [path] * 8))
        assert len(keys) == 1
        path.unlink()


@pytest.mark.parametrize(("size", "mode"), [(31, 0o600), (1025, 0o600), (64, 0o640), (64, 0o604)])
def test_a_key_that_munge_or_others_may_not_use_is_refused(
    tmp_path: Path, size: int, mode: int
) -> None:
    path = tmp_path / "munge.key"
    path.write_bytes((b"secret" * 200)[:size])
    path.chmod(mode)
    with pytest.raises(munge_key.MungeKeyError) as caught:
        munge_key.made(path)
    assert str(path) in str(caught.value) and "secret" not in str(caught.value)


def run(
    path: Path, packages: str, *, check_mode: bool = False, **variables: Any
) -> tuple[dict[str, Any], Any]:
    """The arguments of the module, and the result of the action."""
    given: dict[str, Any] = {}
    action: Any = object.__new__(ActionModule)
    args = {"packages": packages, "munge_key": str(path), "host": "node01"}
    args["reached"] = variables.pop("reached", [])
    action._task = SimpleNamespace(args=args, check_mode=check_mode)

    def execute(_module: str, module_args: dict[str, Any], **_named: Any) -> dict[str, Any]:
        given.update(module_args)
        return {"changed": False}

    action._execute_module = execute
    return given, action.act(variables)


@pytest.mark.parametrize(
    ("host", "reached"), [("l1", ["l1", "n1", "n2"]), ("n1", ["l1", "n1"]), ("n3", ["l1", "n1"])]
)
def test_hosts_that_the_look_found_unchanged_are_reached(
    host: str, reached: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(C, "DEFAULT_LOCAL_TMP", str(tmp_path))
    for name in ("l1", "n2"):
        look.keep(name, {"slurm": {"checks": []}})
    look.keep("n3", {"os": {"checks": []}})
    groups = {"launcher": ["l1"], "compute": ["n1", "n2", "n3"]}
    given, _result = run(
        tmp_path / "key", "existing", inventory_hostname=host, groups=groups, reached=["n1"]
    )
    assert sorted(given["reached"]) == reached


def test_a_host_gets_it_only_outside_check_mode(tmp_path: Path) -> None:
    path = tmp_path / "munge.key"
    given, _result = run(path, "distribution", check_mode=True)
    assert (given["munge_digest"], "munge_key" in given, path.exists()) == (ABSENT, False, False)
    given, _result = run(path, "distribution")
    key = path.read_bytes()
    assert base64.b64decode(given["munge_key"]) == key
    assert given["munge_digest"] == digest(key)
    given, _result = run(path, "distribution", check_mode=True)
    assert (given["munge_digest"], "munge_key" in given) == (digest(key), False)


def test_a_slurm_of_the_site_gets_no_key(tmp_path: Path) -> None:
    path = tmp_path / "munge.key"
    given, _result = run(path, "existing")
    assert not path.exists() and {"munge_key", "munge_digest"}.isdisjoint(given)


def test_a_key_that_cannot_be_read_stops_before_the_host(tmp_path: Path) -> None:
    path = tmp_path / "munge.key"
    path.mkdir()
    given, result = run(path, "distribution")
    assert (given, result["failed"], result["layer"]) == ({}, True, "slurm")
    assert str(path) in result["msg"]


def test_the_argument_is_not_logged() -> None:
    specification: dict[str, Any] = dict(ARGUMENTS)
    assert specification["munge_key"]["no_log"] is True
