# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The effective configuration: with every default, and as applied to each port."""

from __future__ import annotations

import copy
from typing import Any

from common.state import Faults
from common.switch import Hardware, Port

from . import vendor
from .tree import Tree, merged


class Invalid(Exception):
    """The configuration contradicts itself or the hardware. The text has the path and the
    reason."""

    def __init__(self, location: str, reason: str) -> None:
        super().__init__(reason)
        self.location = location
        self.reason = reason


def able(release: tuple[int, ...], yes: bool) -> str:
    if vendor.says_state(release):
        return "enabled" if yes else "disabled"
    return "enable" if yes else "disable"


def is_able(word: Any) -> bool:
    return word in ("enable", "enabled", "on", True)


def roce(config: Tree) -> Tree:
    """Return the effective RoCE settings; empty if the feature is off."""
    given = config.get("qos", {}).get("roce")
    if given is None:
        return {}
    if not is_able(given.get("enable", given.get("state", "on"))):
        return {}
    return {
        "mode": given.get("mode", "lossless"),
        "cable-length": given.get("cable-length", vendor.REACH["roce"]),
    }


def qos(config: Tree, hardware: Hardware) -> Tree:
    """Return branch `qos` with defaults: the factory's, those of RoCE, then the configuration."""
    tree = vendor.factory_qos()
    settings = roce(config)
    if settings:
        for feature, value in vendor.roce_qos(settings["mode"], settings["cable-length"]).items():
            if feature in ("egress-scheduler", "traffic-pool", "congestion-control"):
                tree[feature] = value
            else:
                tree[feature] = merged(tree.get(feature, {}), value)
    for feature, value in config.get("qos", {}).items():
        if feature in LISTS:
            tree[feature] = _over(feature, tree.get(feature, {}), value, hardware.overlays)
        elif isinstance(value, dict):
            tree[feature] = merged(tree.get(feature, {}), value)
    tree["pfc-watchdog"] = merged(
        {"polling-interval": 100, "robustness": 3}, config.get("qos", {}).get("pfc-watchdog", {})
    )
    return _spelt(tree, vendor.version(hardware))


LISTS = {
    "congestion-control": "traffic-class",
    "egress-scheduler": "traffic-class",
    "pfc": "switch-priority",
    "traffic-pool": "switch-priority",
    "mapping": "",
}
"""Features with profiles. A configured list replaces the list of the factory or of RoCE, as in
the vendor's examples. With overlays queues are added."""
FLOW = {"tx": "enable", "rx": "enable", "cable-length": vendor.REACH["profile"]}


def _over(feature: str, base: Tree, given: Tree, overlays: bool) -> Tree:
    result = copy.deepcopy(base)
    listed = LISTS[feature]
    queues = listed == "traffic-class"
    new = {"pfc": FLOW, "mapping": vendor.factory_qos()["mapping"][vendor.PROFILE]}
    for name, profile in given.items():
        before = result.get(name, new.get(feature, {}))
        if profile.get(listed) and not (queues and overlays):
            before = {key: value for key, value in before.items() if key != listed}
        after = merged(before, profile)
        for queue, value in after.get(listed, {}).items() if queues else ():
            if feature == "congestion-control":
                after[listed][queue] = merged(vendor.marking(), value)
            elif value.setdefault("mode", "dwrr") == "strict":
                value.pop("bw-percent", None)
        result[name] = after
    return result


def _spelt(tree: Tree, release: tuple[int, ...]) -> Tree:
    """The keywords for on and off of this release."""
    words = {"enable": able(release, True), "disable": able(release, False)}

    def spell(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: spell(below) for key, below in value.items()}
        return words.get(value, value) if isinstance(value, str) else value

    result: Tree = spell(tree)
    return result


def check(config: Tree, hardware: Hardware) -> None:
    """Raise Invalid for configurations that pass the schema but that NVUE refuses to apply."""
    whole = qos(config, hardware)
    for name, profile in whole.get("congestion-control", {}).items():
        for queue, value in profile.get("traffic-class", {}).items():
            if value["min-threshold"] > value["max-threshold"]:
                raise Invalid(
                    f"qos.congestion-control.{name}.traffic-class.{queue}",
                    "min-threshold must not be greater than max-threshold",
                )
    for name, profile in whole.get("egress-scheduler", {}).items():
        for queue, value in profile.get("traffic-class", {}).items():
            if value["mode"] == "dwrr" and "bw-percent" not in value:
                raise Invalid(
                    f"qos.egress-scheduler.{name}.traffic-class.{queue}",
                    "bw-percent is required in mode dwrr",
                )
        shares = [entry.get("bw-percent", 0) for entry in profile.get("traffic-class", {}).values()]
        if sum(shares) > 100:
            raise Invalid(
                f"qos.egress-scheduler.{name}",
                f"The combined total of bw-percent is {sum(shares)}, more than 100",
            )
    pools = [entry.get("memory-percent", 0) for entry in whole.get("traffic-pool", {}).values()]
    if sum(pools) > 100:
        raise Invalid("qos.traffic-pool", f"memory-percent sums to {sum(pools)}, more than 100")
    for name, interface in config.get("interface", {}).items():
        _check_interface(name, interface, whole, config, hardware)


def _check_interface(
    name: str, interface: Tree, whole: Tree, config: Tree, hardware: Hardware
) -> None:
    if name.startswith("swp") and hardware.port(name) is None:
        raise Invalid(f"interface.{name}", f"Interface {name} does not exist on this platform")
    settings = interface.get("qos", {})
    for feature, value in settings.items():
        profile = value.get("profile") if isinstance(value, dict) else None
        if profile is not None and profile not in whole.get(feature, {}):
            raise Invalid(
                f"interface.{name}.qos.{feature}.profile", f"Profile {profile} is not configured"
            )
    if "pfc-watchdog" in settings:
        if not name.startswith("swp"):
            raise Invalid(
                f"interface.{name}.qos.pfc-watchdog", "PFC watchdog is only for physical interfaces"
            )
        if is_able(settings["pfc-watchdog"].get("state", "enable")) and not paused(
            name, config, whole
        ):
            raise Invalid(
                f"interface.{name}.qos.pfc-watchdog",
                "PFC watchdog can only be configured on a port with PFC or link pause",
            )


def paused(name: str, config: Tree, whole: Tree) -> bool:
    """Return whether the port has priorities with flow control."""
    own = config.get("interface", {}).get(name, {}).get("qos", {})
    profile = own.get("pfc", {}).get("profile", vendor.PROFILE)
    known = whole.get("pfc", {}).get(profile, {})
    return bool(known.get("switch-priority")) or "link-pause" in own


def filled(config: Tree, hardware: Hardware) -> Tree:
    """Return the configuration with its defaults, as a GET without `filled=false` does."""
    release = vendor.version(hardware)
    tree = copy.deepcopy(config)
    whole = qos(config, hardware)
    given = config.get("qos", {}).get("roce")
    whole["roce"] = _roce_words(release, roce(config), given)
    tree["qos"] = whole
    interfaces = tree.setdefault("interface", {})
    for port in hardware.ports:
        interfaces[port.name] = merged(_port_defaults(), interfaces.get(port.name, {}))
    return tree


def _roce_words(release: tuple[int, ...], settings: Tree, given: Any) -> Tree:
    on = bool(settings)
    if vendor.says_state(release):
        words: Tree = {"state": "enabled" if on else "disabled"}
    else:
        words = {"enable": "on" if on else "off"}
    mode = (given or {}).get("mode", "lossless")
    return {**words, "mode": mode, **({"cable-length": settings["cable-length"]} if on else {})}


def _port_defaults() -> Tree:
    return {
        "type": "swp",
        "link": {
            "auto-negotiate": "on",
            "duplex": "full",
            "fec": "auto",
            "mtu": vendor.LARGEST_MTU,
            "speed": "auto",
            "state": {"up": {}},
        },
    }


def operational(config: Tree, hardware: Hardware, faults: Faults) -> Tree:
    """Return the operational state: the applied configuration, links, neighbours and rounded
    values."""
    tree = filled(config, hardware)
    heard = hardware.neighbours(faults)
    whole = qos(config, hardware)
    for port in hardware.ports:
        interface = tree["interface"][port.name]
        link = interface["link"]
        wanted_up = "down" not in _wanted_state(config, port.name)
        up = port.name in heard and wanted_up
        link["state"] = {"up" if up else "down": {}}
        link["admin-status"] = "up" if wanted_up else "down"
        link["oper-status"] = "up" if up else "down"
        link.pop("speed", None)
        if up:
            link["speed"] = _speed(port)
            name = heard[port.name].system or heard[port.name].port
            interface["lldp"] = {
                "neighbor": {
                    name: {
                        "chassis": {
                            "chassis-id": heard[port.name].port if heard[port.name].is_mac else "",
                            "system-name": heard[port.name].system,
                        },
                        "port": {
                            "name": heard[port.name].port,
                            "type": "mac" if heard[port.name].is_mac else "ifname",
                            "ttl": 120,
                        },
                    }
                }
            }
        interface["qos"] = port_qos(port.name, config, whole, hardware)
    release = f"{hardware.release or vendor.NEWEST}.0"
    tree["system"] = {
        "hostname": config.get("system", {}).get("hostname", hardware.name),
        "build": f"Cumulus Linux {release} (simulation)",
        "product-release": release,
    }
    return tree


def _wanted_state(config: Tree, name: str) -> Tree:
    state: Tree = config.get("interface", {}).get(name, {}).get("link", {}).get("state", {})
    return state


def port_qos(name: str, config: Tree, whole: Tree, hardware: Hardware) -> Tree:
    """Return the operational state of one port, thresholds rounded as in the ASIC. `whole`:
    branch `qos`."""
    own = config.get("interface", {}).get(name, {}).get("qos", {})
    profile = own.get("congestion-control", {}).get("profile", vendor.PROFILE)
    marking = copy.deepcopy(whole["congestion-control"].get(profile, {}))
    result: Tree = {"congestion-control": {"profile": profile, **marking}}
    for queue in result.get("congestion-control", {}).get("traffic-class", {}).values():
        for threshold in ("min-threshold", "max-threshold"):
            queue[threshold] = vendor.in_steps(queue[threshold], hardware.asic)
    watched = "pfc-watchdog" in own and is_able(own["pfc-watchdog"].get("state", "enable"))
    # Every release uses this spelling: 5.15 renamed other keys.
    result["pfc-watchdog"] = {"state": "enable" if watched else "disable"}
    return result


def _speed(port: Port) -> str:
    return "1.6T" if port.speed_gbps == 1600 else f"{port.speed_gbps}G"
