# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""HPC-X instead of the distribution's MPI, and back: installed, unchanged, used by the smoke
test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests import hpcx, mpi_source
from tests.nodes import Nodes

pytestmark = pytest.mark.nodes

MPI, SMOKE = "playbooks/mpi.yml", ("site.yml", "--tags", "smoke")
MPI4PY = "4.1.1"
FULL, KILLED = "node02", "node03"
MOUNT = """
mkdir -p /opt/baremetal-mpi-roce &&
mount -t tmpfs -o size=$(($(stat -c %s {archive}) + 1000000)) full /opt/baremetal-mpi-roce
"""
"""Enough space for the archive, but not for its content."""
HALF_DONE = """
mkdir -p {part} && cp {archive} {part}/archive &&
tar -xf {archive} -C {part} --strip-components=1 && rm -r {part}/ucx &&
truncate -s 100 {part}/ompi/lib/libmpi.so.40
"""
"""Truncate one file and remove others, as a kill during unpacking does."""
WHOLE = """
cd $(mktemp -d) && tar -xf {archive} --strip-components=1 && rm -r ompi/etc &&
find . -type f -exec sha256sum {{}} + >/tmp/sums &&
cd /opt/baremetal-mpi-roce/{name}-* && sha256sum --check --quiet /tmp/sums
"""
"""Every file is the archive's."""


@pytest.fixture(scope="module")
def with_hpcx(nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """The nodes with a model that has HPC-X. Afterwards they have the distribution's MPI again."""
    folder = tmp_path_factory.mktemp("hpcx")
    archive = {"url": f"file://{hpcx.PLACE}", "sha256": hpcx.publish(nodes, folder)}

    def change(model: dict[str, Any]) -> None:
        archives = [{**archive, "distribution": name} for name in ("ubuntu24.04", "redhat9")]
        mpi = {"provider": "hpcx", "archives": archives, "mpi4py": MPI4PY}
        model.setdefault("software", {})["mpi"] = mpi

    part = f"/opt/baremetal-mpi-roce/{hpcx.NAME}-{archive['sha256'][:12]}.part"
    nodes.on(FULL).check_output(MOUNT.format(archive=hpcx.PLACE))
    nodes.on(KILLED).check_output(HALF_DONE.format(part=part, archive=hpcx.PLACE))
    changed = nodes.changed(folder, change)
    mpi_source.download(changed.inventory / "wheels", f"mpi4py=={MPI4PY}")
    yield changed
    nodes.play(MPI)


def test_hpcx_is_installed_and_a_second_run_changes_nothing(with_hpcx: Nodes) -> None:
    shown = with_hpcx.play(MPI, "--check", "--diff")
    assert shown.total("changed") > 0
    run = with_hpcx.play(MPI, expect=2)
    assert run.hosts_with("failed") == {FULL}
    assert "No space left on device" in run.output, run.output
    assert with_hpcx.on(FULL).run("ls /opt/baremetal-mpi-roce | grep -v part").stdout == ""
    with_hpcx.on(FULL).check_output("umount /opt/baremetal-mpi-roce")
    run = with_hpcx.play(MPI)
    assert run.failed("mpi") == [] and run.hosts_with("changed") == {FULL}
    with_hpcx.on(KILLED).check_output(WHOLE.format(archive=hpcx.PLACE, name=hpcx.NAME))
    assert with_hpcx.play(MPI).total("changed") == 0


def test_the_smoke_test_runs_over_it(with_hpcx: Nodes) -> None:
    run = with_hpcx.play(*SMOKE)
    assert run.failed("smoke") == []
    for program, place in (("mpirun", "ompi/bin"), ("ucx_info", "ucx/bin")):
        found = with_hpcx.as_user("node01", f"command -v {program}")
        assert found.startswith(f"/opt/baremetal-mpi-roce/{hpcx.NAME}-")
        assert found.endswith(f"/{place}/{program}")


def test_another_mpirun_first_on_the_path_is_named(nodes: Nodes) -> None:
    place = "/usr/local/bin/mpirun"
    with nodes.by_hand("node01", f"ln -s /bin/true {place}", f"rm {place}"):
        run = nodes.play(MPI, "--limit=node01", expect=2)
    wrong = {check["subject"]: check["found"] for check in run.failed("mpi")}
    assert wrong["login"] == wrong["non-login"] == "/usr/local/bin/mpirun"


def test_the_way_back_leaves_nothing(nodes: Nodes, with_hpcx: Nodes) -> None:
    with_hpcx.play(MPI, "--limit=node01")
    nodes.play(MPI, "--limit=node01")
    assert not nodes.on("node01").file("/opt/baremetal-mpi-roce").listdir()
    text = nodes.on("node01").file("/etc/baremetal-mpi-roce/mpi.env").content_string
    assert "OPAL_PREFIX" not in text and "hpcx" not in text
    assert nodes.play(MPI, "--limit=node01").total("changed") == 0


def test_jobs_without_a_login_shell_get_the_environment(nodes: Nodes) -> None:
    node = nodes.on("node01")
    file = node.file("/etc/baremetal-mpi-roce/mpi.env").content_string
    values = dict(line.split("=", 1) for line in file.splitlines() if line.startswith("UCX_"))
    shown = node.check_output("env -i PATH=/usr/bin:/bin ucx_info -c").splitlines()
    assert f"UCX_NET_DEVICES={values['UCX_NET_DEVICES']}" in shown
    user = nodes.of("node01")["cluster_mpi_user"]
    prolog = "/usr/local/libexec/baremetal-mpi-roce/task-prolog"
    printed = node.check_output(f"runuser -u {user} -- env -i UCX_NET_DEVICES=other {prolog}")
    assert f"export UCX_NET_DEVICES={values['UCX_NET_DEVICES']}" in printed.splitlines()
    assert "PATH=" not in printed, "a task inherits the paths of its user"
