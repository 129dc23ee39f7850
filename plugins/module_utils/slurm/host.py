# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Slurm on one host: its files for the installed version, the daemon that has read them, and what
slurmctld then says."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Optional

from ..core import systemd
from ..core.checks import FAILED, OK, PENDING, Check, differs, failures
from ..core.commands import find_program
from ..core.files import HEADER, replace_block
from ..core.part import Node, Part, Plan, PlanError, Step, StepError, Verdict
from ..core.waiting import until
from ..packages.installed import Installed
from . import compare, conf, texts
from .cluster import SlurmCluster
from .control import Control, Drains
from .daemons import CONTROLLER, NODE, Daemon, Surroundings
from .munge import Munge
from .state import NodeState, SlurmError, parse_version

DISTRIBUTION = "distribution"
BLOCK = "slurm"
"""Name of the marked block in the site's slurm.conf."""
SEND = "run the layer slurm on slurmctld's host, then scontrol reconfigure there"
CACHE = "/run/slurm/conf"
"""Directory of the files that slurmd has from slurmctld (configless)."""
BY_NAME = (texts.GRES, texts.CGROUP, texts.TOPOLOGY_CONF, texts.TOPOLOGY_YAML)
"""Files with names of Slurm, so that the site may have written them."""
LIBEXEC = "/usr/local/libexec/baremetal-mpi-roce"
TASK_PROLOG = f"{LIBEXEC}/task-prolog"
NODE_CHECK = {
    "prolog": f"{LIBEXEC}/slurm-prolog",
    "epilog": f"{LIBEXEC}/slurm-epilog",
    "health_check": f"{LIBEXEC}/slurm-health-check",
}
ANSWERS, DRAINED = "slurm_controller", "slurm_drained"
CHECK_WAIT_S = 10.0
"""Limit in check mode, for a slurmctld that has just started."""
POLL_S = 0.5
REJECTED = "Zero Bytes were transmitted or received"
"""What commands of Slurm 22.05 print if slurmctld rejects their credential."""
PROGRAMS = ("TaskProlog", "Prolog", "Epilog", "HealthCheckProgram", "RebootProgram")


@dataclass
class Host:
    """This host, with the options of the layer."""

    cluster: SlurmCluster
    name: str
    given: Mapping[str, Any]
    version: str = ""
    reasons: Optional[list[dict[str, str]]] = None
    settings: dict[str, str] = field(default_factory=dict)
    """Of slurm.conf, as the role writes them."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Host:
        cluster = SlurmCluster.of_text(given["cluster"])
        # A second slurmctld needs a directory that both share: docs/slurm.md.
        cluster = replace(cluster, controllers=cluster.controllers[:1])
        return cls(cluster, given["host"], given)

    @property
    def managed(self) -> bool:
        """Whether packages are the distribution's, and daemons the role's to start."""
        return bool(self.given["packages"] == DISTRIBUTION)

    @property
    def unit(self) -> str:
        """The daemon that the model has on this host; of a site, slurmctld may be elsewhere."""
        if any(node.name == self.name for node in self.cluster.nodes):
            return NODE
        return CONTROLLER if self.name == self.cluster.controllers[0][0] else ""

    def daemon(self, node: Node) -> str:
        elsewhere = self.unit == CONTROLLER and not systemd.installed(node, [CONTROLLER])
        return "" if elsewhere and not self.managed else self.unit

    @property
    def with_controller(self) -> bool:
        """Whether slurmctld's host is in the same run."""
        return self.cluster.controllers[0][0] in self.given["reached"]

    def parts(self, node: Node) -> list[Part]:
        """Everything of this host, in order. Raises PlanError."""
        unit = self.daemon(node)
        program = unit.partition(".")[0] or "scontrol"
        missing = [name for name in dict.fromkeys((program, "scontrol")) if not find_program(name)]
        if missing:
            if self.managed and node.check_mode:
                return [NotInstalled(self.unit)]
            raise PlanError(
                f"{', '.join(missing)} not installed on {self.name}: install Slurm, or write "
                "slurm_packages: distribution"
            )
        said = _version(node, program)
        version = parse_version(said)
        if version is None:
            raise PlanError(f"{program} -V prints {said[:80]!r}, and no version of Slurm")
        self.version = said.split()[-1]
        settings = self._settings(version)
        files = Files(self, settings, node, needed=unit == CONTROLLER)
        if unit == NODE and not node.check_mode:
            self._refuse_missing_programs(node)
        given, control = self.given, Control(node)
        digest = given["munge_digest"] if self.managed else ""
        found: list[Part] = [Munge(digest, given["munge_key"])]
        if self.managed:
            found += [Installed(given["installed"]), Surroundings()]

        def up() -> bool:
            return control.registered(self.name) if self.unit == NODE else control.up()

        more = (self.managed, given["restart"], up, given["wait_s"], files.sends)
        found.append(Daemon(unit, files.texts, *more))
        return [
            *found,
            files,
            Clock(given["now"], given["clock_max_offset_s"], time.time()),
            Read(self, control, files),
        ]

    def _refuse_missing_programs(self, node: Node) -> None:
        """Raise PlanError before Slurm learns of a prolog that it cannot start."""
        missing = [
            path
            for path in NODE_CHECK.values()
            if path in self.settings.values() and not os.access(node.path(path), os.X_OK)
        ]
        if missing:
            raise PlanError(
                f"{', '.join(missing)}: missing on {self.name}, and Slurm would drain it with the "
                "first job: run --tags node_check first, or set slurm_node_check: false"
            )

    def _settings(self, version: texts.Version) -> texts.Settings:
        given = self.given
        _refuse_odd_words(given, {f"kind_{kind}" for kind in self.cluster.kinds})
        programs: dict[str, Any] = NODE_CHECK if given["node_check"] else {}
        return texts.Settings(
            version,
            partition=given["partition"],
            task_prolog=TASK_PROLOG,
            **programs,
            health_check_interval_s=given["health_check_interval_s"],
            reboot_program=given["reboot_program"] or "",
            gpu_devices=given["gpu_devices"],
            config_overrides=given["config_overrides"],
            cgroups=given["cgroups"],
            extra=_extra(given["extra_settings"]),
        )

    def returned(self) -> dict[str, Any]:
        found = {"version": self.version}
        return {**found, "out_of_service": self.reasons} if self.reasons is not None else found


@dataclass(frozen=True)
class NotInstalled:
    """A host in check mode, before its packages are installed."""

    unit: str

    def plan(self, node: Node) -> Plan:
        return Plan([], [Step(self.unit or "slurm", "not installed", "as planned", lambda: None)])

    def verify(self, node: Node) -> Verdict:
        words = ("slurm_service", "installed", "not installed", differs(node.check_mode))
        return Verdict([Check(*words, self.unit)])


class Files:
    """The texts of Slurm's files by path, and what the site's files contradict."""

    def __init__(
        self, host: Host, settings: texts.Settings, node: Node, *, needed: bool = False
    ) -> None:
        self._host, self._directory = host, host.given["config_directory"]
        self.checks: list[Check] = []
        self.texts: dict[str, Optional[str]] = {}
        self.sends = False
        """Whether slurmctld sends its files to nodes that have none (configless)."""
        self._sent: dict[str, str] = {}
        main = node.read(self._path(texts.MAIN))
        if main is None and not host.managed:
            if needed:
                raise PlanError(
                    f"{self._path(texts.MAIN)} is missing: write one, or slurm_packages: "
                    "distribution"
                )
            self._of_slurmctld(settings, node)
            return
        lines: list[conf.Line] = []
        if host.managed and (main is None or _is_ours(main)):
            self.texts[self._path(texts.MAIN)] = texts.main_text(host.cluster)
        else:
            lines = self._include(main or "", node)
        self.sends = _sends(lines)
        settings = replace(settings, known=conf.known(lines))
        made = texts.texts(host.cluster, settings)
        for name in dict.fromkeys((*made, *BY_NAME)):
            self._plan(node, name, made.get(name))
        found = compare.contradictions(host.cluster, settings, lines)
        self.checks += [each.check() for each in found]
        if any(each.fatal for each in found):
            rows = "\n".join(f"{x.at}: {x.subject}: {x.remedy}" for x in found if x.fatal)
            raise PlanError(f"slurmctld does not start with both:\n{rows}", self.checks)
        host.settings = texts.written(host.cluster, settings)

    def _of_slurmctld(self, settings: texts.Settings, node: Node) -> None:
        """What slurmd should have from slurmctld, by the slurm.conf that it has from there."""
        main, host = node.read(f"{CACHE}/{texts.MAIN}"), self._host
        if main is None:
            return
        lines = conf.parse(main, f"{CACHE}/{texts.MAIN}", node.read, ours=texts.INCLUDED)
        settings = replace(settings, known=conf.known(lines))
        made = texts.texts(host.cluster, settings)
        self._sent = {name: made[name] for name in texts.INCLUDED}
        host.settings = texts.written(host.cluster, settings)

    def stale(self, node: Node) -> list[str]:
        """Files of slurmctld's host that slurmd does not have as the model says."""
        return [name for name, text in self._sent.items() if node.read(f"{CACHE}/{name}") != text]

    def _include(self, main: str, node: Node) -> list[conf.Line]:
        """Include the files in the site's slurm.conf; its lines."""
        path, include = self._path(texts.MAIN), texts.include_lines()
        try:
            self.texts[path] = replace_block(main, include, BLOCK)
            rest = replace_block(main, [], BLOCK)
        except ValueError as error:
            raise PlanError(f"{path}: {error}") from error
        return conf.parse(rest, path, node.read, ours=texts.INCLUDED)

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def _plan(self, node: Node, name: str, text: Optional[str]) -> None:
        path = self._path(name)
        now = node.read(path)
        if name in BY_NAME and now and now.strip() and not _is_ours(now):
            if text is not None:
                by_hand = f"compare {path} with docs/slurm.md, and remove it"
                words = ("slurm_file", "the role's", "the site's", FAILED, path)
                self.checks.append(Check(*words, by_hand=by_hand))
        elif text is not None or now is not None:
            self.texts[path] = text

    def plan(self, node: Node) -> Plan:
        return Plan()

    def verify(self, node: Node) -> Verdict:
        return Verdict([*self.checks, *self._programs(node)])

    def _programs(self, node: Node) -> list[Check]:
        """Programs that settings name, on a node that runs them."""
        if self._host.unit != NODE:
            return []
        found = []
        for key in PROGRAMS:
            path = self._host.settings.get(key)
            if path:
                there = os.access(node.path(path), os.X_OK)
                # Another layer of the same run may install it.
                status = OK if there else differs(node.check_mode)
                said = "executable" if there else "missing"
                found.append(Check("slurm_program", "executable", said, status, f"{key}={path}"))
        return found


def _sends(lines: Iterable[conf.Line]) -> bool:
    found = conf.known(lines).get("slurmctldparameters", "")
    return "enable_configless" in found.lower().split(",")


def _refuse_odd_words(given: Mapping[str, Any], taken: set[str]) -> None:
    """Raise PlanError for what slurmctld reads as other words, and then does not start."""
    for name in ("config_directory", "gpu_devices", "reboot_program"):
        if not re.fullmatch(r"[A-Za-z0-9_./+@:-]*", given[name] or ""):
            raise PlanError(f"slurm_{name}: {given[name]!r} is no plain path")
    partition = given["partition"]
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", partition) or partition in {"DEFAULT", *taken}:
        raise PlanError(f"slurm_partition: {partition!r} cannot be the partition of all nodes")


def _extra(given: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of slurm.conf. Raises PlanError for what would be another line."""
    for key, value in given.items():
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,63}", str(key)):
            raise PlanError(f"slurm_extra_settings: {str(key)[:80]!r} is no name of a parameter")
        if not re.fullmatch(r"[\x20-\x7e]*", str(value)):
            raise PlanError(f"slurm_extra_settings: {key} has control or non-ASCII characters")
        if str(value).rstrip().endswith("\\"):
            raise PlanError(f"slurm_extra_settings: {key} ends with a backslash, which joins lines")
    return dict(given)


def _version(node: Node, program: str) -> str:
    """What a program prints for -V, for which commands, unlike daemons, need a slurm.conf."""
    if program != "scontrol":
        return node.look([program, "-V"]).stdout.strip()
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
        file.write("ClusterName=none\nSlurmctldHost=localhost\n")
        file.flush()
        return node.look(["env", f"SLURM_CONF={file.name}", program, "-V"]).stdout.strip()


def _is_ours(text: str) -> bool:
    return text.startswith(f"# {HEADER}")


@dataclass(frozen=True)
class Clock:
    """The clock in comparison with the controller's, which is the same for all hosts."""

    now: Optional[float]
    max_offset_s: float
    here: float
    """This host's time when its module started: starting Slurm may take longer than the limit."""

    def plan(self, node: Node) -> Plan:
        return Plan()

    def verify(self, node: Node) -> Verdict:
        if self.now is None:
            return Verdict()
        offset = round(self.here - self.now, 1)
        wanted = f"within {self.max_offset_s:g} s of the controller's"
        good = abs(offset) <= self.max_offset_s
        reason = "" if good else "munge rejects credentials of hosts with different clocks"
        status = OK if good else FAILED
        return Verdict([Check("slurm_clock", wanted, f"{offset:+g} s", status, "", reason)])


class Read:
    """What slurmctld reports, and on its host what the model drains."""

    def __init__(self, host: Host, control: Control, files: Files) -> None:
        self._host, self._control, self._files = host, control, files

    def plan(self, node: Node) -> Plan:
        host, control = self._host, self._control
        if host.unit != CONTROLLER:
            return Plan()
        act = partial(self._drain, node)
        try:
            drains = Drains.between(host.cluster.nodes, control.nodes())
        except SlurmError:  # it does not run, or does not accept its files
            step = Step("drained nodes", "unknown", "as the model", act, silent=True)
            return Plan([], [] if node.check_mode else [step])
        # In a run, slurmctld may be restarted first, and take some from its files.
        return Plan([], [drains.step(verb, act) for verb in drains.verbs])

    def _drain(self, node: Node) -> None:
        """Drain and resume what differs now, also while slurmctld starts. Raises StepError."""
        said = ""

        def done() -> bool:
            nonlocal said
            try:
                Drains.between(self._host.cluster.nodes, self._control.nodes()).apply(self._control)
            except SlurmError as error:
                said = str(error)
                return False
            return True

        if not self._until(node, done):
            raise StepError(said)

    def verify(self, node: Node) -> Verdict:
        """In a run, slurmctld's own host may be restarting it."""
        checks: list[Check] = []

        def answered() -> bool:
            checks[:] = self._checks(node)
            return not any(x.name == ANSWERS and x.status != OK for x in checks)

        if self._host.with_controller and not node.check_mode:
            self._until(node, answered)
        else:
            answered()
        return Verdict(checks)

    def _checks(self, node: Node) -> list[Check]:
        host, control = self._host, self._control
        answers = _answers(control)
        if answers.status != OK or not host.unit:
            return [answers]
        try:
            found = self._of_node(node) if host.unit == NODE else self._of_all(node)
        except SlurmError as error:
            return [Check(ANSWERS, "answers", None, FAILED, reason=str(error))]
        return [answers, *found]

    def _of_node(self, node: Node) -> list[Check]:
        """This node, as slurmctld knows it; in a run, after slurmctld has started."""
        host, control = self._host, self._control
        wanted = [each for each in host.cluster.nodes if each.name == host.name]
        checks: list[Check] = []

        def right() -> bool:
            version = control.config().get("slurm_version", "")
            found = control.nodes(host.name)
            checks[:] = compare.nodes(wanted, found, version, check_mode=node.check_mode)
            stale = self._files.stale(node)
            if stale:
                reason = f"not as the model says, in {CACHE}"
                late = Check("slurm_loaded", [], stale, FAILED, NODE, reason, by_hand=SEND)
                checks.append(late)
            if host.with_controller:  # which drains nodes, and reports them
                checks[:] = [each for each in checks if each.name != DRAINED]
            return not any(map(_unheard, found.values())) and (
                node.check_mode or not failures(checks)
            )

        self._until(node, right)
        return _patient(checks)

    def _of_all(self, node: Node) -> list[Check]:
        host, control = self._host, self._control
        reached = {*host.given["reached"]}
        found: dict[str, NodeState] = {}

        def heard() -> bool:
            """When slurmctld starts, all nodes are unknown."""
            found.update(control.nodes())
            return not any(_unheard(found[name]) for name in reached & found.keys())

        self._until(node, heard)
        host.reasons = control.reasons()
        running = control.config()
        version = running.get("slurm_version", "")
        every = compare.nodes(host.cluster.nodes, found, version, check_mode=node.check_mode)
        of_nodes = [
            replace(each, at=each.subject)
            for each in every
            if each.subject not in reached or each.name == DRAINED
        ]
        return [
            *compare.topology(host.cluster, control.topology(), check_mode=node.check_mode),
            *compare.config(host.settings, running, check_mode=node.check_mode),
            *compare.strangers(host.cluster, found),
            *_patient(of_nodes),
        ]

    def _until(self, node: Node, condition: Callable[[], bool]) -> bool:
        wait_s = self._host.given["wait_s"]
        wait_s = min(wait_s, CHECK_WAIT_S) if node.check_mode else wait_s
        return until(condition, wait_s, POLL_S, clock=node.clock, sleep=node.sleep)


def _patient(checks: Iterable[Check]) -> list[Check]:
    """A node that others drained waits for them; only verification fails for it."""
    return [
        replace(each, status=PENDING)
        if each.name == DRAINED and each.status == FAILED and each.by_hand
        else each
        for each in checks
    ]


def _unheard(state: NodeState) -> bool:
    """Whether its slurmd has not registered since slurmctld started."""
    words = state.state.split("+")
    return "UNKNOWN" in words and "INVALID_REG" not in words


def _answers(control: Control) -> Check:
    try:
        control.config()
    except SlurmError as error:
        # slurmctld closes the connection when munge rejects the credential.
        hint = "; its munge key or clock differs from slurmctld's" if REJECTED in str(error) else ""
        return Check(ANSWERS, "answers", None, FAILED, reason=f"{error}{hint}")
    return Check(ANSWERS, "answers", "answers", OK)
