# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""node-check on a node: installed, unchanged by a second run, read back, and removed completely."""

from __future__ import annotations

import ast
import io
import json
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from dataclasses import replace
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any, Optional

import pytest
import yaml
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import program, systemd
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import (
    FAILED,
    OK,
    PENDING,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    run,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.engine import Outcome, settle
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.node_check import (
    DIRECTORY,
    LINKS,
    PROGRAM,
    SETTINGS,
    STATE,
    install,
    settings,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.node_check.install import (
    SERVICE,
    TIMER,
    UNITS,
    NodeCheck,
)
from ansible_collections.baremetal.mpi_roce.plugins.modules import node_check as module

from tests.unit.host import Host
from tests.unit.programs import from_ansibles_zip
from tests.waiting import deadline

ROOT = Path(__file__).resolve().parents[2]
HEALTHY = {"verdict": "healthy", "findings": []}
SETTINGS_OF = settings.Settings(host="node01")
FILES = (PROGRAM, SETTINGS, f"{UNITS}/{SERVICE}", f"{UNITS}/{TIMER}")


class Node(Host):
    """A node with systemd; the program prints `answer`, if it is installed."""

    layer = "node_check"

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.active: set[str] = set()
        self.answer: Any = HEALTHY
        self.gone.update(("scontrol", "env"))
        self.slurm = ""

    def converge(self, *, check_mode: bool = False, removed: bool = False) -> Outcome:
        return settle([NodeCheck(None if removed else SETTINGS_OF)], self.node(check_mode))

    def _systemctl_show(self, words: list[str]) -> tuple[int, str]:
        return 0, f"ActiveState={'active' if words[2] in self.active else 'inactive'}\n"

    def _systemctl_daemon_reload(self, words: list[str]) -> tuple[int, str]:
        return 0, ""

    _systemctl_reset_failed = _systemctl_daemon_reload

    def _systemctl_enable(self, words: list[str]) -> tuple[int, str]:
        link = self.root / systemd.LINKS / words[2]
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(f"/{UNITS}/{words[2]}")
        return 0, ""

    def _systemctl_restart(self, words: list[str]) -> tuple[int, str]:
        self.active.add(words[2])
        return 0, ""

    def _systemctl_stop(self, words: list[str]) -> tuple[int, str]:
        self.active -= set(words[2:])
        return 0, ""

    def _scontrol(self, words: list[str]) -> tuple[int, str]:
        return 0, self.slurm

    def _node_check(self, words: list[str]) -> tuple[int, str]:
        assert words[1:] == ["--json"] and (self.root / words[0].lstrip("/")).exists()
        text = self.answer if isinstance(self.answer, str) else json.dumps(self.answer)
        return 1 if "fault" in text else 0, text


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def statuses(outcome: Outcome, name: str = "node_check") -> list[str]:
    return [check.status for check in outcome.checks if check.name == name]


def test_installed_and_unchanged_by_the_second_run(node: Node) -> None:
    planned = node.converge(check_mode=True)
    assert planned.changed and statuses(planned) == [PENDING]
    assert not (node.root / PROGRAM).exists() and node.ran("systemctl", "enable") == 0
    first = node.converge()
    assert first.changed and first.errors == [] and statuses(first) == [OK]
    assert {check.status for check in first.checks} == {OK}
    assert (node.root / PROGRAM).stat().st_mode & 0o777 == 0o755
    for name in LINKS:
        assert (node.root / DIRECTORY / name).resolve() == node.root / PROGRAM
    assert node.active == {TIMER}
    before, ran = node.snapshot(), len(node.calls)
    for check_mode in (False, True):
        again = node.converge(check_mode=check_mode)
        assert not again.changed and {check.status for check in again.checks} == {OK}
    assert node.snapshot() == before
    assert {call[1] for call in node.calls[ran:]} == {"show", "--json", "-i"}


@pytest.mark.parametrize("name", FILES)
def test_what_was_edited_is_repaired(name: str, node: Node) -> None:
    node.converge()
    good = node.read(name) if name != PROGRAM else ""
    (node.root / name).write_text("edited")
    assert node.converge(check_mode=True).changed
    assert node.converge().changed and not node.converge().changed
    assert name == PROGRAM or node.read(name) == good


def test_links_and_timer_are_repaired(node: Node) -> None:
    node.converge()
    (node.root / DIRECTORY / "slurm-prolog").unlink()
    (node.root / DIRECTORY / "slurm-prolog").write_text("#!/bin/sh\n")
    node.active.clear()
    checked = node.converge(check_mode=True)
    assert statuses(checked, "node_check_slurm") == [PENDING] and statuses(
        checked, "node_check_timer"
    ) == [PENDING]
    assert statuses(node.converge(), "node_check_slurm") == [OK]
    assert node.active == {TIMER}


def test_removal_leaves_nothing(node: Node) -> None:
    node.converge(removed=True)
    before = {name for name in node.snapshot() if "written.d" not in name}
    node.converge()
    node.write(f"{STATE}/rates.json", "{}")
    planned = node.converge(check_mode=True, removed=True)
    assert planned.changed and statuses(planned) == [PENDING] and (node.root / PROGRAM).exists()
    removed = node.converge(removed=True)
    assert removed.changed and statuses(removed) == [OK] and node.active == set()
    left = {name for name in node.snapshot() if (node.root / name).is_symlink()}
    left |= {name for name in node.snapshot() if (node.root / name).is_file()}
    assert left - before == set()
    assert not (node.root / STATE).exists()
    assert not node.converge(removed=True).changed


def test_what_slurm_still_runs_is_not_removed(node: Node) -> None:
    node.converge()
    slurm = node.write("etc/slurm/baremetal-settings.conf", f"Prolog=/{DIRECTORY}/slurm-prolog\n")
    held = node.converge(removed=True)
    assert statuses(held) == [PENDING] and node.active == set()
    assert (node.root / DIRECTORY / "slurm-prolog").exists() and (node.root / SETTINGS).exists()
    slurm.write_text("Prolog=/other\n")
    assert statuses(node.converge(removed=True)) == [OK]
    assert not (node.root / PROGRAM).exists()


def test_what_slurmctld_still_names_is_not_removed(node: Node) -> None:
    """With files in another directory, or ones that it has not read again."""
    node.converge()
    node.gone.clear()
    node.slurm = f"Epilog[0]               = /{DIRECTORY}/slurm-epilog\n"
    held = node.converge(removed=True)
    (check,) = [each for each in held.checks if each.name == "node_check"]
    assert check.status == PENDING and "slurmctld still names it" in check.reason
    assert (node.root / DIRECTORY / "slurm-epilog").exists() and (node.root / PROGRAM).exists()
    node.slurm = "Epilog                  = (null)\n"
    assert statuses(node.converge(removed=True)) == [OK]
    asked = node.ran("scontrol")
    assert not node.converge(removed=True).changed and node.ran("scontrol") == asked


# Read-back


@pytest.mark.parametrize(
    "answer", ["", "{}", "[]", '{"verdict": "great", "findings": []}', '{"verdict": "fault"}']
)
def test_a_program_without_a_verdict_has_failed(answer: str, node: Node) -> None:
    node.answer = answer
    assert statuses(node.converge()) == [FAILED]


def test_faults_of_other_layers_are_left_to_them(node: Node) -> None:
    def finding(name: str) -> dict[str, Any]:
        keys = {"wanted": 1, "found": 2, "subject": "rail0", "reason": "why", "next_step": "do"}
        return {"name": name, **keys}

    node.answer = {
        "verdict": "fault",
        "findings": [finding("rail_mtu"), finding("node_link_downs")],
    }
    outcome = node.converge()
    assert statuses(outcome) == [OK] and statuses(outcome, "rail_mtu") == []
    (check,) = [each for each in outcome.checks if each.name == "node_link_downs"]
    assert (check.status, check.subject, check.reason) == (FAILED, "rail0", "why; next: do")


def test_a_directory_that_every_user_may_write_to_gets_no_metrics(node: Node) -> None:
    node.write("var/metrics/x", "")
    made = settings.Settings(host="node01", textfile="/var/metrics/new/x.prom")
    directory = node.root / "var/metrics/new"
    assert statuses(settle([NodeCheck(made)], node.node())) == [OK] and not directory.exists()
    directory.mkdir()
    directory.chmod(0o777)
    assert statuses(settle([NodeCheck(made)], node.node(True))) == [OK, FAILED]


@pytest.mark.parametrize("now", ["/var/metrics/new.prom", "", None])
def test_metrics_that_are_no_longer_written_are_removed(now: Optional[str], node: Node) -> None:
    def converge(textfile: Optional[str], *, check_mode: bool = False) -> Outcome:
        made = replace(SETTINGS_OF, textfile=textfile) if textfile is not None else None
        return settle([NodeCheck(made)], node.node(check_mode))

    old, of_site = "var/metrics/old.prom", node.write("var/metrics/site.prom", "a 1\n")
    converge(f"/{old}")
    path = node.write(old, "baremetal_node_check_healthy 1\n")
    assert converge(f"/{old}").changed is False
    assert converge(now, check_mode=True).changed and path.exists()
    found = converge(now)
    assert not found.errors and not path.exists() and of_site.exists()
    assert converge(now).changed is False


# Module and units


OPTIONS = {
    **{name: spec.get("default") for name, spec in module.ARGUMENTS.items()},
    "host": "node01",
}


def test_the_module_writes_the_settings_of_its_options(node: Node) -> None:
    given = {
        "thresholds": {"shm_mib": 5.0, "free_percent": None},
        "rails_options": {"arp": {}, "table_base": 2000, "networks": []},
        "drain": True,
    }
    module.converge({**OPTIONS, **given}, node.node())
    made = settings.Settings.parse(node.read(SETTINGS))
    assert (made.host, made.drain, made.thresholds) == ("node01", True, {"shm_mib": 5.0})
    assert made.rails_option("table_base") == 2000
    assert made.rails_option("arp") == settings.RAILS["arp"]
    module.converge({**OPTIONS, "enabled": False}, node.node())
    assert not (node.root / SETTINGS).exists()


@pytest.mark.parametrize("given", [{"interval_s": 1}, {"max_drained_share": 2.0}])
def test_the_module_refuses_by_the_name_of_the_variable(given: Any, node: Node) -> None:
    with pytest.raises(PlanError, match=f"node_check_{next(iter(given))}"):
        module.converge({**OPTIONS, **given}, node.node())


def test_defaults_are_those_of_the_roles() -> None:
    rails = yaml.safe_load((ROOT / "layers/rails.yml").read_text())["options"]
    for name in ("backend", "routing", "table_base", "priority_base", "arp"):
        assert settings.RAILS[name] == rails[name]["default"]
    layer = yaml.safe_load((ROOT / "layers/node_check.yml").read_text())
    own = layer["options"]
    assert set(own["thresholds"]["suboptions"]) == set(settings.THRESHOLDS)
    made = settings.Settings()
    assert layer["modules"]["node_check"]["textfile"]["default"] == made.textfile
    for name in ("interval_s", "drain", "max_drained_share", "mounts", "warnings"):
        value = getattr(made, name)
        assert own[name]["default"] == (list(value) if isinstance(value, tuple) else value)


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_reads_the_units(tmp_path: Path) -> None:
    (tmp_path / SERVICE).write_text(
        install.service_text().replace(f"/{PROGRAM}", shutil.which("true") or "")
    )
    (tmp_path / TIMER).write_text(install.timer_text(300))
    argv = ["systemd-analyze", "verify", "--man=no", str(tmp_path / TIMER)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert not [line for line in done.stderr.splitlines() if str(tmp_path) in line]


# The installed program


BROKEN = {
    "missing": None,
    "no modules": "exec /usr/bin/python3 -ISc 'from ansible_collections.x import main'",
    "no library": "exit 127",
    "not started": "exit 1",
    "killed": "kill -KILL $$",
    "refuses": "exit 97",
}


@pytest.mark.skipif(not shutil.which("/usr/bin/python3"), reason="needs /usr/bin/python3")
@pytest.mark.parametrize("shell", ["dash", "bash"])
@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_python_takes_no_node_out(how: str, shell: str, tmp_path: Path) -> None:
    """As while Python is upgraded. Slurm drains a node whose prolog fails; only the program's own
    failure counts."""
    if not shutil.which(shell):
        pytest.skip(f"needs {shell}")
    python, body = tmp_path / "python", BROKEN[how]
    if body is not None:
        python.write_text(f"#!/bin/sh\n{body}\n")
        python.chmod(0o755)
    whole = install.program_text().encode("utf-8", "surrogateescape")
    (tmp_path / "node-check").write_bytes(whole.replace(b"/usr/bin/python3", bytes(python), 2))
    for name in ("by-hand", *LINKS):
        (tmp_path / name).symlink_to("node-check")
        argv = [shell, str(tmp_path / name), "--json"]
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=deadline(60), check=False
        )
        assert (done.returncode != 0) is (name not in LINKS or how == "refuses"), done


@pytest.mark.skipif(not shutil.which("/usr/bin/python3"), reason="needs /usr/bin/python3")
def test_the_program_has_all_that_it_imports_and_a_prolog_loads_little(
    node: Node, tmp_path: Path
) -> None:
    """Imports in functions are of modules that may not be loaded where the program is made."""
    built = tmp_path / "slurm-prolog"
    from_ansibles_zip(install, tmp_path / "payload.zip", built)
    with zipfile.ZipFile(built) as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist()}
    top = "ansible_collections/baremetal/mpi_roce"
    for name, text in texts.items():
        package = Path(name).parent
        for found in ast.walk(ast.parse(text)):
            if not isinstance(found, ast.ImportFrom) or not found.level:
                continue
            base = [*package.parts][: len(package.parts) - found.level + 1]
            base += found.module.split(".") if found.module else []
            for path in ("/".join(base), *("/".join([*base, x.name]) for x in found.names)):
                inside = Path(path).relative_to(top)
                for file in (f"{inside}.py", f"{inside}/__init__.py"):
                    assert f"{top}/{file}" in texts or not (ROOT / file).exists(), (name, path)
    node.write(SETTINGS, SETTINGS_OF.text())
    node.write("proc/sys/kernel/random/boot_id", "b\n")
    argv = ["/usr/bin/python3", "-IS", "-X", "importtime", str(built), "--root", str(node.root)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    loaded = {line.rpartition(".module_utils.")[2] for line in done.stderr.splitlines()}
    assert "node_check.looks" in loaded and done.returncode == 0
    slow = {"gpu.smi", "nic.nics", "os_baseline.services", "node_check.leftovers", "slurm.state"}
    assert not loaded & slow


@pytest.mark.skipif(not shutil.which("/usr/bin/python3"), reason="needs /usr/bin/python3")
def test_bytecode_is_the_same_in_each_run_and_needs_no_matching_python(tmp_path: Path) -> None:
    text = install.program_text()
    made = program.compiled(text, run)
    assert made == program.compiled(text, run) and len(made) > 2 * len(text)
    (tmp_path / "node-check").write_bytes(made.encode("utf-8", "surrogateescape"))
    with zipfile.ZipFile(tmp_path / "node-check") as archive:
        names = archive.namelist()
        (tmp_path / "other").mkdir()
        with zipfile.ZipFile(tmp_path / "other/node-check", "w") as other:
            for name in names:
                content = archive.read(name)
                other.writestr(name, b"\0" * 4 + content[4:] if name.endswith("c") else content)
    assert len([name for name in names if name.endswith(".pyc")]) == len(names) / 2
    for path in ("node-check", "other/node-check"):
        argv = ["/usr/bin/python3", "-IS", str(tmp_path / path), "--root", str(tmp_path)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 2 and "run the role node_check" in done.stderr

    assert program.compiled(text, gone) == text


def gone(*_words: Any, **_more: Any) -> Any:
    raise CommandError("not installed")


def rewritten(made: str, change: Callable[[str, bytes], Optional[bytes]]) -> str:
    """The program with other contents of its zip; None omits one."""
    whole = made.encode("utf-8", "surrogateescape")
    result = io.BytesIO()
    result.write(whole[: whole.index(b"PK\3\4")])
    with (
        zipfile.ZipFile(io.BytesIO(whole)) as archive,
        zipfile.ZipFile(result, "w") as other,
    ):
        for name in archive.namelist():
            content = change(name, archive.read(name))
            if content is not None:
                other.writestr(zipfile.ZipInfo(name), content)
    return result.getvalue().decode("utf-8", "surrogateescape")


CACHED = "import importlib.util; print(importlib.util.cache_from_source('x'))"
BYTECODE: dict[str, Callable[[str, bytes], Optional[bytes]]] = {
    "none": lambda name, content: None if name.endswith("c") else content,
    "of another Python": lambda name, content: (
        b"\0" * 4 + content[4:] if name.endswith("c") else content
    ),
    "of another source": lambda name, content: (
        content[:8] + b"\0" * 8 + content[16:] if name == "__main__.pyc" else content
    ),
    "another source": lambda name, content: content + b"#" if name == "__main__.py" else content,
}


@pytest.mark.skipif(not shutil.which("/usr/bin/python3"), reason="needs /usr/bin/python3")
@pytest.mark.parametrize("what", BYTECODE)
def test_only_the_same_program_with_bytecode_is_not_compiled_again(what: str) -> None:
    text = install.program_text()
    made = program.compiled(text, run)
    if cache_from_source("x") != run(["/usr/bin/python3", "-c", CACHED]).stdout.strip():
        pytest.skip("/usr/bin/python3 is another version than the one that runs the tests")
    assert rewritten(made, lambda _name, content: content) == made
    assert program.compiled(text, gone, made) == made
    assert program.compiled(text, gone, rewritten(made, BYTECODE[what])) == text
    at = made.rindex("asdict")  # in the bytecode
    assert program.compiled(text, gone, f"{made[:at]}X{made[at + 1 :]}") == text
    assert program.compiled(text, gone, made[: len(made) // 2]) == text


@pytest.mark.skipif(not shutil.which("/usr/bin/python3"), reason="needs /usr/bin/python3")
def test_the_program_runs_from_ansibles_zip_by_each_of_its_names(
    node: Node, tmp_path: Path
) -> None:
    """The module reads its sources from the zip that Ansible made; its caller's modules and
    variables do not count."""
    folder = tmp_path / "libexec"
    folder.mkdir()
    built = folder / "node-check"
    from_ansibles_zip(install, tmp_path / "payload.zip", built)
    for name in LINKS:
        (folder / name).symlink_to("node-check")
    node.write(SETTINGS, SETTINGS_OF.text())
    node.write("proc/sys/kernel/random/boot_id", "b\n")
    node.write("proc/self/mountinfo", "")
    trap = tmp_path / "trap"
    trap.mkdir()
    for module_name in ("json", "ansible_collections", "sitecustomize"):
        (trap / f"{module_name}.py").write_text("raise SystemExit('of the environment')\n")
    env = {"PYTHONPATH": str(trap), "PATH": str(trap), "SLURM_JOB_ID": "7"}
    modes = {"node-check": "check", **LINKS}
    for name, mode in modes.items():
        done = subprocess.run(
            [str(folder / name), "--json", "--root", str(node.root)],
            capture_output=True,
            text=True,
            timeout=deadline(300),
            env=env,
            cwd=trap,
        )
        assert done.stderr == "" and json.loads(done.stdout)["mode"] == mode
        assert name == "node-check" or done.returncode == 0
