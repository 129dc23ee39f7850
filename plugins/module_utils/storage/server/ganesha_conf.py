# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The format of nfs-ganesha's configuration: what the collection writes, and reads back."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Sequence

from ...dataclass import dataclass
from .served import NFS_PORT, Wire

MOST_IDS = 65534
"""Of exports: 16 bits, and 0 is the root of the pseudo file system."""
NOBODY = 65534
"""Whom root of a node is taken for, by the kernel's server too."""
_EXPORT = re.compile(r"^EXPORT \{\n(.*?)^\}\n", re.MULTILINE | re.DOTALL)
_SETTING = re.compile(r"^\s*(\w+) = (.*);$", re.MULTILINE)


@dataclass(frozen=True)
class GaneshaExport:
    """One directory for the addresses of its clients."""

    identity: int
    path: str
    addresses: tuple[str, ...]


def identities(names: Iterable[str], taken: Collection[int] = ()) -> dict[str, int]:
    """A number for each file system that others do not change: it is in every file handle."""
    found: dict[str, int] = {}
    for name in sorted(names):
        number = int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) % MOST_IDS + 1
        while number in taken or number in found.values():
            number = number % MOST_IDS + 1
        found[name] = number
    return found


def render(wire: Wire, exports: Sequence[GaneshaExport]) -> str:
    """Without the header. What is above the first export takes a restart, the rest a reload."""
    return core(wire) + "".join(_export(wire, each) for each in exports)


def core(wire: Wire) -> str:
    port = wire.ports[0] if wire.ports else NFS_PORT
    older = wire.version_3
    return (
        "NFS_CORE_PARAM {\n"
        f"    NFS_Port = {port};\n"
        f"    Protocols = {_protocols(wire)};\n"
        f"    Enable_NLM = {_bool(older)};\n"
        "    Enable_RQUOTA = false;\n"
        # As the kernel's server has it: the same `source` for every version.
        "    mount_path_pseudo = true;\n"
        "}\n\n"
        "NFSv4 {\n"
        # 0 as well, as the kernel's server: libnfs, which reads without mounting, has no other.
        "    Minor_Versions = 0, 1, 2;\n"
        # As the kernel's server has it: numbers, which are the same on every node.
        "    Only_Numeric_Owners = true;\n"
        "}\n\n"
        "NFS_KRB5 {\n"
        "    Active_krb5 = false;\n"
        "}\n"
    )


def _export(wire: Wire, each: GaneshaExport) -> str:
    return (
        "\nEXPORT {\n"
        f"    Export_Id = {each.identity};\n"
        f"    Path = {each.path};\n"
        f"    Pseudo = {each.path};\n"
        f"    Protocols = {_protocols(wire)};\n"
        "    Transports = TCP;\n"
        "    SecType = sys;\n"
        "    PrivilegedPort = true;\n"
        "    Squash = root_squash;\n"
        "    Access_Type = None;\n"
        "    CLIENT {\n"
        f"        Clients = {', '.join(each.addresses)};\n"
        "        Access_Type = RW;\n"
        f"        Protocols = {_protocols(wire)};\n"
        "        Squash = root_squash;\n"
        f"        Anonymous_uid = {NOBODY};\n"
        f"        Anonymous_gid = {NOBODY};\n"
        "    }\n"
        "    FSAL {\n"
        "        Name = VFS;\n"
        "    }\n"
        "}\n"
    )


def parse(text: str) -> tuple[GaneshaExport, ...]:
    """The exports of what `render` wrote."""
    found = []
    for block in _EXPORT.findall(text):
        settings = dict(reversed(_SETTING.findall(block)))  # the first of a name
        if settings.keys() >= {"Export_Id", "Path", "Clients"}:  # else somebody edited it
            clients = tuple(settings["Clients"].split(", "))
            found.append(GaneshaExport(int(settings["Export_Id"]), settings["Path"], clients))
    return tuple(found)


def _protocols(wire: Wire) -> str:
    return "3, 4" if wire.version_3 else "4"


def _bool(value: bool) -> str:
    return "true" if value else "false"
