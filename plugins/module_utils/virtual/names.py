# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Names of everything that is made, all beginning with the cluster's."""

from __future__ import annotations

import hashlib
import re

MANAGEMENT = "mgmt0"
"""Name of a node's management interface when the model gives none."""
INTERFACE_LENGTH = 15
CLUSTER_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")


def fabric_namespace(cluster: str) -> str:
    return f"{cluster}-fabric"


def node_namespace(cluster: str, node: str) -> str:
    """Also the name of the node's container. No cluster name holds a dot, so none is ambiguous."""
    return f"{cluster}.{node}"


def router_namespace(cluster: str, switch: str) -> str:
    """Where a leaf or spine routes. No host name holds a dot, so it is nobody's container."""
    return f"{cluster}.router.{switch}"


def controller_interface(cluster: str) -> str:
    """The one interface on the host: the start of the name for people, a digest for uniqueness."""
    return f"{cluster[:8]}-{_digest(cluster)}"


def leaf_port(node: str, interface: str) -> str:
    """The leaf's end of a node's cable, in the fabric's namespace."""
    return short_name(f"{node}-{interface}")


def short_name(name: str) -> str:
    """An interface name Linux has room for: `name` itself where it fits."""
    return name if len(name) <= INTERFACE_LENGTH else f"{name[:8]}-{_digest(name)}"


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:6]
