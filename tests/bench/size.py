#!/usr/bin/env python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Lines, files and module payloads of the working tree, beside those of a commit.

    ./test --bench size [COMMIT]

The commit is 8fbd673 unless another is named. Lines and files are those that git tracks; a payload
is what Ansible sends to a node for one module, arguments left out. Exits with 1 over a limit.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BEFORE = "8fbd673"
LIMITS = {"plugins": 57_950, "roles": 4_050, "tests": 63_100, "tests/bed": 18_600}
"""Nearly what there is: a feature that needs more raises them in its own change. The collection was
cut to 44,400, 8,800 and 47,700 lines at c0fcc39; discover, preflight, HPC-X, Spectrum-X, health of
links, proofs of GPU memory, jobs, sweeps, Intel MPI, builds from source, revocation, signers, typed
answers, sessions of the MPI user, sshd's refusals, firewalls, loss, bindings, the Xid catalogue,
drivers of others, published buffers, groups of ports and later systems came after."""
BED = "tests/bed"
"""The test bed: every file of it, and none of it among the product's tests."""
UTILS = ("plugins/module_utils", "plugins/plugin_utils")
LIMIT_FILES = 233
LIMIT_WORDS = 38_800
LIMIT_KB = 290
"""Of a payload; Ansible's own part is 169 (ping)."""
LIMITS_KB = {
    "cluster_preflight": 415,
    "mpi_job": 310,
    "nvidia_gpu": 362,
    "rdma_stack": 340,
    "roce_rails": 335,
}
"""What shares parts with other layers: both package managers, hardware, rails, firewalls."""
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


def git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True).stdout


def tree(commit: str, folder: Path) -> Path:
    """The collection as the commit has it; without one, as the files that git tracks are now."""
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


def measured(top: Path) -> dict[str, float]:
    """Name and figure: lines and files of each subsystem, words, kilobytes of payloads."""
    found: dict[str, float] = {}
    groups = {name: top / name for name in ("plugins", "roles", "tests", BED)}
    for above in UTILS:
        folders = [path for path in (top / above).glob("*") if path.is_dir()]
        groups.update({f"{above}/{path.name}": path for path in sorted(folders)})
    groups["plugins/modules"] = top / "plugins/modules"
    for name, folder in groups.items():
        paths = [p for p in folder.rglob("*") if p.is_file() and not p.is_symlink()]
        if name.startswith("plugins") or name == "tests":
            paths = [path for path in paths if path.suffix == ".py"]
        if name == "tests":
            paths = [path for path in paths if not path.is_relative_to(top / BED)]
        found[f"{name} lines"] = sum(path.read_bytes().count(b"\n") for path in paths)
        found[f"{name} files"] = len(paths)
    found["utils files"] = sum(len(list((top / each).rglob("*.py"))) for each in UTILS)
    pages = (top / "docs").glob("*.md")
    found["docs words"] = sum(len(page.read_text(encoding="utf-8").split()) for page in pages)
    collections = str(top.parents[2])
    argv = [sys.executable, "-c", PAYLOADS, collections]
    run = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True, cwd=collections)
    sizes = json.loads(run.stdout.splitlines()[-1])
    found.update({f"{name} payload kB": size for name, size in sizes.items()})
    return found


def limit(name: str) -> float:
    subject, _, what = name.rpartition(" ")
    if what == "kB":
        return LIMITS_KB.get(subject.removesuffix(" payload"), LIMIT_KB)
    if what == "words":
        return LIMIT_WORDS
    if name == "utils files":
        return LIMIT_FILES
    return LIMITS.get(subject, 0) if what == "lines" else 0


def main(arguments: list[str]) -> int:
    commit = arguments[0] if arguments else BEFORE
    with tempfile.TemporaryDirectory() as folder:
        before = measured(tree(commit, Path(folder, "before")))
        now = measured(tree("", Path(folder, "now")))
    over = 0
    sys.stdout.write(f"{'':<48}{commit:>10}{'now':>10}{'limit':>10}\n")
    for name in sorted({*before, *now}):
        values = [before.get(name), now.get(name), limit(name) or None]
        shown = "".join(f"{'-' if value is None else format(value, '.0f'):>10}" for value in values)
        missed = bool(limit(name)) and now.get(name, 0) > limit(name)
        over += missed
        sys.stdout.write(f"{name:<48}{shown}{'  over' if missed else ''}\n")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
