# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The boot unit: whole or not used, isolated, run again when it has to be, and able to fail."""

from __future__ import annotations

import ast
import errno
import importlib.util
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import zipfile

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils import reboots
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.checks import (
    FAILED,
    NOT_APPLICABLE,
    OK,
    PENDING,
    REBOOT,
    Check,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.commands import (
    CommandError,
    Result,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.roce import sriov
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.roce.boot import (
    deciding,
    install,
    layout,
    program,
    sources,
    unit,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.roce.boot.wishes import (
    Wishes,
    WishesError,
    digest_of,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.roce.request import (
    Host,
    Request,
)

from tests.unit.test_roce_sriov import Nic
from tests.waiting import deadline

OPTIONS = unit.BootOptions(wait_s=5, before=("slurmd.service",))
BOOT_ID = "2c4e3f0e-7a0e-4c8e-a3c8-5d0a8f6f8f10"


class Systemd:
    """systemctl: a start runs what the launcher would, in this process."""

    def __init__(self, node) -> None:
        self.node = node
        self.calls = []

    def __call__(self, argv, *, check=True, stdin=None):
        self.calls.append(tuple(argv))
        if argv[:2] == ("systemctl", "start"):
            text = (self.node.root / layout.PROGRAM).read_text()
            version = re.search(r'^PROGRAM = "(\w+)"$', text, re.MULTILINE)[1]
            rc = self.node.program("--apply", version=version)
            return Result(tuple(argv), rc, "", "")
        return Result(tuple(argv), 0, "", "")


class Node:
    """One rail, rail0, with SR-IOV and without an RDMA device, and a systemd."""

    def __init__(self, root, count=0) -> None:
        self.root = root
        self.nic = Nic(root, count)
        random = root / "proc/sys/kernel/random"
        random.mkdir(parents=True)
        (random / "boot_id").write_text(f"{BOOT_ID}\n")
        self.systemd = Systemd(self)
        self.slept = []

    def wish(self, **more):
        request = Request.read({"firmware_parameters": {"ATS_ENABLED": 0}})
        given = {"interfaces": ("rail0",), "with_rdma": (), "request": request, **more}
        return install.Wish(Wishes(**given), OPTIONS)

    def installation(self, wish):
        why = "nothing here is forgotten by a reboot"
        return install.Installation(wish, why, self.root, uid=os.getuid(), gid=os.getgid())

    def converge(self, wish, **now):
        self.systemd.calls.clear()
        circumstances = install.Circumstances(**{"check_mode": False, **now})
        done = install.bring_about(self.installation(wish), self.systemd, circumstances)
        return done.diff, done.changed, done.check

    def program(self, *arguments, version="v1", sleep=None):
        host = Host(self.nic.run, self.root, which=lambda name: None)
        host = Host(self.nic.run, self.root, which=host.which, uid=os.getuid(), gid=os.getgid())
        moment = iter(range(10_000))
        return program.main(
            arguments, version, host, sleep or self.slept.append, lambda: float(next(moment))
        )

    def result(self):
        return json.loads((self.root / layout.RESULT).read_text())

    def files(self):
        return {
            str(path.relative_to(self.root)): path.read_text()
            for directory in ("usr", "etc")
            for path in sorted((self.root / directory).rglob("*"))
            if path.is_file() and not path.is_symlink()
        }


@pytest.fixture
def whole():
    """For tests that need the real program on the node, not a dozen of files like it."""


@pytest.fixture(autouse=True)
def few_files(request, monkeypatch):
    if "whole" not in request.fixturenames:
        names = ["unit", "program", *(f"other{number}" for number in range(10))]
        few = {f"ansible_collections/x/roce/boot/{name}.py": f"# {name}\n" for name in names}
        monkeypatch.setattr(sources, "closure", lambda entry: dict(few))


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


# What is installed


def test_first_run_installs_enables_and_runs_it(node):
    umask = os.umask(0o077)
    try:
        diff, changed, check = node.converge(node.wish())
    finally:
        os.umask(umask)

    assert changed and check.status == OK
    assert node.systemd.calls == [
        ("systemctl", "daemon-reload"),
        ("systemctl", "start", layout.UNIT),
    ]
    assert node.result()["failed"] == []
    headers = [each["before_header"] for each in diff]
    assert f"/{layout.LIBRARY}" in headers and layout.UNIT in headers
    launcher = node.root / layout.PROGRAM
    assert stat.S_IMODE(launcher.stat().st_mode) == 0o755
    modes = {
        stat.S_IMODE(path.stat().st_mode)
        for path in (node.root / layout.LIBRARY).rglob("*")
        if path.is_file()
    }
    assert modes == {0o644}
    directories = [path for path in (node.root / "usr").rglob("*") if path.is_dir()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in directories} == {0o755}
    link = node.root / layout.ENABLED
    assert str(link.readlink()) == f"/{layout.UNIT_FILE}"


def test_second_run_runs_no_program_and_changes_nothing(node):
    node.converge(node.wish())
    before = node.files()
    diff, changed, check = node.converge(node.wish())

    assert (diff, changed, check.status) == ([], False, OK)
    assert node.systemd.calls == [] and node.files() == before


def test_check_mode_shows_all_of_it_and_writes_nothing(node):
    diff, changed, check = node.converge(node.wish(), check_mode=True)

    assert changed and check.status == PENDING and node.systemd.calls == []
    assert not (node.root / "usr").exists() and not (node.root / "etc").exists()
    shown = {each["before_header"]: each["after"] for each in diff}
    assert re.search(r"^[0-9a-f]{16}  .*roce/boot/program\.py$", shown[f"/{layout.LIBRARY}"], re.M)
    assert '"ATS_ENABLED": 0' in shown[str(node.root / layout.STATE)]
    assert "ExecStart=" in shown[str(node.root / layout.UNIT_FILE)]


def test_a_changed_wish_shows_only_the_state_and_runs_again(node):
    node.converge(node.wish())
    request = Request.read({"firmware_parameters": {"ATS_ENABLED": 1}})
    diff, changed, check = node.converge(node.wish(request=request))

    assert [each["before_header"] for each in diff] == [str(node.root / layout.STATE)]
    assert changed and check.status == OK
    assert ("systemctl", "start", layout.UNIT) in node.systemd.calls


def test_a_changed_program_is_shown_by_its_modules_and_the_old_one_goes(node, monkeypatch):
    node.converge(node.wish())
    old = next((node.root / layout.LIBRARY).iterdir()).name
    real = sources.closure

    def newer(entry):
        files = real(entry)
        path = next(path for path in files if path.endswith("boot/unit.py"))
        return {**files, path: files[path] + "# newer\n"}

    monkeypatch.setattr(sources, "closure", newer)
    diff, changed, check = node.converge(node.wish())

    library = next(each for each in diff if each["before_header"] == f"/{layout.LIBRARY}")
    before, after = set(library["before"].splitlines()), set(library["after"].splitlines())
    assert {line.split()[1].rpartition("/")[2] for line in before ^ after} == {"unit.py"}
    assert changed and check.status == OK
    assert [each.name for each in (node.root / layout.LIBRARY).iterdir()] != [old]
    assert len(list((node.root / layout.LIBRARY).iterdir())) == 1


@pytest.mark.parametrize("damage", ["edited", "mode", "missing", "disabled", "foreign version"])
def test_damage_is_found_without_a_program_and_repaired(node, damage):
    node.converge(node.wish())
    whole = node.files()
    module = next((node.root / layout.LIBRARY).rglob("boot/unit.py"))
    if damage == "edited":
        module.write_text("import os\n")
    elif damage == "mode":
        module.chmod(0o666)
    elif damage == "missing":
        (node.root / layout.UDEV_RULE).unlink()
    elif damage == "disabled":
        (node.root / layout.ENABLED).unlink()
    else:
        (node.root / layout.LIBRARY / "0123456789abcdef").mkdir()

    diff, changed, check = node.converge(node.wish(), check_mode=True)
    assert diff and changed and check.status == PENDING and node.systemd.calls == []
    _diff, changed, check = node.converge(node.wish())
    assert changed and check.status == OK and node.files() == whole


@pytest.mark.parametrize(
    "damage", ["file", "link", "open", "open library", "module", "cache", "linked module", "linked"]
)
def test_what_others_could_have_put_there_is_found_and_removed(node, tmp_path, damage):
    node.converge(node.wish())
    whole = node.files()
    library = node.root / layout.LIBRARY
    version = next(library.iterdir())
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine.py").write_text("mine\n")
    if damage == "file":
        (library / "notes.txt").write_text("x")
    elif damage == "link":
        (library / "old").symlink_to(elsewhere)
    elif damage == "open":
        (version / "ansible_collections").chmod(0o777)
    elif damage == "open library":
        library.chmod(0o777)
    elif damage == "module":
        (version / "json.py").write_text("x")
    elif damage == "cache":
        cache = next(version.rglob("boot")) / "__pycache__"
        cache.mkdir()
        (cache / "planted.cpython-311.pyc").write_text("x")
    elif damage == "linked module":
        module = next(version.rglob("unit.py"))
        shutil.copy(module, elsewhere / "unit.py")
        module.unlink()
        module.symlink_to(elsewhere / "unit.py")
    else:
        version.rename(elsewhere / "version")
        version.symlink_to(elsewhere / "version")

    diff, changed, check = node.converge(node.wish(), check_mode=True)
    assert diff and changed and check.status == PENDING
    assert "mine.py" not in json.dumps(diff)
    _diff, changed, check = node.converge(node.wish())
    assert changed and check.status == OK and node.files() == whole
    assert (elsewhere / "mine.py").exists()
    assert not node.converge(node.wish())[1]
    assert [each.is_symlink() for each in library.iterdir()] == [False]


def test_directories_do_not_inherit_a_group_or_its_bit(node):
    shared = node.root / "usr/local/libexec"
    shared.mkdir(parents=True)
    shared.chmod(0o2775)
    assert node.converge(node.wish())[2].status == OK
    assert {stat.S_IMODE(path.stat().st_mode) for path in shared.rglob("*") if path.is_dir()} == {
        0o755
    }


def test_a_full_disk_is_told_by_the_check_alone(node, monkeypatch):
    def full(self):
        raise OSError(errno.ENOSPC, "No space left on device", str(self.path))

    monkeypatch.setattr(install.FilePlan, "apply", full)
    _diff, changed, check = node.converge(node.wish())
    assert changed and check.status == FAILED
    assert check.reason.endswith(": No space left on device")
    assert str(node.root / layout.LIBRARY) in check.reason


def test_killed_at_any_write_the_former_version_is_whole_and_the_next_run_repairs(
    node, monkeypatch
):
    node.converge(node.wish())
    launcher = (node.root / layout.PROGRAM).read_text()
    old = node.root / layout.LIBRARY / re.search(r'PROGRAM = "(\w+)"', launcher)[1]
    texts = {path: path.read_text() for path in old.rglob("*.py")}
    real = sources.closure
    newer = {path: text + "# newer\n" for path, text in real(install.ENTRY).items()}
    monkeypatch.setattr(sources, "closure", lambda entry: newer)

    class Killed(BaseException):
        pass

    apply = install.FilePlan.apply
    # The last dies at the launcher, with the whole of the new version beside the old one.
    for survived in (0, 1, 7, len(newer) - 8):
        writes = 0

        def dying(self, limit=survived):
            nonlocal writes
            if self.changed:
                if writes == limit:
                    raise Killed
                writes += 1
            apply(self)

        monkeypatch.setattr(install.FilePlan, "apply", dying)
        with pytest.raises(Killed):
            node.converge(node.wish())
        assert (node.root / layout.PROGRAM).read_text() == launcher
        assert {path: path.read_text() for path in texts} == texts
    monkeypatch.setattr(install.FilePlan, "apply", apply)
    _diff, changed, check = node.converge(node.wish())
    assert changed and check.status == OK
    assert (node.root / layout.PROGRAM).read_text() != launcher and not old.exists()


def test_without_anything_to_do_it_is_not_there_and_why_is_said(node):
    diff, changed, check = node.converge(None)
    assert (diff, changed, node.systemd.calls) == ([], False, [])
    assert check.status == NOT_APPLICABLE
    assert check.reason == "nothing here is forgotten by a reboot"

    node.converge(node.wish())
    diff, changed, check = node.converge(None)
    assert changed and check.status == NOT_APPLICABLE
    assert node.files() == {} and not (node.root / layout.ENABLED).is_symlink()
    assert node.systemd.calls == [("systemctl", "daemon-reload")]
    assert node.converge(None)[1] is False


def test_a_masked_unit_is_somebodys_wish_and_fails(node):
    (node.root / "etc/systemd/system").mkdir(parents=True)
    (node.root / layout.UNIT_FILE).symlink_to("/dev/null")
    diff, changed, check = node.converge(node.wish())

    assert (diff, changed) == ([], False) and check.status == FAILED
    assert f"systemctl unmask {layout.UNIT}" in check.reason
    assert str((node.root / layout.UNIT_FILE).readlink()) == "/dev/null"


def test_a_systemd_that_fails_is_quoted(node):
    def run(argv, *, check=True, stdin=None):
        raise CommandError("systemctl daemon-reload: exit status 1: Access denied")

    node.systemd = run
    run.calls = []
    check = node.converge(node.wish())[2]
    assert check.status == FAILED and "Access denied" in check.reason


# When it runs again


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (None, "it has not run in this boot"),
        ("half {", "cannot be read"),
        ({"program": "other", "state": "x", "failed": []}, "what ran last is another version"),
        ("failed", "rail_pfc rail0: wanted [3], found []"),
    ],
)
def test_a_run_that_proves_nothing_is_repeated(node, result, said):
    node.converge(node.wish())
    path = node.root / layout.RESULT
    good = node.result()
    if result is None:
        path.unlink()
    elif result == "failed":
        path.write_text(json.dumps({**good, "failed": ["rail_pfc rail0: wanted [3], found []"]}))
    else:
        path.write_text(result if isinstance(result, str) else json.dumps(result))

    diff, changed, check = node.converge(node.wish(), check_mode=True)
    assert changed and check.status == PENDING and said in check.reason
    assert said in diff[0]["before"]
    _diff, changed, check = node.converge(node.wish())
    assert changed and check.status == OK
    assert node.systemd.calls == [("systemctl", "start", layout.UNIT)]


def test_it_is_not_started_where_the_rails_do_not_hold_anyway(node):
    _diff, changed, check = node.converge(node.wish(), hold=False)
    assert changed and node.systemd.calls == [("systemctl", "daemon-reload")]
    assert check.status == FAILED
    assert "it has not run in this boot, and was not started: the rails do not hold" in check.reason

    _diff, changed, _check = node.converge(node.wish(), hold=False)
    assert not changed, "nothing that this run could do"


def test_it_waits_with_rails_that_get_their_names_at_the_next_boot(node):
    _diff, changed, check = node.converge(node.wish(), named=False)
    assert changed and node.systemd.calls == [("systemctl", "daemon-reload")]
    assert check.status == REBOOT and "it will at the next boot" in check.reason
    assert node.converge(node.wish(), named=False)[1] is False


# Whether there is one


def state(status, persistence="runtime"):
    return {"status": status, "persistence": persistence, "wanted": 0, "found": 0}


def decided(root, settings, **more):
    rails = deciding.Rails(("rail0",), (), {"rail0": settings})
    given = {"asked": True, "named": True, "root": root, **more}
    return deciding.installation_of(rails, Request.read({}), OPTIONS, **given)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "no rail has a setting that a reboot forgets"),
        ({"pfc": state("not_supported")}, "no rail has a setting that a reboot forgets"),
        ({"firmware_sriov_en": state("ok", "firmware")}, "no rail has a setting that a reboot"),
        ({"pfc": state("ok")}, ""),
        ({"pfc": state("failed")}, ""),
    ],
)
def test_there_is_one_where_a_reboot_forgets_something(tmp_path, settings, why):
    (tmp_path / layout.SYSTEMD).mkdir(parents=True)
    found = decided(tmp_path, settings)
    assert found.wanted is (not why) and why in found.why_none


def test_there_is_none_where_nobody_asked_or_systemd_does_not_run(tmp_path):
    assert "systemd does not run" in decided(tmp_path, {"pfc": state("ok")}).why_none
    (tmp_path / layout.SYSTEMD).mkdir(parents=True)
    found = decided(tmp_path, {"pfc": state("ok")}, asked=False)
    assert not found.wanted and "roce_rails_boot: false" in found.why_none


def test_rails_that_wait_for_their_names_have_one_for_the_next_boot(tmp_path):
    (tmp_path / layout.SYSTEMD).mkdir(parents=True)
    rails = deciding.Rails(("rail0",), (), {})
    now = deciding.circumstances(
        rails, [Check("rail_name", 1, 0, REBOOT, "rail0")], check_mode=False
    )
    request = Request.read({})
    found = deciding.installation_of(
        rails, request, OPTIONS, asked=True, named=now.named, root=tmp_path
    )
    assert found.wanted and found.wish.wishes.interfaces == ("rail0",)


@pytest.mark.parametrize("settings", [{}, {"rail0": {}}])
def test_one_is_never_removed_because_rails_are_gone(node, settings):
    (node.root / layout.SYSTEMD).mkdir(parents=True)
    node.converge(node.wish())
    before = node.files()
    found = deciding.installation_of(
        deciding.Rails(("rail0", "rail1"), (), settings),
        Request.read({}),
        OPTIONS,
        asked=True,
        named=True,
        root=node.root,
        uid=os.getuid(),
        gid=os.getgid(),
    )
    done = install.bring_about(found, node.systemd, install.Circumstances(check_mode=False))
    assert (done.changed, done.diff, node.files()) == (False, [], before)
    assert (node.root / layout.ENABLED).is_symlink()
    assert done.check.status == NOT_APPLICABLE
    assert "left as it was" in done.check.reason and "rail1" in done.check.reason


@pytest.mark.parametrize(
    ("check", "hold", "named"),
    [
        (Check("rail_pfc", 1, 0, FAILED, "rail0"), False, True),
        (Check("rail_settings", 1, 0, FAILED, "rail0"), False, True),
        (Check("rail_name", 1, 0, REBOOT, "rail0"), True, False),
        (Check("rail_settings", 1, 0, REBOOT, "rail0"), True, False),
        (Check("rail_firmware_sriov_en", 0, 1, REBOOT, "rail0"), True, True),
        (Check("rail_link", "up", "no carrier", FAILED, "rail0"), True, True),
        (Check("rail_pfc", 1, 1, OK, "rail0"), True, True),
    ],
)
def test_only_names_and_settings_are_its_business(check, hold, named):
    settings = {"pfc": state("ok"), "firmware_sriov_en": state("needs_reset", "firmware")}
    rails = deciding.Rails(("rail0",), (), {"rail0": settings})
    now = deciding.circumstances(rails, [check], check_mode=False)
    assert (now.hold, now.named) == (hold, named)


def test_a_run_that_fails_fails_the_check_with_its_words(tmp_path):
    node = Node(tmp_path, count=1)
    check = node.converge(node.wish())[2]
    assert check.status == FAILED
    assert "rail_virtual_functions rail0" in check.reason
    assert f"systemctl status {layout.UNIT}" in check.reason


# The program


def install_state(node, **more):
    node.converge(node.wish(**more), hold=False)


def test_check_shows_every_setting_and_its_exit_status_is_the_verdict(tmp_path, capsys):
    node = Node(tmp_path, count=1)
    install_state(node)
    assert node.program("--check") == program.DRIFT
    told = capsys.readouterr().out
    assert re.search(r"^rail0 +virtual_functions +pending +\[\"0000:0a:10\.0", told, re.M)
    assert told.splitlines()[-1] == "1 rails: 1 WRONG"
    assert not (tmp_path / layout.RESULT).exists(), "a check is no run of the unit"

    (node.nic.pf / "virtfn0").unlink()
    assert node.program() == program.HOLDS
    assert "1 rails: 1 settings hold\n" in capsys.readouterr().out


def test_apply_tells_the_journal_and_the_next_run_of_ansible(tmp_path, capsys):
    node = Node(tmp_path, count=1)
    install_state(node)
    assert node.program("--apply") == program.DRIFT
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("<3>rail_virtual_functions rail0: wanted [], found")
    assert lines[-1] == "1 rails: 1 WRONG"
    assert node.result()["failed"] == [lines[0][3:]]
    assert (node.result()["program"], node.result()["state"]) == (
        "v1",
        digest_of((tmp_path / layout.STATE).read_text()),
    )


def test_apply_sets_what_differs_and_says_on_which_rail(tmp_path, capsys, monkeypatch):
    node = Node(tmp_path, count=1)
    install_state(node)

    def kernel(setting, number):
        assert number == 0
        (node.nic.pf / "virtfn0").unlink()

    monkeypatch.setattr(sriov.NoVirtualFunctions, "_set", kernel)
    assert node.program("--check") == program.DRIFT
    capsys.readouterr()
    assert node.program("--apply") == program.HOLDS
    assert capsys.readouterr().out == "1 rails: 1 settings hold; set on rail0\n"
    assert node.program("--check") == program.HOLDS


def test_what_holds_late_holds_and_the_journal_knows_what_it_waited_for(tmp_path, capsys):
    node = Node(tmp_path, count=1)
    install_state(node)

    def sleep(seconds):
        node.slept.append(seconds)
        if len(node.slept) == 3:
            (node.nic.pf / "virtfn0").unlink()

    assert node.program("--apply", "--wait", "60", sleep=sleep) == program.HOLDS
    assert len(node.slept) == 3 and node.slept == sorted(node.slept)
    lines = capsys.readouterr().out.splitlines()
    assert [line[:39] for line in lines[:3]] == ["not yet: rail_virtual_functions rail0: "] * 3
    assert lines[3] == "1 rails: 1 settings hold"


def test_the_wait_is_bounded_and_a_missing_rail_is_named(tmp_path, capsys):
    node = Node(tmp_path)
    install_state(node, interfaces=("rail0", "rail7"))
    assert node.program("--apply", "--wait", "6") == program.DRIFT
    assert 1 <= len(node.slept) < 20
    told = capsys.readouterr().out
    assert (
        "<3>rail_interface rail7: wanted 'rail7', found None (there is no such interface)" in told
    )


def test_an_rdma_device_that_did_not_come_back_is_named(tmp_path, capsys):
    node = Node(tmp_path)
    install_state(node, with_rdma=("rail0",))
    assert node.program("--apply") == program.DRIFT
    assert "rail_rdma rail0" in capsys.readouterr().out
    assert any("it had an RDMA device" in line for line in node.result()["failed"])


def test_virtual_functions_in_use_are_not_taken_away_at_boot(tmp_path, capsys):
    node = Node(tmp_path, count=1)
    node.nic.flags("eth0", 0x1003)
    install_state(node, request=Request.read({"remove_vfs_in_use": True}))
    assert node.program("--apply") == program.DRIFT
    assert "1 of 1 virtual functions of 0000:09:00.0 are in use" in capsys.readouterr().out
    assert node.nic.numvfs == "1"


def test_a_reset_that_has_happened_leaves_the_record(tmp_path):
    node = Node(tmp_path)
    install_state(node)
    reason = reboots.Reason("rail0 firmware_sriov_en", "0", "1", "at its reset")
    reboots.plan(
        "rails-firmware", [reason], "before", root=tmp_path, uid=os.getuid(), gid=os.getgid()
    ).apply()
    node.program("--check")
    assert reboots.required(tmp_path)
    assert node.program("--apply") == program.HOLDS
    assert reboots.required(tmp_path) == {}


def test_settings_are_on_record_before_the_firmware_is_looked_at(tmp_path, monkeypatch):
    """Its tool may hang until systemd ends the unit."""
    node = Node(tmp_path)
    install_state(node)
    reason = reboots.Reason("rail0 firmware_sriov_en", "0", "1", "at its reset")
    ids = {"uid": os.getuid(), "gid": os.getgid()}
    reboots.plan("rails-firmware", [reason], "before", root=tmp_path, **ids).apply()

    class Killed(BaseException):
        pass

    def hanging(self, outcome):
        raise Killed

    monkeypatch.setattr(program._Pass, "look_at_firmware", hanging)
    with pytest.raises(Killed):
        node.program("--apply")
    (failed,) = node.result()["failed"]
    assert "mlxconfig" in failed
    assert reboots.required(tmp_path), "nobody looked whether that reset has happened"
    monkeypatch.undo()
    assert node.program("--apply") == program.HOLDS
    assert node.result()["failed"] == []


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (None, "rails.json is missing. Run the role roce_rails"),
        ("{", "cannot be used (JSONDecodeError"),
        ("{}", "cannot be used (KeyError: 'rails')"),
        ('{"rails": "rail0", "with_rdma": []}', "'rail0' is no list of rails"),
        ('{"rails": [], "with_rdma": [], "qos": {"roce": {"dscp": 99}}}', "ContractError"),
    ],
)
def test_what_cannot_be_told_is_neither_good_nor_bad(tmp_path, capsys, state, said):
    node = Node(tmp_path)
    install_state(node)
    path = tmp_path / layout.STATE
    path.unlink() if state is None else path.write_text(state)
    assert node.program("--check") == program.UNKNOWN
    assert said in capsys.readouterr().err


def test_a_host_without_sysfs_is_neither_good_nor_bad(tmp_path, capsys):
    node = Node(tmp_path)
    install_state(node)
    shutil.rmtree(tmp_path / "sys")
    assert node.program("--check") == program.UNKNOWN
    assert capsys.readouterr().err.startswith("rails: ")


def test_wishes_survive_the_file():
    request = Request.read({"nic": {"rings": {"rx": 8192}}, "firmware": False})
    wishes = Wishes(("rail0", "rail1"), ("rail1",), request)
    assert Wishes.read(wishes.text()) == wishes
    with pytest.raises(WishesError, match="no list"):
        Wishes.read(
            wishes.text().replace('["rail1"]', '"rail1"').replace('[\n    "rail1"\n  ]', '"x"')
        )


# The installed program on its own


def run_installed(node, *arguments, env=None):
    command = [str(node.root / layout.PROGRAM), *arguments, "--root", str(node.root)]
    return subprocess.run(command, capture_output=True, text=True, timeout=deadline(300), env=env)


@pytest.mark.skipif(not shutil.which("/usr/bin/python3"), reason="needs /usr/bin/python3")
def test_it_runs_alone_isolated_from_the_callers_environment(node, tmp_path, whole):
    install_state(node)
    trap = tmp_path / "trap"
    trap.mkdir()
    for name in ("json", "ansible_collections", "sitecustomize"):
        (trap / f"{name}.py").write_text("raise SystemExit('of the environment')\n")
    env = {"PYTHONPATH": str(trap), "PYTHONSTARTUP": str(trap / "json.py"), "PATH": str(trap)}
    done = run_installed(node, "--check", env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("1 rails: 1 settings hold\n")
    # What Python compiled is kept for the next boot, and is no difference to the role.
    assert list((node.root / layout.LIBRARY).rglob("__pycache__"))
    assert not node.installation(node.wish()).changed

    (node.nic.pf / "virtfn0").symlink_to(node.nic.pf)
    assert run_installed(node, "--check").returncode == program.DRIFT


def test_nothing_in_the_library_takes_the_place_of_pythons_own(node, whole):
    install_state(node)
    version = next((node.root / layout.LIBRARY).iterdir())
    (version / "json.py").write_text("raise SystemExit('planted')\n")
    done = run_installed(node, "--check")
    assert (done.returncode, done.stderr) == (0, "")


def test_it_needs_nothing_of_ansibles(node, whole):
    install_state(node)
    standard = set(sys.stdlib_module_names) | {"ansible_collections"}
    for path in (node.root / layout.LIBRARY).rglob("*.py"):
        for found in ast.walk(ast.parse(path.read_text())):
            if isinstance(found, ast.Import):
                names = [alias.name for alias in found.names]
            elif isinstance(found, ast.ImportFrom) and not found.level:
                names = [found.module]
            else:
                continue
            assert {name.split(".")[0] for name in names} <= standard, path


def test_nothing_that_is_imported_is_left_out(whole):
    """The quick look at import lines against Python's own parser, for every file."""
    files = sources.closure(install.ENTRY)
    for path, text in files.items():
        own = path[: -len(".py")].replace("/", ".")
        parts = own.split(".")[:-1]
        for found in ast.walk(ast.parse(text)):
            if not isinstance(found, ast.ImportFrom):
                continue
            base = ".".join(parts[: len(parts) - found.level + 1]) if found.level else ""
            base = ".".join(filter(None, [base, found.module]))
            if not base.startswith(sources.PREFIX):
                continue
            for name in (base, *(f"{base}.{alias.name}" for alias in found.names)):
                there = importlib.util.find_spec(base).submodule_search_locations is not None
                if name == base or (there and importlib.util.find_spec(name)):
                    place = name.replace(".", "/")
                    assert {f"{place}.py", f"{place}/__init__.py"} & set(files), (own, name)


def test_an_import_of_ansible_is_a_mistake_that_is_found(monkeypatch, whole):
    real = sources._source

    def source(name, spec):
        path, text = real(name, spec)
        return path, text + "\nimport ansible.module_utils.basic\n"

    monkeypatch.setattr(sources, "_source", source)
    with pytest.raises(sources.SourceError, match="nodes have no Ansible of their own"):
        sources.closure(install.ENTRY)


def test_sources_are_the_same_from_ansibles_zip(tmp_path, whole):
    """The module on a node reads them from the zip that it runs from."""
    archive = tmp_path / "payload.zip"
    with zipfile.ZipFile(archive, "w") as payload:
        for path, text in sources.closure(install.ENTRY).items():
            payload.writestr(path, text)
        for name in ("sources.py", "install.py", "library.py"):
            path = f"{sources.PREFIX.replace('.', '/')}/roce/boot/{name}"
            text = (program.__spec__.origin).replace("program.py", name)
            with open(text, encoding="utf-8") as stream:
                payload.writestr(path, stream.read())
    code = (
        f"import sys; sys.path.insert(0, {str(archive)!r})\n"
        f"from {sources.PREFIX}.roce.boot import install, sources\n"
        "print(sources.digest(sources.closure(install.ENTRY)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == sources.digest(sources.closure(install.ENTRY))


# The unit


def test_the_unit_waits_for_links_and_jobs_wait_for_it():
    text = unit.unit_text(("rail0", "rail-1"), OPTIONS)
    device = "sys-subsystem-net-devices-rail0.device sys-subsystem-net-devices-rail\\x2d1.device"
    assert f"Wants={device}\nAfter={device}\n" in text
    assert "Requires=" not in text, "one missing NIC must not keep the others from being set up"
    assert "Before=slurmd.service\n" in text
    assert f"ExecStart=/{layout.PROGRAM} --apply --wait 5\n" in text
    assert "RemainAfterExit" not in text, "or a start would do nothing, and a restart too much"
    assert f"TimeoutStartSec={5 + unit.LOCK_S + 180}" in text


def test_a_nic_that_comes_back_starts_it():
    text = unit.udev_rule_text(("rail0", "rail1"))
    assert f'KERNEL=="rail0|rail1", TAG+="systemd", ENV{{SYSTEMD_WANTS}}+="{layout.UNIT}"' in text
    assert 'ACTION=="add", SUBSYSTEM=="infiniband"' in text


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_accepts_the_unit(tmp_path):
    path = tmp_path / layout.UNIT
    text = unit.unit_text(("rail0",), OPTIONS).replace(f"/{layout.PROGRAM}", "/bin/true")
    path.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", str(path)],
        capture_output=True,
        text=True,
        timeout=deadline(300),
    )
    ours = [line for line in done.stderr.splitlines() if layout.UNIT in line]
    assert ours == []
