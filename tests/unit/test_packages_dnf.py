# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Definitions, keys and locks of dnf, and queries of rpm, without dnf or rpm."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import commands
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages import dnf, dnf_program
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.dnf import DnfManager
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.package import (
    ModuleStream,
    PackageError,
    PackageSet,
    Repository,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.rpm import Rpm
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.versionlock import (
    VersionLock,
    lock,
)
from hypothesis import given
from hypothesis import strategies as st

KEY = b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n"


def repository(name: str = "cuda") -> Repository:
    return Repository(name, "https://mirror.example/cuda/rhel9", KEY, "0" * 64)


class Recorded:
    """Answers by the first words that match, and records the calls."""

    def __init__(self, answers: dict[str, str]) -> None:
        self.answers, self.asked = answers, []  # type: ignore[var-annotated]

    def __call__(
        self, argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None
    ) -> Result:
        self.asked.append((list(argv), stdin))
        words = " ".join(argv)
        for beginning, answer in self.answers.items():
            if words.startswith(beginning):
                return Result(tuple(argv), 0, answer, "")
        raise AssertionError(f"unexpected: {words}")


def row(name: str, evr: str, arch: str = "x86_64", time: int = 1, number: int = 1) -> str:
    return f"{name}\t{evr}\t{arch}\t{time}\t{number}\n"


def test_a_lock_has_the_form_that_dnf_writes() -> None:
    assert lock("kernel", "5.14.0-611.el9") == "kernel-0:5.14.0-611.el9.*"
    assert lock("nvidia-open", "3:580.95.05-1.el9") == "nvidia-open-3:580.95.05-1.el9.*"


NAMES = st.from_regex(r"[a-z][a-z0-9+]{0,5}(-[a-z0-9]{1,4}){0,2}", fullmatch=True)
VERSIONS = st.builds(
    lambda epoch, version, release: f"{epoch}{version}-{release}",
    st.sampled_from(["", "3:"]),
    st.from_regex(r"[0-9][0-9.]{0,5}", fullmatch=True),
    st.from_regex(r"[0-9][0-9.]{0,3}\.el9", fullmatch=True),
)
PINS = st.dictionaries(NAMES, VERSIONS.map(lambda version: {version}), max_size=5)
THEIRS = "# mine\nkernel-0:5.14.0-70.el9.*\n!bad-1.0-1.*\nplain\n"


def with_locks(root: Path, text: str, **layers: Mapping[str, set[str]]) -> VersionLock:
    locks = VersionLock(root)
    locks.path.parent.mkdir(parents=True, exist_ok=True)
    locks.path.write_text(text)
    for layer, pins in layers.items():
        write(locks, pins, layer)
    return locks


def write(locks: VersionLock, pins: Mapping[str, set[str]], layer: str) -> None:
    locks.path.write_text(locks.with_pins(pins, layer))


@given(PINS, PINS, PINS)
def test_layers_and_operators_keep_their_locks(
    gpu: dict[str, set[str]], rdma: dict[str, set[str]], later: dict[str, set[str]]
) -> None:
    with TemporaryDirectory() as folder:
        locks = with_locks(Path(folder), THEIRS, gpu=gpu, rdma=rdma)
        write(locks, later, "gpu")
        assert locks.text().startswith(THEIRS)
        theirs = [entry for owner, entry in locks.entries() if not owner]
        assert theirs == THEIRS.splitlines()[1:]
        for layer, pins in (("gpu", later), ("rdma", rdma)):
            assert {name: set(at) for name, at in locks.pins(layer).items()} == pins
        write(locks, {}, "gpu")
        write(locks, {}, "rdma")
        assert locks.text() == THEIRS


def test_solver_sees_locks_of_others(tmp_path: Path) -> None:
    gpu, rdma = {"nvidia-open": {"3:580.95.05-1.el9"}}, {"mft": {"4.33.0-1.el9"}}
    locks = with_locks(tmp_path, THEIRS, gpu=gpu, rdma=rdma)
    theirs = THEIRS.splitlines()[1:]
    assert locks.without("gpu").splitlines() == [*theirs, "mft-0:4.33.0-1.el9.*"]
    assert locks.without("gpu", ["mf*"]).splitlines() == theirs


def test_a_definition_checks_every_signature(tmp_path: Path) -> None:
    wanted = PackageSet(
        repositories=[repository()],
        streams=[ModuleStream("nvidia-driver", "580-open")],
        preferred={"mft*": "doca", "nvlsm": "cuda"},
    )
    key, definition = DnfManager(wanted, "gpu", root=tmp_path).repository_files()
    assert str(key.path).endswith("etc/pki/rpm-gpg/RPM-GPG-KEY-baremetal-mpi-roce-gpu-cuda")
    assert key.after == KEY.decode()
    assert definition.after is not None
    assert definition.after.splitlines()[1:] == [
        "[baremetal-mpi-roce-gpu-cuda]",
        "name=cuda (baremetal.mpi_roce, layer gpu)",
        "baseurl=https://mirror.example/cuda/rhel9",
        "enabled=1",
        "gpgcheck=1",
        "repo_gpgcheck=1",
        f"gpgkey={key.path.as_uri()}",
        "skip_if_unavailable=0",
        "excludepkgs=mft*",
    ]
    plain = PackageSet(repositories=[repository("doca")])
    definition = DnfManager(plain, "rdma", root=tmp_path).repository_files()[1]
    assert "module_hotfixes=1" in str(definition.after).splitlines()


def test_definitions_of_a_former_set_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "etc/yum.repos.d"
    folder.mkdir(parents=True)
    for name in ("gpu-old", "rdma-doca", "gpu-cuda"):
        (folder / f"baremetal-mpi-roce-{name}.repo").write_text("[x]\n")
    (folder / "rocky.repo").write_text("[baseos]\n")
    wanted = PackageSet(repositories=[repository()])
    plans = DnfManager(wanted, "gpu", root=tmp_path).repository_files()
    gone = [planned.path.name for planned in plans if planned.after is None]
    assert gone == ["baremetal-mpi-roce-gpu-old.repo"]


@pytest.mark.skipif(shutil.which("rpm") is None, reason="rpm is not installed (apt-test.txt)")
@pytest.mark.parametrize(
    ("lower", "higher"),
    [
        ("580.95.05-1.el9", "580.105.08-1.el9"),
        ("580.105.08-1.el9", "3:580.95.05-1.el9"),
        ("1.0~rc1-1", "1.0-1"),
        ("1.0-1", "1.0^git1-1"),
        ("5.14.0-570.el9", "5.14.0-611.5.1.el9_7"),
        ("1.0-9", "1.0-10"),
    ],
)
def test_versions_in_order(lower: str, higher: str) -> None:
    rpm = Rpm(commands.run, Path("/"))
    assert rpm.lower(lower, higher)
    assert not rpm.lower(higher, lower)
    assert not rpm.lower(lower, lower)


def test_interrupted_downgrade() -> None:
    rows = [
        row("a", "0:1.0-1", time=7, number=20),
        row("a", "0:2.0-1", time=7, number=10),
        row("a", "0:1.0-1", "i686"),
        row("kernel", "0:1-1"),
        row("kernel", "0:2-1", time=2),
    ]
    run = Recorded({"rpm -qa": "".join(rows), "rpm -q --qf [@%{PROVIDENAME}": ""})
    ((kept, old),) = Rpm(run, Path("/")).duplicates()
    assert (kept.evr, old.evr) == ("1.0-1", "2.0-1")


def test_transitive_requirements() -> None:
    ask = r"rpm -q --qf [@%{REQUIRENAME}\n] "
    whose = r"rpm -q --qf @%{NAME}\n --whatprovides "
    run = Recorded(
        {
            f"{ask}a": "@lib.so()(64bit)\n@/bin/sh\n",
            f"{whose}/bin/sh lib.so()(64bit)": "@lib\n@bash\n",
            f"{ask}bash lib": "@((deep(64bit) or shallow) if x)\n",
            f"{whose}deep(64bit) if or shallow x": "@deep\nno package provides if\n",
            f"{ask}deep": "",
        }
    )
    assert Rpm(run, Path("/")).needs(["a"]) == {"lib", "deep", "bash"}


def test_streams_are_read_as_dnf_writes_them(tmp_path: Path) -> None:
    folder = tmp_path / "etc/dnf/modules.d"
    folder.mkdir(parents=True)
    text = "[{0}]\nname={0}\nstream={1}\nprofiles=\nstate={2}\n"
    for name, stream, state in (("cuda", "580-open", "enabled"), ("php", "8.1", "disabled")):
        (folder / f"{name}.module").write_text(text.format(name, stream, state))
    streams = [ModuleStream("cuda", "580-open"), ModuleStream("php", "8.2")]
    manager = DnfManager(PackageSet(streams=streams), "gpu", root=tmp_path, run=Recorded({}))
    (change,) = manager.stream_changes()
    assert (change.name, change.before, change.after) == ("module php", "", "8.2")


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "var/tmp").mkdir(parents=True)
    (tmp_path / "etc/dnf/plugins").mkdir(parents=True)
    monkeypatch.setattr(dnf, "INTERPRETER", "/usr/bin/platform-python")
    return tmp_path


def test_noise_on_standard_output_is_no_answer(node: Path) -> None:
    run = Recorded({"/usr/bin/platform-python": "Updating Subscription Management\n"})
    with pytest.raises(PackageError, match=r"dnf \(available\) failed, status 0: Updating"):
        DnfManager(PackageSet(), "gpu", root=node, run=run).available(["a"])


def test_pins_that_dnf_would_ignore_are_refused(node: Path) -> None:
    (node / "etc/dnf/plugins/versionlock.conf").write_text("[main]\nenabled = 0\n")
    with pytest.raises(PackageError, match=r"enabled = 1 in /etc/dnf/plugins/versionlock\.conf"):
        DnfManager(PackageSet(), "gpu", root=node, run=Recorded({})).pin_file({"a": "1.0-1"})


def test_hanging_rpm(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the time limit of dnf's transactions."""
    monkeypatch.setattr(dnf, "QUERY", partial(commands.run, timeout_s=0.2))
    (node / "rpm").write_text("#!/bin/sh\nsleep 60\n")
    (node / "rpm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{node}:{os.environ['PATH']}")
    with pytest.raises(commands.NoAnswerError):
        DnfManager(PackageSet(), "gpu", root=node).installed()


def test_only_locks_of_the_layer_are_lifted(node: Path) -> None:
    with_locks(node, "", gpu={"a": {"1.0-1"}}, rdma={"mft": {"1.0-1"}})
    run = Recorded({"/usr/bin/platform-python": json.dumps({"done": {"changes": []}})})
    manager = DnfManager(PackageSet(), "gpu", root=node, run=run)
    manager.simulate({"mft": "2.0-1"}, ["b"], {"mft": "2.0-1", "c": "3-1"})
    request = json.loads(run.asked[0][1])
    assert (request["remove"], request["versions"]) == (["b"], ["2.0-1", "3-1"])
    place = Path(request["private"])
    assert (place / "plugins/versionlock.list").read_text() == "mft-0:1.0-1.*\n"


def test_later_output_does_not_displace_the_cause() -> None:
    dkms = "Error! Bad return status for module build on kernel: 5.14.0-611.el9.x86_64"
    later = [f"dracut: *** Including module {at} ***" for at in range(100)]
    text = dnf_program.cause(["Error in POSTIN scriptlet"], ["Building module", dkms, *later])
    assert text.startswith(f"Error in POSTIN scriptlet; {dkms}; ")
    assert text.count("dracut") == 10
