# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The set: read, refused with every reason, and the same again when it is read once more."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.software import (
    SoftwareError,
    read_software,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.findings import brief
from tests.unit.software_sets import WHOLE, software, value


def test_nothing_is_inbox_and_no_driver() -> None:
    for nothing in (None, {}):
        found = read_software(nothing)
        assert (found.rdma.source, found.driver, found.cuda, dict(found.repositories)) == (
            "inbox",
            None,
            "",
            {},
        )
        assert found.repositories_of("rdma") == found.repositories_of("gpu") == ()


def test_everything_is_read() -> None:
    found = read_software(WHOLE)
    assert found.driver is not None
    assert (found.driver.branch, found.driver.modules, found.driver.gpu) == (580, "open", "B300")
    assert found.rdma.profile == "doca-ofed"
    assert (found.cuda, found.cuda_major) == ("13.0", "13")
    assert found.repositories_of("rdma") == ("doca",)
    assert found.repositories_of("gpu") == ("cuda",)


PARTS = {
    "kernel": st.sampled_from(["", "6.8.0-79-generic", "5.14.0-570.12.1.el9_6.x86_64"]),
    "rdma": st.sampled_from(
        [{}, {"source": "inbox"}, {"source": "doca", "version": "3.3.0", "profile": "doca-roce"}]
    ),
    "driver": st.sampled_from(
        [{"version": "580.95.05"}, {"version": "590.44.01", "gpu": "H100", "modules": "open"}]
    ),
    "cuda": st.sampled_from(["", "12.9", "13.0"]),
    "dcgm": st.sampled_from(["", "4.4.2"]),
    "gdrcopy": st.sampled_from(["", "2.5.1"]),
    "nccl": st.sampled_from(["", "2.28.9"]),
}


@given(st.fixed_dictionaries({}, optional=PARTS))
def test_what_it_is_compiled_to_is_read_as_the_same(parts: dict[str, Any]) -> None:
    if "driver" not in parts:
        parts = {key: item for key, item in parts.items() if key in ("kernel", "rdma")}
    found = read_software({**parts, "repositories": WHOLE["repositories"]})
    again = read_software(found.as_variable())
    assert again == found
    assert again.as_variable() == found.as_variable()


TEMPLATE = "file:///srv/{{ lookup('pipe', 'id') }}"
BAD: tuple[tuple[Any, ...], ...] = (
    (value(driver="580.95.05"), "model.not_a_mapping driver '580.95.05'"),
    (value(driver__version=580.95), "model.wrong_form driver.version 580.95"),
    (value(driver__version="580"), "model.wrong_form driver.version '580'"),
    (
        value(driver__version="580.95", gdrcopy="2.5"),
        "model.wrong_form driver.version '580.95'",
        "model.wrong_form gdrcopy '2.5'",
    ),
    (value(driver__fabric_manager="580.95.05"), "model.unknown_key driver.fabric_manager"),
    (value(fabric_manager="580.105.08"), "model.unknown_key fabric_manager"),
    (value(driver__modules="proprietary"), "software.blackwell_proprietary driver.modules"),
    (value(driver__version="565.57.01", cuda="12.6"), "software.blackwell_branch driver.version"),
    (value(driver__version="570.124.06"), "software.cuda_driver cuda"),
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
        value(rdma={"source": "inbox", "version": "3.2.0", "profile": "doca-ofed"}),
        "software.of_doca rdma.version '3.2.0'",
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
        "model.wrong_form repositories.doca.url 'a secret'",
    ),
    (
        value(repositories__cuda__key_sha256="sha256:0"),
        "model.wrong_form repositories.cuda.key_sha256 'sha256:0'",
    ),
    (value(rdma={"source": "none"}), "software.nvlink_rdma rdma.source"),
)


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


def test_one_wrong_key_hides_no_other() -> None:
    wrong = value(kernel="6.8 generic", driver__gpu="B400", rdma__source="ofed", nccl=2)
    assert refused(wrong) == [
        "model.wrong_form kernel '6.8 generic'",
        "model.not_a_choice rdma.source 'ofed'",
        "model.not_a_choice driver.gpu 'B400'",
        "model.wrong_form nccl 2",
    ]


URLS = st.text(st.characters(codec="ascii"), max_size=30)


@given(URLS)
def test_no_url_is_a_template(tail: str) -> None:
    """The plugin marks what it computes as trusted: a template in it would be run."""
    try:
        found = software(repositories__cuda__url=f"https://mirror/{tail}")
    except SoftwareError:
        return
    url = found.repositories["cuda"].url
    assert "{{" not in url and "{%" not in url and "{#" not in url
