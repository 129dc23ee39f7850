# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A simulation of an EOS switch as seen through eAPI: configuration only, no packets."""
