# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Code shared by the simulated switch systems. Standard library only: it runs in the containers."""
