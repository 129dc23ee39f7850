# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Pull: the controller publishes a signed snapshot of each node's own variables, and the node
verifies itself against it (docs/pull.md)."""
