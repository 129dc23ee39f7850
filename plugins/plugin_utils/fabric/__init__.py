# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The switches' end of the QoS contract.

`compiler.py` makes one intent per switch. `sonic/`, `nvue/` and `eos/` are the systems, behind the
interface in `system.py`. `session.py` applies a difference safely on any of them: the switch's own
timer undoes it unless it is confirmed. `promises.py` makes the checks. `links.py` compares both
ends of every link (`ends.py`) and its cable (`cabling.py`).
"""
