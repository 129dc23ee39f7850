# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Metrics of the rails that node_exporter has not: what the RDMA devices count (hw_counters),
pauses, discards and bytes per priority, and when certificates end.

Names of counters: nic/health.py. Times of pauses are in microseconds (mlx5: counters.rst).
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from ..core.commands import CommandError, Runner
from ..core.text import one_line
from ..hardware import Machine
from ..nic import health
from ..nic.port_settings import Ethtool

PREFIX = "baremetal_"
COUNTER, GAUGE = "counter", "gauge"
METRICS: Mapping[str, tuple[str, str]] = {
    "node_check_healthy": (GAUGE, "1 without faults, else 0."),
    "node_check_finding": (GAUGE, "Failed checks, with the next step."),
    "node_check_time_seconds": (GAUGE, "Time of the last run (UNIX)."),
    "node_check_duration_seconds": (GAUGE, "Duration of the last run."),
    "node_link_downs_total": (COUNTER, "How often the rail lost its link, over boots."),
    "node_symbol_errors_total": (COUNTER, "Symbol errors of the rail, over boots."),
    "rail_info": (GAUGE, "RDMA device of the rail, and its leaf and port in the model."),
    "rail_pause_frames_total": (COUNTER, "Pause frames; priority link: of the whole link."),
    "rail_pause_seconds_total": (COUNTER, "Time for which frames were paused."),
    "rail_discards_total": (COUNTER, "Frames of a priority that were lost on arrival."),
    "rail_lost_packets_total": (COUNTER, "Frames of any priority that were lost, by counter."),
    "rail_bytes_total": (COUNTER, "Bytes of a priority, with RDMA, which the kernel counts not."),
    "certificate_end_time_seconds": (GAUGE, "End of a certificate (UNIX)."),
    **{
        f"rdma_{name}_total": (COUNTER, f"{name} of the RDMA device (hw_counters).")
        for name in health.EVENTS
    },
}
"""Type and help, by name without PREFIX."""
MOST = 20_000
"""Greatest number of samples of a node; 8 rails have about 800."""
LARGEST = (1 << 64) - 1
_PAUSE = re.compile(r"([rt]x)_(?:prio([0-7])|global)_pause(_duration)?")
_BYTES = re.compile(r"([rt]x)_prio([0-7])_bytes")
_DISCARD = re.compile(r"rx_prio([0-7])_(?:(buf|cong)_)?discards?")
_BECAUSE = {"buf": "buffer", "cong": "congestion", None: "any"}
SSH_CERTIFICATES: Mapping[str, str] = {
    "ssh_user": "etc/baremetal-mpi-roce/ssh/id_ed25519-cert.pub",
    "ssh_host": "etc/baremetal-mpi-roce/ssh/ssh_host_ed25519_key-cert.pub",
}
TLS_CERTIFICATE = "etc/baremetal-mpi-roce/monitoring/tls.pem"
_SSH_TYPE = b"ssh-ed25519-cert-v01@openssh.com"
_FOREVER = 1 << 53
"""Times from here on mean that a certificate has no end."""


@dataclass(frozen=True)
class Sample:
    name: str
    """A key of METRICS."""
    value: float
    labels: Mapping[str, str]

    def as_list(self) -> list[Any]:
        return [self.name, self.value, dict(self.labels)]


def parsed(rows: Any) -> list[Sample]:
    """Samples from a look's state, in another process; others are left out."""
    found = []
    for row in rows if isinstance(rows, list) else ():
        try:
            name, value, labels = row
            found.append(Sample(name, 0 + value, dict(labels)))
        except (TypeError, ValueError):
            continue
    return [sample for sample in found if sample.name in METRICS][:MOST]


def ports(rail: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The rail, or the ports of its bond."""
    return rail.get("members") or [rail]


def of_port(port: Mapping[str, Any], machine: Machine, sys: Path, ethtool: Ethtool) -> list[Sample]:
    """Counters of a port; those that its device and driver do not have are left out."""
    name = str(port["interface"])
    device = machine.device_of(name)
    labels = {"rail": name, "device": device.name if device is not None else ""}
    place = {key: str(port.get(key) or "") for key in ("leaf", "leaf_port")}
    found = [Sample("rail_info", 1, {**labels, **place})]
    if device is not None and device.name:
        read = health.of_device(device.name, device.port, sys, health.EVENTS)
        found += [Sample(f"rdma_{key}_total", count, labels) for key, count in read.items()]
    with contextlib.suppress(OSError):  # no such request, as on a virtual interface
        found += _of_ethtool(ethtool.statistics(name), labels)
    return found


def _of_ethtool(counters: Mapping[str, int], labels: Mapping[str, str]) -> Iterator[Sample]:
    for name, count in counters.items():
        if match := _PAUSE.fullmatch(name):
            way, priority, duration = match.groups()
            own = {**labels, "direction": way, "priority": priority or "link"}
            if duration:
                yield Sample("rail_pause_seconds_total", count / 1e6, own)
            else:
                yield Sample("rail_pause_frames_total", count, own)
        elif match := _BYTES.fullmatch(name):
            own = {**labels, "direction": match[1], "priority": match[2]}
            yield Sample("rail_bytes_total", count, own)
        elif match := _DISCARD.fullmatch(name):
            own = {**labels, "priority": match[1], "reason": _BECAUSE[match[2]]}
            yield Sample("rail_discards_total", count, own)
        elif name in health.LOST:
            yield Sample("rail_lost_packets_total", count, {**labels, "counter": name})


# Certificates


def of_certificates(root: Path, run: Runner) -> list[Sample]:
    """The end of each certificate of the collection on this node."""
    ends = {name: ssh_end(root / path) for name, path in SSH_CERTIFICATES.items()}
    ends["tls"] = tls_end(root / TLS_CERTIFICATE, run)
    return [
        Sample("certificate_end_time_seconds", end, {"certificate": name})
        for name, end in ends.items()
        if end is not None
    ]


def ssh_end(path: Path) -> Optional[float]:
    """The end of an SSH certificate (PROTOCOL.certkeys); None without one, or without an end."""
    try:
        with path.open("rb") as stream:
            blob = base64.b64decode(stream.read(1 << 16).split()[1], validate=True)
        kind, rest = _string(blob)
        for _field in ("nonce", "public key"):
            _value, rest = _string(rest)
        rest = rest[12:]  # serial number, type
        for _field in ("key id", "principals"):
            _value, rest = _string(rest)
        _begin, end = struct.unpack_from(">QQ", rest)
    except (OSError, ValueError, IndexError, binascii.Error, struct.error):
        return None
    return float(end) if kind == _SSH_TYPE and end < _FOREVER else None


def _string(blob: bytes) -> tuple[bytes, bytes]:
    (length,) = struct.unpack_from(">I", blob)
    return blob[4 : 4 + length], blob[4 + length :]


def tls_end(path: Path, run: Runner) -> Optional[float]:
    if not path.exists():
        return None
    try:
        told = run(["openssl", "x509", "-noout", "-enddate", "-in", str(path)]).stdout
        import ssl  # not in a prolog

        return float(ssl.cert_time_to_seconds(told.strip().partition("notAfter=")[2]))
    except (CommandError, ValueError):
        return None


# The text format of Prometheus


def text(samples: Iterable[Sample]) -> str:
    """Samples by metric, each metric once and with its help. A sample with the labels of an earlier
    one is left out, and one whose value no counter can have: node_exporter would refuse the whole
    file."""
    by_name: dict[str, dict[str, float]] = {}
    for sample in samples:
        # Also false for NaN.
        if not (0 if METRICS[sample.name][0] == COUNTER else -LARGEST) <= sample.value <= LARGEST:
            continue
        labels = ",".join(f'{key}="{label(value)}"' for key, value in sample.labels.items())
        series = f"{{{labels}}}" if labels else ""
        by_name.setdefault(sample.name, {}).setdefault(series, sample.value)
    lines = []
    for name in (each for each in METRICS if each in by_name):
        kind, what = METRICS[name]
        lines += [f"# HELP {PREFIX}{name} {what}", f"# TYPE {PREFIX}{name} {kind}"]
        lines += [f"{PREFIX}{name}{labels} {number(v)}" for labels, v in by_name[name].items()]
    return "".join(f"{line}\n" for line in lines)


def number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.3f}"


def label(value: Any) -> str:
    escaped = one_line(str(value))[:200].replace("\\", "\\\\").replace('"', '\\"')
    return escaped.encode("ascii", "replace").decode()


def as_rows(samples: Sequence[Sample]) -> list[list[Any]]:
    return [sample.as_list() for sample in samples[:MOST]]
