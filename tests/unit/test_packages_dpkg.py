# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""apt's files, dpkg's database, and commands of apt and dpkg, with recorded answers."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.files import HEADER
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages import dpkg
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.apt import Apt
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.package import (
    PackageError,
    PackageSet,
    Repository,
)

KEY = b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmQ==\n-----END PGP PUBLIC KEY BLOCK-----\n"
URL = "https://mirror.example.org/cuda/ubuntu2404/x86_64"
SET = PackageSet(repositories=[Repository("cuda", URL, KEY, "0" * 64)])


def test_pins_leave_one_candidate(tmp_path):
    pins, preferred = {"nvidia-open-580": "580.95.05-0ubuntu1"}, {"mft*": "release l=d"}
    text = dpkg.render_pins(pins, preferred)
    (tmp_path / "pins").write_text(text)
    assert dpkg.records(tmp_path / "pins", dpkg.PREFERRED) == preferred
    assert text == (
        f"# {HEADER}\n\n"
        "Package: nvidia-open-580\nPin: version 580.95.05-0ubuntu1\nPin-Priority: 1001\n\n"
        "Package: nvidia-open-580\nPin: version *\nPin-Priority: -1\n\n"
        "Package: mft*\nPin: release l=d\nPin-Priority: 600\n"
    )


def test_definition_names_its_key(tmp_path):
    key, definition = Apt(SET, "gpu", root=tmp_path).repository_files()
    assert key.path == tmp_path / "etc/apt/keyrings/baremetal-mpi-roce-cuda.asc"
    assert key.after == KEY.decode()
    assert definition.after == (
        f"# {HEADER}\n# For the layers: gpu\nTypes: deb\nURIs: {URL}\nSuites: /\n"
        f"Signed-By: {key.path}\n"
    )


def line(*words):
    return "\t".join(words) + "\n"


DATABASE = (
    line("driver", "1", "amd64", "hold", "installed", "ok", "", "base (>= 1)", "lib (= 1), mailer")
    + line("lib", "1", "amd64", "install", "installed", "ok", "", "", "driver | other")
    + line("lib", "1", "i386", "install", "installed", "ok", "", "", "")
    + line("base", "1", "all", "install", "triggers-pending", "ok", "", "", "")
    + line("postfix", "1", "amd64", "install", "installed", "ok", "mailer (= 2)", "", "")
    + line("gone", "1", "amd64", "deinstall", "config-files", "ok", "", "", "lib")
    + line("half", "1", "amd64", "install", "half-installed", "reinstreq", "", "", "lib")
    + line("aside", "1", "amd64", "install", "installed", "ok", "", "", "driver")
)


def test_the_database_of_dpkg():
    state = dpkg.parse_state(DATABASE, "amd64")
    assert state.installed.keys() == {"driver", "lib", "lib:i386", "base", "postfix", "aside"}
    assert state.held == {"driver"}
    assert state.unfinished == {"half": "half-installed, reinstreq"}


def test_transitive_and_virtual_dependencies():
    state = dpkg.parse_state(DATABASE, "amd64")
    assert state.needs(["driver"]) == {"lib", "base", "postfix"}
    assert state.needs(["aside"]) == {"driver", "lib", "base", "postfix"}
    assert state.needs(["half", "nowhere"]) == frozenset()


TOOL = "\t".join(["tool", "1", "amd64", "hold", "installed", "ok", "", "", ""]) + "\n"


class Recorded:
    """Answers by the words of a command; other commands succeed without output."""

    def __init__(self, answers: Mapping[tuple[str, ...], object]) -> None:
        self.answers = {
            ("--print-architecture",): "amd64\n",
            ("dpkg-query",): TOOL,
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


def test_options_of_a_transaction(root):
    run = Recorded({})
    Apt(PackageSet(), "gpu", run, root=root).apply({"driver": "2-1"}, [])
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


def test_removal_takes_only_named_packages(root):
    solved = "Remv old [1]\nRemv mine [2]\n"
    run = Recorded({("apt-get", "-s"): solved})
    with pytest.raises(PackageError, match="also remove mine"):
        Apt(PackageSet(), "gpu", run, root=root).apply({}, ["old"])
    assert not [call for call in run.calls if "-y" in call]
    run = Recorded({("apt-get", "-s"): "Remv old [1]\n"})
    Apt(PackageSet(), "gpu", run, root=root).apply({}, ["old"])
    assert run.one("-y")[-1] == "old-"


def interrupted(root, answers=None):
    return Apt(PackageSet(), "gpu", Recorded(answers or {}), root=root).interrupted()


def test_unfinished_database_is_an_interruption(root):
    assert interrupted(root) == {}
    (root / "var/lib/dpkg/updates/0001").touch()
    assert list(interrupted(root)) == [""]


def test_unmet_dependencies_are_an_interruption(root):
    line = "x : Depends: y (>= 2) but it is not installed"
    text = f"The following packages have unmet dependencies:\n {line}\n"
    found = interrupted(root, {("apt-get", "check"): (100, text, "E: Unmet dependencies.\n")})
    assert found == {"x": f"unmet dependency: {line}"}
    # Several dependencies of one package, and an alternative, as apt 2.6 prints them.
    more = (
        "          Depends: z (= 3) but it is not installable or\n          a\n other : Breaks: x\n"
    )
    found = interrupted(root, {("apt-get", "check"): (100, text + more, "E: Unmet.\n")})
    assert found.keys() == {"x", "other"}
    assert found["x"].endswith("installed, Depends: z (= 3) but it is not installable or, a")
    malformed = (100, "", "E: Malformed entry 1 in list file\n")
    assert interrupted(root, {("apt-get", "check"): malformed}) == {}


def test_a_repair_configures_first_and_removes_nothing(root):
    err = "E: Packages need to be removed but remove is disabled.\n"
    run = Recorded({("apt-get", "-y", "-f"): (100, "", err)})
    with pytest.raises(PackageError, match="remove is disabled"):
        Apt(PackageSet(), "gpu", run, root=root).repair()
    assert {"dpkg", "--force-confold", "--configure"} <= set(run.calls[0])
    assert "--no-remove" in run.one("-y")


def test_only_installed_packages_are_held(root):
    run = Recorded({})
    manager = Apt(PackageSet(), "gpu", run, root=root)
    manager.hold(["tool", "nowhere"])
    assert run.one("apt-mark")[-2:] == ["hold", "tool"]
    manager.release(["nowhere"])
    run.one("apt-mark")


def test_owner_of_a_diverted_file():
    """Lines as dpkg-query(1) prints them."""
    diverted = "diversion by slurm from: /etc/a\ndiversion by slurm to: /etc/a.distrib\n"
    for text, owner in (
        ("pmix: /etc/a\n", "pmix"),
        ("libpmix2t64:amd64, libpmix2t64:i386: /etc/a\n", "libpmix2t64"),
        (f"{diverted}pmix: /etc/a\n", "pmix"),
        (diverted, ""),
        ("pmix: /etc/ab\n", ""),
        ("", ""),
    ):
        assert dpkg.owner_of("/etc/a", text) == owner
