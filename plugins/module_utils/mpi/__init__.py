# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""MPI on a node: its environment and versions, the hostfile, and the allreduce that proves it."""
