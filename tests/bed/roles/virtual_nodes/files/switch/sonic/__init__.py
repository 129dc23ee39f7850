# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A SONiC switch without hardware: its databases, its commands, and what its daemons do.

`yang.py` and `patch.py` refuse what SONiC refuses, `updater.py` is its generic config updater,
`daemons.py` what orchagent and buffermgrd do with a change. docs/virtual-switches.md has what is
left out. Standard library only.
"""
