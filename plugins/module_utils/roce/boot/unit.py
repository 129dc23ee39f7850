# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The systemd unit that runs at boot, and the udev rule that runs it for a NIC that came back."""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.dataclass import dataclass
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.files import with_header

from .layout import PROGRAM, UNIT

LOCK_S = 120
"""How long the program waits for a run of Ansible on the same host."""
_SLOWEST_S = 180
"""What a pass over sixteen rails takes at most whose QoS program hangs on every one (QUICK_S each),
and what is left then to look at the firmware."""
_NETWORK = ("network.target", "NetworkManager.service", "systemd-networkd.service")
_DRIVERS = ("openibd.service", "rdma-hw.target", "rdma-load-modules@rdma.service")


@dataclass(frozen=True)
class BootOptions:
    """What the role says of the unit."""

    wait_s: int = 60
    """Longest time for a rail's devices to appear, and for its settings to hold."""
    before: tuple[str, ...] = ()
    """Units that start jobs: they wait until the rails are set up."""

    @property
    def longest_s(self) -> int:
        """After this systemd ends a run that does not end by itself."""
        return self.wait_s + LOCK_S + _SLOWEST_S


def unit_text(interfaces: Sequence[str], options: BootOptions) -> str:
    """A one-shot service that does not stay active.

    So it can be run again by `systemctl start`, and by udev, without `restart`, which would restart
    as well what requires it: the job manager.
    """
    devices = " ".join(f"sys-subsystem-net-devices-{_escaped(name)}.device" for name in interfaces)
    lines = [
        "[Unit]",
        "Description=RoCE settings of the rails, which a reboot forgets (baremetal.mpi_roce)",
        # Wanted, not required: with a NIC missing, the others are still set up, and it is named.
        f"Wants={devices}",
        f"After={devices}",
        f"After={' '.join((*_DRIVERS, *_NETWORK))}",
        *([f"Before={' '.join(options.before)}"] if options.before else []),
        "StartLimitIntervalSec=0",
        "",
        "[Service]",
        "Type=oneshot",
        f"ExecStart=/{PROGRAM} --apply --wait {options.wait_s}",
        f"TimeoutStartSec={options.longest_s}",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
        "",
    ]
    return with_header("\n".join(lines))


def udev_rule_text(interfaces: Sequence[str]) -> str:
    """A NIC or RDMA device that appears has forgotten everything: its driver was loaded again.

    While the unit is running, at boot, that start is the one already under way.
    """
    names = "|".join(interfaces)
    start = f'TAG+="systemd", ENV{{SYSTEMD_WANTS}}+="{UNIT}"'
    lines = [
        # An interface has its name at once, or is given it by this very event (NAME).
        f'ACTION!="remove", SUBSYSTEM=="net", KERNEL=="{names}", {start}',
        f'ACTION!="remove", SUBSYSTEM=="net", NAME=="{names}", {start}',
        f'ACTION=="add", SUBSYSTEM=="infiniband", {start}',
    ]
    return with_header("".join(f"{line}\n" for line in lines))


def _escaped(name: str) -> str:
    """As systemd-escape writes an interface's name in a unit's."""
    return name.replace("-", r"\x2d")
