# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Exporters and Prometheus on a host: services of the distribution with our arguments (service),
TLS with a key that never leaves the host (tls), and the desired state of both (host)."""

from __future__ import annotations

DIRECTORY = "etc/baremetal-mpi-roce/monitoring"
SERVER_FILES = ("prometheus.yml", "rules.yml", "nodes.json", "dcgm.json", "switches.json")
"""Files of Prometheus in DIRECTORY, on the host that runs it."""
PASSWORD = f"{DIRECTORY}/password"
TEXTFILES = "/var/lib/prometheus/node-exporter"
USER = "prometheus"
"""Who may read exporters, with the password."""
