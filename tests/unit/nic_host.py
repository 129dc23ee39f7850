# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A simulated host with RoCE NICs: `dcb`, `mlxreg`, configfs, sysfs and PCI space have state.

The programs print what the real ones print (iproute2 6.1, MFT), and refuse what mlx5 refuses:
deleting a DSCP entry whose place another one took, and shares that are not 100 %.
"""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from types import SimpleNamespace

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    Result,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.engine import act
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import Node, Plan
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware import RdmaDevice
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic import nics as nics_module
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic.setting import RailNic

from tests.unit.qos_contracts import compiled

PCI = "0000:{:02x}:00.0"


def options():
    """Options of the module for NICs."""
    nothing = {"nic": {}, "firmware_parameters": {}, "remove_vfs_in_use": False}
    return {"qos": compiled(), "firmware": True, **nothing}


def port(interface):
    """DCB of a new ConnectX: nothing trusted, no PFC, all classes strict."""
    return {
        "dcbx": {"host": True, "cee": True, "ieee": True},
        "app": set(),
        "pfc": set(),
        "tsa": ["strict"] * 8,
        "bw": [0] * 8,
        "prio_tc": list(range(8)),
        "cable": 7,
    }


BUFFERS = {
    "prio_buffer": [0, 0, 0, 1, 0, 0, 0, 0],
    "buffer_size": [19872, 220896, 0, 0, 0, 0, 0, 0],
}
"""As `dcb -j buffer show` prints them (pmachata/iproute2 63672e40, dcb/dcb_buffer.c).

The sizes are a guess at a ConnectX-8: those that a site set on its ConnectX-7.
"""


def converge(rails, providers, *, check_mode=False):
    """Settle the settings of these rails."""
    nics = nics_module.Nics(None, None)
    nics.read(rails, providers)
    diff = nics.diff
    if not check_mode:
        node = Node("rails", Path("/"), None, None, "")
        errors = []
        act([Plan(steps=nics.steps())], node, errors)
        assert errors == []
    return SimpleNamespace(
        changed=bool(diff),
        diff=diff,
        checks=nics.checks(check_mode=check_mode),
        settings=nics.settings(check_mode=check_mode),
        rolled_back=nics.rolled_back,
        written=nics.written,
        resets=nics.resets(check_mode=check_mode),
    )


class FakeEthtool:
    def __init__(self):
        self.drivers, self.ring, self.paused = {}, {}, {}
        self.counters = {}
        self.deaf = set()

    def driver(self, interface):
        if interface not in self.drivers:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return self.drivers[interface]

    def statistics(self, interface):
        return dict(self._of(self.counters, interface))

    def rings(self, interface):
        return self._of(self.ring, interface)

    def set_rings(self, interface, wanted):
        if max(wanted.values()) > 8192:
            raise OSError(errno.EINVAL, "Invalid argument")
        self.ring[interface].update(wanted)

    def pause(self, interface):
        return self._of(self.paused, interface)

    def set_pause(self, interface, rx, tx):
        if interface not in self.deaf:
            self.paused[interface] = (rx, tx)

    @staticmethod
    def _of(values, interface):
        if interface not in values:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return values[interface]


class FakeNode:
    """`tools`: installed programs; `doca`: whether the driver is that of DOCA-OFED."""

    def __init__(
        self, root: Path, count=2, *, tools=("dcb",), doca=False, driver="mlx5_core", rdma_cm=True
    ):
        self.root = root
        self.tools = set(tools)
        self.doca = doca
        self.driver = driver
        self.ethtool = FakeEthtool()
        self.ports = {}
        self.objects = {"dcbx", "pfc", "ets", "app", "buffer"}
        """DCB objects of the driver."""
        self.registers = {}
        self.commands = []
        self.broken = {}
        """Words of a failing command to its standard error."""
        self.deaf = set()
        """Words of commands that succeed without effect."""
        self.rails = [self._add(number) for number in range(count)]
        self.has_rdma_cm = rdma_cm
        if rdma_cm:
            self._load_rdma_cm()

    @property
    def physical(self):
        return self.driver == "mlx5_core"

    def _add(self, number):
        name, device, pci = f"rail{number}", f"mlx5_{number}", PCI.format(16 + number)
        self.ports[name] = port(name)
        self.ethtool.drivers[name] = self.driver
        if not self.physical:
            return RailNic(name, name, self.driver, None, RdmaDevice("software", f"rxe{number}"))
        self.ethtool.ring[name], self.ethtool.paused[name] = {"rx": 1024, "tx": 1024}, (True, True)
        self.registers[pci] = {
            "roce_adp_retrans_field_select": 1,
            "selective_repeat_forced_en_field_select": 0,
            "roce_adp_retrans_en": 0,
            "adaptive_routing_forced_en": 0,
            "selective_repeat_forced_en": 0,
        }
        function = self.root / "sys/bus/pci/devices" / pci
        function.mkdir(parents=True)
        (function / "config").write_bytes(config_space(512))
        if self.doca:
            self._add_doca(name, device)
        else:
            self._write(f"sys/kernel/debug/mlx5/{pci}/cc_params/np_cnp_dscp", "0\n")
            self._write(f"sys/kernel/debug/mlx5/{pci}/cc_params/np_cnp_prio", "0\n")
            self._write(f"sys/kernel/debug/mlx5/{pci}/cc_params/rp_ai_rate", "5\n")
        return RailNic(name, name, self.driver, pci, RdmaDevice("rail", device, pci=pci))

    def _add_doca(self, name, device):
        self._write("sys/module/mlx5_core/version", "26.01-0.6.0\n")
        self._write(f"sys/class/infiniband/{device}/tc/1/traffic_class", "")
        for point in ("roce_np", "roce_rp"):
            for priority in range(8):
                self._write(f"sys/class/net/{name}/ecn/{point}/enable/{priority}", "0\n")
        self._write(f"sys/class/net/{name}/ecn/roce_np/cnp_dscp", "0\n")
        self._write(f"sys/class/net/{name}/ecn/roce_np/cnp_802p_prio", "0\n")
        self._write(f"sys/class/net/{name}/ecn/roce_rp/rpg_ai_rate", "5\n")

    def _load_rdma_cm(self):
        for rail in self.rails:
            place = f"sys/kernel/config/rdma_cm/{rail.device.name}/ports/1"
            self._write(f"{place}/default_roce_mode", "IB/RoCE v1\n")
            self._write(f"{place}/default_roce_tos", "0\n")

    def _write(self, path, text):
        path = self.root / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    # For tests

    def nics(self, model=(), check_mode=False, **given):
        """Return the NICs of this host."""
        owner = {"uid": os.getuid(), "gid": os.getgid()}
        node = Node("rails", self.root, self.run, None, "", check_mode, **owner)
        asked = {**options(), "firmware": False, **given}
        return nics_module.Nics(asked, node, model, ethtool=self.ethtool, which=self.which)

    def which(self, name):
        return f"/usr/sbin/{name}" if name in self.tools else None

    def providers(self, **given):
        nics = self.nics(**given)
        return nics_module.providers(nics.given, nics.node, self.ethtool, self.which, {})

    def converge(self, *, check_mode=False, **given):
        providers = self.providers(check_mode=check_mode, **given)
        return converge(self.rails, providers, check_mode=check_mode)

    def snapshot(self, name=None):
        """Return the whole state, or that of one rail."""
        words = [name, f"_{name[-1]}", PCI.format(16 + int(name[-1]))] if name else [""]
        paths = [path for path in sorted(self.root.rglob("*")) if path.is_file()]
        files = {str(path.relative_to(self.root)): path.read_bytes() for path in paths}
        files = {path: data for path, data in files.items() if any(word in path for word in words)}
        values = (self.ports, self.ethtool.ring, self.ethtool.paused)
        state = [{key: of[key] for key in of if name in (None, key)} for of in values]
        return json.dumps(state, default=sorted), files

    def writes(self):
        """Return the commands that change something."""
        reading = lambda argv: "show" in argv or "--get" in argv  # noqa: E731
        return [argv for argv in self.commands if not reading(argv)]

    # The programs

    def run(self, argv, *, check=True, stdin=None):
        self.commands.append(tuple(argv))
        words = set(argv)
        program = argv[0]
        for broken, error in self.broken.items():
            if set(broken.split()) <= words:
                return self._end(argv, 1, "", error, check)
        if program not in {*self.tools, "modprobe", "ip"}:
            raise CommandError(f"{program}: not installed")
        if any(set(deaf.split()) <= words for deaf in self.deaf):
            return self._end(argv, 0, "", "", check)
        rc, out, err = getattr(self, f"_{program}")(list(argv[1:]), stdin)
        return self._end(argv, rc, out, err, check)

    @staticmethod
    def _end(argv, rc, out, err, check):
        if check and rc:
            raise CommandError(f"{' '.join(argv)}: exit status {rc}: {err.strip() or out.strip()}")
        return Result(tuple(argv), rc, out, err)

    def _modprobe(self, words, _stdin):
        assert words == ["rdma_cm"]
        self._load_rdma_cm()
        return 0, "", ""

    def _dcb(self, words, _stdin):
        show = words[:2] == ["-N", "-j"]
        kind, verb, _dev, name, *rest = words[2:] if show else words
        state = self.ports[name]
        if show and (state is None or kind not in self.objects):
            why = "Operation not supported" if state is None else "Attribute not found: Success"
            return 1, "\n", f"Attribute read: {why}\n"
        if show:
            return 0, json.dumps(self._dcb_show(kind, state), separators=(",", ":")) + "\n", ""
        if kind == "dcbx":
            assert "host" in rest
            state["dcbx"]["host"] = True
        elif kind == "pfc" and rest[0] == "delay":
            state["cable"] = int(rest[1])
        elif kind == "pfc":
            assert rest[:2] == ["prio-pfc", "all:off"]
            state["pfc"] = {int(word[0]) for word in rest[2:]}
        elif kind == "ets":
            return self._dcb_ets(state, rest)
        elif kind == "app":
            assert rest[0] == "dscp-prio"
            pairs = {tuple(map(int, word.split(":"))) for word in rest[1:]}
            if verb == "add":
                if self.physical:  # mlx5: the new entry takes the place of the former one
                    keys = {dscp for dscp, _priority in pairs}
                    state["app"] = {pair for pair in state["app"] if pair[0] not in keys}
                state["app"] |= pairs
            elif not pairs <= state["app"]:
                return 1, "", "Attribute write: No such file or directory\n"
            else:
                state["app"] -= pairs
        return 0, "", ""

    def _dcb_ets(self, state, rest):
        new = {"tc-tsa": list(state["tsa"]), "tc-bw": list(state["bw"]), "prio-tc": []}
        for word in rest:
            if word in new:
                values = new[word] = []
            else:
                values.append(word.split(":")[1])
        shares = [int(value) for value in new["tc-bw"]]
        if sum(shares) != (100 if "ets" in new["tc-tsa"] else 0):
            return 1, "", f"Bandwidth percentages in tc-bw sum to {sum(shares)}%\n"
        state.update(tsa=new["tc-tsa"], bw=shares, prio_tc=[int(tc) for tc in new["prio-tc"]])
        return 0, "", ""

    def _dcb_show(self, kind, state):
        if kind == "dcbx":
            return state["dcbx"]
        if kind == "pfc":
            on = [priority in state["pfc"] for priority in range(8)]
            delay = state["cable"] if self.physical and "buffer" in self.objects else 0
            return {"pfc_cap": 8, "macsec_bypass": False, "delay": delay, "prio_pfc": on}
        if kind == "buffer":
            return BUFFERS
        if kind == "ets":
            # mlx5 shows 100 for every class that is not shared
            bw = [share if how == "ets" else 100 for how, share in zip(state["tsa"], state["bw"])]
            bw = bw if self.physical else state["bw"]
            return {"tc_bw": bw, "tc_tsa": state["tsa"], "prio_tc": state["prio_tc"]}
        return {"dscp_prio": [list(pair) for pair in sorted(state["app"])]} if state["app"] else {}

    def _mlxreg(self, words, _stdin):
        assert words[0] == "-d" and words[2:4] == ["--reg_name", "ROCE_ACCL"], words
        fields = self.registers[words[1]]
        if "--set" in words:
            for pair in words[words.index("--set") + 1].split(","):
                name, value = pair.split("=")
                fields[name] = int(value, 16)
        rows = "".join(f"{name:<46} | 0x{value:08x}\n" for name, value in fields.items())
        head = f"Sending access register...\n\n{'Field Name':<46} | Data\n{'=' * 60}\n"
        return 0, f"{head}{rows}{'=' * 60}\n", ""

    _mstreg = _mlxreg


def kernel_writes(monkeypatch):
    """Make `traffic_class` return a written value in the kernel's form."""
    plain = Path.write_text

    def write_text(path, text, **more):
        if path.name == "traffic_class":
            value = text.strip().removeprefix("tclass=")
            text = "" if value in ("-1", "") else f"Global tclass={value}\n"
        return plain(path, text, **more)

    monkeypatch.setattr(Path, "write_text", write_text)


def config_space(read_request):
    """256 bytes with a power-management and then a PCI Express capability."""
    space = bytearray(256)
    space[0x34] = 0x40
    space[0x40:0x42] = bytes([0x01, 0x60])
    space[0x60:0x62] = bytes([0x10, 0x00])
    code = (read_request // 128).bit_length() - 1
    space[0x68:0x6A] = (0x0010 | code << 12 | 0x0100 | 0x002F).to_bytes(2, "little")
    return bytes(space)
