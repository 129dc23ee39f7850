# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Tools of a Lustre client, with their state in files: a simulation that says so.

Test nodes have it as /var/lib/lustre-stand-in/lib/lustre_stand_in.py. The stand-in packages install
small programs that call it under the name of the tool. Unit tests call `Machine.run` with a
separate directory. No kernel module is loaded, and nothing is mounted: sys and proc are files under
`root`. README.md of the parent directory lists the keys of the state.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from pathlib import Path
from typing import Any

HOME = Path("/var/lib/lustre-stand-in")
NOTICE = "SIMULATION: stand-in for tests, no Lustre is behind this"
MODULES = ("libcfs", "lnet", "ksocklnd", "ko2iblnd", "ptlrpc", "lustre")
DEFAULTS = {
    "lnet": {
        "lnet_peer_discovery_disabled": "0",
        "lnet_transaction_timeout": "50",
        "lnet_retry_count": "2",
        "lnet_health_sensitivity": "100",
    },
    "ksocklnd": {"skip_mr_route_setup": "0", "conns_per_peer": "4", "credits": "256"},
    "ko2iblnd": {"peer_credits": "8", "conns_per_peer": "1", "map_on_demand": "1"},
    "ptlrpc": {},
    "lustre": {},
    "libcfs": {},
}
"""Module options that the tests use."""
RUNTIME = ("lnet_transaction_timeout", "lnet_retry_count", "lnet_health_sensitivity")
"""Options that can be written while the module is loaded; their file mode shows it."""
FRESH: dict[str, Any] = {
    "version": "2.15.7",
    "nets": {},
    "discovery": 1,
    "routes": [],
    "peers": [],
    "mounts": {},
    "targets": {
        "lustre": {
            name: {"state": "FULL", "nid": "10.9.0.5@o2ib", "used": 40}
            for name in ("MDT0000", "OST0000", "OST0001")
        }
    },
    "managers": {},
    "layouts": {},
    "default": {"count": 1, "size": 1 << 20, "pool": ""},
    "pools": ["flash"],
    "evicted": {},
    "silent": [],
    "hang": [],
    "down": [],
    "root_squash": False,
}


class Machine:
    """`place`: root of the node's files (/etc/lnet.conf, /etc/modprobe.d)."""

    def __init__(self, home: Path = HOME, place: Path = Path("/")) -> None:
        self.home = home
        self.root = home / "root"
        self.place = place

    # The state

    @property
    def state(self) -> dict[str, Any]:
        path = self.home / "state.json"
        return {**FRESH, **(json.loads(path.read_text()) if path.exists() else {})}

    def change(self, **values: Any) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "state.json").write_text(json.dumps({**self.state, **values}, indent=1))

    def loaded(self, module: str) -> bool:
        return (self.root / "sys/module" / module).is_dir()

    def appear(self, interfaces: Path = Path("/sys/class/net")) -> None:
        """Return the state of a kernel before Lustre is loaded. Its interfaces are real; rails
        get an RDMA device, which a container does not have."""
        self._table(self._lines())
        net = self.root / "sys/class/net"
        if not net.is_symlink():
            net.parent.mkdir(parents=True, exist_ok=True)
            net.symlink_to(interfaces)
        for path in sorted(interfaces.glob("rail*")):
            folder = self.root / f"sys/class/infiniband/{path.name}/ports/1/gid_attrs/ndevs"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "0").write_text(f"{path.name}\n")

    # The programs

    def run(self, name: str, argv: list[str]) -> tuple[int, str, str]:
        """Return status, output and errors. `hang` of the state lists programs that never
        return."""
        words = [name, *argv]
        if any(words[: len(command.split())] == command.split() for command in self.state["hang"]):
            raise Hangs(" ".join(words))
        rc, out, err = getattr(self, method_of(name))(argv)
        return rc, out, f"{name}: {NOTICE}\n{err}"

    def _modprobe(self, argv: list[str]) -> tuple[int, str, str]:
        name = next(word for word in argv if not word.startswith("-"))
        if name not in MODULES:
            return 1, "", f"modprobe: FATAL: Module {name} not found.\n"
        wanted = MODULES if name == "lustre" else ("libcfs", name)
        for module in wanted:
            self._load(module)
        return 0, "", ""

    def _load(self, module: str) -> None:
        if self.loaded(module):
            return
        options = dict(DEFAULTS[module])
        for path in sorted((self.place / "etc/modprobe.d").glob("*.conf")):
            for line in path.read_text().splitlines():
                words = line.split()
                if words[:2] == ["options", module]:
                    options.update(word.split("=", 1) for word in words[2:])
        known = {name: value for name, value in options.items() if name in DEFAULTS[module]}
        folder = self.root / "sys/module" / module
        (folder / "parameters").mkdir(parents=True)
        (folder / "version").write_text(f"{self.state['version']}\n")
        for name, value in known.items():
            path = folder / "parameters" / name
            path.write_text(f"{value}\n")
            path.chmod(0o644 if name in RUNTIME else 0o444)
        if module == "lnet":
            # Network drivers are loaded with a network; LNet reads its options when it is loaded.
            off = known["lnet_peer_discovery_disabled"]
            self.change(nets={}, routes=[], peers=[], discovery=int(off == "0"))

    def _lustre_rmmod(self, _argv: list[str]) -> tuple[int, str, str]:
        if self.state["mounts"]:
            return 1, "", "rmmod: ERROR: Module lustre is in use\n"
        for module in MODULES:
            shutil.rmtree(self.root / "sys/module" / module, ignore_errors=True)
        self.change(nets={}, routes=[], peers=[], configured=False)
        return 0, "", ""

    def _modinfo(self, argv: list[str]) -> tuple[int, str, str]:
        if argv[-1] not in MODULES:
            return 1, "", f"modinfo: ERROR: Module {argv[-1]} not found.\n"
        return 0, f"{self.state.get('installed', self.state['version'])}\n", ""

    # lnetctl

    def _lnetctl(self, argv: list[str]) -> tuple[int, str, str]:
        key = " ".join(argv[:2])
        if argv[:1] == ["import"]:
            return self._import(Path(argv[-1]))
        if argv[:1] == ["export"]:
            return 0, self._networks("--backup" in argv) + self._global(), ""
        if argv[:1] == ["ping"]:
            return self._ping(argv[1:])
        if key == "lnet configure":
            self._load("libcfs")
            self._load("lnet")
            self.change(configured=True)
            return 0, "", ""
        if key == "lnet unconfigure":
            self.change(nets={}, routes=[], peers=[], configured=False)
            return 0, "", ""
        if not self.loaded("lnet"):
            return 234, "", _down("network")
        if key == "set discovery":
            self.change(discovery=int(argv[2]))
            path = self.root / "sys/module/lnet/parameters/lnet_peer_discovery_disabled"
            path.chmod(0o644)
            path.write_text(f"{1 - int(argv[2])}\n")
            return 0, "", ""
        if key == "global show":
            return 0, self._global(), ""
        if not self.state.get("configured"):
            return 156, _down(argv[0]), ""
        if key == "net show":
            return 0, self._networks(False), ""
        if key == "route show":
            pairs = self.state["routes"]
            lines = "".join(f"    - net: {net}\n      gateway: {via}\n" for net, via in pairs)
            return 0, f"route:\n{lines}" if lines else "", ""
        if key == "peer show":
            return 0, self._peers(), ""
        return 22, "", f"lnetctl {key}: not known here\n"

    def _networks(self, backup: bool) -> str:
        text = "net:\n"
        if not backup:
            text += "    - net type: lo\n      local NI(s):\n"
            text += "        - nid: 0@lo\n          status: up\n"
        for number, (net, interfaces) in enumerate(self.state["nets"].items()):
            text += f"    - net type: {net}\n      local NI(s):\n"
            for place, name in enumerate(interfaces):
                status = "down" if name in self.state["down"] else "up"
                head = "        - "
                if not backup:
                    text += f"{head}nid: 10.{number}.{place}.1@{net}\n          status: {status}\n"
                    head = "          "
                text += f"{head}interfaces:\n              0: {name}\n"
        return text

    def _global(self) -> str:
        return (
            "global:\n    numa_range: 0\n    max_interfaces: 200\n"
            f"    discovery: {self.state['discovery']}\n    drop_asym_route: 0\n"
            "    retry_count: 2\n    transaction_timeout: 50\n    health_sensitivity: 100\n"
        )

    def _peers(self) -> str:
        text = "peer:\n" if self.state["peers"] else ""
        for nids in self.state["peers"]:
            text += f"    - primary nid: {nids[0]}\n      Multi-Rail: {len(nids) > 1}\n"
            text += "      peer ni:\n"
            text += "".join(f"        - nid: {nid}\n          state: NA\n" for nid in nids)
        return text

    def _import(self, path: Path) -> tuple[int, str, str]:
        """Import a configuration. As in lnetctl, it is an error if a network exists already."""
        if not self.loaded("lnet"):
            return 1, "", "add:\n    - net:\n          errno: -100\n"
        path = self.place / str(path).lstrip("/")
        state = self.state
        nets, section, net, peer = dict(state["nets"]), "", "", []
        routes, peers = list(state["routes"]), list(state["peers"])
        for number, line in enumerate(path.read_text().splitlines(), 1):
            text = line.strip().removeprefix("- ")
            key, colon, value = (part.strip() for part in text.partition(":"))
            if not text or text.startswith("#"):
                continue
            if not colon:
                return 22, "", f"import:\n    - yaml:\n          descr: line {number}: {line!r}\n"
            if not line.startswith(" "):
                section = key
            elif section == "net" and key == "net type":
                net = value
                if net in nets:
                    return 17, "", "add:\n    - net:\n          errno: -17\n"
                nets[net] = []
                self._load({"tcp": "ksocklnd"}.get(net.rstrip("0123456789"), "ko2iblnd"))
            elif section == "net" and key == "0":
                nets[net] = [*nets[net], value]
            elif section == "route" and key == "net":
                routes.append([value, ""])
            elif section == "route" and key == "gateway":
                routes[-1] = [routes[-1][0], value]
            elif section == "peer" and key == "primary nid":
                peer = []
                peers.append(peer)
            elif section == "peer" and key == "nid":
                peer.append(value)
            elif section == "global" and key == "discovery":
                state["discovery"] = int(value)
        self.change(
            nets=nets, routes=routes, peers=peers, discovery=state["discovery"], configured=True
        )
        return 0, "", ""

    def _ping(self, argv: list[str]) -> tuple[int, str, str]:
        nid = argv[-1]
        if nid in self.state["silent"]:
            text = f"failed to ping {nid}: Input/output error"
            return 251, "", f"manage:\n    - ping:\n          errno: -5\n          descr: {text}\n"
        text = f"ping:\n    - primary nid: {nid}\n      Multi-Rail: True\n      peer ni:\n"
        return 0, f"{text}        - nid: {nid}\n", ""

    # lctl

    def _lctl(self, argv: list[str]) -> tuple[int, str, str]:
        if argv[:1] == ["list_nids"]:
            nids = re.findall(r"nid: (\S+)", self._networks(False))
            return 0, "".join(f"{nid}\n" for nid in nids if nid != "0@lo"), ""
        if argv[:1] != ["get_param"]:
            return 22, "", f"lctl {argv[0]}: not known here\n"
        text, lost = "", []
        for pattern in argv[1:]:
            kind, _stars, what = pattern.split(".")
            found = "".join(self._parameter(kind, what))
            text += found
            if not found:
                lost.append(
                    f"error: get_param: param_path '{pattern}': No such file or directory\n"
                )
        return (2 if lost else 0), text, "".join(lost)

    def _parameter(self, kind: str, what: str) -> Any:
        names = sorted({source.partition(":/")[2].split("/")[0] for source in self._sources()})
        if kind == "mgc":  # by the first NID of a source: lustre_start_mgc of obd_mount.c
            names = sorted({re.split("[:,]", source)[0] for source in self._sources()})
        for fsname in names:
            targets = self.state["targets"].get(fsname, {})
            if kind == "mgc":
                state = self.state["managers"].get(fsname, "FULL")
                targets = {"MGS": {"state": state, "nid": fsname}}
            for name, target in sorted(targets.items()):
                if {"mdc": "MDT", "osc": "OST", "mgc": "MGS"}[kind] not in name:
                    continue
                device = f"{fsname}-{name}-{kind}-ffff9c5c"
                whole = f"{fsname}-{name}"
                if kind == "mgc":
                    device, whole = f"MGC{target['nid']}", "MGS"
                if what == "state":
                    yield self._history(f"{kind}.{device}", device, target["state"])
                    continue
                flags = "replayable, pingable, connect_tried"
                if target.get("inactive"):
                    flags = f"invalid, deactive, {flags}"
                yield (
                    f"{kind}.{device}.import=\nimport:\n    name: {device}\n"
                    f"    target: {whole}{'' if whole == 'MGS' else '_UUID'}\n"
                    f"    state: {target['state']}\n"
                    "    connect_flags: [ write_grant, server_lock, version ]\n"
                    "    connect_data:\n       flags: 0xa0425af2e3440078\n       instance: 5\n"
                    f"    import_flags: [ {flags} ]\n    connection:\n"
                    f'       failover_nids: [ "{target["nid"]}" ]\n'
                    f'       current_connection: "{target["nid"]}"\n'
                    "       connection_attempts: 1\n       generation: 1\n"
                    "       in-recovery_time: 0\n       idle: 12 sec\n"
                )

    def _history(self, name: str, device: str, state: str) -> str:
        lines = " - [ 1763640000, CONNECTING ]\n - [ 1763640001, FULL ]\n"
        when = self.state["evicted"].get(device)
        if when:
            lines += f" - [ {when}, EVICTED ]\n - [ {when + 1}, FULL ]\n"
        return f"{name}.state=\ncurrent_state: {state}\nstate_history:\n{lines}"

    def _sources(self) -> list[str]:
        return list(self.state["mounts"].values())

    # lfs

    def _lfs(self, argv: list[str]) -> tuple[int, str, str]:
        handler = getattr(self, f"_lfs_{argv[0]}", None)
        if handler is None:
            return 22, "", f"lfs {argv[0]}: not known here\n"
        result: tuple[int, str, str] = handler(argv[1:])
        return result

    def _name_of(self, path: str) -> str:
        """Return the file system of a path; empty if there is none."""
        points = [p for p in self.state["mounts"] if path == p or path.startswith(p + "/")]
        if not points:
            return ""
        return str(self.state["mounts"][max(points, key=len)].partition(":/")[2].split("/")[0])

    def _lfs_check(self, argv: list[str]) -> tuple[int, str, str]:
        names = [self._name_of(argv[1])] if len(argv) > 1 else list(self.state["targets"])
        out, err = "", ""
        for fsname in names:
            for name, target in sorted(self.state["targets"].get(fsname, {}).items()):
                device = f"{fsname}-{name}-{'mdc' if 'MDT' in name else 'osc'}-ffff9c5c"
                if target.get("inactive"):
                    out += f"{device} inactive.\n"
                elif target.get("unreachable"):
                    why = "Resource temporarily unavailable (11)"
                    err += f"lfs check: error: check '{device}': {why}\n"
                else:
                    out += f"{device} active.\n"
        return 0, out, err

    def _lfs_getstripe(self, argv: list[str]) -> tuple[int, str, str]:
        path = argv[-1]
        if not self._name_of(path):
            return 1, "", f"lfs getstripe: cannot stat '{path}': No such file or directory (2)\n"
        layouts = self.state["layouts"]
        own = layouts.get(path, {})
        if own.get("components"):
            parts = "".join(
                f"  component{n}:\n    lcme_id:             N/A\n    sub_layout:\n"
                "      lmm_stripe_count:  1\n      lmm_stripe_size:   1048576\n"
                for n in range(own["components"])
            )
            return (
                0,
                f"  lcm_layout_gen:    0\n  lcm_entry_count:   {own['components']}\n{parts}",
                "",
            )
        shown = {"count": 0, "size": 0, "pool": "", **own}
        if "--raw" not in argv:
            shown = {key: value or self.state["default"][key] for key, value in shown.items()}
        end = "\n" if "-y" in argv else " "
        words = [
            f"stripe_count:  {shown['count']}",
            f"stripe_size:   {shown['size']}",
            "pattern:       raid0",
            "stripe_offset: -1",
            *([f"pool:          {shown['pool']}"] if shown["pool"] else []),
        ]
        return 0, end.join(words) + "\n\n", ""

    def _lfs_setstripe(self, argv: list[str]) -> tuple[int, str, str]:
        path, given = argv[-1], dict(zip(argv[:-1:2], argv[1:-1:2]))
        if self.state["root_squash"]:
            return 1, "", f"lfs setstripe: cannot set layout of '{path}': Permission denied (13)\n"
        pool = given.get("-p", "")
        if pool and pool not in self.state["pools"]:
            return 1, "", f"lfs setstripe: pool '{pool}' has no OSTs or does not exist\n"
        layout = {"count": int(given.get("-c", 0)), "size": int(given.get("-S", 0)), "pool": pool}
        self.change(layouts={**self.state["layouts"], path: layout})
        return 0, "", ""

    def _lfs_df(self, argv: list[str]) -> tuple[int, str, str]:
        fsname = self._name_of(argv[-1])
        text = "UUID                   1K-blocks        Used   Available Use% Mounted on\n"
        for name, target in sorted(self.state["targets"].get(fsname, {}).items()):
            used = target.get("used", 0)
            mark = f"{argv[-1]}[{name[:3]}:{int(name[3:], 16)}]"
            text += f"{fsname}-{name}_UUID      100000       {used * 1000}      "
            text += f"{(100 - used) * 1000} {used}% {mark}\n"
        return 0, f"{text}\nfilesystem_summary:  200000 80000 120000 40% {argv[-1]}\n", ""

    def _mount_lustre(self, argv: list[str]) -> tuple[int, str, str]:
        options, words = "", []
        rest = iter(argv)
        for word in rest:
            if word == "-o":
                options = next(rest)
            elif not word.startswith("-"):
                words.append(word)
        source, point = words
        source = re.sub(r"@(tcp|o2ib)0(?=[,:])", r"@\1", source)
        fsname = source.partition(":/")[2].split("/")[0]
        if fsname not in self.state["targets"]:
            return 19, "", f"mount.lustre: mount {source} at {point} failed: No such device\n"
        self._modprobe(["lustre"])
        flags = [w for w in options.split(",") if w in ("noatime", "nosuid", "nodev", "ro")]
        told = [w for w in options.split(",") if w and w not in flags]
        self.change(mounts={**self.state["mounts"], point: source})
        line = f"99 1 0:99 / {point} {','.join(['rw', *flags])} shared:1 - lustre {source} "
        self._table([*self._lines(), line + ",".join(["rw", *told, "encrypt"])])
        return 0, "", ""

    def _umount(self, argv: list[str]) -> tuple[int, str, str]:
        point = argv[-1]
        self.change(mounts={p: s for p, s in self.state["mounts"].items() if p != point})
        self._table([line for line in self._lines() if line.split()[4] != point])
        return 0, "", ""

    def _lines(self) -> list[str]:
        path = self.root / "proc/self/mountinfo"
        return path.read_text().splitlines() if path.exists() else []

    def _table(self, lines: list[str]) -> None:
        path = self.root / "proc/self/mountinfo"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines))


class Hangs(Exception):
    """The state lists this program as one that never returns."""


def method_of(program: str) -> str:
    return "_" + program.replace(".", "_").replace("-", "_")


def _down(what: str) -> str:
    told = f'descr: "cannot get {what}: Network is down"'
    return f"show:\n    - {what}:\n          errno: -100\n          {told}\n"


def main(name: str, argv: list[str]) -> int:
    """Run as a program on a node."""
    machine = Machine()
    machine.appear()
    if name == "lustre-stand-in":
        for word in argv:
            key, _equals, value = word.partition("=")
            machine.change(**{key: json.loads(value)})
        sys.stdout.write(json.dumps(machine.state, indent=1) + "\n")
        return 0
    try:
        rc, out, err = machine.run(name, argv)
    except Hangs:
        while True:
            time.sleep(3600)
    sys.stdout.write(out)
    sys.stderr.write(err)
    return rc
