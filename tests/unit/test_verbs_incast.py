# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Several senders to one rail: the plan, both ends, and their checks."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any, Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.action import rdma_verify as action
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import (
    FAILED,
    NOT_APPLICABLE,
    OK,
    Check,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware import Machine
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware.inventory import (
    Gid,
    RdmaDevice,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.qos import SPECTRUM_X
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.verbs import (
    endpoints,
    ends,
    incast,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.verbs.exchanges import (
    INCAST,
    Half,
    Options,
    VerifyRequest,
)
from ansible_collections.baremetal.mpi_roce.plugins.modules import rdma_verify as module
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils import incast as planning
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos import (
    host_settings,
    read_contract,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.rail_pairs import Part, schedule
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.report import verbs as table
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.verify_run import VerifyRun
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.hostile import spoilt

SETTINGS = host_settings(read_contract({}))
PAUSE = f"rx_prio{SETTINGS.service_level}_pause_duration"

# Planning


def directory(rails: Mapping[str, list[str]], gbps: float = 800) -> list[dict[str, Any]]:
    """Nodes by name, with the leaf of each of their rails."""
    return [
        {
            "name": name,
            "role": "compute",
            "rails": [
                {
                    "interface": f"rail{rail}",
                    "address": f"10.{rail}.0.{number}",
                    "leaf": leaf,
                    "speed_gbps": gbps,
                }
                for rail, leaf in enumerate(leaves)
            ],
        }
        for number, (name, leaves) in enumerate(rails.items(), 1)
    ]


def planned(
    nodes: list[dict[str, Any]], place: str, senders: int = 4, without: str = ""
) -> dict[str, Part]:
    hosts = [node["name"] for node in nodes if node["name"] != without]
    return planning.parts(nodes, hosts, 18515, place, senders)


def incasts(found: Mapping[str, Part]) -> dict[tuple[str, str], list[str]]:
    """Senders by receiver and rail."""
    by_receiver: dict[tuple[str, str], list[str]] = defaultdict(list)
    for host, part in found.items():
        for half in part.drives:
            by_receiver[host, half.rail].append(half.peer)
    return dict(by_receiver)


SETS = directory({f"n{at}": [f"a{at // 4}", f"b{at // 4}"] for at in range(8)})
"""Two sets of four nodes, with a leaf for each of two rails."""


def test_senders_are_on_the_leaf_of_the_receiver() -> None:
    found = planned(SETS, "leaf", 2)
    assert incasts(found) == {
        ("n0", "rail0"): ["n1", "n2"],
        ("n4", "rail0"): ["n5", "n6"],
        ("n1", "rail1"): ["n0", "n2"],
        ("n5", "rail1"): ["n4", "n6"],
    }
    assert {half.fair for part in found.values() for half in part.drives} == {0.5}


def test_senders_are_on_other_leaves() -> None:
    found = incasts(planned(SETS, "spine", 3))
    assert found["n0", "rail0"] == ["n5", "n6", "n7"]
    assert set(found) == {("n0", "rail0"), ("n4", "rail0"), ("n1", "rail1"), ("n5", "rail1")}
    three = directory({f"n{at}": [f"a{at // 3}"] for at in range(9)})
    # One of each leaf in turn; receivers only if no other is free.
    assert incasts(planned(three, "spine", 2))["n0", "rail0"] == ["n4", "n7"]


def test_rails_that_share_a_leaf_have_one_receiver() -> None:
    found = planned(directory({f"n{at}": ["a", "a", "b"] for at in range(4)}), "leaf", 3)
    assert set(incasts(found)) == {("n0", "rail0"), ("n0", "rail1"), ("n1", "rail2")}
    limits = {"at_once": 0, "forks": 8, "exchange_s": 50, "duration_s": 10, "exchanges": 1}
    assert schedule(found, **limits).limit_s == 120 + 2 * 50


@pytest.mark.parametrize(
    ("nodes", "place", "unpaired"),
    [
        (directory({"n0": ["a"], "n1": ["a"]}), "leaf", {"n0": "fewer than 2"}),
        (
            directory({"n0": ["a"], "n1": ["a"], "n2": ["b"]}),
            "spine",
            {"n0": "fewer than 2", "n2": ""},
        ),
        (directory({"n0": ["a"], "n1": ["a"], "n2": ["a"]}), "spine", {"n0": "fewer than 2"}),
        (
            [*directory({"n0": ["a"]}, 800), *directory({"n1": ["a"], "n2": ["a"]}, 400)],
            "leaf",
            {"n0": "not faster"},
        ),
    ],
)
def test_a_leaf_without_enough_senders_has_its_reason(
    nodes: list[dict[str, Any]], place: str, unpaired: dict[str, str]
) -> None:
    found = planned(nodes, place)
    for host, reason in unpaired.items():
        assert reason in found[host].alone.get("rail0", "")
        assert bool(found[host].drives) == (not reason)


@given(
    st.lists(st.lists(st.sampled_from("abc"), max_size=3), min_size=1, max_size=12),
    st.sampled_from(list(planning.PLACES)),
    st.integers(2, 5),
)
def test_every_sender_is_where_it_should_be_and_sends_once(
    leaves: list[list[str]], place: str, senders: int
) -> None:
    nodes = directory({f"n{at}": own for at, own in enumerate(leaves)})
    found = planned(nodes, place, senders, without="n3")
    assert "n3" not in found
    leaf = {
        (node["name"], rail["interface"]): rail["leaf"] for node in nodes for rail in node["rails"]
    }
    for (receiver, rail), peers in incasts(found).items():
        assert 2 <= len(peers) <= senders and receiver not in peers
        near = [leaf[peer, rail] == leaf[receiver, rail] for peer in peers]
        assert all(near) if place == "leaf" else not any(near)
    for host, part in found.items():
        assert max(Counter(half.rail for half in part.serves).values(), default=1) == 1
        ports = [half.port for half in part.serves]
        assert len(ports) == len(set(ports))
        for half in part.serves:
            (there,) = [
                other
                for other in found[half.peer].drives
                if (other.rail, other.peer) == (half.rail, host)
            ]
            assert there == replace(
                half, address=half.peer_address, peer=host, peer_address=half.address
            )
    # Each leaf of a rail has an incast, or a reason.
    reasons = {(host, rail) for host, part in found.items() for rail in part.alone}
    tried = Counter((leaf[key], key[1]) for key in (*incasts(found), *reasons))
    assert set(tried.values()) <= {1}
    assert set(tried) == {(name, key[1]) for key, name in leaf.items() if key[0] != "n3"}


# Receivers


PRINTED = """\
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      {iterations}          0.00               {gbits}              0.380
"""
GIDS = (Gid(3, "::ffff:10.3.0.1", "RoCE v2", "rail3"),)


def machine(kind: str = "rail") -> Machine:
    return Machine(ports=(RdmaDevice(kind, "mlx5_3", 1, "rail3", gids=GIDS),))


def half(number: int) -> Half:
    peer = f"node{number:02d}"
    return Half("rail3", "10.3.0.1", peer, f"10.3.0.{number}", 18515, fair=0.5)


REQUEST = VerifyRequest(
    "run",
    "node01",
    SETTINGS,
    drives=(half(2), half(3)),
    exchanges=(INCAST,),
    incast="leaf",
    options=Options(duration_s=10),
    speeds_gbps={"rail3": 800.0},
    health={"new_errors": 0},
)


def no_program(argv: Any, **_more: Any) -> Result:
    return Result(tuple(argv), 0, "--bind_source_ip", "")


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, int]]:
    """Counters at each reading."""
    readings: list[dict[str, int]] = []
    monkeypatch.setattr(endpoints, "counters", lambda _here, _sys: readings.pop(0))
    return readings


def test_all_senders_are_started_simultaneously(counted: list[dict[str, int]]) -> None:
    together, seen = threading.Barrier(2, timeout=30), []

    def client(argv: tuple[str, ...], **_more: Any) -> Result:
        together.wait()
        seen.append(argv)
        return Result(argv, 0, PRINTED.format(iterations=7, gbits=400 - len(seen)), "")

    counted += [{"np_cnp_sent": 1, "rx_packets": 3}, {"np_cnp_sent": 1, "rx_packets": 5}]
    found = incast.drive(REQUEST, machine(), no_program, client)
    assert sorted(pair["exchanges"][INCAST]["gbits_s"] for pair in found) == [398, 399]
    # A counter that proves a notification is kept if it does not grow.
    assert [pair["exchanges"][INCAST]["growth"] for pair in found] == [
        {"np_cnp_sent": 0, "rx_packets": 2},
        {},
    ]
    for argv in seen:
        assert "ib_write_bw" in argv and "--reversed" in argv
        assert argv[argv.index("-D") + 1] == "10"
        assert f"--tclass={SETTINGS.traffic_class}" in argv and argv[-1] in ("10.3.0.2", "10.3.0.3")


def test_a_sender_that_fails_does_not_stop_the_others(counted: list[dict[str, int]]) -> None:
    def client(argv: tuple[str, ...], **_more: Any) -> Result:
        broken = argv[-1] == "10.3.0.3"
        return Result(argv, int(broken), PRINTED.format(iterations=7, gbits=9), "Couldn't connect")

    counted += [{}, {}]
    asked = replace(REQUEST, drives=(half(2), half(3), half(4), half(5)), lost=("node02",))
    found = incast.drive(asked, machine(), no_program, client)
    checks = {(check.subject, check.status) for check in incast.driven(asked, found)}
    assert ("leaf rail3 <- node02", NOT_APPLICABLE) in checks
    assert ("leaf rail3 <- node03", FAILED) in checks
    assert ("leaf rail3 <- node04, node05", OK) in checks


@pytest.mark.parametrize(
    ("changes", "statuses"),
    [
        ({"lost": ("node02",)}, {NOT_APPLICABLE, FAILED}),
        ({"unserved": {"node02": {"rail3": "no RDMA device"}}}, {FAILED}),
        ({"drives": (replace(half(2), rail="rail9"), replace(half(3), rail="rail9"))}, {FAILED}),
    ],
)
def test_without_two_senders_there_is_no_incast(
    changes: dict[str, Any], statuses: set[str]
) -> None:
    asked = replace(REQUEST, **changes)
    found = incast.drive(asked, machine(), no_program, client=None)  # type: ignore[arg-type]
    checks = incast.driven(asked, found)
    assert {check.status for check in checks} == statuses
    assert {check.name for check in checks} == {INCAST}


SOUND = {
    "np_ecn_marked_roce_packets": 900,
    "np_cnp_sent": 40,
    incast.STORM: 0,
    "rx_prio3_packets": 10**6,
}


def received(
    growth: Mapping[str, int], *, software: bool = False, request: VerifyRequest = REQUEST
) -> dict[str, Check]:
    pairs = [
        {
            "host": "node01",
            "rail": "rail3",
            "peer": peer,
            "device": "mlx5_3",
            "software": software,
            "line_rate_gbits_s": 800.0,
            "exchanges": {INCAST: {"gbits_s": 390.0, "growth": growth if at else {}}},
        }
        for at, peer in enumerate(("node02", "node03"))
    ]
    return {check.name: check for check in incast.driven(request, pairs)}


def test_a_sound_receiver_marks_and_loses_nothing() -> None:
    checks = received(SOUND)
    assert {check.status for check in checks.values()} == {OK}
    assert set(checks) == {
        INCAST, "rail_retries", "rail_losses", "rail_congestion", "incast_pauses"
    }  # fmt: skip
    assert checks[INCAST].found == "780 Gb/s, from 390 Gb/s to 390 Gb/s each"


@pytest.mark.parametrize(
    ("growth", "name", "status"),
    [
        ({"np_ecn_marked_roce_packets": 0}, "rail_congestion", FAILED),
        ({"np_cnp_sent": 0}, "rail_congestion", FAILED),
        ({"np_ecn_marked_roce_packets": None}, "rail_congestion", NOT_APPLICABLE),
        ({"out_of_sequence": 1}, "rail_retries", FAILED),
        ({"rx_discards_phy": 1}, "rail_losses", FAILED),
        ({"rx_prio3_buf_discard": 1}, "rail_losses", FAILED),
        ({"tx_pause_storm_error_events": 1}, "rail_losses", FAILED),
        ({"rx_global_pause": 1}, "rail_losses", FAILED),
        ({incast.STORM: 1}, "incast_pauses", FAILED),
        ({incast.STORM: None}, "incast_pauses", NOT_APPLICABLE),
    ],
)
def test_what_a_receiver_must_not_count(
    growth: dict[str, Optional[int]], name: str, status: str
) -> None:
    changed = {key: count for key, count in {**SOUND, **growth}.items() if count is not None}
    checks = received(changed)
    others = {check.status for key, check in checks.items() if key != name}
    assert (checks[name].status, others) == (status, {OK})


def test_a_switch_that_does_not_mark_is_the_cause() -> None:
    silent = {**SOUND, "np_ecn_marked_roce_packets": 0, "np_cnp_sent": 0}
    assert "port_ecn" in received(silent)["rail_congestion"].reason


def test_what_depends_on_the_contract_and_the_nic() -> None:
    (check,) = received({}, software=True).values()
    assert (check.name, check.status) == (INCAST, NOT_APPLICABLE)
    adaptive = replace(REQUEST, settings=replace(SETTINGS, fabric_mode=SPECTRUM_X))
    assert received(SOUND, request=adaptive)["rail_congestion"].status == NOT_APPLICABLE
    lossy = replace(REQUEST, settings=replace(SETTINGS, pfc_priorities=()))
    assert received({**SOUND, "out_of_sequence": 9}, request=lossy)["rail_retries"].status == (
        NOT_APPLICABLE
    )


def test_a_sender_that_is_starved_fails() -> None:
    pair = {"rail": "rail3", "peer": "node02", "exchanges": {INCAST: {"gbits_s": None}}}
    (check,) = incast.driven(REQUEST, [pair])
    assert (check.name, check.status) == (INCAST, FAILED)


# Senders


def sent(growth: Mapping[str, int], **changes: Any) -> dict[str, Check]:
    asked = replace(REQUEST, drives=(), serves=(half(9),), **changes)
    health = asdict(Check("rail_health", {}, {}, OK, "rail3"))
    outcome = {"rc": 0, "log": "", "wire": None}
    seen = {"exchanges": {INCAST: outcome}, "growth": growth, "health": health}
    return {check.name: check for check in incast.served(asked, {"rail3": seen})}


def test_senders_serve_one_port_of_each_rail() -> None:
    asked = replace(REQUEST, drives=(), serves=(half(9),))
    found, problems = ends.endpoints_of(asked, machine())
    plan = ends.plan_of(asked, found, problems, machine(), no_program)
    ((server,),) = [rail["servers"] for rail in plan["rails"]]
    assert (server["exchange"], server["port"], problems) == (INCAST, 18515, {})
    assert "--reversed" in server["argv"] and "10.3.0.9" not in server["argv"]


@pytest.mark.parametrize("place", ["", "leaf"])
def test_the_module_runs_what_the_plan_has(place: str) -> None:
    part = {"drives": [asdict(half(2))], "serves": [], "run_id": "run", "host": "node01"}
    params = {
        **{name: spec.get("default") for name, spec in module.ARGUMENTS.items()},
        "qos": SETTINGS.as_variable(),
        "exchanges": ["ucx", "write_bw"],
        "part": {**part, "incast": place},
    }
    asked = module.request_of(params)
    assert asked.exchanges == ((INCAST,) if place else ("write_bw", "ucx"))
    assert asked.drives == (half(2),)


GOOD = {"rp_cnp_handled": 40, "rp_cnp_ignored": 0, PAUSE: 1000, "tx_prio3_packets": 10**6}


def test_a_sound_sender_obeys_notifications() -> None:
    checks = sent(GOOD)
    assert {check.status for check in checks.values()} == {OK}
    assert checks["incast_pauses"].found == "0.0%"
    # A check replaces an earlier one of the same name and subject.
    assert {check.subject for check in checks.values()} == {"leaf rail3 -> node09"}


@pytest.mark.parametrize(
    ("growth", "name", "status"),
    [
        ({"rp_cnp_handled": 0}, "rail_congestion", FAILED),
        ({"rp_cnp_handled": 0, "rp_cnp_ignored": 5}, "rail_congestion", FAILED),
        ({"rp_cnp_ignored": 5}, "rail_congestion", OK),
        # Half of the time must be saved, at most half of this by pauses.
        ({PAUSE: 2_500_000}, "incast_pauses", OK),
        ({PAUSE: 2_500_001}, "incast_pauses", FAILED),
        ({PAUSE: None}, "incast_pauses", NOT_APPLICABLE),
        ({"packet_seq_err": 1}, "rail_retries", FAILED),
        ({"tx_discards_phy": 1}, "rail_losses", FAILED),
    ],
)
def test_what_a_sender_must_not_count(
    growth: dict[str, Optional[int]], name: str, status: str
) -> None:
    changed = {key: count for key, count in {**GOOD, **growth}.items() if count is not None}
    assert sent(changed)[name].status == status


def test_pauses_are_not_evaluated_without_pfc() -> None:
    lossy = replace(SETTINGS, pfc_priorities=())
    assert sent(GOOD, settings=lossy)["incast_pauses"].status == NOT_APPLICABLE


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        ({"rc": None, "log": ""}, NOT_APPLICABLE),
        ({"rc": 1, "log": "Couldn't create QP"}, FAILED),
        ({"rc": 0, "log": ""}, NOT_APPLICABLE),
    ],
)
def test_servers_that_did_not_send(outcome: dict[str, Any], status: str) -> None:
    """The last one is Soft-RoCE, which has no health."""
    asked = replace(REQUEST, drives=(), serves=(half(9),))
    seen = {"rail3": {"exchanges": {INCAST: outcome}}, "rail7": {"exchanges": {}}}
    (check,) = incast.served(asked, seen)
    assert (check.name, check.status) == (INCAST, status)


# The action, and the table


PAIR = {
    "rail": "rail0",
    "host": "n0",
    "peer": "n1",
    "line_rate_gbits_s": 800.0,
    "exchanges": {
        INCAST: {"gbits_s": 390.0, "growth": {"np_cnp_sent": 7, "np_ecn_marked_roce_packets": 9}}
    },
}


@given(spoilt(PAIR))
def test_malformed_figures_fail_only_their_sender(reported: Any) -> None:
    parts = {name: part.as_dict() for name, part in planned(SETS, "leaf", 2).items()}
    hostvars = {"n0": {"driven": {"figures": {"pairs": [reported]}}}}
    run = VerifyRun({"incast": "leaf", "parts": parts}, hostvars, driven="driven")
    assert table.incasts(run.pairs("n0"), "")


def test_the_table_has_a_row_for_each_receiver() -> None:
    slow = {**PAIR, "peer": "n2", "exchanges": {INCAST: {"gbits_s": 380.0}}}
    head, headings, row, counted = table.incasts([PAIR, slow], "title")
    assert head.startswith("title: 1 ")
    assert row.split("  ") != headings
    assert row.split()[:4] == ["rail0", "n0", "2", "of"] and "96.2%" in row
    assert row.split()[-2:] == ["9", "7"] and "np_cnp_sent 7" in counted


def test_the_plan_of_an_incast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(action.context, "CLIARGS", {"forks": 8})
    plugin = action.ActionModule.__new__(action.ActionModule)
    given_ = {"directory": SETS, "place": "leaf", "incast_senders": "3", "duration_s": "10"}
    variables = {"ansible_play_batch": [node["name"] for node in SETS]}
    found = plugin._pairs(given_, variables)
    assert (found["incast"], found["coverage"]) == ("leaf", {})
    assert len(found["parts"]["n0"]["drives"]) == 3
    assert found["limit_s"] == 120 + 1 * (40 + 10)
    sent: list[dict[str, Any]] = []

    def execute(_name: str, module_args: dict[str, Any], **_more: Any) -> dict[str, Any]:
        sent.append(module_args)
        return {"checks": []}

    plugin._task = SimpleNamespace(check_mode=False)
    plugin._execute_module = execute
    hosts = {name: {"served": {"ports": [1]}} for name in found["parts"]}
    known = {"inventory_hostname": "n1", "hostvars": hosts, "ansible_play_hosts": list(hosts)}
    plugin._remote("collect", {"plan": found, "served": ["served"]}, known)
    assert sent[0]["part"]["incast"] == "leaf"
