# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""netplan, rendered to systemd-networkd: one file for all rails, one stanza for each."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..core.commands import CommandError, Runner
from ..core.files import FilePlan, plan_file, with_header, write_atomically
from ..core.part import NAME
from .backend import NETPLAN, Blocks
from .claims import NETPLAN_FILES, others
from .networkd import NETWORKD_UNIT, network_files, take_over
from .plan import MAIN_TABLE, RailPlan

FILE = f"60-{NAME}-rails.yaml"
_HEAD = "network:\n  version: 2\n  ethernets:\n"
_GENERATED = "run/systemd/network"
_SCRATCH = "netplan-"


class Netplan:
    """Writes /etc/netplan, and of what netplan generates takes over the rails' files alone.

    `netplan apply` would rewrite the files of every interface, the management one included, which
    makes networkd set all of them up anew. So netplan generates into a scratch root, and only the
    changed rails' files go to where it would have put them; the next boot generates the same ones.
    """

    name = NETPLAN
    unit = NETWORKD_UNIT

    def __init__(self, run: Runner, root: Path = Path("/")) -> None:
        self._run = run
        self._root = root
        self._path = root / "etc/netplan" / FILE

    def render(self, rail: RailPlan) -> str:
        return stanza(rail)

    def read(self) -> dict[str, str]:
        with contextlib.suppress(FileNotFoundError):
            return split(self._path.read_text(encoding="utf-8", errors="surrogateescape"))
        return {}

    def files(self, blocks: Blocks) -> list[FilePlan]:
        text = join(blocks) if blocks else None
        return [plan_file(self._path, text, mode=0o600)]

    def validate(self, blocks: Blocks) -> None:
        """All netplan files together have to be understood, or the next boot has no network."""
        if blocks:
            with self._scratch(join(blocks)):
                pass

    def owner(self, interface: str) -> str:
        return "/" + str(self._generated_path(interface).relative_to(self._root))

    def owners(self, interfaces: Sequence[str]) -> dict[str, str]:
        return network_files(self._run, interfaces)

    def apply(self, written: Sequence[str], again: Sequence[str]) -> dict[str, str]:
        blocks = self.read()
        with self._scratch(join(blocks)) as scratch:
            for interface in written:
                source = scratch / _GENERATED / self._generated_path(interface).name
                self._publish(source, self._generated_path(interface))
        take_over(self._run, again)
        return {}

    def _generated_path(self, interface: str) -> Path:
        return self._root / _GENERATED / f"10-netplan-{interface}.network"

    @contextlib.contextmanager
    def _scratch(self, text: str) -> Iterator[Path]:
        """A root in which netplan has generated everything, our file being `text`."""
        base = self._root / "run" / NAME
        base.mkdir(mode=0o755, parents=True, exist_ok=True)
        for left in base.glob(f"{_SCRATCH}*"):  # by a run that was killed
            shutil.rmtree(left)
        with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=base) as name:
            scratch = Path(name)
            directory = scratch / "etc/netplan"
            directory.mkdir(parents=True)
            for path in others(self._root, NETPLAN_FILES):
                shutil.copyfile(path, directory / path.name)
                (directory / path.name).chmod(0o600)
            write_atomically(directory / FILE, text, 0o600, os.getuid(), os.getgid())
            try:
                self._run(("netplan", "generate", "--root-dir", name))
            except CommandError as error:
                raise CommandError(str(error).replace(f"{name}/", "/")) from error
            yield scratch

    @staticmethod
    def _publish(source: Path, target: Path) -> None:
        """Move a generated file to where netplan would have put it, with the modes it chose."""
        if not source.exists():
            with contextlib.suppress(FileNotFoundError):
                target.unlink()
            return
        status = source.stat()
        text = source.read_text(encoding="utf-8")
        write_atomically(target, text, status.st_mode & 0o7777, status.st_uid, status.st_gid)


def stanza(rail: RailPlan) -> str:
    """The lines of one rail under `ethernets`."""
    lines = [
        f"    {rail.interface}:",
        "      renderer: networkd",
        "      optional: true  # a pulled cable must not keep the host from booting",
        "      ignore-carrier: true  # keep the address, and with it the RoCE GID, meanwhile",
        "      dhcp4: false",
        "      dhcp6: false",
        "      accept-ra: false",
        "      link-local: [ipv6]",
        f"      mtu: {rail.mtu}",
        f"      addresses: [{rail.cidr}]",
    ]
    if rail.routes:
        lines.append("      routes:")
    for route in rail.routes:
        parts = [f"to: {route.cidr}"]
        parts.append(f"via: {route.gateway}" if route.gateway else "scope: link")
        if route.table != MAIN_TABLE:
            parts.append(f"table: {route.table}")
        if route.metric is not None:
            parts.append(f"metric: {route.metric}")
        lines.append(f"        - {{{', '.join(parts)}}}")
    if rail.rule:
        lines += [
            "      routing-policy:",
            f"        - {{from: {rail.rule.source}, table: {rail.rule.table}, "
            f"priority: {rail.rule.priority}}}",
        ]
    return "\n".join(lines) + "\n"


def join(blocks: Blocks) -> str:
    """The whole file."""
    return with_header(_HEAD + "".join(blocks.values()) if blocks else "network:\n  version: 2\n")


def split(text: str) -> dict[str, str]:
    """The stanzas of a file that `join` made, by interface."""
    blocks: dict[str, str] = {}
    name = ""
    for line in text.splitlines(keepends=True):
        head = re.fullmatch(r" {4}(\S+):\s*", line)
        if head:
            name = head.group(1)
        elif not line.startswith("      "):
            name = ""
        if name:
            blocks[name] = blocks.get(name, "") + line
    return blocks
