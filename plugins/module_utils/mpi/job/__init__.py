# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run a user's program over the hostfile: plan it, check the nodes, watch it, and clean up."""
