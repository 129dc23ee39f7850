# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Routing and counters as each system reports them."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import sys
from collections.abc import Mapping
from types import ModuleType, SimpleNamespace
from typing import Any, Optional
from urllib.parse import unquote

import httpx
import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric import system
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.counters import PortCounters
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.eos import switch as eos
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.nvue import switch as nvue
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.sonic import state as sonic
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.sonic import switch
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.underlay import (
    BgpSession,
    RoutedInterface,
    Underlay,
    prefix_of,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.hostile import spoilt

LOGIN = system.SwitchLogin("192.0.2.7", user="ops", password="secret", timeout_s=2)
RAIL, OTHER = prefix_of("10.1.2.0/24"), prefix_of("10.1.3.0/24")
assert RAIL is not None and OTHER is not None
ASKED = "interfaces", "sessions", "routes", "hash_fields"


def shown(found: Underlay) -> dict[str, Any]:
    return {name: getattr(found, name) for name in ASKED}


# SONiC: FRR's own JSON (FRR 10.3, `show ... json`), shortened

FRR = {
    "interfaces": {
        "Ethernet0": {
            "mtu": 9216,
            "vrfName": "default",
            "ipAddresses": [{"address": "10.9.0.1/31"}],
        },
        "Vlan101": {"mtu": 1500, "vrfName": "default", "ipAddresses": [{"address": "10.1.1.1/24"}]},
        "eth0": {"mtu": 1500, "vrfName": "mgmt"},
    },
    "sessions": {
        "ipv4Unicast": {
            "as": 65101,
            "peers": {
                "10.9.0.0": {"remoteAs": 65001, "state": "Established", "idType": "ipv4"},
                "Ethernet8": {"remoteAs": 0, "state": "Idle (Admin)", "idType": "interface"},
            },
        }
    },
    "routes": {
        "10.1.2.0/24": [
            {
                "protocol": "bgp",
                "selected": True,
                "nexthops": [
                    {"fib": True, "ip": "10.9.0.0", "interfaceName": "Ethernet0"},
                    {"fib": True, "recursive": True, "interfaceName": "lo"},
                    {"fib": True, "ip": "fe80::1", "interfaceName": "Ethernet8"},
                    {"ip": "10.9.0.4", "interfaceName": "Ethernet16"},
                ],
            },
            {"protocol": "static", "nexthops": [{"interfaceName": "eth0", "active": True}]},
        ],
        "10.1.3.0/24": [{"selected": True, "nexthops": [{"blackhole": True, "fib": True}]}],
    },
    "hash": {"SWITCH_HASH|GLOBAL": {"value": {"ecmp_hash@": "SRC_IP,DST_IP,L4_SRC_PORT"}}},
}
FOUND = {
    "interfaces": {
        "Ethernet0": RoutedInterface(("10.9.0.1/31",), 9216),
        "Vlan101": RoutedInterface(("10.1.1.1/24",), 1500),
        "eth0": RoutedInterface((), 1500, "mgmt"),
    },
    "sessions": [
        BgpSession("10.9.0.0", "established", 65001),
        BgpSession("Ethernet8", "idle (admin)", None),
    ],
    "routes": {RAIL: {"Ethernet0", "Ethernet8"}, OTHER: set()},
    "hash_fields": {"src_ip", "dst_ip", "source port"},
}


def printed(parts: Mapping[str, tuple[int, str]], stderr: str = "") -> system.Completed:
    text = "".join(
        f"{out}\n=== baremetal.mpi_roce {name} {rc}\n" for name, (rc, out) in parts.items()
    )
    return system.Completed(0, text, stderr)


def test_sonic_reports_its_routing_by_one_command_line() -> None:
    asked: list[str] = []

    def run(command: str, timeout_s: int) -> system.Completed:
        asked.append(command)
        return printed({name: (0, json.dumps(answer)) for name, answer in FRR.items()})

    found = switch.underlay(SimpleNamespace(run=run))  # type: ignore[arg-type]
    assert shown(found) == FOUND
    assert found.reasons == {}
    (command,) = asked
    assert [words.split()[1] for words in re.findall(r"'(show [^']+ json)'", command)] == [
        "interface",
        "bgp",
        "ip",
    ]


def test_sonic_without_frr_says_why() -> None:
    parts = dict.fromkeys(("interfaces", "sessions", "routes"), (127, ""))
    found = sonic.read_underlay(printed({**parts, "hash": (0, "{}")}, "sh: vtysh: not found"))
    assert shown(found) == dict.fromkeys(ASKED)
    assert set(found.reasons) == {"underlay_gateway", "underlay_session", "underlay_paths"}
    assert all("status 127: sh: vtysh: not found" in each for each in found.reasons.values())
    assert "no JSON" in sonic.read_underlay(printed({"routes": (0, "%")})).reasons["underlay_paths"]


@given(spoilt(FRR))
def test_sonic_never_fails_for_an_answer(answers: Any) -> None:
    parts = answers if isinstance(answers, dict) else {}
    sonic.read_underlay(printed({str(n): (0, json.dumps(each)) for n, each in parts.items()}))


DATABASE = {
    "COUNTERS_PORT_NAME_MAP": {"Ethernet0": "oid:0x1", "Ethernet8": "oid:0x2"},
    "COUNTERS_QUEUE_NAME_MAP": {"Ethernet0:3": "oid:0x15a", "Ethernet0:4": "oid:0x15b"},
    "COUNTERS:oid:0x1": {
        "SAI_PORT_STAT_IF_IN_OCTETS": str(2**63),
        "SAI_PORT_STAT_IF_OUT_OCTETS": "5000",
        "SAI_PORT_STAT_IF_IN_UCAST_PKTS": "10",
        "SAI_PORT_STAT_IF_IN_NON_UCAST_PKTS": "2",
        "SAI_PORT_STAT_IF_IN_ERRORS": "1",
        "SAI_PORT_STAT_IF_OUT_DISCARDS": "4",
        "SAI_PORT_STAT_PFC_3_RX_PKTS": "7",
        "SAI_PORT_STAT_PFC_3_RX_PAUSE_DURATION_US": "900",
        "SAI_PORT_STAT_IF_IN_FEC_NOT_CORRECTABLE_FRAMES": "N/A",
    },
    "RATES:oid:0x1": {"FEC_PRE_BER": "1.5e-09", "RX_BPS": "1"},
    "COUNTERS:oid:0x15a": {"SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS": "20"},
    "COUNTERS:oid:0x15b": {
        "SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS": "1",
        "PFC_WD_QUEUE_STATS_DEADLOCK_DETECTED": "2",
    },
}


class Connector:
    """SonicV2Connector of sonic-swss-common, whose values are text."""

    def __init__(self, use_unix_socket_path: bool) -> None:
        self.connected = ""

    def connect(self, name: str) -> None:
        self.connected = name

    def get_all(self, name: str, key: str) -> Optional[dict[str, str]]:
        assert name == self.connected == "COUNTERS_DB"
        return DATABASE.get(key)


def run_here(command: str, monkeypatch: pytest.MonkeyPatch) -> system.Completed:
    program, _isolated, _c, snippet, *ports = shlex.split(command)
    assert program == "python3"
    module = ModuleType("swsscommon.swsscommon")
    module.SonicV2Connector = Connector  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "swsscommon", ModuleType("swsscommon"))
    monkeypatch.setitem(sys.modules, "swsscommon.swsscommon", module)
    monkeypatch.setattr(sys, "argv", ["-c", *ports])
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(snippet, {})
    return system.Completed(0, out.getvalue(), "")


def test_sonic_reads_counters_from_its_database(monkeypatch: pytest.MonkeyPatch) -> None:
    command = sonic.counters_command(["Ethernet0", "Ethernet8", "Ethernet16", "$(reboot)"])
    assert "reboot" not in command
    answer = run_here(command, monkeypatch)
    assert "RX_BPS" not in answer.stdout
    found = sonic.read_counters(answer)
    assert found == {
        "Ethernet0": PortCounters(
            rx_bytes=2**63,
            tx_bytes=5000,
            rx_packets=12,
            rx_errors=1,
            tx_discards=4,
            rx_pause={"3": 7},
            rx_pause_us={"3": 900},
            ecn_marked=21,
            pre_fec_ber=1.5e-9,
            watchdog=2,
        ),
        "Ethernet8": PortCounters(),
    }


@pytest.mark.parametrize(
    ("counts", "packets"),
    [(("7", "9" * 5000), 7), (("N/A", ""), None), ((-1, "5"), 5), (("1", "2"), 3)],
)
def test_sonic_adds_what_are_counts(counts: tuple[Any, Any], packets: Optional[int]) -> None:
    names = ("SAI_PORT_STAT_IF_IN_UCAST_PKTS", "SAI_PORT_STAT_IF_IN_NON_UCAST_PKTS")
    text = json.dumps({"Ethernet0": dict(zip(names, counts))})
    found = sonic.read_counters(system.Completed(0, text, ""))
    assert found["Ethernet0"].rx_packets == packets


@pytest.mark.parametrize("answer", [system.Completed(1, "", "no"), system.Completed(0, "%", "")])
def test_sonic_without_counters_is_an_error(answer: system.Completed) -> None:
    with pytest.raises(system.SwitchError, match="COUNTERS_DB"):
        sonic.read_counters(answer)


# NVUE

ENTRY = {"flags": {"installed": {}, "selected": {}}}
NVUE: dict[str, Any] = {
    "interface": {
        "swp51": {"link": {"mtu": 9216}, "ip": {"address": {"10.9.0.1/31": {}}, "vrf": "default"}},
        "vlan101": {
            "link": {"mtu": 1500},
            "ipv4": {"address": {"10.1.1.2/24": {}}, "vrr": {"address": {"10.1.1.1/24": {}}}},
            "ip": {"vrf": "tenant"},
        },
        "swp1-2": {"link": {"mtu": 9216}},
    },
    "vrf/default/router/bgp/neighbor": {
        "swp51": {"state": "established", "remote-as": 65001},
        "10.9.0.2": {"state": "Active", "remote-as": "external"},
    },
    "vrf/default/router/rib/ipv4/route": {
        "10.1.2.0/24": {
            "protocol": {
                "bgp": {
                    "entry-index": {
                        "2": {
                            **ENTRY,
                            "via": {
                                "10.9.0.0": {"interface": "swp51"},
                                "10.8.0.1": {"resolved-via": {"fe80::1": {"interface": "swp52"}}},
                                "swp53": {"type": "interface"},
                            },
                        }
                    }
                },
                "static": {"entry-index": {"1": {"flags": {}, "via": {"swp9": {}}}}},
            }
        },
        "10.1.3.0/24": {"route-entry": {"1": {**ENTRY, "nexthop-group-id": 125}}},
    },
    "router/nexthop/rib": {
        "125": {"depends": {"107": {}, "115": {}}},
        "107": {"via": {"fe80::2": {"interface": "swp52"}}},
        "115": {"via": {"fe80::3": {"interface": "swp51"}}},
    },
    "system/forwarding/ecmp-hash": {"source-ip": "on", "source-port": "on", "gtp-teid": "off"},
}


def nvue_switch(answers: Any, asked: Optional[list[str]] = None) -> nvue.NvueSwitch:
    def handle(request: httpx.Request) -> httpx.Response:
        place = unquote(request.url.path).removeprefix("/nvue_v1/")
        if asked is not None:
            asked.append(place)
        if not isinstance(answers, dict) or place not in answers:
            return httpx.Response(404, json={"detail": "no such object"})
        return httpx.Response(200, json=answers[place])

    return nvue.NvueSwitch(LOGIN, httpx.MockTransport(handle))


def test_nvue_reports_its_routing() -> None:
    asked: list[str] = []
    found = nvue.underlay(nvue_switch(NVUE, asked))
    interfaces = dict(found.interfaces or {})
    assert shown(found) == {
        "interfaces": {
            "swp51": RoutedInterface(("10.9.0.1/31",), 9216),
            "vlan101": RoutedInterface(("10.1.1.2/24", "10.1.1.1/24"), 1500, "tenant"),
            "swp1": interfaces["swp2"],
            "swp2": RoutedInterface((), 9216),
        },
        "sessions": [
            BgpSession("swp51", "established", 65001),
            BgpSession("10.9.0.2", "active", None),
        ],
        "routes": {RAIL: {"swp51", "swp52", "swp53"}, OTHER: {"swp51", "swp52"}},
        "hash_fields": {"source-ip", "source port"},
    }
    assert len(asked) == len(set(asked)) == 5


def test_nvue_without_routing_says_so() -> None:
    found = nvue.underlay(nvue_switch({"interface": NVUE["interface"]}))
    assert (found.sessions, found.routes, found.hash_fields) == (None, None, None)
    assert set(found.reasons) == {"underlay_session", "underlay_paths"}


def test_next_hops_of_another_form_are_unknown_and_not_missing() -> None:
    strange = {"10.1.2.0/24": {"protocol": {"bgp": {"entry-index": {"1": ENTRY}}}}}
    answers = {**NVUE, "vrf/default/router/rib/ipv4/route": strange}
    found = nvue.underlay(nvue_switch(answers))
    assert found.routes is None and "next hop" in found.reasons["underlay_paths"]


def test_nvue_reads_counters() -> None:
    stats = {"in-bytes": 9, "in-pkts": 1, "in-errors": 0, "in-drops": 2, "out-bytes": 8}
    pfc = {"3": {"rx-pause-frames": 5, "tx-pause-frames": 6}, "4": {}}
    qos = {"pfc-stats": pfc, "port-stats": {"tx": {"ecn-marked-packets": 7}}}
    health = {"raw-ber": "2E-9", "effective-errors": 3, "effective-ber": "15E-255"}
    port = {"link": {"stats": stats, "phy": {"health": health}}, "counters": {"qos": qos}}
    found = nvue.counters(nvue_switch({"interface": {"swp51": port, "swp52": {}}}), ["swp51"])
    assert found == {
        "swp51": PortCounters(
            rx_bytes=9,
            tx_bytes=8,
            rx_packets=1,
            rx_errors=0,
            rx_discards=2,
            rx_pause={"3": 5},
            tx_pause={"3": 6},
            ecn_marked=7,
            fec_uncorrected=3,
            pre_fec_ber=2e-9,
        )
    }


@given(spoilt(NVUE))
def test_nvue_never_fails_for_an_answer_but_as_a_switch(answers: Any) -> None:
    with contextlib.suppress(system.SwitchError):
        nvue.underlay(nvue_switch(answers))
    with contextlib.suppress(system.SwitchError):
        nvue.counters(nvue_switch(answers), ["swp51", "vlan101"])


# EOS

NONE = {"address": "0.0.0.0", "maskLen": 0}
ADDRESSES = {"secondaryIpsOrderedList": [], "virtualIp": NONE, "virtualSecondaryIpsOrderedList": []}
COUNTED = {
    "inOctets": 9,
    "inUcastPkts": 1,
    "inMulticastPkts": 2,
    "inDiscards": 0,
    "totalInErrors": 3,
    "outOctets": 8,
    "outDiscards": 4,
}
EOS: dict[str, Any] = {
    "show ip interface": {
        "interfaces": {
            "Ethernet1/1": {
                "mtu": 9214,
                "interfaceAddress": {
                    **ADDRESSES,
                    "primaryIp": {"address": "10.9.0.1", "maskLen": 31},
                },
            },
            "Vlan101": {
                "mtu": 1500,
                "vrf": "tenant",
                "interfaceAddress": {
                    "primaryIp": {"address": "10.1.1.2", "maskLen": 24},
                    "virtualIp": {"address": "10.1.1.1", "maskLen": 24},
                },
            },
        }
    },
    "show bgp summary": {
        "vrfs": {
            "default": {
                "peers": {
                    "10.9.0.0": {"peerState": "Established", "peerAsn": "65001"},
                    "fe80::1%Et2/1": {"peerState": "Idle", "peerAsn": "0.1"},
                }
            }
        }
    },
    "show ip route": {
        "vrfs": {
            "default": {
                "routes": {
                    "10.1.2.0/24": {
                        "hardwareProgrammed": True,
                        "vias": [
                            {"nexthopAddr": "10.9.0.0", "interface": "Ethernet1/1"},
                            {"interface": "Ethernet2/1"},
                        ],
                    },
                    "10.1.3.0/24": {"hardwareProgrammed": False, "vias": []},
                }
            }
        }
    },
    "show interfaces": {
        "interfaces": {"Ethernet1/1": {"interfaceCounters": COUNTED}, "Ethernet2/1": {}}
    },
    "show priority-flow-control counters": {
        "interfaceCounters": {"Ethernet1/1": {"rxFrames": 5, "txFrames": 6}}
    },
    "show qos interfaces ecn counters queue": {
        "intfQueueCounters": {"Ethernet1/1": {"queueCounters": {"0": "-", "3": "7", "4": "1"}}}
    },
    "show interfaces phy detail": {
        "interfacePhyStatuses": {
            "Ethernet1/1": {
                "phyStatuses": [
                    {"description": {"location": "host"}},
                    {
                        "preFecBer": {"value": 2e-9},
                        "fec": {
                            "correctedCodewords": {"value": 30},
                            "uncorrectedCodewords": {"value": 0},
                        },
                    },
                ]
            }
        }
    },
}


def eos_switch(answers: Any, asked: Optional[list[list[str]]] = None) -> eos.EosSwitch:
    def handle(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        if asked is not None:
            asked.append(body["params"]["cmds"][1:])
        results: list[Any] = []
        for number, command in enumerate(body["params"]["cmds"], 1):
            if command != "enable" and (not isinstance(answers, dict) or command not in answers):
                data = [*results, {"errors": [f"Invalid input ({command})"]}]
                error = {"code": 1002, "message": f"CLI command {number} failed", "data": data}
                return httpx.Response(200, json={"id": body["id"], "error": error})
            results.append({} if command == "enable" else answers[command])
        return httpx.Response(200, json={"id": body["id"], "result": results})

    return eos.EosSwitch(LOGIN, httpx.MockTransport(handle))


def test_eos_reports_its_routing() -> None:
    asked: list[list[str]] = []
    found = eos.underlay(eos_switch(EOS, asked))
    assert [len(commands) for commands in asked] == [3]
    assert shown(found) == {
        "interfaces": {
            "Ethernet1/1": RoutedInterface(("10.9.0.1/31",), 9214),
            "Vlan101": RoutedInterface(("10.1.1.2/24", "10.1.1.1/24"), 1500, "tenant"),
        },
        "sessions": [
            BgpSession("10.9.0.0", "established", 65001),
            BgpSession("Ethernet2/1", "idle", None),
        ],
        "routes": {RAIL: {"Ethernet1/1", "Ethernet2/1"}},
        "hash_fields": None,
    }
    assert found.reasons == {}


def test_eos_that_refuses_a_command_says_which() -> None:
    asked: list[list[str]] = []
    found = eos.underlay(eos_switch({"show ip route": EOS["show ip route"]}, asked))
    assert [len(commands) for commands in asked] == [3, 1, 1, 1]
    assert (found.interfaces, found.sessions) == (None, None)
    assert found.routes
    assert {name: reason.split("`")[1] for name, reason in found.reasons.items()} == {
        "underlay_gateway": "show ip interface",
        "underlay_session": "show bgp summary",
    }


def test_eos_reads_counters() -> None:
    found = eos.counters(eos_switch(EOS), ["Ethernet1/1", "Ethernet2/1", "Ethernet3/1"])
    assert found == {
        "Ethernet1/1": PortCounters(
            rx_bytes=9,
            tx_bytes=8,
            rx_packets=3,
            rx_errors=3,
            rx_discards=0,
            tx_discards=4,
            rx_pause={"all": 5},
            tx_pause={"all": 6},
            ecn_marked=8,
            fec_corrected=30,
            fec_uncorrected=0,
            pre_fec_ber=2e-9,
        ),
        "Ethernet2/1": PortCounters(),
    }


@given(spoilt(EOS))
def test_eos_never_fails_for_an_answer_but_as_a_switch(answers: Any) -> None:
    for read in (eos.underlay, lambda one: eos.counters(one, ["Ethernet1/1"])):
        with contextlib.suppress(system.SwitchError):
            read(eos_switch(answers))


@pytest.mark.parametrize(
    ("asn", "found"), [("65001", 65001), ("9" * 5000, None), ("65000.1", None)]
)
def test_eos_numbers_are_bounded(asn: str, found: Optional[int]) -> None:
    peers = {"10.9.0.0": {"peerState": "Established", "peerAsn": asn}}
    answers = {"show bgp summary": {"vrfs": {"default": {"peers": peers}}}}
    (session,) = eos.underlay(eos_switch(answers)).sessions or ()
    assert (session.state, session.asn) == ("established", found)


@given(st.text(max_size=40))
def test_a_network_of_any_form_is_no_network(text: str) -> None:
    found = prefix_of(text)
    assert found is None or 0 <= found[1] <= 32
