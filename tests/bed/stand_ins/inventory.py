# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The inventory of nodes with stand-ins, written as for a real cluster."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from .build import TOP
from .versions import DOCAS, FIRST, FLOATING

TEMPLATE = Path(__file__).parent / "inventory"
RAILS_BELOW = 100
"""Rails are in 10.(OCTET-100).0.0/16."""


def write(folder: Path, built: Path, name: str, octet: int) -> Path:
    """Write a new inventory to `folder`, with the keys and the location of the build."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(TOP / "inventories/virtual-mixed/group_vars", folder / "group_vars")
    with open(folder / "group_vars/all.yml", "a", encoding="utf-8") as variables:
        variables.write(f"\nstand_ins_built: {built}\n")
    shutil.copytree(built / "keys", folder / "keys")
    sums = {
        f"{path.stem.upper()}_KEY": hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (folder / "keys").glob("*.asc")
    }
    words = {
        "NAME": name,
        "OCTET": str(octet),
        "RAILS": str(octet - RAILS_BELOW),
        "DOCA": DOCAS[0].version,
        "DRIVER": FIRST.version,
        "CUDA": ".".join(FIRST.cuda.split(".")[:2]),
        **{key.upper(): FLOATING["first"][key] for key in ("dcgm", "gdrcopy", "nccl")},
        **sums,
    }
    text = (TEMPLATE / "cluster.yml").read_text(encoding="utf-8")
    for word, value in words.items():
        text = text.replace(f"@{word}@", value)
    (folder / "cluster.yml").write_text(text, encoding="utf-8")
    return folder
