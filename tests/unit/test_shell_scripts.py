# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Shell scripts in Python strings pass shellcheck, like the scripts in files."""

from __future__ import annotations

import ast
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

PLUGINS = Path(__file__).parents[2] / "plugins"


def scripts() -> Iterator[object]:
    """Every string of the plugins that starts with `#!/bin/sh`."""
    for path in sorted(PLUGINS.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "#!/bin/sh\n" in text else ():
            value = node.value if isinstance(node, ast.Constant) else None
            if isinstance(value, str) and value.startswith("#!/bin/sh\n"):
                yield pytest.param(value, id=f"{path.relative_to(PLUGINS)}:{node.lineno}")


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
@pytest.mark.parametrize("script", list(scripts()))
def test_scripts_pass_shellcheck(script: str) -> None:
    done = subprocess.run(
        ["shellcheck", "-"], input=script, capture_output=True, text=True, check=False
    )
    assert done.stdout == ""
