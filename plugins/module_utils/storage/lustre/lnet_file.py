# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What LNet is configured with: /etc/lnet.conf, options of its modules, and when it starts.

The forms are those that `lnetctl import` reads and `lnetctl export --backup` prints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .nid import O2IB, TCP, kind
from .settings import LustreSettings, Network

CONF = "etc/lnet.conf"
MODPROBE = "etc/modprobe.d/baremetal-mpi-roce-lustre.conf"
SERVICE = "lnet.service"
DROP_IN = f"etc/systemd/system/{SERVICE}.d/baremetal-mpi-roce.conf"


def lnet_conf(settings: LustreSettings) -> str:
    """The body of /etc/lnet.conf. `import` adds what stands there, and takes nothing away."""
    lines = ["net:"]
    for network in settings.networks:
        lines += [f"    - net type: {network.net}", "      local NI(s):"]
        for interface in network.interfaces:
            lines += ["        - interfaces:", f"              0: {interface}"]
            lines += _numbers("tunables", network.tunables)
            lines += _numbers("lnd tunables", _driver(network))
    if settings.routes:
        lines.append("route:")
    for route in settings.routes:
        lines += [f"    - net: {route.net}", f"      gateway: {route.gateway}"]
    if settings.peers:
        lines.append("peer:")
    for nids in settings.peers:
        several = "True" if len(nids) > 1 else "False"
        lines += [f"    - primary nid: {nids[0]}", f"      Multi-Rail: {several}", "      peer ni:"]
        lines += [f"        - nid: {nid}" for nid in nids]
    lines += ["global:", f"    discovery: {int(settings.discovery)}"]
    return "".join(f"{line}\n" for line in lines)


def _driver(network: Network) -> dict[str, int]:
    return {"conns_per_peer": network.conns_per_peer} if network.conns_per_peer else {}


def _numbers(name: str, values: Mapping[str, int]) -> list[str]:
    if not values:
        return []
    return [f"          {name}:", *(f"              {key}: {n}" for key, n in values.items())]


def module_options(settings: LustreSettings) -> dict[str, dict[str, str]]:
    """What is wanted of each kernel module, the operator's word last."""
    found: dict[str, dict[str, str]] = {
        # LNet may be loaded by a mount before lnet.service: it has to know by itself.
        "lnet": {"lnet_peer_discovery_disabled": str(int(not settings.discovery))},
    }
    if any(kind(network.net) == TCP for network in settings.networks):
        # Routes and rules of rails are those of roce_rails; LNet would add a second set.
        found["ksocklnd"] = {"skip_mr_route_setup": "1"}
    for module, options in settings.modprobe.items():
        found.setdefault(module, {}).update(options)
    return {module: dict(sorted(options.items())) for module, options in sorted(found.items())}


def modprobe_conf(settings: LustreSettings) -> str:
    return "".join(
        f"options {module} {' '.join(f'{name}={value}' for name, value in options.items())}\n"
        for module, options in module_options(settings).items()
        if options
    )


def drop_in(after: Sequence[str]) -> str:
    """LNet binds to interfaces: they need their names and addresses first."""
    return f"[Unit]\nAfter={' '.join(after)}\n" if after else ""


def uses_rdma(settings: LustreSettings) -> bool:
    return any(kind(network.net) == O2IB for network in settings.networks)
