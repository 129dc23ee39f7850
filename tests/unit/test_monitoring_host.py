# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Monitoring of one host: what it asks for, what it writes, what it leaves to the site, and whose
certificates the controller signs."""

from __future__ import annotations

import datetime
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.action import monitoring as action
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import (
    FAILED,
    OK,
    PENDING,
    as_dicts,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.distribution import FAMILIES
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.engine import Settled
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.monitoring import host, tls
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.monitoring.host import Monitored
from ansible_collections.baremetal.mpi_roce.plugins.modules import monitoring as module
from ansible_collections.baremetal.mpi_roce.plugins.modules.monitoring import ARGUMENTS
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.monitoring import pki

from tests.unit.host import Host
from tests.unit.test_monitoring_rules import HOSTS

EXPORTER = "prometheus-node-exporter.service"
ADDRESS, NAMES = "10.240.0.11", ["node01", "10.240.0.11"]
HELP = "--web.config.file --collector.ethtool.metrics-include"
LISTENING = (
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout"
    " inode\n   0: 00000000:238C 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4711\n"
)


class Node(Host):
    """A host of Debian, with systemd and openssl."""

    layer = "monitoring"

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.active: set[str] = set()
        self.since: dict[str, float] = {}
        self.status: Any = 401
        self.verdict = 0
        self.write("etc/os-release", 'ID=debian\nVERSION_ID="12"\n')

    def install(self, *units: str) -> None:
        for unit in units:
            program = f"/usr/bin/{unit.removesuffix('.service')}"
            self.write(f"lib/systemd/system/{unit}", f"[Service]\nExecStart={program} $ARGS\n")

    def ask(self, _address: str, _port: int, _authority: Any) -> int:
        if isinstance(self.status, OSError):
            raise self.status
        return int(self.status)

    def converge(self, wanted: Monitored, *, check_mode: bool = False) -> Settled:
        node = replace(self.node(check_mode), sleep=lambda _seconds: None)
        return host.converge(replace(wanted, ask=self.ask), node)

    def _systemctl_show(self, words: list[str]) -> tuple[int, str]:
        unit = words[2]
        if "--timestamp=unix" in words:
            at = self.since.get(unit)
            return 0, f"{words[4]}=@{at:.0f}\n" if at else f"{words[4]}=\n"
        state = "active" if unit in self.active else "inactive"
        return 0, f"ActiveState={state}\nUnitFileState=enabled\nUser=\n"

    def _systemctl_daemon_reload(self, words: list[str]) -> tuple[int, str]:
        return 0, ""

    _systemctl_enable = _systemctl_daemon_reload

    def _systemctl_restart(self, words: list[str]) -> tuple[int, str]:
        self.active.add(words[2])
        self.since[words[2]] = datetime.datetime.now().timestamp() + 2
        return 0, ""

    _systemctl_reload = _systemctl_restart

    def _prometheus_node_exporter(self, words: list[str]) -> tuple[int, str]:
        return 0, HELP

    def _promtool(self, words: list[str]) -> tuple[int, str]:
        return self.verdict, "rules.yml"

    def _openssl(self, words: list[str]) -> tuple[int, str]:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "root")


@pytest.fixture
def authority(tmp_path: Path) -> Iterator[pki.Authority]:
    yield pki.Authority(tmp_path / "pki", "b300", write=True)


def wanted(authority: pki.Authority | None = None, **more: Any) -> Monitored:
    web = tls.Web("prometheus", "$2b$10$x", authority.pem) if authority else None
    return Monitored("node01", ADDRESS, rails=["rail0", "rail1"], web=web, **more)


def names(found: Settled, status: str) -> list[str]:
    return [check.name for check in found.outcome.checks if check.status == status]


def test_a_host_asks_for_packages_then_a_certificate_and_then_has_all(
    node: Node, authority: pki.Authority
) -> None:
    asked = wanted(authority)
    assert node.converge(asked).returned == {"packages": ["prometheus-node-exporter"]}
    node.install(EXPORTER)
    first = node.converge(asked)
    assert first.returned["certificate"] == "" and EXPORTER not in node.active
    key = node.read(tls.KEY)
    assert (node.root / tls.KEY).stat().st_mode & 0o777 == 0o640
    certificate = authority.renewed(first.returned["request"], "", NAMES)
    web = replace(asked.web, certificate=certificate)  # type: ignore[type-var]
    done = node.converge(replace(asked, web=web))
    assert names(done, FAILED) == [] and EXPORTER in node.active and not done.outcome.errors
    drop_in = node.read(f"etc/systemd/system/{EXPORTER}.d/90-baremetal-mpi-roce.conf")
    for word in (
        f"--web.listen-address={ADDRESS}:9100",
        "--collector.textfile.directory=/var/lib/prometheus/node-exporter",
        "--web.config.file=/etc/baremetal-mpi-roce/monitoring/web.yml",
        "--collector.ethtool.device-include=^(rail0|rail1)$$",
    ):
        assert word in drop_in
    again = node.converge(asked)
    assert (again.outcome.changed, names(again, FAILED)) == (False, [])
    assert again.returned["certificate"] == certificate and node.read(tls.KEY) == key
    assert authority.renewed(again.returned["request"], certificate, NAMES) == ""
    shown = str(done.outcome.diff) + str(again.outcome.checks)
    assert "PRIVATE" not in shown and "$2b$" not in shown


def test_check_mode_changes_nothing(node: Node, authority: pki.Authority) -> None:
    before = node.snapshot()
    found = node.converge(wanted(authority), check_mode=True)
    assert node.snapshot() == before and found.outcome.changed
    node.install(EXPORTER)
    before = node.snapshot()
    found = node.converge(wanted(authority), check_mode=True)
    assert node.snapshot() == before and "monitoring_exporter" in names(found, PENDING)


@pytest.mark.parametrize("status", [200, 404, OSError("refused")])
def test_an_exporter_without_password_fails(status: Any, node: Node) -> None:
    node.install(EXPORTER)
    node.status = status
    found = node.converge(wanted())
    good = status == 200
    assert names(found, FAILED) == ([] if good else ["monitoring_exporter_answers"])


def test_a_service_older_than_its_files_starts_again(node: Node) -> None:
    node.install(EXPORTER)
    node.status = 200
    node.converge(wanted())
    starts = node.ran("systemctl", "restart")
    node.since[EXPORTER] -= 3600
    assert node.converge(wanted()).outcome.changed
    assert node.ran("systemctl", "restart") == starts + 1


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["node_exporter", "--collector.textfile.directory=/srv/x"], FAILED),
        (
            ["node_exporter", "--collector.textfile.directory=/var/lib/prometheus/node-exporter/"],
            OK,
        ),
        (["node_exporter"], OK),
    ],
)
def test_the_exporter_of_the_site_stays(words: list[str], status: str, node: Node) -> None:
    node.write("proc/net/tcp", LISTENING)
    node.write("proc/77/cmdline", "\0".join(words) + "\0")
    (node.root / "proc/77/fd").mkdir()
    (node.root / "proc/77/fd/3").symlink_to("socket:[4711]")
    found = node.converge(wanted())
    assert found.returned["site"] is True and "packages" not in found.returned
    assert [(each.name, each.status) for each in found.outcome.checks] == [
        ("monitoring_textfiles", status)
    ]
    assert not (node.root / "etc/systemd").exists()


def test_prometheus_reads_its_files_again_and_refuses_wrong_ones(node: Node) -> None:
    node.install(EXPORTER, host.SERVER)
    node.status = 200
    server = {"prometheus.yml": "a\n", "rules.yml": "b\n"}
    assert names(node.converge(wanted(server=server, password="secret")), FAILED) == []
    assert (node.root / "etc/baremetal-mpi-roce/monitoring/password").stat().st_mode & 0o7 == 0
    node.converge(wanted(server={**server, "rules.yml": "c\n"}, password="secret"))
    assert node.ran("systemctl", "reload", host.SERVER) == 1
    node.verdict = 1
    found = node.converge(wanted(server={**server, "rules.yml": "d\n"}, password="secret"))
    assert found.outcome.errors and node.ran("systemctl", "reload", host.SERVER) == 1


def test_el_has_no_prometheus(node: Node) -> None:
    node.write("etc/os-release", 'ID=rocky\nVERSION_ID="9.6"\n')
    assert node.converge(wanted()).returned == {"packages": ["node-exporter"]}
    with pytest.raises(PlanError, match="monitoring_files_directory"):
        node.converge(wanted(server={"prometheus.yml": ""}))


def test_hosts_may_ask_only_for_the_packages_of_the_layer() -> None:
    known = {p for f in FAMILIES for p in (*f.monitoring.exporter, *f.monitoring.server)}
    assert {*known, host.OPENSSL} == action.PACKAGES
    assert action.arguments_of_packages(["openssl", "nmap"]) == ()


# The authority


def request_of(folder: Path, *words: str) -> str:
    made = ["openssl", "req", "-new", "-batch", "-nodes", "-subj", "/CN=evil", *words]
    done = subprocess.run(
        [*made, "-keyout", folder / "k"], capture_output=True, text=True, check=True
    )
    return done.stdout


P256 = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")


def test_only_the_key_of_a_request_is_used(tmp_path: Path, authority: pki.Authority) -> None:
    asked = request_of(tmp_path, *P256, "-addext", "subjectAltName=DNS:node02,IP:10.0.0.9")
    (tmp_path / "host.pem").write_text(authority.renewed(asked, "", NAMES))
    (tmp_path / "ca.pem").write_text(authority.pem)
    verify = ["openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", "ca.pem"]
    for words, good in (
        (["-verify_ip", ADDRESS, "-verify_hostname", "node01"], True),
        (["-verify_ip", "10.0.0.9"], False),
        (["-verify_hostname", "node02"], False),
    ):
        done = subprocess.run([*verify, *words, "host.pem"], cwd=tmp_path, capture_output=True)
        assert (done.returncode == 0) is good, done.stderr


def test_a_certificate_is_replaced_if_it_is_not_right(
    tmp_path: Path, authority: pki.Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = request_of(tmp_path, *P256)
    good = authority.renewed(asked, "", NAMES)
    other = pki.Authority(tmp_path / "other", "b300", write=True)
    assert authority.renewed(asked, good, NAMES) == ""
    assert authority.renewed(request_of(tmp_path, *P256), good, NAMES)  # another key
    assert authority.renewed(asked, good, ["node01", "10.240.0.12"])
    assert authority.renewed(asked, other.renewed(asked, "", NAMES), NAMES)
    assert authority.renewed(asked, "x" * 99_999, NAMES) and authority.renewed(asked, "x", NAMES)
    monkeypatch.setattr(pki, "RENEW_DAYS", pki.HOST_DAYS)
    assert authority.renewed(asked, good, NAMES)


@pytest.mark.parametrize("words", [("-newkey", "rsa:2048"), ("-newkey", "ed25519")])
def test_other_requests_are_refused(
    words: tuple[str, ...], tmp_path: Path, authority: pki.Authority
) -> None:
    for asked in (request_of(tmp_path, *words), "", "x", "x" * 99_999):
        with pytest.raises(pki.PkiError, match="node01"):
            authority.renewed(asked, "", NAMES)


def test_secrets_are_made_once_and_private(tmp_path: Path) -> None:
    assert pki.password(tmp_path, write=False) == pki.Password("", "")
    made = pki.password(tmp_path, write=True)
    assert pki.password(tmp_path, write=True) == made and made.hash.startswith("$2b$10$")
    assert pki.hashed(made.text) != made.hash and len(made.text) == 32
    first = pki.Authority(tmp_path, "b300", write=True)
    assert pki.Authority(tmp_path, "other", write=True).pem == first.pem
    assert {p.stat().st_mode & 0o777 for p in tmp_path.iterdir()} == {0o600}
    (tmp_path / pki.PASSWORD).chmod(0o644)
    with pytest.raises(pki.PkiError, match="chmod 600"):
        pki.password(tmp_path, write=True)
    (tmp_path / pki.AUTHORITY).unlink()
    (tmp_path / pki.AUTHORITY).touch(0o600)
    for text in ("", "{", "[]"):
        (tmp_path / pki.AUTHORITY).write_text(text)
        with pytest.raises(pki.PkiError, match="restore it"):
            pki.Authority(tmp_path, "b300", write=True)


# The action


class Action(action.ActionModule):
    """An action on a simulated host."""

    installs = ("prometheus", "prometheus-node-exporter")

    def __init__(self, node: Node, folder: Path, *, check_mode: bool = False, **more: Any) -> None:
        self.node, self.calls = node, list[tuple[str, dict[str, Any]]]()
        defaults = {key: each.get("default") for key, each in ARGUMENTS.items()}
        given = {"host": "node01", "address": ADDRESS, "state_directory": str(folder / "pki")}
        self.arguments = {**defaults, **given, **more}
        self._task = SimpleNamespace(check_mode=check_mode)

    def validate_argument_spec(self, **_more: Any) -> Any:
        return None, dict(self.arguments)

    def _execute_module(self, module_name: str = "", *_more: Any, **given: Any) -> dict[str, Any]:
        arguments = given["module_args"]
        self.calls.append((module_name.rpartition(".")[2], arguments))
        if module_name != action.MODULE:
            self.node.install(*(f"{n}.service" for n in arguments["name"] if n in self.installs))
            return {"changed": True}
        asked = self.node.converge(module.wanted_of(arguments), check_mode=self._task.check_mode)
        found: dict[str, Any] = {"changed": asked.outcome.changed, "diff": asked.outcome.diff}
        found["checks"] = as_dicts(asked.outcome.checks)
        return {**found, **asked.returned}

    def names(self) -> list[str]:
        return [name for name, _arguments in self.calls]


def hosts_of(name: str = "node01") -> dict[str, Any]:
    groups = {"launcher": ["launcher01"], "compute": ["node01"]}
    raw = SimpleNamespace(raw_get=HOSTS.__getitem__)
    more = {"ansible_play_hosts_all": ["node01", "launcher01"], "cluster_name": "b300"}
    return {"groups": groups, "hostvars": raw, "inventory_hostname": name, **more}


def test_a_new_host_takes_four_calls_and_then_one(node: Node, tmp_path: Path) -> None:
    new = Action(node, tmp_path)
    done = new.act(hosts_of())
    assert new.names() == ["monitoring", "apt", "monitoring", "monitoring"]
    assert new.calls[1][1]["policy_rc_d"] == 101 and done["changed"]
    again = Action(node, tmp_path)
    assert again.act(hosts_of())["changed"] is False and again.names() == ["monitoring"]
    assert not {"request", "certificate", "packages"} & done.keys()
    told = [arguments for name, arguments in new.calls if name == "monitoring"]
    assert not any(each["password"] or "state_directory" in each for each in told)


def test_only_the_launcher_of_prometheus_gets_password_and_files(
    node: Node, tmp_path: Path
) -> None:
    for host_name, serves in (("node01", False), ("launcher01", True)):
        asked = Action(node, tmp_path, server=True, host=host_name)
        asked.act(hosts_of(host_name))
        _name, told = asked.calls[-1]
        assert bool(told["password"]) is serves
        assert ("rules.yml" in told["files"]) is serves


def test_a_host_that_cannot_be_read_back_fails(node: Node, tmp_path: Path) -> None:
    asked = Action(node, tmp_path)
    asked.installs = ()
    assert asked.act(hosts_of())["failed"] and asked.names() == ["monitoring", "apt", "monitoring"]


def test_check_mode_installs_and_signs_nothing(node: Node, tmp_path: Path) -> None:
    asked = Action(node, tmp_path, check_mode=True)
    assert asked.act(hosts_of())["changed"] and asked.names() == ["monitoring"]
    assert not (tmp_path / "pki").exists()


def test_files_for_the_site_are_written_once_and_not_into_the_inventory(
    node: Node, tmp_path: Path
) -> None:
    place = {"files_directory": str(tmp_path / "site"), "tls": False}
    node.status = 200
    assert Action(node, tmp_path, **place).act(hosts_of("launcher01"))
    assert not (tmp_path / "site").exists()  # by the first host of the play only
    Action(node, tmp_path, **place).act(hosts_of())
    found = {path.name for path in (tmp_path / "site").iterdir()}
    assert {"rules.yml", "nodes.json", "fabric.json", "alertmanager.yml"} <= found
    assert Action(node, tmp_path, **place).act(hosts_of())["changed"] is False
    refused = Action(node, tmp_path, **place)
    sources = {"ansible_inventory_sources": [str(tmp_path)]}
    assert refused.act({**hosts_of(), **sources})["failed"] and refused.calls == []
