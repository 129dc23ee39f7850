# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Settings of the Lustre client, and sources of mounts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.file_system import (
    FileSystem,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.lustre import (
    LnetNetwork,
    LustreSource,
    read_net,
    read_settings,
    read_source,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.shared_storage import (
    LustreError,
    lustre_settings,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.findings import brief
from tests.unit.lustre_node import LUSTRE, settings_of

RAILS = [{"interface": "rail0"}, {"interface": "rail1"}]


def lustre(source="10.9.0.1@o2ib:/lustre", **more):
    return FileSystem("ckpt", "lustre", source, "/lustre", "checkpoints", **more)


def findings(value):
    with pytest.raises(LustreError) as caught:
        lustre_settings(value, [lustre()], ["compute"])
    assert "u:secret" not in str(caught.value)
    return brief(caught.value.findings, below=1)


class TestDefaults:
    def test_all_rails_are_in_the_network_of_the_source(self):
        settings = settings_of(None, RAILS, [lustre("10.9.0.1@tcp2:/lustre")])
        assert settings.networks == (LnetNetwork("tcp2", ("rail0", "rail1")),)
        assert settings.discovery

    @pytest.mark.parametrize(
        ("routes", "nets"),
        [
            ([], ["o2ib", "tcp2"]),
            ([{"net": "tcp2", "gateway": "10.9.0.8@o2ib0"}], ["o2ib"]),
            ([{"net": "tcp2", "gateway": "10.7.0.8@o2ib3"}], ["o2ib", "o2ib3"]),
        ],
    )
    def test_two_file_systems_may_have_two_networks(self, routes, nets):
        """One of them may be behind a router in a network of this host."""
        both = [lustre("10.9.0.1@o2ib:/lustre"), lustre("10.8.0.1@tcp2:/second")]
        settings = settings_of({"routes": routes}, RAILS, both)
        assert [each.net for each in settings.networks] == nets

    def test_a_host_without_lustre_has_no_networks(self):
        nfs = FileSystem("home", "nfs", "s:/home", "/home", "home")
        assert lustre_settings({"lnet": []}, [nfs], ["compute"]) == {}
        assert read_settings({}).networks == ()


REPOSITORY = {"url": "https://u:secret@h/", "key": "k", "key_sha256": "0" * 64}
BAD: list[tuple[dict[str, Any], str]] = [
    ({"lnet": []}, "model.unknown_key lnet"),
    ({"networks": [{"net": "ib0"}]}, "model.wrong_form networks[0].net 'ib0'"),
    (
        {"networks": [{"net": "o2ib", "interfaces": "rail"}]},
        "model.not_a_choice networks[0].interfaces 'rail'",
    ),
    *(
        (
            {"routes": [{"net": "tcp1", "gateway": gateway}]},
            f"model.wrong_form routes[0].gateway '{gateway}'",
        )
        for gateway in ("10.0.0.1", "mgs1@tcp")
    ),
    (
        {"packages": {"method": "dkms", "version": "2.15.7", "repository": REPOSITORY}},
        "model.wrong_form packages.repository.url 'a secret'",
    ),
    ({"time_limit_s": 1}, "model.out_of_range time_limit_s (1, 5, 300)"),
]


@pytest.mark.parametrize(("value", "wanted"), BAD)
def test_wrong_settings_are_refused(value, wanted):
    assert findings(value) == [wanted]


@pytest.mark.parametrize(
    ("text", "net"),
    [("o2ib", "o2ib"), ("o2ib0", "o2ib"), ("o2ib00", "o2ib"), ("tcp12", "tcp12")],
)
def test_spelling_of_networks(text, net):
    assert read_net(text) == net


ADDRESSES = st.ip_addresses(v=4).map(str)
NETS = st.builds(
    lambda kind, n: f"{kind}{n or ''}", st.sampled_from(["tcp", "o2ib"]), st.integers(0, 65535)
)
NIDS = st.builds("{}@{}".format, ADDRESSES, NETS)
SOURCES = st.builds(
    LustreSource,
    st.lists(NIDS, min_size=1, max_size=6, unique=True).flatmap(
        lambda nids: st.integers(1, len(nids)).map(
            lambda n: tuple(tuple(nids[i::n]) for i in range(n))
        )
    ),
    st.from_regex(r"[A-Za-z0-9_-]{1,8}", fullmatch=True),
    st.lists(st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,9}", fullmatch=True), max_size=3).map(
        lambda parts: "".join(f"/{part}" for part in parts)
    ),
)


class TestSource:
    @given(SOURCES)
    def test_sources_round_trip(self, source):
        assert read_source(str(source)) == source

    @given(SOURCES)
    def test_network_0_and_trailing_slashes(self, source):
        text = str(source).replace("@tcp:", "@tcp0:").replace("@o2ib,", "@o2ib0,") + "/"
        assert read_source(text) == source

    @given(st.text(max_size=60))
    def test_any_source_can_be_parsed(self, text):
        assert read_source("10.9.0.1@o2ib:/lustre-x") != read_source(text)


PAGE = (Path(__file__).resolve().parents[2] / "docs/lustre.md").read_text(encoding="utf-8")


def keys(value: Any, prefix: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield f"{prefix}{key}"
            yield from keys(inner, f"{prefix}{key}.")
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner, prefix)


def test_the_example_has_every_key() -> None:
    found = re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    given = yaml.safe_load(found[1])["shared_storage_lustre"]
    assert set(keys(lustre_settings(given, [LUSTRE], LUSTRE.hosts))) == set(keys(given))
