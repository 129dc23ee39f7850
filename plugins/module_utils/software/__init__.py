# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The software set of a node (`cluster_software`), its rules, and its packages."""
