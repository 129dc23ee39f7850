# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Containers: podman's arguments, when a node is recreated, and reports of failed boots."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

import pytest
from ansible_collections.baremetal.bed.plugins.module_utils import nodes
from ansible_collections.baremetal.bed.plugins.module_utils.containers import (
    Container,
    Podman,
    choose_limits,
    choose_runtime,
    parse_containers,
    podman_run,
    specification,
)
from ansible_collections.baremetal.bed.plugins.module_utils.inventory import (
    VirtualError,
)
from ansible_collections.baremetal.bed.plugins.module_utils.nodes import (
    ExistingHost,
    Work,
    plan_work,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result

NODE = Container("node01", "10.99.0.11", "mgmt0", "sha256:1")
KEY = "ssh-ed25519 AAAA controller"


def command(node: Container = NODE, key: str = KEY, **options: Any) -> list[str]:
    options = {"runtime": None, "limits": [], **options}
    return podman_run("test", node, key, **options)


def following(words: Sequence[str], option: str) -> list[str]:
    return [after for word, after in zip(words, words[1:]) if word == option]


def test_a_node_lives_in_its_own_namespace_under_its_own_name() -> None:
    words = command(runtime="runc", limits=["nofile=5:5"])
    assert words[:4] == ["podman", "--runtime", "runc", "run"]
    assert words[-1] == "sha256:1"
    assert following(words, "--name") == ["test.node01"]
    assert following(words, "--hostname") == ["node01"]
    assert following(words, "--network") == ["ns:/run/netns/test.node01"]
    assert following(words, "--restart") == ["always"]
    assert following(words, "--ulimit") == ["nofile=5:5"]
    assert "SYS_TIME" not in following(words, "--cap-add")
    assert "VIRTUAL_NODE_MANAGEMENT=mgmt0" in following(words, "--env")
    assert "baremetal.mpi_roce.cluster=test" in following(words, "--label")


@pytest.mark.parametrize(
    "other",
    [
        command(replace(NODE, image="sha256:2")),
        command(replace(NODE, interface="eth0")),
        command(replace(NODE, release="26.04")),
        command(replace(NODE, folder="/a/switch")),
        command(replace(NODE, folder="/a/switch", digest="of other contents")),
        command(key="another"),
        command(runtime="crun"),
        command(limits=["memlock=-1:-1"]),
    ],
)
def test_every_setting_is_in_the_specification(other: list[str]) -> None:
    assert specification(other) != specification(command())


def test_a_switch_has_its_folder() -> None:
    words = command(replace(NODE, folder="/state/switches/leaf1", digest="1"))
    assert following(words, "--volume") == ["/state/switches/leaf1:/etc/virtual-switch"]
    assert specification(words) != specification(command(replace(NODE, folder="/state/x")))


def test_only_what_differs_is_made_anew() -> None:
    wanted = {name: command(replace(NODE, name=name)) for name in ("same", "other", "off", "new")}
    found = [
        ExistingHost("same", specification(wanted["same"]), running=True),
        ExistingHost("other", "something else", running=True),
        ExistingHost("off", specification(wanted["off"]), running=False),
        ExistingHost("gone", "whatever", running=True),
    ]
    work = plan_work({name: specification(words) for name, words in wanted.items()}, found)
    assert (work.remove, work.create, work.start) == (("other", "gone"), ("other", "new"), ("off",))
    assert work.lines[0] == "remove other"


def listed(state: str, pid: int = 0) -> str:
    labels = {"baremetal.mpi_roce.specification": "f1"}
    entry = {"Names": ["test.node01"], "State": state, "Labels": labels, "Pid": pid, "Id": "f00d"}
    return json.dumps([entry])


def test_podman_ps_is_read(tmp_path: Path) -> None:
    (tmp_path / "proc/12").mkdir(parents=True)
    (tmp_path / "proc/12/cgroup").write_text("0::/machine.slice/libpod-f00d.scope/init.scope\n")
    assert parse_containers(listed("exited")) == [ExistingHost("test.node01", "f1", running=False)]
    alive = parse_containers(listed("running", 12), tmp_path)
    assert alive == [ExistingHost("test.node01", "f1", running=True)]
    assert parse_containers("") == []
    assert parse_containers("null") == []


@pytest.mark.parametrize("state", ["running", "stopping"])
@pytest.mark.parametrize("other", [None, "0::/user.slice\n"])
def test_podman_may_not_have_noticed_a_death(
    tmp_path: Path, state: str, other: Optional[str]
) -> None:
    if other:  # the id was reused by another process
        (tmp_path / "proc/12").mkdir(parents=True)
        (tmp_path / "proc/12/cgroup").write_text(other)
    (found,) = parse_containers(listed(state, 12), tmp_path)
    work = plan_work({"test.node01": "f1"}, [found])
    assert (work.remove, work.create) == (("test.node01",), ("test.node01",))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/self/status").write_text("Name:\tx\nCapEff:\t000001fffeffffff\n")
    (tmp_path / "proc/sys/kernel/pid_max").write_text("100\n")
    return tmp_path


def test_limits_stay_within_what_the_host_allows(root: Path) -> None:
    limits = choose_limits(root)
    assert limits[0].startswith("nofile=")
    assert limits[1] == "nproc=100:100"


def test_limits_are_lifted_where_they_can_be(root: Path) -> None:
    (root / "proc/self/status").write_text("CapEff:\t000001ffffffffff\n")
    assert choose_limits(root) == ["memlock=-1:-1"]


def test_the_runtime_fits_the_host(root: Path) -> None:
    assert choose_runtime(root) == "runc"
    (root / "sys/fs/cgroup").mkdir(parents=True)
    (root / "sys/fs/cgroup/cgroup.controllers").touch()
    assert choose_runtime(root) is None


class FakePodman:
    """Answers `podman exec` like a booting node, and counts the calls."""

    def __init__(self, states: Sequence[str], failed: str = "") -> None:
        self.states = list(states)
        self.failed = failed
        self.calls: list[list[str]] = []
        self.taken = False

    def __call__(
        self, argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None
    ) -> Result:
        words = list(argv)
        self.calls.append(words)
        rc, shown, messages = 0, "", ""
        if "is-system-running" in words:
            shown = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        elif "list-units" in words:
            shown = self.failed
        elif "cat" in words:
            shown = "ssh-ed25519 KEY root@node01\n"
        elif words[1] == "run" and self.taken:
            rc, messages, self.taken = 125, 'the name "test.node01" is already in use', False
        return Result(tuple(argv), rc, shown, messages)


@pytest.fixture
def greets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "answers_ssh", lambda address: True)


def test_waiting_returns_the_host_key(greets: None) -> None:
    fake = FakePodman(["", "starting", "running"])
    keys = Podman("test", fake, sleep=lambda _: None).wait([NODE], 10)
    assert keys == {"node01": "ssh-ed25519 KEY"}


def test_a_degraded_node_is_named_with_its_unit(greets: None) -> None:
    fake = FakePodman(["degraded"], "chrony.service loaded failed failed NTP\n")
    with pytest.raises(VirtualError, match=r"node01: systemd is degraded.*chrony\.service"):
        Podman("test", fake, sleep=lambda _: None).wait([NODE], 10)


def test_a_node_that_never_answers_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "answers_ssh", lambda address: False)
    fake = FakePodman(["running"])
    with pytest.raises(VirtualError, match=r"node01.*sshd at 10\.99\.0\.11: no response"):
        Podman("test", fake, sleep=lambda _: None).wait([NODE], 0)


def test_old_containers_go_before_new_ones_come() -> None:
    fake = FakePodman(["running"])
    work = plan_work({"test.node01": "new"}, [ExistingHost("test.node01", "old", running=True)])
    Podman("test", fake).apply(work, {"test.node01": command()})
    assert [words[1] for words in fake.calls] == ["rm", "run"]
    assert fake.calls[0][-1] == "test.node01"


def test_what_a_killed_creation_left_is_replaced() -> None:
    fake = FakePodman(["running"])
    fake.taken = True
    work = Work(create=("test.node01",))
    Podman("test", fake).apply(work, {"test.node01": command()})
    verbs = [words[1] for words in fake.calls]
    assert verbs == ["run", "rm", "run"]
