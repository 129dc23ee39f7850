# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Install the packages of a set: exact versions from verified repositories, pinned and held.

`package.py` describes a set and the interface to package managers, which apt.py and dnf.py
implement. `planning.py` chooses versions and transactions; `installer.py` plans, acts and verifies.
"""
