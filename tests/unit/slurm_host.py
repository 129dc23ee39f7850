# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A host with Slurm in a separate directory: units of systemd, munge, scontrol and sinfo.

Outputs are those of Slurm 22.05.8 and munge 0.5.15 of Debian 12 on virtual nodes.
"""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.engine import Outcome, settle
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.slurm import hostlist, munge
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.slurm.cluster import (
    Cpu,
    Hardware,
    SlurmCluster,
    SlurmNode,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.slurm.host import Host as SlurmRole
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.slurm.topology import Switch
from ansible_collections.baremetal.mpi_roce.plugins.modules.slurm import ARGUMENTS

from tests.unit.host import Host

KEY = bytes(range(256)) * 4
"""With carriage returns, and bytes that are not UTF-8."""
HARDWARE = Hardware("", Cpu(2, 4, 1, 1024))
NODES = tuple(
    SlurmNode(f"node{number:02d}", f"10.246.0.1{number}", HARDWARE, "rack_r01")
    for number in (1, 2, 3, 4)
)
CLUSTER = SlurmCluster(
    "virtual-slurm",
    (("launcher01", "10.246.0.10"), ("launcher02", "10.246.0.9")),
    NODES,
    (
        Switch("set01", 0, ("node01", "node02")),
        Switch("set02", 0, ("node03", "node04")),
        Switch("fabric01", 1, (), ("set01", "set02")),
    ),
)
UNITS = ("munge.service", "slurmctld.service", "slurmd.service")
SPECIFICATION: dict[str, Any] = dict(ARGUMENTS)
DEFAULTS: dict[str, Any] = {
    **{name: of.get("default") for name, of in SPECIFICATION.items()},
    "packages": "distribution",
    "munge_digest": munge.digest(KEY),
    "munge_key": base64.b64encode(KEY).decode(),
    "wait_s": 0.0,
}
NODE_LINE = (
    "NodeName={name} Arch=x86_64 CoresPerSocket=4  CPUAlloc=0 CPUEfctv=8 CPUTot=8 CPULoad=3.91 "
    "AvailableFeatures=rack_r01 ActiveFeatures=rack_r01 Gres=(null) NodeAddr={address} "
    "NodeHostName={name} Version=22.05.8 OS=Linux 6.18.44 #1 SMP  RealMemory=1024 AllocMem=0 "
    "FreeMem=20714 Sockets=2 Boards=1 State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A "
    "MCS_label=N/A Partitions=all  BootTime=2026-11-29T08:45:34{reason}\n"
)
TOPOLOGY = """\
SwitchName=set01 Level=0 LinkSpeed=1 Nodes=node[01-02]
SwitchName=set02 Level=0 LinkSpeed=1 Nodes=node[03-04]
SwitchName=fabric01 Level=1 LinkSpeed=1 Nodes=node[01-04] Switches=set[01-02]
"""
DECODED = """\
STATUS:           Success (0)
ENCODE_HOST:      node01 (10.246.0.11)
ENCODE_TIME:      2026-11-29 08:55:01 +0000 (1795942501)
"""


class SlurmHost(Host):
    """One host of a cluster whose slurmctld has read the files of this host."""

    layer = "slurm"

    def __init__(self, root: Path, name: str, cluster: SlurmCluster = CLUSTER) -> None:
        super().__init__(root)
        self.name, self.cluster = name, cluster
        self.states = dict.fromkeys(UNITS, "disabled, inactive")
        self.started: dict[str, float] = {}
        self.reloaded: dict[str, float] = {}
        self.node_states = {node.name: "IDLE" for node in cluster.nodes}
        self.reasons: dict[str, str] = {}
        self.limits = {"": "infinity", "1": "unlimited", "77": "unlimited"}
        """LimitMEMLOCK of slurmd, and the limits of processes."""
        self.decoded = DECODED
        self.resumes_at_restart = False
        self.refused = range(0)
        """Which of the next calls of `scontrol show` find a slurmctld that is restarted."""
        for unit in UNITS:
            self.write(f"lib/systemd/system/{unit}", "[Service]\n")
        for name in ("usr/local/libexec/baremetal-mpi-roce/task-prolog", "sbin/reboot"):
            self.write(name, "#!/bin/sh\n").chmod(0o755)
        for name in ("slurmctld", "slurmd"):
            (root / "var/lib/slurm" / name).mkdir(parents=True)
        self.write("etc/munge/munge.key", "another key, made by the package of munge").chmod(0o400)

    def settle(self, *, check_mode: bool = False, **given: Any) -> Outcome:
        self.role = SlurmRole.of(self.arguments(**given))
        for pid in ("1", "77"):
            line = f"Max locked memory         {self.limits[pid]}  {self.limits[pid]}  bytes\n"
            self.write(f"proc/{pid}/limits", line)
        node = self.node(check_mode)
        return settle(self.role.parts(node), node)

    def arguments(self, **given: Any) -> dict[str, Any]:
        cluster = {"cluster": self.cluster.as_text(), "host": self.name}
        everyone = [node.name for node in self.cluster.nodes]
        return {**DEFAULTS, **cluster, "reached": everyone, "now": time.time(), **given}

    def age(self, seconds: float) -> None:
        """Let time pass since everything was written and started."""
        for path in self.root.rglob("*"):
            if path.is_file():
                status = path.stat()
                os.utime(path, (status.st_atime, status.st_mtime - seconds))
        for table in (self.started, self.reloaded):
            table.update({unit: at - seconds for unit, at in table.items()})

    # Programs

    def _systemctl_show(self, words: Sequence[str]) -> tuple[int, str]:
        unit, keys = words[2], [word for last, word in zip(words, words[1:]) if last == "-p"]
        at_boot, now = self.states[unit].split(", ")
        changed = max(self.started.get(unit, 0), self.reloaded.get(unit, 0))
        values: Mapping[str, str] = {
            "UnitFileState": at_boot,
            "ActiveState": now,
            "ActiveEnterTimestamp": f"@{self.started[unit]:.0f}" if unit in self.started else "",
            "StateChangeTimestamp": f"@{changed:.0f}" if changed else "",
            "MainPID": "77" if now == "active" else "0",
            "LimitMEMLOCK": self.limits[""],
        }
        return 0, "".join(f"{key}={values[key]}\n" for key in keys)

    def _systemctl_daemon_reload(self, words: Sequence[str]) -> tuple[int, str]:
        return 0, ""

    def _systemctl_enable(self, words: Sequence[str]) -> tuple[int, str]:
        unit = words[-1]
        self.states[unit] = f"enabled, {self.states[unit].split(', ')[1]}"
        return 0, ""

    def _systemctl_restart(self, words: Sequence[str]) -> tuple[int, str]:
        unit = words[-1]
        self.states[unit] = f"{self.states[unit].split(', ')[0]}, active"
        if unit == "slurmctld.service":
            self._take_states()
        self.started[unit] = time.time()
        return 0, ""

    def _take_states(self) -> None:
        """A node whose line has no State=DRAIN any more is in service again."""
        for line in self.read("etc/slurm/baremetal-nodes.conf").splitlines():
            words = dict(word.split("=", 1) for word in line.split() if "=" in word)
            for name in hostlist.expand(words.get("NodeName", "")):
                if "DRAIN" not in words.get("State", "") and self.resumes_at_restart:
                    self.node_states[name] = "IDLE"
                    self.reasons.pop(name, None)

    _systemctl_start = _systemctl_restart

    def _systemctl_reload(self, words: Sequence[str]) -> tuple[int, str]:
        self.reloaded[words[-1]] = time.time()
        return 0, ""

    def _munge(self, words: Sequence[str]) -> tuple[int, str]:
        return 0, "MUNGE:AwQDAAD7:\n"

    def _unmunge(self, words: Sequence[str]) -> tuple[int, str]:
        assert self.stdin == "MUNGE:AwQDAAD7:\n"
        return (0 if "Success" in self.decoded else 15), self.decoded

    def _slurmd(self, words: Sequence[str]) -> tuple[int, str]:
        return 0, "slurm-wlm 22.05.8\n"

    _slurmctld = _slurmd

    def _env(self, words: Sequence[str]) -> tuple[int, str]:
        assert words[2:] == ["scontrol", "-V"]
        return 0, "slurm-wlm 22.05.8\n"

    @property
    def controlled(self) -> bool:
        """Whether slurmctld responds; that of another host always does."""
        return self.name != "launcher01" or self.states["slurmctld.service"].endswith(", active")

    def _scontrol(self, words: Sequence[str]) -> tuple[int, str, str]:
        if not self.controlled:
            if words[1] == "ping":
                return 0, "Slurmctld(primary) at launcher01 is DOWN\n", ""
            error = "slurm_load_ctl_conf error: Unable to contact slurm controller\n"
            return 1, "", error
        what = [word for word in words[1:] if not word.startswith("--")]
        if what[0] == "ping":
            return 0, "Slurmctld(primary) at launcher01 is UP\n", ""
        if what[0] == "show":
            now = 0 in self.refused
            self.refused = range(self.refused.start - 1, self.refused.stop - 1)
            if now:
                return 1, "", "slurm_load_ctl_conf error: Zero Bytes were transmitted or received\n"
        if what == ["reconfigure"]:
            return 0, "", ""
        if what[0] == "update":
            return self._update(dict(word.split("=", 1) for word in what[1:]))
        if what[:2] == ["show", "topology"]:
            return 0, TOPOLOGY, ""
        if what[:2] == ["show", "config"]:
            return 0, self.config(), ""
        assert what[:2] == ["show", "node"], words
        named = [node for node in self.cluster.nodes if what[2:] in ([], [node.name])]
        return 0, "".join(self._line(node) for node in named), ""

    def _line(self, node: SlurmNode) -> str:
        reason = self.reasons.get(node.name, "")
        shown = f" Reason={reason} [root@2026-11-29T09:04:59]" if reason else ""
        state = self.node_states[node.name]
        return NODE_LINE.format(name=node.name, address=node.address, state=state, reason=shown)

    def config(self) -> str:
        lines = ["Configuration data as of 2026-11-29T08:55:01", "SLURM_VERSION = 22.05.8"]
        path = self.root / "etc/slurm/baremetal-settings.conf"
        for line in path.read_text().splitlines() if path.exists() else []:
            key, equals, value = line.partition("=")
            lines += [f"{key} = {value}"] if equals and not line.startswith("#") else []
        return "\n".join([*lines, ""])

    def _update(self, values: Mapping[str, str]) -> tuple[int, str, str]:
        for name in hostlist.expand(values["nodename"]):
            if values["state"] == "drain":
                self.node_states[name], self.reasons[name] = "IDLE+DRAIN", values["reason"]
            elif "DRAIN" not in self.node_states[name]:
                return 1, "", "slurm_update error: Invalid node state specified\n"
            else:
                assert values["state"] == "resume"
                self.node_states[name] = "IDLE"
                self.reasons.pop(name, None)
        return 0, "", ""

    def _sinfo(self, words: Sequence[str]) -> tuple[int, str]:
        rows = (f"{name}|2026-11-29T09:04:59|root|{why}\n" for name, why in self.reasons.items())
        return 0, "".join(rows)
