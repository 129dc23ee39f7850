# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A simulation of the NVUE REST API of Cumulus Linux 5.x: configuration only, no packets."""
