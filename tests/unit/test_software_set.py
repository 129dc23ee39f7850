# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The software set: reading, rules, compilation from a model, and its page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.software.software_set import (
    SoftwareSet,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.key_files import FROM
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.software import (
    SOFTWARE,
    SoftwareError,
    finish,
    read_software,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.software_rules import (
    RULES,
    evaluate,
    older,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.schema.findings import Findings
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.findings import brief
from tests.unit.programs import program
from tests.unit.small_model import MODEL, compiled
from tests.unit.software_sets import WHOLE, software, value

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/software-set.md").read_text(encoding="utf-8")


def test_nothing_is_inbox_and_no_driver() -> None:
    for nothing in (None, {}):
        found = read_software(nothing)
        assert (found.rdma.source, found.driver, found.cuda) == ("inbox", None, "")
        assert found.repositories_of("rdma") == found.repositories_of("gpu") == ()


def test_everything_is_read() -> None:
    found = read_software(WHOLE)
    assert found.driver is not None
    assert (found.driver.branch, found.driver.modules, found.driver.gpu) == (580, "open", "B300")
    assert found.rdma.profile == "doca-ofed"
    assert (found.cuda, found.cuda_major) == ("13.0", "13")
    assert found.repositories_of("rdma") == ("doca",)
    assert found.repositories_of("gpu") == ("cuda",)
    assert SoftwareSet.of(found.as_variable()) == found


TEMPLATE = "file:///srv/{{ lookup('pipe', 'id') }}"
BAD: tuple[tuple[Any, ...], ...] = (
    (value(driver__version="580"), "model.wrong_form driver.version '580'"),
    (value(driver__fabric_manager="580.95.05"), "model.unknown_key driver.fabric_manager"),
    (value(cuda=13.0, dcgm="4.4"), "model.wrong_form cuda 13.0", "model.wrong_form dcgm '4.4'"),
    (
        value(driver=None),
        "software.needs_driver cuda '13.0'",
        "software.needs_driver dcgm '4.4.1'",
        "software.needs_driver gdrcopy '2.5.1'",
        "software.needs_driver nccl '2.28.3'",
    ),
    (value(rdma={"source": "doca"}), "software.no_doca_version rdma.version"),
    (
        value(rdma={"source": "inbox", "version": "3.2.1", "profile": "doca-ofed"}),
        "software.of_doca rdma.version '3.2.1'",
        "software.of_doca rdma.profile 'doca-ofed'",
    ),
    (
        value(repositories={}),
        "software.no_repository repositories.cuda",
        "software.no_repository repositories.doca",
    ),
    (value(repositories__cuda__trusted=True), "model.unknown_key repositories.cuda.trusted"),
    (
        value(repositories__cuda__url="https://user:secret@mirror/cuda"),
        "model.wrong_form repositories.cuda.url 'a secret'",
    ),
    (
        value(repositories__doca__url=TEMPLATE),
        "model.template repositories.doca.url 'a secret'",
    ),
    (
        value(repositories__cuda__key_sha256="sha256:0"),
        "model.wrong_form repositories.cuda.key_sha256 'sha256:0'",
    ),
    (value(rdma={"source": "none"}), "software.nvlink_rdma rdma.source"),
    (value(driver={"gpu": "B300"}), "software.no_driver_version driver.version"),
    (
        value(driver={"manage": False}),
        "software.not_managed dcgm '4.4.1'",
        "software.not_managed gdrcopy '2.5.1'",
        "software.not_managed nccl '2.28.3'",
    ),
    (
        value(driver={"manage": False, "version": "560.35.05"}, dcgm=None, gdrcopy=None, nccl=None),
        "software.blackwell_branch driver.version",
        "software.cuda_driver cuda",
    ),
)


def test_unmanaged_driver_needs_no_version() -> None:
    found = read_software({"driver": {"manage": False}, "cuda": "13.0"})
    assert found.driver is not None
    assert (found.driver.manage, found.driver.version, found.driver.branch) == (False, "", 0)
    assert found.repositories_of("gpu") == ()
    assert SoftwareSet.of(found.as_variable()) == found


def refused(wrong: dict[str, Any]) -> list[str]:
    with pytest.raises(SoftwareError) as caught:
        read_software(wrong)
    assert str(caught.value).count("\n") == len(caught.value.findings)
    assert "user:secret" not in str(caught.value)
    return brief(caught.value.findings, below=1)


@pytest.mark.parametrize("case", BAD)
def test_every_reason_is_found(case: tuple[Any, ...]) -> None:
    wrong, *found = case
    assert refused(wrong) == found


def test_plain_http_with_unsigned_metadata_is_refused() -> None:
    wrong = value(
        repositories__cuda__url="http://mirror/cuda",
        repositories__cuda__signed_metadata=False,
        repositories__doca__signed_metadata=False,
    )
    assert refused(wrong) == ["software.unchecked_metadata repositories.cuda.signed_metadata False"]
    assert software(repositories__cuda__url="http://mirror/cuda")


URLS = st.text(st.characters(codec="ascii"), max_size=30)


@given(URLS)
def test_no_url_is_a_template(tail: str) -> None:
    """The plugin marks its results as trusted, so a template in them would be rendered."""
    try:
        found = software(repositories__cuda__url=f"https://mirror/{tail}")
    except SoftwareError:
        return
    url = found.repositories["cuda"].url
    assert "{{" not in url and "{%" not in url and "{#" not in url


def unjudged(**changes: Any) -> SoftwareSet:
    """The set as written, even if a rule refuses it."""
    findings = Findings()
    checked = SOFTWARE.check(value(**changes), findings)
    assert not findings, [finding.text() for finding in findings.found]
    return finish(checked, findings, ())


CASES: tuple[tuple[dict[str, Any], list[str]], ...] = (
    ({}, []),
    ({"kernel": "5.14.0-570.12.1.el9_6.x86_64"}, []),
    ({"driver__modules": "proprietary"}, ["blackwell_proprietary"]),
    ({"driver__modules": "proprietary", "driver__gpu": "H200"}, ["dma_buf_modules"]),
    ({"driver__version": "565.57.01", "cuda": ""}, ["blackwell_branch"]),
    ({"driver__version": "575.57.08", "cuda": "12.9"}, []),
    ({"cuda": "12.8"}, ["cuda_gpu"]),
    ({"cuda": "12.8", "driver__gpu": "B200"}, []),
    ({"cuda": "12.7", "driver__gpu": "B200"}, ["cuda_gpu", "cuda_unknown"]),
    ({"cuda": "11.8", "driver__gpu": "H200"}, []),
    ({"cuda": "11.7", "driver__gpu": "H100"}, ["cuda_gpu"]),
    ({"cuda": "12.10", "driver__gpu": "H100"}, ["cuda_unknown"]),
    ({"rdma__version": "2.9.3"}, ["doca_connectx8"]),
    ({"driver__version": "999.10.01"}, ["driver_bulletin", "driver_unknown"]),
    ({"driver__version": "581.10.01"}, ["driver_unknown"]),
    ({"repositories__doca__url": "https://x.example/doca/2.9.1/rhel9"}, ["doca_release"]),
    ({"repositories__doca__url": "https://x.example/doca/3.2.1/rhel9"}, []),
    ({"repositories__doca__url": "https://10.1.2.3/doca/rhel9.6"}, []),
    ({"rdma__version": "2.10.0"}, []),
    ({"rdma__version": "3.5.9"}, []),
    ({"rdma__version": "3.6.0"}, ["doca_unknown"]),
    ({"rdma__version": "2.3.0", "driver__gpu": "H200"}, ["doca_unknown"]),
    ({"rdma__version": "4.0.0"}, ["doca_unknown"]),
    ({"rdma__version": "2.9.3", "driver__gpu": "H200"}, []),
    ({"driver__version": "575.57.08"}, ["cuda_driver"]),
    ({"cuda": "13.1"}, ["cuda_minor"]),
    # Pairs from NVIDIA's release notes; nvidia-smi 615.71.09 prints "CUDA Version: 13.4".
    ({"cuda": "13.3"}, ["cuda_minor"]),
    ({"cuda": "13.3", "driver__version": "610.43.02"}, ["driver_bulletin"]),
    ({"cuda": "13.4", "driver__version": "615.71.09"}, ["driver_bulletin"]),
    ({"cuda": "13.5", "driver__version": "620.10.01"}, ["driver_bulletin", "cuda_unknown"]),
    ({"cuda": "14.0"}, ["cuda_unknown"]),
    ({"cuda": "13.5", "driver__version": "575.57.08"}, ["cuda_driver"]),
    ({"cuda": "12.6"}, ["cuda_gpu"]),
    (
        {"driver__version": "620.10.01", "driver__modules": "proprietary", "driver__gpu": "H100"},
        ["proprietary_branch", "dma_buf_modules", "driver_bulletin"],
    ),
    (  # The rule concerns packages of the repository.
        {
            **{"driver__version": "620.10.01", "driver__modules": "proprietary"},
            **{"driver__gpu": "H100", "driver__manage": False},
            **dict.fromkeys(("dcgm", "gdrcopy", "nccl"), ""),
        },
        ["dma_buf_modules", "driver_bulletin"],
    ),
    ({"driver__version": "580.105.08"}, ["driver_hangs"]),
    ({"driver__version": "580.105.08", "driver__gpu": "H200"}, []),
    (
        {"driver__version": "570.133.20", "cuda": "12.8", "driver__gpu": "B200"},
        ["driver_hangs"],
    ),
    ({"rdma": {"source": "none"}}, ["nvlink_rdma"]),
    ({"rdma": {"source": "none"}, "driver__gpu": "H200"}, []),
    ({"kernel": "5.14.0-687.5.1.el9_8.x86_64"}, ["doca_kernel"]),
    ({"kernel": "5.14.0-700.el9.x86_64"}, ["unknown_kernel"]),
    ({"kernel": "6.17.0-1014-nvidia"}, ["unknown_kernel"]),
    ({"kernel": "6.17.0-1014-nvidia", "rdma": {"source": "inbox"}}, []),
)


@pytest.mark.parametrize(("changes", "wanted"), CASES)
def test_combinations(changes: dict[str, Any], wanted: list[str]) -> None:
    found = [rule.name for rule in evaluate(unjudged(**changes))]
    assert [name for name in found if not name.endswith("_floor")] == wanted


def test_every_rule_has_a_combination_and_a_key() -> None:
    met = {rule for _changes, wanted in CASES for rule in wanted}
    assert met == {rule.name for rule in RULES if not rule.name.endswith("_floor")}
    for rule in RULES:
        place: Any = value()
        for part in rule.key.split("."):
            assert part == "modules" or part in place, rule.name
            place = place.get(part, {})


@pytest.mark.parametrize(
    ("one", "other"),
    [("580.95.05", "580.105.08"), ("9", "10"), ("12.9", "12.10"), ("570.211.01", "580.65.06")],
)
def test_numbers_are_not_text(one: str, other: str) -> None:
    assert older(one, other)
    assert not older(other, one)
    assert not older(one, f"{one}.0") and not older(f"{one}.0", one)


# The set of a model


def test_a_model_gives_its_set_whole_and_once() -> None:
    inventory = compiled(MODEL + f"software: {json.dumps(WHOLE)}\n")
    everywhere = inventory.group_variables["all"]
    assert everywhere["cluster_software"] == read_software(WHOLE).as_variable()
    assert all("cluster_software" not in host.variables for host in inventory.hosts)


@pytest.mark.parametrize(("transport", "nfs"), [("rdma", True), ("tcp", False)])
def test_nfs_over_rdma_is_part_of_the_set(transport: str, nfs: bool) -> None:
    text = MODEL + "filesystems:\n  - {name: a, type: nfs, source: 'nas:/a', mount: /a, "
    text += f"purpose: scratch, hosts: [compute], nfs: {{transport: {transport}}}}}\n"
    software = compiled(text).group_variables["all"]["cluster_software"]
    assert software["rdma"]["nfs"] is nfs


def test_versions_are_read_as_they_are_written() -> None:
    """YAML reads 13.10 as 13.1; the model reads the file's text."""
    text = MODEL + 'software: {driver: {version: 590.44.01}, cuda: 13.10, dcgm: "", '
    text += 'repositories: {cuda: {key: a, key_sha256: ""}}}\n'
    assert compiled(text).group_variables["all"]["cluster_software"]["cuda"] == "13.10"


# The page


def test_the_tables_are_what_the_code_has() -> None:
    generator = program("docs/generate_software_set.py")
    assert generator.page(PAGE) == PAGE, "run docs/generate_software_set.py"


def test_example_of_the_docs() -> None:
    found = re.search(r"```yaml\n(.*?)```", PAGE, re.S)
    assert found is not None
    example = yaml.safe_load(found[1])["software"]
    read_software(example)
    text = (ROOT / "inventories/b300/cluster.yml").read_text(encoding="utf-8")
    assert yaml.safe_load(text)["software"] == example


def test_page_and_message_name_the_same_keys() -> None:
    for text in FROM.values():
        for word in re.findall(r"[0-9A-F]{40}|\w+\.pub", text):
            assert word in PAGE
