# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The boot unit: complete or unused, isolated, repeated after changes, failing if rails fail."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import part, systemd
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import (
    FAILED,
    NOT_APPLICABLE,
    OK,
    PENDING,
    REBOOT,
    Check,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    Result,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.engine import settle
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic.mlx5 import firmware
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails import (
    BOOT_UNIT,
    boot_program,
    boot_unit,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails.boot_program import (
    RESULT,
    STATE,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails.boot_unit import (
    PROGRAM,
    UDEV_RULE,
    UNIT_FILE,
)

from tests.unit.nic_host import options
from tests.unit.programs import from_ansibles_zip
from tests.unit.rails_host import NoNics
from tests.unit.test_nic_sriov import Nic
from tests.waiting import deadline

WAIT_S, BEFORE = 5, ("slurmd.service",)
ENABLED = f"{systemd.LINKS}/{BOOT_UNIT}"
RELOAD, ENABLE, START = (
    ("systemctl", "daemon-reload"),
    ("systemctl", "enable", BOOT_UNIT),
    ("systemctl", "start", BOOT_UNIT),
)


def state(status, persistence="runtime"):
    return {"status": status, "persistence": persistence, "wanted": 0, "found": 0}


HOLD = {"rail0": {"pfc": state("ok")}}


class Nics(NoNics):
    """NICs with given readings."""

    def __init__(self, given, with_rdma, settings):
        self.given, self.with_rdma, self._settings = given, with_rdma, settings

    def settings(self, **_given):
        return self._settings


class Node:
    """A node with rail0, which has SR-IOV but no RDMA device, and a systemd."""

    def __init__(self, root, count=0) -> None:
        self.root = root
        self.nic = Nic(root, count)
        self.calls = []
        self.slept = []

    def systemctl(self, argv, *, check=True, stdin=None):
        """Run the program in this process when the unit is started."""
        argv = tuple(argv)
        self.calls.append(argv)
        rc = 0
        if argv == ENABLE:
            link = self.root / ENABLED
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(f"/{UNIT_FILE}")
        elif argv == START:
            rc = self.program("--apply")
        return Result(tuple(argv), rc, "", "")

    def converge(self, **more):
        """Settle the boot unit as the module does, with the checks and `settings` of the rails."""
        self.calls.clear()
        given = {
            **options(),
            "firmware_parameters": {"ATS_ENABLED": 0},
            **more.pop("request", {}),
        }
        nics = Nics(given, more.pop("with_rdma", ()), more.pop("settings", HOLD))
        unit = boot_unit.BootUnit(
            more.pop("interfaces", ("rail0",)),
            nics,
            more.pop("checks", ()),
            WAIT_S,
            BEFORE,
            more.pop("asked", True),
        )
        node = part.Node(
            layer="rails-firmware",
            root=self.root,
            run=more.pop("run", self.systemctl),
            container=None,
            boot_id="boot-1",
            uid=os.getuid(),
            gid=os.getgid(),
            **more,
        )
        done = settle([unit], node)
        assert not done.errors
        return done.diff, done.changed, done.checks[-1]

    def program(self, *arguments, sleep=None, which=lambda name: None):
        moment = iter(range(10_000))
        words = (*arguments, "--root", str(self.root))
        clock = lambda: float(next(moment))  # noqa: E731
        return boot_program.main(words, self.nic.run, which, sleep or self.slept.append, clock)

    def failed(self):
        return json.loads((self.root / RESULT).read_text())["failed"]

    def files(self):
        return {
            str(path.relative_to(self.root)): path.read_bytes()
            for directory in ("usr", "etc")
            for path in sorted((self.root / directory).rglob("*"))
            if path.is_file() and not path.is_symlink()
        }


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def failing(status, name="rail_pfc"):
    return (Check(name, 1, 0, status, "rail0"),)


# Installation


def test_first_run_installs_enables_and_runs_it(node):
    umask = os.umask(0o077)
    try:
        diff, changed, check = node.converge()
    finally:
        os.umask(umask)

    assert changed and check.status == OK
    assert node.calls == [RELOAD, ENABLE, START]
    assert node.failed() == []
    assert BOOT_UNIT in [each["before_header"] for each in diff]
    modes = {path: stat.S_IMODE((node.root / path).stat().st_mode) for path in node.files()}
    assert modes == {PROGRAM: 0o755, STATE: 0o644, UNIT_FILE: 0o644, UDEV_RULE: 0o644}
    directories = [path for path in (node.root / "usr").rglob("*") if path.is_dir()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in directories} == {0o755}
    # A second run runs no program.
    before = node.files()
    diff, changed, check = node.converge()

    assert (diff, changed, check.status) == ([], False, OK)
    assert node.calls == [] and node.files() == before


def test_check_mode_shows_all_of_it_and_writes_nothing(node):
    diff, changed, check = node.converge(check_mode=True)

    assert changed and check.status == PENDING and node.calls == []
    assert not (node.root / "usr").exists() and not (node.root / "etc").exists()
    shown = {each["before_header"]: each["after"] for each in diff}
    assert shown[str(node.root / PROGRAM)] == "(not shown)\n"
    assert '"ATS_ENABLED": 0' in shown[str(node.root / STATE)]
    assert "ExecStart=" in shown[str(node.root / UNIT_FILE)]


@pytest.mark.parametrize("damage", ["edited", "mode", "missing", "disabled"])
def test_damaged_files_are_repaired(node, damage):
    node.converge()
    whole = node.files()
    if damage == "edited":
        with (node.root / PROGRAM).open("ab") as stream:
            stream.write(b"\xff")
    elif damage == "mode":
        (node.root / PROGRAM).chmod(0o777)
    elif damage == "missing":
        (node.root / UDEV_RULE).unlink()
    else:
        (node.root / ENABLED).unlink()

    diff, changed, check = node.converge(check_mode=True)
    assert len(diff) == 1 and changed and check.status == PENDING and node.calls == []
    json.dumps(diff).encode()
    _diff, changed, check = node.converge()
    assert changed and check.status == OK and node.files() == whole
    assert not node.converge()[1]


def test_a_killed_change_runs_again(node):
    node.converge()
    anew = {"request": {"nic": {"rings": {"rx": 8192}}}}
    diff, _changed, _check = node.converge(check_mode=True, **anew)
    assert [each["before_header"] for each in diff] == [str(node.root / STATE)]

    def killed(argv, **_more):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        node.converge(run=killed, **anew)
    _diff, changed, check = node.converge(**anew)
    assert changed and check.status == OK and node.calls == [RELOAD, START]


def test_without_anything_to_do_it_is_removed(node):
    nothing = {"rail0": {"pfc": state("not_applicable")}}
    diff, changed, check = node.converge(settings=nothing)
    assert (diff, changed, node.calls) == ([], False, [])
    assert check.status == NOT_APPLICABLE

    node.converge()
    diff, changed, check = node.converge(settings=nothing)
    assert changed and check.status == NOT_APPLICABLE
    assert node.files() == {} and not (node.root / ENABLED).is_symlink()
    assert node.calls == [RELOAD]
    assert node.converge(settings=nothing)[1] is False


def test_a_masked_unit_fails_and_stays(node):
    (node.root / "etc/systemd/system").mkdir(parents=True)
    (node.root / UNIT_FILE).symlink_to("/dev/null")
    diff, changed, check = node.converge()

    assert (diff, changed) == ([], False) and check.status == FAILED
    assert f"systemctl unmask {BOOT_UNIT}" in check.reason
    assert str((node.root / UNIT_FILE).readlink()) == "/dev/null"


# When it runs again


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (None, "it has not run in this boot"),
        ('{"failed": ["rail_pfc rail0: wanted [3]"]}', "rail_pfc rail0"),
    ],
)
def test_a_run_that_proves_nothing_is_repeated(node, result, why):
    node.converge()
    path = node.root / RESULT
    path.unlink() if result is None else path.write_text(result)

    diff, changed, check = node.converge(check_mode=True)
    assert changed and check.status == PENDING and why in check.reason
    assert why in diff[0]["before"]
    _diff, changed, check = node.converge()
    assert changed and check.status == OK
    assert node.calls == [RELOAD, START]


def test_it_is_not_started_where_the_rails_do_not_hold_anyway(node):
    _diff, changed, check = node.converge(checks=failing(FAILED))
    assert changed and node.calls == [RELOAD, ENABLE]
    assert check.status == FAILED and "not started" in check.reason

    _diff, changed, _check = node.converge(checks=failing(FAILED))
    # This run cannot change it.
    assert not changed
    settings = {"rail0": {**HOLD["rail0"], "firmware_x": state("failed", "firmware")}}
    check = node.converge(settings=settings, checks=failing(FAILED, "rail_firmware_x"))[2]
    assert START in node.calls and check.status == OK


@pytest.mark.parametrize("name", ["rail_name", "rail_settings"])
def test_the_unit_waits_for_renamed_rails(node, name):
    late = {"settings": {}, "checks": failing(REBOOT, name)}
    _diff, changed, check = node.converge(**late)
    assert changed and node.calls == [RELOAD, ENABLE]
    assert check.status == REBOOT and "next boot" in check.reason
    assert '"rail0"' in (node.root / STATE).read_text()
    assert node.converge(**late)[1] is False


# Whether there is one


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({}, False),
        ({"pfc": state("not_applicable")}, False),
        ({"firmware_sriov_en": state("ok", "firmware")}, False),
        ({"pfc": state("ok")}, True),
        ({"pfc": state("failed")}, True),
    ],
)
def test_a_unit_exists_if_a_reboot_clears_a_setting(node, settings, wanted):
    _diff, changed, check = node.converge(settings={"rail0": settings}, check_mode=True)
    assert changed is wanted and (check.status == NOT_APPLICABLE) is not wanted


def test_a_rail_in_another_mode_is_not_set_at_boot(node, monkeypatch):
    monkeypatch.setattr(Nics, "in_other_mode", ("rail1",))
    node.converge(interfaces=("rail0", "rail1"))
    assert json.loads((node.root / STATE).read_text())["rails"] == ["rail0"]


@pytest.mark.parametrize("settings", [{}, {"rail0": {}}])
def test_the_unit_stays_if_rails_are_missing(node, settings):
    node.converge()
    before = node.files()
    diff, changed, check = node.converge(interfaces=("rail0", "rail1"), settings=settings)
    assert (changed, diff, node.files()) == (False, [], before)
    assert (node.root / ENABLED).is_symlink()
    assert check.status == NOT_APPLICABLE and "rail1" in check.reason


# The program


def install(node, **more):
    node.converge(checks=failing(FAILED), **more)


def test_check_shows_every_setting_and_its_exit_status_is_the_verdict(tmp_path, capsys):
    node = Node(tmp_path, count=1)
    install(node)
    assert node.program("--check") == boot_program.DRIFT
    shown = capsys.readouterr().out
    assert re.search(r"^rail0 +virtual_functions +pending +\[\"0000:0a:10\.0", shown, re.M)
    assert shown.splitlines()[-1] == "1 rails, 1 settings: 1 wrong"
    # A check does not replace the result of the unit.
    assert not (tmp_path / RESULT).exists()

    (node.nic.pf / "virtfn0").unlink()
    assert node.program() == boot_program.HOLDS
    assert "1 rails, 1 settings: nothing wrong\n" in capsys.readouterr().out
    assert node.program("--check", "--json") == boot_program.HOLDS
    assert json.loads(capsys.readouterr().out)["wrong"] == []


def test_the_boot_waits_and_logs_the_reason(tmp_path, capsys):
    node = Node(tmp_path, count=1)
    install(node)

    def sleep(seconds):
        node.slept.append(seconds)
        if len(node.slept) == 3:
            (node.nic.pf / "virtfn0").unlink()

    assert node.program("--apply", "--wait", "60", sleep=sleep) == boot_program.HOLDS
    assert len(node.slept) == 3 and node.slept == sorted(node.slept)
    lines = capsys.readouterr().out.splitlines()
    assert [line[:39] for line in lines[:3]] == ["not yet: rail_virtual_functions rail0: "] * 3


def test_the_wait_is_bounded_and_a_missing_rail_is_named(node, capsys):
    install(node, interfaces=("rail0", "rail7"))
    assert node.program("--apply", "--wait", "6") == boot_program.DRIFT
    assert 1 <= len(node.slept) < 20
    assert "<3>rail_interface rail7: wanted 'rail7', found None" in capsys.readouterr().out


def test_virtual_functions_in_use_are_not_taken_away_at_boot(tmp_path, capsys):
    node = Node(tmp_path, count=1)
    node.nic.flags("eth0", 0x1003)
    install(node, request={"remove_vfs_in_use": True})
    assert node.program("--apply") == boot_program.DRIFT
    assert "1 of 1 virtual functions" in capsys.readouterr().out
    assert node.nic.numvfs == "1"


def test_firmware_tools_do_not_run_at_boot(node):
    """They are slow and may hang, and a reboot clears no firmware parameter."""
    asked = []
    install(node)
    node.program("--apply", which=asked.append)
    assert not set(firmware.TOOLS) & set(asked)
    node.program("--check", which=asked.append)
    assert set(firmware.TOOLS) <= set(asked)


@pytest.mark.parametrize(
    ("text", "why"), [(None, STATE), ("{", "JSONDecodeError"), ("{}", "KeyError")]
)
def test_unreadable_counters_have_no_status(node, capsys, text, why):
    install(node)
    path = node.root / STATE
    path.unlink() if text is None else path.write_text(text)
    assert node.program("--check") == boot_program.UNKNOWN
    assert why in capsys.readouterr().err


# The installed program


@pytest.mark.skipif(not shutil.which("/usr/bin/python3"), reason="needs /usr/bin/python3")
def test_the_program_runs_from_ansibles_zip(node, tmp_path):
    """The module reads its sources from the zip that Ansible made."""
    install(node)
    path_of = tmp_path / "program"
    from_ansibles_zip(boot_unit, tmp_path / "payload.zip", path_of)
    trap = tmp_path / "trap"
    trap.mkdir()
    for name in ("json", "ansible_collections", "sitecustomize"):
        (trap / f"{name}.py").write_text("raise SystemExit('of the environment')\n")
    env = {"PYTHONPATH": str(trap), "PYTHONSTARTUP": str(trap / "json.py"), "PATH": str(trap)}

    def run():
        command = [str(path_of), "--check", "--root", str(node.root)]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=deadline(300), env=env, cwd=trap
        )

    done = run()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("1 rails, 1 settings: nothing wrong\n")
    (node.nic.pf / "virtfn0").symlink_to(node.nic.pf)
    assert run().returncode == boot_program.DRIFT


# The unit


def test_order_of_the_unit_and_its_udev_rule():
    text = boot_unit.unit_text(("rail0", "rail-1"), WAIT_S, BEFORE)
    device = "sys-subsystem-net-devices-rail0.device sys-subsystem-net-devices-rail\\x2d1.device"
    assert f"Wants={device}\nAfter={device}\n" in text
    # A missing NIC must not prevent the setup of the others.
    assert "Requires=" not in text
    assert "Before=slurmd.service\n" in text
    # Otherwise a start would do nothing.
    assert "RemainAfterExit" not in text
    text = boot_unit.udev_rule_text(("rail0", "rail1"))
    assert f'KERNEL=="rail0|rail1", TAG+="systemd", ENV{{SYSTEMD_WANTS}}+="{BOOT_UNIT}"' in text
