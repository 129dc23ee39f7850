# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Xids: NVIDIA's catalogue, precedence of the driver's recovery action, and resets.

Expected values are from Xid-Catalog.xlsx, in oracle-quickstart/oci-hpc b5285a68,
playbooks/roles/healthchecks/files/xid_catalog_data.json.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import (
    FAILED,
    NOT_APPLICABLE,
    REBOOT,
    Check,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.gpu import reading, xids
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.gpu.xids import (
    HARMLESS,
    RESET,
    SUPPORT,
    UNKNOWN,
)

from tests.hardware.gpu_states import GPUS, state, uuid
from tests.unit.gpu_tools import verdict
from tests.unit.test_gpu_states import findings

CATALOGUE = {
    RESET: (46, 48, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158),
    xids.REBOOT: (79,),
    HARMLESS: (8, 13, 31, 32, 43, 45, 63, 66, 68, 69, 72, 80, 92, 94, 121, 137, 141, 154, 157, 161),
    SUPPORT: (54, 56, 57, 58, 65, 73, 81, 142),
    UNKNOWN: (167, 169, 173, 185, 999),
}
FATAL = [
    *(("SAW_MVB", 144, bit) for bit in (0x2, 0x10)),
    *(("RLW_REMAP", 145, bit) for bit in (0x40, 0x80)),
    ("RLW_RSPCOL", 145, 0x2),
    *(("RLW_SRC_TRACK", 145, bit) for bit in (0x1, 0x10, 0x20)),
    *(("RLW_TAGSTATE", 145, bit) for bit in (0x2, 0x20000, 0x100000)),
    *((name, 146, 0x4) for name in ("TLW_CTRL", "TLW_RX", "TLW_RX_PIPE1", "TLW_TX_PIPE0")),
    *(("NETIR", 149, bit) for bit in (0x0,)),
    *(("NETIR_MFDE_EVENT", 149, bit) for bit in (1, 4, 5, 7)),
    ("MSE_WATCHDOG", 150, 0),
    ("MSE Degraded", 150, 0xFFFFFFFF),
]
WELL = [
    *(("SAW_MVB", 144, bit) for bit in (0x1, 0x4, 0x8, 0x20)),
    ("RLW_CTRL", 145, 0x80000000),
    *(("RLW_REMAP", 145, bit) for bit in (0x1, 0x20, 0x100, 0x80000000)),
    *(("RLW_RXPIPE", 145, bit) for bit in (0x1, 0x8)),
    *(("RLW_SRC_TRACK", 145, bit) for bit in (0x2, 0x4)),
    *(("TLW_TX", 146, bit) for bit in (0x1, 0x2, 0x80000000)),
    ("TREX", 147, 0x1),
    ("NVLPW_CTRL", 148, 0x80000000),
    ("NETIR_BER_EVENT", 149, 0x3),
    ("NETIR_MFDE_EVENT", 149, 0x3),
]


def line(number: int, text: str, pci: str = "0000:14:00") -> str:
    return f"NVRM: Xid (PCI:{pci}): {number}, {text}"


def asked(message: str) -> str:
    xid = reading.xid_of(message)
    assert xid is not None
    return xids.action(xid)


def xid_check(found: Any, index: int = 0) -> Check:
    return next(c for c in found.checks if c.name == "gpu_xid" and c.subject == f"gpu{index}")


@pytest.mark.parametrize(
    ("number", "action"), [(n, action) for action, all_ in CATALOGUE.items() for n in all_]
)
def test_an_xid_asks_for_what_the_catalogue_says(number: int, action: str) -> None:
    assert asked(line(number, "pid=1, name=a, some text")) == action


@pytest.mark.parametrize("severity", ["Fatal", "Nonfatal"])
@pytest.mark.parametrize(
    ("name", "number", "status", "action"),
    [*((*row, RESET) for row in FATAL), *((*row, HARMLESS) for row in WELL)],
)
def test_nvlink5_is_decoded(
    severity: str, name: str, number: int, status: int, action: str
) -> None:
    text = f"{name} {severity} XC0 i0 Link 03 (0x00000006 0x{status:08x} 0x00000000)"
    assert asked(line(number, text)) == action
    assert asked(line(number, f"pid=7, name=TREX, (0x0 0x1), {text}")) == action


@pytest.mark.parametrize(
    ("text", "action"),
    [
        # From NVIDIA/NVSentinel and leptonai/gpud; the last without its registers.
        ("NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6 0x00000000 0x0)", RESET),
        ("NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x025001c6 0x00000000 0x0)", RESET),
        ("NETIR_BER_EVENT Nonfatal XC0 i0 Link 03 (0x00086226 0x00000001 0x0)", HARMLESS),
        ("RLW_REMAP Nonfatal XC0 i0 Link 02", HARMLESS),
        ("NETIR_LINK_DOWN Fatal XC0 i0 Link 00 (0x02600011 0x00000000 0x0)", HARMLESS),
        ("NETIR_LINK_DOWN Fatal XC0 i0 Link 00 (0x02800011 0x00000000 0x0)", HARMLESS),
        # Promoted: IntrInfo[7] since R575, [10] before.
        ("RLW_RXPIPE Fatal XC0 i0 Link 13 (0x00000086 0x00000001 0x0)", RESET),
        ("RLW_RXPIPE Fatal XC0 i0 Link 13 (0x000004c2 0x00000004 0x0)", RESET),
        ("RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x00000006 0x00000001 0x0)", HARMLESS),
        # Outside the table: the line's severity; without one the action is unknown.
        ("RLW_REMAP Fatal XC0 i0 Link 13 (0x00000004 0x00010000 0x0)", RESET),
        ("RLW_FUTURE", UNKNOWN),
    ],
)
def test_nvlink5_by_cause_promotion_and_severity(text: str, action: str) -> None:
    assert asked(line(145 if "RLW" in text else 149, text)) == action


@pytest.mark.parametrize(
    ("message", "action"),
    [
        # Formats of kern_gpu_error_cont_ga100.c.
        ("94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No", HARMLESS),
        ("94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: Yes", RESET),
        ("94, pid=1, name=RST: Yes, Contained: SM (0x1). RST: No, D-RST: No", HARMLESS),
        ("74, pid=1, NVLink: fatal error on link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", RESET),
    ],
)
@pytest.mark.parametrize("of_mig", ["", " GPU-I:05", " GPU-I:05 GPU-CI:00"])
def test_what_a_line_says_itself(message: str, action: str, of_mig: str) -> None:
    text = f"NVRM: Xid (PCI:0000:14:00{of_mig}): {message}"
    xid = reading.xid_of(text)
    assert xid is not None and xid.pci == GPUS[0] and asked(text) == action


@pytest.mark.parametrize(
    ("number", "name", "text", "action"),
    [
        (145, "a Nonfatal b", "RLW_FUTURE Fatal XC0 i0 Link 13 (0x00000001 0x00000001)", RESET),
        (154, "changed from a (b) to c (None)", "changed from 0x0 (None) to 0x1 (Reset)", RESET),
        (45, "caused by previous Xid 95", "Ch 00000001", HARMLESS),
    ],
)
def test_a_program_hides_no_error_by_its_name(
    number: int, name: str, text: str, action: str
) -> None:
    assert asked(line(number, f"pid=7, name={name}, {text}")) == action


@pytest.mark.parametrize(
    ("text", "action"),
    [
        # huggingface.co/datasets/LHRS-UM-FERI/MENTHOS-dataset-rootcause, and the driver's source.
        ("20034, Fatal, Link 30 LTSSM Fault Up", RESET),
        ("19084, Non-fatal, Link 29 AN1 Heartbeat Timeout Error (First)", HARMLESS),
        ("11004, Correctable, Link 02 ingress", HARMLESS),
        ("20034, Severity 5 Engine instance 00 Sub-engine instance 00", HARMLESS),
        ("10005, NVSWITCH Temperature 40C | TSENSE WARN Threshold 90C", HARMLESS),
        ("10003, SOE HALTED", UNKNOWN),
    ],
)
def test_an_sxid_is_judged_by_its_severity(text: str, action: str) -> None:
    assert asked(f"nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): {text}") == action


def test_nvswitch_and_missing_gpu_have_separate_findings() -> None:
    changed = state("healthy")
    changed.kernel_log += [
        "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
        line(79, "GPU has fallen off the bus.", "0000:f0:00"),
    ]
    found = {check.subject: check for check in findings(verdict(changed))}
    assert found["NVSwitch 0000:c1:00.0"].found == [20034]
    assert "reset all GPUs" in found["NVSwitch 0000:c1:00.0"].reason
    assert found["0000:f0:00.0"].found == [79]
    assert len(found) == 2


def test_reset_of_all_gpus_clears_sxids() -> None:
    switch = "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
    changed = state("healthy")
    changed.kernel_log += [BEFORE[0], switch, f"GPU reset executed: {uuid(0)}"]
    assert [check.found for check in findings(verdict(changed))] == [[20034]]
    changed.kernel_log.append("GPU reset executed: all, success: true")
    assert findings(verdict(changed)) == []
    changed.kernel_log.append(switch)
    assert [check.found for check in findings(verdict(changed))] == [[20034]]


def test_unknown_xid_is_a_finding() -> None:
    changed = state("healthy")
    for number in CATALOGUE[HARMLESS]:
        changed.xid(number, 1, "pid=4242, name=python3, some text")
    assert findings(verdict(changed)) == []
    changed.xid(185, 1, "SPARING_EVENT")
    [check] = findings(verdict(changed))
    assert (check.subject, check.found) == ("gpu1", [185])
    assert "xids_ignored" in check.reason
    assert findings(verdict(changed, xids_ignored=frozenset([185]))) == []


def test_the_operators_list_has_the_last_word() -> None:
    changed = state("healthy")
    changed.xid(43, 2, "a program of ours")
    changed.xid(95, 3, "Uncontained")
    changed.kernel_log.append("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30")
    [check] = findings(verdict(changed, xids=frozenset([43])))
    assert (check.subject, check.found) == ("gpu2", [43])


def test_cause_named_by_xid_45() -> None:
    """NVIDIA/open-gpu-kernel-modules issue 1150: the log has Xid 45 without its cause."""
    changed = state("healthy")
    changed.xid(45, 3, "pid=1818990, name=python3, Ch 00000001 caused by previous Xid 13")
    assert findings(verdict(changed)) == []
    changed.xid(45, 3, "pid=1818990, name=python3, Ch 00000001 caused by previous Xid 149")
    [check] = findings(verdict(changed))
    assert (check.subject, check.found) == ("gpu3", [149])
    changed.xid(154, 3, "GPU recovery action changed from 0x4 (Drain and Reset) to 0x0 (None)")
    assert findings(verdict(changed)) == []
    changed.xid(149, 3, "NETIR_LINK_DOWN Fatal XC0 i0 Link 00 (0x02600011 0x00000000 0x0)")
    changed.xid(45, 3, "pid=1818990, name=python3, Ch 00000001 caused by previous Xid 149")
    assert findings(verdict(changed)) == []  # the log has the cause, which is harmless


ASKED = "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"


@pytest.mark.parametrize(
    ("words", "action"),
    [
        ("0x1 (GPU Reset Required)", RESET),
        ("0x1 (PF FLR)", RESET),  # driver 610
        ("0x4 (Drain and Reset)", RESET),
        ("0x2 (Node Reboot Required)", xids.REBOOT),
        ("0x2 (OS Reboot)", xids.REBOOT),  # driver 610
        ("0x0 (None)", HARMLESS),
    ],
)
def test_a_changed_recovery_action_is_what_it_says(words: str, action: str) -> None:
    assert (
        asked(line(154, f"GPU recovery action changed from 0x3 (Drain P2P) to {words}")) == action
    )


def test_the_recovery_action_is_judged_first() -> None:
    changed = state("recovery")
    changed.xid(95, 2, "Uncontained: FBHUB. RST: Yes, D-RST: No")
    changed.xid(154, 2, ASKED)
    judged = verdict(changed)
    [check] = findings(judged)
    assert (check.name, check.subject, check.status) == ("gpu_recovery", "gpu2", REBOOT)
    quoted = xid_check(judged, 2)
    assert quoted.status == NOT_APPLICABLE
    assert "Xid 95" in quoted.reason and "gpu_recovery" in quoted.reason


@pytest.mark.parametrize("name", ["numa", "vbios"])
def test_settings_do_not_explain_xids(name: str) -> None:
    changed = state(name)
    index = {"numa": 2, "vbios": 6}[name]
    changed.xid(119, index, "Timeout after 6s of waiting for RPC response from GPU")
    assert [check.name for check in findings(verdict(changed))] == [f"gpu_{name}", "gpu_xid"]
    changed.put("gpu_recovery_action", "Drain P2P", index)
    assert [check.name for check in findings(verdict(changed))] == [f"gpu_{name}", "gpu_recovery"]


BEFORE = [
    f"NVRM: GPU at PCI:0000:14:00: {uuid(0)}",
    "NVRM: GPU Board Serial Number: 1652500000000",
    line(95, "pid=7062, Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No"),
]


@pytest.mark.parametrize(
    ("after", "left"),
    [
        ([], True),
        # It requested a reset, which nvidia-smi no longer shows.
        ([line(154, ASKED)], False),
        ([line(154, ASKED.replace("0x1 (GPU Reset", "0x2 (Node Reboot"))], True),
        ([line(154, "GPU recovery action changed from 0x3 (Drain P2P) to 0x0 (None)")], False),
        # Initialised again: the same line each time; or the whole driver.
        ([BEFORE[0]], False),
        ([BEFORE[0], line(64, "Row Remapper")], True),
        (["NVRM: GPU at PCI:0000:32:00: GPU-b3000000-0000-4000-8000-000000000001"], True),
        (["NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release"], False),
        # NVSentinel's job: NVIDIA/NVSentinel pull 1240.
        ([f"GPU reset executed: {uuid(0)}, success: true"], False),
        ([f"GPU reset executed: {uuid(0)}, success: false"], True),
        ([f"GPU reset executed: {uuid(1)}, success: true"], True),
        (["GPU reset executed: all, success: true"], False),
        (["GPU reset executed: all, success: false"], True),
        (["GPU reset executed: allocation"], True),
    ],
)
def test_successful_reset_clears_errors(after: list[str], left: bool) -> None:
    changed = state("healthy")
    changed.kernel_log += [*BEFORE, *after]
    assert [check.name for check in findings(verdict(changed))] == ["gpu_xid"] * left
    assert xid_check(verdict(changed)).status == (FAILED if left else "ok")


def test_journal_query() -> None:
    """Any user may write to the journal with any tag."""
    asked_for: list[tuple[str, ...]] = []

    def run(argv: Any, **_more: Any) -> Result:
        asked_for.append(tuple(argv))
        return Result((), 0, json.dumps({"MESSAGE": "x"}), "")

    assert reading.read_xids(run, Path("/")) == ([], "")
    [argv] = asked_for
    terms = argv[argv.index("_TRANSPORT=kernel") :]
    assert terms == ("_TRANSPORT=kernel", "+", "SYSLOG_IDENTIFIER=nvsentinel-gpu-reset", "_UID=0")
