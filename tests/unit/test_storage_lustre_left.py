# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""LNet on a host that left Lustre: told until it is taken away, which takes a word."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import (
    FAILED,
    OK,
    PENDING,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.files import HEADER
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.units import MARK

from tests.unit.lustre_node import LustreNode, found

LNET = "/etc/lnet.conf"
FILES = (
    "etc/lnet.conf",
    "etc/modprobe.d/baremetal-mpi-roce-lustre.conf",
    "etc/systemd/system/lnet.service.d/baremetal-mpi-roce.conf",
)
UNIT = "etc/systemd/system/lustre.mount"


@pytest.fixture
def node(tmp_path):
    """It was a client until now."""
    made = LustreNode(tmp_path)
    made.settle()
    return made


def there(node):
    return [name for name in FILES if (node.root / name).exists()]


def left(node, **given):
    outcome = node.settle(filesystems=[], **given)
    return outcome, found(outcome, "lustre_left").get(LNET)


def unit_of(kind):
    return f"# {HEADER}\n{MARK}\n[Mount]\nWhere=/lustre\nType={kind}\n"


def test_a_host_that_never_was_a_client_hears_nothing_of_it(tmp_path):
    fresh = LustreNode(tmp_path)
    outcome, check = left(fresh)
    assert (check, outcome.changed, fresh.calls) == (None, False, [])


def test_it_is_told_with_the_way_and_left_alone(node):
    outcome, check = left(node)
    assert (outcome.changed, there(node)) == (False, list(FILES))
    assert check.status == FAILED
    assert all(f"/{name}" in check.found for name in FILES)
    assert check.found.endswith("lnet.service enabled, active")
    assert '{"shared_storage_absent": ["/etc/lnet.conf"]}' in check.reason


def test_it_is_taken_away_when_asked(node):
    outcome, check = left(node, absent=[LNET])
    assert (outcome.changed, outcome.errors, check.status) == (True, [], OK)
    assert (node.enabled, node.active, there(node)) == (False, False, [])
    assert not node.stand_in.loaded("lnet")
    assert node.calls[-1] == ["systemctl", "daemon-reload"], "the drop-in's unit is read anew"
    again, check = left(node, absent=[f"{LNET}/"])
    assert (again.changed, check.status) == (False, OK)
    assert left(node)[1] is None


def test_check_mode_shows_it_and_writes_nothing(node):
    outcome, check = left(node, absent=[LNET], check_mode=True)
    assert check.status == PENDING
    assert {each["before_header"].rpartition("/etc/")[2] for each in outcome.diff} == {
        name[len("etc/") :] for name in FILES
    }
    assert (there(node), node.enabled) == (list(FILES), True)


def test_what_somebody_wrote_stays(node):
    node.write("etc/lnet.conf", "net:\n    - net type: tcp\n")
    _outcome, check = left(node, absent=[LNET])
    assert check.status == OK and there(node) == ["etc/lnet.conf"]


def test_under_a_mount_it_is_refused(node):
    node.mount()
    with pytest.raises(PlanError, match="which /lustre needs"):
        left(node, absent=[LNET])
    assert there(node) == list(FILES) and node.active


def test_where_an_automount_point_would_need_it_too(node):
    node.write(UNIT, unit_of("lustre"))
    with pytest.raises(PlanError, match="which /lustre needs"):
        left(node, absent=[LNET])
    assert left(node, absent=["/lustre", LNET])[0].errors == []  # the mounts' part takes it away


def test_a_mount_that_was_to_go_and_did_not_keeps_it(node):
    node.mount()
    outcome, check = left(node, absent=["/lustre", LNET])
    assert "Lustre is mounted at /lustre" in outcome.errors[0]
    assert check.status == FAILED and there(node) == list(FILES) and node.active


def test_in_a_container_what_its_kernel_would_do_is_left_out(node):
    outcome, check = left(node, absent=[LNET], container="podman")
    assert (outcome.errors, check.status, there(node), node.enabled) == ([], OK, [], False)
    assert ["lustre_rmmod"] not in node.calls and node.active


def test_interrupted_it_is_found_again(node):
    node.gone.add("systemctl")
    with pytest.raises(PlanError):
        left(node, absent=[LNET])
    node.gone.clear()
    node.active = False
    node.gone.add("lustre_rmmod")
    outcome, check = left(node, absent=[LNET])
    assert outcome.errors and check.status == FAILED and there(node) == list(FILES)
    node.gone.clear()
    assert left(node, absent=[LNET])[1].status == OK


def test_an_lnet_that_something_still_uses_keeps_its_files(node, monkeypatch):
    monkeypatch.setattr(node.stand_in, "_lustre_rmmod", lambda argv: (0, "", ""))
    outcome, check = left(node, absent=[LNET])
    assert "LNet could not be unloaded" in outcome.errors[0]
    assert check.status == FAILED and there(node) == list(FILES)
