# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Stand-ins for packages, tools and repositories of GPU nodes. README.md describes their use."""

import sys
from pathlib import Path

# pytest has this from pyproject.toml; `python -m tests.bed.stand_ins` does not.
_collections = str(Path(__file__).resolve().parents[3] / "collections")
if _collections not in sys.path:
    sys.path.append(_collections)
