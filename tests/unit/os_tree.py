# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Recorded nodes on which programs of os_baseline take effect.

A tree of tests/unit/data/os_baseline is copied, and `Tree.run` simulates systemctl, runuser,
swapoff, update-grub, grubby and chronyc on the copy. As on a node, systemd's loaded units change
only at daemon-reload, and the kernel command line only at `reboot`.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.engine import Outcome, settle
from ansible_collections.baremetal.mpi_roce.plugins.modules.os_baseline import parts

from tests.unit.host import Host

LAYER = "os"
DATA = Path(__file__).parent / "data/os_baseline"

DEFAULTS: dict[str, Any] = {
    "sysctls": {},
    "optional_sysctls": [],
    "limits": {},
    "service_limits": [],
    "limits_user": "mpi",
    "hugepages": [],
    "transparent_hugepages": "keep",
    "governor": "keep",
    "swap": "keep",
    "irqbalance": "keep",
    "time": False,
    "time_servers": [],
    "packages": [],
    "rivals": [],
    "time_max_offset_s": 0.1,
    "time_wait_s": 1,
    "kernel_arguments": [],
    "admitted_networks": [],
}

FULL: dict[str, Any] = {
    "sysctls": {"kernel.numa_balancing": 0, "net.ipv4.tcp_rmem": "4096 131072 67108864"},
    "limits": {"memlock": "unlimited", "nofile": 1048576},
    "service_limits": ["memlock"],
    "hugepages": [{"size": "2M", "count": 512, "node": 0}, {"size": "2M", "count": 512, "node": 1}],
    "transparent_hugepages": "always",
    "governor": "performance",
    "swap": "off",
    "irqbalance": "off",
    "time": True,
    "time_servers": ["10.0.0.1"],
    "packages": [],
    "rivals": [],
    "kernel_arguments": ["iommu=pt"],
    "admitted_networks": [],
}

IN_STEP = "0A000001,10.0.0.1,3,1763640000.1,-0.000012,0,0,0,0,0,0,0,16.0,Normal\n"
LOST = "00000000,,0,0.0,0.0,0,0,0,0,0,0,0,0.0,Not synchronised\n"


class Tree(Host):
    """One recorded node."""

    layer = LAYER

    def __init__(self, kind: str, where: Path) -> None:
        super().__init__(where / kind)
        shutil.copytree(DATA / kind, self.root, symlinks=True)
        if kind == "container":  # git cannot store read-only files
            (self.root / "proc/sys/net/core/rmem_max").chmod(0o444)
        self.users = {"nobody"}
        self.tracking = IN_STEP
        self.states = {"irqbalance.service": "enabled, active"}
        self.services_started = 0.0
        self.loaded: dict[str, str] = {}
        self._load()

    def settle(self, *, check_mode: bool = False, **wanted: Any) -> Outcome:
        return settle(parts({**DEFAULTS, **wanted}), self.node(check_mode))

    def reboot(self) -> None:
        """The next boot: the configured command line, and tmpfiles.d."""
        self.boot += 1
        if (self.root / "usr/sbin/update-grub").exists():
            for line in self.read("boot/grub/grub.cfg").splitlines():
                if line.split()[:1] == ["linux"] and "7d1c ro" in line and "recovery" not in line:
                    self.write("proc/cmdline", " ".join(line.split()[1:]) + "\n")
        else:
            self.write("proc/cmdline", f"BOOT_IMAGE=vmlinuz {self._entry()}\n")

    # Programs.

    def _systemctl_daemon_reload(self, words: list[str]) -> tuple[int, str]:
        self._load()
        return 0, ""

    def _load(self) -> None:
        self.loaded = {"DefaultLimitMEMLOCK": "8388608"}
        for path in sorted((self.root / "etc/systemd").rglob("*.conf")):
            if "user.conf.d" not in path.parts:
                pairs = [
                    line.split("=", 1) for line in path.read_text().splitlines() if "=" in line
                ]
                self.loaded.update(dict(pairs))
        for path in (self.root / "run/systemd").rglob("*.swap"):
            if "SourcePath=/etc/fstab" in path.read_text() and "swap" not in [
                (line.split() + [""] * 3)[2] for line in self.read("etc/fstab").splitlines()
            ]:
                path.unlink()

    def _systemctl_show(self, words: list[str]) -> tuple[int, str]:
        keys = [word for before, word in zip(words, words[1:]) if before == "-p"]
        unit = words[2] if words[2] != "-p" else ""
        enabled, active = self.states.get(unit, "enabled, active").split(", ")
        values = {
            **self.loaded,
            "UnitFileState": enabled,
            "ActiveState": active,
            "ActiveEnterTimestamp": f"@{int(self.services_started)}",
        }
        return 0, "".join(f"{key}={values[key]}\n" for key in keys)

    def _systemctl_enable(self, words: list[str]) -> tuple[int, str]:
        unit = words[-1]
        self.states[unit] = "enabled, active"
        link = self.root / "etc/systemd/system/multi-user.target.wants" / unit
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(f"/etc/systemd/system/{unit}")
        return 0, ""

    def _systemctl_disable(self, words: list[str]) -> tuple[int, str]:
        self.states[words[-1]] = "disabled, inactive"
        return 0, ""

    def _systemctl_restart(self, words: list[str]) -> tuple[int, str]:
        self.services_started = 4e9
        return 0, ""

    def _systemctl_mask(self, words: list[str]) -> tuple[int, str]:
        path = self.root / "etc/systemd/system" / words[2]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to("/dev/null")
        return 0, ""

    def _id(self, words: list[str]) -> tuple[int, str]:
        return (0, "2000\n") if words[2] in self.users else (1, "")

    def _runuser(self, words: list[str]) -> tuple[int, str]:
        assert words[2] in self.users
        limits = {"memlock": ("8388608", "8388608"), "nofile": ("1024", "1048576")}
        for path in sorted((self.root / "etc/security/limits.d").glob("*.conf")):
            for line in path.read_text().splitlines():
                fields = line.split()
                if len(fields) == 4 and fields[0] == "*":
                    value = fields[3]
                    if fields[2] == "memlock" and value != "unlimited":
                        value = str(int(value) * 1024)
                    limits[fields[2]] = (value, value)
        names = {"memlock": "Max locked memory", "nofile": "Max open files"}
        rows = [f"{names[k]:<26}{s:<21}{h:<21}bytes\n" for k, (s, h) in limits.items()]
        return 0, "".join(rows)

    def _swapoff(self, words: list[str]) -> tuple[int, str]:
        lines = self.read("proc/swaps").splitlines(keepends=True)
        kept = [line for line in lines if not line.startswith(f"{words[1]} ")]
        self.write("proc/swaps", "".join(kept))
        return 0, ""

    def _update_grub(self, words: list[str]) -> tuple[int, str]:
        script = ". etc/default/grub; for f in etc/default/grub.d/*.cfg; do . $f; done; "
        script += 'echo "$GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT"'
        line = subprocess.run(
            ["sh", "-c", script], cwd=self.root, capture_output=True, text=True, check=True
        ).stdout.strip()
        text = self.read("boot/grub/grub.cfg").splitlines(keepends=True)
        for number, old in enumerate(text):
            if old.split()[:1] == ["linux"] and "7d1c ro" in old and "recovery" not in old:
                text[number] = f"\tlinux\t/vmlinuz-6.8.0-49-generic root=UUID=7d1c ro {line}\n"
        self.write("boot/grub/grub.cfg", "".join(text))
        return 0, ""

    def _entry(self) -> str:
        path = self.root / "boot/entry"
        return path.read_text() if path.exists() else "ro crashkernel=1G-4G:192M"

    def _grubby(self, words: list[str]) -> tuple[int, str]:
        if words[1] == "--info=ALL":
            return 0, f'index=0\nargs="{self._entry()}"\nroot="/dev/mapper/rl-root"\n'
        have = self._entry().split()
        for word in words[2:]:
            key, _, value = word.partition("=")
            if key == "--remove-args":
                have = [each for each in have if each not in value.split()]
            if key == "--args":
                have += [each for each in value.split() if each not in have]
        self.write("boot/entry", " ".join(have))
        return 0, ""

    def _chronyc(self, words: list[str]) -> tuple[int, str]:
        return 0, self.tracking


def found(outcome: Outcome, name: str) -> dict[str, Any]:
    """Check by subject, of the checks with this name."""
    return {check.subject: check for check in outcome.checks if check.name == name}


def statuses(outcome: Outcome) -> set[str]:
    return {check.status for check in outcome.checks}
