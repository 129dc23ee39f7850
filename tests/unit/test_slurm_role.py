# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Slurm's files, munge and daemons on a host, and draining by the model on slurmctld's."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import CommandError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.files import HEADER
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.slurm import host, munge
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.slurm.control import Control

from tests.unit.os_tree import found, statuses
from tests.unit.slurm_host import CLUSTER, KEY, SlurmHost

CONF, SITE = "etc/slurm/slurm.conf", "ClusterName=site\nSlurmctldHost=head\n"
GIVEN: dict[str, Any] = {"packages": "existing", "munge_digest": "", "munge_key": ""}
"""As the action passes for a Slurm of the site."""


@pytest.fixture(autouse=True)
def _programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "find_program", lambda name: f"/usr/bin/{name}")


@pytest.fixture
def node(tmp_path: Path) -> SlurmHost:
    return SlurmHost(tmp_path, "node01")


@pytest.fixture
def controller(tmp_path: Path) -> SlurmHost:
    return SlurmHost(tmp_path, "launcher01")


@pytest.mark.parametrize("name", ["node01", "launcher01", "launcher02"])
def test_a_second_run_changes_nothing(tmp_path: Path, name: str) -> None:
    role = SlurmHost(tmp_path, name)
    assert role.settle().changed
    role.age(10)
    before = role.snapshot()
    second = role.settle()
    assert (second.changed, second.errors, statuses(second)) == (False, [], {"ok"})
    quiet = role.settle(check_mode=True, munge_key="")
    assert (quiet.changed, statuses(quiet)) == (False, {"ok"})
    # A summary has the same figures, whether a run or a look read them.
    assert [(each.name, each.subject) for each in quiet.checks] == [
        (each.name, each.subject) for each in second.checks
    ]
    assert role.snapshot() == before
    units = {"node01": "slurmd.service", "launcher01": "slurmctld.service", "launcher02": ""}
    active = {unit for unit, state in role.states.items() if state == "enabled, active"}
    assert active == {"munge.service", units[name]} - {""}


@pytest.mark.parametrize(("check_mode", "status"), [(True, "pending"), (False, "failed")])
def test_packages_are_read_back(
    node: SlurmHost, monkeypatch: pytest.MonkeyPatch, check_mode: bool, status: str
) -> None:
    node.settle()
    node.write("etc/os-release", "ID=debian\nVERSION_ID=12\n")
    said = (0, "munge\tinstalled\t\nlibpmix2\tconfig-files\t\n")
    monkeypatch.setattr(SlurmHost, "_dpkg_query", lambda _self, _words: said, raising=False)
    outcome = node.settle(check_mode=check_mode, munge_key="", installed=["munge", "libpmix2"])
    checks = [each for each in outcome.checks if each.name == "package_installed"]
    assert [(each.subject, each.status) for each in checks] == [
        ("munge", "ok"),
        ("libpmix2", status),
    ]


def test_a_clock_that_was_set_back_restarts_nothing_in_each_run(node: SlurmHost) -> None:
    node.settle()
    for path in (node.root / "etc").rglob("*"):
        os.utime(path, (time.time() + 3600,) * 2)
    again = node.settle()
    assert not again.changed and statuses(again) == {"ok"}


@pytest.mark.parametrize("name", ["node01", "launcher01"])
def test_check_mode_writes_nothing_and_shows_the_change(tmp_path: Path, name: str) -> None:
    role = SlurmHost(tmp_path, name)
    before = role.snapshot()
    outcome = role.settle(check_mode=True, munge_key="")
    assert outcome.changed and "pending" in statuses(outcome)
    assert {key: to for key, to in role.snapshot().items() if not key.startswith("proc")} == before
    headers = {entry["after_header"] for entry in outcome.diff}
    assert {f"{munge.KEY} (running)", f"{role.root}/{CONF}"} <= headers


def test_the_key_of_munge_is_in_no_diff_and_no_check(node: SlurmHost) -> None:
    outcome = node.settle()
    path = node.root / "etc/munge/munge.key"
    assert (path.read_bytes(), path.stat().st_mode & 0o7777) == (KEY, 0o400)
    shown = json.dumps([outcome.diff, [vars(check) for check in outcome.checks]])
    assert "another key, made by" not in shown
    assert KEY[40:60].decode() not in shown
    assert "(not shown)" in shown
    # The file is compared byte by byte: the key has carriage returns.
    assert found(outcome, "file")["/etc/munge/munge.key"].status == "ok"


def test_pmix_gets_the_name_under_which_slurm_opens_it(node: SlurmHost) -> None:
    link = node.write("usr/lib/a/pmix2/lib/libpmix.so.2", "").with_name("libpmix.so")
    seen = found(node.settle(check_mode=True, munge_key=""), "slurm_pmix")[""]
    assert (seen.status, seen.found) == ("pending", ["/usr/lib/a/pmix2/lib/libpmix.so"])
    outcome = node.settle()
    assert str(link.readlink()) == "libpmix.so.2"
    assert found(outcome, "slurm_pmix")[""].status == "ok"


@pytest.mark.parametrize("change", ["key", "mode", "stopped", "older"])
def test_munge_is_repaired(node: SlurmHost, change: str) -> None:
    node.settle()
    node.age(10)
    path = node.root / "etc/munge/munge.key"
    if change == "key":
        path.chmod(0o600)
        path.write_bytes(KEY[::-1])
        path.chmod(0o400)
    elif change == "mode":
        path.chmod(0o440)
    elif change == "stopped":
        node.states["munge.service"] = "enabled, failed"
    else:
        node.started["munge.service"] -= 10
    seen = node.settle(check_mode=True, munge_key="")
    names = {
        "key": "munge_key",
        "mode": "munge_key_mode",
        "stopped": "munge_service",
    }
    assert seen.changed
    pending = {check.name for check in seen.checks if check.status != "ok"}
    assert pending == ({names[change]} if change in names else set())
    node.calls.clear()
    assert node.settle().changed
    restarted = node.ran("systemctl", "restart", "munge.service")
    assert restarted == (change != "stopped")
    assert path.read_bytes() == KEY
    node.age(10)
    assert not node.settle().changed


def test_a_wrong_digest_or_text_is_refused_before_a_change(node: SlurmHost) -> None:
    before = node.snapshot()
    for key in ("AAAA", "not base64!"):
        with pytest.raises(PlanError, match="munge"):
            node.settle(munge_key=key)
    assert node.snapshot().items() >= before.items()
    assert not node.ran("systemctl", "restart")


def test_a_key_behind_a_link_is_refused_and_not_written(node: SlurmHost) -> None:
    node.settle()
    path = node.root / "etc/munge/munge.key"
    path.rename(node.root / "key")
    path.symlink_to(node.root / "key")
    (node.root / "key").chmod(0o400)
    check = found(node.settle(packages="existing", munge_digest=""), "munge_key_mode")[""]
    assert check.status == "failed"
    (node.root / "key").chmod(0o600)
    (node.root / "key").write_text("a" * 64)
    with pytest.raises(PlanError, match="symbolic link"):
        node.settle()
    assert (node.root / "key").read_text() == "a" * 64


def test_credentials_that_cannot_be_read_fail(node: SlurmHost) -> None:
    node.decoded = "STATUS:           Expired credential (15)\n"
    check = found(node.settle(), "munge")[""]
    assert (check.status, check.found) == ("failed", "Expired credential")
    node.gone.add("munge")
    check = found(node.settle(), "munge")[""]
    assert (check.status, check.found) == ("failed", None)


def test_a_daemon_older_than_its_files_is_restarted_or_reloaded(node: SlurmHost) -> None:
    """Also without a change in this run, as after an interrupted one."""
    node.settle()
    node.age(100)
    for name, verb in (
        ("baremetal-nodes.conf", "restart"),
        ("gres.conf", "restart"),
        ("topology.conf", "reload"),
        ("baremetal-partitions.conf", "reload"),
    ):
        path = node.root / "etc/slurm" / name
        path.write_text(path.read_text())
        seen = node.settle(check_mode=True, munge_key="")
        loaded = found(seen, "slurm_loaded")["slurmd.service"]
        assert (loaded.status, loaded.found) == ("pending", [name])
        node.calls.clear()
        assert node.settle().changed, name
        other = "reload" if verb == "restart" else "restart"
        assert node.ran("systemctl", verb, "slurmd.service") == 1
        assert not node.ran("systemctl", other, "slurmd.service")
        node.age(100)
        assert not node.settle().changed


def test_without_restart_the_files_that_a_daemon_has_not_read_are_named(node: SlurmHost) -> None:
    node.settle()
    node.age(100)
    path = node.root / "etc/slurm/baremetal-nodes.conf"
    path.write_text(path.read_text() + "# a line\n")
    outcome = node.settle(restart=False)
    check = found(outcome, "slurm_loaded")["slurmd.service"]
    assert (check.status, check.found) == ("failed", ["baremetal-nodes.conf"])
    assert check.by_hand == "systemctl restart slurmd.service"
    assert node.ran("systemctl", "restart", "slurmd.service") == 1  # of the first run


def test_a_stopped_daemon_is_started(node: SlurmHost) -> None:
    node.settle()
    node.states["slurmd.service"] = "disabled, inactive"
    check = found(node.settle(check_mode=True, munge_key=""), "slurm_service")["slurmd.service"]
    assert (check.status, check.found) == ("pending", "disabled, inactive")
    node.settle()
    assert node.states["slurmd.service"] == "enabled, active"


@pytest.mark.parametrize(
    ("container", "running", "configured", "status"),
    [
        (None, "unlimited", "infinity", "ok"),
        (None, "8388608", "infinity", "failed"),
        (None, "65536", "65536", "failed"),
        ("podman", "8388608", "infinity", "not_applicable"),
        ("podman", "65536", "infinity", "failed"),
        ("podman", "65536", "65536", "failed"),
    ],
)
def test_locked_memory(
    node: SlurmHost, container: str | None, running: str, configured: str, status: str
) -> None:
    node.container = container
    node.limits = {"": configured, "77": running, "1": "8388608" if container else "unlimited"}
    check = found(node.settle(), "slurm_memlock")["slurmd.service"]
    assert check.status == status
    if status == "failed":
        verb = "restart" if configured == "infinity" else "cat"
        assert check.found == running and f"systemctl {verb} slurmd.service" in check.by_hand
    assert node.read("etc/systemd/system/slurmd.service.d/90-baremetal-mpi-roce.conf").endswith(
        "[Service]\nLimitMEMLOCK=infinity\n"
    )


def test_the_site_s_slurm_conf_keeps_its_lines(controller: SlurmHost) -> None:
    controller.write(CONF, SITE)
    controller.states.update(dict.fromkeys(controller.states, "enabled, active"))
    controller.settle(**GIVEN)
    text = controller.read(CONF)
    assert text.startswith(SITE)
    block = text[len(SITE) :].splitlines()
    assert block[0] == "# BEGIN baremetal.mpi_roce slurm"
    assert [line.partition("Include ")[2] for line in block[1:-1]] == [
        "baremetal-settings.conf",
        "baremetal-nodes.conf",
        "baremetal-partitions.conf",
    ]
    assert controller.read("etc/munge/munge.key").startswith("another key")
    controller.age(10)
    assert not controller.settle(**GIVEN).changed


def test_files_of_the_site_are_named_and_not_written(node: SlurmHost) -> None:
    node.write(CONF, SITE)
    node.write("etc/slurm/gres.conf", "Name=gpu File=/dev/nvidia0\n")
    for unit in node.states:
        node.states[unit] = "enabled, active"
    outcome = node.settle(**GIVEN)
    assert node.read("etc/slurm/gres.conf") == "Name=gpu File=/dev/nvidia0\n"
    check = found(outcome, "slurm_file")["/etc/slurm/gres.conf"]
    assert (check.status, check.found) == ("failed", "the site's")
    assert "topology.conf" in {path.name for path in (node.root / "etc/slurm").iterdir()}


def test_files_that_the_version_does_not_read_are_removed_if_ours(node: SlurmHost) -> None:
    node.settle()
    stale = node.write("etc/slurm/topology.yaml", f"# {HEADER}\n")
    theirs = node.write("etc/slurm/job_submit.lua", "x")
    assert node.settle().changed
    assert not stale.exists() and theirs.exists()


def test_a_node_without_slurm_conf_has_its_files_from_slurmctld(node: SlurmHost) -> None:
    for unit in node.states:
        node.states[unit] = "enabled, active"
    node.settle(**GIVEN)
    assert not (node.root / "etc/slurm").exists()


@pytest.mark.parametrize("sends", [True, False])
def test_slurmctld_sends_its_files_after_its_restart_where_slurmd_has_none(
    controller: SlurmHost, sends: bool
) -> None:
    """SIGHUP sends them as well (Slurm 22.05.8); a restart does not."""
    parameters = "SlurmctldParameters=idle_on_node_suspend,enable_configless\n"
    controller.write(CONF, f"{SITE}{parameters if sends else ''}")
    controller.states.update(dict.fromkeys(controller.states, "enabled, active"))
    controller.settle(**GIVEN)
    assert controller.ran("scontrol", "reconfigure") == sends
    controller.age(10)
    controller.settle(**GIVEN)
    assert controller.ran("scontrol", "reconfigure") == sends


def test_a_configless_slurmd_is_compared_with_what_slurmctld_sent(
    node: SlurmHost, tmp_path: Path
) -> None:
    head = SlurmHost(tmp_path / "head", "launcher01")
    head.write(CONF, SITE)
    for one in (head, node):
        one.states.update(dict.fromkeys(one.states, "enabled, active"))
    given = {**GIVEN, "node_check": True}
    head.settle(**given)
    for path in (head.root / "etc/slurm").glob("*.conf"):
        node.write(f"run/slurm/conf/{path.name}", path.read_text())
    with pytest.raises(PlanError, match="slurm-prolog"):
        node.settle(**given)
    for name in host.NODE_CHECK.values():
        node.write(name.lstrip("/"), "").chmod(0o755)
    outcome = node.settle(**given)
    failed = {check.name for check in outcome.checks if check.status != "ok"}
    assert (outcome.errors, failed) == ([], {"munge_key_mode"})  # the site's
    assert f"Prolog={host.NODE_CHECK['prolog']}" in found(outcome, "slurm_program")
    settings = node.write("run/slurm/conf/baremetal-settings.conf", "MpiDefault=none\n")
    check = found(node.settle(**given), "slurm_loaded")["slurmd.service"]
    assert (check.status, check.found) == ("failed", [settings.name])
    assert "reconfigure" in check.by_hand and not (node.root / "etc/slurm").exists()


def test_slurmctld_s_host_needs_a_slurm_conf(controller: SlurmHost) -> None:
    with pytest.raises(PlanError, match=r"slurm\.conf is missing"):
        controller.settle(**GIVEN)


def test_a_slurmctld_outside_the_model_is_compared_from_the_launcher(
    controller: SlurmHost,
) -> None:
    """And daemons that recognise each other without munge."""
    controller.settle()
    for unit in ("slurmctld", "munge"):
        (controller.root / f"lib/systemd/system/{unit}.service").unlink()
    (controller.root / CONF).unlink()
    drained = tuple(replace(node, drained=node.name == "node01") for node in CLUSTER.nodes)
    controller.cluster = replace(CLUSTER, nodes=drained)
    outcome = controller.settle(**GIVEN)
    assert (outcome.errors, statuses(outcome)) == ([], {"ok"})
    assert {"slurm_topology", "slurm_drained"} <= {check.name for check in outcome.checks}
    assert {"munge", "slurm_service"}.isdisjoint(check.name for check in outcome.checks)
    assert controller.node_states["node01"] == "IDLE+DRAIN"
    assert not (controller.root / CONF).exists()


def test_a_block_without_its_end_is_refused(controller: SlurmHost) -> None:
    controller.write(CONF, f"{SITE}# BEGIN baremetal.mpi_roce slurm\n")
    with pytest.raises(PlanError, match="END"):
        controller.settle(**GIVEN)


def test_one_slurmctld_whatever_the_number_of_launchers(controller: SlurmHost) -> None:
    controller.settle()
    lines = [line for line in controller.read(CONF).splitlines() if line.startswith("Slurmctld")]
    assert [line for line in lines if "Host" in line] == ["SlurmctldHost=launcher01(10.246.0.10)"]


def test_programs_that_a_node_lacks(node: SlurmHost) -> None:
    name = "usr/local/libexec/baremetal-mpi-roce/task-prolog"
    (node.root / name).chmod(0o644)
    check = found(node.settle(), "slurm_program")[f"TaskProlog=/{name}"]
    assert (check.status, check.found) == ("failed", "missing")
    (node.root / name).unlink()
    seen = node.settle(check_mode=True, munge_key="", node_check=True)
    checks = found(seen, "slurm_program")
    assert {
        key.partition("=")[0] for key, check in checks.items() if check.status == "pending"
    } == {
        "TaskProlog",
        "Prolog",
        "Epilog",
        "HealthCheckProgram",
    }


def test_no_prolog_is_set_before_it_is_installed(node: SlurmHost) -> None:
    """Slurm drains a node whose prolog it cannot start."""
    node.settle()
    before = node.snapshot()
    with pytest.raises(PlanError, match=r"slurm-prolog.*node01.*--tags node_check"):
        node.settle(node_check=True)
    assert node.snapshot() == before
    for path in host.NODE_CHECK.values():
        node.write(path.lstrip("/"), "#!/bin/sh\n").chmod(0o755)
    assert "Prolog" in {
        check.subject.partition("=")[0]
        for check in node.settle(node_check=True).checks
        if check.name == "slurm_program" and check.status == "ok"
    }


@pytest.mark.parametrize(("ahead", "status"), [(0.0, "ok"), (-200.0, "failed"), (200.0, "failed")])
def test_the_clock_is_compared_with_the_controller_s(
    node: SlurmHost, ahead: float, status: str
) -> None:
    now = node.arguments()["now"]
    check = found(node.settle(now=now - ahead), "slurm_clock")[""]
    assert check.status == status
    assert found(node.settle(now=None), "slurm_clock") == {}


@pytest.mark.parametrize("name", ["node01", "launcher01", "launcher02"])
@pytest.mark.parametrize("at", range(5))
def test_a_slurmctld_that_its_host_restarts_meanwhile_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, at: int
) -> None:
    monkeypatch.setattr(host, "POLL_S", 0.0)
    role = SlurmHost(tmp_path, name)
    reached = ["launcher01", *(each.name for each in CLUSTER.nodes)]
    assert statuses(role.settle(reached=reached)) == {"ok"}
    role.refused = range(at, at + 3)
    assert statuses(role.settle(reached=reached, wait_s=30.0)) == {"ok"}


def test_a_slurmctld_out_of_reach_is_not_waited_for(node: SlurmHost) -> None:
    node.settle()
    node.refused = range(10_000)
    started = time.monotonic()
    assert found(node.settle(wait_s=30.0), "slurm_controller")[""].status == "failed"
    assert time.monotonic() - started < 15


def test_what_the_model_drains_is_drained_and_resumed(controller: SlurmHost) -> None:
    controller.settle()
    controller.node_states["node02"] = "IDLE+DRAIN"
    controller.reasons["node02"] = "bad NIC"
    nodes = [replace(node, drained=node.name == "node01") for node in CLUSTER.nodes]
    controller.cluster = replace(CLUSTER, nodes=tuple(nodes))
    assert controller.settle(check_mode=True, munge_key="").changed
    assert controller.node_states["node01"] == "IDLE"
    assert controller.settle().changed
    assert controller.reasons == {
        "node01": "baremetal.mpi_roce model: drained in cluster.yml",
        "node02": "bad NIC",
    }
    assert (
        controller.role.returned()["out_of_service"][1]
        == {
            "nodes": "node02",
            "since": "2026-11-29T09:04:59",
            "by": "root",
            "reason": "bad NIC",
        }
        or controller.role.returned()["out_of_service"][0]["reason"] == "bad NIC"
    )
    controller.age(10)
    assert not controller.settle().changed
    controller.cluster = CLUSTER
    controller.settle()
    assert controller.reasons == {"node02": "bad NIC"}
    assert controller.node_states == {
        "node01": "IDLE",
        "node02": "IDLE+DRAIN",
        "node03": "IDLE",
        "node04": "IDLE",
    }


def test_a_restart_that_resumes_nodes_is_no_error(controller: SlurmHost) -> None:
    drained = tuple(replace(node, drained=node.name == "node01") for node in CLUSTER.nodes)
    controller.cluster = replace(CLUSTER, nodes=drained)
    controller.settle()
    assert controller.node_states["node01"] == "IDLE+DRAIN"
    controller.cluster, controller.resumes_at_restart = CLUSTER, True
    outcome = controller.settle()
    assert (outcome.errors, statuses(outcome)) == ([], {"ok"})
    assert not controller.ran("scontrol", "update", "nodename=node01", "state=resume")


def test_nodes_are_drained_although_slurmctld_had_to_be_started(controller: SlurmHost) -> None:
    nodes = [replace(node, drained=node.name == "node01") for node in CLUSTER.nodes]
    controller.cluster = replace(CLUSTER, nodes=tuple(nodes))
    controller.settle()
    assert controller.node_states["node01"] == "IDLE+DRAIN"


def test_a_refused_drain_is_an_error_and_the_rest_is_read_back(
    controller: SlurmHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller.settle()
    drained = tuple(replace(node, drained=node.name == "node01") for node in CLUSTER.nodes)
    controller.cluster = replace(CLUSTER, nodes=drained)
    refusal = (1, "", "slurm_update error: Access/permission denied\n")
    monkeypatch.setattr(controller, "_update", lambda values: refusal)
    outcome = controller.settle()
    assert len(outcome.errors) == 1 and "permission denied" in outcome.errors[0]
    check = found(outcome, "slurm_drained")["node01"]
    assert (check.status, check.found, check.at) == ("failed", "in service", "node01")


def test_a_slurmctld_that_does_not_answer(controller: SlurmHost) -> None:
    controller.settle()
    controller.states["slurmctld.service"] = "enabled, failed"
    seen = controller.settle(check_mode=True, munge_key="")
    assert found(seen, "slurm_service")["slurmctld.service"].status == "pending"
    check = found(seen, "slurm_controller")[""]
    assert (check.status, check.found) == ("failed", None)


def test_before_the_packages_are_installed(
    node: SlurmHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "find_program", lambda name: None)
    seen = node.settle(check_mode=True, munge_key="")
    assert seen.changed and statuses(seen) == {"pending"}
    with pytest.raises(PlanError, match="slurmd, scontrol"):
        node.settle()


def test_parameters_are_single_lines(node: SlurmHost) -> None:
    node.settle(extra_settings={"TaskPlugin": "task/none", "MpiDefault": None, "SlurmdTimeout": 60})
    lines = node.read("etc/slurm/baremetal-settings.conf").splitlines()
    assert {"TaskPlugin=task/none", "SlurmdTimeout=60"} <= {*lines}
    assert not [line for line in lines if line.startswith("MpiDefault")]
    for given in ({"A\nProlog": "x"}, {"Prolog": "x\ny"}, {"A B": "c"}, {"A": "b\\ "}):
        with pytest.raises(PlanError, match="slurm_extra_settings"):
            node.settle(extra_settings=given)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("partition", word) for word in ("", "a b", "a\nProlog=/x", "DEFAULT", "a#b")),
        *(("reboot_program", "/x -r"), ("gpu_devices", "/dev/n#"), ("config_directory", "/a b")),
    ],
)
def test_words_that_stop_slurmctld_are_refused(name: str, value: str, node: SlurmHost) -> None:
    before = node.snapshot()
    with pytest.raises(PlanError, match=f"slurm_{name}"):
        node.settle(**{name: value})
    assert {key: before[key] for key in before if "slurm" in key} == {
        key: text for key, text in node.snapshot().items() if "slurm" in key
    }


def test_output_of_slurm_is_bounded(controller: SlurmHost) -> None:
    controller.settle()
    controller.reasons = {f"node{number:04d}": "x" * 1000 for number in range(500)}
    rows = Control(controller.node()).reasons()
    assert len(rows) == 100 and max(len(row["reason"]) for row in rows) < 400


def test_a_hanging_scontrol_is_a_failed_check(
    node: SlurmHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.settle()

    def hangs(words: list[str]) -> tuple[int, str]:
        raise CommandError("scontrol: no answer within 30 s")

    monkeypatch.setattr(node, "_scontrol", hangs)
    outcome = node.settle(check_mode=True, munge_key="")
    check = found(outcome, "slurm_controller")[""]
    assert (check.status, check.found) == ("failed", None)
