# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Puts pip into an empty virtual environment, for ansible-test sanity.

ansible-test downloads a script for that from a server of its own. This one takes the same
arguments, uses the pip that every Python brings along, and asks only the index that pip is set to.
"""

from __future__ import annotations

import subprocess
import sys


def main() -> None:
    wanted = [word for word in sys.argv[1:] if word not in ("--no-setuptools", "--no-wheel")]
    subprocess.run([sys.executable, "-m", "ensurepip", "--default-pip"], check=True)
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *wanted], check=True)


if __name__ == "__main__":
    main()
