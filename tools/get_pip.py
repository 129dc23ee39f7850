# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Install pip into an empty virtual environment, for ansible-test sanity.

ansible-test downloads such a script from its server. This one takes the same arguments, uses the
pip bundled with Python, and contacts only the configured package index.
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
