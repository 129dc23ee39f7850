# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The private data directory of ansible-runner: everything that a run on an execution node needs.

It contains the code of this collection, so that all nodes run the same, the inventory,
ansible.cfg, files below the operator's home directory, and secrets. It is in memory (/dev/shm),
mode 0700, and is sent through SSH only.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from ...module_utils.core.text import bytes_text
from ..schema.findings import Findings, RefusedError
from .cut import Job

COLLECTION = Path(__file__).resolve().parents[3]
CODE = ("plugins", "roles", "playbooks", "meta", "layers", "galaxy.yml", "MANIFEST.json")
INSTALLED = Path("project/collections/ansible_collections/baremetal/mpi_roce")
IDENT = "share"
REPORTS = Path("artifacts", IDENT, "reports")
NEAR = ("group_vars", "host_vars", "keys", "wheels")
"""Directories next to an inventory file that belong to it."""
MOST_FILE_BYTES = 32 << 20
"""Larger files of an inventory, such as archives of an MPI, stay on the controller."""
MOST_BYTES = 256 << 20
MEMORY = Path("/dev/shm")


class DataError(RefusedError):
    what = "data of execution nodes: no host was touched"


@dataclass(frozen=True)
class Settings:
    """How Ansible was started here; runs of jobs repeat it."""

    playbook: str
    """`site` or `verify`."""
    sources: Sequence[Path]
    config: Optional[Path] = None
    check: bool = False
    diff: bool = False
    forks: int = 5
    verbosity: int = 0
    user: str = ""
    host_key_checking: bool = True
    files: Sequence[str] = ()
    """Files below the home directory that the inventory names, such as keys and known_hosts."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Extra variables."""
    vaults: Sequence[tuple[str, bytes]] = field(default=(), repr=False)
    """Label and password."""
    passwords: Mapping[str, str] = field(default_factory=dict, repr=False)
    """`connection` and `become`, where they were given."""

    def arguments(self, root: str, sources: Sequence[str]) -> list[str]:
        """Options of ansible-playbook; `root` is the directory that has the secrets."""
        words = [word for source in sources for word in ("-i", source)]
        words += ["--extra-vars", f"@{root}/secrets/extra.json"] if self.extra else []
        for label, _password in self.vaults:
            words += ["--vault-id", f"{label}@{root}/secrets/vault-{label}"]
        for kind in self.passwords:
            words += [f"--{kind}-password-file", f"{root}/secrets/{kind}"]
        words += ["--check"] if self.check else []
        words += ["--diff"] if self.diff else []
        words += ["--user", self.user] if self.user else []
        words += ["-" + "v" * self.verbosity] if self.verbosity else []
        return [*words, "--forks", str(self.forks)]


def checked(settings: Settings, home: Path) -> list[tuple[Path, Path]]:
    """Files below the home directory, with their paths relative to it. Raises DataError."""
    findings, found = Findings(), []
    for name in settings.files:
        path = Path(os.path.normpath(home / Path(name).expanduser()))
        if not path.is_relative_to(home):
            problem = f"is outside of {home}: execution nodes have only files below it"
            findings.add("share.file_outside", ("share_files",), problem, "Move it", name)
        elif not path.is_file():
            remedy = "Correct the name, or create the file"
            findings.add("share.no_file", ("share_files",), f"{path} is no file", remedy, name)
        else:
            found.append((path, path.relative_to(home)))
    for label, _password in settings.vaults:
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", label):
            problem, remedy = "a vault id has other characters", "Use letters and digits"
            findings.add("share.vault_id", (), problem, remedy, label)
    if findings:
        raise DataError(findings.found)
    return found


@contextlib.contextmanager
def made(settings: Settings, cluster: str, home: Path) -> Iterator[tuple[Path, int]]:
    """The directory and its size. It is removed also if this process is killed, as Ansible kills
    it after Ctrl-C. Raises DataError and OSError."""
    root, size = _make(settings, cluster, home)
    argv = ["/bin/sh", "-c", 'cat >/dev/null; rm -rf -- "$1"', "sh", str(root)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, start_new_session=True):
        yield root, size  # the end of this block, or process, closes the pipe


def _make(settings: Settings, cluster: str, home: Path) -> tuple[Path, int]:
    files = checked(settings, home)
    prefix = f"baremetal-share-data-{os.getuid()}-{cluster}-"
    directory = MEMORY if MEMORY.is_dir() else Path(tempfile.gettempdir())
    for path in directory.glob(f"{prefix}*"):  # of a run that was killed: this one has the lock
        if re.fullmatch(re.escape(prefix) + "[a-z0-9_]{8}", path.name):
            shutil.rmtree(path, ignore_errors=True)
    root = Path(tempfile.mkdtemp(prefix=prefix, dir=directory))  # mode 0700
    try:
        _code(root / INSTALLED)
        for number, source in enumerate(settings.sources):
            _inventory(source, root / "sources" / str(number))
        text = settings.config.read_text("utf-8") if settings.config else "[defaults]\n"
        _write(root / "project/ansible.cfg", text.encode())
        for path, relative in files:
            _write(root / "home" / relative, path.read_bytes())
        _secrets(settings, root / "secrets")
        _write(root / "env/envvars", json.dumps(_environment(settings)).encode())
        _write(root / "env/settings", json.dumps({"suppress_output_file": True}).encode())
        size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
        if size > MOST_BYTES:
            findings, limit = Findings(), bytes_text(MOST_BYTES)
            problem = f"inventory and code have {bytes_text(size)}, the limit is {limit}"
            findings.add("share.size", (), problem, "Move large files out of the inventory")
            raise DataError(findings.found)
    except BaseException:
        shutil.rmtree(root, ignore_errors=True)
        raise
    return root, size


def _code(target: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc", "*.md", "generate_*.py")
    for name in CODE:
        source = COLLECTION / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=ignored)
        elif source.is_file():
            _write(target / name, source.read_bytes())


def _inventory(source: Path, target: Path) -> None:
    """Links are followed: a node has nothing that they point to."""

    def large(folder: str, names: list[str]) -> list[str]:
        paths = {name: Path(folder, name) for name in names}
        ours = {name for name, path in paths.items() if not path.exists()}
        ours |= {n for n, p in paths.items() if p.is_file() and p.stat().st_size > MOST_FILE_BYTES}
        return sorted(ours)

    if source.is_dir():
        shutil.copytree(source, target, ignore=large)
        return
    _write(target / source.name, source.read_bytes())
    for name in NEAR:
        if (source.parent / name).is_dir():
            shutil.copytree(source.parent / name, target / name, ignore=large)


def sources_on_node(settings: Settings) -> list[str]:
    """Relative to the directory `project`, in which ansible-playbook runs."""
    found = []
    for number, source in enumerate(settings.sources):
        name = "" if source.is_dir() else f"/{source.name}"
        found.append(f"../sources/{number}{name}")
    return found


def _secrets(settings: Settings, folder: Path) -> None:
    for label, password in settings.vaults:
        _write(folder / f"vault-{label}", password)
    for kind, text in settings.passwords.items():
        _write(folder / kind, text.encode())
    if settings.extra:
        _write(folder / "extra.json", json.dumps(settings.extra, default=str).encode())


def _environment(settings: Settings) -> dict[str, str]:
    found = {
        "ANSIBLE_CONFIG": "ansible.cfg",
        "ANSIBLE_COLLECTIONS_PATH": "collections",
        "ANSIBLE_NOCOLOR": "1",
        # ansible-runner would switch it off.
        "ANSIBLE_HOST_KEY_CHECKING": str(settings.host_key_checking),
        "BAREMETAL_MPI_ROCE_REPORTS": f"../{REPORTS}",
    }
    if settings.vaults:  # instead of a path of the controller in ansible.cfg
        names = [f"{label}@../secrets/vault-{label}" for label, _password in settings.vaults]
        found["ANSIBLE_VAULT_IDENTITY_LIST"] = ",".join(names)
        found["ANSIBLE_VAULT_PASSWORD_FILE"] = f"../secrets/vault-{settings.vaults[0][0]}"
    return found


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(content)


def selection(job: Job) -> list[str]:
    return ["--tags", ",".join(job.layers), "--limit", ",".join(job.hosts)]


def transmit(settings: Settings, root: Path, job: Job) -> list[str]:
    """Arguments of ansible-runner, none of them secret."""
    arguments = [*settings.arguments("..", sources_on_node(settings)), *selection(job)]
    path = INSTALLED.relative_to("project") / "playbooks" / f"{settings.playbook}.yml"
    return [
        *("transmit", str(root), "--playbook", str(path), "--ident", IDENT),
        *("--omit-event-data", "--omit-env-files", f"--cmdline={shlex.join(arguments)}"),
    ]
