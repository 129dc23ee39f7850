# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Reasons to reboot: written once, kept with the boot that asked, gone when the value runs."""

from __future__ import annotations

import os

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import reboots
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.reboots import Reason

IOMMU = Reason("kernel argument iommu", "iommu=pt", "absent", "read at boot only")
PAGES = Reason("hugepages 1G", "16", "0", "memory is fragmented")


def plan(root, layer, reasons, boot):
    return reboots.plan(layer, reasons, boot, root=root, uid=os.getuid(), gid=os.getgid())


def test_a_reason_keeps_the_boot_that_first_asked(tmp_path):
    plan(tmp_path, "os", [IOMMU], "one").apply()
    again = plan(tmp_path, "os", [IOMMU, PAGES], "two")
    again.apply()
    boots = {each.subject: each.boot_id for each in reboots.recorded("os", tmp_path)}
    assert boots == {IOMMU.subject: "one", PAGES.subject: "two"}


def test_a_value_that_runs_is_no_reason_any_more(tmp_path):
    plan(tmp_path, "os", [IOMMU, PAGES], "one").apply()
    plan(tmp_path, "os", [PAGES], "two").apply()
    assert [each.subject for each in reboots.recorded("os", tmp_path)] == [PAGES.subject]
    plan(tmp_path, "os", [], "two").apply()
    assert not reboots.path_of("os", tmp_path).exists()


def test_another_wish_starts_anew(tmp_path):
    plan(tmp_path, "os", [IOMMU], "one").apply()
    other = Reason(IOMMU.subject, "iommu=off", "absent", IOMMU.reason)
    plan(tmp_path, "os", [other], "two").apply()
    assert reboots.recorded("os", tmp_path)[0].boot_id == "two"


def test_a_reboot_that_did_not_help_is_known_as_one(tmp_path):
    plan(tmp_path, "os", [IOMMU], "one").apply()
    old = reboots.recorded("os", tmp_path)
    assert reboots.outlived(IOMMU, old, "one") is None
    assert reboots.outlived(IOMMU, old, "two") == "one"
    assert reboots.outlived(PAGES, old, "two") is None


def test_all_layers_are_seen_together(tmp_path):
    plan(tmp_path, "os", [IOMMU], "one").apply()
    plan(tmp_path, "gpu", [PAGES], "one").apply()
    assert list(reboots.required(tmp_path)) == ["gpu", "os"]


@pytest.mark.parametrize("text", ["", "[]", '{"reasons": [{"subject": "x"}]}', '{"reasons": 1}'])
def test_a_broken_record_is_named(tmp_path, text):
    path = reboots.path_of("os", tmp_path)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(reboots.RecordError, match=str(path)):
        reboots.recorded("os", tmp_path)
