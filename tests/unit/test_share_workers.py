# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Execution nodes as processes of this machine: `ssh` is a program that runs the command here."""

from __future__ import annotations

import fcntl
import io
import json
import os
import signal
import subprocess
import sys
import zipfile
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.share import data, node, workers
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.share.cut import Job
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.share.workers import (
    LostError,
    Stream,
    frame,
)

from tests.share import digest
from tests.unit.action_plays import ROOT, ansible
from tests.waiting import deadline, until

PROGRAM = Path(node.__file__)
SSH = """\
#!/bin/sh
# Run the command here, in a limit of the files that it may write.
echo "$@" >>"$SSH_LOG"
while [ "$1" != -- ]; do shift; done
host=$2
shift 2
case $host in denied) echo 'Permission denied (publickey).' >&2; exit 255 ;; esac
case $host in full) ulimit -f 1000 ;; esac
sh -c "$*" # not exec: the command survives this process, as on another machine
"""
MODEL = """\
plugin: baremetal.mpi_roce.cluster
name: share-unit
domain: ""
mpi: {user: mpi, uid: 2000}
management: {subnet: 10.243.0.0/24, interface: mgmt0}
nodes: {count: 4, name: "node{:02d}", management_first: 10.243.0.11, nodes_per_rack: 1, slots: 1}
gpus: {count: 1, numa: [0]}
rails: {count: 1, speed_gbps: 10, mtu: 9000}
addresses: {plan: subnet_per_rail, pool: 10.143.0.0/16, prefix: 24, first_host: 11}
leaves: {count: 1, management_first: 10.243.0.101, ports: 64}
launcher: {name: launcher01, management: 10.243.0.10}
"""
SECRET = "correct horse"
PASSWORD = "opening words"


class Site:
    """An inventory whose hosts are this machine, which check mode only reads."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.inventory = folder, folder / "inventory"
        (self.inventory / "group_vars/all").mkdir(parents=True)
        (self.inventory / "cluster.yml").write_text(MODEL, encoding="utf-8")
        variables = {
            "ansible_connection": "local",
            "ansible_become": False,
            "ansible_python_interpreter": sys.executable,
        }
        path = self.inventory / "group_vars/all/vars.yml"
        path.write_text(yaml.safe_dump(variables), encoding="utf-8")
        (folder / "bin").mkdir()
        ssh = folder / "bin/ssh"
        ssh.write_text(SSH, encoding="utf-8")
        ssh.chmod(0o755)
        (folder / "password").write_text(PASSWORD, encoding="utf-8")
        self.environment = {
            "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder / "home"),
            "SSH_LOG": str(folder / "ssh.log"),
            "BAREMETAL_MPI_ROCE_REPORTS": str(folder / "reports"),
        }
        (folder / "home").mkdir()
        self.nodes(exec1=["r01"], exec2=["r02", "r03"])

    def nodes(self, **racks: list[str]) -> None:
        hosts = {}
        for name, own in racks.items():
            (self.folder / name).mkdir(exist_ok=True)
            hosts[name] = {
                "share_racks": own,
                "share_python": sys.executable,
                "share_directory": str(self.folder / name),
            }
        text = yaml.safe_dump({"execution": {"hosts": hosts}})
        (self.inventory / "execution.yml").write_text(text, encoding="utf-8")

    def words(self, playbook: str) -> list[str]:
        name = f"baremetal.mpi_roce.{playbook}"
        return [name, "-i", str(self.inventory), "--check", "--tags", "names"]

    def play(self, playbook: str, *words: str) -> subprocess.CompletedProcess[str]:
        return ansible("ansible-playbook", *self.words(playbook), *words, **self.environment)

    def report(self) -> dict[str, Any]:
        paths = sorted((self.folder / "reports/share-unit").glob("site-*.json"))
        return dict(json.loads(paths[-1].read_text(encoding="utf-8")))

    def left(self) -> list[str]:
        """Private data that is still on a node or here."""
        mine = "baremetal-share-data-*-share-unit-*"
        here = data.MEMORY.glob(mine) if data.MEMORY.is_dir() else ()
        found = [*self.folder.glob("exec*/baremetal-share-*"), *here]
        return [str(path) for path in found]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.mark.slow
def test_two_nodes_find_what_one_controller_finds(site: Site) -> None:
    vault = ["--vault-password-file", str(site.folder / "password")]
    encrypted = site.inventory / "group_vars/all/vault.yml"
    encrypted.write_text(f"a_secret: {SECRET}\n", encoding="utf-8")
    done = ansible("ansible-vault", "encrypt", *vault, encrypted, **site.environment)
    assert done.returncode == 0, done.stderr

    done = site.play("site", *vault)
    assert done.returncode == 0, done.stdout
    whole = site.report()
    done = site.play("share", *vault, "-e", json.dumps({"another": SECRET}))
    assert done.returncode == 0, done.stdout
    shared = site.report()
    assert digest(shared) == digest(whole)
    assert set(shared["layers"]["names"]["hosts"]) >= {"node01", "node02", "node04", "launcher01"}
    assert shared["topology"]["racks"]["r02"] == ["node02"]
    runs = {run["node"]: run["hosts"] for run in shared["execution"]["runs"]}
    assert runs == {"exec1": 1, "exec2": 2, "": 2}
    assert shared["execution"]["lost"] == {}
    written = [path for path in site.folder.rglob("*") if path.is_file()]
    ours = [path for path in written if path.name not in ("password", "vault.yml")]
    texts = "".join(path.read_text(encoding="utf-8", errors="replace") for path in ours)
    assert SECRET not in texts + done.stdout and PASSWORD not in texts + done.stdout
    assert site.left() == []


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["ansible_runner", "import"])
def test_hosts_of_a_killed_node_run_elsewhere(site: Site, victim: str) -> None:
    """Kill ansible-runner, or the program of the node that started it."""
    program = Path(sys.executable).with_name("ansible-playbook")
    environment = {**os.environ, **site.environment, "ANSIBLE_NOCOLOR": "1"}
    with subprocess.Popen(
        [str(program), *site.words("share")],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        worker = until(lambda: worker_in(site.folder / "exec1"), "a worker on exec1", 120)
        pid = worker if victim == "ansible_runner" else parent_of(worker)
        os.kill(pid, signal.SIGKILL)
        output, _none = running.communicate(timeout=deadline(300))
    assert running.returncode == 0, output
    report = site.report()
    assert set(report["execution"]["lost"]) == {"exec1"}
    reason = report["execution"]["lost"]["exec1"]
    assert ("signal 9" if victim == "ansible_runner" else "closed") in reason
    hosts = {"node01", "node02", "node03", "node04", "launcher01"}
    assert set(report["layers"]["names"]["hosts"]) == hosts
    [again] = [run for run in report["execution"]["runs"] if run["hosts"] == 1 and run["rc"] == 0]
    assert again["node"] == "exec2"
    assert "execution node lost: exec1" in output
    until(lambda: worker_in(site.folder / "exec1") == 0, "no worker on exec1", 60)


def worker_in(folder: Path) -> int:
    for path in Path("/proc").glob("[1-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        here = any(word.startswith(os.fsencode(folder)) for word in words)
        if here and b"ansible_runner" in words and b"worker" in words:
            return int(path.parent.name)
    return 0


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.slow
def test_a_node_with_a_full_disk_is_named_and_has_touched_no_host(site: Site) -> None:
    site.nodes(exec1=["r01"], full=["r02"])
    done = site.play("share")
    assert done.returncode == 0, done.stdout
    report = site.report()
    assert set(report["execution"]["lost"]) == {"full"}
    assert os.strerror(27) in report["execution"]["lost"]["full"]  # EFBIG, in place of ENOSPC
    [again] = [run for run in report["execution"]["runs"] if run.get("lost") is None][-1:]
    assert (again["node"], again["hosts"]) == ("exec1", 1)
    assert site.left() == []


def test_a_node_without_a_login_is_refused_before_any_host(site: Site) -> None:
    site.nodes(exec1=["r01"], denied=["r02"])
    done = site.play("share")
    assert done.returncode == 2
    assert "denied: Permission denied (publickey)." in done.stdout
    assert not list((site.folder / "reports/share-unit").glob("site-*"))
    assert site.left() == []


def test_a_second_run_is_refused_with_its_holder(site: Site) -> None:
    lock = site.folder / "home/.local/state/baremetal.mpi_roce/share-unit/share.lock"
    lock.parent.mkdir(parents=True, mode=0o700)
    lock.parent.chmod(0o700)
    with lock.open("w", encoding="ascii") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        done = site.play("share")
    assert done.returncode == 2
    assert f"process {os.getpid()}" in done.stdout and str(lock) in done.stdout


def test_unknown_racks_and_files_are_refused(site: Site) -> None:
    site.nodes(exec1=["r99"])
    done = site.play("share")
    assert done.returncode == 2 and "'r99'" in done.stdout
    site.nodes(exec1=["r01"])
    done = site.play("share", "-e", json.dumps({"share_files": ["/etc/hosts", "~/nothing"]}))
    assert done.returncode == 2
    assert "/etc/hosts" in done.stdout or "2 errors" in done.stdout


# The program of a node.


class Node:
    """node.py, as ssh starts it."""

    def __init__(self, folder: Path, command: str, lease_s: int = 600) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-c", PROGRAM.read_text(encoding="utf-8")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.input = self.process.stdin
        self.stream = Stream(self.process.stdout, 60.0)
        header = {"directory": str(folder), "cluster": "c", "lease_s": lease_s}
        self.input.write(frame(json.dumps(header).encode()))
        kwargs = {"binary": "/bin/sh", "cmdline": f"-c {command!r}", "ident": "share"}
        for line in ({"kwargs": kwargs}, {"eof": True}):
            self.input.write(frame(json.dumps(line).encode() + b"\n"))
        self.beat()

    def beat(self) -> None:
        self.input.write(frame(b""))
        self.input.flush()

    def finished(self) -> dict[str, Any]:
        """The last line; others, such as keepalives of the worker, are skipped."""

        def last() -> dict[str, Any]:
            found = self.stream.line()
            return found if "share" in found else {}

        return until(last, "the end of the node's program", 60, every=0)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Any]:
    made: list[Node] = []

    def start(command: str, lease_s: int = 600) -> Node:
        made.append(Node(tmp_path, command, lease_s))
        return made[-1]

    yield start
    for each in made:
        each.process.kill()
        each.process.wait()
        each.input.close()
        assert each.process.stdout is not None
        each.process.stdout.close()


def test_private_data_is_private_and_removed(started: Any, tmp_path: Path) -> None:
    running = started("stat -c %a .. . >&2; echo home=$HOME; echo left=$SSH_AUTH_SOCK.")
    lines = []
    while "share" not in (found := running.stream.line()):
        lines += [found["stdout"]] if found.get("stdout") else []
        if "zipfile" in found:
            running.stream.take(4 * -(-found["zipfile"] // 3))
    assert found == {"share": "finished", "rc": 0, "reason": ""}
    text = "\n".join(lines)
    assert "700" in text and f"home={tmp_path}/baremetal-share-" in text and "left=." in text
    assert [path.name for path in tmp_path.iterdir() if "lock" not in path.name] == []


@pytest.mark.parametrize("ending", ["silence", "closed"])
def test_without_its_controller_a_node_kills_what_it_started(
    started: Any, tmp_path: Path, ending: str
) -> None:
    mark = tmp_path / "pid"
    command = f"setsid sleep 1000 & echo $! > {mark}; trap '' TERM; sleep 1000"
    running = started(command, 5 if ending == "silence" else 600)

    def is_running() -> bool:
        running.beat()
        return mark.exists() and bool(mark.read_text().strip())

    until(is_running, "the process of the worker", 60)
    if ending == "closed":
        running.input.close()
    found = running.finished()
    assert (found["share"], found["rc"]) == ("finished", node.NO_LEASE)
    assert found["reason"]
    assert not Path(f"/proc/{mark.read_text().strip()}").exists()
    mark.unlink()
    assert [path.name for path in tmp_path.iterdir() if "lock" not in path.name] == []


def test_a_second_worker_of_a_cluster_is_refused_on_a_node(started: Any, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    started(f"echo $$ > {mark}; sleep 1000")
    until(mark.exists, "the process of the worker", 60)
    found = started("true").finished()
    assert found["share"] == "refused" and "c.lock" in found["reason"]


# Streams of a node, which may be compromised.


def stream_of(tmp_path: Path, content: bytes) -> Stream:
    path = tmp_path / "stream"
    path.write_bytes(content)
    return Stream(path.open("rb"), 5.0)


def archive(name: str, text: str, how: int = zipfile.ZIP_STORED) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", how) as packed:
        packed.writestr(name, text)
    return made.getvalue()


def line(**fields: Any) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def received(tmp_path: Path, content: bytes) -> Any:
    return workers._received(stream_of(tmp_path, content), workers.Log(tmp_path / "log"))


def test_the_report_of_a_worker_is_read_from_its_archive(tmp_path: Path) -> None:
    packed = archive("reports/c/site.json", '{"layers": {}}')
    content = b"banner\n" + line(zipfile=len(packed)) + b64encode(packed)
    content += line(eof=True) + line(share="finished", rc=2)
    assert received(tmp_path, content) == (2, {"layers": {}})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "closed"),
        (b"x" * (workers.MOST_LINE_BYTES + 2), "4 MiB"),
        (line(zipfile=1 << 40), "256 MiB"),
        (line(zipfile=-1), "256 MiB"),
        (line(zipfile=9) + b"x" * 12, "BadZipFile"),
        (line(zipfile=9) + b"!" * 12, "cannot be read"),
        (line(share="refused", reason="the reason"), "the reason"),
        (line(share="finished", rc=70, reason="the reason"), "the reason"),
        (line(status="error", job_explanation="the reason"), "the reason"),
    ],
)
def test_a_stream_of_another_form_loses_the_node(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    with pytest.raises(LostError, match=reason):
        received(tmp_path, content)


def encrypted(packed: bytes) -> bytes:
    """The archive with the flag of an encrypted member."""
    at = packed.index(b"PK\1\2") + 8
    return packed[:6] + b"\1" + packed[7:at] + b"\1" + packed[at + 1 :]


def damaged(packed: bytes) -> bytes:
    at = packed.index(b".json") + len(b".json")
    return packed[:at] + b"\xff" + packed[at + 1 :]


@pytest.mark.parametrize(("change", "error"), [(encrypted, "RuntimeError"), (damaged, "error")])
def test_an_archive_that_cannot_be_unpacked_loses_the_node(
    tmp_path: Path, change: Callable[[bytes], bytes], error: str
) -> None:
    packed = change(archive("reports/c/site.json", "{}" * 99, zipfile.ZIP_DEFLATED))
    with pytest.raises(LostError, match=f"cannot be read: {error}"):
        received(tmp_path, line(zipfile=len(packed)) + b64encode(packed))


def test_a_silent_node_is_lost() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as pipe, pytest.raises(LostError, match="no sign of"):
        Stream(pipe, 0.01).line()
    os.close(writing)


@pytest.mark.parametrize("name", ["../../reports/c/site.json", "/reports/c/x.json", "x.json"])
def test_other_files_of_an_archive_are_ignored(tmp_path: Path, name: str) -> None:
    packed = archive(name, "{}")
    content = line(zipfile=len(packed)) + b64encode(packed) + line(share="finished", rc=0)
    assert received(tmp_path, content) == (0, None)


# Private data.


def test_arguments_have_no_secrets_and_files_only_one_reader(tmp_path: Path, site: Site) -> None:
    (site.folder / "home/.ssh").mkdir()
    key = site.folder / "home/.ssh/key"
    key.write_text("key", encoding="ascii")
    settings = data.Settings(
        "site",
        [site.inventory],
        files=["~/.ssh/key".replace("~", str(site.folder / "home"))],
        extra={"token": SECRET},
        vaults=[("default", PASSWORD.encode())],
        passwords={"become": SECRET},
    )
    with data.made(settings, "share-unit", site.folder / "home") as (root, size):
        words = data.transmit(settings, root, Job(("os",), ("node01",), "exec1"))
        assert SECRET not in repr((words, settings)).replace(repr(settings.extra), "")
        assert PASSWORD not in repr((words, settings))
        modes = {path.stat().st_mode & 0o77 for path in (root / "secrets").iterdir()}
        assert modes == {0} and root.stat().st_mode & 0o777 == 0o700
        assert (root / "home/.ssh/key").stat().st_mode & 0o777 == 0o600
        assert (root / "sources/0/cluster.yml").read_text(encoding="utf-8") == MODEL
        assert (root / data.INSTALLED / "playbooks/site.yml").is_file()
        variables = json.loads((root / "env/envvars").read_text(encoding="utf-8"))
        assert variables["ANSIBLE_HOST_KEY_CHECKING"] == "True"
        assert 1 << 20 < size < 16 << 20
    assert not root.exists()


def test_what_cannot_be_sent_is_named_before_a_host_is_touched(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = site.folder / "home"
    vaults = [("../default", PASSWORD.encode())]
    settings = data.Settings("site", [site.inventory], files=["../key", "none"], vaults=vaults)
    with pytest.raises(data.DataError) as raised:
        data.checked(settings, home)
    subjects = {finding.code: finding.value for finding in raised.value.findings}
    assert subjects == {
        "share.file_outside": "../key",
        "share.no_file": "none",
        "share.vault_id": "../default",
    }
    assert PASSWORD not in str(raised.value)
    monkeypatch.setattr(data, "MOST_BYTES", 1000)
    monkeypatch.setattr(data, "MEMORY", site.folder)
    with (
        pytest.raises(data.DataError) as raised,
        data.made(data.Settings("site", [site.inventory]), "share-unit", home),
    ):
        pass
    assert [finding.code for finding in raised.value.findings] == ["share.size"]
    assert not list(site.folder.glob("baremetal-share-data-*"))


def test_links_are_followed_and_large_files_stay(site: Site) -> None:
    outside = site.folder / "outside.yml"
    outside.write_text("linked: true\n", encoding="utf-8")
    (site.inventory / "group_vars/leaf.yml").symlink_to(outside)
    (site.inventory / "group_vars/gone.yml").symlink_to("nothing")
    with (site.inventory / "hpcx.tar").open("wb") as stream:
        stream.truncate(data.MOST_FILE_BYTES + 1)
    target = site.folder / "copy"
    data._inventory(site.inventory, target)
    assert not (target / "group_vars/leaf.yml").is_symlink()
    assert (target / "group_vars/leaf.yml").read_text(encoding="utf-8") == "linked: true\n"
    assert not (target / "hpcx.tar").exists() and not (target / "group_vars/gone.yml").exists()
    data._inventory(site.inventory / "cluster.yml", site.folder / "single")
    assert (site.folder / "single/group_vars/all/vars.yml").is_file()
