# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The commands that are given to apt and dpkg, with a recorded runner."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages import apt
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.manager import (
    PackageError,
)

DATABASE = "\t".join(["tool", "1", "amd64", "hold", "installed", "ok", "", "", ""]) + "\n"


class Recorded:
    """Answers by the words of a command; anything else succeeds and prints nothing."""

    def __init__(self, answers: Mapping[tuple[str, ...], object]) -> None:
        self.answers = {
            ("--print-architecture",): "amd64\n",
            ("dpkg-query",): DATABASE,
            ("--compare-versions",): (1, "", ""),
            **answers,
        }
        self.calls = []

    def __call__(self, argv, *, check=True, stdin=None):
        self.calls.append(list(argv))
        for words, answer in self.answers.items():
            if all(word in argv for word in words):
                if isinstance(answer, Exception):
                    raise answer
                if isinstance(answer, str):
                    return Result(tuple(argv), 0, answer, "")
                rc, out, err = answer
                return Result(tuple(argv), rc, out, err)
        return Result(tuple(argv), 0, "", "")

    def one(self, *words):
        (call,) = [call for call in self.calls if all(word in call for word in words)]
        return call


@pytest.fixture
def root(tmp_path):
    for name in ("var/lib/dpkg/updates", "var/lib/apt/lists/partial", "etc/apt"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/status").touch()
    return tmp_path


def test_a_transaction_asks_nothing_keeps_files_waits_for_locks_and_removes_nothing(root):
    run = Recorded({})
    apt.Apt(run, root=root).apply({"driver": "2-1"})
    call = run.one("-y")
    assert call[-2:] == ["install", "driver=2-1"]
    assert "--no-remove" in call
    settings = {call[at + 1] for at, word in enumerate(call) if word == "-o"}
    assert {
        "Dpkg::Options::=--force-confdef",
        "Dpkg::Options::=--force-confold",
        "DPkg::Lock::Timeout=300",
        "APT::Install-Recommends=false",
        "APT::Get::AllowUnauthenticated=false",
        "Acquire::AllowInsecureRepositories=false",
    } <= settings
    forbidden = ("--force-yes", "--allow-unauthenticated", "--allow-change-held-packages")
    assert not [word for word in forbidden if word in call]


def test_a_removal_takes_nothing_with_it_that_was_not_named(root):
    solved = "Remv old [1]\nRemv mine [2]\n"
    run = Recorded({("apt-get", "-s"): solved})
    with pytest.raises(PackageError, match="also remove mine"):
        apt.Apt(run, root=root).apply({}, ["old"])
    assert not [call for call in run.calls if "-y" in call]
    run = Recorded({("apt-get", "-s"): "Remv old [1]\n"})
    apt.Apt(run, root=root).apply({}, ["old"])
    assert run.one("-y")[-1] == "old-"


def test_the_solvers_lines_are_read_as_changes(root):
    solved = (
        "Inst new (1.0-1 NVIDIA:cuda [amd64]) []\n"
        "Inst tool [1] (2 A:x, B:y [all])\n"
        "Remv old [0.5] [tool ]\nConf tool (2 A:x)\n"
    )
    changes = apt.Apt(Recorded({("apt-get", "-s"): solved}), root=root).simulate({"tool": "2"})
    assert [(each.kind, each.name, each.before, each.after) for each in changes] == [
        ("install", "new", "", "1.0-1"),
        ("upgrade", "tool", "1", "2"),
        ("remove", "old", "0.5", ""),
    ]


def test_a_database_that_was_being_written_is_an_interruption(root):
    manager = apt.Apt(Recorded({}), root=root)
    assert manager.interrupted() == ""
    (root / "var/lib/dpkg/updates/0001").touch()
    assert "while it wrote its database" in apt.Apt(Recorded({}), root=root).interrupted()


def test_unmet_dependencies_are_an_interruption_and_other_troubles_of_apt_are_not(root):
    told = (
        "The following packages have unmet dependencies:\n"
        " x : Depends: y (>= 2) but it is not installed\n"
    )
    run = Recorded({("apt-get", "check"): (100, told, "E: Unmet dependencies.\n")})
    assert "x : Depends: y (>= 2)" in apt.Apt(run, root=root).interrupted()
    run = Recorded({("apt-get", "check"): (100, "", "E: Malformed entry 1 in list file\n")})
    assert apt.Apt(run, root=root).interrupted() == ""


def test_a_repair_configures_first_and_removes_nothing(root):
    err = "E: Packages need to be removed but remove is disabled.\n"
    run = Recorded({("apt-get", "-y", "-f"): (100, "", err)})
    with pytest.raises(PackageError, match="remove is disabled"):
        apt.Apt(run, root=root).repair()
    assert run.calls[0][0] == "env"
    assert {"DPKG_FRONTEND_LOCKED=true", "--force-confold", "--configure"} <= set(run.calls[0])
    assert "--no-remove" in run.one("-y")


def test_only_installed_packages_are_held(root):
    run = Recorded({})
    manager = apt.Apt(run, root=root)
    manager.hold(["tool", "nowhere"])
    assert run.one("apt-mark")[-2:] == ["hold", "tool"]
    manager.release(["nowhere"])
    run.one("apt-mark")
