# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What will stop the first run on a node: repositories in `answers`, all else in `node`."""
