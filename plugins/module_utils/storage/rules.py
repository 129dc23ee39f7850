# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What one file system cannot be: keys that need or exclude each other, or the cluster around.

What several of them cannot be beside each other is in between.py.
"""

from __future__ import annotations

from typing import Any, Optional

from ..schema.findings import Findings, Path, dotted, nearest, some
from ..schema.kinds import Wrong
from .file_system import CHECKPOINTS, HOME, LUSTRE, NFS, RDMA, SCRATCH, TCP
from .keys import PORTS
from .mount_options import check_options
from .paths import wrong_served
from .site import WITH_SWITCHES, WITHOUT_RAILS, Site
from .source import wrong_lustre, wrong_nfs

Value = dict[str, Any]


def check_one(entry: Value, findings: Findings, at: Path, site: Optional[Site]) -> None:
    """Each rule where the keys that it looks at are right by themselves."""

    def right(*keys: str) -> bool:
        return findings.clean(*((*at, key) for key in keys))

    if right("mount", "purpose"):
        _mount(entry, findings, at)
    if right("owner", "purpose"):
        _owner(entry, findings, at)
    if right("hosts"):
        _hosts(entry["hosts"], findings, (*at, "hosts"), site)
    if not right("type"):
        return
    if right("source"):
        _tell(wrong_of(entry), entry["source"], findings, (*at, "source"))
    _of_the_other(entry, findings, at)
    if entry["type"] == NFS and entry["nfs"] and right("nfs"):
        _nfs(entry["nfs"], findings, (*at, "nfs"))
        if entry["nfs"]["transport"] == RDMA and right("hosts"):
            _rails(entry["hosts"], findings, at)
    if right("options", "purpose"):
        check_options(entry, findings, at)
    if entry["serve"] is not None and right("source"):
        _serve(entry, findings, at, site)


def wrong_of(entry: Value) -> Optional[Wrong]:
    source: str = entry["source"]
    return wrong_nfs(source) if entry["type"] == NFS else wrong_lustre(source)


def _tell(wrong: Optional[Wrong], source: str, findings: Findings, path: Path) -> None:
    if wrong is not None:
        findings.add(wrong.code, path, wrong.problem, wrong.remedy, source)


def _mount(entry: Value, findings: Findings, at: Path) -> None:
    if entry["mount"] == "/home" and entry["purpose"] != HOME:
        findings.add(
            "storage.mount_on_home",
            (*at, "mount"),
            f"'/home' would hide the homes of every account, and purpose is {entry['purpose']}",
            "Mount it elsewhere, or write purpose: home",
        )


def _owner(entry: Value, findings: Findings, at: Path) -> None:
    owner = entry["owner"]
    if owner in ("nobody", "nfsnobody"):
        findings.add(
            "storage.owner_squashed",
            (*at, "owner"),
            f"{owner!r} is what root of every client is taken for: it would own all of it",
            "Leave it out for the MPI user, or name another account",
            value=owner,
        )
    elif owner == "root" and entry["purpose"] in (CHECKPOINTS, SCRATCH):
        findings.add(
            "storage.owner_root",
            (*at, "owner"),
            f"'root', and jobs of the MPI user write what is for {entry['purpose']}",
            "Leave it out: the MPI user owns it",
        )


def _hosts(hosts: list[str], findings: Findings, path: Path, site: Optional[Site]) -> None:
    if not hosts:
        findings.add(
            "storage.no_groups",
            path,
            "the list is empty: nobody would mount it",
            "Name groups, such as [compute]",
        )
    for index, group in enumerate(hosts):
        if group in hosts[:index]:
            findings.add(
                "storage.group_twice",
                (*path, index),
                f"{group!r} is there twice",
                "Remove one of them",
                value=group,
            )
        elif group in WITH_SWITCHES:
            findings.add(
                "storage.group_with_switches",
                (*path, index),
                f"{group!r} has hosts that mount nothing in it, such as switches",
                "Name those that do: compute, launcher, storage or a rack",
                value=group,
            )
        elif site is not None and group not in site.groups:
            known = [name for name in site.groups if name not in WITH_SWITCHES]
            findings.add(
                "storage.unknown_group",
                (*path, index),
                f"there is no group {group!r}",
                nearest(group, known),
                value=group,
            )


def _of_the_other(entry: Value, findings: Findings, at: Path) -> None:
    other = LUSTRE if entry["type"] == NFS else NFS
    if entry[other] is not None:
        findings.add(
            "storage.section_of_other_type",
            (*at, other),
            f"is for the type {other}, and this one is {entry['type']}",
            "Leave it out, or change type",
        )


def _nfs(nfs: Value, findings: Findings, at: Path) -> None:
    transport, port = nfs["transport"], nfs["port"]
    other = TCP if transport == RDMA else RDMA
    if port == PORTS[other]:
        findings.add(
            "storage.port_of_other_transport",
            (*at, "port"),
            f"{port} is the port of NFS over {other.upper()}, and {dotted((*at, 'transport'))} is "
            f"{transport}: nobody would answer there",
            f"Write {PORTS[transport]}, or leave it out",
            value=port,
        )


def _rails(hosts: list[str], findings: Findings, at: Path) -> None:
    without = [group for group in hosts if group in WITHOUT_RAILS]
    if without:
        rest = [group for group in hosts if group not in without] or ["compute"]
        findings.add(
            "storage.groups_without_rails",
            (*at, "hosts"),
            f"{some(without)} has no rails, and {dotted((*at, 'nfs', 'transport'))} is rdma",
            f"Write hosts: [{', '.join(rest)}], or transport: tcp",
            value=tuple(without),
        )


def _serve(entry: Value, findings: Findings, at: Path, site: Optional[Site]) -> None:
    serve, path = entry["serve"], (*at, "serve")
    if entry["type"] == LUSTRE:
        findings.add(
            "storage.lustre_not_served",
            path,
            "Lustre is not served from here: its servers have metadata and object targets that "
            "are set up with their own tools",
            "Leave it out, and name their NIDs in source",
        )
        return
    server, _sign, directory = entry["source"].rpartition(":/")
    _tell(wrong_served("/" + directory), entry["source"], findings, (*at, "source"))
    right = findings.clean((*path, "device"), (*path, "format"))
    if right and serve["format"] and not serve["device"]:
        findings.add(
            "storage.format_without_device",
            (*path, "format"),
            f"{serve['format']!r} without a device to put it on",
            "Write device, or leave it out",
            value=serve["format"],
        )
    if site is not None and findings.clean((*path, "host"), (*at, "source")):
        _server(server, serve["host"], findings, at, site)


def _server(server: str, host: str, findings: Findings, at: Path, site: Site) -> None:
    if host not in site.hosts:
        findings.add(
            "storage.unknown_host",
            (*at, "serve", "host"),
            f"there is no host {host!r}",
            nearest(host, sorted(site.hosts)),
            value=host,
        )
        return
    names = site.names(host)
    if server in names:
        return
    owner = site.owner(server)
    if owner is None and host in site.more:
        return
    whose = f"is of {owner}" if owner is not None else f"is no name or address of {host}"
    findings.add(
        "storage.source_of_other_host",
        (*at, "source"),
        f"{server!r} {whose}, and {dotted((*at, 'serve', 'host'))} is {host}",
        f"Begin it with one of {some(sorted(names), 6)}",
        value=(server, owner),
    )
