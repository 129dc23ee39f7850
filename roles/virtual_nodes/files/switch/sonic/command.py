# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every command of the simulation, by its name, which comes before its words."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def main() -> int:
    name, words = sys.argv[1], sys.argv[2:]
    if name == "config":
        from sonic import config

        return config.main(words)
    if name == "command" and words == ["boot"]:
        from sonic import switch

        switch.here().boot()
        return 0
    from sonic import show

    commands = {
        "show": show.show,
        "sonic-cfggen": show.cfggen,
        "sonic-db-cli": show.db_cli,
        "sonic-db-dump": show.db_dump,
        "pfcwd": show.pfcwd,
    }
    return commands[name](words)


if __name__ == "__main__":
    raise SystemExit(main())
