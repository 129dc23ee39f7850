# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Switches of a fabric with BGP report the traffic and routes of the kernel, and FRR's sessions."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.bed.simulators.parts import hardware

traffic: Any = importlib.import_module("common.traffic")
nvue: Any = importlib.import_module("nvue.routing")
eos: Any = importlib.import_module("eos.routing")

PORT = {"name": "Ethernet1/1", "speed_gbps": 800, "peer": "leaf01", "peer_interface": "swp1"}
CARRYING = {**PORT, "device": "Ethernet1-1"}


def link(name: str, *addresses: str, up: bool = True) -> dict[str, Any]:
    counts = {"bytes": 1000, "packets": 10, "errors": 1, "dropped": 2}
    return {
        "ifname": name,
        "mtu": 9978,
        "operstate": "UP" if up else "DOWN",
        "addr_info": [
            {"family": "inet6", "local": "fe80::1", "prefixlen": 64},
            *({"family": "inet", "local": one, "prefixlen": 31} for one in addresses),
        ],
        "stats64": {"rx": counts, "tx": {**counts, "bytes": 2000}},
    }


SAVED = """\
*raw
:PREROUTING ACCEPT [5:100]
[7:9000] -A PREROUTING -i Ethernet1-1 -m statistic --mode random --probability 0.02 -j DROP
[9:9000] -A PREROUTING -i Ethernet1-10 -j DROP
[9:9000] -A PREROUTING -i Ethernet1-1 -j ACCEPT
COMMIT
"""
PEERS = {
    "10.8.0.1": {"remoteAs": 64601, "state": "Established"},
    "10.8.0.3": {"remoteAs": 64602, "state": "Idle (Admin)"},
}


def hop(address: str, device: str, *, fib: bool = True) -> dict[str, Any]:
    return {"ip": address, "interfaceName": device, **({"fib": True} if fib else {})}


ROUTES = {
    "10.7.0.0/24": [
        {"selected": True, "nexthops": [hop("10.8.0.1", "Ethernet1-1"), hop("10.8.0.3", "eth7")]},
        {"nexthops": [hop("10.8.0.5", "eth9")]},
    ],
    "10.7.1.0/24": [{"selected": True, "nexthops": [hop("10.8.0.1", "Ethernet1-1", fib=False)]}],
}


def run(command: Sequence[str]) -> str:
    answers = {
        "ip": [link("lo"), link("Ethernet1-1", "10.8.0.0"), link("leaf01", "10.7.0.1"), link("x")],
        "show bgp summary json": {"ipv4Unicast": {"as": 64600, "peers": PEERS}},
        "show ip route bgp json": ROUTES,
    }
    name = command[-1] if command[0] == "vtysh" else command[0]
    return SAVED if name == "iptables-save" else json.dumps(answers[name])


def of(*ports: dict[str, Any]) -> Any:
    return traffic.Traffic(hardware("eos", [*ports]), run)


def test_ports_have_the_counters_of_their_interfaces_and_what_iptables_drops() -> None:
    port, gateway = of(CARRYING).links()
    assert (port.name, port.is_port, port.addresses) == ("Ethernet1/1", True, ("10.8.0.0/31",))
    assert (port.received["bytes"], port.sent["bytes"]) == (1000, 2000)
    assert port.received["errors"] == 1 + 7
    assert (gateway.name, gateway.is_port) == ("leaf01", False)


def test_routes_are_those_that_the_kernel_has() -> None:
    assert of(CARRYING).routes() == {
        "10.7.0.0/24": [("10.8.0.1", "Ethernet1/1"), ("10.8.0.3", "eth7")]
    }


def test_sessions_have_the_state_of_the_standard() -> None:
    assert [(peer.address, peer.state) for peer in of(CARRYING).peers()] == [
        ("10.8.0.1", "Established"),
        ("10.8.0.3", "Idle"),
    ]


def test_eos_reports_them_in_its_models() -> None:
    shows = eos.shows(of(CARRYING))
    shown = shows["show ip interface"]()["interfaces"]["Ethernet1/1"]
    assert shown["interfaceAddress"]["primaryIp"] == {"address": "10.8.0.0", "maskLen": 31}
    assert shown["lineProtocolStatus"] == "up"
    default = shows["show bgp summary"]()["vrfs"]["default"]
    assert default["asn"] == "64600"
    assert default["peers"]["10.8.0.1"] == {"peerState": "Established", "peerAsn": "64601"}
    vias = shows["show ip route"]()["vrfs"]["default"]["routes"]["10.7.0.0/24"]["vias"]
    assert [via["interface"] for via in vias] == ["Ethernet1/1", "eth7"]
    counters = shows["show interfaces"]()["interfaces"]["Ethernet1/1"]["interfaceCounters"]
    assert (counters["inOctets"], counters["outOctets"], counters["totalInErrors"]) == (
        1000,
        2000,
        8,
    )


def test_nvue_reports_them_in_its_objects() -> None:
    ports = nvue.operational(of(CARRYING), ("interface",))["interface"]
    assert ports["Ethernet1/1"]["ip"] == {"address": {"10.8.0.0/31": {}}}
    assert ports["Ethernet1/1"]["link"]["stats"]["in-errors"] == 8
    assert "mtu" not in ports["Ethernet1/1"]["link"] and ports["leaf01"]["link"]["mtu"] == 9978
    assert (ports["Ethernet1/1"]["type"], ports["leaf01"]["type"]) == ("swp", "svi")
    router = nvue.operational(of(CARRYING), ("vrf",))["vrf"]["default"]["router"]
    assert router["bgp"]["neighbor"]["10.8.0.1"] == {"state": "established", "remote-as": 64601}
    entry = router["rib"]["ipv4"]["route"]["10.7.0.0/24"]["protocol"]["bgp"]["entry-index"]["1"]
    assert [via["interface"] for via in entry["via"].values()] == ["Ethernet1/1", "eth7"]


def test_a_switch_that_no_traffic_passes_reports_none() -> None:
    assert not of(PORT) and of(CARRYING)
    assert eos.shows(of(PORT)) == {}


def test_sonic_has_counters_by_object_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(
        str(traffic.__file__).replace("common/traffic.py", "root/usr/lib/python3/dist-packages")
    )
    swsscommon = importlib.import_module("swsscommon.swsscommon")
    monkeypatch.setattr(swsscommon.switch, "read", lambda _path: hardware("sonic", [CARRYING]))
    monkeypatch.setattr(swsscommon, "Traffic", lambda hardware: traffic.Traffic(hardware, run))
    database = swsscommon.SonicV2Connector(use_unix_socket_path=True)
    database.connect("COUNTERS_DB")
    names = database.get_all("COUNTERS_DB", "COUNTERS_PORT_NAME_MAP")
    assert list(names) == ["Ethernet1/1"]
    counters = database.get_all("COUNTERS_DB", f"COUNTERS:{names['Ethernet1/1']}")
    assert counters["SAI_PORT_STAT_IF_IN_OCTETS"] == "1000"
    assert counters["SAI_PORT_STAT_IF_OUT_OCTETS"] == "2000"
    assert counters["SAI_PORT_STAT_IF_IN_ERRORS"] == "8"
