# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""playbooks/new_site.yml writes a folder in which Ansible works, and overwrites nothing."""

from __future__ import annotations

import configparser
import errno
import json
import os
import re
import subprocess
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils import site_folder

from tests.unit.action_plays import ROOT, ansible
from tests.unit.test_fabric_cabling import killed
from tests.unit.test_model_editing import faults

DESIGNS = site_folder.designs()


def new_site(site: Path, *options: str) -> subprocess.CompletedProcess[str]:
    playbook = "baremetal.mpi_roce.new_site"
    return ansible("ansible-playbook", playbook, "-e", json.dumps({"site": str(site)}), *options)


def content(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture
def files() -> dict[str, str]:
    return site_folder.content("b300")


@pytest.mark.slow
def test_a_new_site_works_and_is_written_once(tmp_path: Path) -> None:
    site = tmp_path / "clusters of/ai 1"
    done = new_site(site, "--check", "--diff")
    assert done.returncode == 0 and "+plugin: baremetal.mpi_roce.cluster" in done.stdout
    assert not site.parent.exists()

    done = new_site(site)
    assert done.returncode == 0, done.stdout
    written = content(site)
    assert set(written) == set(site_folder.content("b300"))
    assert {"inventory/cluster.yml", "inventory/group_vars/all.yml"} <= set(written)
    assert {path.name for path in site.iterdir()} >= {"inventory", "ansible.cfg", "README.md"}
    assert not [path for path in site.iterdir() if path.name.startswith(".new")]

    listed = ansible("ansible-inventory", "--list", cwd=site)
    assert listed.returncode == 0 and listed.stderr == "", listed.stderr
    assert json.loads(listed.stdout)["compute"]["hosts"] == [f"node0{n}" for n in range(1, 5)]
    checked = ansible("ansible-playbook", "baremetal.mpi_roce.model", cwd=site)
    assert checked.returncode == 0 and "ok=1 " in checked.stdout, checked.stdout

    done = ansible("ansible-playbook", "baremetal.mpi_roce.new_site", "-e", "site=.", cwd=site)
    assert done.returncode == 2 and str(site / "ansible.cfg") in done.stdout
    assert "\nSUMMARY " in done.stdout  # the callback is enabled
    assert {name: data for name, data in content(site).items() if name in written} == written


@pytest.mark.parametrize("design", DESIGNS)
def test_each_design_is_the_example(design: str) -> None:
    files = site_folder.content(design)
    text = files["inventory/cluster.yml"]
    assert text.splitlines()[0] == f"{site_folder.NAMED}../cluster.schema.json"
    example = (DESIGNS[design] / "cluster.yml").read_text(encoding="utf-8")
    assert text.splitlines()[1:] == example.splitlines()[1:]
    assert faults(text) == []
    assert f"`{design}`" in files["README.md"]


def test_the_archive_has_what_a_new_site_is_made_of() -> None:
    ignored = yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))["build_ignore"]
    top = site_folder.COLLECTION
    named = [top / "ansible.cfg", top / "docs/cluster.schema.json", top / "playbooks/new_site.yml"]
    for path in (*named, *(folder / "cluster.yml" for folder in DESIGNS.values())):
        assert path.is_file()
        relative = path.relative_to(top)
        names = {*relative.parts, *map(str, (relative, *relative.parents))} - {"."}
        assert not [name for name in names if any(fnmatch(name, each) for each in ignored)]


def test_designs_are_examples_and_no_inventories_of_tests() -> None:
    assert "b300" in DESIGNS and not [name for name in DESIGNS if "virtual" in name]
    with pytest.raises(site_folder.SiteError, match="b300"):
        site_folder.content("../b300")


def test_settings_are_those_of_the_page(files: dict[str, str]) -> None:
    parser = configparser.RawConfigParser(inline_comment_prefixes=(";",))
    parser.read_string(files["ansible.cfg"])
    page = (ROOT / "docs/packages.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `\[(\w+)\] (\w+)` \| `?([^`]+?)`? \|", page, re.M)
    assert len(rows) > 5
    for section, option, value in rows:
        found = parser[section][option]
        assert found.startswith(value) or (option == "forks" and int(found) >= 32), option
    assert parser["defaults"]["inventory"] == "inventory"
    paths = parser["defaults"]["collections_path"].split(":")
    assert paths == [str(ROOT / "collections"), *site_folder.SEARCHED]


def test_a_collection_where_ansible_looks_needs_no_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    installed = tmp_path / ".ansible/collections/ansible_collections/baremetal/mpi_roce"
    installed.parent.mkdir(parents=True)
    installed.symlink_to(ROOT)
    text = site_folder.content("b300", installed)["ansible.cfg"]
    assert f"collections_path = {':'.join(site_folder.SEARCHED)}\n" in text


def test_an_odd_place_of_the_collection_is_refused(tmp_path: Path) -> None:
    installed = tmp_path / "a\n[defaults]/ansible_collections/baremetal/mpi_roce"
    installed.parent.mkdir(parents=True)
    installed.symlink_to(ROOT)
    with pytest.raises(site_folder.SiteError):
        site_folder.content("b300", installed)


def is_link(site: Path) -> None:
    (site / "inventory").symlink_to(site.parent / "nowhere")


def is_file(site: Path) -> None:
    site.rmdir()
    site.write_text("mine", encoding="utf-8")


@pytest.mark.parametrize(
    "make",
    [
        is_link,
        is_file,
        lambda site: (site / "README.md").touch(),
        lambda site: (site / ".gitignore").mkdir(),
        lambda site: site.chmod(0o777),
        lambda site: site.rename(site.with_name("other")) and site.symlink_to("nowhere"),
    ],
)
def test_nothing_is_overwritten(
    tmp_path: Path, files: dict[str, str], make: Callable[[Path], object]
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    make(site)
    before = sorted(map(str, tmp_path.rglob("*"))), content(tmp_path)
    with pytest.raises(site_folder.SiteError, match=re.escape(str(site))):
        site_folder.check(site, files)
    with pytest.raises(site_folder.SiteError, match=re.escape(str(site))):
        site_folder.write(site, files)
    assert (sorted(map(str, tmp_path.rglob("*"))), content(tmp_path)) == before


def test_a_name_that_no_folder_can_have(tmp_path: Path, files: dict[str, str]) -> None:
    with pytest.raises(site_folder.SiteError):
        site_folder.check(tmp_path / ("x" * 256), files)


def test_other_files_stay(tmp_path: Path, files: dict[str, str]) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").write_text("mine", encoding="utf-8")
    site_folder.write(tmp_path, files)
    assert set(content(tmp_path)) == {*files, ".git/config"}
    assert not (tmp_path / "inventory").stat().st_mode & 0o002


def test_a_failure_leaves_nothing(tmp_path: Path, files: dict[str, str]) -> None:
    with pytest.raises(site_folder.SiteError):
        site_folder.write(tmp_path / "site", {**files, "inventory/" + "a" * 300: ""})
    assert content(tmp_path) == {}
    with pytest.raises(site_folder.SiteError):
        site_folder.write(tmp_path / "si\nte", files)


def test_a_killed_run_is_completed_by_the_next_one(tmp_path: Path, files: dict[str, str]) -> None:
    seen = []
    for at in range(6):
        home = tmp_path / str(at)
        home.mkdir()
        for site in (home / "new", home):
            seen.append(killed(lambda site=site: site_folder.write(site, files), at))
            if site != home:
                # Whole or absent; leftovers have another name.
                assert content(site).keys() in (files.keys(), set())
            if seen[-1]:
                site_folder.write(site, files)
            assert content(site).keys() - {f"new/{name}" for name in files} == files.keys()
        assert not list(home.rglob("*.new-site-*"))
    assert seen == [True, True, *[False, True] * 4, False, False]


def test_what_was_edited_after_a_killed_run_is_not_overwritten(
    tmp_path: Path, files: dict[str, str]
) -> None:
    assert killed(lambda: site_folder.write(tmp_path, files), 1)
    model = tmp_path / "inventory/cluster.yml"
    model.write_text("mine", encoding="utf-8")
    with pytest.raises(site_folder.SiteError, match=re.escape(str(model.parent))):
        site_folder.write(tmp_path, files)
    model.write_text(files["inventory/cluster.yml"], encoding="utf-8")
    (model.parent / "mine.yml").touch()
    with pytest.raises(site_folder.SiteError, match=re.escape(str(model.parent))):
        site_folder.write(tmp_path, files)


def test_a_failed_rename_is_undone(tmp_path: Path, files: dict[str, str], monkeypatch: Any) -> None:
    def full(path: Path, target: Path) -> Path:
        if path.name == "README.md" and "new-site" in str(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return rename(path, target)

    rename = Path.rename
    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(site_folder.SiteError, match="No space"):
        site_folder.write(tmp_path, files)
    assert list(tmp_path.iterdir()) == []
