# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every link end to end: the contract against what the NIC and both switches say of themselves.

    cabling     the links of the model, from both ends
    said        one vocabulary for switches and NICs
    switch_end  what a port shall say, and what its report says
    nic_end     the same of a rail
    judging     one link: which end is wrong, and the command that repairs it
    neighbours  LLDP against the model
    check       all of it

Pure: whoever calls it has read switches and nodes before.
"""

from __future__ import annotations

from .cabling import End, Link, Node, Switch, cabling_of
from .check import Group, Links, check_links
from .neighbours import Finding

__all__ = [
    "End",
    "Finding",
    "Group",
    "Link",
    "Links",
    "Node",
    "Switch",
    "cabling_of",
    "check_links",
]
