# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What installed software says of itself, and the checks made of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Optional

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    Result,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.environment import Rail
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.versions import (
    Installed,
    parse_mpirun_version,
    parse_ucx_settings,
    parse_ucx_version,
    read,
    readback,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.qos import RdmaPort

UCX_INFO = """\
# Version 1.13.1
# Git branch '<unknown>', revision 0000000
# Configured with: --build=x86_64-linux-gnu --prefix=/usr
#
# Memory domain: self
#     Component: self
#      Transport: self
#         Device: memory0
#           Type: loopback
# Memory domain: tcp
#     Component: tcp
#      Transport: tcp
#         Device: rail0
#           Type: network
#      Transport: tcp
#         Device: rail1
# Memory domain: mlx5_0
#      Transport: rc_verbs
#         Device: mlx5_0:1
#      Transport: rc_mlx5
#         Device: mlx5_0:1
"""
MPIRUN = "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n"
LIBRARY = "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4, May 26, 2022"


def runner(answers: dict[str, str]):
    def run(argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None) -> Result:
        program = argv[4]
        if program not in answers:
            raise CommandError(f"{program}: exit status 127: sh: 1: exec: {program}: not found")
        return Result(tuple(argv), 0, answers[program], "")

    return run


ALL = {
    "mpirun": MPIRUN,
    "ucx_info": UCX_INFO,
    "sh": "/usr/bin/orted\n",
    "/usr/bin/python3": json.dumps(["3.1.4", "1.24.2", LIBRARY]),
}


def test_versions_of_old_and_new_formats() -> None:
    assert parse_mpirun_version(MPIRUN) == "4.1.4"
    assert parse_mpirun_version("HYDRA build details:\n    Version: 4.0\n") is None
    assert parse_ucx_version(UCX_INFO) == "1.13.1"
    assert parse_ucx_version("# Library version: 1.16.0\n# Library path: /x\n") == "1.16.0"
    assert parse_ucx_version("nothing") is None


def test_everything_answers() -> None:
    found = read(runner(ALL), "/usr/bin/python3")
    assert found.problems == {}
    assert found.ucx.transports == {"self", "tcp", "rc_verbs", "rc_mlx5"}
    assert found.versions() == {
        "open_mpi": "4.1.4",
        "ucx": "1.13.1",
        "mpi4py": "3.1.4",
        "numpy": "1.24.2",
        "linked_with": "Open MPI v4.1.4",
    }
    checks = readback(found, [Rail("rail0"), Rail("rail1")], "tcp")
    assert {check.status for check in checks} == {"ok"}
    assert [check.subject for check in checks if check.name == "ucx_device"] == ["rail0", "rail1"]


def test_a_rail_that_ucx_does_not_offer_fails_by_name() -> None:
    found = read(runner(ALL), "/usr/bin/python3")
    failed = [c for c in readback(found, [Rail("rail0"), Rail("rail9")], "tcp") if c.status != "ok"]
    assert [(check.name, check.subject, check.found) for check in failed] == [
        ("ucx_device", "rail9", "not there")
    ]


def test_an_rdma_device_has_to_offer_rc_and_a_netdev_does_not() -> None:
    found = read(runner(ALL), "/usr/bin/python3")
    rail = Rail("rail0", 0, rdma=RdmaPort("mlx5_0", 1, 3, "rail0"))
    device = readback(found, [rail], "rc")[-1]
    assert device.status == "ok"
    plain = readback(found, [Rail("rail0")], "rc")[-1]
    assert (plain.status, plain.found) == ("failed", "tcp")


def test_every_setting_of_ucx_is_read() -> None:
    text = "#\n# x\nUCX_RC_VERBS_TRAFFIC_CLASS=106\nUCX_TLS=rc,ud\nUCX_EMPTY=\n"
    assert parse_ucx_settings(text) == {
        "UCX_RC_VERBS_TRAFFIC_CLASS": "106",
        "UCX_TLS": "rc,ud",
        "UCX_EMPTY": "",
    }
    found = read(runner({**ALL, "ucx_info": UCX_INFO + text}), "/usr/bin/python3")
    assert found.ucx.knows("TRAFFIC_CLASS")
    assert not found.ucx.knows("ROCE_REACHABILITY_MODE")


def test_ucx_is_not_asked_again_when_it_has_just_spoken() -> None:
    said = read(runner(ALL), "/usr/bin/python3").ucx
    rest = {name: text for name, text in ALL.items() if name != "ucx_info"}
    assert read(runner(rest), "/usr/bin/python3", said).ucx == said
    assert "ucx" in read(runner(rest), "/usr/bin/python3").problems


def test_what_does_not_answer_fails_and_says_why() -> None:
    found = read(runner({"ucx_info": UCX_INFO}), "/usr/bin/python3")
    failed = {check.name: check for check in readback(found, [], "tcp") if check.status == "failed"}
    assert set(failed) == {"open_mpi", "mpi4py"}
    assert "mpirun: not found" in failed["open_mpi"].reason


def test_a_node_that_mpirun_cannot_start_ranks_on_fails() -> None:
    answers = {name: text for name, text in ALL.items() if name != "sh"}
    found = read(runner(answers), "/usr/bin/python3")
    failed = [check for check in readback(found, [], "tcp") if check.status == "failed"]
    assert [check.name for check in failed] == ["orted"]
    assert "reinstall the package" in failed[0].reason
    fifth = read(runner({**answers, "mpirun": "mpirun (Open MPI) 5.0.3\n"}), "/usr/bin/python3")
    assert {check.status for check in readback(fifth, [], "tcp")} == {"ok"}


def test_before_an_installation_check_mode_expects_it() -> None:
    found = Installed(problems={"open_mpi": "not found"})
    statuses = {check.status for check in readback(found, [Rail("rail0")], "tcp", check_mode=True)}
    assert statuses == {"pending"}


def test_mpi4py_of_another_mpi_fails() -> None:
    answers = {**ALL, "/usr/bin/python3": json.dumps(["3.1.4", "1.24.2", "MPICH Version:\t4.0.2"])}
    found = read(runner(answers), "/usr/bin/python3")
    library = [check for check in readback(found, [], "tcp") if check.name == "mpi4py_library"]
    assert library[0].status == "failed"
    assert "MPICH" in str(library[0].found)
