# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The looks of `node-check`: the parts of the layers read the node in check mode, so that a fault
has the same check as in playbooks/verify.yml.

What a prolog does not need is imported by the looks that need it."""

from __future__ import annotations

import os
import socket
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Optional

from ..core import mounts as table
from ..core import systemd
from ..core.checks import FAILED, OK, Check, compare, not_applicable
from ..core.commands import Runner, find_program
from ..core.machine import NO_MOUNTS
from ..core.part import Node
from ..hardware import survey
from ..hardware.compare import compare_with_model
from ..nic.port_settings import Ethtool
from ..rails.backends import READY, backend_of
from ..rails.management import ManagementNetwork
from ..rails.plan import plan_rails
from ..rails.survey import SERVICE, RailsRequest, Survey
from . import CHECK, EPILOG, PERIODIC, PROLOG, counters, kernel, rates
from .parallel import Look
from .settings import Settings

SPACE = "node_space"
STORAGE_MOUNT, STORAGE_AUTOMOUNT, STORAGE_DROP_IN = (
    "storage_mount", "storage_automount", "storage_drop_in",
)  # fmt: skip
LOCAL = ("/", "/var", "/tmp", "/run")
UNITS = "etc/systemd/system"
MARK = "Part=client-mount"
"""In the mount units of the layer storage (storage/units.py)."""
MOST_BYTES = 1 << 16
"""Of a unit."""
PYNVML = "usr/local/libexec/baremetal-mpi-roce/pynvml.py"
TIMESYNCD = "systemd-timesyncd.service"
QUICK, WHOLE = (PROLOG, PERIODIC, CHECK), (PERIODIC, CHECK)
SAMPLES = "samples"
"""Key of a look's state: rows of counters.Sample."""
Told = tuple[Sequence[Check], Mapping[str, Any]]
NAMES_TABLE = "/etc/hosts"


@dataclass(frozen=True)
class Sight:
    """What looks read: the node, the settings, the state of earlier runs, and the mode."""

    node: Node
    settings: Settings
    mode: str = CHECK
    state: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    finished: str = ""
    """The Slurm job whose epilog this is."""
    now: Callable[[], float] = time.time
    ethtool: Optional[Ethtool] = None

    def on(self, run: Runner) -> Node:
        return replace(self.node, run=run, looks=run)

    @property
    def uptime_s(self) -> float:
        text = (self.node.root / "proc/uptime").read_text(encoding="ascii")
        return float(text.split()[0])


def looks(sight: Sight) -> list[Look]:
    """The looks of this mode, in the order in which they are reported."""
    settings, mode = sight.settings, sight.mode
    known: list[tuple[Collection[str], str, Callable[[Sight, Runner], Told], str]] = [
        (QUICK if settings.rails else (), "rails", rails, ""),
        (QUICK if settings.rails else (), "hardware", hardware, ""),
        (WHOLE if settings.rails else (), "contract", contract, ""),
        (QUICK if settings.rails else (), "rates", link_rates, ""),
        (WHOLE if settings.rails else (), "counters", rail_counters, ""),
        (WHOLE, "certificates", certificates, ""),
        (WHOLE, "gpus", gpus, "gpu_driver"),
        (QUICK, "kernel", kernel_messages, ""),
        (WHOLE, "clock", clock, "time_sync"),
        (WHOLE, "files", files, ""),
        (WHOLE, "system", system, ""),
        (QUICK, "space", space, ""),
        (WHOLE, "units", mount_units, ""),
        ((EPILOG, *WHOLE), "leftovers", left, ""),
    ]
    found = [
        Look(name, _bound(act, sight), *([hangs] if hangs else []))
        for modes, name, act, hangs in known
        if mode in modes
    ]
    for point in points(sight) if mode in QUICK else ():
        act = _bound(mounted, sight, point)
        found.append(Look(f"mount {point}", act, STORAGE_MOUNT, point))
    return found


def _bound(act: Callable[..., Told], sight: Sight, *more: str) -> Callable[[Runner], Told]:
    return lambda run: act(sight, run, *more)


# Rails and NICs


def rails(sight: Sight, run: Runner) -> Told:
    """Name, link, address, MTU, routes and rules of each rail, and its configuration."""
    node, settings = sight.on(run), sight.settings
    option = settings.rails_option
    backend = backend_of(option("backend"), node)
    if any(rail.get("members") for rail in settings.rails):
        from ..rails.bonds import Bonds

        return Bonds(settings.rails, list(backend.read())).verify(node).checks, {}
    plan = plan_rails(
        settings.rails,
        routing=option("routing"),
        table_base=option("table_base"),
        priority_base=option("priority_base"),
        networks=option("networks"),
    )
    management = ManagementNetwork.of(settings.management)
    request = RailsRequest(plan, option("arp"), check_path=False, management=management)
    found = Survey(request, backend, node)
    service = compare(SERVICE, READY, found.service, subject=backend.unit)
    of_rails = [check for rail in plan for check in found.checks_of(rail, check_mode=False)]
    return [service, *of_rails], {}


def hardware(sight: Sight, run: Runner) -> Told:
    """NIC, PCIe link, RDMA device, speed, GPU and NUMA node of each rail."""
    settings, machine = sight.settings, survey(sight.node.root / "sys")
    return compare_with_model(machine, settings.rails, settings.gpus), {}


def contract(sight: Sight, run: Runner) -> Told:
    """The settings of NICs that the role roce_rails recorded, without those of the firmware."""
    from ..rails import boot_program

    node = replace(sight.on(run), check_mode=True)
    saved = boot_program.saved_state(node)
    if saved is None:
        return [], {}
    nics, wrong = boot_program.once({**saved, "firmware": False}, node, find_program)
    held = [check for check in nics.checks(check_mode=True) if check.status == OK]
    return [*held, *wrong], {}


def link_rates(sight: Sight, run: Runner) -> Told:
    settings, root = sight.settings, sight.node.root
    limit = settings.threshold
    limits = {
        rates.LINK_DOWNS: (limit("link_downs_per_hour"), limit("link_downs_per_day")),
        rates.ERRORS: (limit("symbol_errors_per_hour"), None),
    }
    ethtool, net = sight.ethtool or Ethtool(), root / "sys/class/net"
    names = [str(rail["interface"]) for rail in settings.rails]
    present = [name for name in names if (net / name).exists()]
    physical = [name for name in present if (net / name / "device").exists()]
    readings = {name: rates.read(root, name, ethtool) for name in physical}
    aside = [
        not_applicable(rates.LINK_DOWNS, None, "a virtual interface has no cable", subject=name)
        for name in present
        if name not in physical
    ]
    boot, known = sight.node.boot_id, sight.state.get("rates", {})
    rows = list(rates.evaluated(known, readings, limits, boot, sight.now(), sight.uptime_s))
    checks = [check for _key, _series, check in rows]
    return [*checks, *aside], {key: series for key, series, _check in rows}


def rail_counters(sight: Sight, run: Runner) -> Told:
    """Counters for the metrics, which no check compares."""
    sys, ethtool = sight.node.root / "sys", sight.ethtool or Ethtool()
    machine = survey(sys)
    ports = [{**rail, **port} for rail in sight.settings.rails for port in counters.ports(rail)]
    read = [counters.of_port(port, machine, sys, ethtool) for port in ports]
    return [], {SAMPLES: counters.as_rows([sample for each in read for sample in each])}


def certificates(sight: Sight, run: Runner) -> Told:
    return [], {SAMPLES: counters.as_rows(counters.of_certificates(sight.node.root, run))}


# GPUs


def gpus(sight: Sight, run: Runner) -> Told:
    from .. import gpu

    node, settings = sight.on(run), sight.settings
    driver = settings.gpu_driver
    if not driver or not settings.gpus or node.container is not None:
        return [], {}
    given: dict[str, Any] = {k: v for k, v in settings.gpu_health.items() if v is not None}
    given.update({key: frozenset(given[key]) for key in ("xids", "xids_ignored") if key in given})
    target = gpu.GpuTarget(
        driver=str(driver.get("version") or ""),
        gpus=settings.gpus,
        rails=settings.rails,
        managed=False,
        open_modules=driver.get("modules", "open") == "open",
        gpudirect=settings.gpudirect,
        **given,
    )
    found = gpu.read(node, node.root, node.path(PYNVML))
    return gpu.evaluate(found, target, node).checks, {}


def kernel_messages(sight: Sight, run: Runner) -> Told:
    """Messages of NICs and, before a job, of GPUs; the look at GPUs reads them from the journal."""
    node, settings = sight.node, sight.settings
    if node.container is not None:
        reason = node.not_here("the kernel's messages are its host's")
        return [not_applicable(kernel.NIC, "none", reason)], {}
    messages = kernel.read(node.root)
    events = kernel.merged(
        sight.state.get("kernel", {}), kernel.nic_events(messages), node.boot_id, sight.uptime_s
    )
    by_pci = {str(rail.get("pci") or ""): str(rail["interface"]) for rail in settings.rails}
    checks = kernel.judge(events, by_pci)
    if sight.mode == PROLOG and settings.gpus and settings.gpu_driver:
        from ..gpu.evaluation import judge_xids
        from ..gpu.reading import of_log

        health = settings.gpu_health
        ignored = frozenset(health.get("xids_ignored") or ())
        listed = health.get("xids")
        checks += judge_xids(
            of_log([message.text for message in messages]),
            None if listed is None else frozenset(listed),
            ignored,
        )
    return checks, kernel.remembered(events, node.boot_id)


# Mounts, and space


def points(sight: Sight) -> list[str]:
    """Mount points of the layer storage and those of the settings; no mount is accessed."""
    if sight.node.container is not None:
        return []
    ours = [_value(text, "Where") for _unit, text in _units(sight.node, "mount")]
    return list(dict.fromkeys(filter(None, [*ours, *sight.settings.mounts])))


def mounted(sight: Sight, run: Runner, point: str) -> Told:
    """Whether the point is mounted and responds. Only before a job, as the job will, the access
    mounts what waits for its first use."""
    mounts = table.read(sight.node.root)
    mount = table.on(mounts, point)
    if mount is None and sight.mode != PROLOG and table.trap(mounts, point) is not None:
        return [Check(STORAGE_MOUNT, ANY, "waits for its first use", OK, point)], {}
    try:
        os.statvfs(sight.node.path(point))
        os.scandir(sight.node.path(point)).close()
    except PermissionError:  # it responds: its server gives root no rights (root_squash)
        pass
    except OSError as error:
        return [Check(STORAGE_MOUNT, ANY, str(error.strerror), FAILED, point, str(error))], {}
    mount = table.on(table.read(sight.node.root), point)
    if mount is None:
        reason = f"nothing is mounted at {point}: systemctl status '{point}', then mount it"
        return [Check(STORAGE_MOUNT, ANY, "not mounted", FAILED, point, reason)], {}
    return [Check(STORAGE_MOUNT, ANY, mount.text, OK, point)], {}


ANY = "mounted, responds"


def mount_units(sight: Sight, run: Runner) -> Told:
    """The automount units of the layer storage, and drop-ins that change its units."""
    node = sight.on(run)
    if node.container is not None:
        reason = node.not_here(NO_MOUNTS)
        return [not_applicable(STORAGE_AUTOMOUNT, "enabled, active", reason)], {}
    checks = []
    for kind in ("mount", "automount"):
        for unit, text in _units(node, kind):
            point = _value(text, "Where")
            shown = systemd.show(node, unit, ["ActiveState", "UnitFileState", "DropInPaths"])
            drops = shown.get("DropInPaths", "").split()
            checks.append(compare(STORAGE_DROP_IN, [], drops, subject=point))
            if kind == "automount":
                state = f"{shown.get('UnitFileState')}, {shown.get('ActiveState')}"
                checks.append(compare(STORAGE_AUTOMOUNT, "enabled, active", state, subject=point))
    return checks, {}


def _units(node: Node, kind: str) -> Iterator[tuple[str, str]]:
    """Units of the layer storage; it wrote no directory, pipe, or file of GBs with such a name."""
    for path in sorted(node.path(UNITS).glob(f"*.{kind}")):
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:
                regular = stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
                text = stream.read(MOST_BYTES).decode("utf-8", "replace") if regular else ""
        except OSError:
            continue
        if MARK in text:
            yield path.name, text


def _value(text: str, key: str) -> str:
    lines = (line for line in text.split("\n") if line.startswith(f"{key}="))
    return next(lines, "=").partition("=")[2]


def space(sight: Sight, run: Runner) -> Told:
    """Free space and inodes of local file systems."""
    least = sight.settings.threshold("free_percent")
    wanted, checks, seen = f"at least {least:g} %", [], set()
    for point in LOCAL:
        path = sight.node.path(point)
        try:
            device, found = path.stat().st_dev, os.statvfs(path)
        except FileNotFoundError:
            continue
        if device in seen or not found.f_blocks:
            continue
        seen.add(device)
        free = {"space": 100 * found.f_bavail / found.f_blocks}
        if found.f_files:
            free["inodes"] = 100 * found.f_favail / found.f_files
        low = {kind: share for kind, share in free.items() if share < least}
        shown = ", ".join(f"{share:.1f} % {kind}" for kind, share in (low or free).items())
        reason = f"only {shown} are free in {point}: see du -xh {point}" if low else ""
        checks.append(Check(SPACE, wanted, shown, FAILED if low else OK, point, reason))
    return checks, {}


# The system


def clock(sight: Sight, run: Runner) -> Told:
    from ..os_baseline.services import ChronyClock

    node = sight.on(run)
    other = node.container is None and systemd.installed(node, [TIMESYNCD]) is not None
    if other and systemd.active(node, TIMESYNCD):
        words = ["timedatectl", "show", "--property=NTPSynchronized", "--value"]
        found = run(words).stdout.strip()
        return [compare("time_sync", "yes", found, reason="see timedatectl timesync-status")], {}
    return ChronyClock().verify(replace(node, check_mode=True)).checks, {}


def files(sight: Sight, run: Runner) -> Told:
    """Files that layers wrote, by the fingerprints that they recorded."""
    from ..core import written

    found = list(written.edited(sight.node.root))
    wanted = "as written"
    if not found:
        return [Check("file", wanted, wanted, OK)], {}
    return [
        Check(
            "names_in_table" if name == NAMES_TABLE else "file",
            wanted,
            what,
            FAILED,
            name,
            f"run the layer: playbooks/site.yml --tags {layer}",
        )
        for layer, name, what in found
    ], {}


def system(sight: Sight, run: Runner) -> Told:
    """Host name, and kernel parameters of the file that the layer os wrote."""
    from ..os_baseline import kernel_values

    node, host = sight.on(run), sight.settings.host
    checks = []
    if host:
        name = socket.gethostname().partition(".")[0]
        checks.append(compare("host_name", host, name, subject=host))
    text = node.read(kernel_values.SYSCTL_FILE)
    values = {} if text is None else {_dotted(key): v for _n, key, v in kernel_values.parse(text)}
    return [*checks, *kernel_values.Sysctls(values).verify(node).checks], {}


def _dotted(key: str) -> str:
    return key.translate(str.maketrans("./", "/."))


def left(sight: Sight, run: Runner) -> Told:
    from . import leftovers

    node, limit = sight.on(run), sight.settings.threshold
    found = leftovers.read(node.root)
    checks = [
        leftovers.of_processes(found, sight.finished),
        leftovers.of_memory(node.root, found, limit("shm_mib")),
    ]
    if sight.settings.gpu_driver and sight.settings.gpus and node.container is None:
        checks += leftovers.of_gpus(run, limit("gpu_memory_mib"))
    return checks, {}
