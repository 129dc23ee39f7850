# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""nouveau, the kernel's own driver, makes way: at the next boot, never by force.

It is kept from loading in the initramfs too. Where it drives the GPUs now, NVIDIA's module cannot
have them until a reboot; unloading it under a console would freeze that.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..dataclass import dataclass
from ..node.part import NAME, Node, Plan, Step, Verdict
from .kernel import Kernel

FILE = f"etc/modprobe.d/90-{NAME}-nouveau.conf"
BODY = "blacklist nouveau\noptions nouveau modeset=0\n"


@dataclass(frozen=True)
class Nouveau:
    kernel: Kernel

    def plan(self, node: Node) -> Plan:
        file = node.file(FILE, BODY)
        step = Step(
            f"initramfs of {self.kernel.release}",
            "without the blacklist of nouveau",
            "with it",
            lambda: _renew(node, self.kernel.release),
        )
        image = _image(node, self.kernel.release)
        if image and (file.changed or _older(node, image)):
            return Plan([file], [step])
        return Plan([file])

    def verify(self, node: Node) -> Verdict:
        """Whether it is loaded is judged with the GPUs, which it keeps from the driver."""
        return Verdict()


def _image(node: Node, release: str) -> str:
    """The initramfs of this kernel; empty on a node that boots without one of its own."""
    names = (f"boot/initrd.img-{release}", f"boot/initramfs-{release}.img")
    return next((name for name in names if node.path(name).exists()), "")


def _older(node: Node, image: str) -> bool:
    """A run that was stopped in between left an initramfs from before the file."""
    return node.path(image).stat().st_mtime < node.path(FILE).stat().st_mtime


def _renew(node: Node, release: str) -> None:
    node.run(_tool(node, release))


def _tool(node: Node, release: str) -> Sequence[str]:
    if node.path("usr/sbin/update-initramfs").exists():
        return ["update-initramfs", "-u", "-k", release]
    return ["dracut", "--force", f"/boot/initramfs-{release}.img", release]
