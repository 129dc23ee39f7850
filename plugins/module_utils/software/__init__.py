# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The set of software of a node (`cluster_software`), what goes together, and its packages."""
