# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The simulated SONiC switch rejects, bounces ports, loses settings and fails as SONiC does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.sonic import reading

from tests.bed.simulators.memory import UNUSED, Switch, daemons, database, leaf, show
from tests.bed.simulators.parts import sonic_updater as updater
from tests.bed.simulators.process import PROGRAMS

__all__ = ["leaf"]

APPL, STATE = "APPL_DB", "STATE_DB"


def add(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


def replace(path: str, value: Any) -> dict[str, Any]:
    return {"op": "replace", "path": path, "value": value}


def remove(path: str) -> dict[str, Any]:
    return {"op": "remove", "path": path}


PFC = "/PORT_QOS_MAP/Ethernet0/pfc_enable"
WRED = {"ecn": "ecn_all", "green_min_threshold": "1000", "green_max_threshold": "2000"}


def test_the_factory_left_the_vendors_qos(leaf: Switch) -> None:
    """Each of these is a mistake seen in practice that the contract must repair."""
    config = leaf.config
    assert config["DSCP_TO_TC_MAP"]["AZURE"]["26"] == "1"
    assert config["PORT_QOS_MAP"]["Ethernet0"]["pfc_enable"] == "3,4"
    cnp = config["QUEUE"]["Ethernet0|6"]["scheduler"]
    assert config["SCHEDULER"][cnp]["type"] == "DWRR"
    assert config["CABLE_LENGTH"]["AZURE"]["Ethernet8"] == "5m"
    assert UNUSED in config["PORT"]


def test_a_dry_run_changes_and_logs_nothing(leaf: Switch) -> None:
    before, log = leaf.config, (leaf.folder / "log").read_text()
    assert leaf.patch(replace(PFC, "3"), options=("-d",)) == 0
    assert leaf.patch(replace(PFC, "9"), options=("--dry-run",)) == 2
    assert leaf.config == before
    assert (leaf.folder / "log").read_text() == log


REFUSED = {
    "a buffer pool": ([replace("/BUFFER_POOL/egress_lossy_pool/size", "1")], "BUFFER_POOL table"),
    "the size of a profile": (
        [replace("/BUFFER_PROFILE/q_lossy_profile/size", "1")],
        "BUFFER_PROFILE table",
    ),
    "the global watchdog": ([remove("/PFC_WD/GLOBAL")], "illegal on field: /PFC_WD/GLOBAL"),
    "a table left empty": (
        [remove("/CABLE_LENGTH/AZURE")],
        "empty tables",
    ),
    "a reference to nothing": (
        [replace("/PORT_QOS_MAP/Ethernet0/dscp_to_tc_map", "NOBODYS")],
        "there is no DSCP_TO_TC_MAP NOBODYS",
    ),
    "a number": ([replace("/PORT/Ethernet0/mtu", 9198)], "int is no string"),
    "an unknown field": ([add("/PORT_QOS_MAP/Ethernet0/pfc", "3")], 'Unknown element "pfc"'),
    "an unknown table": ([add("/ROCE", {"a": {"b": "c"}})], "without YANG models"),
    "a DSCP of 64": ([add("/DSCP_TO_TC_MAP/AZURE/64", "3")], "DSCP_TO_TC_MAP|AZURE"),
    "thresholds upside down": (
        [replace("/WRED_PROFILE/AZURE_LOSSLESS/green_max_threshold", "1")],
        "Green max threshold",
    ),
    "a watchdog faster than its polls": (
        [replace("/PFC_WD/Ethernet0/detection_time", "100")],
        "greater than or equal to POLL_INTERVAL",
    ),
    "a missing object": ([remove("/QUEUE/Ethernet0|7")], "non-existent object 'Ethernet0|7'"),
    "an unknown operation": ([{"op": "put", "path": "/PORT"}], "Unknown operation"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_sonic_refuses_is_refused(
    leaf: Switch, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    operations, reason = REFUSED[name]
    before = leaf.config
    assert leaf.patch(*operations) == 2
    error = capsys.readouterr().err
    assert error.startswith("Failed to apply patch due to: ")
    assert reason in error
    assert leaf.config == before
    assert leaf.events("patch") == []


def test_what_its_models_accept_is_accepted(leaf: Switch) -> None:
    """Only the driver prevents these settings from reaching a switch."""
    assert leaf.patch(add("/DSCP_TO_TC_MAP/AZURE/26", "15")) == 0
    assert leaf.patch(add("/BUFFER_PG/Ethernet0|3", {"profile": "ingress_lossy_profile"})) == 0
    assert leaf.patch(replace(PFC, "5")) == 0


@pytest.mark.parametrize("field", ["dynamic_th", "xoff"])
def test_few_fields_of_a_buffer_profile_can_be_replaced(leaf: Switch, field: str) -> None:
    profile = {"pool": "ingress_lossless_pool", "size": "9", "xoff": "1", "dynamic_th": "1"}
    assert leaf.patch(add("/BUFFER_PROFILE/mine", profile)) == 0
    assert leaf.patch(replace(f"/BUFFER_PROFILE/mine/{field}", "2")) == 0
    assert leaf.patch(remove("/BUFFER_PROFILE/mine")) == 0


def test_a_value_under_another_key_is_a_move_and_rejected(leaf: Switch) -> None:
    row = leaf.config["PFC_WD"]["Ethernet8"]
    assert leaf.patch(remove("/PFC_WD/Ethernet8"), add(f"/PFC_WD/{UNUSED}", row)) == 2
    assert leaf.patch(remove("/PFC_WD/Ethernet8")) == 0
    assert leaf.patch(add(f"/PFC_WD/{UNUSED}", row)) == 0


@pytest.mark.parametrize(
    "operation",
    [
        replace(PFC, "3"),
        replace("/QUEUE/Ethernet0|6/scheduler", "scheduler.1"),
        remove("/BUFFER_PG/Ethernet0|0"),
        remove("/BUFFER_QUEUE/Ethernet0|3-4"),
    ],
)
def test_rows_of_a_port_take_it_down_and_up(leaf: Switch, operation: dict[str, Any]) -> None:
    assert leaf.patch(operation) == 0
    assert leaf.events("bounce") == ["bounce port=Ethernet0"]
    assert leaf.config["PORT"]["Ethernet0"]["admin_status"] == "up"


@pytest.mark.parametrize(
    "operation",
    [
        replace("/PORT/Ethernet0/mtu", "9198"),
        replace("/CABLE_LENGTH/AZURE/Ethernet0", "30m"),
        replace("/DSCP_TO_TC_MAP/AZURE/26", "3"),
        replace("/SCHEDULER/scheduler.0/weight", "15"),
        remove("/PFC_WD/Ethernet0"),
    ],
)
def test_other_changes_do_not(leaf: Switch, operation: dict[str, Any]) -> None:
    assert leaf.patch(operation) == 0
    assert leaf.events("bounce") == []


def test_a_port_that_is_down_stays_down(leaf: Switch) -> None:
    assert leaf.patch(replace("/PORT/Ethernet0/admin_status", "down")) == 0
    assert leaf.patch(replace(PFC, "3")) == 0
    assert leaf.events("bounce") == []
    assert leaf.config["PORT"]["Ethernet0"]["admin_status"] == "down"


def oper(leaf: Switch, port: str) -> str:
    leaf.sonic.settle()
    return str(leaf.sonic.store.read(APPL, f"PORT_TABLE:{port}")["oper_status"])


def test_a_link_takes_a_moment(leaf: Switch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemons, "LINK_S", 60.0)
    assert oper(leaf, "Ethernet0") == "up"
    assert leaf.patch(replace(PFC, "3")) == 0
    assert (oper(leaf, "Ethernet0"), oper(leaf, "Ethernet8")) == ("down", "up")
    assert leaf.sonic.store.read(STATE, "PORT_TABLE|Ethernet0")["netdev_oper_status"] == "down"
    assert "LLDP_ENTRY_TABLE:Ethernet0" not in leaf.sonic.store.rows(APPL)
    monkeypatch.setattr(daemons.time, "time", lambda: 1e12)
    assert oper(leaf, "Ethernet0") == "up"
    assert (
        leaf.sonic.store.read(APPL, "LLDP_ENTRY_TABLE:Ethernet0")["lldp_rem_sys_name"] == "node01"
    )


@pytest.mark.parametrize("patches", [1, 2])
def test_one_patch_that_rebinds_and_removes_a_profile_strips_it(leaf: Switch, patches: int) -> None:
    """For a moment the queue marks no packets. Two patches avoid that."""
    rebind = [
        replace(f"/QUEUE/{port}|{queue}/wred_profile", "MINE")
        for port in ("Ethernet0", "Ethernet8", UNUSED, "Ethernet24")
        for queue in (3, 4)
    ]
    gone = [remove("/WRED_PROFILE/AZURE_LOSSLESS")]
    bind = [add("/WRED_PROFILE/MINE", WRED), *rebind]
    for operations in [[*bind, *gone]] if patches == 1 else [bind, gone]:
        assert leaf.patch(*operations) == 0
    event = "stripped object=WRED_PROFILE|AZURE_LOSSLESS bound=yes"
    assert leaf.events("stripped") == ([event] if patches == 1 else [])


def test_checkpoints(leaf: Switch, capsys: pytest.CaptureFixture[str]) -> None:
    before = leaf.config
    assert leaf.run("checkpoint", "before") == 0
    assert leaf.patch(replace(PFC, "3")) == 0
    capsys.readouterr()
    assert leaf.run("list-checkpoints") == 0
    assert json.loads(capsys.readouterr().out) == ["before"]
    assert leaf.run("rollback", "before") == 0
    assert leaf.config == before
    assert leaf.run("delete-checkpoint", "before") == 0
    assert leaf.run("rollback", "before") == 2
    assert "Checkpoint 'before' does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["apply-patch", "apply-patch --now x", "roce", "save"])
def test_wrong_words_are_refused(leaf: Switch, words: str) -> None:
    with pytest.raises(SystemExit) as ended:
        leaf.run(*words.split())
    assert ended.value.code == 2


def state(ports: int, changed: int, objects: str = "", lowered: int = 0) -> dict[str, Any]:
    names = [f"Ethernet{number}" for number in range(ports)]
    down, new = names[:lowered], names[:changed]
    return {
        "PORT": {name: {"admin_status": "down" if name in down else "up"} for name in names},
        "PORT_QOS_MAP": {name: {"pfc_enable": "3" if name in new else ""} for name in names},
        "SCHEDULER": {"mine": {"type": objects}},
    }


QOS = ("PORT_QOS_MAP", "QUEUE", "BUFFER_PG")
UPSTREAM = {
    # sonic-utilities 691b1bbc and 92c565b3, 64 ports, libyang 3: CPU of the sorter on one core.
    "one port": ("202605", (64, 1), (), 13.0, 9),
    "two ports": ("202605", (64, 2), (), 32, 18),
    "three ports": ("202605", (64, 3), (), 74, 27),
    "objects": ("202605", (64, 0, "new"), (), 1.3, 1),
    "all, ignored": ("202605", (64, 64), QOS, 0, 1),
    "all go down": ("202605", (64, 0, "", 64), QOS, 6.4, 1),
    # a092c970, libyang 1: 64 x 5 changes in 161 s without the objects.
    "one port of 202511": ("202511", (64, 1), (), 40, 18),
    "objects of 202511": ("202511", (64, 0, "new"), (), 5.9, 1),
    "all of 202511, ignored": ("202511", (64, 64), QOS, 0, 1),
    "all of 202511 go down": ("202511", (64, 0, "", 64), QOS, 32, 64),
}


@pytest.mark.parametrize("name", UPSTREAM)
def test_a_patch_takes_as_long_as_measured_upstream(name: str) -> None:
    release, after, ignored, sorting_s, changes = UPSTREAM[name]
    found = updater.cost(state(64, 0), state(*after), ignored, release)
    assert found.sorting_s == pytest.approx(sorting_s, rel=0.25, abs=0.7)
    assert found.changes == changes
    # change_applier.py: a sleep of 1 s; before, two runs of sonic-cfggen (buildimage#22370).
    assert found.change_s == (1.0 if release == "202605" else 0.8)


def test_ignored_tables_are_one_unchecked_change(leaf: Switch) -> None:
    """As in NonStrictPatchSorter: no port bounce, and references are not checked."""
    nothing = replace("/PORT_QOS_MAP/Ethernet0/dscp_to_tc_map", "NOBODYS")
    ignoring = ("-i", "/PORT_QOS_MAP", "--ignore-path", "/QUEUE")
    down, up = (replace("/PORT/Ethernet0/admin_status", status) for status in ("down", "up"))
    before = leaf.config
    leaf.run("checkpoint", "before")
    assert leaf.patch(nothing) == 2
    assert leaf.patch(down) == 0
    assert leaf.patch(nothing, options=ignoring) == 0
    assert leaf.events("bounce") == []
    assert leaf.patch(up) == 2
    assert leaf.patch(add("/PFC_WD/Ethernet0/action", "no"), options=ignoring) == 2
    assert leaf.run("rollback", "before", "-i", "/PORT_QOS_MAP") == 0
    assert leaf.config == before


def test_a_dry_run_says_how_many_changes_there_are(
    leaf: Switch, capsys: pytest.CaptureFixture[str]
) -> None:
    mtus = [replace(f"/PORT/Ethernet{port}/mtu", "1500") for port in (0, 8)]
    assert leaf.patch(*mtus, options=("-d",)) == 0
    assert "was converted into 1 changes" in capsys.readouterr().out


@pytest.mark.parametrize("hwsku", ["DellEMC-Z9664f-O64", "M2-W6940-64OC", "ACS-SN5600-MINE"])
def test_a_sku_that_upstream_does_not_list_keeps_its_watchdog(leaf: Switch, hwsku: str) -> None:
    """sonic-utilities 691b1bbc, field_operation_validators.py; so in sonic-utilities#3883."""
    profile = {"pool": "ingress_lossless_pool", "size": "9", "xoff": "1", "dynamic_th": "1"}
    words = ["CONFIG_DB", "HSET", "DEVICE_METADATA|localhost", "hwsku", hwsku]
    assert show.db_cli(words, leaf.sonic) == 0
    assert leaf.patch(remove("/PFC_WD/Ethernet0")) == 2
    assert leaf.patch(add("/BUFFER_PROFILE/mine", profile)) == 0
    assert leaf.patch(replace("/BUFFER_PROFILE/mine/dynamic_th", "2")) == 2


@pytest.mark.parametrize(("words", "limit"), [(["timeout", "7"], "7.0"), ([], "inf")])
def test_the_limit_is_that_of_the_timeout_it_runs_under(words: list[str], limit: str) -> None:
    program = "from sonic import switch; print(switch._limit_s())"
    run = [*words, sys.executable, "-c", program]
    found = subprocess.run(run, cwd=PROGRAMS, check=True, capture_output=True, text=True)
    assert found.stdout.strip() == limit


@pytest.mark.parametrize("options", [("-d",), ()])
def test_a_timeout_while_sorting_changes_nothing(leaf: Switch, options: tuple[str, ...]) -> None:
    before = leaf.config
    both = [replace(f"/PORT_QOS_MAP/Ethernet{port}/pfc_enable", "3") for port in (0, 8)]
    leaf.sonic.limit_s = 30
    with pytest.raises(SystemExit) as ended:
        leaf.patch(*both, options=options)
    assert ended.value.code == 124 and leaf.config == before
    leaf.run("checkpoint", "before")
    for patch in both:
        assert leaf.patch(patch) == 0
    with pytest.raises(SystemExit):
        leaf.run("rollback", "before")
    assert [event.rpartition("=")[2] for event in leaf.events("patch")] == ["22", "22"]


def test_a_timeout_while_applying_leaves_a_partial_change(leaf: Switch) -> None:
    """With the port down: a limit must count the changes as well."""
    leaf.sonic.limit_s = 15
    with pytest.raises(SystemExit) as ended:
        leaf.patch(replace(PFC, "3"))
    assert ended.value.code == 124
    assert leaf.config["PORT"]["Ethernet0"]["admin_status"] == "down"


def test_who_asks_upstream_s_own_question_gets_its_answer(
    leaf: Switch, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver's copy, which imports the module under its name on a switch."""
    packages = PROGRAMS / "root/usr/lib/python3/dist-packages"
    monkeypatch.syspath_prepend(packages)
    monkeypatch.setattr(database, "Store", lambda: leaf.sonic.store)
    words = ["CONFIG_DB", "HSET", "DEVICE_METADATA|localhost", "hwsku", "NH-4010"]
    for listed in (True, False):
        capsys.readouterr()
        exec(reading._MAY_CHANGE, {})
        assert capsys.readouterr().out == f"{listed}\n"
        assert show.db_cli(words, leaf.sonic) == 0


# The traditional buffer model, of ASICs other than Spectrum.


@pytest.fixture
def traditional(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Switch:
    monkeypatch.setattr(daemons, "LINK_S", 0.0)
    return Switch(tmp_path, "tomahawk5")


GENERATED = "pg_lossless_400000_5m_profile"


def test_buffermgrd_binds_profiles_of_its_own(traditional: Switch) -> None:
    config = traditional.config
    assert config["BUFFER_PG"]["Ethernet0|3-4"] == {"profile": GENERATED}
    # sonic-net/sonic-buildimage 086b03bd, Nokia-IXR7220-H5-64D/pg_profile_lookup.ini
    assert config["BUFFER_PROFILE"][GENERATED] == {
        "pool": "ingress_lossless_pool",
        "size": "1248",
        "xon": "2288",
        "xoff": "307848",
        "dynamic_th": "0",
        "xon_offset": "2288",
    }
    assert config["BUFFER_POOL"]["ingress_lossless_pool"]["xoff"] == "29520896"
    assert "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP" not in config


def test_it_binds_again_after_each_change_and_takes_nothing_away(traditional: Switch) -> None:
    assert traditional.patch(replace(PFC, "3")) == 0
    rows = traditional.config["BUFFER_PG"]
    assert rows["Ethernet0|3"] == rows["Ethernet0|3-4"] == {"profile": GENERATED}
    assert traditional.patch(replace("/CABLE_LENGTH/AZURE/Ethernet0", "40m")) == 0
    found = traditional.config["BUFFER_PG"]["Ethernet0|3"]
    assert found == {"profile": "pg_lossless_400000_40m_profile"}


def test_a_cable_that_the_platform_does_not_know_binds_nothing(traditional: Switch) -> None:
    assert traditional.patch(replace("/CABLE_LENGTH/AZURE/Ethernet0", "37m")) == 0
    assert traditional.config["BUFFER_PG"]["Ethernet0|3-4"] == {"profile": GENERATED}
    assert traditional.events("buffermgrd")[-1].endswith("no_profile_for=400000,37m")


def test_a_mellanox_removes_its_profile_from_a_port_that_is_down(leaf: Switch) -> None:
    """sonic-swss e6b0c5b5, cfgmgr/buffermgr.cpp; sonic-buildimage issue 23403."""
    config = leaf.config
    config["DEVICE_METADATA"]["localhost"]["buffer_model"] = "traditional"
    leaf.sonic.saved.write_text(json.dumps(config))
    leaf.reboot()
    row = {"profile": GENERATED}
    assert leaf.config["BUFFER_PG"]["Ethernet0|3-4"] == row
    assert leaf.patch(replace("/PORT/Ethernet0/admin_status", "down")) == 0
    assert "Ethernet0|3-4" not in leaf.config["BUFFER_PG"]
    assert leaf.config["BUFFER_PG"]["Ethernet8|3-4"] == row
    assert leaf.patch(replace("/PORT/Ethernet0/admin_status", "up")) == 0
    assert leaf.config["BUFFER_PG"]["Ethernet0|3-4"] == row


# Faults


def test_apply_rejected(leaf: Switch) -> None:
    leaf.fault(apply="rejected", times=1)
    before = leaf.config
    assert leaf.patch(replace(PFC, "3")) == 2
    assert leaf.config == before
    assert leaf.patch(replace(PFC, "3")) == 0


def test_apply_partial_leaves_what_it_did(leaf: Switch) -> None:
    leaf.fault(apply="partial")
    before = leaf.config
    assert leaf.patch(replace(PFC, "3"), replace("/PORT/Ethernet8/mtu", "9198")) == 2
    assert leaf.config != before
    assert leaf.config["PORT"]["Ethernet0"]["admin_status"] == "down"


def test_apply_cut_goes_on_without_the_network_until_rollback(leaf: Switch) -> None:
    leaf.fault(apply="cut", seconds=7)
    leaf.run("checkpoint", "before")
    assert leaf.patch(replace(PFC, "3")) == 0
    assert leaf.management.cuts == [7.0]
    assert not leaf.management.up
    assert leaf.run("rollback", "before") == 0
    assert leaf.management.up


def test_a_full_disk_takes_no_checkpoint(leaf: Switch, capsys: pytest.CaptureFixture[str]) -> None:
    leaf.fault(apply="disk_full")
    assert leaf.run("checkpoint", "before") == 2
    assert "No space left on device" in capsys.readouterr().err


def test_saving_to_a_full_disk_leaves_a_partial_file(leaf: Switch) -> None:
    leaf.fault(confirm="disk_full")
    assert leaf.run("save", "-y") == 1
    leaf.reboot()
    assert leaf.config == {}


def test_confirm_lost(leaf: Switch) -> None:
    leaf.fault(confirm="lost")
    assert leaf.patch(replace("/PORT/Ethernet0/mtu", "9198")) == 0
    assert leaf.run("save", "-y") == 1
    assert leaf.management.cuts == [30.0]
    leaf.reboot()
    assert leaf.config["PORT"]["Ethernet0"]["mtu"] == "9100"


def read(leaf: Switch, capsys: pytest.CaptureFixture[str]) -> Any:
    capsys.readouterr()
    assert show.cfggen(["-d", "--print-data"], leaf.sonic) == 0
    return json.loads(capsys.readouterr().out)


def test_a_wrong_read_shows_after_a_change_only(
    leaf: Switch, capsys: pytest.CaptureFixture[str]
) -> None:
    leaf.fault(read="wrong")
    leaf.run("checkpoint", "before")
    before = read(leaf, capsys)
    assert before == leaf.config
    assert leaf.patch(replace(PFC, "3")) == 0
    assert read(leaf, capsys) != leaf.config
    assert leaf.run("rollback", "before") == 0
    assert read(leaf, capsys) == before


def test_a_swapped_cable_is_heard(leaf: Switch) -> None:
    leaf.fault(lldp={"Ethernet0": {"system": "node02", "port": "rail7"}})
    leaf.sonic.settle()
    heard = leaf.sonic.store.read(APPL, "LLDP_ENTRY_TABLE:Ethernet0")
    assert (heard["lldp_rem_sys_name"], heard["lldp_rem_port_id"]) == ("node02", "rail7")


def test_a_global_watchdog_comes_from_pfcwd(leaf: Switch) -> None:
    value = leaf.config["PFC_WD"]
    assert leaf.patch(remove("/PFC_WD")) == 0
    assert leaf.patch(add("/PFC_WD", {"GLOBAL": value["GLOBAL"]})) == 2
    assert show.pfcwd(["interval", "200"], leaf.sonic) == 0
    assert leaf.config["PFC_WD"] == {"GLOBAL": {"POLL_INTERVAL": "200"}}
