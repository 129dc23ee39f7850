# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Acceptance of a cluster: rounds of pairs, outliers, and the search for the slow part."""
