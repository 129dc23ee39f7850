# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The folder of a new site: settings of Ansible, an inventory to edit, and the next steps."""

from __future__ import annotations

import glob
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ..module_utils.core.text import nearest, some

COLLECTION = Path(__file__).parents[2]
"""Where this collection is installed, or its checkout."""
SEARCHED = ("~/.ansible/collections", "/usr/share/ansible/collections")
"""Where Ansible finds collections without a setting."""
SCHEMA = "cluster.schema.json"
NAMED = "# yaml-language-server: $schema="
"""Start of the comment that names the JSON Schema of a model."""
INVENTORY = "inventory"
_PLAIN = re.compile(r"[A-Za-z0-9_./ +@~-]+")

HEAD = f"""\
# Settings of Ansible for commands that run in this folder.
[defaults]
inventory = {INVENTORY}
"""
IGNORED = """\
# Written by runs; reports name hosts and addresses.
/reports/
/*.draft.yml
*.retry
"""
README = """\
# Cluster `{design}`

The folder of a cluster that the Ansible collection
[baremetal.mpi_roce](https://github.com/baremetal/mpi_roce/blob/main/docs/first-site.md) installs
and verifies. Run Ansible in this folder: `ansible.cfg` has the settings and names the inventory.
Keep the folder in Git, with secrets encrypted by `ansible-vault`.

1. Describe the cluster in `inventory/cluster.yml`, an example of the design `{design}`. Editors
   with a YAML language server complete its keys; `ansible-doc -t inventory
   baremetal.mpi_roce.cluster` explains them. Values of your machines, to compare with:
   `ansible-playbook baremetal.mpi_roce.discover -i ADDRESSES, -e discover_file=cluster.draft.yml`
2. `ansible-inventory --graph` lists every error of the model, or else the hosts.
3. Copy the public keys of package repositories to `inventory/keys/`, compare their fingerprints,
   and set their checksums under `software.repositories`. Wheels of mpi4py: `inventory/wheels/`.
4. `ansible-playbook baremetal.mpi_roce.preflight`: nothing blocks.
5. `ansible-playbook baremetal.mpi_roce.site --check --diff`: no failed check. Then without
   `--check --diff`, the switches (`--tags fabric`) and one node (`--limit`) first.
6. `ansible-playbook baremetal.mpi_roce.drift`, daily.

After an upgrade of the collection, copy its `docs/cluster.schema.json` here.
"""


class SiteError(ValueError):
    """The folder is not written, for the reason in the message."""


def designs(collection: Path = COLLECTION) -> dict[str, Path]:
    """The inventories of the collection that are examples, by the name of their folder."""
    models = sorted(collection.glob("inventories/**/cluster.yml"))
    folders = {path.parent.name: path.parent for path in models}
    return {name: path for name, path in folders.items() if not name.startswith("virtual")}


def content(design: str, collection: Path = COLLECTION) -> dict[str, str]:
    """The files of the folder by relative path. Raises SiteError for an unknown design."""
    known = designs(collection)
    if design not in known:
        raise SiteError(f"the design {design!r} is unknown. {nearest(design, known)}")
    found = {
        "ansible.cfg": _settings(collection),
        ".gitignore": IGNORED,
        "README.md": README.format(design=design),
        SCHEMA: (collection / "docs" / SCHEMA).read_text(encoding="utf-8"),
        f"{INVENTORY}/keys/.gitkeep": "",
    }
    for path in sorted(known[design].rglob("*.yml")):
        text = path.read_text(encoding="utf-8")
        text = re.sub(rf"^{re.escape(NAMED)}\S+", f"{NAMED}../{SCHEMA}", text)
        found[f"{INVENTORY}/{path.relative_to(known[design])}"] = text
    return found


def _settings(collection: Path) -> str:
    """The collection's own ansible.cfg, which finds the collection where it is."""
    root = str(collection.parents[2])
    if not _PLAIN.fullmatch(root):
        raise SiteError(f"{root!r}, where the collection is, cannot be written to ansible.cfg")
    ours = [] if root in map(os.path.expanduser, SEARCHED) else [root]
    _head, _section, text = (
        (collection / "ansible.cfg").read_text(encoding="utf-8").partition("[defaults]\n")
    )
    path = f"collections_path = {':'.join([*ours, *SEARCHED])}"
    return HEAD + re.sub(r"(?m)^collections_path = .*$", lambda line: path, text)


def write(site: Path, files: Mapping[str, str]) -> None:
    """Write the files, which are complete before the first one is in its place. A new folder gets
    its place by one rename; what a killed run left in an existing one is completed. Raises
    SiteError."""
    check(site, files)
    new = not site.exists()
    home, moved = site.parent if new else site, list[Path]()
    part = None
    try:
        home.mkdir(parents=True, exist_ok=True)
        unfinished = _unfinished(site)
        part = Path(tempfile.mkdtemp(prefix=_prefix(site), dir=home))
        made = part / "site"
        made.mkdir(mode=0o755)
        for name, text in files.items():
            path = made / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        if new:
            made.rename(site)
        for path in () if new else sorted(made.iterdir(), reverse=True):
            if not os.path.lexists(site / path.name):
                moved.append(path)
                path.rename(site / path.name)
        for path in unfinished:
            shutil.rmtree(path, ignore_errors=True)
    except BaseException as error:
        for path in moved:
            if not os.path.lexists(path):
                (site / path.name).rename(path)
        if isinstance(error, OSError):
            raise SiteError(f"the folder was not written: {error}") from error
        raise
    finally:
        if part is not None:
            shutil.rmtree(part, ignore_errors=True)


def _prefix(site: Path) -> str:
    return f".{site.name}.new-site-"


def _unfinished(site: Path) -> list[Path]:
    """What runs that were killed left next to the folder or in it."""
    found = (home.glob(f"{glob.escape(_prefix(site))}*") for home in (site.parent, site))
    return [path for each in found for path in each if path.is_dir() and not path.is_symlink()]


def check(site: Path, files: Mapping[str, str]) -> None:
    """Check that nothing would be overwritten, and that Ansible would read the result. Raises
    SiteError."""
    try:
        _check(site, files)
    except OSError as error:
        raise SiteError(f"the folder cannot be written: {error}") from error


def _check(site: Path, files: Mapping[str, str]) -> None:
    if not str(site).isprintable():
        raise SiteError("the name of the folder contains characters that cannot be printed")
    if os.path.lexists(site) and not site.is_dir():
        raise SiteError(f"{site} is not a folder: name one that does not exist, or an empty one")
    tops = sorted({Path(name).parts[0] for name in files})
    there = [top for top in tops if os.path.lexists(site / top)]
    if _unfinished(site):
        there = [top for top in there if not _same(site, top, files)]
    if there:
        paths = some([str(site / top) for top in there])
        raise SiteError(f"nothing is overwritten: move {paths}, or name another folder")
    if site.is_dir() and site.stat().st_mode & 0o002:
        raise SiteError(
            f"Ansible reads no ansible.cfg in a folder that all users may write: {site}"
        )


def _same(site: Path, top: str, files: Mapping[str, str]) -> bool:
    """Whether a file or folder has the content to be written, and nothing else."""
    path = site / top
    there = path.rglob("*") if path.is_dir() and not path.is_symlink() else [path]
    found = {str(each.relative_to(site)): each for each in there if not each.is_dir()}
    return found.keys() == {name for name in files if Path(name).parts[0] == top} and not any(
        each.is_symlink() or each.read_bytes() != files[name].encode()
        for name, each in found.items()
    )
