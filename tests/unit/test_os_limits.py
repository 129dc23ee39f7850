# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Limits: units of PAM, kernel and systemd; no setting locks users out."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.os_baseline import limits

from tests.unit.os_tree import Tree, found


@pytest.fixture(params=["ubuntu", "rocky"])
def tree(request, tmp_path):
    return Tree(request.param, tmp_path)


def limit(name, value):
    return limits.from_options({name: value})[0]


@pytest.mark.parametrize(
    ("name", "value", "kernel", "systemd"),
    [
        ("memlock", "unlimited", "unlimited", "infinity"),
        ("memlock", 64, "65536", "65536"),
        ("nofile", 1048576, "1048576", "1048576"),
        ("stack", 8192, "8388608", "8388608"),
    ],
)
def test_units_of_limits(name, value, kernel, systemd):
    wanted = limit(name, value)
    assert (wanted.kernel, wanted.systemd) == (kernel, systemd)


@pytest.mark.parametrize("value", ["0", "infinity", "12k"])
def test_values_that_are_no_limit_are_refused(value):
    with pytest.raises(PlanError, match="memlock"):
        limits.from_options({"memlock": value})


def test_service_limit_must_be_a_limit(tree):
    with pytest.raises(PlanError, match="stack"):
        tree.settle(limits={"memlock": 64}, service_limits=["stack"])


def test_unloaded_files_are_loaded_by_the_next_run(tree):
    wanted = {"limits": {"memlock": "unlimited"}, "service_limits": ["memlock"]}
    tree.settle(**wanted)
    tree.loaded["DefaultLimitMEMLOCK"] = "8388608"
    assert tree.settle(**wanted).changed
    assert not tree.settle(**wanted).changed


def test_overriding_limit_fails_with_the_session_s_value(tree):
    tree.write("etc/security/limits.d/99-site.conf", "* - memlock 64\n")
    check = found(tree.settle(limits={"memlock": "unlimited"}), "session_limit")["memlock"]
    assert (check.status, check.found) == ("failed", "65536")


def test_mpi_user_verifies_limits(tree):
    tree.settle(limits={"memlock": 64})
    assert tree.ran("runuser", "-u", "nobody")
    tree.users.add("mpi")
    tree.calls.clear()
    tree.settle(limits={"memlock": 64})
    assert tree.ran("runuser", "-u", "mpi")


def test_nofile_above_nr_open_is_refused(tree):
    with pytest.raises(PlanError, match="refuse every login"):
        tree.settle(limits={"nofile": 1048577})


def test_dropped_limits_are_removed(tree):
    tree.settle(limits={"memlock": 64}, service_limits=["memlock"])
    tree.calls.clear()
    assert tree.settle().changed
    assert tree.ran("systemctl", "daemon-reload")
    assert not list(tree.root.rglob("90-baremetal-mpi-roce.conf"))
    assert not tree.settle().changed
