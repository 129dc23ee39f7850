# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A simulated host with rails: `ip`, networkd and sysfs, in memory and in a directory.

networkd is simulated as far as the code under test relies on it: `reload` activates files that
changed and touches no other link, `reconfigure` sets up a link from scratch.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.engine import settle
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails import (
    backends,
    converge,
    plan,
    survey,
)

from tests.unit.host import Host

RUNNING = "ActiveState=active\nUnitFileState=enabled\n"


def rail(number, **more):
    """One entry of cluster_rails."""
    return {
        "rail": number,
        "plane": 0,
        "interface": f"rail{number}",
        "pci": None,
        "address": f"10.100.{number}.11",
        "prefix": 24,
        "network": f"10.100.{number}.0/24",
        "gateway": f"10.100.{number}.1",
        "mtu": 9000,
        **more,
    }


class NoNics:
    """NICs without settings."""

    given, with_rdma, diff, rolled_back, in_other_mode, written = None, (), (), (), (), ()
    look = steps = rail_checks = resets = lambda self, *_given, **_more: []

    def settings(self, **_given):
        return {}


class FakeHost(Host):
    """The kernel in `links`, `rules` and `routes`; every command that ran in `commands`."""

    layer = "rails"

    def __init__(self, root: Path, names=("rail0", "rail1", "rail2")) -> None:
        super().__init__(root)
        self.links = {}
        self.routes = []
        self.rules = []
        self.neighbours = []
        self.loaded = {}
        self.service = RUNNING
        self.max_mtu = {}
        self.deaf = set()
        self.silent_gateways = set()
        self.fragments = {}
        """Gateway to the size of the fragments of its reply, or the error of the probe."""
        self.commands = []
        self.touched = []
        self.now = 0.0
        for name in ("mgmt0", *names):
            self.add_link(name)
        self.links["mgmt0"].update(up=True, addresses=["10.10.1.1/22"])

    def add_link(self, name, pci=None):
        self.links[name] = {
            "mtu": 1500,
            "up": False,
            "carrier": True,
            "addresses": [],
            "index": len(self.links) + 1,
        }
        arp = self.root / "proc/sys/net/ipv4/conf" / name
        arp.mkdir(parents=True)
        for key in ("arp_ignore", "arp_announce", "rp_filter"):
            (arp / key).write_text("0\n")
        net = self.root / "sys/class/net" / name
        net.mkdir(parents=True)
        if pci:
            self.add_pci(name, pci)

    def add_pci(self, name, pci):
        device = self.root / "sys/devices/pci0000:00" / pci
        device.mkdir(parents=True, exist_ok=True)
        (self.root / "sys/class/net" / name / "device").symlink_to(device)

    # For the code under test

    def sleep(self, seconds):
        self.now += seconds

    def converge(self, rails, *, check_mode=False, nics=None, **more):
        clock = {"clock": lambda: self.now, "sleep": lambda seconds: self.sleep(seconds)}
        node = replace(self.node(check_mode), **clock)
        part = converge.Rails(
            survey.RailsRequest(plan.plan_rails(rails), **more),
            backends.Networkd(node),
            nics or NoNics(),
            probe=self.largest_fragment,
        )
        outcome = settle([part], node)
        outcome.reconfigured, outcome.rolled_back = part.reconfigured, part.rolled_back
        outcome.removed, outcome.rails = part.survey.removed, part.running()
        return outcome

    def largest_fragment(self, rail):
        answer = self.fragments.get(rail.gateway)
        if isinstance(answer, OSError):
            raise answer
        return answer

    def run(self, argv, *, check=True, stdin=None):
        self.commands.append(tuple(argv))
        words = list(argv)
        if words[0] == "ip" and "-j" in words:
            known = {"neigh": self.neighbours, "rule": self.rules, "route": self.routes}
            answer = next((known[word] for word in words if word in known), self._addresses())
            return self._answer(argv, json.dumps(answer))
        if words[0] == "ip":
            self._ip(words[1:])
        elif words[0] == "networkctl" and words[1] == "reload":
            self._reload()
        elif words[0] == "networkctl" and words[1] == "reconfigure":
            for name in words[2:]:
                self._configure(name)
        elif words[0] == "networkctl":
            return self._answer(argv, self._status(words[words.index("--") + 1 :]))
        elif words[:2] == ["systemctl", "show"]:
            return self._answer(argv, self.service)
        elif words[:2] == ["systemctl", "enable"]:
            self.service = RUNNING
        elif words[0] == "ping":
            return Result(tuple(argv), 1 if words[-1] in self.silent_gateways else 0, "", "")
        elif words[0] != "systemctl":
            raise AssertionError(f"unexpected command: {argv}")
        return self._answer(argv, "")

    @staticmethod
    def _answer(argv, text):
        return Result(tuple(argv), 0, text, "")

    # The kernel

    def _addresses(self):
        return [
            {
                "ifindex": link["index"],
                "ifname": name,
                "flags": ["UP"] * link["up"] + ["LOWER_UP"] * (link["up"] and link["carrier"]),
                "mtu": link["mtu"],
                **({"master": link["master"]} if "master" in link else {}),
                "address": f"02:00:00:00:00:{link['index']:02x}",
                "addr_info": [
                    {"family": "inet", "local": text.split("/")[0], "prefixlen": int(text[-2:])}
                    for text in link["addresses"]
                ],
            }
            for name, link in self.links.items()
        ]

    def _ip(self, words):
        if words[:2] == ["link", "set"]:
            name = words[3]
            if words[4] == "name":
                self.links[words[5]] = self.links.pop(name)
                net = self.root / "sys/class/net"
                (net / name).rename(net / words[5])
                arp = self.root / "proc/sys/net/ipv4/conf"
                (arp / name).rename(arp / words[5])
            else:
                self.links[name]["up"] = False
        elif words[:2] == ["address", "del"]:
            addresses = self.links[words[4]]["addresses"]
            if words[2] in addresses:
                addresses.remove(words[2])
        elif words[:2] == ["neigh", "del"]:
            gone = (words[2], words[4])
            self.neighbours = [x for x in self.neighbours if (x["dst"], x["dev"]) != gone]
        elif words[:2] == ["rule", "del"]:
            self.rules.remove({"priority": int(words[3]), "src": words[5], "table": words[7]})
        elif words[:2] == ["route", "del"]:
            device = words[words.index("dev") + 1] if "dev" in words else None
            kind = "6" if words[2] == "blackhole" else "1"
            gone = (words[2 if kind == "1" else 3], device, kind, words[words.index("table") + 1])
            keys = (("dst", ""), ("dev", None), ("type", "1"), ("table", "254"))
            self.routes = [
                route
                for route in self.routes
                if tuple(route.get(key, none) for key, none in keys) != gone
            ]
        else:
            raise AssertionError(f"unexpected: ip {words}")

    # networkd

    def _files(self):
        paths = sorted(self.root.glob("etc/systemd/network/*.network"))
        found = [(path, path.read_text()) for path in paths]
        return {re.search("^Name=(.*)$", text, re.M)[1]: (path, text) for path, text in found}

    def _reload(self):
        files = self._files()
        for name in {**self.loaded, **files}:
            if self.loaded.get(name) != files.get(name):
                self.loaded[name] = files.get(name)
                if files.get(name) is None:
                    del self.loaded[name]
                elif name in self.links:
                    self._configure(name)

    def _configure(self, name):
        self.touched.append(name)
        if name in self.deaf or name not in self.loaded:
            return
        link = self.links[name]
        text = self.loaded[name][1]
        for route in [route for route in self.routes if route["dev"] == name]:
            self.routes.remove(route)
        own = {address.split("/")[0] for address in link["addresses"]}
        own |= {line[5:] for line in text.splitlines() if line.startswith("From=")}
        self.rules = [rule for rule in self.rules if rule["src"] not in own]
        sections = [section.splitlines() for section in text.split("\n[")]
        for section in sections:
            keys = dict(line.split("=", 1) for line in section[1:] if "=" in line)
            title = section[0].strip("[]")
            if title == "Link":
                wanted = int(keys["MTUBytes"])
                link["mtu"] = wanted if wanted <= self.max_mtu.get(name, 65535) else link["mtu"]
            elif title == "Network":
                link.update(up=True, addresses=[keys["Address"]])
            elif title == "Route":
                route = {"dst": keys["Destination"].replace("0.0.0.0/0", "default"), "dev": name}
                route |= {key.lower(): keys[key] for key in ("Gateway", "Table") if key in keys}
                route |= {"metric": int(keys["Metric"])} if "Metric" in keys else {}
                self.routes.append(route)
            elif title == "RoutingPolicyRule":
                rule = {"priority": int(keys["Priority"]), "src": keys["From"]}
                self.rules.append({**rule, "table": keys["Table"]})

    def _status(self, names):
        text = ""
        for name in names:
            path = self.loaded[name][0] if name in self.loaded else None
            shown = f"/{path.relative_to(self.root)}" if path else "n/a"
            text += f"* {self.links[name]['index']}: {name}\n    Network File: {shown}\n"
            text += f"    State: routable ({'configured' if path else 'unmanaged'})\n\n"
        return text

    # For tests

    def changing_commands(self):
        """Return the commands that change something, in order."""
        reading = ("ping", "systemctl")
        return [
            command
            for command in self.commands
            if command[0] not in reading and "-j" not in command and "status" not in command
        ]

    def snapshot(self, name):
        return json.dumps(
            [self.links[name], [r for r in self.routes if r["dev"] == name]], sort_keys=True
        )

    def forget_commands(self):
        self.commands.clear()
        self.touched.clear()

    def reboot(self):
        """Reset the interfaces and let networkd activate its files."""
        shutil.rmtree(self.root / "run", ignore_errors=True)
        self.routes, self.rules, self.loaded = [], [], {}
        for link in self.links.values():
            link.update(mtu=1500, up=False, addresses=[])
        self._reload()
