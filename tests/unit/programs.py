# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Programs that are not part of a package, imported to be tested."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import program as built

ROOT = Path(__file__).resolve().parents[2]


def program(path: str) -> ModuleType:
    """A new import each time, under a name that no other test can find; the path is relative to the
    top.
    """
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def from_ansibles_zip(builder: ModuleType, archive: Path, path: Path) -> None:
    """Write the program of `builder` to `path`, as a module does, which reads its sources from the
    zip that Ansible made."""
    with zipfile.ZipFile(archive, "w") as payload:
        for name, text in built.sources(builder.__name__).items():
            payload.writestr(name, text)
    code = (
        f"import sys; sys.path.insert(0, {str(archive)!r})\n"
        f"from {builder.__package__} import {builder.__name__.rpartition('.')[2]} as builder\n"
        "text = builder.program_text().encode('utf-8', 'surrogateescape')\n"
        "sys.stdout.buffer.write(text)\n"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, check=True)
    path.write_bytes(done.stdout)
    path.chmod(0o755)
