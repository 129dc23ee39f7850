# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Entry point of every command of the simulation. The first argument is the command's name."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sonic import commands, config, switch


def main() -> int:
    name, words = sys.argv[1], sys.argv[2:]
    if name == "command" and words == ["boot"]:
        switch.here().boot()
        return 0
    return {
        "config": config.main,
        "sonic-cfggen": commands.cfggen,
        "sonic-db-cli": commands.db_cli,
        "sonic-db-dump": commands.db_dump,
        "pfcwd": commands.pfcwd,
    }[name](words)


if __name__ == "__main__":
    raise SystemExit(main())
