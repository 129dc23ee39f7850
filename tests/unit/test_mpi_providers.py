# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Providers of MPI: packages, layout, archives, and refusals on the controller."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.baremetal.mpi_roce.plugins.action import mpi_provider as action
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.distribution import (
    distribution_of,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.software import read_software
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.mpi import providers

UBUNTU, ROCKY = distribution_of("Ubuntu", "24.04"), distribution_of("Rocky", "9.6")
ARCHIVE = {
    "distribution": "ubuntu24.04",
    "url": "https://mirror.example.net/hpcx-v2.24.1-gcc-doca_ofed-ubuntu24.04-cuda13-x86_64.tbz",
    "sha256": "ab" * 32,
}
SOURCES = {
    "ucx": {"url": "https://mirror.example.net/ucx-1.19.0.tar.gz", "sha256": "ab" * 32},
    "openmpi": {"url": "https://mirror.example.net/openmpi-4.1.8.tar.bz2", "sha256": "cd" * 32},
}
HPCX = {"provider": "hpcx", "archives": [ARCHIVE], "mpi4py": "4.1.1"}
SOURCE = {"provider": "source", "sources": SOURCES, "mpi4py": "4.1.1"}
HOST = providers.Installation("x86_64", "cp312")


def impi(digest: str = "cd" * 32) -> dict[str, Any]:
    wheel = {"version": "2021.18.1", "sha256": digest}
    return {"provider": "impi", "impi": wheel, "mpi4py": "4.1.1"}


def add_wheel(folder: Path, name: str, *members: str) -> str:
    """Write a wheel; returns its SHA-256."""
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / name, "w") as wheel:
        for member in ("METADATA", *members):
            wheel.writestr(member, "")
    return hashlib.sha256((folder / name).read_bytes()).hexdigest()


def mpi4py(folder: Path, tag: str = "cp312", machine: str = "x86_64") -> str:
    return add_wheel(folder, f"mpi4py-4.1.1-{tag}-{tag}-manylinux_2_28_{machine}.whl")


def provider(
    mpi: dict[str, Any],
    folder: Path = Path("/none"),
    host: providers.Installation = HOST,
    system: Any = UBUNTU,
    doca: bool = False,
) -> providers.Provider:
    state = host if mpi.get("provider") else None
    found = read_software({"mpi": mpi}).mpi
    return providers.provider_of(found, system, doca, state, folder, Path("/cache"))


def refusal(*given: Any, **more: Any) -> str:
    with pytest.raises(PlanError) as refused:
        provider(*given, **more)
    return str(refused.value.args[0].code)


def test_packages_of_the_distribution() -> None:
    mpi = provider({})
    assert mpi.packages == [*UBUNTU.mpi.packages, *UBUNTU.mpi.ucx]
    assert mpi.rdma_packages == UBUNTU.mpi.verbs
    assert provider({}, doca=True).packages == [*UBUNTU.mpi.packages, "ucx"]
    assert (mpi.layout["prefix"], mpi.layout["bin_directory"], mpi.unpack) == ("", "", ())
    layout = provider({}, system=ROCKY).layout
    assert layout["bin_directory"] == "/usr/lib64/openmpi/bin"
    assert layout["python_directory"] == "/usr/lib64/python3.9/site-packages/openmpi"


def test_hpcx_is_unpacked_with_mpi4py(tmp_path: Path) -> None:
    mpi4py(tmp_path)
    mpi = provider(HPCX, tmp_path)
    layout, prefix = mpi.layout, mpi.layout["prefix"]
    assert mpi.packages == ["python3-numpy", "bzip2"] and mpi.rdma_packages == ()
    archive, wheel = mpi.unpack
    assert (archive["url"], archive["sha256"]) == (ARCHIVE["url"], ARCHIVE["sha256"])
    assert archive["directory"] == prefix
    assert wheel["directory"] == layout["python_directory"] == f"{prefix}/mpi4py-4.1.1-cp312"
    assert Path(wheel["file"]).name.startswith("mpi4py-4.1.1-cp312-")
    assert layout["bin_directory"] == f"{prefix}/ompi/bin:{prefix}/ucx/bin"
    assert layout["ucx_file"] == f"{prefix}/ucx/etc/ucx/ucx.conf"
    assert layout["variables"]["OPAL_PREFIX"] == f"{prefix}/ompi"
    unpacked = replace(HOST, mpi=True, mpi4py=True)
    assert provider(HPCX, tmp_path, unpacked).unpack == []
    half = replace(HOST, mpi=True)
    assert [item["url"] for item in provider(HPCX, tmp_path, half).unpack] == [""]
    archive = {**ARCHIVE, "url": "https://mirror.example.net/hpcx.tgz"}
    assert provider({**HPCX, "archives": [archive]}, tmp_path).packages == ["python3-numpy"]


def test_an_archive_is_for_a_distribution_and_has_a_checksum(tmp_path: Path) -> None:
    mpi4py(tmp_path)
    mpi4py(tmp_path, "cp39")
    assert refusal(HPCX, tmp_path, system=ROCKY) == "mpi.archive_missing"
    for name in ("redhat9", "rocky9", "rocky9.6"):
        archives = [{**ARCHIVE, "distribution": name}]
        provider({**HPCX, "archives": archives}, tmp_path, system=ROCKY)
    archives = [{**ARCHIVE, "sha256": ""}]
    assert refusal({**HPCX, "archives": archives}, tmp_path) == "mpi.archive_checksum"


def test_intel_mpi_is_unpacked_from_its_wheel(tmp_path: Path) -> None:
    mpi4py(tmp_path)
    name = "impi_rt-2021.18.1-py2.py3-none-manylinux_2_28_x86_64.whl"
    assert refusal(impi(), tmp_path) == "mpi.wheel_missing"
    digest = add_wheel(tmp_path, name)
    assert refusal(impi(), tmp_path) == "mpi.wheel_checksum"
    assert refusal(impi(digest), tmp_path) == "mpi.impi_libfabric"
    digest = add_wheel(tmp_path, name, "impi_rt-2021.18.1.data/data/lib/libmlx-fi.so")
    mpi = provider(impi(digest), tmp_path)
    archive = mpi.unpack[0]
    assert archive["file"] == str(tmp_path / name)
    assert archive["inside"] == "/impi_rt-2021.18.1.data/data"
    assert mpi.packages == ["python3-numpy", *UBUNTU.mpi.ucx]
    assert mpi.rdma_packages == UBUNTU.mpi.verbs
    assert mpi.layout["mca_file"] == UBUNTU.mpi.mca_file
    assert mpi.layout["variables"]["I_MPI_ROOT"] == mpi.layout["prefix"] == archive["directory"]
    provider(impi(), tmp_path, replace(HOST, mpi=True))


def test_a_build_has_a_pack_for_each_distribution_and_architecture(tmp_path: Path) -> None:
    packs = []
    for system, machine in ((UBUNTU, "x86_64"), (UBUNTU, "aarch64"), (ROCKY, "x86_64")):
        mpi4py(tmp_path, machine=machine)
        mpi = provider(SOURCE, tmp_path, providers.Installation(machine, "cp312"), system)
        assert mpi.unpack[0]["file"] == mpi.pack
        assert mpi.build_packages == system.mpi.build
        packs.append(Path(mpi.pack).name.removeprefix(Path(mpi.layout["prefix"]).name))
    assert packs == ["-ubuntu24-x86_64.tar.gz", "-ubuntu24-aarch64.tar.gz", "-rocky9-x86_64.tar.gz"]


def test_each_host_needs_the_wheel_of_its_python_and_architecture(tmp_path: Path) -> None:
    right = mpi4py(tmp_path)
    arm = providers.Installation("aarch64", "cp312")
    assert refusal(SOURCE, tmp_path, arm) == "mpi.wheel_missing"
    assert refusal(SOURCE, tmp_path, replace(HOST, python_tag="cp39")) == "mpi.wheel_missing"
    listed = {**SOURCE, "mpi4py_sha256": [right]}
    provider(listed, tmp_path)
    (tmp_path / "mpi4py-4.1.1-cp312-cp312-manylinux_2_28_aarch64.whl").write_text("another")
    assert refusal(listed, tmp_path, arm) == "mpi.wheel_checksum"
    provider(listed, tmp_path, replace(arm, mpi4py=True))


class Plugin(action.ActionModule):
    """The action, with the answer of a host."""

    def __init__(self, answer: dict[str, Any], **arguments: Any) -> None:
        self.answer = answer
        self.modules: list[dict[str, Any]] = []
        self._task = SimpleNamespace(args=arguments)

    def _execute_module(self, _name: str, **given: Any) -> dict[str, Any]:
        self.modules.append(given["module_args"])
        return self.answer


ANSWER = {"machine": "x86_64", "python_tag": "cp312", "mpi": False, "mpi4py": False}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    mpi4py(tmp_path / "wheels")
    facts = {"distribution": "Ubuntu", "distribution_version": "24.04"}
    variables = {"ansible_facts": facts, "inventory_dir": str(tmp_path)}
    return lambda plugin: plugin.act(variables)


def test_the_distributions_mpi_asks_no_host(run: Any) -> None:
    plugin = Plugin({}, rails=[{}], transport="rc")
    result = run(plugin)
    assert plugin.modules == [] and result["provider"] == "distribution"
    assert result["packages"][-1] == "ibverbs-providers"
    assert result["build"] == result["host"] == {} and "ucx_file" not in result["layout"]
    assert "ibverbs-providers" not in run(Plugin({}, rails=[{}], transport="tcp"))["packages"]
    assert "ibverbs-providers" not in run(Plugin({}, transport="rc"))["packages"]
    # From `-e mpi_stack_packages=openmpi,ucx`, which the role accepts as a list.
    assert run(Plugin({}, rails=[{}], packages="openmpi,ucx"))["packages"] == ["openmpi", "ucx"]
    doca = {"rdma": {"source": "doca", "version": "3.2.1"}}
    with_rails = run(Plugin({}, software=doca, rails=[{}], transport="tcp"))["packages"]
    without = run(Plugin({}, software=doca))["packages"]
    assert "ucx" in with_rails and "libucx0" not in with_rails
    assert "ucx" not in without and "libucx0" in without


def test_a_build_is_described_until_it_is_unpacked(run: Any) -> None:
    software = read_software({"mpi": SOURCE}).as_variable()
    result = run(Plugin({**ANSWER, "begun": True}, software=software, build_packages=["gcc"]))
    build = result["build"]
    assert build["packages"] == ["gcc"] and build["prefix"] == result["layout"]["prefix"]
    assert result["host"] == {
        "pack": build["pack"], "mpi": False, "begun": True, "toolkit": False,
    }  # fmt: skip
    unpacked = run(Plugin({**ANSWER, "mpi": True}, software=software))
    assert unpacked["build"] == {} and unpacked["host"]["mpi"] is True


@pytest.mark.parametrize("name", ["machine", "python_tag"])
@pytest.mark.parametrize(
    "answer",
    ["../x", "/x", "a/b", "a\nb", "*", "a*", ".x", "", "a" * 200, ["a"], {"a": 1}, None, "{{ x }}"],
)
def test_answers_in_file_names_are_plain_words(run: Any, name: str, answer: Any) -> None:
    software = read_software({"mpi": SOURCE}).as_variable()
    with pytest.raises(AnsibleActionFail) as refused:
        run(Plugin({**ANSWER, name: answer}, software=software))
    assert len(str(refused.value)) < 400
