# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The systemd units of a mount: `.mount`, and the `.automount` that waits for its first use.

Only the automount point is part of the boot, and it needs no server. The mount itself is done by
whoever first enters the directory, who waits for it as long as `TimeoutSec=` says; from then on
the kernel waits for the server (`hard`).
"""

from __future__ import annotations

import string
from collections.abc import Sequence

from ..core.dataclass import dataclass
from ..nic import BOOT_UNIT as RAILS

MOUNT, AUTOMOUNT = "mount", "automount"
DIRECTORY = "etc/systemd/system"
ENABLED = "enabled, active"
MARK = "[X-Baremetal-MPI-RoCE]\nPart=client-mount"
"""A section that systemd ignores: by it the collection knows a unit of this kind for its own."""
UNLIMITED = "StartLimitIntervalSec=0"
"""A server that refuses five mounts within ten seconds would cost the automount point itself, and
programs would find the empty directory under it."""
_PLAIN = frozenset((string.ascii_letters + string.digits + ":_.").encode())


@dataclass(frozen=True)
class MountUnit:
    """What the units of one mount point say."""

    name: str
    """Of the file system."""
    what: str
    where: str
    kind: str
    """`Type=`: `nfs`, `lustre`, or `none` for a bind mount."""
    options: tuple[str, ...]
    timeout_s: int
    after: tuple[str, ...] = ()
    """Further units that come first."""

    @property
    def mount(self) -> str:
        return unit_name(self.where, MOUNT)

    @property
    def automount(self) -> str:
        return unit_name(self.where, AUTOMOUNT)

    @property
    def at_boot(self) -> str:
        """What starts at boot: the automount point, or a bind mount itself."""
        return self.mount if self.is_bind else self.automount

    @property
    def is_bind(self) -> bool:
        return self.kind == "none"


def escape_path(path: str) -> str:
    """A path as part of a unit's name, as `systemd-escape --path` writes it."""
    words = [word for word in path.split("/") if word not in ("", ".")]
    if not words:
        return "-"
    escaped = "-".join(_escape(word) for word in words)
    return f"\\x2e{escaped[1:]}" if escaped.startswith(".") else escaped


def _escape(word: str) -> str:
    raw = word.encode("utf-8", "surrogateescape")
    return "".join(chr(byte) if byte in _PLAIN else f"\\x{byte:02x}" for byte in raw)


def unit_name(path: str, kind: str) -> str:
    return f"{escape_path(path)}.{kind}"


def path_of(unit: str) -> str:
    """File of a unit, below the root of the node."""
    return f"{DIRECTORY}/{unit}"


def mount_text(unit: MountUnit) -> str:
    """Without the header: the body of the `.mount` unit."""
    network = ["Wants=network-online.target"] if not unit.is_bind else []
    first = [] if unit.is_bind else ["network-online.target", "remote-fs-pre.target", RAILS]
    after = [*first, *unit.after]
    install = [] if not unit.is_bind else ["", *_install()]
    return "\n".join(
        [
            MARK,
            "",
            "[Unit]",
            f"Description=Shared file system {_literal(unit.name)}",
            # A container has the mounts that its host gives it.
            "ConditionVirtualization=!container",
            UNLIMITED,
            *network,
            *([f"After={' '.join(after)}"] if after else []),
            "",
            "[Mount]",
            f"What={_literal(unit.what)}",
            f"Where={_literal(unit.where)}",
            f"Type={unit.kind}",
            f"Options={_literal(','.join(unit.options))}",
            "DirectoryMode=0755",
            f"TimeoutSec={unit.timeout_s}",
            *install,
            "",
        ]
    )


def automount_text(unit: MountUnit) -> str:
    """No ordering after the network here: the point is there before it, and needs none."""
    return "\n".join(
        [
            MARK,
            "",
            "[Unit]",
            f"Description=Shared file system {_literal(unit.name)}, mounted at its first use",
            "ConditionVirtualization=!container",
            UNLIMITED,
            "",
            "[Automount]",
            f"Where={_literal(unit.where)}",
            # Never unmounted for want of use: a job that comes back to it would wait once more.
            "TimeoutIdleSec=0",
            "DirectoryMode=0755",
            "",
            *_install(),
            "",
        ]
    )


def _install() -> Sequence[str]:
    return ["[Install]", "WantedBy=remote-fs.target"]


def _literal(text: str) -> str:
    """systemd expands `%` in these settings."""
    return text.replace("%", "%%")
