#!/usr/bin/env python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compare lines, files, words and module payloads of the working tree with those of a commit.

    ./test --bench size [COMMIT]

The default commit is cfcb28b. Only tracked files are counted. A payload is the program that Ansible
sends to a node for one module, without arguments. Exits with 1 if a limit is exceeded.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BEFORE = "cfcb28b"
BED = "tests/bed"
"""The test bed: a separate collection, not part of the product or of the product's tests."""
UTILS = ("plugins/module_utils", "plugins/plugin_utils")
GENERATED = "Generated from layers/"
"""Mark of generated files."""
REGIONS = {
    "modules": r"^ARGUMENTS = \{(?:\}|\n(?: .*\n)*\})\n",
    "tasks": rf"^( +)# {GENERATED}.*\n(?:\1\w+: .*\n)*",
}
"""Generated parts of modules and of roles' tasks, as in tools/generate_layers.py."""
LIMITS = {
    "plugins lines": 87_720,
    "roles lines": 3_150,
    "tests lines": 88_900,
    f"{BED} lines": 19_600,
    "utils files": 383,
    "docs words": 50_600,
}
"""Slightly above the present figures. A change that needs more raises them itself. Lines of roles
exclude generated files; lines of plugins include the generated lines that are shown separately."""
LIMIT_KB = 290
"""Default limit of a payload. Ansible's part, as in ping, is 169 kB."""
LIMITS_KB = {
    "cluster_preflight": 431,
    "gpu_burn": 414,
    "mpi_allreduce": 331,
    "mpi_job": 318,
    "mpi_stack": 301,
    "node_check": 459,
    "nvidia_gpu": 370,
    "rdma_stack": 352,
    "roce_rails": 352,
}
"""Modules that share code with other layers: package managers, hardware, rails, firewalls."""
PAYLOADS = """
import json, sys
from pathlib import Path
from ansible.executor.module_common import modify_module
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import init_plugin_loader
from ansible.template import Templar

init_plugin_loader([sys.argv[1]])
folder = Path(sys.argv[1], "ansible_collections/baremetal/mpi_roce/plugins/modules")
vars = {"ansible_python_interpreter": "/usr/bin/python3"}
templar = Templar(DataLoader())
sizes = {}
for path in sorted(folder.glob("*.py")):
    name = f"ansible_collections.baremetal.mpi_roce.plugins.modules.{path.stem}"
    built = modify_module(
        module_name=name,
        module_path=str(path),
        module_args={},
        templar=templar,
        task_vars=vars,
        module_compression="ZIP_DEFLATED",
    )
    sizes[path.stem] = len(built.b_module_data) / 1000
print(json.dumps(sizes))
"""


def git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True).stdout


def tree(commit: str, folder: Path) -> Path:
    """Extract the collection at a commit, or the tracked files of the working tree if empty."""
    top = folder / "ansible_collections/baremetal/mpi_roce"
    top.mkdir(parents=True)
    if commit:
        archive = git("archive", commit)
    else:
        names = [name for name in git("ls-files").decode().splitlines() if (ROOT / name).is_file()]
        packed = ["tar", "-c", *names]
        archive = subprocess.run(packed, cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x"], cwd=top, input=archive, check=True)
    return top


def files(folder: Path, pattern: str = "*") -> Iterator[Path]:
    yield from (p for p in folder.rglob(pattern) if p.is_file() and not p.is_symlink())


def generated_lines(path: Path) -> int:
    text = path.read_text(encoding="utf-8")
    if GENERATED in "".join(text.splitlines(keepends=True)[:3]):
        return text.count("\n")
    region = re.compile(REGIONS.get(path.parent.name, r"\Z"), re.MULTILINE)
    return sum(match.group().count("\n") for match in region.finditer(text))


def groups(top: Path) -> Iterator[tuple[str, list[Path]]]:
    yield "plugins", list(files(top / "plugins", "*.py"))
    yield "roles", list(files(top / "roles"))
    bed = top / BED
    yield "tests", [path for path in files(top / "tests", "*.py") if bed not in path.parents]
    yield BED, list(files(bed))
    for folder in sorted((*(top / "plugins").glob("*_utils/*/"), top / "plugins/modules")):
        if folder.is_dir():
            yield str(folder.relative_to(top)), list(files(folder, "*.py"))


def measure(top: Path) -> dict[str, float]:
    """Return lines and files of each part, words of pages and kilobytes of payloads, by name."""
    figures: dict[str, float] = {}
    for name, paths in groups(top):
        figures[f"{name} lines"] = sum(path.read_bytes().count(b"\n") for path in paths)
        figures[f"{name} files"] = len(paths)
    figures["roles lines"] -= sum(map(generated_lines, files(top / "roles")))
    figures["plugins generated lines"] = sum(map(generated_lines, files(top / "plugins", "*.py")))
    figures["utils files"] = sum(len(list(files(top / utils, "*.py"))) for utils in UTILS)
    pages = (top / "docs").glob("*.md")
    figures["docs words"] = sum(len(page.read_text(encoding="utf-8").split()) for page in pages)
    collections = str(top.parents[2])
    argv = [sys.executable, "-c", PAYLOADS, collections]
    run = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True, cwd=collections)
    payloads = json.loads(run.stdout.splitlines()[-1])
    return {**figures, **{f"{name} payload kB": size for name, size in payloads.items()}}


def limit(name: str) -> float:
    if name.endswith(" payload kB"):
        return LIMITS_KB.get(name.removesuffix(" payload kB"), LIMIT_KB)
    return LIMITS.get(name, 0)


def main(arguments: list[str]) -> int:
    commit = arguments[0] if arguments else BEFORE
    with tempfile.TemporaryDirectory() as folder:
        before = measure(tree(commit, Path(folder, "before")))
        now = measure(tree("", Path(folder, "now")))
    over = 0
    sys.stdout.write(f"{'':<48}{commit:>10}{'now':>10}{'limit':>10}\n")
    for name in sorted({*before, *now}):
        values = [before.get(name), now.get(name), limit(name) or None]
        cells = "".join(f"{'-' if value is None else format(value, '.0f'):>10}" for value in values)
        exceeded = bool(limit(name)) and now.get(name, 0) > limit(name)
        over += exceeded
        sys.stdout.write(f"{name:<48}{cells}{'  over' if exceeded else ''}\n")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
