# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The switches' end of the QoS contract: what each is told, how, and what it then reports.

`compiler.py` makes one intent per switch of model and contract. `sonic/`, `nvue/` and `eos/` each
speak one system, behind the interface in `system.py`. `session.py` applies a difference safely on
any of them: the switch's own timer undoes it unless it is confirmed. `links/` compares what both
ends of every link report.
"""
