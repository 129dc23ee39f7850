# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Code shared by the modules: results of actions, and builds of missing images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from ansible_collections.baremetal.bed.plugins.module_utils import image
from ansible_collections.baremetal.bed.plugins.module_utils.inventory import (
    VirtualError,
)
from ansible_collections.baremetal.bed.plugins.module_utils.nodes import (
    ExistingHost,
    Hosts,
    act,
    login_files,
)

from tests.unit.ended import Ended, Module

FOUND = {"image": "localhost/node:1f0c"}
STEP = {"name": "build the image", "seconds": 19.2}


class Two(Hosts):
    """Two hosts that are up."""

    kind = "containers"
    removed: Sequence[str] = ()

    def found(self) -> list[ExistingHost]:
        return [ExistingHost(name, "", running=True) for name in ("a", "b")]

    def remove(self, names: Sequence[str]) -> None:
        self.removed = names

    def inside(self, name: str, argv: Sequence[str]) -> str:
        raise AssertionError("no program runs in a host to create or remove it")

    def remark(self, name: str) -> str:
        raise AssertionError("asked only if a host does not come up")


def acted(hosts: Hosts, present: Any = None, *, check_mode: bool = False) -> Ended:
    module: Any = Module(check_mode)
    module.params = {"state": "present" if present else "absent"}
    with pytest.raises(Ended) as caught:
        act(module, hosts, present)
    return caught.value


def test_actions_are_reported_as_lines_and_as_a_diff() -> None:
    done = acted(Two("v"), lambda: {"actions": ["create a", "start b"], "known_hosts": ""})
    assert not done.failed
    assert isinstance(done.result.pop("seconds"), float)
    assert done.result == {
        "changed": True,
        "actions": ["create a", "start b"],
        "known_hosts": "",
        "diff": {
            "before_header": "containers of v",
            "after_header": "containers of v",
            "before": "",
            "after": "create a\nstart b\n",
        },
    }


def test_absent_removes_all_and_nothing_in_check_mode() -> None:
    hosts = Two("v")
    assert acted(hosts, check_mode=True).result["actions"] == ["remove a", "remove b"]
    assert not hosts.removed
    assert acted(hosts).result["changed"]
    assert hosts.removed == ["a", "b"]


def test_an_error_is_reported() -> None:
    def fail() -> Any:
        raise VirtualError("no image")

    done = acted(Two("v"), fail)
    assert done.failed
    assert done.result == {"msg": "containers of v: no image"}


class Images:
    """An image store, with or without the image, and the lock of builds."""

    def __init__(self, there: bool) -> None:
        self.there = there
        self.made = 0
        self.locked = False

    @contextmanager
    def lock(self) -> Iterator[None]:
        self.locked = True
        yield
        self.locked = False

    def make(self) -> list[dict[str, Any]]:
        assert self.locked
        self.made += 1
        return [STEP]


def built(
    images: Images, monkeypatch: pytest.MonkeyPatch, *, check_mode: bool = False, make: Any = None
) -> Ended:
    monkeypatch.setattr(image, "one_builder", images.lock)
    with pytest.raises(Ended) as caught:
        image.build(
            Module(check_mode),  # type: ignore[arg-type]
            FOUND["image"],
            exists=lambda: images.there,
            make=make or images.make,
        )
    return caught.value


@pytest.mark.parametrize("check_mode", [True, False])
def test_an_image_that_is_there_is_not_built(
    monkeypatch: pytest.MonkeyPatch, check_mode: bool
) -> None:
    images = Images(there=True)
    done = built(images, monkeypatch, check_mode=check_mode)
    assert done.result == {"changed": False, "build": False, "steps": [], **FOUND}
    assert images.made == 0


def test_a_missing_image_is_built_and_reported_in_check_mode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    images = Images(there=False)
    diff = {"before": "", "after": "localhost/node:1f0c\n"}
    messages = {"changed": True, "build": True, "diff": diff, **FOUND}
    assert built(images, monkeypatch, check_mode=True).result == messages
    assert images.made == 0
    done = built(images, monkeypatch)
    assert done.result == {**messages, "steps": [STEP]}
    assert images.made == 1


def test_what_another_build_made_meanwhile_is_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    done = built(Images(there=False), monkeypatch, make=list)
    assert (done.result["changed"], done.result["build"], done.result["steps"]) == (
        False,
        False,
        [],
    )


def test_a_build_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> list[dict[str, Any]]:
        raise VirtualError("could not import it")

    done = built(Images(there=False), monkeypatch, make=make)
    assert done.failed
    assert done.result == {"msg": "could not build localhost/node:1f0c: could not import it"}


def test_the_files_of_a_login_have_each_option_in_its_place() -> None:
    class Node:
        name, address = "node01", "10.0.0.11"

    files = login_files([Node()], {"node01": "ssh-ed25519 AAAA"}, "/keys")
    assert files["known_hosts"] == "10.0.0.11,node01 ssh-ed25519 AAAA\n"
    lines = files["ssh_config"].split("\n")
    for line in (
        "User ops",
        "IdentityFile /keys/id_ed25519",
        "UserKnownHostsFile /keys/known_hosts",
    ):
        assert f"  {line}" in lines
