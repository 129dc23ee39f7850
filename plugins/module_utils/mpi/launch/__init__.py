# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Start ranks on the nodes: readiness, command lines, time limits, and the sweep afterwards."""
