# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Building MPI from source: script, failures, the host that builds, and the pack.

The archives are fakes: their configure records its options, and a fake `make` installs a file that
contains them. tests/integration/test_mpi_source.py builds for real.
"""

from __future__ import annotations

import hashlib
import os
import resource
import subprocess
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.baremetal.mpi_roce.plugins.action import mpi_build as action
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import StepError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi import build

from tests import mpi_source


def here(argv: Sequence[str], unit: str, limit_s: float, **_more: Any) -> list[str]:
    """Like bounded(), without systemd."""
    log = _more["output"]
    return ["sh", "-c", f'exec "$@" >>{log} 2>&1', "sh", *argv]


@pytest.fixture
def wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> build.Build:
    """A build of fake archives, with a fake `make` on the path."""
    prefix = tmp_path / "opt/source-aa"
    archives = Path(f"{prefix}.build") / build.ARCHIVES
    archives.mkdir(parents=True)
    for name in ("ucx", "openmpi"):
        mpi_source.stand_in(archives / name, name)
    (tmp_path / "bin").mkdir()
    mpi_source.make(tmp_path / "bin/make")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(build, "bounded", here)
    monkeypatch.setattr(build, "_POLL_S", 0.05)
    real = build.write_atomically
    monkeypatch.setattr(
        build,
        "write_atomically",
        lambda path, text, mode, _uid, _gid: real(path, text, mode, os.getuid(), os.getgid()),
    )
    builds = [{"name": "ucx", "options": ["--enable-mt"]}, {"name": "openmpi", "options": ["--x"]}]
    return build.Build(str(prefix), builds, 2, 60)


def run(wanted: build.Build) -> tuple[dict[str, Any], list[str]]:
    stopped: list[str] = []

    def runner(argv: Sequence[str], **_more: Any) -> Result:
        stopped.append(argv[-1])
        return Result(tuple(argv), 0, "", "")

    return build.run(wanted, runner, lambda _text: None), stopped


def test_a_build_is_packed_with_its_options(wanted: build.Build) -> None:
    result, _stopped = run(wanted)
    pack = wanted.work / build.PACK
    assert result["sha256"] == hashlib.sha256(pack.read_bytes()).hexdigest()
    with tarfile.open(pack) as tar:
        names = set(tar.getnames())
        top = Path(wanted.prefix).name
        assert {f"{top}/ucx/OPTIONS", f"{top}/ompi/OPTIONS"} <= names
        assert not [name for name in names if name.endswith(".la")]
        file = tar.extractfile(f"{top}/ompi/OPTIONS")
        assert file is not None
        text = file.read().decode()
    assert f"--prefix={wanted.prefix}/ompi" in text and "--x" in text
    assert f"--with-ucx={wanted.work}/root{wanted.prefix}/ucx" in text
    left = {build.ARCHIVES, build.SCRIPT, build.LOG, build.PACK}
    assert {each.name for each in wanted.work.iterdir()} == left
    assert run(wanted)[1] == [], "built once"


def test_a_failed_build_reports_step_and_last_lines(
    wanted: build.Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_FAILS", "openmpi")
    with pytest.raises(StepError) as caught:
        run(wanted)
    for text in ("configuring openmpi", "C compiler cannot create", str(wanted.work / build.LOG)):
        assert text in str(caught.value)
    assert not (wanted.work / build.PACK).exists()
    monkeypatch.delenv("STAND_IN_FAILS")
    run(wanted)
    assert (wanted.work / build.PACK).is_file()


def test_leftovers_of_a_killed_build_are_removed(wanted: build.Build) -> None:
    (wanted.work / "tree/ucx").mkdir(parents=True)
    left = Path(f"{wanted.work}/root{wanted.prefix}/ompi/half")
    left.parent.mkdir(parents=True)
    left.write_text("half of a file", encoding="utf-8")
    (wanted.work / f"{build.PACK}.part").write_text("half of a pack", encoding="utf-8")
    _result, stopped = run(wanted)
    assert stopped == [build.UNIT]
    with tarfile.open(wanted.work / build.PACK) as tar:
        assert not [name for name in tar.getnames() if name.endswith("half")]


def test_a_build_over_its_limit_names_the_option(
    wanted: build.Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "bounded", lambda argv, *_more, **_named: ["false"])
    late = build.Build(wanted.prefix, wanted.builds, 2, 0)
    with pytest.raises(StepError, match="mpi_stack_build_limit_s"):
        run(late)


def look(mpi: bool = False, begun: bool = False, toolkit: bool = False, **more: Any) -> Any:
    return {"pack": "/p", "mpi": mpi, "begun": begun, "toolkit": toolkit, "slots": 8, **more}


@pytest.mark.parametrize(
    ("looks", "cuda", "builder"),
    [
        ({"node01": look(), "node02": look()}, False, "node01"),
        ({"node01": look(True), "node02": look()}, False, "node02"),
        ({"node01": look(True)}, False, ""),
        ({"node01": look(pack="/other"), "node02": look()}, False, "node02"),
        ({"node01": look(), "launcher": look(slots=0)}, False, "launcher"),
        ({"node01": look(), "launcher": look(slots=0), "x": look(begun=True)}, False, "x"),
        ({"launcher": look(slots=0), "node02": look(toolkit=True)}, True, "node02"),
        ({"node01": {"slots": 8}}, False, ""),
    ],
)
def test_who_builds(looks: Any, cuda: bool, builder: str) -> None:
    assert action.builder_of(looks, "/p", cuda) == builder


def test_a_build_with_cuda_needs_a_host_with_the_toolkit() -> None:
    with pytest.raises(AnsibleActionFail, match=r"launcher.*CUDA toolkit"):
        action.builder_of({"launcher": look(slots=0)}, "/p", True)


def test_only_a_pack_with_its_checksum_is_kept_and_used(tmp_path: Path) -> None:
    source = tmp_path / "pack"
    source.write_bytes(b"a pack")
    one = action.ActionModule.__new__(action.ActionModule)
    one._connection = SimpleNamespace(
        fetch_file=lambda _far, near: Path(near).write_bytes(source.read_bytes())
    )
    pack = tmp_path / "cache/source-aa-debian12-x86_64.tar.gz"
    digest = hashlib.sha256(b"a pack").hexdigest()
    with pytest.raises(AnsibleActionFail, match="run again"):
        one._keep(pack, Path("/far"), "0" * 64, 6)
    assert not action.usable(pack) and list(pack.parent.iterdir()) == []
    one._keep(pack, Path("/far"), digest, 6)
    assert action.usable(pack)
    pack.write_bytes(b"a pa")
    assert not action.usable(pack)


DIGEST = hashlib.sha256(b"a pack").hexdigest()
ESCAPES = {
    "out of sftp's batch": '/tmp/a\'"X" /dev/null\n!id > /tmp/x #',
    "up": "../../../root/.ssh/authorized_keys",
    "long": "/" * 1_000_000,
    "list": ["/tmp/a"],
    "digits": 10**5000,
    "null": None,
}
DIGESTS = {**ESCAPES, "upper case": DIGEST.upper(), "line end": DIGEST + "\n", "short": "0" * 63}


class Builder(action.ActionModule):
    """The action with a hostile host, and a record of its calls."""

    def __init__(self, pack: Path, answer: dict[str, Any]) -> None:
        self.fetched: list[str] = []
        self.modules: list[Any] = []
        self.answer = answer
        arguments = {"prefix": "/opt/mpi/source-aa", "pack": str(pack), "builds": []}
        self._task = SimpleNamespace(args=arguments, check_mode=False, async_val=0)
        self._connection = SimpleNamespace(fetch_file=self.fetch)

    def fetch(self, far: str, near: str) -> None:
        self.fetched.append(far)
        Path(near).write_bytes(b"a pack")

    def run_detached(self, *_given: Any) -> dict[str, Any]:
        return dict(self.answer)

    def _execute_module(self, name: str, **given: Any) -> dict[str, Any]:
        self.modules.append((name, given["module_args"]))
        return {}


@pytest.fixture
def builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Builder]:
    return lambda **answer: Builder(tmp_path / "cache/source-aa.tar.gz", answer)


@pytest.mark.parametrize("named", ESCAPES.values(), ids=ESCAPES)
def test_a_host_names_no_path_that_is_fetched(
    builder: Callable[..., Builder], named: Any, tmp_path: Path
) -> None:
    one = builder(changed=True, pack=named, path=named, dest=named, sha256=DIGEST, bytes=6)
    result = one.act({})
    assert one.fetched == ["/opt/mpi/source-aa.build/pack"]
    gone = {"path": "/opt/mpi/source-aa.build", "state": "absent"}
    assert one.modules == [("ansible.builtin.file", gone)]
    assert result["pack"] == str(tmp_path / "cache/source-aa.tar.gz")


@pytest.mark.parametrize("digest", DIGESTS.values(), ids=DIGESTS)
def test_a_checksum_is_64_digits_or_nothing_is_fetched(
    builder: Callable[..., Builder], digest: Any, tmp_path: Path
) -> None:
    one = builder(changed=True, sha256=digest)
    with pytest.raises(AnsibleActionFail, match="nothing was fetched") as caught:
        one.act({})
    assert one.fetched == [] and not (tmp_path / "cache").exists()
    assert len(str(caught.value)) < 400 and "\n" not in str(caught.value)


@pytest.mark.parametrize("said", [None, 0, -1, True, "6", [6], 10**400, (4 << 30) + 1, 5])
def test_a_pack_has_the_announced_size_within_a_bound(
    builder: Callable[..., Builder], said: Any, tmp_path: Path
) -> None:
    """A larger pack is refused while it is written."""
    with pytest.raises(AnsibleActionFail, match="announced 5 bytes" if said == 5 else "bytes of"):
        builder(changed=True, sha256=DIGEST, bytes=said).act({})
    assert not list(tmp_path.glob("cache/*"))
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == LIMIT
    with action.writing_at_most(5):
        done = subprocess.run(["dd", "if=/dev/zero", f"of={tmp_path / 'x'}", "bs=9", "count=1"])
    assert done.returncode and (tmp_path / "x").stat().st_size <= 5, "a program like sftp"


LIMIT = resource.getrlimit(resource.RLIMIT_FSIZE)[0]


def test_a_host_without_a_state_is_no_builder() -> None:
    variables = {"read": {"host": look(True, toolkit=True)}, "cluster_slots": 4}
    assert action.state_of(variables, "read") == look(True, toolkit=True, slots=4)
    for registered in ({}, None, "", {"host": None}, {"host": [7]}, {"failed": True}):
        assert action.state_of({"read": registered}, "read") == {"slots": 0}
