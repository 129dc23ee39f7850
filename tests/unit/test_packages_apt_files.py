# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What apt reads and what dpkg says: definitions, pins, and the database. No program runs."""

from __future__ import annotations

import hashlib
import os

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.files import HEADER
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages import (
    apt_preferences,
    apt_sources,
    apt_state,
    apt_view,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.apt_view import (
    without_credentials,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.manager import (
    PackageError,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.package import Repository

KEY = b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmQ==\n-----END PGP PUBLIC KEY BLOCK-----\n"


def repository(**changed):
    key = changed.get("key", KEY)
    settings = {
        "name": "cuda",
        "url": "https://mirror.example.org/cuda/ubuntu2404/x86_64",
        "key": key,
        "key_sha256": hashlib.sha256(key).hexdigest(),
        **changed,
    }
    return Repository(**settings)


def test_a_pin_makes_one_version_the_candidate_and_every_other_none():
    pins, preferred = {"nvidia-open-580": "580.95.05-0ubuntu1"}, {"mft*": "release l=d"}
    text = apt_preferences.render(pins, preferred)
    assert (apt_preferences.pins_of(text), apt_preferences.preferred_of(text)) == (pins, preferred)
    assert text == (
        f"# {HEADER}\n\n"
        "Package: nvidia-open-580\nPin: version 580.95.05-0ubuntu1\nPin-Priority: 1001\n\n"
        "Package: nvidia-open-580\nPin: version *\nPin-Priority: -1\n\n"
        "Package: mft*\nPin: release l=d\nPin-Priority: 600\n"
    )


def plan(tmp_path, repositories, layer="gpu"):
    return apt_sources.plan_sources(repositories, layer, tmp_path, os.getuid(), os.getgid())


def test_a_definition_is_signed_by_its_key_and_never_trusted(tmp_path):
    key, definition = plan(tmp_path, [repository()])
    assert key.path == tmp_path / "etc/apt/keyrings/baremetal-mpi-roce-cuda.asc"
    assert definition.after == (
        f"# {HEADER}\n# For the layers: gpu\nTypes: deb\n"
        "URIs: https://mirror.example.org/cuda/ubuntu2404/x86_64\nSuites: /\n"
        f"Signed-By: {key.path}\n"
    )
    suites = repository(suites=("noble",), components=("main", "extra"))
    _key, definition = plan(tmp_path, [suites])
    assert "Suites: noble\nComponents: main extra\n" in definition.after


@pytest.mark.parametrize(
    "changed, words",
    [
        ({"key_sha256": "ab" * 32}, "its key has sha256"),
        ({"key_sha256": ""}, "the set says none"),
        ({"key": b"<html>not found</html>"}, "no OpenPGP public key"),
        ({"key": b"-----BEGIN PGP PRIVATE KEY BLOCK-----\n"}, "no OpenPGP public key"),
        ({"key": b""}, "no OpenPGP public key"),
        ({"url": "ftp://mirror.example.org/cuda"}, "is not https"),
        ({"url": "file://relative"}, "is not https"),
        ({"url": "https://x y"}, "is not https"),
        ({"url": "https://x\nTrusted: yes"}, "is not https"),
        ({"name": "../cuda"}, "a name is of"),
    ],
)
def test_what_must_not_be_defined_is_refused_by_name(tmp_path, changed, words):
    with pytest.raises(PackageError, match=words):
        plan(tmp_path, [repository(**changed)])


def test_a_definition_goes_with_the_last_layer_that_wants_it(tmp_path):
    def apply(*arguments):
        planned = plan(tmp_path, *arguments)
        for each in planned:
            each.apply()
        return planned

    apply([repository()])
    apply([repository()], "rdma")
    assert not any(each.changed for each in plan(tmp_path, [repository()]))
    apply([])
    assert not any(each.changed for each in plan(tmp_path, [repository()], "rdma"))
    apply([], "rdma")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_the_address_of_a_repository_as_apt_prints_it():
    assert without_credentials(repository(url="file:///srv/cuda/")) == "file:/srv/cuda"
    secret = repository(url="https://me:pw@mirror.example.org/cuda/")
    assert without_credentials(secret) == "https://mirror.example.org/cuda"


def line(*words):
    return "\t".join(words) + "\n"


DATABASE = (
    line("driver", "1", "amd64", "hold", "installed", "ok", "", "base (>= 1)", "lib (= 1), mailer")
    + line("lib", "1", "amd64", "install", "installed", "ok", "", "", "driver | other")
    + line("lib", "1", "i386", "install", "installed", "ok", "", "", "")
    + line("base", "1", "all", "install", "triggers-pending", "ok", "", "", "")
    + line("postfix", "1", "amd64", "install", "installed", "ok", "mailer (= 2)", "", "")
    + line("gone", "1", "amd64", "deinstall", "config-files", "ok", "", "", "lib")
    + line("half", "1", "amd64", "install", "half-installed", "reinstreq", "", "", "lib")
    + line("aside", "1", "amd64", "install", "installed", "ok", "", "", "driver")
)


def test_the_database_of_dpkg():
    state = apt_state.parse(DATABASE, "amd64")
    assert state.installed.keys() == {"driver", "lib", "lib:i386", "base", "postfix", "aside"}
    assert state.held == {"driver"}
    assert state.unfinished == {"half": "half-installed, reinstreq"}


def test_what_a_package_needs_is_found_at_any_depth_and_through_what_others_provide():
    state = apt_state.parse(DATABASE, "amd64")
    assert state.needs(["driver"]) == {"lib", "base", "postfix"}
    assert state.needs(["aside"]) == {"driver", "lib", "base", "postfix"}
    assert state.needs(["half", "nowhere"]) == frozenset()


@pytest.mark.parametrize(
    ("line", "taken"),
    [
        ("W: https://x ./ InRelease: Signature by key 70454E uses weak algorithm (dsa1024)", True),
        (
            "W: https://x ./ InRelease: Signature by key 70454E uses weak digest algorithm (SHA1)",
            True,
        ),
        ("W: Conflicting distribution: file:/x ./ InRelease (expected noble but got )", True),
        ("E: Signature by key 70454E uses weak algorithm (dsa1024)", False),
        ("W: GPG error: https://x ./ InRelease: NO_PUBKEY DC726C5E41B9CC50", False),
        ("W: Failed to fetch https://x/InRelease  Could not connect", False),
    ],
)
@pytest.mark.parametrize("rc", [0, 100])
def test_a_warning_of_a_repository_that_apt_took_is_shown_and_no_more(tmp_path, line, taken, rc):
    (tmp_path / "var/lib/dpkg").mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/status").write_text("")

    def run(argv, *, check=True, stdin=None):
        return Result(tuple(argv), rc if "update" in argv else 0, "", f"{line}\n")

    view = apt_view.View(run, tmp_path)
    if taken and rc == 0:
        view.define([repository()])
        assert view.warnings == [line]
    else:
        with pytest.raises(PackageError, match="repository cuda"):
            view.define([repository()])
