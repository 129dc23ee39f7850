# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From the variable `shared_storage_lustre` to settings, or to every reason why there are none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.schema.findings import (
    Findings,
    Path,
    RefusedError,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.schema.kinds import check

from ..file_system import LUSTRE, FileSystem
from . import rules
from .keys import SETTINGS, VARIABLE
from .nid import Nid, NidError, read_net, read_nid
from .settings import (
    RAILS,
    LustreSettings,
    Network,
    Packages,
    Repository,
    Route,
    Stripes,
)
from .source import read_source

DEFAULT_NET = "o2ib"


class LustreError(RefusedError):
    what = f"{VARIABLE} cannot be used"


def read_settings(
    value: Optional[Mapping[str, Any]],
    rails: Sequence[Mapping[str, Any]] = (),
    filesystems: Sequence[FileSystem] = (),
) -> LustreSettings:
    """Settings of this host. None and {} are the defaults. Raises LustreError.

    `rails` as `cluster_rails`; `filesystems` those that this host mounts, of any type. Without
    Lustre among them no network has to be possible here.
    """
    findings = Findings()
    path: Path = (VARIABLE,)
    checked = check(SETTINGS, {} if value is None else value, findings, path)
    names = [str(rail["interface"]) for rail in rails]
    settings = None
    if checked is not None:
        clean = findings.clean(path)
        if clean:
            rules.check_values(checked, findings, path)
            settings = _settings(checked, names, filesystems, findings, path)
        if settings is not None and any(fs.type == LUSTRE for fs in filesystems):
            rules.check_host(settings, names, filesystems, findings, path)
    if settings is None or findings:
        raise LustreError(findings.found)
    return settings


def _settings(
    value: dict[str, Any],
    rails: Sequence[str],
    filesystems: Sequence[FileSystem],
    findings: Findings,
    path: Path,
) -> Optional[LustreSettings]:
    routes = [
        (
            _read(read_net, entry["net"], findings, (*path, "routes", number, "net")),
            _read(read_nid, entry["gateway"], findings, (*path, "routes", number, "gateway")),
        )
        for number, entry in enumerate(value["routes"])
    ]
    peers = [
        [
            _read(read_nid, nid, findings, (*path, "peers", number, "nids", place))
            for place, nid in enumerate(entry["nids"])
        ]
        for number, entry in enumerate(value["peers"])
    ]
    if not findings.clean(path):
        return None
    packages = value["packages"]
    repository = packages["repository"]
    return LustreSettings(
        networks=tuple(_networks(value["networks"], rails, filesystems)),
        discovery=value["discovery"],
        peers=tuple(tuple(nids) for nids in peers),
        routes=tuple(Route(net, gateway) for net, gateway in routes),
        packages=Packages(
            packages["method"],
            packages["version"],
            Repository(**repository) if repository else None,
            tuple(packages["names"]),
        ),
        modprobe={module: dict(options) for module, options in value["modprobe"].items()},
        stripes=tuple(Stripes(**entry) for entry in value["stripes"]),
        time_limit_s=value["time_limit_s"],
        full_percent=value["full_percent"],
    )


def _read(read: Callable[[str], Any], text: str, findings: Findings, path: Path) -> Any:
    try:
        return read(text)
    except NidError as error:
        findings.add(error.code, path, error.problem, error.remedy, text)
        return None


def _networks(
    value: Optional[list[dict[str, Any]]],
    rails: Sequence[str],
    filesystems: Sequence[FileSystem],
) -> list[Network]:
    if value is None:
        return [Network(net, tuple(rails)) for net in _nets_of(filesystems)]
    return [
        Network(
            **{
                **entry,
                "net": read_net(entry["net"]),
                "interfaces": tuple(rails if entry["interfaces"] == RAILS else entry["interfaces"]),
            }
        )
        for entry in value
    ]


def _nets_of(filesystems: Sequence[FileSystem]) -> list[str]:
    """The network of the first NID of each source: all its servers are in it, as a rule."""
    nets: list[str] = []
    for fs in filesystems:
        if fs.type != LUSTRE:
            continue
        try:
            first: Nid = read_source(fs.source).nids[0]
        except NidError:  # the rules say what is wrong with it
            continue
        if first.net not in nets:
            nets.append(first.net)
    return nets[:1] or [DEFAULT_NET]
