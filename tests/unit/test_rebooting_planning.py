# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which hosts are rebooted, in which batch, and which are skipped."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.reboot import (
    planning,
    table,
)
from hypothesis import given
from hypothesis import strategies as st

BOOT, EARLIER = "boot-now", "boot-earlier"
CONTROLLER = "boot-controller"
NOW = 1_000_000.0


def reason(boot_id: str = BOOT, text: str = "iommu=pt") -> dict[str, str]:
    return {"subject": "x", "wanted": "1", "running": "0", "reason": text, "boot_id": boot_id}


def host(**changed: object) -> dict:
    return {
        "boot_id": BOOT,
        "reasons": {"os": [reason()]},
        "boots": [NOW - 90_000],
        "now": NOW,
        "processes": [],
        "slurm": None,
        "problems": [],
        **changed,
    }


def decide(group: str = "compute", settings=None, **changed: object):
    return planning.decide(
        "node01", group, host(**changed), settings or planning.RebootSettings(), CONTROLLER
    )


def left(decision) -> str:
    assert isinstance(decision, planning.Left), decision
    return decision.why


# The plan


GROUPS = st.sampled_from(planning.GROUPS)
ACTIONS = st.sampled_from([planning.REBOOT, planning.VERIFY])
BATCH = st.one_of(st.integers(1, 12), st.integers(1, 100).map(lambda share: f"{share}%"))


@given(st.lists(st.tuples(GROUPS, ACTIONS), max_size=40), BATCH)
def test_every_host_has_one_turn(hosts, size):
    turns = [
        planning.Turn(f"host{number}", group, action, ("os",), ("os",), ("os: x",))
        for number, (group, action) in enumerate(hosts)
    ]
    plan = planning.plan([(turn.name, turn) for turn in turns], planning.RebootSettings(batch=size))
    batches = [[planning.Turn(**each) for each in batch["turns"]] for batch in plan["batches"]]
    names = [turn.name for batch in batches for turn in batch]
    assert sorted(names) == sorted(turn.name for turn in turns)

    rebooting = [batch for batch in batches if batch[0].action == planning.REBOOT]
    order = [planning.GROUPS.index(batch[0].group) for batch in rebooting]
    assert order == sorted(order), "compute, then launchers, then storage"
    compute = sum(turn.group == "compute" and turn.action == planning.REBOOT for turn in turns)
    for batch in rebooting:
        assert {turn.action for turn in batch} == {planning.REBOOT}
        groups = {turn.group for turn in batch}
        assert len(groups) == 1
        most = planning.batch_size(size, compute) if groups == {"compute"} else 1
        assert 1 <= len(batch) <= most
    for batch in batches[1:]:
        assert batch[0].action == planning.REBOOT, "hosts that have rebooted come first"


@pytest.mark.parametrize("wanted", [0, -1, "0%", "101%", "many", "", "1.5", "25%%"])
def test_an_invalid_batch_size(wanted):
    with pytest.raises(planning.SettingError, match="cluster_reboot_batch"):
        planning.batch_size(wanted, 1)


# Each host


def test_only_a_host_with_a_reason_has_a_turn():
    assert decide(reasons={}) is None
    turn = decide()
    assert turn.action == planning.REBOOT and turn.why == ("os: iommu=pt",)
    assert (turn.layers, turn.boot_id) == (("os",), BOOT)


def test_records_with_a_suffix():
    turn = decide(reasons={"rails-firmware": [reason()], "rails": [reason()]})
    assert turn.layers == ("rails",) and turn.records == ("rails", "rails-firmware")


def test_an_unknown_record_leaves_the_host():
    assert "kernel" in left(decide(reasons={"kernel": [reason()]}))


def test_a_host_that_has_rebooted_is_only_verified():
    assert decide(reasons={"os": [reason(EARLIER)]}).action == planning.VERIFY
    both = {"os": [reason(EARLIER), reason(BOOT)]}
    assert decide(reasons=both).action == planning.REBOOT
    # A guard against reboots does not prevent verification.
    assert decide(reasons={"os": [reason(EARLIER)]}, boots=[0, NOW]).action == planning.VERIFY


def test_a_host_that_we_drained_is_resumed():
    node = {"name": "node01", "state": "IDLE+DRAIN", "reason": "", "ours": True, "busy": False}
    turn = decide(reasons={}, slurm=node)
    assert turn.action == planning.VERIFY and turn.layers == ()


@pytest.mark.parametrize("same", [{"boot_id": CONTROLLER}, {"local": True}])
def test_the_controller_is_left(same):
    reasons = {"os": [reason(same.get("boot_id", BOOT))]}
    decision = decide(**same, reasons=reasons)
    assert "runs Ansible" in left(decision) and decision.policy


def test_storage_is_left_unless_requested():
    assert "never" in left(decide("storage"))
    assert (
        decide("storage", settings=planning.RebootSettings(storage="last")).action
        == planning.REBOOT
    )


def test_a_busy_host_is_left():
    process = {"pid": 7, "user": "ann", "command": "orted -mca x"}
    waits = planning.RebootSettings(wait_s=60)
    busy = decide(processes=[process])
    assert left(busy).endswith("orted -mca x (pid 7, user ann)") and not busy.policy
    assert decide(processes=[process], settings=waits).action == planning.REBOOT
    node = {"name": "n", "state": "MIXED", "reason": "", "ours": False, "busy": True}
    assert "MIXED" in left(decide(slurm=node))
    assert decide(slurm=node, settings=waits).action == planning.REBOOT


@pytest.mark.parametrize(
    ("minutes", "limits", "why"),
    [
        ([600], {}, ["10.0 h", "12 h"]),
        ([90], {}, ["90 min", "12 h"]),
        ([720], {}, []),
        ([30], {"min_hours": 0}, []),
        ([60, 120, 1439], {"min_hours": 0}, ["3 times", "cluster_reboot_max_per_day: 3"]),
        ([60, 120, 1440], {"min_hours": 0}, []),
        ([1, 2, 3], {"min_hours": 0, "max_per_day": 0}, []),
    ],
)
def test_a_host_that_rebooted_too_often_is_left(minutes, limits, why):
    boots = [0, *(NOW - 60 * each for each in minutes)]
    decision = decide(boots=boots, settings=planning.RebootSettings(**limits))
    if not why:
        assert decision.action == planning.REBOOT
    else:
        assert all(words in left(decision) for words in why) and not decision.policy


def test_an_unread_host_is_left():
    settings = planning.RebootSettings()
    lost = planning.decide("n", "compute", {"lost": "timed out"}, settings, CONTROLLER)
    assert left(lost).endswith("timed out")
    unread = "/x/os.json: not a record of reasons (x)"
    assert left(decide(reasons={}, problems=[unread])) == unread
    assert "scontrol" in left(decide(problems=["scontrol: no answer"]))
    assert decide(reasons={}, problems=["scontrol: no answer"]) is None


# Outcomes


def planned(*batches: list[str]) -> dict:
    def turn(name: str) -> dict:
        return {"name": name, "layers": ["os"], "why": ["os: x"]}

    made = [{"action": "reboot", "turns": [turn(name) for name in names]} for names in batches]
    left = {"name": "z", "why": "it is busy", "reasons": ["os: x"], "policy": False}
    return {"batches": made, "left": [left], "nothing": []}


def came(**statuses: str) -> dict:
    return {name: {"status": status, "text": status} for name, status in statuses.items()}


def test_batches_after_a_failure_are_not_rebooted():
    plan = planned(["a", "b"], ["c"], ["d"])
    found = table.outcomes(plan, came(a=table.VERIFIED, b=table.FAILED), check_mode=False)
    assert {name: row["status"] for name, row in found.items()} == {
        "a": table.VERIFIED,
        "b": table.FAILED,
        "c": table.WAITING,
        "d": table.WAITING,
        "z": table.LEFT,
    }
    assert found["d"]["text"].endswith("batch 1 failed (b)")


# Roles that verify


def test_a_role_verifies_every_layer_with_records():
    assert planning.VERIFIERS["os"] == "baremetal.mpi_roce.os_baseline"
    for record in ("os", "rdma", "gpu", "rails", "rails-firmware"):
        assert planning.layer_of(record) is not None, record
