# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""MPI built from source on one node of each distribution: killed, lost, without space, used,
removed.

The archives are stand-ins (tests/mpi_source.py) with Debian's Open MPI and UCX; nothing is
compiled. The last test builds Debian's sources.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import hpcx, mpi_source, waiting
from tests.nodes import Nodes
from tools.run_tests import descendants

pytestmark = pytest.mark.nodes

MPI, SMOKE = "playbooks/mpi.yml", ("site.yml", "--tags", "smoke")
MPI4PY = "4.1.1"
BUILDER = "launcher01"
"""Builds for its distribution, because it runs no ranks. Nodes 01 and 02 have the same one."""
PLACE = "/opt/baremetal-mpi-roce"
WAITS = "/var/tmp/stand-in-waits"
UNIT = "baremetal-mpi-build"
MODULES = "/etc/environment-modules/modules"


@pytest.fixture(scope="module")
def with_source(nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """The nodes with stand-in archives in their model. Afterwards they have Debian's MPI."""
    folder = tmp_path_factory.mktemp("source")
    hpcx.publish(nodes, folder)
    sums = mpi_source.archives(folder / "hpcx.tgz", folder)
    mpi_source.make(folder / "make")
    names = [*(f"{name}-1.0.tar.gz" for name in sums), "make"]
    for host in nodes.group("compute", "launcher"):
        for name in names:
            mpi_source.send(nodes, host, folder / name, f"/var/tmp/{name}")
        nodes.on(host).check_output("install -m 755 /var/tmp/make /usr/local/bin/make")

    def change(model: dict[str, Any]) -> None:
        sources = {
            name: {"url": f"file:///var/tmp/{name}-1.0.tar.gz", "sha256": digest}
            for name, digest in sums.items()
        }
        mpi = {"provider": "source", "sources": sources, "mpi4py": MPI4PY}
        model.setdefault("software", {})["mpi"] = mpi
        model["vars"]["all"]["mpi_stack_build_cache"] = str(folder / "cache")
        # The repositories of the nodes have no package that a build needs.
        model["vars"]["all"]["mpi_stack_build_packages"] = ["python3-numpy"]

    changed = nodes.changed(folder, change)
    mpi_source.download(changed.inventory / "wheels", f"mpi4py=={MPI4PY}")
    yield changed
    nodes.play(MPI)
    for host in nodes.group("compute", "launcher"):
        nodes.on(host).check_output("rm -f /usr/local/bin/make /var/tmp/*-1.0.tar.gz /var/tmp/make")


def left(nodes: Nodes, host: str) -> list[str]:
    return sorted(nodes.on(host).check_output(f"mkdir -p {PLACE} && ls {PLACE}").split())


def test_the_host_that_builds_is_one_of_the_play(with_source: Nodes) -> None:
    shown = with_source.play(MPI, "--check", "--diff", "--limit=node04")
    assert shown.total("changed") > 0 and left(with_source, "node04") == []
    run = with_source.play(MPI, "--limit=node04")
    assert run.failed("mpi") == []
    [name] = left(with_source, "node04")
    assert name.startswith("source-")
    assert left(with_source, "node03") == []


def test_a_killed_build_fails_on_all_waiting_hosts(with_source: Nodes) -> None:
    with_source.on(BUILDER).check_output(f"touch {WAITS}")
    playing = started(with_source)
    with_source.on(BUILDER).check_output(f"systemctl kill --signal=KILL {UNIT}")
    output, _none = playing.communicate(timeout=waiting.deadline(120))
    assert playing.returncode == 2
    assert "at: configuring ucx" in output and f"{PLACE}/source-" in output
    for host in ("node01", "node02"):
        assert f"fatal: [{host}]: FAILED!" in output
    assert f"the build on {BUILDER} failed" in output
    assert left(with_source, "node01") == []
    # The other distribution's pack existed: node03 gets it from the controller.
    assert left(with_source, "node03") == left(with_source, "node04")


def test_a_build_outlives_its_playbook_and_is_used_by_the_next(with_source: Nodes) -> None:
    playing = started(with_source)
    # Workers are in other sessions, and notice later that the main process is gone: one of them
    # could still fetch the pack.
    for pid in descendants(playing.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    playing.communicate()
    node = with_source.on(BUILDER)
    node.check_output(f"rm {WAITS} && pkill -x sleep")
    pack = f"{PLACE}/source-*.build/pack"
    waiting.until(lambda: node.run(f"ls {pack}").rc == 0, "a pack on the host", 60)
    made = node.check_output(f"stat -c %Y {pack}")
    archive = f"{node.check_output(f'echo {pack}')}"
    before = node.check_output(f"sha256sum {archive}").split()[0]
    run = with_source.play(MPI)
    assert run.failed("mpi") == [] and made
    for host in (BUILDER, "node01", "node02"):
        assert left(with_source, host) == left(with_source, "node04")
    [name] = left(with_source, BUILDER)
    cache = Path(with_source.of(BUILDER)["mpi_stack_build_cache"])
    assert before in (cache / f"{name}-ubuntu24-x86_64.tar.gz.sha256").read_text(encoding="utf-8")
    assert with_source.play(MPI).total("changed") == 0


def started(nodes: Nodes) -> subprocess.Popen[str]:
    """A run of the layer, whose build waits in the stand-in's configure."""
    playing = nodes.start(MPI)
    waits = "pgrep -fx 'sleep 300'"  # Ansible's commands end with `sleep 0`
    waiting.until(lambda: nodes.on(BUILDER).run(waits).rc == 0, "a build that waits", 120)
    return playing


def test_the_smoke_test_runs_over_it(with_source: Nodes) -> None:
    run = with_source.play(*SMOKE)
    assert run.failed("smoke") == []
    found = with_source.as_user("node01", "command -v mpirun")
    assert found.startswith(f"{PLACE}/source-") and found.endswith("/ompi/bin/mpirun")


def test_a_full_disk_leaves_nothing_that_is_used(with_source: Nodes) -> None:
    cache = Path(with_source.of(BUILDER)["mpi_stack_build_cache"])
    for path in cache.glob("*ubuntu24*"):
        path.unlink()
    full = f"rm -r {PLACE}/* && mount -t tmpfs -o size=6M full {PLACE}"
    with with_source.by_hand("node01", full, f"umount {PLACE}"):
        run = with_source.play(MPI, "--limit=node01", expect=2)
        assert "No space left on device" in run.output, run.output
        assert not [name for name in left(with_source, "node01") if not name.endswith(".build")]
    assert not list(cache.glob("*ubuntu24*"))
    assert with_source.play(MPI, "--limit=node01").failed("mpi") == []


def test_a_modulefile_selects_a_former_mpi_on_every_node(nodes: Nodes, with_source: Nodes) -> None:
    """The nodes' repositories lack environment modules: set what the modulefile sets, as
    environment-modules 5.2.0 and Lmod 8.6.19 did."""
    hosts = (BUILDER, "node01", "node02")
    limit = f"--limit={','.join(hosts)}"
    kept = ("-e", '{"mpi_stack_modules": true, "mpi_stack_keep_former": true}')
    for host in hosts:
        nodes.on(host).check_output(f"mkdir -p {MODULES}")
    with_source.play(MPI, limit, *kept)
    nodes.play(MPI, limit, *kept)
    [name] = left(nodes, BUILDER)
    text = nodes.on(BUILDER).file(f"{MODULES}/mpi/{name}").content_string
    agent = re.search(r"^setenv OMPI_MCA_orte_launch_agent \{(.+)\}$", text, re.MULTILINE)
    assert agent
    load = (
        f"export MPI_ROCE_MODULE=/etc/baremetal-mpi-roce/modules/{name} "
        f"OMPI_MCA_orte_launch_agent='{agent[1]}'; . /etc/profile.d/baremetal-mpi-roce.sh; "
    )
    # Not `command -v mpirun`: the stand-in's Open MPI is Debian's, which puts /usr/bin first.
    ask = "mpirun --host node01,node02 -np 2 sh -c 'echo ${MPI_HOME:-none}'"
    for script, wanted in ((ask, "none"), (load + ask, f"{PLACE}/{name}/ompi")):
        assert nodes.as_user(BUILDER, script).split() == [wanted] * 2
    nodes.play(MPI, limit)
    for host in hosts:
        nodes.on(host).check_output(f"rmdir {MODULES}/mpi {MODULES} $(dirname {MODULES})")
        assert left(nodes, host) == []
        assert not nodes.on(host).file("/etc/baremetal-mpi-roce/modules").listdir()


def test_the_way_back_leaves_nothing(nodes: Nodes, with_source: Nodes) -> None:
    nodes.play(MPI, "--limit=node01,node03")
    for host in ("node01", "node03"):
        assert left(nodes, host) == []
        text = nodes.on(host).file("/etc/baremetal-mpi-roce/mpi.env").content_string
        assert "OPAL_PREFIX" not in text and "source" not in text
    assert nodes.play(MPI, "--limit=node01,node03").total("changed") == 0


@pytest.mark.long
def test_debians_sources_are_built_and_run(nodes: Nodes, tmp_path: Path) -> None:
    """On nodes of one family, because the other one's repository has no compiler. With
    MPI_SOURCE_CACHE, a persistent directory, only its first run builds."""
    cache = Path(os.environ.get("MPI_SOURCE_CACHE") or tmp_path / "cache")
    drained = ["node03", "node04"]
    limit = f"--limit={BUILDER},node01,node02"
    found = mpi_source.debian_sources(tmp_path)
    installed = [] if any(cache.glob("*.tar.gz")) else mpi_source.compilers(nodes, BUILDER)
    for path in found.values():
        mpi_source.send(nodes, BUILDER, path, f"/var/tmp/{path.name}")

    def change(model: dict[str, Any]) -> None:
        sources = {
            name: {
                "url": f"file:///var/tmp/{path.name}",
                "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            }
            for name, path in found.items()
        }
        mpi = {"provider": "source", "sources": sources, "mpi4py": MPI4PY}
        model.setdefault("software", {})["mpi"] = mpi
        model["nodes"]["drained"] = drained
        model["vars"]["all"]["mpi_stack_build_cache"] = str(cache)

    built = nodes.changed(tmp_path, change)
    mpi_source.download(built.inventory / "wheels", f"mpi4py=={MPI4PY}")
    try:
        assert built.play(MPI, limit).failed("mpi") == []
        assert built.play(MPI, limit).total("changed") == 0
        built.play("playbooks/hostfile.yml")
        run = built.play("playbooks/smoke.yml")
        assert run.failed("smoke") == []
        info = "ompi_info --version; ucx_info -v; command -v ucx_info mpirun"
        said = nodes.as_user("node01", info)
        assert "Open MPI v4.1.4" in said and "1.13.1" in said
        assert said.count(f"{PLACE}/source-") >= 2
    finally:
        if installed:
            nodes.on(BUILDER).check_output(f"dpkg --purge {' '.join(installed)}")
        nodes.on(BUILDER).check_output("rm -f /var/tmp/*-debian.tar.*")
        nodes.play(MPI, limit)
        nodes.play("playbooks/hostfile.yml")
    assert left(nodes, "node01") == [] and left(nodes, BUILDER) == []
