# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The contract of a site that says nothing. The only place where these numbers stand.

A unit test searches the rest of the code for them: a second DSCP 26 somewhere would be the one that
is forgotten when a site moves to 24.
"""

from __future__ import annotations

ROCE_DSCP = 26
ROCE_PRIORITY = 3
ROCE_BANDWIDTH_PERCENT = 50

CNP_DSCP = 48
CNP_PRIORITY = 6

BEST_EFFORT_PRIORITY = 0

# What Cumulus Linux sets for lossless RoCE. No vendor has published a rule for 800G.
ECN_MINIMUM_BYTES = 150_000
ECN_MAXIMUM_BYTES = 1_500_000
ECN_PROBABILITY_PERCENT = 100

WATCHDOG_DETECTION_MS = 200
WATCHDOG_RESTORATION_MS = 400
WATCHDOG_ACTION = "drop"

FABRIC_MTU = 9216
FABRIC_MTU_LAYER = "frame"
ROCE_PATH_MTU = 4096

# Too long a cable costs buffer, too short a one loses packets: rather long.
CABLE_METRES_TO_NODES = 50
CABLE_METRES_BETWEEN_SWITCHES = 100
