# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Commands in the documentation use existing files, options, tags and variables; links lead to
existing pages and headings."""

from __future__ import annotations

import argparse
import functools
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

import pytest
import yaml
from ansible.cli.adhoc import AdHocCLI
from ansible.cli.doc import DocCLI
from ansible.cli.inventory import InventoryCLI
from ansible.cli.playbook import PlaybookCLI

from tests.unit.action_plays import ROOT

PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    + [page for folder in ("docs", "tests/bed") for page in (ROOT / folder).glob("**/*.md")]
)
PROGRAMS = {
    "ansible-playbook": PlaybookCLI,
    "ansible-inventory": InventoryCLI,
    "ansible-doc": DocCLI,
    "ansible": AdHocCLI,
}
STARTS = re.compile(r"^(?:ansible-playbook|ansible-inventory|ansible-doc|ansible|molecule|\./\w+) ")
PLACEHOLDERS = {
    "build/stand-ins/inventory",
    "inventories/NAME",
    "hosts.ini",
    "ADDRESSES,",
    "INVENTORY",
}
"""Paths that readers replace with their own."""
COLLECTIONS = {"baremetal.mpi_roce.": ROOT, "baremetal.bed.": ROOT / "tests/bed"}


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in the directory of the collection, as readers do."""
    monkeypatch.chdir(ROOT)


def commands(text: str) -> Iterator[str]:
    """Yield commands of code blocks and of code in the text, with continued lines joined."""
    joined = re.sub(r"\\\n\s*", "", text)
    for line in joined.splitlines():
        block = line.strip() if line.startswith("    ") else line
        if STARTS.match(block):
            yield block
    for code in re.findall(r"`([^`\n]+)`", joined):
        if STARTS.match(code) and len(code.split()) > 1:
            yield code


FOUND = sorted({(page, line) for page in PAGES for line in commands(page.read_text())})


def files(pattern: str) -> Iterator[Path]:
    """Yield matching files of the product and of the test bed."""
    for top in COLLECTIONS.values():
        yield from top.glob(pattern)


@functools.cache
def tags() -> set[str]:
    """Return the tags of all plays."""
    found = set()
    for path in files("playbooks/*.yml"):
        for play in yaml.safe_load(path.read_text()) or []:
            given = play.get("tags", [])
            found.update([given] if isinstance(given, str) else given)
    return found


@functools.cache
def variables() -> set[str]:
    """Return the variables of roles' specifications and of playbooks."""
    found = set()
    for path in files("roles/*/meta/argument_specs.yml"):
        for spec in yaml.safe_load(path.read_text())["argument_specs"].values():
            found.update(spec.get("options") or {})
    for path in files("playbooks/*.yml"):
        found.update(re.findall(r"(?:\{\{|when:) *(\w+) *\|", path.read_text()))
    return found


def parsed(words: list[str]) -> Any:
    """Parse arguments with the parser of the program. Raises ValueError."""
    cli = PROGRAMS[words[0]](words)
    cli.init_parser()

    def refuse(message: str) -> None:
        raise ValueError(message)

    cli.parser.error = refuse
    return cli.parser.parse_args(words[1:])


def extra(given: list[str]) -> Iterator[str]:
    """Yield names of extra variables. Raises ValueError for a missing file."""
    for argument in given:
        if argument.startswith("@"):
            path = ROOT / argument[1:]
            if not path.is_file():
                raise ValueError(f"{argument}: no such file")
            content = yaml.safe_load(path.read_text())
            yield from content
            for file in content.get("mpi_job_files", []):
                if not (ROOT / file["src"]).is_file():
                    raise ValueError(f"{file['src']}: no such file")
        elif argument.startswith("{"):
            yield from json.loads(argument)
        else:
            yield from (pair.partition("=")[0] for pair in shlex.split(argument))


def problem(command: str) -> str:
    """Return why a command cannot work as written, or an empty string."""
    words = shlex.split(command, comments=True)
    try:
        if words[0].startswith("./"):
            return of_script(ROOT / words[0], words[1:])
        if words[0] == "molecule":
            options = argparse.ArgumentParser(exit_on_error=False)
            options.add_argument("-s")
            given, _rest = options.parse_known_args(words[2:])
            exists = given.s is None or (ROOT / "molecule" / given.s / "molecule.yml").is_file()
            return "" if exists or given.s.isupper() else f"no scenario {given.s}"
        args = parsed(words)
        for path in args.inventory or [] if hasattr(args, "inventory") else []:
            known = path in PLACEHOLDERS or path.endswith(",") or (ROOT / path).exists()
            if not known:
                return f"no inventory {path}"
        unknown = set(extra(getattr(args, "extra_vars", None) or [])) - variables()
        if unknown:
            return f"no variable {', '.join(sorted(unknown))}"
        asked = [*(getattr(args, "tags", None) or []), *(getattr(args, "skip_tags", None) or [])]
        missing = {
            tag for option in asked for tag in option.split(",") if not tag.isupper()
        } - tags()
        if missing:
            return f"no tag {', '.join(sorted(missing))}"
        return of_names(words[0], args)
    except (ValueError, argparse.ArgumentError) as error:
        return str(error)


def of_names(program: str, args: Any) -> str:
    """Return the named playbooks, modules and roles that do not exist."""
    names: dict[str, Path] = {}
    for name in args.args if program == "ansible-playbook" else []:
        names[name] = in_collection(name, "playbooks/{}.yml") or ROOT / name
    if program == "ansible":
        names[args.module_name] = in_collection(args.module_name, "plugins/modules/{}.py") or ROOT
    for name in args.args if program == "ansible-doc" else []:
        kind = {"role": "roles/{}", "inventory": "plugins/inventory/{}.py"}.get(
            args.type, "plugins/modules/{}.py"
        )
        names[name] = in_collection(name, kind) or ROOT
    return "; ".join(f"no {name}" for name, path in names.items() if not path.exists())


def in_collection(name: str, pattern: str) -> Optional[Path]:
    """Return the file of a fully qualified name of the product or the test bed, else None."""
    for prefix, top in COLLECTIONS.items():
        if name.startswith(prefix):
            return top / pattern.format(name.removeprefix(prefix))
    return None


def of_script(script: Path, options: list[str]) -> str:
    if not script.is_file():
        return f"no {script.name}"
    text = script.read_text() + (ROOT / "tools/run_tests.py").read_text()
    named = [word for word in options if word.startswith("-")]
    unknown = [word for word in named if not re.search(rf"{re.escape(word)}\b", text)]
    benches = [words[1] for words in zip(options, options[1:]) if words[0] == "--bench"]
    scripts = {path.stem for path in (ROOT / "tests/bench").glob("*.py")}
    unknown += [name for name in benches if name.islower() and name not in scripts]
    return f"{script.name} has no {', '.join(unknown)}" if unknown else ""


@pytest.mark.parametrize(
    ("page", "command"), FOUND, ids=[f"{page.name}-{line[:60]}" for page, line in FOUND]
)
def test_documented_commands_can_work(page: Path, command: str) -> None:
    assert problem(command) == "", page


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", sorted({line for _, line in FOUND if "-inventory -i inventories/b300" in line})
)
def test_commands_without_hosts_run(command: str) -> None:
    name, *words = shlex.split(command, comments=True)
    program = Path(sys.executable).with_name(name)
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "node04" in done.stdout, done.stderr


def test_commands_of_blocks_and_text_are_read() -> None:
    text = "    ansible-playbook a.yml \\\n      -e x=1  # why\n\n```\n./demo --rdma\n```\n"
    text += "`./test --all`"
    assert list(commands(text)) == [
        "ansible-playbook a.yml -e x=1  # why",
        "./demo --rdma",
        "./test --all",
    ]
    assert len(FOUND) > 40


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("ansible-playbook playbooks/none.yml -i inventories/b300", "no playbooks/none.yml"),
        ("ansible-playbook baremetal.mpi_roce.none", "no baremetal.mpi_roce.none"),
        ("ansible-playbook site.yml -i inventories/none", "no inventory inventories/none"),
        ("ansible-playbook site.yml -i inventories/b300 --tags rail", "no tag rail"),
        ("ansible-playbook site.yml --skip-tags verbs,smok", "no tag smok"),
        ("ansible-playbook site.yml -e mpi_job_file=x", "no variable mpi_job_file"),
        ("ansible-playbook site.yml -e '{\"nope\": 1}'", "no variable nope"),
        ("ansible-playbook playbooks/run.yml -e @job.yml", "job.yml: no such file"),
        ("ansible-playbook site.yml --chekc", "unrecognized arguments"),
        ("ansible-inventory -i inventories/b300 --grapes", "unrecognized arguments"),
        ("ansible-doc -t role baremetal.mpi_roce.none", "no baremetal.mpi_roce.none"),
        ("ansible-doc -t inventory baremetal.mpi_roce.b300", "no baremetal.mpi_roce.b300"),
        ("ansible all -m baremetal.mpi_roce.none", "no baremetal.mpi_roce.none"),
        ("./none", "no none"),
        ("./demo --none", "demo has no --none"),
        ("./test --bench none", "test has no none"),
        ("molecule test -s none", "no scenario none"),
    ],
)
def test_commands_that_cannot_work(command: str, reason: str) -> None:
    assert reason in problem(command)


def headings(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", sorted([*PAGES, *ROOT.glob("roles/*/README.md")]), ids=str)
def test_links_lead_to_pages_and_headings(page: Path) -> None:
    for path, anchor in re.findall(r"\]\((?!\w+:)([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
        target = page.parent / path if path else page
        assert target.exists() and (not anchor or anchor in headings(target)), (path, anchor)


def test_the_job_on_the_page_equals_the_file() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/jobs.md").read_text(), re.DOTALL)
    file = (ROOT / "docs/examples/job.yml").read_text()
    assert file.endswith(block) and yaml.safe_load(file) == yaml.safe_load(block)
