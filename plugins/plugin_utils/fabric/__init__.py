# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The switch side of the QoS contract.

Each switch system is a package here that registers itself (`base.py`, `systems.py`). `system.py`
compiles one intent per switch. `session.py` applies a difference on any system, under a timer on
the switch that undoes the change unless it is confirmed. `compare.py` evaluates a switch and a NIC
against the contract, `links.py` both ends of every link, and `cabling.py` the cables.
"""
