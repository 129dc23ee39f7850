# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Monitoring of one host: node_exporter of the distribution, or that of the site, and perhaps
Prometheus.

A call reports what it lacks: `packages`, which the action installs, and a `request` for a
certificate, which the controller signs. The next call goes on from there.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Optional

from ..core import systemd, written
from ..core.checks import FAILED, OK, Check, not_applicable
from ..core.commands import find_program
from ..core.distribution import read_distribution
from ..core.engine import Outcome, Settled, settle
from ..core.files import FilePlan, make_directories, plan_file
from ..core.part import Node, Part, Plan, PlanError, Step, Verdict
from ..core.text import one_line
from . import DIRECTORY, PASSWORD, SERVER_FILES, TEXTFILES, tls
from .service import (
    HELD,
    Removed,
    Service,
    Stopped,
    drop_in_of,
    of_site,
    ours,
    program_of,
)

EXPORTER_CHECK, EXPORTER_ANSWERS = "monitoring_exporter", "monitoring_exporter_answers"
SERVER_CHECK, SERVER_ANSWERS = "monitoring_server", "monitoring_server_answers"
TEXTFILE_CHECK = "monitoring_textfiles"
EXPORTERS = ("prometheus-node-exporter.service", "node-exporter.service", "node_exporter.service")
"""Units of Debian and Ubuntu, of EPEL, and of others."""
SERVER = "prometheus.service"
OPENSSL = "openssl"
"""Program and package."""
EXPORTER_PORT, SERVER_PORT = 9100, 9090
TLS_FILES = (tls.KEY, tls.CERTIFICATE, tls.AUTHORITY, tls.WEB)
_DEFAULTS = {"prometheus-node-exporter": TEXTFILES, "node_exporter": ""}
"""Directory of textfiles without the option, by program: Debian's, and that of the project
(node_exporter, collector/textfile.go)."""
COUNTED = r"^(rx|tx)_.*(_phy|pause.*|discard.*)$"
"""Counters of rails that the collector ethtool exports, of those by priority node-check's."""


@dataclass(frozen=True)
class Monitored:
    """The desired state of a host. Without `web`, services answer without TLS and password."""

    name: str
    address: str
    textfiles: str = TEXTFILES
    rails: Sequence[str] = ()
    web: Optional[tls.Web] = None
    server: Mapping[str, str] = field(default_factory=dict)
    """Files of Prometheus by name; empty where it does not run."""
    password: str = ""
    retention_days: int = 30
    ask: tls.Ask = tls.status


def converge(wanted: Monitored, node: Node) -> Settled:
    """Raises PlanError for a host that cannot be monitored so, before anything is changed."""
    _refuse(wanted, node)
    exporter = systemd.installed(node, EXPORTERS)
    foreign = of_site(node, EXPORTERS, EXPORTER_PORT)
    missing = _missing(wanted, node, exporter, foreign)
    if missing and not node.check_mode:
        manager = read_distribution(node.root).family.package_manager
        for unit in (f"{name}.service" for name in missing if name != OPENSSL):
            if manager == "apt" and not ours(node, unit):  # which would start it at boot
                node.record(drop_in_of(unit), HELD).apply()
        return Settled(Outcome(), returned={"packages": missing, "manager": manager})
    units = [unit for unit in (exporter, wanted.server and SERVER) if unit]
    known = [unit for unit in units if systemd.installed(node, [unit])]
    gid = _group(node, known)
    parts: list[Part] = [Textfiles(wanted.textfiles, foreign)]
    serves = bool(wanted.server) or foreign is None
    if wanted.web is not None and serves:
        key = settle([tls.Key(gid)], node)
        request = "" if node.check_mode else tls.request(node, wanted.name)
        certificate = wanted.web.certificate or node.read(tls.CERTIFICATE) or ""
        if not certificate and not node.check_mode:
            return Settled(key, returned={"request": request, "certificate": ""})
    else:
        key, request, certificate = Outcome(), "", ""
    web = tls.files(wanted.web, node, gid) if wanted.web is not None and serves else []
    parts += [Missing(name) for name in missing]
    if foreign is None and exporter is not None:
        parts.append(_exporter(wanted, node, exporter, web))
    if wanted.server and SERVER in known:
        parts.append(_server(wanted, node, gid, [] if foreign is None else web))
    kept = {drop_in_of(exporter)} if foreign is None and exporter is not None else set()
    kept |= set(TLS_FILES) if wanted.web is not None and serves else set()
    if wanted.server:
        kept |= {drop_in_of(SERVER), *(f"{DIRECTORY}/{name}" for name in wanted.server)}
        kept |= {PASSWORD} if wanted.web is not None else set()
    parts = _without(node, parts, kept)
    outcome = settle(parts, node)
    outcome.diff = key.diff + outcome.diff
    outcome.changed = outcome.changed or key.changed
    outcome.checks = key.checks + outcome.checks
    outcome.errors = key.errors + outcome.errors
    returned = {"request": request, "certificate": certificate, "site": foreign is not None}
    return Settled(outcome, returned=returned)


def remove(node: Node) -> Settled:
    """Remove what the layer wrote, and stop its services. Packages stay, and services of
    the site."""
    return Settled(settle(_without(node, [], set()), node), returned={"site": False})


def _without(node: Node, parts: Sequence[Part], kept: Collection[str]) -> list[Part]:
    """These parts, and the removal of what the layer wrote except `kept`."""
    drop_ins = {drop_in_of(unit): unit for unit in (*EXPORTERS, SERVER)}
    known = [*(f"{DIRECTORY}/{name}" for name in SERVER_FILES), PASSWORD, *TLS_FILES, *drop_ins]
    recorded = (name.lstrip("/") for name in written.names(node.layer, node.root))
    known += [name for name in recorded if name.startswith(f"{DIRECTORY}/")]
    gone = [n for n in dict.fromkeys(known) if n not in kept and os.path.lexists(node.path(n))]
    units = {
        unit: SERVER_CHECK if unit == SERVER else EXPORTER_CHECK
        for unit in (drop_ins[name] for name in gone if name in drop_ins)
    }
    return [Stopped(units), *parts, Removed(gone)] if gone else list(parts)


def _refuse(wanted: Monitored, node: Node) -> None:
    """Raises PlanError for settings with which a service would not start, and for a Prometheus of
    the site."""
    if not re.fullmatch(r"/[^\x00-\x1f\x7f]*", wanted.textfiles):
        raise PlanError(
            f"monitoring_textfile_directory: {wanted.textfiles!r} must be an absolute path without "
            "control characters"
        )
    found = of_site(node, [SERVER], SERVER_PORT) if wanted.server else None
    if found is not None:
        raise PlanError(
            f"monitoring_server: port {SERVER_PORT} of this launcher is in use, or the site runs "
            f"Prometheus here: {one_line(' '.join(found))[:200] or 'an unknown process'}. Set "
            "monitoring_server: false, and give monitoring_files_directory to the site's Prometheus"
        )


def _missing(
    wanted: Monitored, node: Node, exporter: Optional[str], foreign: Optional[Sequence[str]]
) -> list[str]:
    """Packages to be installed. Raises PlanError where the distribution has none."""
    family = read_distribution(node.root).family
    packages = [OPENSSL] if wanted.web is not None and find_program(OPENSSL) is None else []
    if exporter is None and foreign is None:
        packages += family.monitoring.exporter
    if wanted.server and systemd.installed(node, [SERVER]) is None:
        if not family.monitoring.server:
            raise PlanError(
                f"monitoring_server: {family.os_family} has no package of Prometheus. Use a "
                "launcher with Debian or Ubuntu, or give monitoring_files_directory to the site's "
                "Prometheus (docs/monitoring.md)"
            )
        packages += family.monitoring.server
    return packages


def _group(node: Node, units: Sequence[str]) -> int:
    """The group of the user of the services."""
    for unit in units:
        user = systemd.show(node, unit, ["User"]).get("User", "")
        try:
            return pwd.getpwnam(user).pw_gid
        except KeyError:
            continue
    return node.gid


def _exporter(wanted: Monitored, node: Node, unit: str, web: Sequence[FilePlan]) -> Service:
    told = node.look([program_of(node, unit), "--help"], check=False)
    known = told.stdout + told.stderr
    arguments = [
        f"--web.listen-address={_bracketed(wanted.address)}:{EXPORTER_PORT}",
        f"--collector.textfile.directory={wanted.textfiles}",
    ]
    if wanted.web is not None:  # --web.config before node_exporter 1.5
        flag = "--web.config.file" if "--web.config.file" in known else "--web.config"
        arguments.append(f"{flag}=/{tls.WEB}")
    if wanted.rails and "collector.ethtool.metrics-include" in known:
        names = "|".join(map(re.escape, wanted.rails))
        arguments += [
            "--collector.ethtool",
            f"--collector.ethtool.device-include=^({names})$",
            f"--collector.ethtool.metrics-include={COUNTED}",
        ]
    answers = partial(_answers, EXPORTER_ANSWERS, wanted, EXPORTER_PORT)
    return Service(EXPORTER_CHECK, unit, arguments, answers, web)


def _server(wanted: Monitored, node: Node, gid: int, web: Sequence[FilePlan]) -> Service:
    files = [node.record(f"{DIRECTORY}/{name}", text) for name, text in wanted.server.items()]
    if wanted.password:
        path = node.path(PASSWORD)
        mode, uid = tls.PRIVATE, node.uid
        files.append(plan_file(path, wanted.password, mode=mode, uid=uid, gid=gid, secret=True))
    arguments = [
        f"--config.file=/{DIRECTORY}/prometheus.yml",
        "--storage.tsdb.path=/var/lib/prometheus/metrics2/",
        f"--storage.tsdb.retention.time={wanted.retention_days}d",
        f"--web.listen-address={_bracketed(wanted.address)}:{SERVER_PORT}",
    ]
    if wanted.web is not None:
        arguments.append(f"--web.config.file=/{tls.WEB}")
    probe = ["promtool", "check", "config", f"/{DIRECTORY}/prometheus.yml"]
    answers = partial(_answers, SERVER_ANSWERS, wanted, SERVER_PORT)
    return Service(SERVER_CHECK, SERVER, arguments, answers, web, files, probe)


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _answers(name: str, wanted: Monitored, port: int, node: Node) -> Check:
    """A service listens some time after its start."""
    found = tls.answers(name, wanted.address, port, wanted.web, node, wanted.ask)
    for _again in range(0 if node.check_mode else 20):
        if found.found is not None:
            break
        node.sleep(0.5)
        found = tls.answers(name, wanted.address, port, wanted.web, node, wanted.ask)
    return found


@dataclass(frozen=True)
class Textfiles:
    """The directory of textfiles; `foreign`: the command line of the site's exporter."""

    directory: str
    foreign: Optional[Sequence[str]] = None

    def plan(self, node: Node) -> Plan:
        path = node.path(self.directory)
        if path.is_dir():
            return Plan()
        make = partial(make_directories, path)
        return Plan([], [Step(self.directory, "absent", "a directory", make)])

    def verify(self, node: Node) -> Verdict:
        if self.foreign is None:
            return Verdict()
        flag, wanted = "--collector.textfile.directory", self.directory
        text = " ".join(self.foreign)
        match = re.search(rf"{re.escape(flag)}[= ](\S+)", text)
        program = self.foreign[0].rpartition("/")[2] if self.foreign else ""
        found = match[1] if match else _DEFAULTS.get(program)
        shown = one_line(text)[:200] or "an unknown process"
        if found is None:
            why = f"port {EXPORTER_PORT} belongs to {shown}, whose directory is not known"
            return Verdict([not_applicable(TEXTFILE_CHECK, wanted, why)])
        if found.rstrip("/") == wanted.rstrip("/"):
            return Verdict([Check(TEXTFILE_CHECK, wanted, wanted, OK)])
        reason = (
            f"the exporter of the site reads {one_line(found)[:200]}: set "
            "monitoring_textfile_directory to it"
            if found
            else f"the exporter of the site reads none ({shown}): start it with {flag}={wanted}"
        )
        return Verdict([Check(TEXTFILE_CHECK, wanted, one_line(found)[:200], FAILED, "", reason)])


@dataclass(frozen=True)
class Missing:
    """A package that a run outside check mode installs."""

    name: str

    def plan(self, node: Node) -> Plan:
        return Plan([], [Step(f"package {self.name}", "absent", "installed", lambda: None)])

    def verify(self, node: Node) -> Verdict:
        return Verdict()
