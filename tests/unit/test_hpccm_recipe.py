# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Recipes of container images: one golden file per distribution, which hpccm can read."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.distribution import (
    FACTS,
    SYSTEMS,
    distribution_of,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.software.software_set import (
    SoftwareSet,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.mpi.recipe import recipe

from tests.unit.action_plays import ROOT, ansible

GOLDEN = Path(__file__).parent / "golden/recipes"
SHA256 = "ab" * 32
NAMES = [(system.ids[-1], system.release) for system in SYSTEMS]
CUDA = {"cuda": "13.2", "nccl": "2.29.7"}
BASE = "nvcr.io/nvidia/cuda:13.2.0-devel"
BUILDS = [
    {"name": name, "url": f"https://mirror/{name}.tar.gz", "sha256": SHA256, "options": options}
    for name, options in (("ucx", ["--with-verbs"]), ("openmpi", ["--with-pmix=it's"]))
]


def software(provider: str, name: str, release: str, **more: Any) -> SoftwareSet:
    system = "redhat" if name in ("rhel", "rocky", "almalinux") else name
    archive = {
        "distribution": f"{system}{release}",
        "url": "https://mirror/hpcx.tbz",
        "sha256": SHA256,
        "prefix": "/opt/baremetal-mpi-roce/hpcx-abab",
    }
    mpi: dict[str, Any] = {"provider": provider, "mpi4py": "4.1.1", "archives": [archive]}
    prefix = "/opt/baremetal-mpi-roce/source-abab"
    mpi["sources"] = {"prefix": prefix, "cuda": False, "builds": BUILDS}
    return SoftwareSet.of({"mpi": mpi, **more})


def recipes(name: str, release: str) -> dict[str, str]:
    distribution = distribution_of(name, release)
    return {
        "distribution": recipe(software("distribution", name, release), distribution),
        "hpcx with CUDA": recipe(software("hpcx", name, release, **CUDA), distribution, BASE),
        "source": recipe(software("source", name, release), distribution),
    }


@pytest.mark.parametrize(("name", "release"), NAMES)
def test_recipes(name: str, release: str) -> None:
    made = recipes(name, release)
    text = "\n".join(f"== {provider}\n{text}" for provider, text in made.items())
    path = GOLDEN / f"{name}{release}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
    assert {each.stem for each in GOLDEN.glob("*.txt")} == {f"{n}{r}" for n, r in NAMES}


@pytest.mark.skipif(not importlib.util.find_spec("hpccm"), reason="hpccm is not installed")
@pytest.mark.parametrize(("name", "release"), NAMES)
def test_hpccm_reads_them(name: str, release: str, tmp_path: Path) -> None:
    import hpccm

    for text in recipes(name, release).values():
        path = tmp_path / "recipe.py"
        path.write_text(text, encoding="utf-8")
        docker, apptainer = (
            str(hpccm.recipe(str(path), ctype=kind))
            for kind in (hpccm.container_type.DOCKER, hpccm.container_type.SINGULARITY)
        )
        assert docker.startswith("FROM ") and "BootStrap: docker" in apptainer
        for word in ("ibverbs", "sha256sum") if "sha256sum" in text else ("ibverbs",):
            assert word in docker and word in apptainer


@pytest.mark.parametrize(
    ("provider", "more", "code"),
    [("impi", {}, "recipe.impi"), ("hpcx", CUDA, "recipe.base")],
)
def test_sets_without_an_image_are_refused(provider: str, more: dict[str, Any], code: str) -> None:
    given = software(provider, "ubuntu", "24.04", **more)
    with pytest.raises(PlanError) as caught:
        recipe(given, distribution_of("ubuntu", "24.04"))
    assert caught.value.args[0].code == code


def test_an_archive_without_a_checksum_is_refused() -> None:
    given = software("hpcx", "ubuntu", "24.04").as_variable()
    given["mpi"]["archives"][0]["sha256"] = ""
    with pytest.raises(PlanError) as caught:
        recipe(SoftwareSet.of(given), distribution_of("ubuntu", "24.04"))
    assert caught.value.args[0].code == "recipe.sha256"


@pytest.mark.slow
def test_the_playbook_writes_a_recipe(tmp_path: Path) -> None:
    path = tmp_path / "recipe.py"
    given = ["-e", "recipe_distribution=debian12", "-e", f"recipe_file={path}"]
    done = ansible("ansible-playbook", "playbooks/recipe.yml", "-i", "inventories/virtual", *given)
    assert done.returncode == 0, done.stdout + done.stderr
    assert path.read_text("utf-8") == recipe(SoftwareSet(), distribution_of("debian", "12"))
    assert FACTS["debian"] == "Debian" and (ROOT / "playbooks/recipe.yml").exists()
