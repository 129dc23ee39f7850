# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# ruff: noqa: E501  (messages stand here as the operator sees them, in one line)
"""The set: read, refused with every reason, and the same again when it is read once more."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.schema.findings import dotted
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.software import (
    SoftwareError,
    read_software,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.software_sets import WHOLE, software, value


def test_nothing_said_is_inbox_and_no_driver() -> None:
    for nothing in (None, {}):
        found = read_software(nothing)
        assert (found.rdma.source, found.driver, found.cuda, dict(found.repositories)) == (
            "inbox",
            None,
            "",
            {},
        )
        assert found.repositories_of("rdma") == found.repositories_of("gpu") == ()


def test_everything_said_is_read() -> None:
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


BAD: tuple[tuple[dict[str, Any], list[str]], ...] = (
    (
        value(driver="580.95.05"),
        [
            "cluster_software.driver: '580.95.05' is not a mapping. Write keys below it.",
        ],
    ),
    (
        value(driver__version=580.95),
        [
            'cluster_software.driver.version: 580.95 is not a driver version with all its numbers. Write one such as "580.95.05" (in quotes).',
        ],
    ),
    (
        value(driver__version="580"),
        [
            "cluster_software.driver.version: '580' is not a driver version with all its numbers. Write one such as \"580.95.05\" (in quotes).",
        ],
    ),
    (
        value(driver__version="580.95", gdrcopy="2.5"),
        [
            "cluster_software.driver.version: '580.95' is not a driver version with all its numbers. Write one such as \"580.95.05\" (in quotes).",
            "cluster_software.gdrcopy: '2.5' is not a version of GDRCopy with all its numbers. Write one such as \"2.5.1\" (in quotes).",
        ],
    ),
    (
        value(driver__fabric_manager="580.95.05"),
        [
            "cluster_software.driver.fabric_manager: unknown key. Leave it out: it is installed with the driver, and fits it.",
        ],
    ),
    (
        value(fabric_manager="580.105.08"),
        [
            "cluster_software.fabric_manager: unknown key. Leave it out: it is of the driver's version by construction.",
        ],
    ),
    (
        value(driver__modules="proprietary"),
        [
            "cluster_software.driver.modules: proprietary modules for B300: Blackwell runs with the open modules alone (NVIDIA, transition to open-source GPU kernel modules). Write modules: open, or leave it out.",
        ],
    ),
    (
        value(driver__version="565.57.01", cuda="12.6"),
        [
            "cluster_software.driver.version: branch 565 for B300: their fabric manager begins with branch 570 (NVIDIA, Fabric Manager user guide). Choose branch 580 or later.",
        ],
    ),
    (
        value(driver__version="570.124.06"),
        [
            "cluster_software.cuda: CUDA 13.0 with driver 570.124.06, which is below 580.65.06: its programs do not start (NVIDIA, Supported drivers and CUDA toolkit versions). Choose a newer driver, or an older toolkit.",
        ],
    ),
    (
        value(cuda=13.0, dcgm="4.4"),
        [
            'cluster_software.cuda: 13.0 is not a CUDA toolkit by its first two numbers. Write one such as "13.0" (in quotes).',
            "cluster_software.dcgm: '4.4' is not a version of DCGM. Write one such as \"4.4.1\" (in quotes).",
        ],
    ),
    (
        value(driver=None),
        [
            "cluster_software.cuda: '13.0' needs the NVIDIA driver, and the set has none. Write cluster_software.driver.version, or leave it out.",
            "cluster_software.dcgm: '4.4.1' needs the NVIDIA driver, and the set has none. Write cluster_software.driver.version, or leave it out.",
            "cluster_software.gdrcopy: '2.5.1' needs the NVIDIA driver, and the set has none. Write cluster_software.driver.version, or leave it out.",
            "cluster_software.nccl: '2.28.3' needs the NVIDIA driver, and the set has none. Write cluster_software.driver.version, or leave it out.",
        ],
    ),
    (
        value(rdma={"source": "doca"}),
        [
            "cluster_software.rdma.version: is missing, and the source is doca. Write the release of DOCA.",
        ],
    ),
    (
        value(rdma={"source": "inbox", "version": "3.2.0", "profile": "doca-ofed"}),
        [
            "cluster_software.rdma.version: '3.2.0' is of DOCA, and cluster_software.rdma.source is inbox. Leave it out, or write source: doca.",
            "cluster_software.rdma.profile: 'doca-ofed' is of DOCA, and cluster_software.rdma.source is inbox. Leave it out, or write source: doca.",
        ],
    ),
    (
        value(repositories={}),
        [
            "cluster_software.repositories.cuda: is missing, and the driver comes from it. Add it with key and key_sha256.",
            "cluster_software.repositories.doca: is missing, and rdma.source is doca. Add it with key and key_sha256.",
        ],
    ),
    (
        value(repositories__cuda__trusted=True),
        [
            "cluster_software.repositories.cuda.trusted: unknown key. Leave it out: signatures are always verified.",
        ],
    ),
    (
        value(repositories__cuda__url="https://user:secret@mirror/cuda"),
        [
            "cluster_software.repositories.cuda.url: a user or password is in it. Write a URL (https://, http:// or file:///) without user or password, in which {distribution} and {architecture} are filled in.",
        ],
    ),
    (
        value(repositories__doca__url="file:///srv/{{ lookup('pipe', 'id') }}"),
        [
            "cluster_software.repositories.doca.url: \"file:///srv/{{ lookup('pipe', 'id') }}\" is not a URL (https://, http:// or file:///) without user or password, in which {version} and {distribution} and {architecture} are filled in. Write one such as file:///srv/packages/{distribution}.",
        ],
    ),
    (
        value(repositories__cuda__key_sha256="sha256:0"),
        [
            "cluster_software.repositories.cuda.key_sha256: 'sha256:0' is not a SHA-256 checksum (64 digits 0 to 9, a to f). Write one such as what sha256sum FILE prints.",
        ],
    ),
    (
        value(rdma={"source": "none"}),
        [
            "cluster_software.rdma.source: rdma.source none with B300: NVLSM needs ib_umad and mlx5_ib, which the layer rdma loads; without it CUDA fails with error 802 while nvidia-smi looks well (NVIDIA gpu-operator, issue 2781). Write doca or inbox.",
        ],
    ),
)


@pytest.mark.parametrize(("wrong", "findings"), BAD)
def test_every_reason_is_told(wrong: dict[str, Any], findings: list[str]) -> None:
    with pytest.raises(SoftwareError) as caught:
        read_software(wrong)
    assert [finding.text() for finding in caught.value.findings] == findings
    assert str(caught.value).count("\n") == len(findings)


def test_one_wrong_key_hides_no_other() -> None:
    with pytest.raises(SoftwareError) as caught:
        read_software(value(kernel="6.8 generic", driver__gpu="B400", rdma__source="ofed", nccl=2))
    assert [dotted(finding.path) for finding in caught.value.findings] == [
        "cluster_software.kernel",
        "cluster_software.rdma.source",
        "cluster_software.driver.gpu",
        "cluster_software.nccl",
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
