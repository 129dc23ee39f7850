# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Modulefiles of unpacked MPIs are written, retained with their directories, and removed."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.engine import settle
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import Node
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi import modulefiles
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.launch.launcher import (
    HYDRA,
    OPEN_MPI,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.modulefiles import Modulefiles
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.unpacked import PREFIXES

ROOT = Path(__file__).parents[2]
PLACE = "etc/environment-modules/modules"
LMOD = "etc/lmod/modules/mpi"
FORMER, NOW = "hpcx-1-aa", "source-bb"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    for name in (FORMER, NOW):
        (tmp_path / PREFIXES / name).mkdir(parents=True)
    for name in ("mpi/openmpi-x86_64", "mpi/own"):
        path = tmp_path / PLACE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#%Module1.0\n", encoding="utf-8")
    (tmp_path / "etc/lmod/modules").mkdir(parents=True)
    run = lambda argv, **_more: Result(tuple(argv), 0, "", "")  # noqa: E731
    return Node("mpi", tmp_path, run, None, "boot", uid=os.getuid(), gid=os.getgid())


def part(name: str, wanted: bool = True, kept: bool = True) -> Modulefiles:
    prefix = f"/{PREFIXES}/{name}" if name else ""
    values = {"MPI_ROCE_BIN": f"{prefix}/ompi/bin:{prefix}/ucx/bin", "MPI_HOME": f"{prefix}/ompi"}
    return Modulefiles(prefix, values, OPEN_MPI, wanted, kept)


def there(node: Node, place: str = f"{PLACE}/mpi") -> set[str]:
    return {path.name for path in node.path(place).glob("*")} - {"openmpi-x86_64", "own"}


def test_former_ones_stay_as_long_as_their_directories(node: Node) -> None:
    assert settle([part(FORMER)], node).changed
    assert settle([part(NOW)], node).changed
    assert there(node) == there(node, modulefiles.OWN) == {FORMER, NOW}
    assert there(node, LMOD) == {f"{FORMER}.lua", f"{NOW}.lua"}
    assert not settle([part(NOW)], node).changed
    node.path(f"{PREFIXES}/{FORMER}").rmdir()
    assert settle([part(NOW)], node).changed
    assert there(node) == there(node, modulefiles.OWN) == {NOW}
    assert there(node, LMOD) == {f"{NOW}.lua"}
    assert settle([part("", kept=True)], node).changed is False, "the distribution's is the default"
    assert settle([part("", kept=False)], node).changed
    assert there(node) == there(node, modulefiles.OWN) == set()


def test_switched_off_nothing_stays_but_what_others_wrote(node: Node) -> None:
    assert not settle([part(NOW, wanted=False)], node).changed
    settle([part(NOW)], node)
    assert settle([part(NOW, wanted=False)], node).changed
    assert there(node) == there(node, modulefiles.OWN) == there(node, LMOD) == set()
    left = {each.name for each in node.path(f"{PLACE}/mpi").iterdir()}
    assert left == {"openmpi-x86_64", "own"}


def test_a_host_without_a_module_system_is_named(node: Node, tmp_path: Path) -> None:
    assert [each.status for each in part(NOW).verify(node).checks] == ["ok"]
    bare = Node("mpi", tmp_path / "bare", node.run, None, "boot")
    [check] = part(NOW).verify(bare).checks
    assert (check.name, check.status) == ("mpi_modules", "failed")
    assert part(NOW, wanted=False).verify(bare).checks == []


def test_both_languages_have_the_same_values(node: Node) -> None:
    settle([part(NOW)], node)
    prefix = f"/{PREFIXES}/{NOW}"
    tcl = node.path(f"{PLACE}/mpi/{NOW}").read_text(encoding="utf-8").splitlines()
    assert tcl[0] == "#%Module1.0"
    assert f"prepend-path PATH {{{prefix}/ompi/bin:{prefix}/ucx/bin}}" in tcl
    assert f"set values {{{{MPI_HOME}} {{{prefix}/ompi}}}}" in tcl
    lua = node.path(f"{LMOD}/{NOW}.lua").read_text(encoding="utf-8").splitlines()
    assert f'prepend_path("PATH", "{prefix}/ompi/bin:{prefix}/ucx/bin")' in lua
    assert f'pushenv("MPI_HOME", "{prefix}/ompi")' in lua


INIT = Path("/usr/share/lmod/lmod/init/bash")


@pytest.mark.skipif(not INIT.exists(), reason="lmod is not installed")
def test_lmod_loads_and_unloads_its_module(node: Node, tmp_path: Path) -> None:
    """Real Lmod: Debian's /etc/lmod/modulespath names /etc/lmod/modules."""
    settle([part(NOW)], node)
    script = f"""
        . {INIT}
        module use {tmp_path}/etc/lmod/modules
        export MPI_HOME=host
        module --terse --redirect avail mpi
        module load mpi/{NOW}
        echo "$MPI_HOME $MPI_ROCE_MODULE ${{PATH%%:*}}"
        module unload mpi/{NOW}
        echo "$MPI_HOME ${{MPI_ROCE_MODULE:-unset}}"
    """
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "LMOD_PAGER": "none"}
    done = subprocess.run(
        ["bash", "--norc", "-ec", script], env=environment, capture_output=True, text=True
    )
    *available, loaded, unloaded = done.stdout.splitlines()
    assert f"mpi/{NOW}" in available, done.stderr
    home = f"/{PREFIXES}/{NOW}/ompi"
    assert loaded == f"{home} /{modulefiles.OWN}/{NOW} {home}/bin"
    assert unloaded == "host unset"


def test_a_module_of_intel_mpi_has_no_launch_agent(node: Node) -> None:
    """`hydra-ssh` passes on the name of the variable file."""
    settle([replace(part(NOW), launcher=HYDRA)], node)
    for place in (f"{PLACE}/mpi/{NOW}", f"{LMOD}/{NOW}.lua"):
        text = node.path(place).read_text(encoding="utf-8")
        assert "OMPI_MCA" not in text and "/etc/baremetal-mpi-roce/modules" in text


def test_the_launch_agent_passes_on_the_variable_file(node: Node, tmp_path: Path) -> None:
    settle([part(NOW)], node)
    text = node.path(f"{PLACE}/mpi/{NOW}").read_text(encoding="utf-8")
    assert text.startswith("#%Module1.0\n")
    file = f"/etc/baremetal-mpi-roce/modules/{NOW}"
    assert f"env MPI_ROCE_MODULE={file} /usr/local/libexec/baremetal-mpi-roce/orted" in text
    env = tmp_path / "mpi.env"
    env.write_text("MPI_ROCE_BIN=/default/bin\nUCX_TLS=rc\n", encoding="utf-8")
    profile = (ROOT / "roles/mpi_stack/files/profile.sh").read_text(encoding="utf-8")
    profile = profile.replace("/etc/baremetal-mpi-roce/mpi.env", str(env))
    (tmp_path / "profile.sh").write_text(profile, encoding="utf-8")
    shown = subprocess.run(
        ["sh", "-c", f'. {tmp_path}/profile.sh; echo "$PATH $MPI_HOME $UCX_TLS"'],
        env={"PATH": "/usr/bin:/bin", "MPI_ROCE_MODULE": str(node.path(file))},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    prefix = f"/{PREFIXES}/{NOW}"
    path = f"{prefix}/ompi/bin:{prefix}/ucx/bin:/usr/bin:/bin"
    assert shown.split() == [path, f"{prefix}/ompi", "rc"]
