# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""CONFIG_DB as delivered: the ports, and the vendor's default QoS, which breaks a RoCE contract.

DSCP 26 maps to a lossy class, queue 6 (CNP) is DWRR, PFC is on for 3 and 4, and every cable is 5 m.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from common.switch import Hardware

from .daemons import chassis
from .database import Config, Row
from .platforms import Platform, platform_of

FREE_PORTS = 2
"""Ports that are not in the model."""
MTU = "9100"


def release(hardware: Hardware) -> str:
    """Release, for example `202511`."""
    return hardware.release or "202605"


def version(hardware: Hardware) -> dict[str, str]:
    return {
        "build_version": f"simulation.{release(hardware)}10.1",
        "asic_type": platform_of(hardware.asic).asic_type,
        "release": "simulation",
    }


def config(hardware: Hardware) -> Config:
    ports = _ports(hardware)
    platform = platform_of(hardware.asic)
    return {
        "DEVICE_METADATA": {
            "localhost": {
                "hostname": hardware.name,
                "hwsku": platform.hwsku,
                "platform": platform.name,
                "mac": chassis(hardware.name),
                "type": "LeafRouter",
                "buffer_model": platform.buffer_model,
            }
        },
        "FEATURE": {"lldp": {"state": "enabled"}, "swss": {"state": "enabled"}},
        "LOOPBACK_INTERFACE": {"Loopback0": {}},
        "PORT": ports,
        **qos(list(ports), platform),
        "PFC_WD": {
            "GLOBAL": {"POLL_INTERVAL": "200"},
            **{
                port: {"action": "drop", "detection_time": "200", "restoration_time": "200"}
                for port in list(ports)[: len(hardware.ports)]
            },
        },
    }


def _ports(hardware: Hardware) -> dict[str, Row]:
    names = [port.name for port in hardware.ports]
    speeds = {port.name: port.speed_gbps * 1000 for port in hardware.ports}
    speed = next(iter(speeds.values()), 800000)
    per_lane = 200000 if hardware.asic == "spectrum6" else 100000
    names += _free(names)
    width = _lanes(names)
    order = {number: place for place, number in enumerate(_numbers(names))}
    names.sort(key=lambda name: order.get(_number(name), len(order)))
    return {
        name: {
            "alias": alias(name),
            "index": str(index),
            "lanes": ",".join(
                str(index * 8 + lane)
                for lane in range(max(width, speeds.get(name, speed) // per_lane))
            ),
            "speed": str(speeds.get(name, speed)),
            "mtu": MTU,
            "fec": "rs",
            "admin_status": "up",
        }
        for index, name in enumerate(names, 1)
    }


def alias(name: str) -> str:
    """Front panel name of a port of eight lanes, or of a part of one: etp2, etp2a."""
    found = re.fullmatch(r"Ethernet(\d+)", name)
    if not found:
        return name
    index, lane = divmod(int(found[1]), 8)
    return f"etp{index + 1}{'abcdefgh'[lane] if lane else ''}"


def _number(name: str) -> int:
    found = re.fullmatch(r"Ethernet(\d+)", name)
    return int(found[1]) if found else -1


def _numbers(names: list[str]) -> list[int]:
    return sorted(number for number in map(_number, names) if number >= 0)


def _lanes(names: list[str]) -> int:
    """Return the lanes of a port, derived from the numbers of the ports; at most eight."""
    numbers = _numbers(names)
    return min([8, *(after - before for before, after in zip(numbers, numbers[1:]))])


def _free(names: list[str]) -> Iterable[str]:
    numbers = _numbers(names)
    last = max(numbers, default=-8)
    return [f"Ethernet{last + 8 * index}" for index in range(1, FREE_PORTS + 1)]


def qos(ports: list[str], platform: Platform) -> Config:
    """Return the vendor's default QoS for these ports."""
    mellanox = platform.asic_type == "mellanox"
    lossy = "q_lossy_profile" if mellanox else "egress_lossy_profile"
    same = {str(number): str(number) for number in range(8)}
    classes = dict.fromkeys(map(str, range(64)), "1")
    classes |= {"3": "3", "4": "4", "5": "2", "8": "0", "46": "5", "48": "6"}
    groups = dict.fromkeys(map(str, range(7)), "0") | {"3": "3", "4": "4", "7": "7"}
    threshold: Row = {}
    for colour in ("green", "yellow", "red"):
        threshold |= {
            f"wred_{colour}_enable": "true",
            f"{colour}_min_threshold": "1048576",
            f"{colour}_max_threshold": "2097152",
            f"{colour}_drop_probability": "5",
        }
    port_map = {
        "dscp_to_tc_map": "AZURE",
        "tc_to_queue_map": "AZURE",
        "tc_to_pg_map": "AZURE",
        "pfc_to_queue_map": "AZURE",
        "pfc_enable": "3,4",
        "pfcwd_sw_enable": "3,4",
    }
    tables: Config = {
        "DSCP_TO_TC_MAP": {"AZURE": classes},
        "TC_TO_QUEUE_MAP": {"AZURE": dict(same)},
        "TC_TO_PRIORITY_GROUP_MAP": {"AZURE": groups},
        "MAP_PFC_PRIORITY_TO_QUEUE": {"AZURE": dict(same)},
        "WRED_PROFILE": {"AZURE_LOSSLESS": {"ecn": "ecn_all", **threshold}},
        "SCHEDULER": {
            "scheduler.0": {"type": "DWRR", "weight": "14"},
            "scheduler.1": {"type": "DWRR", "weight": "15"},
        },
        "PORT_QOS_MAP": {
            "global": {"dscp_to_tc_map": "AZURE"},
            **{
                port: {**port_map, "pfc_to_pg_map": "AZURE"} if mellanox else dict(port_map)
                for port in ports
            },
        },
        "QUEUE": {
            f"{port}|{queue}": (
                {"scheduler": "scheduler.1", "wred_profile": "AZURE_LOSSLESS"}
                if queue in (3, 4)
                else {"scheduler": "scheduler.0"}
            )
            for port in ports
            for queue in range(7)
        },
        "CABLE_LENGTH": {"AZURE": dict.fromkeys(ports, "5m")},
        **{
            table: {key: dict(row) for key, row in rows.items()}
            for table, rows in platform.pools.items()
        },
        "BUFFER_PG": {f"{port}|0": {"profile": "ingress_lossy_profile"} for port in ports},
        "BUFFER_QUEUE": {
            f"{port}|{queues}": {"profile": profile}
            for port in ports
            for queues, profile in (
                ("0-2", lossy),
                ("3-4", "egress_lossless_profile"),
                ("5-6", lossy),
            )
        },
    }
    if mellanox:
        tables["PFC_PRIORITY_TO_PRIORITY_GROUP_MAP"] = {"AZURE": {"3": "3", "4": "4"}}
        # The dynamic model computes the sizes and does not write them to CONFIG_DB.
        tables["BUFFER_PG"] |= {f"{port}|3-4": {"profile": "NULL"} for port in ports}
        tables["DEFAULT_LOSSLESS_BUFFER_PARAMETER"] = {"AZURE": {"default_dynamic_th": "0"}}
    return tables
