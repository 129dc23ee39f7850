# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the catalogue answers when it has no packages."""

from __future__ import annotations


class NotInCatalog(ValueError):
    """The set cannot be had on this distribution; the text says what and what to do."""
