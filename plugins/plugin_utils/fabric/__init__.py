# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The switch side of the QoS contract. Each switch system is a package here (`systems.py`)."""
