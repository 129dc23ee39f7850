# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""MPI on a node: installation, environment, hostfile, launching, jobs, and the smoke test."""
