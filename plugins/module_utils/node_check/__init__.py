# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The program `node-check`: looks at a node (looks, kernel, leftovers, rates), each bounded in time
(parallel), a verdict with the next step (verdict), and drains in Slurm (drain)."""

from __future__ import annotations

DIRECTORY = "usr/local/libexec/baremetal-mpi-roce"
PROGRAM = f"{DIRECTORY}/node-check"
SETTINGS = "etc/baremetal-mpi-roce/node-check.json"
STATE = "var/lib/baremetal-mpi-roce/node-check"
"""Directory of what one run remembers for the next, over boots."""

CHECK, PROLOG, PERIODIC, EPILOG = "check", "prolog", "periodic", "epilog"
"""Modes. CHECK looks at everything, and neither remembers nor drains."""
LINKS = {"slurm-prolog": PROLOG, "slurm-epilog": EPILOG, "slurm-health-check": PERIODIC}
"""Names under which Slurm calls the program, next to it, and the mode that each sets."""
