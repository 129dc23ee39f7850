# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which interface, driver and RDMA device each rail of the model is on this host."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from ..hardware import Machine, survey
from .ethtool import Ethtool
from .setting import Rail


def machine_of(root: Path = Path("/")) -> Machine:
    return survey(root / "sys")


def find_rails(interfaces: Mapping[str, str], machine: Machine, ethtool: Ethtool) -> list[Rail]:
    """The rails, given what each is called now."""
    rails = []
    for name, interface in interfaces.items():
        port = machine.device_of(interface)
        driver = port.driver if port is not None else ""
        with contextlib.suppress(OSError):
            # A PCI function's driver may be another one: virtio-pci has virtio_net on top.
            driver = ethtool.driver(interface)
        device = port if port is not None and port.name else None
        rails.append(Rail(name, interface, driver, port.pci if port else None, device))
    return rails
