# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Monitoring of one host: what it asks for, what it writes, what it leaves to the site, and whose
certificates the controller signs."""

from __future__ import annotations

import datetime
import errno
import json
import os
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.action import monitoring as action
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import files
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import (
    FAILED,
    NOT_APPLICABLE,
    OK,
    PENDING,
    as_dicts,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.distribution import FAMILIES
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.engine import Outcome, Settled
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.monitoring import (
    SERVER_FILES,
    host,
    tls,
)
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
        self.enabled: set[str] = set()
        self.killed = ""
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
        at_boot = "enabled" if unit in self.enabled else "disabled"
        known = {"ActiveState": state, "UnitFileState": at_boot, "User": "", "MainPID": "77"}
        return 0, "".join(f"{key}={known[key]}\n" for key in words[4::2])

    def _systemctl_daemon_reload(self, words: list[str]) -> tuple[int, str]:
        return 0, ""

    _systemctl_reset_failed = _systemctl_daemon_reload

    def _systemctl_enable(self, words: list[str]) -> tuple[int, str]:
        self.enabled.add(words[-1])
        return 0, ""

    def _systemctl_disable(self, words: list[str]) -> tuple[int, str]:
        if self.killed == words[-1]:
            raise KeyboardInterrupt
        assert words[2] == "--now"
        self.enabled.discard(words[-1])
        self.active.discard(words[-1])
        return 0, ""

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
    packages = {"packages": ["prometheus-node-exporter"], "manager": "apt"}
    assert node.converge(asked).returned == packages
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
    later = datetime.datetime.now().timestamp() + 3600
    os.utime(node.root / DROP_IN, (later, later))  # the clock was set back
    assert node.converge(wanted()).outcome.changed is False


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["node_exporter", "--collector.textfile.directory=/srv/x"], FAILED),
        (
            ["node_exporter", "--collector.textfile.directory=/var/lib/prometheus/node-exporter/"],
            OK,
        ),
        (["/usr/bin/prometheus-node-exporter"], OK),
        (["node_exporter"], FAILED),  # the project's own reads none without the option
        (["docker-proxy", "-host-port", "9100"], NOT_APPLICABLE),
    ],
)
@pytest.mark.parametrize("by_unit", [False, True])
def test_the_exporter_of_the_site_stays(
    by_unit: bool, words: list[str], status: str, node: Node
) -> None:
    listening(node, words)
    if by_unit:  # on another port
        node.write("proc/net/tcp", "")
        node.install(EXPORTER)
        node.active.add(EXPORTER)
    found = node.converge(wanted())
    assert found.returned["site"] is True and "packages" not in found.returned
    assert [(each.name, each.status) for each in found.outcome.checks] == [
        ("monitoring_textfiles", status)
    ]
    assert not (node.root / "etc/systemd").exists()
    assert gone(node).changed is False and (EXPORTER in node.active) is by_unit


def listening(node: Node, words: list[str], table: str = LISTENING) -> None:
    node.write("proc/net/tcp", table)
    node.write("proc/77/cmdline", "\0".join(words) + "\0")
    (node.root / "proc/77/fd").mkdir()
    (node.root / "proc/77/fd/3").symlink_to("socket:[4711]")


def gone(node: Node, *, check_mode: bool = False) -> Outcome:
    return host.remove(node.node(check_mode)).outcome


@pytest.mark.parametrize("by_unit", [False, True])
def test_a_prometheus_of_the_site_is_not_replaced(by_unit: bool, node: Node) -> None:
    node.install(EXPORTER, host.SERVER)
    if by_unit:
        node.active.add(host.SERVER)
        node.write("proc/77/cmdline", "prometheus\0")
    else:
        listening(node, ["cockpit-tls"], LISTENING.replace("238C", "2382"))
    before = node.snapshot()
    with pytest.raises(PlanError, match="prometheus" if by_unit else "cockpit-tls"):
        node.converge(wanted(server={"prometheus.yml": ""}))
    assert node.snapshot() == before and not node.ran("systemctl", "restart")


# Removal

DROP_IN = f"etc/systemd/system/{EXPORTER}.d/90-baremetal-mpi-roce.conf"
SITE_FILES = {
    f"etc/systemd/system/{EXPORTER}.d/50-site.conf": "[Service]\nNice=5\n",
    "etc/baremetal-mpi-roce/mpi.env": "A=1\n",
    "var/lib/prometheus/metrics2/wal": "x",
    "var/lib/prometheus/node-exporter/site.prom": "a 1\n",
}


def monitored(node: Node, authority: pki.Authority) -> Monitored:
    """Monitor a host completely, with Prometheus; return its desired state."""
    node.install(EXPORTER, host.SERVER)
    for name, text in SITE_FILES.items():
        node.write(name, text)
    server = dict.fromkeys(SERVER_FILES, "a\n")
    asked = wanted(authority, server=server, password="secret")
    request = node.converge(asked).returned["request"]
    web = replace(asked.web, certificate=authority.renewed(request, "", NAMES))  # type: ignore[type-var]
    done = replace(asked, web=web)
    assert names(node.converge(done), FAILED) == []
    return done


def files_of(node: Node) -> set[str]:
    return {str(p.relative_to(node.root)) for p in node.root.rglob("*") if p.is_file()}


def test_what_the_layer_wrote_is_removed_and_the_rest_stays(
    node: Node, authority: pki.Authority
) -> None:
    node.install(EXPORTER, host.SERVER)
    for name, text in SITE_FILES.items():
        node.write(name, text)
    before = files_of(node)
    asked = monitored(node, authority)
    assert len(files_of(node) - before) == 13  # Prometheus 5, password, TLS 4, drop-ins 2, record
    snapshot = node.snapshot()
    planned = gone(node, check_mode=True)
    assert node.snapshot() == snapshot and planned.changed and EXPORTER in node.active
    assert {each.status for each in planned.checks} == {PENDING}
    done = gone(node)
    assert (done.errors, [each for each in done.checks if each.status != OK]) == ([], [])
    assert files_of(node) == before and (node.active, node.enabled) == (set(), set())
    assert not (node.root / "etc/baremetal-mpi-roce/monitoring").exists()
    assert not (node.root / f"etc/systemd/system/{host.SERVER}.d").exists()
    assert "secret" not in str(done.diff) and "PRIVATE" not in str(done.diff)
    again, programs = gone(node), len(node.calls)
    assert (again.changed, again.diff, again.checks) == (False, [], [])
    assert programs == len(node.calls)
    assert names(node.converge(asked), FAILED) == [] and EXPORTER in node.active


def test_services_stop_before_their_arguments_are_removed(
    node: Node, authority: pki.Authority
) -> None:
    monitored(node, authority)
    node.killed = EXPORTER
    with pytest.raises(KeyboardInterrupt):
        gone(node)
    assert {DROP_IN, tls.WEB, tls.KEY} <= files_of(node)
    node.killed = ""
    assert gone(node).errors == [] and DROP_IN not in files_of(node)


def test_a_unit_that_cannot_be_stopped_keeps_its_arguments(
    node: Node, authority: pki.Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monitored(node, authority)
    monkeypatch.setattr(node, "_systemctl_disable", lambda words: (1, "masked"))
    assert gone(node).errors and {DROP_IN, tls.WEB, tls.KEY} <= files_of(node)


def test_the_package_may_be_gone_already(node: Node, authority: pki.Authority) -> None:
    monitored(node, authority)
    (node.root / f"lib/systemd/system/{EXPORTER}").unlink()
    assert gone(node).errors == [] and DROP_IN not in files_of(node)


def test_files_that_an_earlier_version_wrote_are_removed(
    node: Node, authority: pki.Authority
) -> None:
    asked = monitored(node, authority)
    extra = "etc/baremetal-mpi-roce/monitoring/old.json"
    old = replace(asked, server={**asked.server, "old.json": "x\n"})
    node.converge(old)
    record = "var/lib/baremetal-mpi-roce/written.d/monitoring.json"
    assert extra in files_of(node) and f'"/{extra}"' in node.read(record)
    odd = {"/etc/os-release": ["0", "0644"], "/etc/baremetal-mpi-roce/mpi.env": ["0", "0644"]}
    node.write(record, json.dumps({**json.loads(node.read(record)), **odd}))
    node.converge(asked)
    assert extra not in files_of(node)
    gone(node)
    assert {name.lstrip("/") for name in odd} <= files_of(node)


def test_a_launcher_that_is_not_the_first_any_more_stops_prometheus(
    node: Node, authority: pki.Authority
) -> None:
    asked = monitored(node, authority)
    found = node.converge(replace(asked, server={}, password=""))
    assert found.outcome.changed and not found.outcome.errors
    left = {Path(name).name for name in files_of(node) if "/monitoring/" in name}
    assert left == {"tls.key", "tls.pem", "ca.pem", "web.yml"}
    assert node.active == {EXPORTER} == node.enabled
    assert node.converge(replace(asked, server={}, password="")).outcome.changed is False


def test_without_tls_its_keys_go(node: Node, authority: pki.Authority) -> None:
    asked = monitored(node, authority)
    node.status = 200
    found = node.converge(replace(asked, web=None, password=""))
    assert not found.outcome.errors and "web.config" not in node.read(DROP_IN)
    left = {Path(name).name for name in files_of(node) if "/monitoring/" in name}
    assert left == set(SERVER_FILES)


# Interruptions and odd settings


def test_a_service_whose_configuration_was_interrupted_does_not_start(node: Node) -> None:
    """Killed after the installation: after a boot, the package's service would answer everyone,
    and be taken for the site's."""
    node.converge(wanted())
    assert "ConditionPathExists=!/" in node.read(DROP_IN)
    node.install(EXPORTER)
    listening(node, ["prometheus-node-exporter"])
    node.status = 200
    found = node.converge(wanted())
    assert found.returned["site"] is False and EXPORTER in node.active
    assert "ConditionPathExists" not in node.read(DROP_IN)


def test_arguments_with_blanks_and_quotes_stay_one_word(node: Node) -> None:
    node.install(EXPORTER)
    node.status = 200
    place = '/srv/a "b" %n $HOME \\ c'
    node.converge(wanted(textfiles=place))
    text = node.read(DROP_IN)
    word = r'"--collector.textfile.directory=/srv/a \"b\" %%n $$HOME \\ c"'
    assert word in text
    for wrong in ("/srv\nExecStartPre=/bin/x", "srv", ""):
        with pytest.raises(PlanError, match="monitoring_textfile_directory"):
            node.converge(wanted(textfiles=wrong))


def test_a_full_disk_leaves_the_service_as_it_was(
    node: Node, authority: pki.Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = monitored(node, authority)
    starts = node.ran("systemctl", "restart")

    def full(path: Path, *_more: Any) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(files, "write_atomically", full)
    found = node.converge(replace(asked, name="node01", textfiles="/srv/other"))
    assert any("No space left" in each for each in found.outcome.errors)
    assert node.ran("systemctl", "restart") == starts


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
    packages = {"packages": ["node-exporter"], "manager": "dnf"}
    assert node.converge(wanted()).returned == packages
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
    mute = False
    """Whether commands other than modules fail."""

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
        if arguments["enabled"]:
            wanted_now = module.wanted_of(arguments)
            asked = self.node.converge(wanted_now, check_mode=self._task.check_mode)
        else:
            asked = module.converge(arguments, self.node.node(self._task.check_mode))
        found: dict[str, Any] = {"changed": asked.outcome.changed, "diff": asked.outcome.diff}
        found["checks"] = as_dicts(asked.outcome.checks)
        return {**found, **asked.returned}

    def _low_level_execute_command(self, command: str, *_more: Any) -> dict[str, Any]:
        shown = command.replace(" /", f" {self.node.root}/")
        done = subprocess.run(["sh", "-c", shown], capture_output=True, text=True, check=False)
        return {"rc": done.returncode, "stdout": "" if self.mute else done.stdout, "stderr": ""}

    def names(self) -> list[str]:
        return [name for name, _arguments in self.calls]


def hosts_of(name: str = "node01") -> dict[str, Any]:
    groups = {"launcher": ["launcher01"], "compute": ["node01"]}
    raw = SimpleNamespace(raw_get=HOSTS.__getitem__)
    more = {"ansible_play_hosts": ["node01", "launcher01"], "cluster_name": "b300"}
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


def test_monitoring_that_is_off_takes_one_look_and_what_is_left_is_removed(
    node: Node, tmp_path: Path
) -> None:
    off = Action(node, tmp_path, enabled=False)
    assert off.act(hosts_of())["skipped"] and off.names() == []
    assert not (tmp_path / "pki").exists()
    Action(node, tmp_path).act(hosts_of())
    planned = Action(node, tmp_path, enabled=False, check_mode=True)
    assert planned.act(hosts_of())["changed"] and EXPORTER in node.active
    found = off.act(hosts_of())
    assert (found["changed"], off.names(), node.active) == (True, ["monitoring"], set())
    assert found["checks"] and not any(off.calls[0][1][key] for key in action.ADDED)
    assert off.act(hosts_of())["skipped"] and len(off.calls) == 1
    assert (tmp_path / "pki/authority.pem").exists()
    off.mute = True
    assert "skipped" not in off.act(hosts_of()) and len(off.calls) == 2


@pytest.mark.parametrize(
    "path",
    [
        DROP_IN,
        "etc/systemd/system/prometheus.service.d/90-baremetal-mpi-roce.conf",
        "etc/baremetal-mpi-roce/monitoring/tls.key",
        "var/lib/baremetal-mpi-roce/written.d/monitoring.json",
    ],
)
def test_every_trace_calls_the_module(path: str, node: Node, tmp_path: Path) -> None:
    """Also what a run left that was killed."""
    node.write(path, "{}")
    off = Action(node, tmp_path, enabled=False)
    assert "skipped" not in off.act(hosts_of())
    assert off.act(hosts_of()).get("skipped") or path.endswith("json")


def test_openssl_comes_by_the_package_manager_of_the_host(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.install(EXPORTER)
    missing = iter([None])
    monkeypatch.setattr(host, "find_program", lambda name: next(missing, name))
    asked = Action(node, tmp_path)
    asked.act(hosts_of())
    assert asked.names()[:2] == ["monitoring", "apt"] and asked.calls[1][1]["name"] == ["openssl"]


def test_only_the_first_of_two_launchers_serves(node: Node, tmp_path: Path) -> None:
    two = hosts_of("launcher01")
    two["groups"]["launcher"] = ["launcher02", "launcher01"]
    asked = Action(node, tmp_path, server=True, host="launcher01")
    asked.act(two)
    assert not any(told.get("password") or told.get("files") for _name, told in asked.calls)
    assert "prometheus.service" not in node.active


def test_files_for_the_site_come_by_the_first_host_that_is_left(node: Node, tmp_path: Path) -> None:
    node.status = 200
    lost = {**hosts_of("launcher01"), "ansible_play_hosts": ["launcher01"]}
    Action(node, tmp_path, files_directory=str(tmp_path / "site"), tls=False).act(lost)
    assert (tmp_path / "site/rules.yml").exists()


def test_links_and_odd_files_for_the_site_are_replaced(node: Node, tmp_path: Path) -> None:
    node.status = 200
    mine, site = tmp_path / "mine", tmp_path / "site"
    mine.write_text("private")
    site.mkdir()
    (site / "rules.yml").symlink_to(mine)
    (site / "nodes.json").write_bytes(b"\xff\x00" * 99)
    os.mkfifo(site / "node.json")
    Action(node, tmp_path, files_directory=str(site), tls=False).act(hosts_of())
    assert mine.read_text() == "private" and not (site / "rules.yml").is_symlink()
    assert {path.is_file() for path in site.iterdir()} == {True}
    assert json.loads((site / "nodes.json").read_text()) and (site / "node.json").stat().st_size
    (site / "rules.yml").unlink()
    (site / "rules.yml").mkdir()
    found = Action(node, tmp_path, files_directory=str(site), tls=False).act(hosts_of())
    assert found["failed"] and "site/rules.yml" in found["msg"]


@pytest.mark.parametrize("name", ["authority.pem", "password.json"])
def test_a_full_disk_on_the_controller_names_its_file(
    name: str, node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "password.json":
        pki.Authority(tmp_path / "pki", "b300", write=True)

    def full(_handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    found = Action(node, tmp_path).act(hosts_of())
    assert found["failed"] and f"pki/{name}: No space left" in found["msg"]
    assert [p.name for p in (tmp_path / "pki").iterdir() if p.name.startswith(".")] == []


def test_an_edited_password_is_refused_before_all_exporters_are_lost(
    node: Node, tmp_path: Path
) -> None:
    pki.password(tmp_path / "pki", write=True)
    path = tmp_path / "pki/password.json"
    known = json.loads(path.read_text())
    path.write_text(json.dumps({**known, "password": "x"}))
    asked = Action(node, tmp_path, server=True, host="launcher01")
    found = asked.act(hosts_of("launcher01"))
    assert found["failed"] and str(path) in found["msg"] and asked.calls == []
    for odd in ("", "x", "$2b$31$" + "a" * 53):
        with pytest.raises(pki.PkiError):
            pki.Password("x", odd).prove(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("scrape_interval_s", 0),
        ("retention_days", -1),
        ("interval_s", 0),
        ("alertmanagers", ["http://alerts:9093"]),
        ("alertmanagers", ["10.0.0.1:9093\nx"]),
    ],
)
def test_settings_that_prometheus_refuses_change_nothing(
    name: str, value: Any, node: Node, tmp_path: Path
) -> None:
    asked = Action(node, tmp_path, **{name: value})
    found = asked.act(hosts_of())
    assert found["failed"] and name in found["msg"] and asked.calls == []


def test_an_authority_that_is_not_right_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        pki.Authority(tmp_path / name, name, write=True)
    first, second = (tmp_path / name / pki.AUTHORITY for name in ("a", "b"))
    mark = "-----BEGIN CERTIFICATE"
    key, foreign = first.read_text().partition(mark)[0], second.read_text().partition(mark)[2]
    first.write_text(f"{key}{mark}{foreign}")
    with pytest.raises(pki.PkiError, match="another key"):
        pki.Authority(tmp_path / "a", "a", write=True)
    later = datetime.datetime.now(datetime.timezone.utc) + (pki.AUTHORITY_DAYS - 1) * pki.DAY
    monkeypatch.setattr(pki, "_now", lambda: later)
    with pytest.raises(pki.PkiError, match="clock"):
        pki.Authority(tmp_path / "b", "b", write=True)
    monkeypatch.setattr(pki, "_now", lambda: later - 2 * pki.AUTHORITY_DAYS * pki.DAY)
    with pytest.raises(pki.PkiError, match="clock"):
        pki.Authority(tmp_path / "b", "b", write=True)


def test_an_expired_certificate_is_replaced(
    tmp_path: Path, authority: pki.Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = request_of(tmp_path, *P256)
    before = authority.renewed(asked, "", NAMES)
    later = datetime.datetime.now(datetime.timezone.utc) + (pki.HOST_DAYS + 9) * pki.DAY
    monkeypatch.setattr(pki, "_now", lambda: later)
    after = authority.renewed(asked, before, NAMES)
    assert after and authority.renewed(asked, after, NAMES) == ""
    monkeypatch.undo()  # the controller's clock was ahead
    assert authority.renewed(asked, after, NAMES)


def test_a_version_that_nobody_knows_is_no_error_of_the_controller(
    tmp_path: Path, authority: pki.Authority
) -> None:
    def odd(pem: str, kind: str, old: bytes, new: bytes) -> str:
        der = ssl.PEM_cert_to_DER_cert(pem.replace(kind, "CERTIFICATE").strip())
        assert old in der
        made = ssl.DER_cert_to_PEM_cert(der.replace(old, new, 1))
        return made.replace("CERTIFICATE", kind)

    asked = request_of(tmp_path, *P256)
    good = authority.renewed(asked, "", NAMES)
    assert authority.renewed(
        asked, odd(good, "CERTIFICATE", b"\x02\x01\x02", b"\x02\x01\x09"), NAMES
    )
    with pytest.raises(pki.PkiError, match="node01"):
        authority.renewed(
            odd(asked, "CERTIFICATE REQUEST", b"\x02\x01\x00", b"\x02\x01\x09"), "", NAMES
        )


def test_a_host_may_have_a_long_name(node: Node, authority: pki.Authority) -> None:
    node.install(EXPORTER)
    found = node.converge(replace(wanted(authority), name="n" * 100))
    assert authority.renewed(str(found.returned["request"]), "", ["n" * 100])
