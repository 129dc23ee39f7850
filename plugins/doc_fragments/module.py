# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Attributes of all modules: author, version, and support for check mode and diff mode."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
version_added: "1.0.0"
author: [Baremetal MPI RoCE founders (@baremetal)]
attributes:
  check_mode:
    support: full
    description: Computes the same plan and changes nothing; differences are C(pending) checks.
  diff_mode:
    support: full
    description: Shows every difference.
"""

    READS = r"""
version_added: "1.0.0"
author: [Baremetal MPI RoCE founders (@baremetal)]
attributes:
  check_mode:
    support: full
    description: Changes nothing.
  diff_mode:
    support: none
    description: The module returns no diff.
"""
