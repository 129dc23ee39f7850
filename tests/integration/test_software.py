# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The RDMA stack and the GPU stack on nodes of both families, with real package managers.

One story in the order of this file: it begins on fresh nodes, and each test goes on where the one
before it left them. Packages, tools and GPUs are stand-ins (tests/stand_ins/README.md).
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.nodes import BIN, TOP, Nodes, Run
from tests.stand_ins.build import made
from tests.stand_ins.inventory import write
from tests.stand_ins.versions import FIRST, NEWER, NEXT

pytestmark = pytest.mark.nodes

PLAYBOOK = "tests/stand_ins/layers.yml"
HOME = "/var/lib/gpu-stand-in"
FIRSTS = {"ubuntu": "node01", "el": "node03"}
"""The node of each family to which things happen; the other one of the family is left in peace."""
SECONDS = {"ubuntu": "node02", "el": "node04"}
TAMPER = {
    # A repository whose list is another one than the one that was signed.
    "ubuntu": "sed -i 's/^Description:/Description: changed,/' {}/Release {}/InRelease",
    "el": "sed -i 's|<revision>|<revision>1|' {}/repodata/repomd.xml",
}
CUDA = {"ubuntu": "cuda/ubuntu2404/x86_64", "el": "cuda/rhel9/x86_64"}
VERSION_OF = {
    "ubuntu": "dpkg-query -W -f '${{Package}} ${{db:Status-Status}} ${{Version}}\\n' {}",
    "el": "rpm -q --qf '%{{NAME}} installed %{{VERSION}}-%{{RELEASE}}\\n' {}",
}
ALL_PACKAGES = {
    "ubuntu": "dpkg-query -W -f '${Package} ${Version} ${db:Status-Abbrev}\\n'",
    "el": "rpm -qa | sort",
}
BY_HAND = {
    "ubuntu": "apt-get -q update; DEBIAN_FRONTEND=noninteractive apt-get -q -y dist-upgrade",
    "el": "dnf -q -y --refresh upgrade",
}
EXPLICIT = {
    "ubuntu": "apt-get -q -y install nvidia-fabricmanager={version}-1",
    "el": "dnf -q -y install nvidia-fabricmanager-{version}-1",
}
STOPPED = "fabric manager stopped"
FAULTS: tuple[tuple[str, dict[str, tuple[str, str, str, str]]], ...] = (
    (
        PLAYBOOK,
        {
            "missing": ("gpu_present", "gpu5", "failed", "reseat"),
            "fabric-in-progress": ("gpu_fabric", "all 8 GPUs", "failed", "nvlsm.log"),
            "fabric-failed": ("gpu_fabric", "gpu6", "failed", "nvidia-smi -r"),
            "ecc": ("gpu_ecc", "gpu3", "failed", "dcgmi diag"),
        },
    ),
    (
        "playbooks/verify.yml",
        {
            "remap-pending": ("gpu_row_remap", "gpu4", "reboot", "which a reboot makes"),
            "link-x8": ("gpu_pcie", "gpu1", "failed", "64 GT/s x8"),
            STOPPED: ("gpu_fabric_manager", "", "failed", "systemctl start"),
            "nvlink-down": ("gpu_nvlinks", "gpu0", "failed", "down: 11"),
        },
    ),
)
"""Playbook, and a state of tests/hardware/gpu_states.py for each node: the one finding of it, and
words of its remedy. A run of the layer starts a fabric manager that somebody stopped."""
MISMATCH = ("gpu_driver_version", "", "reboot")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Four nodes with stand-ins for everything that a B300 node has."""
    built = made()
    folder = tmp_path_factory.mktemp("software") / "inventory"
    nodes = Nodes(write(folder, built, "vnsoftware", 237))
    nodes.state(present=False)
    nodes.state(present=True)
    nodes.play("tests/stand_ins/prepare.yml", environment={"STAND_INS": str(built)})
    yield nodes
    if not os.environ.get("KEEP_NODES"):
        nodes.state(present=False)


@pytest.fixture(params=["ubuntu", "el"])
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def software(nodes: Nodes, **changes: Any) -> str:
    """The set of the inventory with changes, as an extra variable."""
    found = copy.deepcopy(nodes.of("node01")["cluster_software"])
    for key, value in changes.items():
        found[key] = {**found[key], **value} if isinstance(value, dict) else value
    return f"--extra-vars={json.dumps({'cluster_software': found})}"


def checks(run: Run, name: str, layer: str = "gpu") -> list[dict[str, Any]]:
    return list(run.report["layers"][layer]["hosts"][name]["checks"])


def bad(run: Run, name: str) -> list[dict[str, Any]]:
    """What does not hold, of every layer that ran."""
    found = [each for layer in run.report["layers"] for each in checks(run, name, layer)]
    return [each for each in found if each["status"] not in ("ok", "not_applicable")]


def failed(run: Run, name: str) -> list[str]:
    return [each["name"] for each in bad(run, name) if each["status"] == "failed"]


def packages(nodes: Nodes, name: str) -> str:
    return str(nodes.on(name).check_output(ALL_PACKAGES[nodes.of(name)["virtual_nodes_family"]]))


def version(nodes: Nodes, name: str, package: str) -> str:
    """Installed version without epoch and revision; empty when it is not installed."""
    command = VERSION_OF[nodes.of(name)["virtual_nodes_family"]].format(package)
    words = str(nodes.on(name).run(command).stdout).split()
    found = words[2] if words[1:2] == ["installed"] else ""
    return found.split(":")[-1].rsplit("-", 1)[0]


def publish(nodes: Nodes, edition: str, *names: str) -> None:
    for name in names or nodes.group("compute"):
        nodes.on(name).check_output("ln -sfn /srv/stand-ins/%s /srv/stand-ins/now", edition)


def limit(*names: str) -> str:
    return f"--limit={','.join(names)}"


def test_check_mode_on_fresh_nodes_tells_and_writes_nothing(nodes: Nodes) -> None:
    names = nodes.group("compute")
    before = {name: packages(nodes, name) for name in names}
    run = nodes.play(PLAYBOOK, "--check", "--diff")
    assert run.total("failed") == 0, run.output
    assert run.total("changed") >= len(names)
    assert {name: packages(nodes, name) for name in names} == before
    for name in names:
        assert nodes.on(name).run("find /etc -name '*baremetal*'").stdout == ""


def test_a_key_of_another_checksum_is_refused_before_any_change(nodes: Nodes) -> None:
    before = {name: packages(nodes, name) for name in nodes.group("compute")}
    repositories = copy.deepcopy(nodes.of("node01")["cluster_software"]["repositories"])
    repositories["doca"]["key_sha256"] = repositories["cuda"]["key_sha256"]
    run = nodes.play(PLAYBOOK, software(nodes, repositories=repositories), expect=2)
    assert repositories["cuda"]["key_sha256"][:12] in run.output
    assert {name: packages(nodes, name) for name in before} == before


def test_installed_from_nothing_and_interrupted_on_one_node_of_each_family(nodes: Nodes) -> None:
    """There a script of a package kills the package manager, in the middle of the driver."""
    for name in FIRSTS.values():
        nodes.on(name).check_output("touch %s/kill-package-manager", HOME)
    run = nodes.play(PLAYBOOK, expect=2)
    assert run.hosts_with("failed") == {*FIRSTS.values()}, run.output
    for name in FIRSTS.values():
        assert not nodes.on(name).file(f"{HOME}/kill-package-manager").exists
    for name in SECONDS.values():
        assert failed(run, name) == []
        for package in ("nvidia-fabricmanager", "nvidia-imex", "libnvidia-nscq"):
            assert version(nodes, name, package) == FIRST.version


def test_an_interrupted_installation_is_repaired_by_running_again(nodes: Nodes) -> None:
    run = nodes.play(PLAYBOOK)
    assert run.hosts_with("changed") == {*FIRSTS.values()}, run.output
    for name in nodes.group("compute"):
        assert failed(run, name) == []
        assert version(nodes, name, "nvidia-fabricmanager") == FIRST.version
    left = nodes.on(FIRSTS["ubuntu"]).check_output(
        "dpkg --audit; dpkg -l | grep '^[hi][^i]' || true"
    )
    assert left == ""
    doubled = nodes.on(FIRSTS["el"]).check_output("rpm -qa --qf '%{NAME}\\n' | sort | uniq -d")
    assert set(doubled.split()) <= {"gpg-pubkey"}


def test_an_unchanged_run_changes_nothing_in_ten_executions(nodes: Nodes) -> None:
    run = nodes.play(PLAYBOOK)
    assert run.total("changed") == 0, run.output
    line = next(line for line in run.output.splitlines() if "remote module executions" in line)
    assert int(line.split(":")[1].split()[0]) <= 10
    checked = nodes.play(PLAYBOOK, "--check", "--diff")
    assert checked.total("changed") == 0, checked.output
    assert "+++ after" not in checked.output


def test_nothing_moves_when_the_vendor_publishes(nodes: Nodes, family: str) -> None:
    """Neither by running again nor by hand; and who asks for a held package by name is refused."""
    publish(nodes, "all")
    name = FIRSTS[family]
    before = packages(nodes, name)
    run = nodes.play(PLAYBOOK, limit(name))
    assert run.total("changed") == 0, run.output
    nodes.on(name).run(BY_HAND[family])
    assert packages(nodes, name) == before
    asked = nodes.on(name).run(EXPLICIT[family].format(version=NEWER.version))
    assert asked.rc != 0 or "nothing to do" in asked.stdout.lower(), asked.stdout
    assert packages(nodes, name) == before


def test_a_repository_that_is_not_what_was_signed_stops_the_node_untouched(nodes: Nodes) -> None:
    """Of the next branch nothing comes in, and the pins of the old one stay."""
    pins = "cat /etc/apt/preferences.d/* /etc/dnf/plugins/versionlock.list 2>/dev/null; true"
    names = [*FIRSTS.values()]
    before = {name: (packages(nodes, name), nodes.on(name).check_output(pins)) for name in names}
    assert all("580.95.05" in held for _packages, held in before.values())
    for family, name in FIRSTS.items():
        folder = f"/srv/stand-ins/bad/{CUDA[family]}"
        nodes.on(name).check_output(
            f"rm -rf /srv/stand-ins/bad; cp -a /srv/stand-ins/all /srv/stand-ins/bad; "
            f"{TAMPER[family].format(folder, folder)}"
        )
    publish(nodes, "bad", *names)
    run = nodes.play(PLAYBOOK, limit(*names), upgrade(nodes), expect=2)
    assert run.hosts_with("failed") == {*names}, run.output
    after = {name: (packages(nodes, name), nodes.on(name).check_output(pins)) for name in names}
    assert after == before
    publish(nodes, "all")


def upgrade(nodes: Nodes) -> str:
    """The set of the next branch."""
    return software(
        nodes, driver={"version": NEXT.version}, cuda=".".join(NEXT.cuda.split(".")[:2])
    )


@pytest.fixture
def well(nodes: Nodes) -> Iterator[None]:
    """Every node has the set of the inventory and is healthy, whatever happened before; and is
    healthy again afterwards, whatever happens now."""
    settle(nodes, *nodes.group("compute"))
    yield
    for name in nodes.group("compute"):
        be(nodes, name, "healthy")


def be(nodes: Nodes, name: str, state: str) -> None:
    """Have the GPUs of a node in this state; to unpack one takes a moment."""
    nodes.on(name).check_output("[ $(gpu-stand-in) = %s ] || gpu-stand-in state %s", state, state)


def settle(nodes: Nodes, *names: str) -> None:
    """Bring back those nodes that are not what the inventory says: none, where nothing failed."""
    publish(nodes, "all", *names)
    others = []
    for name in names:
        be(nodes, name, "healthy")
        nodes.on(name).check_output("rm -f %s/kill-package-manager", HOME)
        told = nodes.on(name).run("nvidia-smi").stdout
        installed = version(nodes, name, "nvidia-fabricmanager")
        if installed != FIRST.version or f"Driver Version: {FIRST.version}" not in told:
            others.append(name)
    if others:
        allowed = "--extra-vars={nvidia_gpu_allow_downgrade: true}"
        nodes.play(PLAYBOOK, limit(*others), allowed, expect=None)
        reboot(nodes, *others)
        nodes.play(PLAYBOOK, limit(*others))


@pytest.mark.usefixtures("well")
def test_every_fault_is_found_once_on_a_node(nodes: Nodes) -> None:
    """Another one on each node at the same time; of each its one finding with its remedy."""
    names = nodes.group("compute")
    at_once = "--extra-vars=nvidia_gpu_fabric_wait=0"
    for playbook, faults in FAULTS:
        placed = dict(zip(names, faults, strict=True))
        for name, state in placed.items():
            if state == STOPPED:
                nodes.on(name).check_output("systemctl stop nvidia-fabricmanager")
                state = "healthy"
            be(nodes, name, state)
        run = nodes.play(playbook, "--limit=compute", "--tags=gpu", at_once, expect=None)
        seen = {
            placed[name]: [(each["name"], each["subject"], each["status"]) for each in found]
            for name, found in {name: bad(run, name) for name in names}.items()
        }
        assert seen == {state: [finding[:3]] for state, finding in faults.items()}, run.output
        for name, state in placed.items():
            assert faults[state][3] in bad(run, name)[0]["reason"]
            be(nodes, name, "healthy")
    run = nodes.play(PLAYBOOK, "--tags=gpu", at_once)
    assert run.hosts_with("changed") == {name for name in names if placed[name] == STOPPED}
    assert {name: bad(run, name) for name in names} == {name: [] for name in names}


def test_an_upgrade_to_the_next_branch_is_planned_and_waits_for_the_reboot(nodes: Nodes) -> None:
    """First on one node of each family; on the others nothing happens."""
    names = [*FIRSTS.values()]
    others = {name: packages(nodes, name) for name in SECONDS.values()}
    run = nodes.play(PLAYBOOK, limit(*names), upgrade(nodes), expect=None)
    for name in names:
        assert version(nodes, name, "nvidia-fabricmanager") == NEXT.version
        assert version(nodes, name, "nvidia-persistenced") == NEXT.version
        assert "reboot" in {each["status"] for each in checks(run, name)}, run.output
        assert failed(run, name) == []
        recorded = nodes.on(name).file("/var/lib/baremetal-mpi-roce/reboot-required.d/gpu.json")
        assert recorded.exists
        told = nodes.on(name).run("nvidia-smi")
        assert (told.rc, "Driver/library version mismatch" in told.stdout) == (18, True)
        order = installed_order(nodes, name)
        assert order.index("nvidia-fabricmanager") < order.index("cuda-toolkit-13-1")
        found = [(each["name"], each["subject"], each["status"]) for each in bad(run, name)]
        # DOCA's own driver waits for a reboot of its own, since its installation.
        assert [each for each in found if each[0] != "rdma_driver_running"] == [MISMATCH]
    assert {name: packages(nodes, name) for name in others} == others


def installed_order(nodes: Nodes, name: str) -> list[str]:
    """Packages in the order in which the package manager says that it installed them last."""
    if nodes.of(name)["virtual_nodes_family"] == "ubuntu":
        lines = nodes.on(name).check_output("grep ' status installed ' /var/log/dpkg.log")
        words = [line.split()[4].split(":")[0] for line in lines.splitlines()]
    else:
        # Not by the time, which has whole seconds: by the record's number, which only grows.
        lines = nodes.on(name).check_output("rpm -qa --qf '%{DBINSTANCE} %{NAME}\\n'")
        numbered = sorted((int(line.split()[0]), line.split()[1]) for line in lines.splitlines())
        words = [word for _number, word in numbered]
    last = {word: place for place, word in enumerate(words)}
    return sorted(last, key=lambda word: last[word])


def test_after_the_reboot_everything_is_of_the_next_branch(nodes: Nodes) -> None:
    names = [*FIRSTS.values()]
    reboot(nodes, *names)
    run = nodes.play(PLAYBOOK, limit(*names), upgrade(nodes))
    for name in names:
        assert bad(run, name) == []
        assert (
            not nodes.on(name).file("/var/lib/baremetal-mpi-roce/reboot-required.d/gpu.json").exists
        )
        assert f"Driver Version: {NEXT.version}" in nodes.on(name).check_output("nvidia-smi")
    again = nodes.play(PLAYBOOK, limit(*names), upgrade(nodes), "--check")
    assert again.total("changed") == 0, again.output


def reboot(nodes: Nodes, *names: str) -> None:
    command = [
        *(BIN / "ansible", ",".join(names), f"--inventory={nodes.inventory}", "--become"),
        "--module-name=ansible.builtin.reboot",
    ]
    subprocess.run(command, cwd=TOP, env=nodes.environment, stdin=subprocess.DEVNULL, check=True)


def test_a_downgrade_is_refused_with_the_way_out_and_done_when_asked_for(nodes: Nodes) -> None:
    names = [*FIRSTS.values()]
    before = {name: packages(nodes, name) for name in names}
    refused = nodes.play(PLAYBOOK, limit(*names), expect=2)
    assert refused.hosts_with("failed") == {*names}
    assert "nvidia_gpu_allow_downgrade" in refused.output
    assert {name: packages(nodes, name) for name in names} == before
    allowed = "--extra-vars={nvidia_gpu_allow_downgrade: true}"
    nodes.play(PLAYBOOK, limit(*names), allowed, expect=None)
    for name in names:
        assert version(nodes, name, "nvidia-fabricmanager") == FIRST.version
    reboot(nodes, *names)
    run = nodes.play(PLAYBOOK, limit(*names))
    for name in names:
        assert bad(run, name) == []
