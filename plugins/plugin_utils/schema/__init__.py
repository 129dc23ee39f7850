# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What operators write, checked: kinds of values, and findings that name value and way out."""
