# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A SONiC switch without hardware: its databases, its commands, and the effects of its daemons.

`yang.py` and `patch.py` reject what SONiC rejects, `updater.py` is its generic config updater,
`daemons.py` applies changes as orchagent and buffermgrd do. tests/bed/switches.md lists the
limits. Standard library only.
"""
