# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Each look finds its faults under the checks of the layers, from canned states of a node."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import (
    FAILED,
    NOT_APPLICABLE,
    OK,
    Check,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import Node
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.gpu import reading
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.node_check import (
    CHECK,
    EPILOG,
    PERIODIC,
    PROLOG,
    kernel,
    looks,
    verdict,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.node_check.looks import Sight
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.node_check.settings import Settings
from hypothesis import given
from hypothesis import strategies as st

from tests.hardware.gpu_states import NICS, VERSION, save, state
from tests.hardware.trees import build_sys
from tests.unit.gpu_tools import MODEL_GPUS, MODEL_RAILS, Tools, surveyed, tree_of
from tests.unit.rails_host import FakeHost, rail
from tests.unit.test_gpu_states import FINDINGS

DRIVER = {"version": VERSION, "modules": "open", "manage": True}


def sight(root: Path, mode: str = CHECK, *, container: str | None = None, **given: Any) -> Sight:
    node = Node("node_check", root, unused, container, "boot-1", uid=os.getuid(), gid=os.getgid())
    return Sight(node, Settings(host="node01", **given), mode, now=lambda: 1_800_000_000.0)


def unused(argv: Any, **_more: Any) -> Result:
    raise AssertionError(f"no program is needed: {argv}")


def failed(checks: Any) -> list[tuple[str, str]]:
    return [(each.name, each.subject) for each in checks if each.status not in (OK, NOT_APPLICABLE)]


def named(mode: str, **given: Any) -> list[str]:
    return [look.name for look in looks.looks(sight(Path("/nowhere"), mode, **given))]


# Modes


def test_a_prolog_asks_no_slow_program_and_an_epilog_only_for_leftovers() -> None:
    rails: dict[str, Any] = {"rails": [rail(0)], "container": "podman"}
    assert named(PROLOG, **rails) == ["rails", "hardware", "rates", "kernel", "space"]
    assert named(EPILOG, **rails) == ["leftovers"]
    assert named(CHECK, **rails) == named(PERIODIC, **rails)
    assert {"contract", "gpus", "clock", "files", "system", "units"} < set(named(CHECK, **rails))
    assert "rails" not in named(CHECK, container="podman")


# Rails


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    host = FakeHost(tmp_path)
    host.converge([rail(number) for number in range(3)])
    return host


def of_rails(host: FakeHost) -> list[Check]:
    networkd = {"backend": "networkd"}
    seen = sight(host.root, rails=[rail(number) for number in range(3)], rails_options=networkd)
    return list(looks.rails(seen, host.run)[0])


def test_rails_as_configured_hold(host: FakeHost) -> None:
    host.forget_commands()
    assert failed(of_rails(host)) == [] and host.changing_commands() == []


@pytest.mark.parametrize(
    ("do", "name"),
    [
        (lambda host: host.links["rail1"].update(mtu=1500), "rail_mtu"),
        (lambda host: host.links["rail1"]["addresses"].append("10.9.9.9/24"), "rail_address"),
        (lambda host: host.links["rail1"].update(addresses=[]), "rail_address"),
        (lambda host: host.links["rail1"].update(up=False), "rail_link"),
        (lambda host: host.links["rail1"].update(carrier=False), "rail_link"),
        (lambda host: host.rules.pop(1), "rail_rule"),
        (
            lambda host: host.routes.remove(
                next(route for route in host.routes if route["dev"] == "rail1")
            ),
            "rail_route",
        ),
        (
            lambda host: host.write("proc/sys/net/ipv4/conf/rail1/arp_ignore", "0\n"),
            "rail_arp",
        ),
        (
            lambda host: host.neighbours.append(
                {"dst": "10.100.1.9", "dev": "rail1", "lladdr": "02:00:00:00:00:99"}
            ),
            "rail_neighbour",
        ),
        (
            lambda host: next(host.root.glob("etc/systemd/network/*rail1*.network")).write_text(""),
            "rail_config",
        ),
    ],
)
def test_a_changed_rail_is_found(host: FakeHost, do: Any, name: str) -> None:
    do(host)
    assert (name, "rail1") in failed(of_rails(host))
    assert {subject for _name, subject in failed(of_rails(host))} == {"rail1"}


def test_hardware_is_compared_with_the_model(tmp_path: Path) -> None:
    rails = [{**each, "speed_gbps": 800} for each in MODEL_RAILS]
    given = {"rails": rails, "gpus": MODEL_GPUS}

    def found(name: str) -> list[tuple[str, str]]:
        root = tmp_path / name
        build_sys(name, root / "sys")
        return failed(looks.hardware(sight(root, **given), unused)[0])

    assert found("b300-8x800g") == []
    assert found("b300-missing-nic") == [("rail_nic", "rail3")]
    assert found("b300-nic-x8") == [("rail_pcie", "rail2")]
    assert found("b300-nic-gen5") == [("rail_pcie", "rail6")]


def test_a_node_without_recorded_settings_has_no_contract(tmp_path: Path) -> None:
    assert looks.contract(sight(tmp_path, rails=[rail(0)]), unused) == ([], {})


class Port:
    """The counters of a port that loses its link."""

    def __init__(self, downs: int) -> None:
        self.downs = downs

    def statistics(self, _interface: str) -> dict[str, int]:
        return {"link_down_events_phy": self.downs}


def test_link_downs_count_over_runs_and_only_of_cables(tmp_path: Path) -> None:
    (tmp_path / "sys/class/net/rail0/device").mkdir(parents=True)
    (tmp_path / "sys/class/net/rail1").mkdir()
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/uptime").write_text("90000.0 1.0\n")
    seen = sight(tmp_path, rails=[rail(0), rail(1), rail(2)])
    first, state = looks.link_rates(replace(seen, ethtool=Port(7)), unused)
    assert [(each.subject, each.status) for each in first] == [
        ("rail0", OK),
        ("rail1", NOT_APPLICABLE),
    ]
    known = replace(seen, state={"rates": state})
    assert failed(looks.link_rates(replace(known, ethtool=Port(10)), unused)[0]) == []
    found = looks.link_rates(replace(known, ethtool=Port(11)), unused)[0]
    assert failed(found) == [("node_link_downs", "rail0")]
    assert found[0].found == {"per_hour": 4, "per_day": 4, "in_all": 4}


# GPUs: each state of docs/gpu.md has the same finding here as in the layer gpu

NEXT = {
    "missing": "rma",
    "xid-62": "reset_gpu",
    "ecc": "reset_gpu",
    "remap-pending": "reset_gpu",
    "remap-failure": "rma",
    "link-x8": "rma",
    "nvlink-down": "reset_gpu",
    "requires-reset": "reset_gpu",
    "recovery": "reset_gpu",
    "hung": "drain",
    "nouveau": "reboot",
    "mismatch": "reboot",
    "nvlink5": "reset_gpu",
    "slowdown": "cooling",
    "fabric-manager-stopped": "run_layer",
}


@pytest.mark.parametrize("name", ["healthy", *FINDINGS, "mismatch"])
def test_a_state_of_the_gpus_has_its_finding_and_next_step(name: str, tmp_path: Path) -> None:
    changed = state(name)
    save(changed, tmp_path / "state", tree_of(changed.sys))
    root = tmp_path / "state/root"
    (root / looks.PYNVML).parent.mkdir(parents=True)
    (root / looks.PYNVML).touch()
    seen = sight(root, gpus=MODEL_GPUS, rails=MODEL_RAILS, gpu_driver=DRIVER)
    with mock.patch.object(reading, "survey", lambda path: surveyed(path.resolve())):
        checks = list(looks.gpus(seen, Tools(tmp_path / "state"))[0])
    wanted = [FINDINGS[name][:2]] if name in FINDINGS else []
    found = failed(checks)
    if name == "mismatch":
        assert found == [("gpu_driver_version", "")]
    else:
        assert found == wanted
    findings = verdict.judge("node01", CHECK, checks).findings
    if name in NEXT:
        assert [each.step for each in findings] == [NEXT[name]]


def test_a_node_without_gpus_or_driver_is_not_asked_for_them(tmp_path: Path) -> None:
    assert looks.gpus(sight(tmp_path, gpus=MODEL_GPUS), unused) == ([], {})
    assert looks.gpus(sight(tmp_path, gpu_driver=DRIVER), unused) == ([], {})


# Kernel messages: Linux, mlx5/core/{health,events,cmd}.c, and lines of NVIDIA's driver

PLUGGED = "mlx5_core 0000:11:00.0: Port module event: module 0, Cable plugged"
CABLE = (
    "mlx5_core 0000:11:00.0: Port module event[error]: module 0, Cable error, "
    "Bad or shorted cable/module"
)
HEALTH = (
    "mlx5_core 0000:2f:00.0: poll_health:825:(pid 0): device's health compromised - "
    "reached miss count"
)
HOT = "mlx5_core 0000:46:00.0: temp_warn:180:(pid 0): High temperature on sensors with bit set 0 1"
XID = "NVRM: Xid (PCI:0000:14:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def kmsg(root: Path, *texts: str, first: int = 100, at_s: float = 5000.0) -> None:
    lines = [f"3,{first + n},{int(at_s * 1e6)},-;{text}\n" for n, text in enumerate(texts)]
    path = root / kernel.KMSG
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("6,1,2,-;Linux version\n SUBSYSTEM=pci\n" + "".join(lines))
    (root / "proc").mkdir(exist_ok=True)
    (root / "proc/uptime").write_text("6000.00 1.00\n")


@pytest.mark.parametrize(
    ("texts", "found", "step"),
    [
        ([PLUGGED], [], None),
        ([CABLE, PLUGGED], [("node_nic_messages", "rail0")], "cable"),
        ([HEALTH, CABLE], [("node_nic_messages", s) for s in ("rail0", "rail1")], "cable"),
        ([HEALTH], [("node_nic_messages", "rail1")], "reboot"),
        ([HOT], [("node_nic_messages", "rail2")], "cooling"),
        ([f"evil: {CABLE.replace('mlx5_core', 'mlx5_cor')}"], [], None),
    ],
)
def test_messages_of_nics(texts: list[str], found: Any, step: str, tmp_path: Path) -> None:
    kmsg(tmp_path, *texts)
    rails = [{**rail(n), "pci": pci} for n, pci in enumerate(NICS)]
    checks, remembered = looks.kernel_messages(sight(tmp_path, rails=rails), unused)
    assert failed(checks) == found
    if found:
        assert verdict.judge("n", CHECK, checks).findings[0].step == step
    # They count for an hour, also once the buffer was overwritten, but not after a reboot.
    kmsg(tmp_path)
    again = replace(sight(tmp_path, rails=rails), state={"kernel": remembered})
    assert failed(looks.kernel_messages(again, unused)[0]) == found
    (tmp_path / "proc/uptime").write_text("9000.00 1.00\n")
    assert failed(looks.kernel_messages(again, unused)[0]) == []
    booted = replace(again, node=replace(again.node, boot_id="boot-2"))
    (tmp_path / "proc/uptime").write_text("6000.00 1.00\n")
    assert failed(looks.kernel_messages(booted, unused)[0]) == []


def test_a_prolog_reads_xids_without_nvidia_smi(tmp_path: Path) -> None:
    kmsg(tmp_path, XID)
    given: dict[str, Any] = {"gpus": MODEL_GPUS, "gpu_driver": DRIVER}
    checks, _state = looks.kernel_messages(sight(tmp_path, PROLOG, **given), unused)
    assert failed(checks) == [("gpu_xid", "0000:14:00.0")]
    assert verdict.judge("n", PROLOG, checks).findings[0].step == "reboot"
    ignoring = sight(tmp_path, PROLOG, **given, gpu_health={"xids_ignored": [79]})
    assert failed(looks.kernel_messages(ignoring, unused)[0]) == []
    assert failed(looks.kernel_messages(sight(tmp_path, CHECK, **given), unused)[0]) == []


@given(st.text(), st.dictionaries(st.text(), st.none() | st.lists(st.lists(st.text()))))
def test_any_message_and_any_state_is_read(text: str, known: dict[str, Any]) -> None:
    events = kernel.nic_events(kernel.parse(f"3,1,5,-;{text}\n{text}"))
    assert kernel.judge(kernel.merged({**known, "boot": "b"}, events, "b", 10.0), {})


# Mounts and space


UNIT = "[X-Baremetal-MPI-RoCE]\nPart=client-mount\n\n[Mount]\nWhere={}\n"


def mounts(root: Path, *lines: str) -> None:
    table = root / "proc/self/mountinfo"
    table.parent.mkdir(parents=True, exist_ok=True)
    table.write_text("".join(f"{line}\n" for line in lines))


NFS = "40 1 0:50 / /shared rw - nfs4 server:/shared rw"
TRAP = "39 1 0:49 / /shared rw - autofs systemd-1 rw,direct"


@pytest.mark.parametrize(
    ("table", "mode", "status", "found"),
    [
        ([TRAP, NFS], PERIODIC, OK, "server:/shared (nfs4)"),
        ([TRAP], PERIODIC, OK, "waits for its first use"),
        ([TRAP], PROLOG, FAILED, "not mounted"),
        ([], PERIODIC, FAILED, "not mounted"),
    ],
)
def test_mounts_of_the_layer_storage(table, mode, status, found, tmp_path: Path) -> None:
    units = tmp_path / "etc/systemd/system"
    units.mkdir(parents=True)
    (units / "shared.mount").write_text(UNIT.format("/shared"))
    (units / "other.mount").write_text("[Mount]\nWhere=/other\n")
    (tmp_path / "shared").mkdir()
    mounts(tmp_path, *table)
    seen = sight(tmp_path, mode)
    assert looks.points(seen) == ["/shared"]
    ((check,), _state) = looks.mounted(seen, unused, "/shared")
    assert (check.name, check.subject, check.status, check.found) == (
        *("storage_mount", "/shared"),
        *(status, found),
    )


def test_a_mount_that_returns_errors_fails(tmp_path: Path) -> None:
    mounts(tmp_path, NFS)
    ((check,), _state) = looks.mounted(sight(tmp_path), unused, "/shared")
    assert (check.name, check.status) == ("storage_mount", FAILED)


def test_a_mount_whose_server_refuses_root_responds(tmp_path: Path) -> None:
    mounts(tmp_path, NFS)
    (tmp_path / "shared").mkdir()
    for name in ("statvfs", "scandir"):
        with mock.patch.object(looks.os, name, mock.Mock(side_effect=PermissionError(13, "no"))):
            ((check,), _state) = looks.mounted(sight(tmp_path), unused, "/shared")
        assert (check.name, check.status) == ("storage_mount", OK)


def test_mounts_of_others_are_in_the_settings_and_containers_have_none(tmp_path: Path) -> None:
    assert looks.points(sight(tmp_path, mounts=["/home"])) == ["/home"]
    assert looks.points(sight(tmp_path, mounts=["/home"], container="podman")) == []


def test_odd_files_among_the_units_hide_no_mount(tmp_path: Path) -> None:
    units = tmp_path / "etc/systemd/system"
    (units / "directory.mount").mkdir(parents=True)
    os.mkfifo(units / "pipe.mount")
    (units / "masked.mount").symlink_to("/dev/null")
    (units / "endless.mount").symlink_to("/dev/zero")
    (units / "dangling.mount").symlink_to("nowhere")
    (units / "text.mount").write_bytes(b"\xff\xfe\0" + UNIT.format("/text").encode())
    (units / "zlast.mount").write_text(UNIT.format("/shared"))
    with (units / "huge.mount").open("w") as stream:
        stream.write(UNIT.format("/huge"))
        stream.truncate(1 << 40)
    seen = sight(tmp_path)
    assert looks.points(seen) == ["/huge", "/text", "/shared"]
    with mock.patch.object(looks.os, "open", mock.Mock(side_effect=PermissionError)):
        assert looks.points(seen) == []


def test_units_of_mounts(tmp_path: Path) -> None:
    units = tmp_path / "etc/systemd/system"
    units.mkdir(parents=True)
    for kind in ("mount", "automount"):
        (units / f"shared.{kind}").write_text(UNIT.format("/shared"))

    def run(argv: Any, **_more: Any) -> Result:
        unit = argv[2]
        drops = "/etc/x.conf" if unit.endswith(".mount") else ""
        text = f"ActiveState=inactive\nUnitFileState=enabled\nDropInPaths={drops}\n"
        return Result(tuple(argv), 0, text, "")

    checks = looks.mount_units(sight(tmp_path), run)[0]
    wanted = [("storage_drop_in", "/shared"), ("storage_automount", "/shared")]
    assert failed(checks) == wanted


@pytest.mark.parametrize(
    ("free", "inodes", "status"), [(4, 50, OK), (2, 50, FAILED), (50, 2, FAILED)]
)
def test_space(free: int, inodes: int, status: str, tmp_path: Path) -> None:
    found = SimpleNamespace(
        f_blocks=100, f_bavail=free, f_files=100, f_favail=inodes, f_frsize=4096
    )
    with mock.patch.object(looks.os, "statvfs", lambda _path: found):
        checks = looks.space(sight(tmp_path), unused)[0]
    assert [(each.name, each.subject, each.status) for each in checks] == [
        ("node_space", "/", status)
    ]


# System


def test_parameters_that_the_layer_os_wrote(tmp_path: Path) -> None:
    path = tmp_path / "etc/sysctl.d/90-baremetal-mpi-roce.conf"
    path.parent.mkdir(parents=True)
    path.write_text("net.core.somaxconn = 16384\n# vm.x = 1: not here\n")
    (tmp_path / "proc/sys/net/core").mkdir(parents=True)
    running = tmp_path / "proc/sys/net/core/somaxconn"
    running.write_text("16384\n")
    with mock.patch.object(looks.socket, "gethostname", lambda: "node01.example"):
        assert failed(looks.system(sight(tmp_path), unused)[0]) == []
        running.write_text("4096\n")
        assert failed(looks.system(sight(tmp_path), unused)[0]) == [
            ("sysctl", "net.core.somaxconn")
        ]
        (path.parent / "99-site.conf").write_text("net.core.somaxconn = 128\n")
        assert ("sysctl_at_boot", "") in failed(looks.system(sight(tmp_path), unused)[0])
    assert ("host_name", "node01") in failed(looks.system(sight(tmp_path), unused)[0])


@pytest.mark.parametrize(("answer", "status"), [("yes\n", OK), ("no\n", FAILED), ("", FAILED)])
def test_the_clock_by_timesyncd(answer: str, status: str, tmp_path: Path) -> None:
    unit = tmp_path / "usr/lib/systemd/system/systemd-timesyncd.service"
    unit.parent.mkdir(parents=True)
    unit.touch()

    def run(argv: Any, **_more: Any) -> Result:
        text = "ActiveState=active\n" if argv[0] == "systemctl" else answer
        return Result(tuple(argv), 0, text, "")

    ((check,), _state) = looks.clock(sight(tmp_path), run)
    assert (check.name, check.status) == ("time_sync", status)
