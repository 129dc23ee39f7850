# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The auditor on a host: it runs from verified wheels, without a network, and leaves nothing."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import pwd
import re
import sys
import zipfile
from pathlib import Path
from typing import Any, Optional

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.baremetal.mpi_roce.plugins.action import cluster_audit as action
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.audit import cmax
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import commands
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware import SurveyError
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils import clustermax
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.clustermax import ANSWERS

from tests.hardware.trees import build_sys
from tests.unit.action_plays import ROOT, run_play

ME = pwd.getpwuid(os.getuid()).pw_name
AUDIT = """
import json, os, pathlib, sys
runs = pathlib.Path(os.environ["CLUSTERMAX_RUNS_ROOT"]) / "cluster/now/audit"
runs.mkdir(parents=True)
seen = {"argv": sys.argv[1:], "environment": dict(os.environ)}
(runs / "audit.values.json").write_text(json.dumps(seen))
{more}
"""
SECURITY = """
from types import SimpleNamespace
def detect_target(name): return SimpleNamespace(harness="standalone", environment=name)
def find_runtime_root(_repo): return None
"""
REPORT = """
from types import SimpleNamespace
def evaluate(values, root, *, harness, environment):
    seen = [*values["argv"], harness, environment, values["environment"].get("https_proxy", "-")]
    return [SimpleNamespace(key=f"seen.{n}", status="pass", observed=x) for n, x in enumerate(seen)]
"""
"""A stand-in with the functions of clustermax 0.2.1 that the module calls."""


def wheel(more: str = "") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        made.writestr("cmax/__init__.py", "")
        made.writestr("cmax/cli.py", AUDIT.replace("{more}", more))
        made.writestr("cmax/security.py", SECURITY)
        made.writestr("cmax/audit_report.py", REPORT)
    return buffer.getvalue()


def options(content: bytes, digest: Optional[str] = None, **more: Any) -> cmax.Options:
    entry = {
        "content": base64.b64encode(content).decode(),
        "sha256": digest or hashlib.sha256(content).hexdigest(),
    }
    given: dict[str, Any] = {"slurm": False, "user": ME, "time_limit_s": 60, "internet": False}
    return cmax.Options(wheels={"clustermax": entry}, **{**given, **more})


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "var/tmp").mkdir(parents=True)
    monkeypatch.setattr(cmax, "as_user", lambda _user, argv: list(argv))
    return tmp_path


@pytest.mark.parametrize(
    ("given", "container", "target", "proxy"),
    [
        ({}, False, "standalone", cmax.NOWHERE),
        ({}, True, "container", cmax.NOWHERE),
        ({"slurm": True, "internet": True}, True, "slurm", "-"),
    ],
)
def test_the_auditor_runs_for_its_target(
    root: Path, given: dict[str, Any], container: bool, target: str, proxy: str
) -> None:
    if container:
        (root / "run").mkdir()
        (root / "run/.containerenv").touch()
    found, why = cmax.tried(options(wheel(), **given), root)
    assert found and not why
    seen = [each["observed"] for each in found["verdicts"]]
    assert seen == ["audit", f"--{target}", "--yes", "standalone", target, proxy]
    assert found["target"] == target
    assert not list((root / "var/tmp").iterdir()), "it leaves nothing"


def test_a_node_reads_what_explains_verdicts(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    build_sys("b300-8x800g", tmp_path / "sys")
    found = cmax.node(tmp_path)
    assert (found["container"], found["gpus"]) == (False, 8)
    assert found["rdma_nics"] >= 8
    bare = tmp_path / "bare"
    for name in ("sys/class", "run/systemd"):
        (bare / name).mkdir(parents=True)
    (bare / "run/systemd/container").write_text("podman\n", encoding="ascii")
    assert cmax.node(bare) == {"container": True, "gpus": 0, "rdma_nics": 0}
    device = bare / "sys/class/infiniband/rxe0/ports/1"
    device.mkdir(parents=True)
    assert cmax.node(bare)["rdma_nics"] == 0, "Soft-RoCE is no NIC"
    with pytest.raises(SurveyError):
        cmax.node(tmp_path / "nothing")


def test_the_user_reads_the_auditor_whatever_the_umask(root: Path) -> None:
    """cron and hardened logins of root have 077."""
    private = "if not os.stat(__file__).st_mode & os.stat(os.path.dirname(__file__)).st_mode & 4: "
    before = os.umask(0o077)
    try:
        found, why = cmax.tried(options(wheel(f"{private}sys.exit('unreadable')")), root)
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)
    assert found and not why


@pytest.mark.parametrize(
    ("content", "more", "reason"),
    [
        (wheel(), {"digest": "0" * 64}, "has SHA-256"),
        (b"no wheel", {}, "not a zip file"),
        (wheel("sys.exit('no jq')"), {}, "no jq"),
        (wheel("import time; time.sleep(60)"), {"time_limit_s": 0.5}, "no answer within"),
        (wheel("(runs / 'audit.values.json').unlink()"), {}, "exit status 1"),
        (wheel(), {"user": "missing-user"}, "does not exist"),
    ],
)
def test_what_stops_the_auditor_is_the_reason(
    root: Path, content: bytes, more: dict[str, Any], reason: str
) -> None:
    found, why = cmax.tried(options(content, **more), root)
    assert found is None and reason in why
    assert not list((root / "var/tmp").iterdir())


@pytest.mark.parametrize("printed", ["", "x", "[]", "[1]", '[{"key": "a"}]', "[" * 100_000])
def test_another_result_is_refused(printed: str) -> None:
    with pytest.raises(cmax.AuditError):
        cmax.verdicts(printed)


def test_a_result_is_limited() -> None:
    row = {"key": "k" * 999, "verdict": "pass", "observed": ["x"] * 999}
    [found] = cmax.verdicts(json.dumps([row]))
    assert (len(found["key"]), len(found["observed"])) == (80, cmax.MOST_OBSERVED)
    with pytest.raises(cmax.AuditError):
        cmax.verdicts(json.dumps([row] * (cmax.MOST_VERDICTS + 1)))


def test_an_old_python_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, version in (("python3", "3 9"), ("python3.12", "3 12")):
        (tmp_path / name).write_text(f"#!/bin/sh\necho {version}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    find = {name: str(tmp_path / name) for name in ("python3", "python3.12")}
    monkeypatch.setattr(commands, "find_program", find.get)
    assert cmax.interpreter() == str(tmp_path / "python3.12")
    find.pop("python3.12")
    with pytest.raises(cmax.AuditError, match="or later"):
        cmax.interpreter()


def lock_of(content: bytes, *others: str) -> str:
    hashes = [*others, hashlib.sha256(content).hexdigest()]
    lines = " \\\n".join(f"    --hash=sha256:{digest}" for digest in hashes)
    return f"# why\nthe-tool==1.0 \\\n{lines}\n    # via x\n"


def test_only_pinned_wheels_are_sent(tmp_path: Path) -> None:
    content = wheel()
    (tmp_path / "the_tool-1.0-py3-none-any.whl").write_bytes(content)
    (tmp_path / "other-1.0-py3-none-any.whl").write_bytes(b"other")
    found = action.wheels(tmp_path, lock_of(content, "0" * 64))
    assert [*found] == ["the_tool-1.0"]
    assert base64.b64decode(found["the_tool-1.0"]["content"]) == content
    for change in ("another", None):
        path = tmp_path / "the_tool-1.0-py3-none-any.whl"
        path.unlink() if change is None else path.write_text(change)
        with pytest.raises(AnsibleActionFail) as caught:
            action.wheels(tmp_path, lock_of(content))
        assert "the_tool 1.0" in str(caught.value) and "pip download" in str(caught.value)


def test_the_lock_is_that_of_pure_wheels() -> None:
    lock = action.LOCK.read_text(encoding="utf-8")
    names = [each["name"] for each in action.REQUIREMENT.finditer(lock)]
    pinned = (ROOT / "requirements/audit.in").read_text(encoding="utf-8")
    assert names == re.findall(r"^([\w-]+)==", pinned, re.M)
    assert action.version(lock) == "0.2.1"


def test_ours_is_the_last_report_of_each_layer(tmp_path: Path) -> None:
    def save(name: str, time: int, status: str, *layers: str) -> None:
        row = {"checks": [{"name": "one", "status": status}]}
        text = json.dumps({"layers": {layer: {"hosts": {"n": row}} for layer in layers}})
        path = tmp_path / f"{name}-20261129T{time:02d}0000.000001Z.json"
        path.write_text(text if status else text[:20], encoding="utf-8")

    save("site", 8, "ok", "rdma", "gpu")
    save("verify", 9, "failed", "rdma")
    save("verify", 10, "", "rdma")
    save("audit", 11, "reboot", "rdma", "os")
    statuses, used = action.last_runs(tmp_path)
    assert statuses["rdma.one"] == {"failed": 1} and statuses["gpu.one"] == {"ok": 1}
    assert "os.one" not in statuses
    assert [name.partition("-")[0] for name in used] == ["verify", "site"]
    assert action.last_runs(tmp_path / "none") == ({}, [])


PLAY = """\
- hosts: node01,node02
  gather_facts: false
  connection: local
  tasks:
    - baremetal.mpi_roce.cluster_audit:
        step: audit
        wheels_directory: wheels
        user: "{{ user }}"
      register: audited
      when: inventory_hostname == 'node01'
    - baremetal.mpi_roce.cluster_audit: {step: node}
      register: node_read
    - baremetal.mpi_roce.cluster_audit:
        step: report
        audited: audited
        node: node_read
        report_directory: reports
      run_once: true
"""


@pytest.mark.slow
def test_a_play_shows_and_saves_the_verdicts(tmp_path: Path) -> None:
    """With the real wheels, if an operator's folder has them (CLUSTERMAX_WHEELS)."""
    wheels = os.environ.get("CLUSTERMAX_WHEELS")
    if not wheels:
        pytest.skip("CLUSTERMAX_WHEELS is not set")
    (tmp_path / "wheels").symlink_to(wheels)
    inventory = tmp_path / "hosts"
    inventory.write_text(f"[all]\nnode[01:02] ansible_python_interpreter={sys.executable}\n")
    status, output = run_play(tmp_path, PLAY, inventory, "-e", f"user={ME}", "-v")
    assert status == 0, output
    assert "cmax 0.2.1 (" in output and "1 host: " in output
    assert "PYTHON" not in output, "no argument of the module is shown"
    [saved] = (tmp_path / "reports").glob("clustermax-2*.json")
    checks = json.loads(saved.read_text(encoding="utf-8"))["checks"]
    assert {entry["key"] for entry in checks} <= set(ANSWERS)
    assert len(checks) > 40
    assert not run_play(tmp_path, PLAY, inventory, "-e", f"user={ME}", "--check")[0]


REPORTS = """\
- hosts: all
  gather_facts: false
  connection: local
  tasks:
    - baremetal.mpi_roce.cluster_audit: {step: report, audited: audited, node: "{{ item }}"}
      loop: [one, both, none, strange]
      run_once: true
"""
HOSTS = """\
all:
  vars:
    audited: {audit: {target: slurm, verdicts: [{key: gpus.gdrcopy.installed, verdict: fail}]}}
  hosts:
    node01:
      one: {node: {container: false, gpus: 8, rdma_nics: 8}}
      both: {node: {container: false, gpus: 0, rdma_nics: 8}}
      strange: {node: {container: false, gpus: x, rdma_nics: 8}}
    node02:
      one: {node: {container: false, gpus: 0, rdma_nics: 8}}
      both: {node: {container: false, gpus: 0, rdma_nics: 8}}
      strange: {node: {container: false, gpus: 0, rdma_nics: 8}}
"""


@pytest.mark.slow
def test_only_what_every_node_lacks_explains_a_verdict(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text(HOSTS, encoding="utf-8")
    status, output = run_play(tmp_path, REPORTS, tmp_path / "hosts.yml")
    assert status != 0, output
    explained = re.findall(r"^audit: .*?(\d) no GPU.* (\d) open$", output, re.M)
    assert explained == [("0", "1"), ("1", "0"), ("0", "1"), ("0", "1")]
    assert output.count(clustermax.UNREAD) == 1
    assert "node01: gpus is 'x'" in output
