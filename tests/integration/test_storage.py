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
Stop = Callable[[], None]

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


def storage(machines: Nodes, *words: str, expect: int = 0) -> Run:
    return machines.play("playbooks/storage.yml", *words, expect=expect)


@pytest.fixture(scope="module")
def systems(machines: Nodes) -> Systems:
    """Return the file systems of the inventory, by transport."""
    found = machines.of(machines.group("compute")[0])["cluster_filesystems"]
    return {fs["nfs"]["transport"]: fs for fs in found}


@pytest.fixture(scope="module")
def server(systems: Systems) -> str:
    return str(systems["rdma"]["serve"]["host"])


@pytest.fixture(scope="module")
def client(machines: Nodes, server: str) -> str:
    return next(name for name in machines.group("compute") if name != server)


@pytest.fixture(autouse=True)
def tells_its_time(request: pytest.FixtureRequest) -> Iterator[None]:
    began = time.monotonic()
    yield
    print(f"{request.node.name}: {time.monotonic() - began:.0f} s")


def mounted(machines: Nodes, name: str, point: str) -> dict[str, str]:
    """Return the kernel's mount below any automount point; empty if there is none."""
    shown = machines.on(name).run("findmnt --json --kernel --mountpoint %s", point).stdout
    found = list(json.loads(shown)["filesystems"]) if shown.strip() else []
    return next((entry for entry in reversed(found) if entry["fstype"] != "autofs"), {})


def served_directory(fs: dict[str, Any]) -> str:
    return "/" + str(fs["source"]).split(":/", 1)[1]


def checks(run: Run, name: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the failed checks of one host, by name and subject."""
    return {
        (entry["name"], entry["subject"]): entry
        for entry in run.checks("storage", name)
        if entry["status"] in ("failed", "pending")
    }


def changed(
    machines: Nodes,
    folder: Path,
    systems: Systems,
    *more: dict[str, Any],
    **changes: dict[str, Any],
) -> Nodes:
    """Return a model with changed keys of file systems, by transport, and additional file
    systems."""
    wanted = [{**fs, **changes.get(transport, {})} for transport, fs in systems.items()]
    return machines.changed(folder, lambda model: model.update(filesystems=[*wanted, *more]))


def until(condition: Callable[[], bool], what: str, seconds: float) -> float:
    """Wait for a condition and return the seconds that it took."""
    began = time.monotonic()
    waiting.until(condition, what, seconds, every=1)
    return time.monotonic() - began


@pytest.fixture
def stopped(machines: Nodes, server: str) -> Iterator[Stop]:
    """Stop the server. It is started again in any case."""
    yield lambda: machines.on(server).check_output("systemctl stop %s", SERVER) and None
    machines.on(server).check_output("systemctl start %s", SERVER)


# Mounted, and used


def test_each_file_system_uses_its_transport_or_a_bind_mount(
    machines: Nodes, systems: Systems, server: str, client: str
) -> None:
    ports = machines.on(server).check_output("cat /proc/fs/nfsd/portlist").splitlines()
    for transport, fs in systems.items():
        assert f"{transport} {fs['nfs']['port']}" in ports
        found = mounted(machines, client, fs["mount"])
        assert (found["source"], found["fstype"]) == (fs["source"], "nfs4")
        options = found["options"].split(",")
        assert {f"proto={transport}", "hard", f"vers={fs['nfs']['version']}"} <= set(options)
        bound = mounted(machines, server, fs["mount"])
        assert bound["source"].endswith(f"[{served_directory(fs)}]")
        assert not bound["fstype"].startswith("nfs")


def test_a_second_run_changes_nothing_and_check_mode_is_silent(machines: Nodes) -> None:
    assert storage(machines).total("changed") == 0
    shown = storage(machines, "--check", "--diff")
    assert shown.total("changed") == 0 and "+++ after" not in shown.output, shown.output


@pytest.mark.parametrize("transport", ["rdma", "tcp"])
def test_what_one_node_writes_another_reads(
    machines: Nodes, systems: Systems, server: str, client: str, transport: str
) -> None:
    target = f"{systems[transport]['mount']}/across"
    for writer, reader in ((client, server), (server, client)):
        sums = machines.as_user(
            writer,
            f"dd if=/dev/urandom bs=1M count=4 conv=fsync status=none of={target}.new && "
            f"mv {target}.new {target} && sha256sum <{target}",
        )
        assert machines.as_user(reader, f"sha256sum <{target}") == sums
        user = machines.of(reader)["cluster_mpi_user"]
        assert machines.as_user(reader, f"stat -c %U {target}") == user
    # A client's root has no privileges.
    refused = machines.on(client).run(f"touch {systems[transport]['mount']}/of-root")
    assert refused.rc != 0 and "Permission denied" in refused.stderr
    machines.as_user(client, f"rm {target}")


# The server is down


def test_a_server_outage_loses_no_data_and_no_process(
    machines: Nodes, systems: Systems, server: str, client: str, stopped: Stop
) -> None:
    on, user = machines.on(client), machines.of(client)["cluster_mpi_user"]
    on.check_output(
        f"rm -f /run/storage-test-enough; install -d -o {user} /run/user-of-storage-test"
    )
    units = {transport: f"storage-test-{transport}" for transport in systems}

    def written(transport: str) -> int:
        count = on.run(f"cat /run/user-of-storage-test/{transport}").stdout
        return int(count or 0)

    try:
        for transport, fs in systems.items():
            on.check_output(
                f"systemd-run --quiet --remain-after-exit --uid={user} --unit={units[transport]} "
                "python3 -c %s %s %s",
                WRITER,
                fs["mount"],
                transport,
            )
        until(lambda: all(written(transport) > 3 for transport in systems), "writers", 60)
        stopped()
        seen = [{}]  # blocks acknowledged by the server may still be on their way

        def settled() -> bool:
            seen.append({transport: written(transport) for transport in systems})
            return seen[-1] == seen[-2]

        waiting.until(settled, "the last acknowledged blocks", 60, every=3)
        held = seen[-1]
        time.sleep(OUTAGE_S)  # the outage itself
        assert {transport: written(transport) for transport in systems} == held, "not stopped"
        running = f"systemctl show -P SubState {' '.join(units.values())}"
        assert set(on.check_output(running).split()) == {"running"}, "a writer terminated"

        machines.on(server).check_output("systemctl start %s", SERVER)
        took = until(
            lambda: all(written(transport) > held[transport] + 3 for transport in systems),
            "the writers to go on",
            GRACE_S + 60,
        )
        print(f"away for {OUTAGE_S:.0f} s, all went on {took:.0f} s after it was back")
    finally:
        on.run("touch /run/storage-test-enough")
    ended = "systemctl show -P SubState -P Result " + " ".join(units.values())
    until(lambda: "running" not in on.check_output(ended), "the writers to end", 60)
    assert set(on.check_output(ended).split()) == {"exited", "success"}
    on.check_output(f"systemctl stop {' '.join(units.values())}")
    for transport, fs in systems.items():
        count = written(transport)
        right = machines.on(server).check_output(
            "python3 -c %s %s %s",
            "import sys; data = open(sys.argv[1], 'rb').read(); count = int(sys.argv[2]); "
            "print(data == b''.join(b'%015d\\n' % number * 4096 for number in range(count)))",
            f"{served_directory(fs)}/writer.data",
            str(count),
        )
        assert right == "True", f"{transport}: not all of {count} acknowledged blocks are there"
        machines.as_user(client, f"rm {fs['mount']}/writer.data")


def test_a_server_that_does_not_come_back_is_reported_in_time(
    machines: Nodes, systems: Systems, server: str, client: str, stopped: Stop
) -> None:
    stopped()
    run = storage(machines, f"--limit={client}", SHORT, expect=2)
    found = checks(run, client)
    for fs in systems.values():
        check = found["storage_answers", fs["mount"]]
        assert "no answer within" in f"{check['found']} {check['reason']}"
    machines.on(server).check_output("systemctl start %s", SERVER)
    again = storage(machines, f"--limit={client}")  # nothing of that remains
    assert again.total("changed") == 0
    usual = again.seconds
    print(f"reported after {run.seconds:.0f} s, a run takes {usual:.0f} s when it is there")
    assert run.seconds < usual + len(systems) * USE_LIMIT_S + MOUNT_LIMIT_S + waiting.deadline(60)


# Changes


def test_a_changed_option_is_shown_then_applied_then_taken_back(
    machines: Nodes, systems: Systems, client: str, tmp_path: Path
) -> None:
    options = {"rdma": {"options": ["noatime"]}, "tcp": {"options": ["rsize=65536"]}}
    other = changed(machines, tmp_path, systems, **options)
    where = {transport: fs["mount"] for transport, fs in systems.items()}

    shown = storage(other, f"--limit={client}", "--check", "--diff")
    assert "noatime" in shown.output and "rsize=65536" in shown.output
    assert "noatime" not in mounted(machines, client, where["rdma"])["options"]

    storage(other, f"--limit={client}")
    assert "noatime" in mounted(machines, client, where["rdma"])["options"].split(",")
    assert "rsize=65536" in mounted(machines, client, where["tcp"])["options"].split(",")
    assert storage(other, f"--limit={client}").total("changed") == 0

    storage(machines, f"--limit={client}")
    assert "noatime" not in mounted(machines, client, where["rdma"])["options"].split(",")
    assert "rsize=65536" not in mounted(machines, client, where["tcp"])["options"].split(",")


def test_a_busy_mount_is_kept_and_its_process_named(
    machines: Nodes, systems: Systems, client: str, tmp_path: Path
) -> None:
    point, user = systems["tcp"]["mount"], machines.of(client)["cluster_mpi_user"]
    before = mounted(machines, client, point)
    machines.on(client).check_output(
        f"systemd-run --quiet --collect --unit=storage-test-busy --uid={user} "
        f"--working-directory={point} sleep 3600"
    )
    try:
        pid = machines.on(client).check_output(
            "systemctl show -P MainPID storage-test-busy.service"
        )
        other = changed(machines, tmp_path, systems, tcp={"options": ["rsize=65536"]})
        refused = storage(other, f"--limit={client}", expect=2)
        for word in (pid, "sleep", user, point):
            assert word in refused.output
        assert mounted(machines, client, point) == before
        assert machines.on(client).run(f"kill -0 {pid}").rc == 0
    finally:
        machines.on(client).check_output("systemctl stop storage-test-busy.service")


def test_a_directory_that_holds_something_is_not_mounted_over(
    machines: Nodes, systems: Systems, client: str, tmp_path: Path
) -> None:
    more = {
        **systems["tcp"],
        "name": "more",
        "mount": "/mnt/full",
        "purpose": "home",
        "serve": None,
    }
    other = changed(machines, tmp_path, systems, more)
    machines.on(client).check_output("mkdir /mnt/full && echo mine >/mnt/full/thesis.tex")
    try:
        refused = storage(other, f"--limit={client}", expect=2)
        assert "/mnt/full" in refused.output and "thesis.tex" in refused.output
        assert machines.on(client).file("/mnt/full/thesis.tex").content_string == "mine\n"
        assert not machines.on(client).file("/etc/systemd/system/mnt-full.mount").exists
    finally:
        machines.on(client).check_output("rm -r /mnt/full")


# A job


def test_a_job_resumes_from_its_checkpoint_on_the_server(
    machines: Nodes, systems: Systems, server: str, client: str
) -> None:
    """docs/examples/train.py by playbooks/run.yml: the same weights as without an interruption."""
    point, program = systems["rdma"]["mount"], "/var/tmp/train-job.py"

    def command(name: str) -> list[str]:
        variables = {
            "mpi_job_files": [{"src": str(TOP / "docs/examples/train.py"), "dest": program}],
            "mpi_job_program": [
                "python3", program, "--deterministic", "--steps=60", "--every=5", "--report=1"
            ],
            "mpi_job_checkpoint_directory": f"{point}/{name}",
        }  # fmt: skip
        return machines.command("playbooks/run.yml", "--extra-vars", json.dumps(variables))

    def job(name: str) -> Job:
        return Job(command(name), machines.environment)

    try:
        whole = job("train-whole").end()
        [(step, _ranks, digest)] = END.findall(whole)
        assert step == "60" and '"job_storage"' not in whole
        killed = job("train-killed")
        killed.until_step(12)
        machines.on(client).check_output(f"pkill -KILL -f -o '^python3 {program}'")
        failed = killed.end(good=False)
        newest = rf"newest checkpoint: {point}/train-killed/train-\d+.checkpoint, .* s old$"
        assert re.search(newest, failed.replace("\\n", "\n"), re.MULTILINE), failed
        assert (
            machines.on(server).run(f"ls {served_directory(systems['rdma'])}/train-killed").rc == 0
        )
        again = job("train-killed").end()
        assert "from step 0\n" not in again and END.findall(again) == [("60", "4", digest)]
    finally:
        machines.on(server).check_output(f"rm -rf {point}/train-*")


# Manual edits


def test_a_mount_that_became_read_only_is_found_and_mended(
    machines: Nodes, systems: Systems, client: str
) -> None:
    point = systems["tcp"]["mount"]
    machines.on(client).check_output(f"mount -o remount,ro {point}")
    found = checks(storage(machines, f"--limit={client}", "--check", expect=2), client)
    assert ("storage_read_only", point) in found
    storage(machines, f"--limit={client}")
    machines.as_user(client, f"touch {point}/writable && rm {point}/writable")


def test_another_server_is_found_and_put_right(
    machines: Nodes, systems: Systems, client: str
) -> None:
    point, other = systems["tcp"]["mount"], systems["rdma"]
    address = other["source"].partition(":")[0]
    on = machines.on(client)
    unit = point.strip("/").replace("/", "-")
    on.check_output(f"systemctl stop {unit}.automount {unit}.mount")
    on.check_output(f"mount -t nfs4 {address}:{served_directory(other)} {point}")
    found = checks(storage(machines, f"--limit={client}", "--check", expect=2), client)
    assert other["source"] in str(found["storage_mounted", point]["found"])
    storage(machines, f"--limit={client}")
    assert mounted(machines, client, point)["source"] == systems["tcp"]["source"]


# A reboot


def test_a_client_boots_without_its_server_and_mounts_without_ansible(
    machines: Nodes, systems: Systems, server: str, client: str, stopped: Stop
) -> None:
    on = machines.on(client)
    for fs in systems.values():
        on.check_output(f"umount {fs['mount']}")  # the automount unit is not stopped
    stopped()
    began = time.monotonic()
    machines.reboot(client)
    until(lambda: on.run("systemctl is-active multi-user.target").rc == 0, "it to boot", 240)
    print(f"rebooted without its server in {time.monotonic() - began:.0f} s")
    for fs in systems.values():
        assert mounted(machines, client, fs["mount"]) == {}

    machines.on(server).check_output("systemctl start %s", SERVER)
    for fs in systems.values():
        machines.as_user(client, f"touch {fs['mount']}/after && rm {fs['mount']}/after")
        assert mounted(machines, client, fs["mount"])["source"] == fs["source"]
    assert storage(machines, f"--limit={client}").total("changed") == 0
