# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the simulated switch systems share. Standard library only: it runs inside the containers."""
