# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Shared file systems on real kernels: one node serves NFS over RDMA and TCP, another mounts both.

The tests cover a dead server, a reboot, changes and manual edits, and observe them without the
modules under test: by findmnt, /proc/fs/nfsd, and programs of the MPI user. The server is down for
OUTAGE_S seconds, or for STORAGE_OUTAGE_S.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import waiting
from tests.jobs import END, Job
from tests.nodes import TOP, Nodes, Run

pytestmark = pytest.mark.machines

OUTAGE_S = float(os.environ.get("STORAGE_OUTAGE_S", "60"))
SERVER = "nfs-server.service"
GRACE_S = 90
"""The kernel's grace period: how long a restarted server waits for clients to reclaim locks."""
USE_LIMIT_S, MOUNT_LIMIT_S = 15, 15
SHORT = f"--extra-vars=shared_storage_use_time_limit_s={USE_LIMIT_S}"
SHORT += f" shared_storage_mount_wait_s={MOUNT_LIMIT_S}"
Systems = dict[str, dict[str, Any]]
Stop = Callable[[], object]

WRITER = """
import os, sys, time
directory = sys.argv[1]
with open(directory + "/writer.data", "wb", buffering=0) as data:
    count = os.open("/run/user-of-storage-test/" + sys.argv[2], os.O_WRONLY | os.O_CREAT)
    number = 0
    while not os.path.exists("/run/storage-test-enough"):
        data.write(b"%015d\\n" % number * 4096)
        os.fsync(data.fileno())
        number += 1
        os.pwrite(count, b"%015d" % number, 0)
        time.sleep(0.2)
"""
"""Blocks of 64 KiB, numbered and fsynced; /run has the number of acknowledged blocks."""


class Site:
    """The machines, their file systems by transport, the server of both, and one client."""

    def __init__(self, machines: Nodes) -> None:
        self.machines = machines
        first, *others = machines.group("compute")
        found = machines.of(first)["cluster_filesystems"]
        self.systems: Systems = {fs["nfs"]["transport"]: fs for fs in found}
        self.server = str(self.systems["rdma"]["serve"]["host"])
        self.client = next(name for name in (first, *others) if name != self.server)
        self.points = {transport: str(fs["mount"]) for transport, fs in self.systems.items()}

    def play(self, *words: str, nodes: Nodes | None = None, expect: int = 0) -> Run:
        limit = f"--limit={self.client}"
        return (nodes or self.machines).play("playbooks/storage.yml", limit, *words, expect=expect)

    def on_client(self, command: str) -> str:
        return str(self.machines.on(self.client).check_output(command))

    def on_server(self, *words: str) -> str:
        return str(self.machines.on(self.server).check_output(*words))

    def mounted(self, name: str, point: str) -> dict[str, str]:
        """Return the kernel's mount below any automount point; empty if there is none."""
        shown = self.machines.on(name).run("findmnt --json --kernel --mountpoint %s", point).stdout
        found = list(json.loads(shown)["filesystems"]) if shown.strip() else []
        return next((entry for entry in reversed(found) if entry["fstype"] != "autofs"), {})

    def options(self, transport: str) -> list[str]:
        return self.mounted(self.client, self.points[transport])["options"].split(",")

    def changed(self, folder: Path, *more: dict[str, Any], **changes: dict[str, Any]) -> Nodes:
        """Return a model with changed keys of file systems, by transport, and additional ones."""
        wanted = [{**fs, **changes.get(name, {})} for name, fs in self.systems.items()]
        return self.machines.changed(
            folder, lambda model: model.update(filesystems=[*wanted, *more])
        )

    def bad(self, run: Run) -> dict[tuple[str, str], dict[str, Any]]:
        return {
            (entry["name"], entry["subject"]): entry
            for entry in run.checks("storage", self.client)
            if entry["status"] in ("failed", "pending")
        }


@pytest.fixture(scope="module")
def site(machines: Nodes) -> Site:
    return Site(machines)


def served_directory(fs: dict[str, Any]) -> str:
    return "/" + str(fs["source"]).split(":/", 1)[1]


@pytest.fixture
def stopped(site: Site) -> Iterator[Stop]:
    """Stop the server. It is started again in any case."""
    yield lambda: site.on_server("systemctl stop %s", SERVER)
    site.on_server("systemctl start %s", SERVER)


# Mounted, and used


def test_each_file_system_uses_its_transport_or_a_bind_mount(site: Site) -> None:
    ports = site.on_server("cat /proc/fs/nfsd/portlist").splitlines()
    for transport, fs in site.systems.items():
        assert f"{transport} {fs['nfs']['port']}" in ports
        found = site.mounted(site.client, fs["mount"])
        assert (found["source"], found["fstype"]) == (fs["source"], "nfs4")
        wanted = {f"proto={transport}", "hard", f"vers={fs['nfs']['version']}"}
        assert wanted <= set(site.options(transport))
        bound = site.mounted(site.server, fs["mount"])
        assert bound["source"].endswith(f"[{served_directory(fs)}]")
        assert not bound["fstype"].startswith("nfs")


def test_a_second_run_changes_nothing_and_check_mode_is_silent(machines: Nodes) -> None:
    assert machines.play("playbooks/storage.yml").total("changed") == 0
    shown = machines.play("playbooks/storage.yml", "--check", "--diff")
    assert shown.total("changed") == 0 and "+++ after" not in shown.output, shown.output


@pytest.mark.parametrize("transport", ["rdma", "tcp"])
def test_what_one_node_writes_another_reads(site: Site, transport: str) -> None:
    machines, target = site.machines, f"{site.points[transport]}/across"
    write = (
        f"dd if=/dev/urandom bs=1M count=4 conv=fsync status=none of={target}.new && "
        f"mv {target}.new {target} && sha256sum <{target}"
    )
    for writer, reader in ((site.client, site.server), (site.server, site.client)):
        sums = machines.as_user(writer, write)
        assert machines.as_user(reader, f"sha256sum <{target}") == sums
        user = machines.of(reader)["cluster_mpi_user"]
        assert machines.as_user(reader, f"stat -c %U {target}") == user
    # A client's root has no privileges.
    refused = machines.on(site.client).run(f"touch {site.points[transport]}/of-root")
    assert refused.rc != 0 and "Permission denied" in refused.stderr
    machines.as_user(site.client, f"rm {target}")


# The server is down


def test_a_server_outage_loses_no_data_and_no_process(site: Site, stopped: Stop) -> None:
    machines, systems = site.machines, site.systems
    on, user = machines.on(site.client), machines.of(site.client)["cluster_mpi_user"]
    on.check_output(
        f"rm -f /run/storage-test-enough; install -d -o {user} /run/user-of-storage-test"
    )
    units = {transport: f"storage-test-{transport}" for transport in systems}

    def written() -> dict[str, int]:
        files = {name: f"/run/user-of-storage-test/{name}" for name in systems}
        return {name: int(on.run(f"cat {path}").stdout or 0) for name, path in files.items()}

    def more_than(known: dict[str, int]) -> bool:
        return all(count > known.get(name, 0) + 3 for name, count in written().items())

    try:
        for transport, point in site.points.items():
            on.check_output(
                f"systemd-run --quiet --remain-after-exit --uid={user} --unit={units[transport]} "
                "python3 -c %s %s %s",
                WRITER,
                point,
                transport,
            )
        waiting.until(lambda: more_than({}), "writers", 60, every=1)
        stopped()
        seen: list[dict[str, int]] = [{}]  # acknowledged blocks may still be on their way

        def settled() -> bool:
            seen.append(written())
            return seen[-1] == seen[-2]

        waiting.until(settled, "the last acknowledged blocks", 60, every=3)
        held = seen[-1]
        time.sleep(OUTAGE_S)  # the outage itself
        assert written() == held, "not stopped"
        running = f"systemctl show -P SubState {' '.join(units.values())}"
        assert set(on.check_output(running).split()) == {"running"}, "a writer terminated"

        site.on_server("systemctl start %s", SERVER)
        waiting.until(lambda: more_than(held), "the writers to go on", GRACE_S + 60, every=1)
    finally:
        on.run("touch /run/storage-test-enough")
    ended = "systemctl show -P SubState -P Result " + " ".join(units.values())
    waiting.until(lambda: "running" not in on.check_output(ended), "the writers to end", every=1)
    assert set(on.check_output(ended).split()) == {"exited", "success"}
    on.check_output(f"systemctl stop {' '.join(units.values())}")
    for transport, count in written().items():
        right = site.on_server(
            "python3 -c %s %s %s",
            "import sys; data = open(sys.argv[1], 'rb').read(); count = int(sys.argv[2]); "
            "print(data == b''.join(b'%015d\\n' % number * 4096 for number in range(count)))",
            f"{served_directory(systems[transport])}/writer.data",
            str(count),
        )
        assert right == "True", f"{transport}: not all of {count} acknowledged blocks are there"
        machines.as_user(site.client, f"rm {site.points[transport]}/writer.data")


def test_a_server_that_does_not_come_back_is_reported_in_time(site: Site, stopped: Stop) -> None:
    stopped()
    run = site.play(SHORT, expect=2)
    found = site.bad(run)
    for point in site.points.values():
        check = found["storage_answers", point]
        assert "no answer within" in f"{check['found']} {check['reason']}"
    site.on_server("systemctl start %s", SERVER)
    again = site.play()  # nothing of that remains
    assert again.total("changed") == 0
    limit = len(site.systems) * USE_LIMIT_S + MOUNT_LIMIT_S + waiting.deadline(60)
    assert run.seconds < again.seconds + limit


# Changes


def test_a_changed_option_is_shown_then_applied_then_taken_back(site: Site, tmp_path: Path) -> None:
    options = {"rdma": "noatime", "tcp": "rsize=65536"}
    changes = {transport: {"options": [option]} for transport, option in options.items()}
    other = site.changed(tmp_path, **changes)

    shown = site.play("--check", "--diff", nodes=other)
    assert all(option in shown.output for option in options.values())
    assert "noatime" not in site.options("rdma")

    site.play(nodes=other)
    assert all(option in site.options(transport) for transport, option in options.items())
    assert site.play(nodes=other).total("changed") == 0

    site.play()
    assert not any(option in site.options(transport) for transport, option in options.items())


def test_a_busy_mount_is_kept_and_its_process_named(site: Site, tmp_path: Path) -> None:
    machines, client, point = site.machines, site.client, site.points["tcp"]
    user, unit = machines.of(client)["cluster_mpi_user"], "storage-test-busy"
    before = site.mounted(client, point)
    start = f"systemd-run --quiet --collect --unit={unit} --uid={user}"
    start += f" --working-directory={point} sleep 3600"
    with machines.by_hand(client, start, f"systemctl stop {unit}.service"):
        pid = site.on_client(f"systemctl show -P MainPID {unit}.service")
        other = site.changed(tmp_path, tcp={"options": ["rsize=65536"]})
        refused = site.play(nodes=other, expect=2)
        for word in (pid, "sleep", point):
            assert word in refused.output
        assert site.mounted(client, point) == before
        assert machines.on(client).run(f"kill -0 {pid}").rc == 0


def test_a_directory_that_holds_something_is_not_mounted_over(site: Site, tmp_path: Path) -> None:
    more = {"name": "more", "mount": "/mnt/full", "purpose": "home", "serve": None}
    other = site.changed(tmp_path, {**site.systems["tcp"], **more})
    fill = "mkdir /mnt/full && echo mine >/mnt/full/thesis.tex"
    with site.machines.by_hand(site.client, fill, "rm -r /mnt/full") as on:
        refused = site.play(nodes=other, expect=2)
        assert "/mnt/full" in refused.output and "thesis.tex" in refused.output
        assert on.file("/mnt/full/thesis.tex").content_string == "mine\n"
        assert not on.file("/etc/systemd/system/mnt-full.mount").exists


# A job


def test_a_job_resumes_from_its_checkpoint_on_the_server(site: Site) -> None:
    """docs/examples/train.py by playbooks/run.yml: the same weights as without an interruption."""
    point, program = site.points["rdma"], "/var/tmp/train-job.py"

    def job(name: str) -> Job:
        words = ["python3", program, "--deterministic", "--steps=60", "--every=5", "--report=1"]
        variables = {
            "mpi_job_files": [{"src": str(TOP / "docs/examples/train.py"), "dest": program}],
            "mpi_job_program": words,
            "mpi_job_checkpoint_directory": f"{point}/{name}",
        }
        extra = ["--extra-vars", json.dumps(variables)]
        return Job(site.machines.command("playbooks/run.yml", *extra), site.machines.environment)

    try:
        whole = job("train-whole").end()
        [(step, _ranks, digest)] = END.findall(whole)
        assert step == "60" and '"job_storage"' not in whole
        killed = job("train-killed")
        killed.until_step(12)
        site.on_client(f"pkill -KILL -f -o '^python3 {program}'")
        failed = killed.end(good=False)
        newest = rf"newest checkpoint: {point}/train-killed/train-\d+.checkpoint, .* s old$"
        assert re.search(newest, failed.replace("\\n", "\n"), re.MULTILINE), failed
        site.on_server(f"ls {served_directory(site.systems['rdma'])}/train-killed")
        again = job("train-killed").end()
        assert "from step 0\n" not in again and END.findall(again) == [("60", "4", digest)]
    finally:
        site.on_server(f"rm -rf {point}/train-*")


# Manual edits


def test_a_mount_that_became_read_only_is_found_and_mended(site: Site) -> None:
    point = site.points["tcp"]
    site.on_client(f"mount -o remount,ro {point}")
    assert ("storage_read_only", point) in site.bad(site.play("--check", expect=2))
    site.play()
    site.machines.as_user(site.client, f"touch {point}/writable && rm {point}/writable")


def test_another_server_is_found_and_put_right(site: Site) -> None:
    point, other = site.points["tcp"], site.systems["rdma"]
    address = other["source"].partition(":")[0]
    unit = point.strip("/").replace("/", "-")
    site.on_client(f"systemctl stop {unit}.automount {unit}.mount")
    site.on_client(f"mount -t nfs4 {address}:{served_directory(other)} {point}")
    found = site.bad(site.play("--check", expect=2))
    assert other["source"] in str(found["storage_mounted", point]["found"])
    site.play()
    assert site.mounted(site.client, point)["source"] == site.systems["tcp"]["source"]


# A reboot


def test_a_client_boots_without_its_server_and_mounts_without_ansible(
    site: Site, stopped: Stop
) -> None:
    on = site.machines.on(site.client)
    for point in site.points.values():
        on.check_output(f"umount {point}")  # the automount unit is not stopped
    stopped()
    site.machines.reboot(site.client)
    target = "systemctl is-active multi-user.target"
    waiting.until(lambda: on.run(target).rc == 0, "it to boot", 240, every=1)
    assert all(site.mounted(site.client, point) == {} for point in site.points.values())

    site.on_server("systemctl start %s", SERVER)
    for fs in site.systems.values():
        site.machines.as_user(site.client, f"touch {fs['mount']}/after && rm {fs['mount']}/after")
        assert site.mounted(site.client, fs["mount"])["source"] == fs["source"]
    assert site.play().total("changed") == 0
