# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Files that the module mpi_stack writes, and checks of the installed software."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import (
    PENDING,
    Check,
    failures,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    Result,
    run,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import Node, PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware import (
    Gid,
    Machine,
    RdmaDevice,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi import (
    environment,
    stack,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.environment import MpiRail
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.installed import (
    Installed,
    Ucx,
    installed_checks,
    read,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.launch.launcher import HYDRA
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.qos import RdmaPort
from ansible_collections.baremetal.mpi_roce.plugins.modules import mpi_stack as module

from tests import chassis
from tests.unit.qos_contracts import compiled

UCX = Ucx(
    "1.19.0",
    {"mlx5_0:1": ["rc_mlx5"], "cuda": ["cuda_copy", "cuda_ipc"]},
    {"UCX_RC_MLX5_ROCE_REACHABILITY_MODE": "route"},
)
MACHINE = Machine(
    (
        RdmaDevice(
            "rail",
            "mlx5_0",
            netdev="rail0",
            port_state="ACTIVE",
            gids=(Gid(3, "::ffff:10.100.0.11", "RoCE v2", "rail0"),),
        ),
    )
)


def params(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    return {
        **{name: of.get("default") for name, of in module.ARGUMENTS.items()},
        "management": {"address": "10.10.1.1", "prefix": 22, "interface": "mgmt0"},
        "rails": [{"interface": "rail0", "gpu": 0, "rail": 0, "address": "10.100.0.11"}],
        "slots": 1,
        "gpus": 1,
        "qos": compiled(),
        "groups": ["compute"],
        "mca_file": str(tmp_path / "openmpi-mca-params.conf"),
        "profile": "# profile\n",
        **changes,
    }


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack, "survey", lambda: MACHINE)
    monkeypatch.setattr(stack, "read_ucx", lambda _run: UCX)


def a_stack(given: dict[str, Any], **more: Any) -> stack.Stack:
    names = ("mca_file", "ucx_file", "nccl_file", "nccl", "profile", "programs", "gpus")
    of = {name: given[name] for name in names}
    return stack.Stack(module.wanted(given), python="python3", **of, **more)


def a_node(folder: Path, check_mode: bool = True, runner: Any = run) -> Node:
    return Node("mpi", folder, runner, None, "b", check_mode, os.getuid(), os.getgid())


def planned(
    given: dict[str, Any], folder: Path, check_mode: bool = False, write: bool = False
) -> tuple[dict[str, str], set[str]]:
    """Resulting environment, and names of the files."""
    part = a_stack(given)
    plan = part.plan(a_node(folder, check_mode))
    names = {f"/{each.path.relative_to(folder)}" for each in plan.files}
    for each in plan.files if write else ():
        each.apply()
    return environment.environment(part.settings), names


@pytest.mark.usefixtures("host")
def test_capabilities_of_ucx_decide_its_environment(tmp_path: Path) -> None:
    found, names = planned(params(tmp_path), tmp_path)
    assert environment.ENVIRONMENT_FILE in names
    assert found["UCX_TLS"] == "rc,ud,sm,self,cuda_copy,cuda_ipc"
    assert found[environment.REACHABILITY] == "all"
    assert found["NCCL_SOCKET_IFNAME"] == "=mgmt0"
    assert planned(params(tmp_path, gpus=0), tmp_path)[0]["UCX_TLS"] == "rc,ud,sm,self"


LINKS = [
    {"ifname": "lo", "addr_info": [{"local": "127.0.0.1"}]},
    {"ifname": "docker0", "addr_info": [{"local": "172.17.0.1"}]},
    {"ifname": "veth1"},
    {"ifname": "eno1", "addr_info": [{"local": "fe80::1"}, {"local": "10.10.1.1"}]},
]


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize(
    ("address", "named", "found", "checks"),
    [
        ("10.10.1.1", "", ("=eno1", "eno1"), []),
        ("10.10.1.1", "mgmt0", ("=mgmt0", "mgmt0"), []),
        ("10.10.1.2", "", (None, None), [("10.10.1.2", "on no interface", "failed")]),
    ],
)
def test_ranks_connect_on_the_management_interface(
    tmp_path: Path, address: str, named: str, found: tuple[Any, Any], checks: list[Any]
) -> None:
    def answers(argv: Sequence[str], **_given: Any) -> Result:
        known = json.dumps(LINKS) if argv[0] == "ip" else ""
        return Result(tuple(argv), 0, known, "")

    given = params(tmp_path, management={"address": address, "prefix": 22, "interface": named})
    part, node = a_stack(given), a_node(tmp_path, False, answers)
    part.plan(node)
    values = environment.environment(part.settings)
    assert tuple(values.get(f"{of}_SOCKET_IFNAME") for of in ("NCCL", "GLOO")) == found
    said = [each for each in part.verify(node).checks if each.name == "mpi_management"]
    assert [(each.wanted, each.found, each.status) for each in said] == checks


@pytest.mark.usefixtures("host")
def test_a_rail_without_rdma_is_refused_by_name(tmp_path: Path) -> None:
    rails = [
        {"interface": f"rail{k}", "gpu": k, "rail": k, "address": f"10.100.{k}.11"} for k in (0, 1)
    ]
    with pytest.raises(PlanError, match=r"^rdma_device rail1") as caught:
        planned(params(tmp_path, rails=rails, slots=2), tmp_path)
    assert [(check.name, check.subject) for check in caught.value.checks] == [
        ("rdma_device", "rail1")
    ]


@pytest.mark.usefixtures("host")
def test_files_of_ucx_and_nccl_have_equal_values(tmp_path: Path) -> None:
    packaged = tmp_path / "etc/ucx/ucx.conf"
    packaged.parent.mkdir(parents=True)
    packaged.write_text("[Grace Hopper]\nUCX_X=1\n")
    own = {"ucx_file": "opt/ucx/etc/ucx/ucx.conf", "nccl_file": True}
    own["environment"] = {"UCX_LONG": "x" * stack.UCX_LINE}
    found, names = planned(params(tmp_path, **own), tmp_path, write=True)
    assert found.pop("UCX_LONG"), "UCX would truncate it in its file"
    assert {"/etc/nccl.conf", "/etc/ucx/ucx.conf", "/opt/ucx/etc/ucx/ucx.conf"} <= names
    ucx, nccl = (
        [f"{k}={v}" for k, v in found.items() if k.startswith(p)] for p in ("UCX_", "NCCL_")
    )
    assert len(ucx) > 4 and "NCCL_IB_TC=106" in nccl
    lines = packaged.read_text().splitlines()
    assert lines[1 : len(ucx) + 1] == ucx, "before the first section"
    assert lines[len(ucx) + 2 :] == ["[Grace Hopper]", "UCX_X=1"]
    assert (tmp_path / "opt/ucx/etc/ucx/ucx.conf").read_text().splitlines()[1:-1] == ucx
    assert (tmp_path / "etc/nccl.conf").read_text().splitlines()[1:-1] == nccl
    planned(params(tmp_path), tmp_path, write=True)
    assert not (tmp_path / "etc/nccl.conf").read_text()


OURS = {"pml": "ucx", "oob_tcp_if_include": "10.0.0.0/24"}
BLOCK = "".join(
    f"{line}\n"
    for line in (
        environment.BEGIN,
        *(f"{key} = {value}" for key, value in OURS.items()),
        environment.END,
    )
)


MAIN = "etc/openmpi-mca-params.conf"


@pytest.mark.parametrize(
    ("file", "before", "after", "subject", "line"),
    [
        (MAIN, "oob_tcp_if_exclude = lo,docker0\n", "", "oob_tcp_if_exclude", 1),
        (MAIN, "# a\nbtl_tcp_if_exclude=lo\n", "", "btl_tcp_if_exclude", 2),
        (MAIN, "", "pml = ob1\n", "pml", 5),
        (MAIN, "plm_rsh_agent = rsh\n", "", "plm_rsh_agent", 1),
        ("etc/pmix-mca-params.conf", "ptl_tcp_if_include = eth9\n", "", "ptl_tcp_if_include", 1),
        (MAIN, "pml = ob1\ncoll_x = 1\nmtl = ^ofi\n", "", "", 0),
    ],
)
def test_parameters_of_others_are_named_with_their_line(
    tmp_path: Path, file: str, before: str, after: str, subject: str, line: int
) -> None:
    """A line above the block has no effect on its parameters; other tuning is the operator's."""
    (tmp_path / "etc").mkdir()
    (tmp_path / MAIN).write_text(BLOCK)
    (tmp_path / file).write_text(before + (BLOCK if file == MAIN else "") + after)
    found = failures(stack.parameter_checks(a_node(tmp_path), MAIN, OURS))
    assert [check.subject for check in found] == ([subject] if subject else [])
    assert all(f"{file}:{line}" in check.by_hand for check in found)


def test_without_our_block_parameters_wait_for_it(tmp_path: Path) -> None:
    (tmp_path / "mca.conf").write_text("pml = ^ucx\n")
    checks = stack.parameter_checks(a_node(tmp_path), "mca.conf", OURS)
    assert [(check.status, check.by_hand) for check in checks] == [(PENDING, "")] * 2
    old = f"{environment.BEGIN}\nplm_rsh_agent = x\n{environment.END}\n"
    (tmp_path / "mca.conf").write_text(old)
    assert failures(stack.parameter_checks(a_node(tmp_path), "mca.conf", OURS)) == []


def test_lines_of_ucx_conf_that_win_are_named(tmp_path: Path) -> None:
    (tmp_path / "etc/ucx").mkdir(parents=True)
    block = f"{environment.BEGIN}\nUCX_TLS=tcp\n{environment.END}\n"
    text = f"{block}# UCX_TLS=x\nUCX_TLS=all\nUCX_IB_SL=3\nUCX_LOG_LEVEL=info\n[Grace]\nUCX_X=1\n"
    (tmp_path / "etc/ucx/ucx.conf").write_text(text)
    given = (stack.UCX_FILE, f"/{stack.UCX_FILE}")
    found = stack.ucx_file_checks(a_node(tmp_path), given, ["UCX_TLS=tcp"])
    assert [(check.subject, check.found, check.by_hand.split(";")[0]) for check in found] == [
        ("UCX_TLS", "all", "remove UCX_TLS from /etc/ucx/ucx.conf:5"),
        ("UCX_IB_SL", "3", "remove UCX_IB_SL from /etc/ucx/ucx.conf:6"),
    ]


@pytest.mark.parametrize(
    ("file", "step"),
    [
        (
            "/usr/local/lib/python3.11/dist-packages/numpy/__init__.py",
            "remove /usr/local/lib/python",
        ),
        ("/usr/lib/python3/dist-packages/numpy/__init__.py", ""),
    ],
)
def test_a_module_that_shadows_the_packages_is_named(file: str, step: str) -> None:
    def broken(argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None) -> Result:
        text = f'Traceback:\n  File "<string>", line 1\n  File "{file}", line 7\nImportError: x'
        raise CommandError(f"python3: exit status 1: {text}")

    installed = read(broken, "python3", UCX)
    check = failed(installed)["mpi4py"]
    assert check.by_hand.startswith(step) and bool(check.by_hand) == bool(step)


@pytest.mark.usefixtures("host")
def test_nccl_conf_is_edited_on_request_only(tmp_path: Path) -> None:
    file = tmp_path / "etc/nccl.conf"
    file.parent.mkdir()
    file.write_text("NCCL_IB_TC=0")
    file.chmod(0o640)
    assert "/etc/nccl.conf" not in planned(params(tmp_path), tmp_path, write=True)[1]
    planned(params(tmp_path, nccl_file=True), tmp_path, write=True)
    lines = file.read_text().splitlines()
    assert lines[-1] == "NCCL_IB_TC=0" and "NCCL_IB_TC=106" in lines[:-1], "the first line applies"
    assert file.stat().st_mode & 0o777 == 0o640


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize(
    ("asked", "in_set", "before", "managed"),
    [
        (None, True, None, True),
        (None, True, "# of the site\n", True),
        (None, True, "NCCL_IB_TC=0\n", False),
        (None, False, None, False),
        (False, True, None, False),
        (True, False, "NCCL_IB_TC=0\n", True),
    ],
)
def test_nccl_conf_follows_the_software_set(
    tmp_path: Path, asked: Optional[bool], in_set: bool, before: Optional[str], managed: bool
) -> None:
    file = tmp_path / "etc/nccl.conf"
    file.parent.mkdir()
    if before is not None:
        file.write_text(before)
    given = params(tmp_path, nccl_file=asked, nccl=in_set)
    for _run in range(2):
        planned(given, tmp_path, write=True)
        text = file.read_text() if file.exists() else None
        assert ("NCCL_IB_GID_INDEX=3" in (text or "").splitlines()) is managed
        assert managed or text == before, "an operator's file stays as it is"


@pytest.mark.usefixtures("host")
def test_an_operators_nccl_conf_is_named(tmp_path: Path) -> None:
    file = tmp_path / "etc/nccl.conf"
    file.parent.mkdir()
    file.write_text("NCCL_IB_TC=0\n")
    part = a_stack(params(tmp_path, nccl_file=None, nccl=True))
    node = a_node(tmp_path, runner=lambda argv, **_more: Result(tuple(argv), 1, "", ""))
    part.plan(node)
    [check] = [each for each in part.verify(node).checks if each.name == "nccl_file"]
    assert (check.status, check.subject) == ("not_applicable", "/etc/nccl.conf")
    file.unlink()
    part.plan(node)
    assert not [each for each in part.verify(node).checks if each.name == "nccl_file"]


@pytest.mark.usefixtures("host")
def test_check_mode_on_a_fresh_host_shows_the_files(tmp_path: Path) -> None:
    given = params(tmp_path, rails=[{"interface": "rail7", "address": "10.100.7.11"}])
    _found, names = planned(given, tmp_path, check_mode=True)
    assert environment.PROFILE_FILE in names
    assert environment.ENVIRONMENT_FILE not in names, "its content is not known yet"


@pytest.mark.usefixtures("host")
def test_programs_find_checkpoints_and_datasets_where_they_are_mounted(tmp_path: Path) -> None:
    def entry(name: str, purpose: str, hosts: list[str]) -> dict[str, Any]:
        source, mount = f"10.10.2.1:/export/{name}", f"/mnt/{name}"
        one = {"name": name, "type": "nfs", "source": source, "mount": mount}
        return {**one, "purpose": purpose, "hosts": hosts}

    filesystems = [
        entry("checkpoints", "checkpoints", ["compute", "launcher"]),
        entry("second", "checkpoints", ["compute"]),
        entry("data", "datasets", ["compute"]),
        entry("home", "home", ["compute"]),
    ]
    given = params(tmp_path, transport="tcp", filesystems=filesystems)
    found = planned(given, tmp_path)[0]
    assert found["CLUSTER_CHECKPOINT_DIR"] == "/mnt/checkpoints"
    assert found["CLUSTER_DATASETS_DIR"] == "/mnt/data"
    assert not [value for value in found.values() if value == "/mnt/home"]
    found, _names = planned({**given, "groups": ["launcher"]}, tmp_path)
    assert found["CLUSTER_CHECKPOINT_DIR"] == "/mnt/checkpoints"
    assert "CLUSTER_DATASETS_DIR" not in found
    own = {**given, "environment": {"CLUSTER_CHECKPOINT_DIR": "/mnt/other"}}
    assert planned(own, tmp_path)[0]["CLUSTER_CHECKPOINT_DIR"] == "/mnt/other", "the operator's"


# Installed software.

PYTHON = "/usr/bin/python3"
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
    PYTHON: json.dumps(["3.1.4", "1.24.2", LIBRARY]),
}


def reading(**changed: str) -> Installed:
    return read(runner({**ALL, **changed}), PYTHON)


def failed(installed: Installed, **given: Any) -> dict[str, Check]:
    """Failed checks by name, of a node without rails."""
    checks = installed_checks(installed, [], "tcp", Machine(), **given)
    return {check.name: check for check in checks if check.status == "failed"}


@pytest.mark.parametrize(
    ("ucx", "mpi", "unknown"),
    [
        ("1.22.9", "4.1.10", set()),
        ("1.23.0", "4.1.8", {"ucx"}),
        ("2.0.0", "4.2.0", {"ucx", "open_mpi"}),
    ],
)
def test_a_line_after_the_last_known_one_is_unknown(ucx: str, mpi: str, unknown: set[str]) -> None:
    installed = Installed({"open_mpi": mpi, "ucx": ucx, "mpi4py": "4.1.1"}, UCX, "/usr/bin/orted")
    found = [
        check
        for check in installed_checks(installed, [], "tcp", Machine())
        if check.name in ("open_mpi", "ucx")
    ]
    assert {check.name for check in found if check.status == "not_applicable"} == unknown
    assert {check.found for check in found} == {ucx, mpi}


def test_versions_of_old_and_new_formats() -> None:
    old = reading().versions
    assert (old["open_mpi"], old["ucx"]) == ("4.1.4", "1.13.1")
    new = reading(ucx_info="# Library version: 1.16.0\n# Library path: /x\n", mpirun="HYDRA 4.0")
    assert (new.versions["open_mpi"], new.versions["ucx"]) == (None, "1.16.0")
    assert "HYDRA" in new.problems["open_mpi"]


def test_a_complete_installation_passes() -> None:
    text = "#\n# x\nUCX_RC_VERBS_TRAFFIC_CLASS=106\nUCX_EMPTY=\n"
    found = reading(ucx_info=UCX_INFO + text)
    assert found.ucx.settings == {"UCX_RC_VERBS_TRAFFIC_CLASS": "106", "UCX_EMPTY": ""}
    assert found.ucx.knows("TRAFFIC_CLASS") and not found.ucx.knows("ROCE_REACHABILITY_MODE")
    assert found.problems == {}
    assert found.ucx.transports == {"self", "tcp", "rc_verbs", "rc_mlx5"}
    versions = {"open_mpi": "4.1.4", "ucx": "1.13.1", "mpi4py": "3.1.4", "numpy": "1.24.2"}
    assert found.versions == {**versions, "linked_with": "Open MPI v4.1.4"}
    checks = installed_checks(found, [MpiRail("rail0"), MpiRail("rail1")], "tcp", Machine())
    assert {check.status for check in checks} == {"ok"}
    assert [check.subject for check in checks if check.name == "ucx_device"] == ["rail0", "rail1"]


@pytest.mark.parametrize(
    ("version", "offered", "wrong"),
    [
        ("1.18.0", ["rc_verbs", "rc_mlx5", "dc_mlx5"], []),
        ("1.17.0", ["rc_verbs", "rc_mlx5"], [("ucx_nic", "1.17.0")]),
        ("1.13.1", ["rc_verbs", "ud"], [("ucx_nic", "1.13.1"), ("ucx_device", "rc_verbs, ud")]),
    ],
)
def test_an_nvidia_nic_needs_an_accelerated_transport(
    version: str, offered: list[str], wrong: list[tuple[str, str]]
) -> None:
    nic = RdmaDevice("rail", "mlx5_0", netdev="rail0", driver="mlx5_core", device_id="1023")
    rail = MpiRail("rail0", rdma=RdmaPort("mlx5_0", 1, 3, "rail0"))
    found = replace(reading(), ucx=Ucx(version, {"mlx5_0:1": offered}))
    checks = installed_checks(found, [rail], "rc", Machine((nic,)))
    assert [(c.name, c.found) for c in checks if c.status != "ok"] == wrong
    soft = replace(nic, driver="", device_id="")
    checks = installed_checks(found, [rail], "rc", Machine((soft,)))
    assert [c.status for c in checks if c.name == "ucx_device"] == ["ok"]


def test_an_rdma_device_must_offer_rc() -> None:
    found = reading()
    rail = MpiRail("rail0", 0, rdma=RdmaPort("mlx5_0", 1, 3, "rail0"))
    device = installed_checks(found, [rail], "rc", Machine())[-1]
    assert device.status == "ok"
    plain = installed_checks(found, [MpiRail("rail0")], "rc", Machine())[-1]
    assert (plain.status, plain.found) == ("failed", "tcp")


def test_what_is_missing_fails_with_the_reason() -> None:
    found = read(runner({"ucx_info": UCX_INFO}), PYTHON)
    checks = failed(found)
    assert set(checks) == {"open_mpi", "mpi4py"}
    assert "mpirun: not found" in checks["open_mpi"].reason
    pending = installed_checks(found, [], "tcp", Machine(), check_mode=True)
    assert {check.status for check in pending} == {"ok", "pending"}
    rest = {name: text for name, text in ALL.items() if name != "ucx_info"}
    assert "ucx" in read(runner(rest), PYTHON).problems
    assert read(runner(rest), PYTHON, UCX).ucx == UCX, "it is read once"
    other = reading(**{PYTHON: json.dumps(["3.1.4", "1.24.2", "Open MPI v5.0.1"])})
    assert failed(other)["mpi4py_library"].found == "Open MPI v5.0.1"
    checks = installed_checks(reading(), [MpiRail("rail9")], "tcp", Machine())
    wrong = [(check.name, check.subject, check.found) for check in failures(checks)]
    assert wrong == [("ucx_device", "rail9", "not there")]


def test_a_node_without_orted_fails() -> None:
    answers = {name: text for name, text in ALL.items() if name != "sh"}
    found = read(runner(answers), PYTHON)
    checks = failed(found)
    assert set(checks) == {"orted"}
    linked = json.dumps(["4.1.1", "1.26.4", "Open MPI v5.0.3, package: x"])
    answers = {**answers, "mpirun": "mpirun (Open MPI) 5.0.3\n", PYTHON: linked}
    assert failed(read(runner(answers), PYTHON)) == {}


INTEL = "Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 20260626 (id: b44796a)\n"
STARTED = """\
MPI startup(): PMI server not found.
[0] MPI startup(): libfabric version: 2.4.0-impi
[0] MPI startup(): libfabric provider: {}
["4.1.2", "1.24.2", "Intel(R) MPI Library 2021.18.1 for Linux* OS\\n"]
"""
"""Recorded from Intel MPI 2021.18.1."""


@pytest.mark.parametrize(
    ("mpirun", "started", "wrong"),
    [
        (INTEL, STARTED.format("mlx"), {}),
        (INTEL, STARTED.format("tcp"), {"mpi_fabric": "tcp"}),
        (INTEL, ALL[PYTHON], {"mpi_fabric": None, "mpi4py_library": "Open MPI v4.1.4"}),
        (MPIRUN, STARTED.format("mlx"), {"intel_mpi": None, "mpi4py_library": "*"}),
    ],
)
def test_intel_mpi_reports_version_and_libfabric_provider(
    mpirun: str, started: str, wrong: dict[str, Optional[str]]
) -> None:
    answers = {"mpirun": mpirun, "ucx_info": UCX_INFO, "sh": "/x\n", "env": started}
    found = read(runner(answers), PYTHON, launcher=HYDRA)
    actual = {name: check.found for name, check in failed(found, launcher=HYDRA).items()}
    assert actual == {name: actual[name] if text == "*" else text for name, text in wrong.items()}


@pytest.mark.usefixtures("host")
def test_intel_mpi_removes_parameters_of_open_mpi(tmp_path: Path) -> None:
    mca, own = tmp_path / "etc/mca.conf", "btl = ^uct\n"
    before = {"mca_file": "etc/mca.conf", "transport": "tcp"}
    intel = {**before, "provider": "impi", "oversubscribe": True}
    found, names = planned(params(tmp_path, **intel), tmp_path)
    assert "/etc/mca.conf" not in names
    assert found["FI_PROVIDER"] == "mlx" and found["FI_MLX_DEVICES"] == "all"
    assert found["UCX_NET_DEVICES"] == "rail0"
    assert found["I_MPI_HYDRA_IFACE"] == "mgmt0" and found["I_MPI_PIN"] == "0"
    assert found["I_MPI_HYDRA_BRANCH_COUNT"] == "16384", "no tree"
    assert (
        "I_MPI_HYDRA_BRANCH_COUNT"
        not in (planned(params(tmp_path, **intel, tree_spawn=True), tmp_path)[0])
    )
    mca.parent.mkdir()
    mca.write_text(own, encoding="utf-8")
    assert "FI_PROVIDER" not in planned(params(tmp_path, **before), tmp_path, write=True)[0]
    assert "orte_launch_agent" in mca.read_text(encoding="utf-8")
    planned(params(tmp_path, **intel), tmp_path, write=True)
    assert mca.read_text(encoding="utf-8") == own


def test_a_modulefile_of_intel_mpi_contains_hydras_variables(tmp_path: Path) -> None:
    intel = {"provider": "impi", "prefix": "/opt/impi-1", "bin_directory": "/opt/impi-1/bin"}
    given = params(tmp_path, **intel, variables={"I_MPI_ROOT": "/opt/impi-1"})
    part = module.modulefiles({**given, "modulefiles": True, "keep_former": True})
    found = dict(part.variables)
    assert found["MPI_ROCE_BIN"] == "/opt/impi-1/bin" and found["I_MPI_ROOT"] == "/opt/impi-1"
    assert found["FI_PROVIDER"] == "mlx" and found["I_MPI_HYDRA_BOOTSTRAP_EXEC"]
    assert part.launcher is HYDRA
    assert "UCX_NET_DEVICES" not in found, "devices belong to the host"


def test_a_node_compares_the_cores_of_the_rankfile(tmp_path: Path) -> None:
    """A launcher has no slots, and no such check."""
    chassis.build(tmp_path)

    def silent(argv: Sequence[str], **_options: Any) -> Result:
        raise CommandError(f"{argv[0]}: not found")

    for slots, wanted in ((8, ["ok", "failed"]), (0, [])):
        given = params(tmp_path, transport="tcp", slots=slots)
        part = a_stack(given, numa_cores={0: "0-55", 1: "56-112"})
        verdict = part.verify(a_node(tmp_path, runner=silent))
        found = [check.status for check in verdict.checks if check.name == "numa_cores"]
        assert found == wanted
    by_kind = {"h100": {0: "0-55"}, "default": {0: "0-55", 1: "56-111"}}
    part = a_stack(params(tmp_path, transport="tcp", slots=8), numa_cores=by_kind, kind="h100")
    verdict = part.verify(a_node(tmp_path, runner=silent))
    assert [each.status for each in verdict.checks if each.name == "numa_cores"] == ["ok"]
