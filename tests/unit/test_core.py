# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The helpers of all layers on a node: checks, files, programs, locks, reasons for a reboot."""

from __future__ import annotations

import base64
import contextlib
import errno
import json
import os
import re
import signal
import stat
import subprocess
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import (
    checks,
    commands,
    files,
    locks,
    machine,
    reboots,
    text,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    Result,
    output,
    run,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.distribution import (
    REDHAT,
    read_distribution,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.reboots import Reason
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.ended import Ended, Module
from tests.waiting import until

ANSWERS = st.recursive(
    st.text() | st.integers() | st.none(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(ANSWERS)
def test_an_answer_only_prints_and_printable_ones_stay(answer):
    shown = text.printable(answer)
    assert text.printable(shown) == shown
    # Newlines are escaped there.
    assert json.dumps(shown, ensure_ascii=False).translate(text.BLANKS).isprintable()


def test_text_of_any_language_stays():
    for said in ("Ungültig: Größe", "d\xe9j\xe0\xa0: \u202f?", "日本語\u3000テスト", "ошибка"):
        assert text.printable({said: [said]}) == {said: [said]}


@pytest.mark.parametrize("sign", ["\x1b", "\r", "\x9b", "\u202e", "\u2028", "\udc80"])
def test_control_characters_are_escaped(sign):
    assert text.printable(f"leaf{sign}01") == f"leaf{sign.encode('unicode_escape').decode()}01"
    check = checks.Check("lldp", "a", "b", checks.FAILED, f"{sign}swp1", f"one\n{sign}two")
    assert check.line().isprintable()


@pytest.mark.parametrize("part", ["found", "wanted", "subject", "reason"])
def test_a_check_takes_a_bounded_part_of_the_terminal(part):
    given = {"wanted": "a", "found": "b", "subject": "swp1", "reason": "c", part: "x" * 10_000_000}
    line = checks.Check(name="lldp", status=checks.FAILED, **given).line()
    assert len(line) < 4100 and re.search(r"x \.\.\. and 99960\d\d characters more$", line)


def test_depth_is_limited_but_not_file_content():
    deep = answer = []
    for _level in range(3000):
        deep.append([])
        deep = deep[0]
    assert "40 levels" in str(text.printable(answer))
    content = base64.b64encode(bytes(3_000_000)).decode()  # of slurp, as fetch decodes it
    assert text.printable({"content": content}) == {"content": content}


def test_compare_is_ok_only_when_equal():
    assert checks.compare("mtu", 9000, 9000).status == checks.OK
    assert checks.compare("mtu", 9000, 1500).status == checks.FAILED
    assert checks.compare("mtu", 9000, "9000").status == checks.FAILED
    assert checks.compare("mtu", 9000, 1500, check_mode=True).status == checks.PENDING


@pytest.mark.parametrize(
    ("variables", "pending", "reboot"),
    [
        ((), checks.PENDING, checks.REBOOT),
        ((checks.STRICT,), checks.FAILED, checks.REBOOT),
        ((checks.STRICT, checks.REBOOTED), checks.FAILED, checks.FAILED),
    ],
)
def test_verification_fails_what_is_pending_or_needs_a_reboot(
    variables, pending, reboot, monkeypatch
):
    monkeypatch.delenv(checks.STRICT, raising=False)
    for variable in variables:
        monkeypatch.setenv(variable, "1")
    given = [checks.Check("mtu", 9000, 1500, status) for status in checks.STATUSES[:2]]
    given += [checks.Check("mtu", 9000, 1500, status) for status in (checks.PENDING, checks.REBOOT)]
    for check_mode in (True, False):
        with pytest.raises(Ended) as caught:
            # A result of this name, which mpi_stack has, is no argument of the function.
            checks.end(Module(check_mode), "rails", given, "", environment={"A": "b"})
        assert caught.value.result["environment"] == {"A": "b"}
        statuses = [check["status"] for check in caught.value.result["checks"]]
        assert statuses == [checks.OK, checks.FAILED, pending, reboot]
    assert [check.status for check in given] == [*statuses[:2], checks.PENDING, checks.REBOOT]


def test_not_applicable_needs_a_reason():
    with pytest.raises(ValueError, match="needs a reason"):
        checks.Check("mtu", 9000, None, checks.NOT_APPLICABLE)
    with pytest.raises(ValueError, match="unknown status"):
        checks.Check("mtu", 9000, None, "passed")


def test_the_failure_message_has_each_check_and_the_remedy():
    found = [
        checks.compare("rail_mtu", 9000, 1500, subject="rail3", reason="the driver refused it"),
        checks.compare("rail_mtu", 9000, 9000, subject="rail4"),
    ]
    message = checks.failure_message("rails", found, "Check dmesg.", applied=True) or ""
    heading, line, remedy = message.splitlines()
    assert heading.startswith("rails: 1 check failed after")
    assert (line.strip(), remedy) == (found[0].line(), "Check dmesg.")
    assert checks.failure_message("rails", found[1:], "") is None


def test_a_container_is_told_from_a_machine(tmp_path):
    assert machine.container(tmp_path) is None
    (tmp_path / "run/systemd").mkdir(parents=True)
    (tmp_path / "run/systemd/container").write_text("podman\n")
    assert machine.container(tmp_path) == "podman"


def test_a_program_that_fails_hangs_or_is_missing_says_so():
    assert run(["cat"], stdin="in").stdout == "in"
    with pytest.raises(CommandError, match=r"exit status 3: told"):
        run(["sh", "-c", "echo told you >&2; exit 3"])
    assert run(["sh", "-c", "exit 3"], check=False).rc == 3
    with pytest.raises(CommandError, match=r"sleep infinity: .* 0.2 s"):
        run(["sleep", "infinity"], timeout_s=0.2)
    with pytest.raises(CommandError, match="no-such-program: not installed"):
        run(["no-such-program"])


def test_an_error_has_the_end_of_both_outputs_errors_first():
    """A package script prints the cause on one output, and dpkg a heading on the other."""
    with pytest.raises(CommandError, match=r"exit status 3: heading\nthe cause$"):
        run(["sh", "-c", "echo heading >&2; echo the cause; exit 3"])
    long = Result((), 1, "".join(f"o{at}\n" for at in range(999)), "e\n" * 999 + "last")
    text = output(long, 300)
    assert len(text) <= 301 and text.endswith("o998")
    assert "last\n" in text
    assert output(Result((), 1, " \n", "e" * 400), 300) == "e" * 300
    assert output(Result((), 1, "", ""), 300) == ""


def test_input_and_output_exceed_a_pipe():
    long = "é\n" * 500_000
    both = run(["sh", "-c", "tee /dev/stderr"], stdin=long)
    assert (both.stdout, both.stderr) == (long, long)
    assert run(["true"], stdin=long).stdout == ""  # and it reads none of it
    assert run(["printf", r"a\r\nb\rc\377"]).stdout == "a\nb\nc\ufffd"


def test_a_program_that_prints_without_end_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(commands, "MAX_OUTPUT_BYTES", 1 << 20)
    child = tmp_path / "child"
    with pytest.raises(CommandError, match=r"yes >&2.*: killed.* 1 MiB"):
        run(["sh", "-c", f"yes & echo $! > {child}; yes >&2"], check=False)
    stat = Path(f"/proc/{child.read_text().strip()}/stat")
    until(lambda: not runs(stat), "the end of what it started")


def test_a_program_that_hangs_takes_what_it_started_with_it(tmp_path, monkeypatch):
    child = tmp_path / "child"
    popen = subprocess.Popen

    def begun(*words, **more):
        """The time limit starts once a child exists that must be killed too."""
        process = popen(*words, **more)
        until(lambda: child.exists() and child.read_text().endswith("\n"), "the child")
        return process

    monkeypatch.setattr(subprocess, "Popen", begun)
    with pytest.raises(CommandError, match=r"within 0.1 s"):
        run(["sh", "-c", f"sleep infinity & echo $! > {child}; wait"], timeout_s=0.1)
    stat = Path(f"/proc/{child.read_text().strip()}/stat")
    # Killed, it may stay a moment as a zombie until it is reaped.
    until(lambda: not runs(stat), "the end of what it started")


def runs(stat):
    try:
        return stat.read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_programs_of_the_administrator_are_found_without_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PATH of an unprivileged SSH login lacks sbin, which has mlnx_qos and ip."""
    tool = tmp_path / "sbin/hidden-tool"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho $PATH\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(commands, "SYSTEM", ("/usr/bin", str(tool.parent)))
    assert commands.search_path() == f"/usr/bin:/bin:{tool.parent}"
    assert commands.find_program("hidden-tool") == str(tool)
    assert commands.run(["hidden-tool"]).stdout == f"/usr/bin:/bin:{tool.parent}\n"


def test_a_program_that_cannot_be_killed_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """No signal terminates a program in uninterruptible sleep."""
    asked: list[int] = []
    started: list[subprocess.Popen[str]] = []
    real = subprocess.Popen

    def popen(*words: object, **more: object) -> subprocess.Popen[str]:
        started.append(real(*words, **more))  # type: ignore[call-overload]
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", popen)
    monkeypatch.setattr(commands, "REAP_S", 0.2)
    with monkeypatch.context() as patched:
        patched.setattr(os, "killpg", lambda pid, _signal: asked.append(pid))
        with pytest.raises(commands.NoAnswerError, match=r"sleep infinity: .* 0\.1 s"):
            commands.run(["sleep", "infinity"], timeout_s=0.1)
    try:
        assert started[0].poll() is None  # not reaped
        assert asked == [started[0].pid]
        assert started[0].stdout is not None and started[0].stdout.closed
    finally:
        os.killpg(started[0].pid, signal.SIGKILL)
        started[0].wait()


UID, GID = os.getuid(), os.getgid()
LINE = st.text(st.characters(blacklist_characters="\n", blacklist_categories=("Cs",)), max_size=30)


def plan(path, after, **more):
    return files.plan_file(path, after, uid=UID, gid=GID, **more)


def test_a_missing_file_is_written_with_its_mode(tmp_path):
    wanted = plan(tmp_path / "deep/er/file", "text\n", mode=0o600)
    assert wanted.changed
    wanted.apply()
    path = tmp_path / "deep/er/file"
    assert path.read_text() == "text\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not plan(path, "text\n", mode=0o600).changed


def test_a_wrong_mode_is_a_change(tmp_path):
    path = tmp_path / "file"
    path.write_text("same\n")
    path.chmod(0o666)
    wanted = plan(path, "same\n")
    assert wanted.changed
    assert "0666" in wanted.diff()["before"] and "0644" in wanted.diff()["after"]
    wanted.apply()
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    shown = plan(path, "new secret\n", mode=0o600, secret=True).diff()
    assert "same" not in shown["before"] and "secret" not in shown["after"]


def test_absent_removes_and_is_then_no_change(tmp_path):
    path = tmp_path / "file"
    path.write_text("x\n")
    wanted = plan(path, None)
    assert wanted.changed and wanted.diff()["after"] == ""
    wanted.apply()
    assert not path.exists() and not plan(path, None).changed


def test_a_full_disk_names_the_file(tmp_path, monkeypatch):
    def full(_descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "file").write_text("old\n")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=rf"Errno 28.*: '{tmp_path}/file'"):
        plan(tmp_path / "file", "new\n").apply()
    assert (tmp_path / "file").read_text() == "old\n"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_symlink_stays_one_and_its_target_changes(tmp_path):
    (tmp_path / "target").write_text("old\n")
    (tmp_path / "link").symlink_to("target")
    plan(tmp_path / "link", "new\n").apply()
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new\n"


@given(st.lists(LINE), st.lists(LINE, min_size=1), st.lists(LINE, min_size=1))
def test_a_block_changes_nothing_but_itself(own, first, second):
    """A block that is added, changed and removed leaves the operator's lines unchanged."""
    text = "".join(f"{line}\n" for line in own)
    one = files.replace_block(text, first, "hosts")
    assert files.replace_block(one, first, "hosts") == one
    two = files.replace_block(one, second, "hosts")
    assert two.startswith(text)
    assert files.replace_block(two, [], "hosts") == text


def test_a_block_without_end_is_refused_with_its_line():
    with pytest.raises(ValueError, match="line 2"):
        files.replace_block("x\n# BEGIN baremetal.mpi_roce hosts\ny\n", ["a"], "hosts")


def test_bytes_that_are_not_ours_come_back_as_they_were(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"dos\r\nlatin \xe9\n")
    before = plan(path, None).before
    plan(path, files.replace_block(before, ["a"], "hosts")).apply()
    assert path.read_bytes().startswith(b"dos\r\nlatin \xe9\n# BEGIN")


@pytest.mark.parametrize("umask", [0o077, 0o022, 0o002])
def test_directories_that_are_made_can_be_entered_whatever_the_umask(tmp_path, umask):
    (tmp_path / "there").mkdir(mode=0o700)
    before = os.umask(umask)
    try:
        plan(tmp_path / "there/etc/own/mpi.env", "A=1\n").apply()
        # The umask of the caller is restored.
        assert os.umask(umask) == umask
    finally:
        os.umask(before)
    modes = [
        stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("there/etc", "there/etc/own")
    ]
    assert modes == [0o755, 0o755]
    # An existing directory is not changed.
    assert stat.S_IMODE((tmp_path / "there").stat().st_mode) == 0o700


def test_a_second_holder_waits_and_names_the_first(tmp_path: Path) -> None:
    path = tmp_path / "run/x.lock"
    now = [0.0]
    seen: list[float] = []

    def sleep(seconds: float) -> None:
        now[0] += seconds

    with locks.alone(path):
        again = locks.alone(path, 1.0, waiting=seen.append, sleep=sleep, clock=lambda: now[0])
        with pytest.raises(locks.HeldError) as caught, again:
            pass
    assert f"{path} is held" in str(caught.value)
    assert f"process {os.getpid()} (" in str(caught.value)
    assert f"kill {os.getpid()}" in str(caught.value)
    assert seen[0] == 0 and 1.0 <= now[0] < 1.5
    with locks.alone(path, 0):
        assert path.read_text() == f"{os.getpid()}\n"


def test_a_holder_that_wrote_nothing_is_named_by_the_kernel(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    with subprocess.Popen(
        ["flock", str(path), "sh", "-c", "echo held; read end"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout and other.stdout.readline() == "held\n"
        with pytest.raises(locks.HeldError) as caught, locks.alone(path, 0):
            pass
        other.communicate("\n")
    assert f"process {other.pid} (flock {path} sh" in str(caught.value)
    assert re.search(r"since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", str(caught.value))


def test_no_other_user_can_open_a_lock(tmp_path: Path) -> None:
    """A user who can read the file can hold its lock indefinitely."""
    with locks.alone(tmp_path / "run/locks/x.lock"):
        modes = [stat.S_IMODE(path.stat().st_mode) for path in sorted(tmp_path.rglob("*"))]
    assert modes == [0o755, 0o700, 0o600]


def test_the_lock_of_another_s_directory_or_link_is_not_taken(tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    with (
        pytest.raises(locks.UnsafeError, match="any user"),
        locks.alone(open_to_all / "x.lock"),
    ):
        pass
    (tmp_path / "link.lock").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic links"), locks.alone(tmp_path / "link.lock"):
        pass
    assert not (tmp_path / "target").exists()
    os.mkfifo(tmp_path / "pipe.lock")
    with pytest.raises(locks.UnsafeError, match="not a file"), locks.alone(tmp_path / "pipe.lock"):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives directories to others")
@pytest.mark.parametrize(
    ("mode", "owner", "link", "refused"),
    [
        (0o700, 2000, None, "belongs to user 2000"),
        (0o700, 2000, 0, "belongs to user 2000"),
        (0o700, 0, 2000, "belongs to user 2000"),
        (0o700, 0, 0, ""),
        # A shared directory belongs to the operators' group, whoever created it.
        (0o2770, 2000, None, ""),
        (0o2770, 2000, 0, ""),
        (0o2770, 2000, 2000, "belongs to user 2000"),
        (0o2770, 0, 2000, "belongs to user 2000"),
        (0o770, 2000, None, "belongs to user 2000"),
        (0o2700, 2000, None, "belongs to user 2000"),
        (0o2777, 0, None, "any user"),
    ],
)
def test_who_may_own_the_directory_of_locks(
    mode: int, owner: int, link: int | None, refused: str, tmp_path: Path
) -> None:
    directory = tmp_path / "locks"
    directory.mkdir()
    os.chown(directory, owner, 2000)
    directory.chmod(mode)
    if link is not None:
        (tmp_path / "link").symlink_to(directory)
        os.lchown(tmp_path / "link", link, link)
    lock = locks.alone((directory if link is None else tmp_path / "link") / "x.lock")
    if refused:
        with pytest.raises(locks.UnsafeError, match=refused), lock:
            pass
    else:
        with lock:
            pass
    assert [path.name for path in directory.iterdir()] == ([] if refused else ["x.lock"])


@pytest.mark.parametrize(("owner", "taken"), [(0, True), (1000, True), (2000, False)])
def test_a_directory_of_locks_may_be_roots(
    owner: int, taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unprivileged user may use a directory of root or of this user."""
    monkeypatch.setattr(locks.os, "geteuid", lambda: 1000)
    found = os.stat_result((0o40700, 0, 0, 1, owner, owner, 0, 0, 0, 0))
    monkeypatch.setattr(Path, "lstat", lambda _path: found)
    monkeypatch.setattr(Path, "stat", lambda _path: found)
    with contextlib.nullcontext() if taken else pytest.raises(locks.UnsafeError):
        locks._make_private(tmp_path)


def test_the_distribution_is_what_os_release_says(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text('ID="rocky"\nVERSION_ID="9.6"\n')
    assert read_distribution(tmp_path).family is REDHAT


IOMMU = Reason("kernel argument iommu", "iommu=pt", "absent", "read at boot only")
PAGES = Reason("hugepages 1G", "16", "0", "memory is fragmented")
OUTLIVED = [(IOMMU, "one"), (IOMMU, "two"), (PAGES, "two")]


def recorded(root, layer, reasons, boot):
    return reboots.plan(layer, reasons, boot, root=root, uid=os.getuid(), gid=os.getgid())


def test_reasons_keep_the_boot_that_first_asked_until_they_run(tmp_path):
    recorded(tmp_path, "os", [IOMMU], "one").apply()
    old = reboots.recorded("os", tmp_path)
    # A reboot that did not help is known as one.
    found = [reboots.outlived(reason, old, boot) for reason, boot in OUTLIVED]
    assert found == [None, "one", None]
    recorded(tmp_path, "os", [IOMMU, PAGES], "two").apply()
    boots = {each.subject: each.boot_id for each in reboots.recorded("os", tmp_path)}
    assert boots == {IOMMU.subject: "one", PAGES.subject: "two"}
    recorded(tmp_path, "os", [PAGES], "two").apply()
    assert [each.subject for each in reboots.recorded("os", tmp_path)] == [PAGES.subject]
    recorded(tmp_path, "os", [], "two").apply()
    assert not reboots.path_of("os", tmp_path).exists()


@pytest.mark.parametrize("text", ["", "[]", '{"reasons": [{"subject": "x"}]}', '{"reasons": 1}'])
def test_a_broken_record_is_named(tmp_path, text):
    path = reboots.path_of("os", tmp_path)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(reboots.RecordError, match=str(path)):
        reboots.recorded("os", tmp_path)
