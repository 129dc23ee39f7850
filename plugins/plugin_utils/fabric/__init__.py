# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The switches' end of the QoS contract.

`system.py` makes one intent per switch, and has the interface of the systems in `sonic/`, `nvue/`
and `eos/`. `session.py` applies a difference safely on any of them: the switch's own timer undoes
it unless it is confirmed. `ends.py` makes the checks of a switch. `links.py` compares both ends of
every link and its cable (`cabling.py`).
"""
