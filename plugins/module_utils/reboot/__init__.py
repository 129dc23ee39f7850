# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Reboots under control: what a node says of itself, who is rebooted when, who is left and why."""
