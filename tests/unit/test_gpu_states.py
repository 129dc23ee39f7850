# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every state of a node's GPUs, with its single finding and its remedy."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import (
    FAILED,
    NOT_APPLICABLE,
    OK,
    PENDING,
    REBOOT,
    Check,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.gpu import (
    GpuFindings,
    evaluate,
    gpu_checks,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.gpu.evaluation import EACH, NAMES
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.gpu.reading import Nvml

from tests.hardware import gpu_states
from tests.hardware.gpu_states import GPUS, PRODUCT, STATES, UPGRADED, Service, state
from tests.unit.gpu_tools import MODEL_GPUS, look, node, unused, verdict, wanted

README = Path(gpu_states.__file__).parent / "gpu/README.md"

UNHEALTHY = "Completed, Success, summary Unhealthy, route_unhealthy True"
STOPPED = "inactive (loaded, enabled, success)"
# State: check, subject, status, found.
FINDINGS = {
    "missing": ("gpu_present", "gpu5", FAILED, "not on the bus"),
    "lost": ("gpu_present", "gpu2", FAILED, "GPU is lost"),
    "xid-79": ("gpu_present", "gpu5", FAILED, "not reached by the driver"),
    "xid-62": ("gpu_xid", "gpu7", FAILED, [62]),
    "fabric-in-progress": ("gpu_fabric", "all 8 GPUs", FAILED, "In Progress"),
    "fabric-no-ib-umad": ("gpu_fabric", "all 8 GPUs", FAILED, "In Progress"),
    "fabric-failed": ("gpu_fabric", "gpu6", FAILED, "Completed, Unknown Error"),
    "fabric-unhealthy": ("gpu_fabric", "gpu6", FAILED, UNHEALTHY),
    "fabric-manager-stopped": ("gpu_fabric_manager", "", FAILED, STOPPED),
    "fabric-manager-other": ("gpu_fabric_manager_version", "", FAILED, "580.105.08"),
    "ecc": ("gpu_ecc", "gpu3", FAILED, 1),
    "ecc-off": ("gpu_ecc_mode", "gpu3", FAILED, "disabled"),
    "remap-pending": ("gpu_row_remap", "gpu4", REBOOT, "1 rows, row pending"),
    "remap-failure": ("gpu_row_remap", "gpu4", FAILED, "0 rows, failure"),
    "remapped-rows": ("gpu_row_remap", "gpu4", FAILED, "513 rows"),
    "link-x8": ("gpu_pcie", "gpu1", FAILED, "64 GT/s x8"),
    "link-gen5": ("gpu_pcie", "gpu1", FAILED, "32 GT/s x16"),
    "persistence-off": ("gpu_persistence", "all 8 GPUs", FAILED, "disabled"),
    "proprietary": ("gpu_open_modules", "", FAILED, "proprietary"),
    "nvlink-down": ("gpu_nvlinks", "gpu0", FAILED, 17),
    "numa": ("gpu_numa", "gpu2", FAILED, 1),
    "vbios": ("gpu_vbios", "gpu6", FAILED, "97.10.00.00.02"),
    "product": ("gpu_product", "gpu6", FAILED, "NVIDIA B200"),
    "mig": ("gpu_mig", "gpu3", FAILED, "enabled"),
    "slowdown": ("gpu_slowdown", "gpu7", FAILED, "heat"),
    "recovery": ("gpu_recovery", "gpu2", REBOOT, "Reset"),
    "requires-reset": ("gpu_present", "gpu2", REBOOT, "GPU requires reset"),
    "nvlink5": ("gpu_xid", "gpu0", FAILED, [149]),
    "hung": ("gpu_driver", "", FAILED, "nvidia-smi -q -x: no answer within 60 s"),
    "not-loaded": ("gpu_driver", "", FAILED, "not loaded"),
    "nouveau": ("gpu_driver", "", REBOOT, "nouveau is loaded"),
    "no-gpudirect": ("gpu_direct", "", FAILED, "neither dma-buf nor nvidia_peermem"),
}
WELL = ("healthy", "ecc-aggregate")
OF_ITS_OWN = ("mismatch", "swapped")


def findings(result: GpuFindings) -> list[Check]:
    return [check for check in result.checks if check.status in (FAILED, PENDING, REBOOT)]


def test_every_state_has_a_case_and_a_description() -> None:
    assert {*FINDINGS, *WELL, *OF_ITS_OWN} == set(STATES)
    text = README.read_text(encoding="utf-8")
    assert [name for name in STATES if f"| {name} |" not in text] == []


@pytest.mark.parametrize("name", FINDINGS)
def test_a_state_gives_its_one_finding(name: str) -> None:
    result = verdict(name)
    [check] = findings(result)
    assert (check.name, check.subject, check.status, check.found) == FINDINGS[name]
    assert len(result.reasons) == (check.status == REBOOT)


@pytest.mark.parametrize("name", STATES)
def test_every_check_is_reported(name: str) -> None:
    result = verdict(name)
    checks = result.checks
    assert {check.name for check in checks} == set(NAMES)
    twice = [key for key, n in Counter((c.name, c.subject) for c in checks).items() if n > 1]
    assert twice == []
    found = {check.name for check in findings(result)}
    for check in checks:
        if check.status == NOT_APPLICABLE:
            assert any(name in check.reason for name in found), check


@pytest.mark.parametrize("name", WELL)
def test_healthy_node(name: str) -> None:
    result = verdict(name)
    assert {check.status for check in result.checks} == {OK}
    for each in (*EACH, "gpu_present", "gpu_xid"):
        subjects = [check.subject for check in result.checks if check.name == each]
        assert subjects == [f"gpu{index}" for index in range(8)], each
    assert not result.settling


def test_upgrade_is_one_reason_to_reboot() -> None:
    result = verdict("mismatch", driver=UPGRADED)
    [found] = findings(result)
    assert (found.name, found.status) == ("gpu_driver_version", REBOOT)
    [reason] = result.reasons
    assert (reason.wanted, reason.running) == (UPGRADED, gpu_states.VERSION)
    others = [check for check in result.checks if check is not found]
    assert {check.status for check in others} == {NOT_APPLICABLE}
    assert {check.reason for check in others} == {"not read: see gpu_driver_version"}


@pytest.mark.parametrize("name, driver", [("mismatch", UPGRADED), ("remap-pending", "580.95.05")])
def test_what_a_reboot_did_not_cure_has_failed(name: str, driver: str) -> None:
    seen, goal = look(name), wanted(driver=driver)
    [reason] = evaluate(seen, goal, node(unused)).reasons
    recorded = (replace(reason, boot_id="boot-1"),)
    same_boot = evaluate(seen, goal, node(unused, rebooted_for=recorded, boot_id="boot-1"))
    assert [check.status for check in findings(same_boot)] == [REBOOT]
    later = evaluate(seen, goal, node(unused, rebooted_for=recorded))
    [found] = findings(later)
    assert found.status == FAILED and "boot-1" in found.reason
    # Still recorded, or the next run would ask for a reboot again.
    assert [each.wanted for each in later.reasons] == [reason.wanted]


def test_only_an_initialising_fabric_is_settling() -> None:
    settling = [name for name in STATES if verdict(name).settling]
    assert settling == ["fabric-in-progress"]


def test_check_mode_is_pending_only_for_repairable_faults() -> None:
    pending = {
        name
        for name in FINDINGS
        if {check.status for check in findings(verdict(name, check_mode=True))} == {PENDING}
    }
    assert pending == {
        "fabric-manager-stopped",
        "fabric-manager-other",
        "persistence-off",
        "proprietary",
        "not-loaded",
    }


OTHERS = {"driver": "", "managed": False}


def test_unmanaged_driver_may_have_any_consistent_version() -> None:
    assert findings(verdict("healthy", **OTHERS)) == []
    assert findings(verdict(gpu_states.healthy(UPGRADED), **OTHERS)) == []
    assert {check.name for check in verdict("healthy", **OTHERS).checks} == set(NAMES)
    [found] = findings(verdict("fabric-manager-other", **OTHERS))
    assert (found.name, found.wanted) == ("gpu_fabric_manager_version", gpu_states.VERSION)


def test_unmanaged_upgrade_awaits_its_reboot() -> None:
    [found] = findings(verdict("mismatch", **OTHERS))
    assert (found.name, found.wanted, found.status) == ("gpu_driver_version", UPGRADED, REBOOT)
    result = verdict("healthy", driver=UPGRADED, managed=False)
    names = [(check.name, check.status) for check in findings(result)]
    assert names == [("gpu_driver_version", FAILED), ("gpu_fabric_manager_version", FAILED)]
    assert result.reasons == []
    assert all("driver.version" in check.reason for check in findings(result)[:1])


@pytest.mark.parametrize("name", ["persistence-off", "fabric-manager-stopped", "not-loaded"])
def test_no_run_mends_what_others_installed(name: str) -> None:
    [found] = findings(verdict(name, check_mode=True, **OTHERS))
    assert found.status == FAILED


@pytest.mark.parametrize("on_disk", ["", UPGRADED])
def test_module_on_disk_must_match(on_disk: str) -> None:
    seen = look("healthy")
    seen = replace(seen, driver=replace(seen.driver, on_disk=on_disk))
    for status in (FAILED, PENDING):
        result = evaluate(seen, wanted(), node(unused, check_mode=status == PENDING))
        [found] = findings(result)
        assert (found.name, found.status, result.reasons) == ("gpu_driver_version", status, [])


def test_library_mismatch_of_equal_versions() -> None:
    seen = look("healthy")
    found = evaluate(replace(seen, smi=replace(seen.smi, mismatch=True)), wanted(), node(unused))
    assert [check.name for check in findings(found)] == ["gpu_driver_version"]


def test_proprietary_modules_explain_missing_dma_buf_but_not_peermem() -> None:
    seen = look("no-gpudirect")
    seen = replace(seen, driver=replace(seen.driver, open=False, on_disk_open=False))
    for choice, others in (("auto", []), ("peermem", ["gpu_direct"])):
        found = findings(evaluate(seen, wanted(gpudirect=choice), node(unused)))
        assert [check.name for check in found] == ["gpu_open_modules", *others]


def test_missing_bindings_are_installed_by_a_run() -> None:
    seen = replace(look("healthy"), nvml=Nvml("pynvml.py is missing", absent=True))
    [found] = findings(evaluate(seen, wanted(), node(unused, check_mode=True)))
    assert (found.name, found.status) == ("gpu_nvml", PENDING)


def test_masked_services_name_the_remedy() -> None:
    changed = state("fabric-manager-stopped")
    changed.services[gpu_states.FABRIC_MANAGER] = Service("masked", "inactive", "masked")
    [found] = findings(verdict(changed))
    assert "systemctl unmask nvidia-fabricmanager" in found.reason
    changed = state("persistence-off")
    changed.services[gpu_states.PERSISTENCED] = Service("masked", "inactive", "masked")
    [found] = findings(verdict(changed))
    assert "systemctl unmask nvidia-persistenced" in found.reason


def test_swapped_gpus() -> None:
    found = [(check.name, check.subject, check.found) for check in findings(verdict("swapped"))]
    assert found == [("gpu_rail", "gpu0", "0000:2f:00.0"), ("gpu_rail", "gpu1", "0000:11:00.0")]


def test_xid_of_a_faulty_gpu_is_no_second_finding() -> None:
    changed = state("link-x8")
    changed.xid(48, 1, "DBE")
    changed.xid(13, 1, "a program's own mistake, which is no fault of the GPU")
    result = verdict(changed)
    assert [(check.name, check.subject) for check in findings(result)] == [("gpu_pcie", "gpu1")]
    [xid] = [c for c in result.checks if c.name == "gpu_xid" and c.subject == "gpu1"]
    assert xid.status == NOT_APPLICABLE
    assert "Xid 48" in xid.reason and "gpu_pcie" in xid.reason and "13" not in xid.reason


def test_pending_ecc_does_not_explain_an_xid() -> None:
    changed = state("ecc-off")
    changed.put("ecc_mode/pending_ecc", "Enabled", 3)
    changed.xid(79, 3, "GPU has fallen off the bus")
    found = [(check.name, check.status) for check in findings(verdict(changed))]
    assert found == [("gpu_ecc_mode", REBOOT), ("gpu_xid", FAILED)]


def test_idle_gpu_may_reduce_only_its_link_speed() -> None:
    changed = state("link-gen5")
    for unknown in ("N/A", "ERR!"):
        changed.put("performance_state", unknown, 1)
        assert [check.name for check in findings(verdict(changed))] == ["gpu_pcie"]
    changed.put("performance_state", "P8", 1)
    result = verdict(changed)
    assert findings(result) == []
    [check] = [c for c in result.checks if c.name == "gpu_pcie" and c.subject == "gpu1"]
    assert check.status == NOT_APPLICABLE and "P8" in check.reason
    changed = state("link-x8")
    changed.put("performance_state", "P8", 1)
    assert [check.name for check in findings(verdict(changed))] == ["gpu_pcie"]


@pytest.mark.parametrize(
    "path, check",
    [
        ("ecc_mode/current_ecc", "gpu_ecc_mode"),
        ("ecc_errors/volatile/dram_uncorrectable", "gpu_ecc"),
        ("ecc_errors/volatile/sram_uncorrectable_secded", "gpu_ecc"),
        ("remapped_rows/remapped_row_failure", "gpu_row_remap"),
        ("remapped_rows/remapped_row_pending", "gpu_row_remap"),
        ("remapped_rows/remapped_row_unc", "gpu_row_remap"),
        ("persistence_mode", "gpu_persistence"),
        ("mig_mode/current_mig", "gpu_mig"),
        ("fabric/state", "gpu_fabric"),
        ("fabric/status", "gpu_fabric"),
        ("vbios_version", "gpu_vbios"),
        ("product_name", "gpu_product"),
        ("gpu_recovery_action", "gpu_recovery"),
        ("mig_mode/pending_mig", "gpu_mig"),
        ("fabric/health/summary", "gpu_fabric"),
        *((path, "gpu_row_remap") for path in list(gpu_checks.REPAIRS.values())[:3]),
        *((path, "gpu_ecc") for path in gpu_checks.BEYOND_REPAIR),
        *(
            (f"clocks_event_reasons/clocks_event_reason_{name}", "gpu_slowdown")
            for name in ("hw_slowdown", *gpu_checks.SLOWDOWNS)
        ),
    ],
)
@pytest.mark.parametrize("how", ["N/A", "[Unknown Error]", "ERR!", None])
def test_an_unknown_value_is_never_fine(path: str, check: str, how: str | None) -> None:
    """Not even if the element is gone or renamed."""
    changed = state("healthy")
    gpu = changed.gpus[GPUS[5]]
    if how is None:
        parent = gpu.find(path.rpartition("/")[0] or ".")
        element = gpu.find(path)
        assert parent is not None and element is not None
        parent.remove(element)
    else:
        changed.put(path, how, 5)
    found = findings(verdict(changed))
    names = {each.name for each in found if each.subject == "gpu5"}
    assert check in names
    assert check != "gpu_mig" or path in found[0].reason
    assert len(found) == 1 or (check == "gpu_ecc_mode" and names == {check}), found


def test_value_missing_on_all_gpus_is_no_fault() -> None:
    """Blackwell repairs memory; a driver before R565 has flags instead of the action."""
    changed = state("healthy")
    for path in ("ecc_errors/tpc_repair_pending", "ecc_errors/unrepairable_memory"):
        changed.put(path, "N/A")
    for gpu in changed.gpus.values():
        action = gpu.find("gpu_recovery_action")
        assert action is not None
        gpu.remove(action)
        flags = ET.SubElement(gpu, "gpu_reset_status")
        ET.SubElement(flags, "reset_required").text = "No"
        ET.SubElement(flags, "drain_and_reset_recommended").text = "No"
    assert findings(verdict(changed)) == []
    changed.put("gpu_reset_status/reset_required", "Yes", 4)
    [found] = findings(verdict(changed))
    assert (found.name, found.subject, found.found) == ("gpu_recovery", "gpu4", "Reset")


@pytest.mark.parametrize(
    ("path", "error", "check"),
    [
        ("ecc_errors/tpc_repair_pending", "[Unknown Error]", "gpu_row_remap"),
        # nvmlErrorString's for NVML_ERROR_OPERATING_SYSTEM.
        (
            "retired_pages/pending_retirement",
            "GPU access blocked by the operating system",
            "gpu_row_remap",
        ),
        ("fabric/health/summary", "[Unknown Error]", "gpu_fabric"),
    ],
)
def test_error_of_one_gpu_does_not_affect_others(path: str, error: str, check: str) -> None:
    changed = state("healthy")
    changed.put(path, "N/A")
    changed.put(path, error, 6)
    [found] = findings(verdict(changed))
    assert (found.name, found.subject) == (check, "gpu6")


def test_a_process_may_have_any_name() -> None:
    changed = state("healthy")
    processes = ET.SubElement(changed.gpus[GPUS[1]], "processes")
    ET.SubElement(processes, "process_name").text = "GPU requires reset"
    assert findings(verdict(changed)) == []


@pytest.mark.parametrize("where", ["smi", "nvml"])
def test_reset_request_in_other_elements(where: str) -> None:
    """nvidia-smi cannot open it; or the kubelet's event: failed to get nvlink state."""
    seen = look("healthy")
    if where == "smi":
        changed = state("xid-79")
        changed.error = changed.error.replace("Unknown Error", "GPU requires reset")
        seen = look(changed)
    else:
        errors = {GPUS[5]: "GPU requires reset"}
        seen = replace(seen, nvml=replace(seen.nvml, errors=errors))
    [found] = findings(evaluate(seen, wanted(), node(unused)))
    assert (found.name, found.subject, found.status) == ("gpu_present", "gpu5", REBOOT)


@pytest.mark.parametrize(
    ("index", "values", "check", "found"),
    [
        (2, {"mig_mode/current_mig": "Enabled"}, "gpu_mig", "enabled, pending disabled"),
        (2, {"mig_mode/pending_mig": "Enabled"}, "gpu_mig", "disabled, pending enabled"),
        (7, {"ecc_errors/volatile/sram_uncorrectable_parity": "3"}, "gpu_ecc", 3),
        (7, {"ecc_errors/volatile/sram_uncorrectable_secded": "3"}, "gpu_ecc", 3),
        (7, {"ecc_errors/volatile/dram_uncorrectable": "3"}, "gpu_ecc", 3),
        # Python refuses to parse more than 4300 digits.
        (2, {"remapped_rows/remapped_row_unc": "9" * 5000}, "gpu_row_remap", None),
        (
            6,
            {"fabric/health/summary": "N/A", "fabric/health/route_unhealthy": "True"},
            "gpu_fabric",
            "Completed, Success, route_unhealthy True",
        ),
    ],
)
def test_values_that_are_a_finding(
    index: int, values: dict[str, str], check: str, found: Any
) -> None:
    changed = state("healthy")
    for path, value in values.items():
        changed.put(path, value, index)
    [seen] = findings(verdict(changed))
    assert (seen.name, seen.subject, seen.found) == (check, f"gpu{index}", found)


def test_more_gpus_than_the_model_has_are_counted() -> None:
    [found] = findings(verdict("healthy", gpus=MODEL_GPUS[:7]))
    assert found.name == "gpu_count" and GPUS[7] in found.reason


def test_order_of_the_model() -> None:
    turned = [{**entry, "index": 7 - entry["index"]} for entry in reversed(MODEL_GPUS)]
    found = findings(verdict("healthy", gpus=turned, rails=()))
    assert [check.name for check in found] == ["gpu_order"]


def test_the_kernel_log_that_cannot_be_read_fails() -> None:
    changed = state("healthy")
    changed.kernel_log.clear()
    [found] = findings(verdict(changed))
    assert (found.name, found.subject, found.status) == ("gpu_xid", "", FAILED)


def test_warnings_of_nvidia_smi_are_findings() -> None:
    changed = state("healthy")
    changed.error, changed.rc = "WARNING: infoROM is corrupted at gpu 0000:32:00.0", "14"
    [found] = findings(verdict(changed))
    assert found.name == "gpu_warnings" and "field diagnostic" in found.reason


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("remapped-rows", {"remapped_rows": 513}),
        ("ecc", {"volatile_uncorrectable": 1, "xids": frozenset()}),
        ("link-x8", {"pcie_width": 8}),
        ("link-gen5", {"pcie_gts": 32.0}),
        ("nvlink-down", {"nvlinks": 17}),
        ("xid-62", {"xids": frozenset([79])}),
        ("persistence-off", {"persistence": False}),
        ("ecc-off", {"ecc": False}),
        ("mig", {"mig": True}),
        ("fabric-in-progress", {"fabric": False}),
        ("no-gpudirect", {"gpudirect": "none"}),
        ("healthy", {"product": PRODUCT}),
    ],
)
def test_thresholds_are_variables(name: str, given: dict[str, Any]) -> None:
    assert findings(verdict(name, **given)) == []


def test_the_page_has_every_check_and_every_default() -> None:
    page = (Path(__file__).parents[2] / "docs/gpu.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `gpu_")]
    assert {row[1].strip(" `") for row in rows} == set(NAMES)
    defaults = "\n".join(row[3] for row in rows)
    without = {"driver", "gpus", "rails", "product", "vbios", "open_modules", "xids"}
    for name, value in vars(wanted()).items():
        if name not in (*without, "xids_ignored", "managed"):
            shown = str(value).lower() if isinstance(value, bool) else str(value).removesuffix(".0")
            assert f"`{name}: {shown}`" in defaults, name
    assert "`xids`" in defaults and "`xids_ignored`" in defaults


def test_lost_gpu_that_stops_nvidia_smi_is_the_only_finding() -> None:
    changed = state("xid-79")
    changed.gpus.clear()
    changed.rc = "255"
    result = verdict(changed)
    [found] = findings(result)
    assert (found.name, found.subject) == ("gpu_present", "gpu5")
    assert not [
        c
        for c in result.checks
        if c.status == OK and c.subject.startswith("gpu") and c.name != "gpu_xid"
    ]
