# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read exporters and Prometheus of virtual nodes from the controller."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request

from tests.nodes import Nodes

LAUNCHER, ETC = "launcher01", "/etc/baremetal-mpi-roce/monitoring"


def secrets(nodes: Nodes) -> dict[str, str]:
    path = nodes.ssh_config.parent / "monitoring/password.json"
    assert path.stat().st_mode & 0o777 == 0o600
    return dict(json.loads(path.read_text()))


def get(nodes: Nodes, host: str, rest: str, password: str = "") -> tuple[int, str]:
    """Status and text of a service on the management address, from the controller."""
    authority = nodes.on(LAUNCHER).file(f"{ETC}/ca.pem").content_string
    url = f"https://{nodes.of(host)['ansible_host']}:{rest}"
    request = urllib.request.Request(url)
    if password:
        login = base64.b64encode(f"prometheus:{password}".encode()).decode()
        request.add_header("Authorization", f"Basic {login}")
    context = ssl.create_default_context(cadata=authority)
    try:
        with urllib.request.urlopen(request, timeout=20, context=context) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""
