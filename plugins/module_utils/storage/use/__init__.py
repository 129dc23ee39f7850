# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Shared file systems proved by using them: written, read by the neighbour, judged, tabled."""
