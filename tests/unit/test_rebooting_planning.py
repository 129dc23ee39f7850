# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Who is rebooted, in which batch, and who is left: the algebra, and each refusal."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.reboot import (
    planning,
    table,
)
from hypothesis import given
from hypothesis import strategies as st

TOP = Path(__file__).resolve().parents[2]
BOOT, EARLIER = "boot-now", "boot-earlier"
CONTROLLER = planning.Controller("boot-controller", "id-controller", "deploy.example")
ROLES = {"os": "r.os_baseline", "rails": "r.roce_rails"}
NOW = 1_000_000.0


def reason(boot_id: str = BOOT, text: str = "iommu=pt") -> dict[str, str]:
    return {"subject": "x", "wanted": "1", "running": "0", "reason": text, "boot_id": boot_id}


def host(**changed: object) -> dict:
    return {
        "boot_id": BOOT,
        "machine_id": "id-1",
        "host_name": "node01",
        "reasons": {"os": [reason()]},
        "boots": [NOW - 90_000],
        "now": NOW,
        "processes": [],
        "slurm": None,
        "problems": [],
        **changed,
    }


def judge(group: str = "compute", settings=None, **changed: object):
    return planning.judge(
        "node01",
        group,
        host(**changed),
        settings or planning.Settings(),
        CONTROLLER,
        ROLES,
    )


def left(verdict) -> str:
    assert isinstance(verdict, planning.Left), verdict
    return verdict.why


# The plan


GROUPS = st.sampled_from(planning.GROUPS)
WHATS = st.sampled_from([planning.REBOOT, planning.VERIFY])
BATCH = st.one_of(st.integers(1, 12), st.integers(1, 100).map(lambda share: f"{share}%"))


@given(st.lists(st.tuples(GROUPS, WHATS), max_size=40), BATCH)
def test_every_host_has_one_turn_and_no_batch_mixes(hosts, size):
    turns = [
        planning.Turn(f"host{number}", group, what, ("os",), ("os",), ("os: x",))
        for number, (group, what) in enumerate(hosts)
    ]
    plan = planning.plan([(turn.name, turn) for turn in turns], planning.Settings(batch=size))
    batches = [[planning.Turn(**each) for each in batch["turns"]] for batch in plan["batches"]]
    names = [turn.name for batch in batches for turn in batch]
    assert sorted(names) == sorted(turn.name for turn in turns)

    rebooting = [batch for batch in batches if batch[0].what == planning.REBOOT]
    order = [planning.GROUPS.index(batch[0].group) for batch in rebooting]
    assert order == sorted(order), "compute, then launchers, then storage"
    compute = sum(turn.group == "compute" and turn.what == planning.REBOOT for turn in turns)
    for batch in rebooting:
        assert {turn.what for turn in batch} == {planning.REBOOT}
        groups = {turn.group for turn in batch}
        assert len(groups) == 1
        most = planning.batch_size(size, compute) if groups == {"compute"} else 1
        assert 1 <= len(batch) <= most
    for batch in batches[1:]:
        assert batch[0].what == planning.REBOOT, "those that have rebooted are verified first"


@pytest.mark.parametrize("wanted", [0, -1, "0%", "101%", "many", "", "1.5", "25%%"])
def test_a_size_without_meaning_is_refused(wanted):
    with pytest.raises(planning.SettingError, match="cluster_reboot_batch is"):
        planning.batch_size(wanted, 1)


# Each host


def test_only_a_host_with_a_reason_has_a_turn():
    assert judge(reasons={}) is None
    turn = judge()
    assert turn.what == planning.REBOOT and turn.why == ("os: iommu=pt",)
    assert (turn.layers, turn.boot_id) == (("os",), BOOT)


def test_a_record_of_part_of_a_layer_is_verified_by_the_layer():
    turn = judge(reasons={"rails-firmware": [reason()], "rails": [reason()]})
    assert turn.layers == ("rails",) and turn.records == ("rails", "rails-firmware")


def test_a_record_of_nobody_is_left():
    assert "verifies the layer of gpu" in left(judge(reasons={"gpu": [reason()]}))


def test_what_has_seen_its_reboot_is_verified_and_not_rebooted():
    assert judge(reasons={"os": [reason(EARLIER)]}).what == planning.VERIFY
    both = {"os": [reason(EARLIER), reason(BOOT)]}
    assert judge(reasons=both).what == planning.REBOOT
    # Whatever would keep it from a reboot is no reason not to look.
    assert judge(reasons={"os": [reason(EARLIER)]}, boots=[0, NOW]).what == planning.VERIFY


def test_a_host_that_we_drained_and_left_is_given_back():
    node = {"name": "node01", "state": "IDLE+DRAIN", "reason": "", "ours": True, "busy": False}
    turn = judge(reasons={}, slurm=node)
    assert turn.what == planning.VERIFY and turn.layers == ()


@pytest.mark.parametrize(
    "same",
    [
        {"boot_id": CONTROLLER.boot_id, "reasons": {"os": [reason(CONTROLLER.boot_id)]}},
        {"machine_id": "id-controller", "host_name": "DEPLOY"},
        {"local": True},
    ],
)
def test_the_machine_that_runs_ansible_is_left(same):
    verdict = judge(**same)
    assert "runs Ansible" in left(verdict) and verdict.policy


def test_machines_of_one_image_are_not_taken_for_the_controller():
    assert judge(machine_id="id-controller").what == planning.REBOOT
    assert judge(host_name="deploy").what == planning.REBOOT


def test_storage_is_left_unless_it_is_wanted_last():
    assert "never" in left(judge("storage"))
    assert judge("storage", settings=planning.Settings(storage="last")).what == planning.REBOOT


def test_jobs_keep_a_host_unless_they_are_waited_for():
    process = {"pid": 7, "user": "ann", "command": "orted -mca x"}
    waits = planning.Settings(wait_s=60)
    assert left(judge(processes=[process])) == "MPI runs on it: orted -mca x (pid 7, user ann)"
    assert judge(processes=[process], settings=waits).what == planning.REBOOT
    node = {"name": "n", "state": "MIXED", "reason": "", "ours": False, "busy": True}
    assert "MIXED" in left(judge(slurm=node))
    assert judge(slurm=node, settings=waits).what == planning.REBOOT


def test_a_host_that_is_lost_or_cannot_say_is_left():
    lost = planning.judge(
        "n", "compute", {"lost": "timed out"}, planning.Settings(), CONTROLLER, ROLES
    )
    assert left(lost) == "it was not reached: timed out"
    unread = "/x/os.json: not a record of reasons to reboot (x); remove it"
    assert left(judge(reasons={}, problems=[unread])) == unread
    assert "scontrol" in left(judge(problems=["scontrol show node: no answer"]))
    assert judge(reasons={}, problems=["scontrol show node: no answer"]) is None


# What came of it


def planned(*batches: list[str]) -> dict:
    def turn(name: str) -> dict:
        return {"name": name, "layers": ["os"], "why": ["os: x"]}

    made = [{"what": "reboot", "turns": [turn(name) for name in names]} for names in batches]
    left = {"name": "z", "why": "it is busy", "reasons": ["os: x"], "policy": False}
    return {"batches": made, "left": [left], "nothing": []}


def came(**statuses: str) -> dict:
    return {name: {"status": status, "text": status} for name, status in statuses.items()}


def test_after_a_failure_the_rest_is_named_as_not_rebooted():
    plan = planned(["a", "b"], ["c"], ["d"])
    found = table.outcomes(plan, came(a=table.VERIFIED, b=table.FAILED), check_mode=False)
    assert {name: row["status"] for name, row in found.items()} == {
        "a": table.VERIFIED,
        "b": table.FAILED,
        "c": table.WAITING,
        "d": table.WAITING,
        "z": table.LEFT,
    }
    assert found["d"]["text"] == "not rebooted: batch 1 did not come back right (b)"


def test_the_table_has_a_row_for_each():
    found = table.outcomes(planned(["a"]), {}, check_mode=True)
    assert table.lines(found) == [
        "host  reason  batch  seconds  outcome",
        "a     os: x   1      -        would be rebooted",
        "z     os: x   -      -        left: it is busy",
    ]


# Which role verifies what


def test_every_layer_that_records_reasons_is_verified_by_a_role():
    assert planning.VERIFIERS["os"] == "baremetal.mpi_roce.os_baseline"
    for record in ("os", "rdma", "gpu", "rails", "rails-firmware"):
        assert planning.layer_of(record, planning.VERIFIERS) is not None, record
