# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The session of the MPI user: deviations, and the lines that cause them."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import (
    FAILED,
    PENDING,
    Check,
    failures,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    NoAnswerError,
    Result,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh import session
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh import (
    session_program as program,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.waiting import until

USER = pwd.getpwuid(os.getuid())
LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max processes             {nproc}                32768                processes
Max open files            {nofile}                20000                files
Max locked memory         8388608              8388608              bytes
"""


def limits(nofile: object = 1024, nproc: object = 4096) -> str:
    return LIMITS.format(nofile=nofile, nproc=nproc)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with a home, whose files the program reads."""
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "profile.d").mkdir()
    own = tmp_path / "profile.d/baremetal-mpi-roce.sh"
    own.write_text("export UCX_TLS=rc UCX_NET_DEVICES=rail0\n")
    monkeypatch.setattr(program, "PROFILE", str(own))
    monkeypatch.setattr(program, "ROOT_FILES", (str(tmp_path / "profile.d"),))
    monkeypatch.setattr(program, "LIMITS", (str(tmp_path / "limits.d"),))
    monkeypatch.setattr(program, "imports", lambda _values, _ours, _limit_s: None)
    for name in [name for name in os.environ if program.WATCHED.fullmatch(name)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    return tmp_path


def look(host: Path, shell: str = "/bin/bash") -> list[Check]:
    before = os.umask(0o022)
    found = json.loads(json.dumps(program.session(str(host / "home"), shell, 30)))
    assert (os.umask(before), found["umask"]["mask"]) == (0o022, 0o022), "the mask is given back"
    return session.evaluate(found, host)


def wrong(host: Path, name: str, shell: str = "/bin/bash") -> list[tuple[str, str]]:
    """Subject and reason of the failed checks of this name."""
    found = failures(look(host, shell))
    assert all(check.by_hand for check in found)
    return [(check.subject, check.reason) for check in found if check.name == name]


def test_a_configured_host_has_no_findings(host: Path) -> None:
    """Login files may print, and logging variables are harmless."""
    (host / "home/.bash_profile").write_text("echo Welcome\nexport NCCL_DEBUG=INFO LANG=C\n")
    found = [check for check in look(host) if check.name != "session_limit"]
    assert failures(found) == [] and len(found) == 5


@pytest.mark.parametrize(
    ("line", "subject"),
    [
        ("export UCX_TLS=tcp,self", "UCX_TLS"),
        ("UCX_NET_DEVICES=mgmt0; export UCX_NET_DEVICES", "UCX_NET_DEVICES"),
        ("declare -x OMPI_MCA_pml=ob1", "OMPI_MCA_pml"),
        ("export A=1 NCCL_IB_DISABLE=1", "NCCL_IB_DISABLE"),
        ("export LD_PRELOAD=", ""),
    ],
)
def test_a_variable_is_traced_to_its_line(host: Path, line: str, subject: str) -> None:
    (host / "home/.bash_profile").write_text(f"# UCX_TLS=x\n. {host}/site.env\n")
    (host / "site.env").write_text(f"# site\n{line}\n")
    found = wrong(host, "session_variable")
    assert [each for each, _reason in found] == ([subject] if subject else ["LD_PRELOAD"])
    assert f"of a login shell: {host}/site.env:2" in found[0][1]


def test_a_library_path_of_another_mpi_is_reported(host: Path) -> None:
    for name, library in (("mpi", "libmpi.so.40"), ("cuda", "libcudart.so")):
        (host / name).mkdir()
        (host / name / library).touch()
    (host / "home/.bash_profile").write_text(f"export LD_LIBRARY_PATH={host}/cuda:{host}/mpi\n")
    (check,) = (check for check in failures(look(host)) if check.name == "session_variable")
    assert (check.subject, check.found) == ("LD_LIBRARY_PATH", f"{host}/mpi")


def test_another_mpirun_is_traced_to_its_line(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("own", "conda"):
        (host / name).mkdir()
        (host / name / "mpirun").write_text("")
        (host / name / "mpirun").chmod(0o755)
    (host / "profile.d/baremetal-mpi-roce.sh").write_text(f'export PATH="$PATH:{host}/own"\n')
    monkeypatch.setattr(program, "PROGRAMS", ("mpirun",))
    (host / "home/.bash_profile").write_text(f"true\nexport PATH={host}/conda:{host}/own\n")
    ((subject, reason),) = wrong(host, "session_program")
    assert subject == "mpirun" and reason.endswith("/home/.bash_profile:2")


def test_the_users_own_parameters_are_named(host: Path) -> None:
    file = host / "home/.openmpi/mca-params.conf"
    file.parent.mkdir(exist_ok=True)
    file.write_text("# x = 1\nbtl = self\nplm_base_verbose = 5\n")
    assert wrong(host, "session_parameter") == [("btl", f"{file}:2")]


def test_limits_of_a_login_file_and_of_pam(host: Path) -> None:
    """Limits are reported with the file that sets them: a login file, or the last file in
    limits.d.
    """
    (host / "home/.bash_profile").write_text("true\nulimit -S -n 64\n")
    assert wrong(host, "session_limit") == [
        ("nofile", f"of a login shell: {host}/home/.bash_profile:2")
    ]
    (host / "limits.d").mkdir()
    (host / "limits.d/99-site.conf").write_text("# x\n* - nofile 64\n* - nproc 30\n")
    found = {
        "limits": {"ssh": limits(64), "login": limits(64)},
        "limit_files": program.limit_files(),
    }
    (check,) = session.limits(found, host, str)
    assert check.reason == f"over ssh: {host}/limits.d/99-site.conf:2"


def test_required_limits(host: Path) -> None:
    file = host / session.LIMITS_FILE
    file.parent.mkdir(parents=True)
    file.write_text("# nproc 9: not here\n* - nofile 15000\nroot - nofile 15000\n")
    core = "Max core file size        {0}            unlimited            bytes\n".format
    lower = limits("unlimited").replace("8388608              8388608", "65536         65536")
    found = {
        "limits": {"ssh": limits(1024) + core("unlimited"), "login": lower + core("0")},
        "ulimit": {"memlock": ["/etc/profile.d/zz.sh:2"]},
    }
    nofile, memlock = session.limits(found, host, lambda: "sshd has UsePAM no")
    assert (nofile.subject, nofile.found) == ("nofile", "soft 1024, hard 20000")
    assert nofile.reason == "over ssh: sshd has UsePAM no" and "UsePAM yes" in nofile.by_hand
    assert (memlock.subject, memlock.found) == ("memlock", "65536")
    assert memlock.by_hand == "remove memlock from /etc/profile.d/zz.sh:2"
    (host / "proc/1").mkdir(parents=True)
    (host / "proc/1/limits").write_text(limits(512).replace("20000", "512"))
    file.unlink()
    assert session.limits({"limits": {"ssh": limits(512)}}, host, str) == []


def test_a_library_without_package_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """2 libs found in cache
\tlibucp.so.0 (libc6,x86-64) => /usr/local/lib/libucp.so.0
\tlibucp.so.0 (libc6,x86-64) => /lib/x86_64-linux-gnu/libucp.so.0
\tlibmpi.so.40 (libc6,x86-64) => /lib/x86_64-linux-gnu/libmpi.so.40
\tlibcudart.so.12 (libc6,x86-64) => /usr/local/cuda/lib64/libcudart.so.12
"""
    (tmp_path / "cache").write_text(text)
    monkeypatch.setattr(program, "LIBRARIES", f"cat {tmp_path}/cache")
    lines = [("/etc/ld.so.conf.d/ucx.conf", 2, "/usr/local/lib")]
    monkeypatch.setattr(program, "files_in", lambda _paths: ["ucx.conf"])
    monkeypatch.setattr(program, "numbered", lambda _path: lines)
    (check,) = session.programs({"libraries": list(program.cached(30))})
    assert (check.subject, check.found) == ("libucp.so.0", "/usr/local/lib/libucp.so.0")
    assert "/etc/ld.so.conf.d/ucx.conf:2" in check.by_hand


class Programs:
    """Results of ssh and of the program that runs without a login, by the first word."""

    def __init__(self, patch: pytest.MonkeyPatch, ssh: Any, **local: Any) -> None:
        self.ssh, self.local = ssh, f"{program.MARK}{json.dumps(local)}"
        self.asked: list[str] = []
        patch.setattr(session, "_run", self)

    def __call__(
        self, argv: Sequence[str], _user: object, _limit_s: float, stdin: str = ""
    ) -> Result:
        self.asked += argv
        if argv[0] != "ssh":
            assert stdin == session.source()
            return Result((), 0, self.local, "")
        if isinstance(self.ssh, Exception):
            raise self.ssh
        return self.ssh  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("rc", "said"),
    [
        (254, "bash: fork: retry: Resource temporarily unavailable"),
        (255, "exec request failed on channel 0"),
    ],
)
def test_a_shell_that_cannot_fork_names_the_limit(
    monkeypatch: pytest.MonkeyPatch, rc: int, said: str
) -> None:
    Programs(monkeypatch, Result((), rc, "", f"x\n{said}\n"), limit_files={"nproc": ["/l.conf:3"]})
    (check,) = session.look("node01", USER, 5)
    assert (check.name, check.by_hand) == ("session", "raise nproc in /l.conf:3")


def test_space_umask_and_a_missing_library() -> None:
    found = {
        "space": {
            "/tmp": {"bytes": 0, "files": 100},
            "/dev/shm": {"bytes": 1 << 30, "files": 3},
            "/scratch": {"bytes": 1 << 30, "files": 1000, "error": "may not write"},
            "/large": {"bytes": 1 << 30, "files": 1000, "error": ""},
        },
        "umask": {"mask": 0o777, "at": ["/etc/profile.d/zz.sh:1"]},
        "preload": [{"path": "/usr/lib/gone.so", "at": "/etc/ld.so.preload:1"}],
    }
    seen = [(check.name, check.subject) for check in failures(session.evaluate(found))]
    assert seen == [
        ("session_program", "/usr/lib/gone.so"),
        *(("session_space", path) for path in ("/tmp", "/dev/shm", "/scratch")),
        ("session_umask", ""),
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
KEYS = st.sampled_from(
    (
        *("limits", "variables", "programs", "modules", "parameters", "preload", "space"),
        *("ulimit", "limit_files", "kind", "name", "value", "at", "libraries", "umask", "mask"),
    )
)


@given(st.dictionaries(KEYS, JSON | st.lists(st.dictionaries(KEYS, JSON))))
def test_any_output_gives_checks(found: dict[str, Any]) -> None:
    """The MPI user controls the output."""
    for check in session.evaluate(found):
        assert isinstance(check.line(), str) and isinstance(check.by_hand, str)


def test_the_last_marked_line_counts() -> None:
    text = f'Welcome\n{program.MARK}{{"umask": 1}}\nnoise\n{program.MARK}{{"umask": 2}}\nbye\n'
    assert session.answer(text) == {"umask": 2}
    for cut in ("Welcome\n", f'{program.MARK}{{"umask"\n', f"{program.MARK}[]\n"):
        with pytest.raises(session.AnswerError):
            session.answer(cut)


@pytest.mark.parametrize(
    ("outcome", "check_mode", "status", "where"),
    [
        (NoAnswerError("ssh", 15.0), True, FAILED, ".bashrc:2"),
        (Result((), 0, "Welcome\n", ""), False, FAILED, ".bashrc:2"),
        (Result((), 255, "", "x\nPermission denied (publickey).\n"), False, FAILED, ""),
        (Result((), 255, "", "Permission denied (publickey).\n"), True, PENDING, ""),
        (CommandError("ssh: not installed"), True, PENDING, ""),
    ],
)
def test_a_session_that_does_not_open(
    monkeypatch: pytest.MonkeyPatch, outcome: Any, check_mode: bool, status: str, where: str
) -> None:
    Programs(monkeypatch, NoAnswerError("ssh", 65.0), waits=[])
    (check,) = session.look("node01", USER, 60)
    assert (check.found, check.by_hand) == ("nothing within 65 s", "")
    programs = Programs(monkeypatch, outcome, waits=["/home/mpi/.bashrc:2"])
    (check,) = session.look("node01", USER, 5, check_mode=check_mode)
    assert (check.name, check.status) == ("session", status)
    assert where in check.by_hand and bool(check.by_hand) == bool(where)
    assert not [word for word in programs.asked if "hostkey" in word.lower()]
    assert "ConnectTimeout=5" in programs.asked
    assert any(word.endswith(" -I - 6") for word in programs.asked), "0.6 of 10 s"


def test_lines_that_wait_or_replace_the_shell(host: Path) -> None:
    (host / "home/.bashrc").write_text("echo x\n[ -t 0 ] && exec zsh\nexecute=1\n")
    (host / "profile.d/zz.sh").write_text("if true; then read answer; fi\n")
    (host / "home/.tcshrc").write_text("exit\n limit descriptors 64\n")
    lines = program.lines_of(str(host / "home"), "/bin/bash")
    found = program.waits(lines, str(host / "home"))
    assert found == [f"{host}/home/.bashrc:2", f"{host}/profile.d/zz.sh:1"]
    lines = program.lines_of(str(host / "home"), "/bin/tcsh")
    assert program.places(lines, program.ULIMITS["nofile"]) == [f"{host}/home/.tcshrc:2"]


def test_foreign_python_modules_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "PYTHON", sys.executable)
    package = tmp_path / "mpi4py"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('of another MPI')\n")
    values = {"PATH": str(Path(sys.executable).parent), "PYTHONPATH": str(tmp_path)}
    found = program.imports(values, {"PATH": values["PATH"]}, 30)
    assert found is not None and found["origin"] == str(package / "__init__.py")
    assert found["error"].startswith(("ImportError: of another MPI", "ModuleNotFoundError"))
    monkeypatch.setattr(program, "SYSTEM", (str(tmp_path), "/"))
    assert program.imports(values, {}, 30) is None, "nothing is imported where packages are found"


def test_the_program_needs_only_python() -> None:
    """It runs on the node's python3, without this collection."""
    text = session.source()
    assert "ansible" not in text and "from ." not in text
    argv = [sys.executable, "-I", "-", "files"]
    done = subprocess.run(argv, input=text, capture_output=True, text=True, check=True)
    assert isinstance(session.answer(done.stdout)["waits"], list)


def gone(pid: int) -> None:
    """Dead, or a zombie on a machine whose init does not reap."""
    status = Path(f"/proc/{pid}/status")

    def ended() -> bool:
        try:
            return "State:\tZ" in status.read_text()
        except (FileNotFoundError, ProcessLookupError):
            return True

    until(ended, f"{pid} has ended", every=0.01)


def test_a_login_shell_that_hangs_leaves_nothing(host: Path) -> None:
    (host / "home/.bash_profile").write_text(f"sleep 600 & echo $! >{host}/child; wait\n")
    found = program.session(str(host / "home"), "/bin/bash", 1.5)
    assert found["problem"] == "nothing within 1.5 s"
    gone(int((host / "child").read_text()))


def test_shells_of_earlier_probes_are_terminated(tmp_path: Path) -> None:
    """With their children, and no other processes of the user."""
    started: list[int] = []
    for number, words in enumerate(("uname -n; sleep 60", "sleep 60")):
        pids = tmp_path / str(number)
        script = f"{words} & echo $$ $! >{pids}.new; mv {pids}.new {pids}; wait"
        background = "setsid bash -c '" + script + "' >/dev/null 2>&1 &"
        subprocess.run(["sh", "-c", background], check=True, timeout=10)
        until(pids.exists, "a child runs", every=0.01)
        started += map(int, pids.read_text().split())
    try:
        session.end_abandoned(USER)
        gone(started[0])
        gone(started[1])
        os.kill(started[3], 0)
    finally:
        os.killpg(os.getpgid(started[3]), 9)
