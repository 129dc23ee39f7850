# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The cause of a failed run comes first and complete, and noise is dropped."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi import causes
from hypothesis import given
from hypothesis import strategies as st

GOLDEN = Path(__file__).parent / "golden/mpirun"
DASHES = "-" * 74 + "\n"
SETPGID = (
    "[launcher01:00812] plm:rsh: Warning: setpgid(815,815) failed in parent with "
    "errno=Permission denied(13)\n"
)
HELP = "[launcher01:00812] 7 more processes have sent help message help-oob-tcp.txt / x\n"
PRIMARY = (
    "Primary job  terminated normally, but 1 process returned\n"
    "a non-zero exit code. Per user-direction, the job has been aborted.\n"
)
NOTICED = (
    "mpirun noticed that process rank 3 with PID 31 on node node01 exited on signal 6 (Aborted).\n"
)
RETRY = (
    "[node01:31:0:31] ib_mlx5_log.c:171  Transport retry count exceeded on mlx5_0:1/RoCE "
    "(synd 0x15 vend 0x81 hw_synd 0/0)\n"
)
QP = "[node01:31:0:31] ib_mlx5_log.c:171  DCI QP 0x14e4 wqe[0]: SEND s-e [rqpn 0x2248a]\n"
BACKTRACE = (
    "==== backtrace (tid:  31) ====\n"
    " 0 0x0000000000057e0e uct_ib_mlx5_completion_with_err()  ???:0\n"
    "=================================\n"
)
BOTH = """\
Both TCP interface include and exclude lists were specified:

  Include: 10.240.0.0/24
  Exclude: lo,docker0

Only one of these can be given.
"""
EXCLUSIVE = """\
Two mutually-exclusive MCA variables were specified.  This can result
in undefined behavior, such as ignoring the components that the MCA
variables are supposed to affect.

  1st MCA variable: btl_tcp_if_include
    Source of value: file (/etc/openmpi/openmpi-mca-params.conf:79)
  2nd MCA variable: btl_tcp_if_exclude
    Source of value: file (/etc/openmpi/openmpi-mca-params.conf:1)
"""
SHM = """\
It appears as if there is not enough space for /dev/shm/vader_segment.node02.2000.1 (the \
shared-memory backing
file). It is likely that your MPI job will now either abort or experience
performance degradation.

  Local host:  node02
  Space Requested: 4194312 B
  Space Available: 0 B
"""
BINDING = """\
A request was made to bind to that would result in binding more
processes than cpus on a resource:

   Bind to:     CORE
   Node:        node01
   #processes:  2
   #cpus:       1
"""
FILLED = "All nodes which are allocated for this job are already filled.\n"
WARN = (
    "[1700000000.1] [node01:77:0] ucp_context.c:1071 UCX  WARN  network devices 'mlx5_9:1' are "
    "not available, please use one or more of: 'mlx5_0:1'(IB)\n"
)
NCCL = (
    "node01:55:90 [0] transport/net_ib.cc:1298 NCCL WARN NET/IB : Got completion from peer "
    "10.1.0.12<5000> with status=12 opcode=0 len=0 vendor err 129 (Recv)\n"
)
ABORT = "Abort(1615247) on node 3 (rank 3 in comm 0): Fatal error in internal_Init_thread: Other\n"


@pytest.mark.parametrize("dashes", ["", DASHES], ids=["bare", "with dashes"])
@pytest.mark.parametrize("text", [BOTH, EXCLUSIVE, SHM, BINDING, FILLED])
def test_blocks_of_open_mpi_stay_complete(text: str, dashes: str) -> None:
    printed = SETPGID + dashes + text + dashes + HELP + DASHES + PRIMARY + DASHES + NOTICED
    found = causes.causes(printed)
    whole = " ".join(found).split()
    assert found[0].split()[0] == text.split()[0]
    assert whole[: len(text.split())] == text.split()
    assert found[-1] == NOTICED.strip()
    assert not [line for line in found if "setpgid" in line or "sent help" in line]


@pytest.mark.parametrize("line", [RETRY, WARN, NCCL, ABORT])
@pytest.mark.parametrize("tag", ["", "[1,3]<stderr>:", "[1,13]<stdout>:"])
def test_lines_of_tools_come_first(line: str, tag: str) -> None:
    printed = SETPGID + DASHES + PRIMARY + DASHES + NOTICED + tag + line + BACKTRACE
    assert causes.causes(printed) == [line.strip(), NOTICED.strip()]
    assert causes.causes(printed, known=True) == [line.strip()]


def test_log_lines_are_removed_from_blocks() -> None:
    torn = DASHES + PRIMARY.replace("returned\n", f"returned\n{NCCL}") + DASHES
    assert causes.causes(torn) == [NCCL.strip()]
    torn = DASHES + BOTH.replace("lo,docker0\n", f"lo,docker0\n{RETRY}") + DASHES
    found = causes.causes(torn)
    assert RETRY.strip() in found and "Exclude: lo,docker0" in found
    log = WARN.replace("are not", "there is not enough space for")
    assert causes.causes(f"{log}step 7\n") == [log.strip()], "a log line begins no block"


def test_an_abort_of_ucx_is_complete_without_backtrace() -> None:
    """Reported by users of openucx/ucx."""
    other = RETRY.replace("node01:31:0:31", "node07:99:0:99")
    device = RETRY.replace("mlx5_0", "mlx5_3")
    found = causes.causes(RETRY + other + QP + BACKTRACE + device + DASHES + NOTICED + DASHES)
    assert found == [RETRY.strip(), QP.strip(), device.strip(), NOTICED.strip()]


def test_errors_come_before_warnings_which_displace_none() -> None:
    error = WARN.replace("WARN", "ERROR")
    warnings = "".join(WARN.replace("mlx5_9", f"mlx5_{device}") for device in range(40))
    found = causes.causes(warnings + error)
    assert found[0] == error.strip() and len(found) == causes.MAX_LINES


NOISE = [SETPGID, HELP, DASHES + PRIMARY + DASHES, BACKTRACE, "\n", "loss 0.1\n", NOTICED]
TOOLS = [
    f"[1700000000.1] [node01:77:0] ucp.c:10 UCX  {level}  {words}\n"
    for level in ("ERROR", "WARN", "FATAL")
    for words in ("setpgid", "help_aggregate", "= x", "dying", "-" * 30)
] + [f"node01:5:9 [0] a.cc:1 NCCL WARN {words}\n" for words in ("setpgid", "no link", "=" * 9)]


@given(
    st.lists(st.sampled_from([*NOISE, DASHES, BOTH, *TOOLS]), max_size=14),
    st.sampled_from(TOOLS),
    st.integers(0, 14),
)
def test_lines_of_ucx_and_nccl_are_never_noise(pieces: list[str], line: str, place: int) -> None:
    printed = "".join([*pieces[:place], line, *pieces[place:]])
    found = causes.causes(printed, 100)
    assert [each for each in found if line.strip() in each]
    assert not [each for each in found if "plm:rsh" in each or each.startswith("Primary job")]


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("killed", "mpirun noticed that process rank 11 with PID 600 on node node02 exited"),
        ("sshdown", "ssh: connect to host node02 port 22: Connection refused"),
        ("noagent", "bash: line 1: /usr/local/libexec/baremetal-mpi-roce/orted: No such file"),
        ("noprog", "/usr/local/libexec/baremetal-mpi-roce/rail-bind: 18: exec: /nonexistent/prog"),
        ("nopml", "A requested component was not found"),
        ("nodevice", "[node02:00504] ../../../../../../ompi/mca/pml/ucx/pml_ucx.c:419  Error: ucp"),
        ("slots", "There are not enough slots available in the system to satisfy the 16 slots"),
    ],
)
def test_the_cause_is_the_first_of_the_launchers_lines(name: str, first: str) -> None:
    """Recorded from Open MPI 4.1.4."""
    lines = causes.causes((GOLDEN / f"{name}.txt").read_text(encoding="utf-8"))
    assert lines[0].startswith(first)
    assert len(lines) <= causes.MAX_LINES


def test_output_of_programs_is_matched_with_the_table_only() -> None:
    printed = "error: 0.25\nno such luck\nrank 3 lost\n"
    assert causes.causes(printed, known=True) == []
    assert len(causes.causes(printed)) == 3


def test_unknown_output_shows_its_last_lines() -> None:
    assert causes.causes("a\nb\n") == []
    found = causes.last_lines("".join(f"{number}\n\n" for number in range(20)))
    assert found == ["14", "15", "16", "17", "18", "19"]


@pytest.mark.parametrize("unit", ["exec: ", "-" * 30 + "\nx\n", "Abort(1", "[a] ", "x: y\n", "= "])
def test_any_output_is_read_in_a_bounded_way(unit: str) -> None:
    found = causes.causes(unit * (2 * causes.MAX_TEXT // len(unit)))
    assert len(found) <= causes.MAX_LINES and all(len(line) <= causes.MAX_LINE for line in found)
