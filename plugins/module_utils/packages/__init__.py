# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Packages of one set: exactly these versions, from verified repositories, pinned and held.

`package.py` has what is wanted and what apt.py and dnf.py have in common; `planning.py` finds
versions and transactions; `engine.py` plans and converges on either.
"""
