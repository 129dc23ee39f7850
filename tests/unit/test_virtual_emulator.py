# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which QEMU runs machines, and whether on KVM: what was tried decides, not what is there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    Result,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.virtual import emulator
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.virtual.emulator import (
    KVM,
    TCG,
    choose,
    fetch,
    fetched_emulator,
    system_emulator,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.virtual.inventory import (
    VirtualError,
)


class Apt:
    """apt-get and dpkg-deb as far as they are used; QEMU says whether it has the card."""

    def __init__(self, igb: bool = True, archive: str = "https://mirror/debian/") -> None:
        self.igb = igb
        self.archive = archive
        self.fails = ""
        self.calls: list[list[str]] = []
        self.source = ""

    def __call__(
        self, argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None
    ) -> Result:
        words = list(argv)
        self.calls.append(words)
        if self.fails and self.fails in words:
            raise CommandError(f"{self.fails}: exit status 100")
        printed = ""
        if "indextargets" in words:
            printed = self.archive
        if words[-1] == "update":
            folder = next(word for word in words if "sourcelist" in word).partition("=")[2]
            self.source = Path(folder).read_text()
        if "download" in words:
            debs = Path(words[4])
            (debs / "qemu-system-x86_10.deb").touch()
        if words[0] == "dpkg-deb":
            program = Path(words[-1]) / "usr/bin/qemu-system-x86_64"
            program.parent.mkdir(parents=True)
            program.touch()
        if words[-1] == "igb,help" and self.igb:
            printed = "igb options:\n"
        return Result(tuple(words), 0, printed, "")


@pytest.fixture
def debian(tmp_path: Path) -> Path:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text("ID=debian\nVERSION_CODENAME=bookworm\n")
    return tmp_path


def test_the_systems_is_taken_where_it_has_the_card() -> None:
    assert system_emulator(Apt(), lambda _name: None) is None
    found = system_emulator(Apt(igb=True), lambda name: f"/usr/bin/{name}")
    assert found is not None
    assert (found.words, found.sriov) == (("/usr/bin/qemu-system-x86_64",), True)


def test_a_newer_one_comes_from_apts_own_source_by_its_suite(debian: Path) -> None:
    apt = Apt()
    found = fetch(apt, root=debian, folder=debian / "var/qemu")
    assert apt.source.endswith(" https://mirror/debian/ bookworm-backports main\n")
    assert "signed-by=" in apt.source
    assert found.sriov
    assert Path(found.words[2]) == debian / "var/qemu/usr/bin/qemu-system-x86_64"
    assert found.words[1].startswith("QEMU_MODULE_DIR=")
    again = fetched_emulator(apt, debian / "var/qemu")
    assert again == found
    assert [path.name for path in (debian / "var").iterdir()] == ["qemu"]


@pytest.mark.parametrize("fails", ["update", "download", "dpkg-deb", "igb,help"])
def test_one_that_cannot_be_had_leaves_nothing(debian: Path, fails: str) -> None:
    apt = Apt()
    apt.fails = fails
    with pytest.raises(VirtualError, match="no newer QEMU from bookworm-backports"):
        fetch(apt, root=debian, folder=debian / "var/qemu")
    assert list((debian / "var").iterdir()) == []


def test_a_fetched_one_that_does_not_start_any_more_is_none(debian: Path) -> None:
    apt = Apt()
    fetch(apt, root=debian, folder=debian / "var/qemu")
    apt.fails = "igb,help"
    assert fetched_emulator(apt, debian / "var/qemu") is None


def test_without_backports_it_is_said_what_to_do(debian: Path) -> None:
    (debian / "etc/os-release").write_text("ID=ubuntu\nVERSION_CODENAME=jammy\n")
    with pytest.raises(VirtualError, match="install a QEMU that has the igb card"):
        fetch(Apt(), root=debian, folder=debian / "var/qemu")


class Trial:
    """What a kernel that is started on KVM prints, or that it prints nothing in time."""

    def __init__(self, printed: Optional[str]) -> None:
        self.printed = printed
        self.count = 0

    def __call__(self, argv: Sequence[str], *, timeout_s: float = 0) -> Result:
        self.count += 1
        if self.printed is None:
            raise CommandError(f"{' '.join(argv)}: no answer within 12 s")
        return Result(tuple(argv), 0, self.printed, "")


def chosen(root: Path, wanted: str = "auto") -> tuple[str, ...]:
    return choose(wanted, ["qemu"], Path("/images/a.kernel"), root=root, record=root / "kvm.json")


@pytest.fixture
def kvm(tmp_path: Path) -> Path:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kvm").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("printed", "words"),
    [("[ 0.0] Linux version 6.1\nKernel panic", KVM), ("", TCG), (None, TCG)],
)
def test_kvm_is_taken_where_a_kernel_runs_on_it(
    kvm: Path, monkeypatch: pytest.MonkeyPatch, printed: Optional[str], words: tuple[str, ...]
) -> None:
    trial = Trial(printed)
    monkeypatch.setattr(emulator, "run", trial)
    assert chosen(kvm) == words
    assert chosen(kvm) == words
    assert trial.count == 1, "tried once, and remembered"


def test_without_its_device_nothing_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emulator, "run", Trial(None))
    assert chosen(tmp_path) == TCG
    with pytest.raises(VirtualError, match="there is no /dev/kvm"):
        chosen(tmp_path, "kvm")


def test_kvm_by_force_says_what_was_seen(kvm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulator, "run", Trial(None))
    with pytest.raises(VirtualError, match="a kernel started on it: no answer within 12 s"):
        chosen(kvm, "kvm")


def test_tcg_by_force_tries_nothing(kvm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial("Linux version 6.1")
    monkeypatch.setattr(emulator, "run", trial)
    assert chosen(kvm, "tcg") == TCG
    assert trial.count == 0


def test_another_kernel_is_tried_again(kvm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulator, "run", Trial("Linux version 6.1"))
    (kvm / "kvm.json").write_text(json.dumps({"qemu b.kernel": "nothing"}))
    assert chosen(kvm) == KVM
    assert set(json.loads((kvm / "kvm.json").read_text())) == {"qemu a.kernel", "qemu b.kernel"}
