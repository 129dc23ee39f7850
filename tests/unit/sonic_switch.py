# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A SONiC switch for unit tests: a new configuration, rules for patches, and a shell. The shell
runs the driver's commands in a real sh, with small programs instead of SONiC's.
"""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Optional

from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric import system
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.sonic import reading, tables
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.sonic.steps import (
    Patch,
    PollInterval,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import (
    compile_model,
    inventory_of,
    read,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos import read_contract

ROOT = Path(__file__).resolve().parents[2]
Config = dict[str, dict[str, dict[str, str]]]


def intents(
    inventory: str = "b300", nodes: int = 4, qos: Optional[dict[str, Any]] = None
) -> dict[str, system.SwitchIntent]:
    """Every switch of the reference cluster with this many nodes; 48 use every port.

    Its storage host is not plugged in, as the 33rd node needs its port, and serves nothing.
    """
    text = (ROOT / f"inventories/{inventory}/cluster.yml").read_text(encoding="utf-8")
    text = re.sub(r"    links:\n(      - .*\n)+", "", text)
    text = re.sub(r"(?ms)^filesystems:.*?(?=^\S|\Z)", "", text)
    text = re.sub(r"(nodes:\n  count:) \d+", rf"\1 {nodes}", text)
    compiled = inventory_of(compile_model(read("cluster.yml", text)))
    everywhere = compiled.group_variables["all"]
    contract = read_contract(everywhere["roce_qos"] if qos is None else qos)
    found = {}
    for host in compiled.hosts:
        if host.groups[0] in ("leaf", "spine"):
            output = host.variables
            found[host.name] = system.compile_switch(
                host.name,
                output["cluster_system"],
                output["cluster_asic"],
                everywhere["cluster_asics"],
                output["cluster_ports"],
                contract,
            )
    return found


def small(qos: Optional[dict[str, Any]] = None, ports: int = 2) -> system.SwitchIntent:
    intent = intents(qos=qos)["leaf01"]
    return system.SwitchIntent(**{**vars(intent), "ports": intent.ports[:ports]})


def new_switch(ports: int = 64, model: str = "dynamic") -> Config:
    """CONFIG_DB of a new SN5600: the platform's buffers and the vendor's QoS, without the
    collection's objects.
    """
    names = [f"Ethernet{8 * index}" for index in range(ports)]
    config: Config = {
        "DEVICE_METADATA": {
            "localhost": {
                "hwsku": "ACS-SN5600",
                "platform": "x86_64-nvidia_sn5600-r0",
                "buffer_model": model,
                "hostname": "leaf01",
                "type": "LeafRouter",
                "mac": "00:11:22:33:44:55",
                "bgp_asn": "65100",
            }
        },
        "PORT": {
            name: {
                "lanes": ",".join(str(8 * index + lane) for lane in range(8)),
                "alias": f"etp{index + 1}",
                "index": str(index + 1),
                "speed": "800000",
                "mtu": "9100",
                "admin_status": "up",
                "fec": "rs",
            }
            for index, name in enumerate(names)
        },
        "BUFFER_POOL": {
            "ingress_lossless_pool": {"type": "ingress", "mode": "dynamic"},
            "egress_lossless_pool": {"type": "egress", "mode": "dynamic", "size": "158229504"},
            "egress_lossy_pool": {"type": "egress", "mode": "dynamic"},
        },
        "BUFFER_PROFILE": {
            "ingress_lossy_profile": {
                "pool": "ingress_lossless_pool",
                "size": "0",
                "dynamic_th": "3",
            },
            "egress_lossy_profile": {
                "pool": "egress_lossy_pool",
                "size": "9216",
                "dynamic_th": "7",
            },
            "egress_lossless_profile": {
                "pool": "egress_lossless_pool",
                "size": "0",
                "dynamic_th": "7",
            },
        },
        "DSCP_TO_TC_MAP": {"AZURE": {str(d): "3" if d == 3 else "1" for d in range(64)}},
        "TC_TO_QUEUE_MAP": {"AZURE": {str(tc): str(tc) for tc in range(8)}},
        "SCHEDULER": {"scheduler.0": {"type": "DWRR", "weight": "14"}},
        "WRED_PROFILE": {
            "AZURE_LOSSLESS": {
                "ecn": "ecn_all",
                "green_min_threshold": "1048576",
                "green_max_threshold": "2097152",
            }
        },
        "PORT_QOS_MAP": {},
        "QUEUE": {},
        "BUFFER_PG": {},
        "BUFFER_QUEUE": {},
        "CABLE_LENGTH": {"AZURE": dict.fromkeys(names, "5m")},
        "FEATURE": {"lldp": {"state": "enabled"}},
    }
    for name in names:
        config["PORT_QOS_MAP"][name] = {
            "dscp_to_tc_map": "AZURE",
            "tc_to_queue_map": "AZURE",
            "pfc_enable": "3,4",
            "pfcwd_sw_enable": "3,4",
        }
        config["QUEUE"][f"{name}|0-2"] = {"scheduler": "scheduler.0"}
        config["QUEUE"][f"{name}|3"] = {"wred_profile": "AZURE_LOSSLESS"}
        config["QUEUE"][f"{name}|4"] = {"wred_profile": "AZURE_LOSSLESS"}
        config["BUFFER_PG"][f"{name}|0"] = {"profile": "ingress_lossy_profile"}
        config["BUFFER_PG"][f"{name}|3-4"] = {"profile": "NULL"}
        config["BUFFER_QUEUE"][f"{name}|3-4"] = {"profile": "egress_lossless_profile"}
    return config


def broadcom(ports: int = 64) -> Config:
    """A Tomahawk 5, whose pool contains the headroom: sonic-net/sonic-buildimage 086b03bd,
    device/dell/x86_64-dell_z9864f-r0/Dell-Z9864f-O64/buffers_defaults_t1.j2."""
    config = new_switch(ports, model="traditional")
    config["DEVICE_METADATA"]["localhost"] |= {
        "hwsku": "Dell-Z9864f-O64",
        "platform": "x86_64-dell_z9864f-r0",
    }
    config["BUFFER_POOL"]["ingress_lossless_pool"] |= {"size": "162539680", "xoff": "33374584"}
    for name in [key for key in config["BUFFER_PG"] if key.endswith("|3-4")]:
        del config["BUFFER_PG"][name]
    return config


def present(config: Config, **further: Any) -> reading.Present:
    fixed = {"version": "1", "asic_type": "mellanox", "listed": True}
    return reading.Present(**{"config": config, **fixed, **further})


def patch(config: Config, operation: dict[str, Any]) -> None:
    """Apply one operation of RFC 6902 in place. Raises if its target is missing."""
    parts = operation["path"].split("/")[1:]
    *way, last = [part.replace("~1", "/").replace("~0", "~") for part in parts]
    place: Any = config
    for part in way:
        place = place[part]
    if operation["op"] == "add":
        place[last] = copy.deepcopy(operation["value"])
    elif operation["op"] == "replace":
        assert last in place, operation
        place[last] = operation["value"]
    else:
        assert operation["op"] == "remove", operation
        del place[last]


def patched(config: Config, operations: list[dict[str, Any]]) -> Config:
    config = copy.deepcopy(config)
    for operation in operations:
        patch(config, operation)
    return config


def stepped(config: Config, steps: Iterable[Any]) -> Iterator[Config]:
    """The state after each operation of each step: always the same object, to be read before the
    next one.
    """
    config = copy.deepcopy(config)
    for step in steps:
        if isinstance(step, PollInterval):
            assert "GLOBAL" not in config.get("PFC_WD", {})
            row = {"POLL_INTERVAL": step.milliseconds}
            config.setdefault("PFC_WD", {})["GLOBAL"] = row
            yield config
            continue
        assert isinstance(step, Patch)
        refused = refusal(config, step.operations)
        assert refused is None, refused
        for operation in step.operations:
            patch(config, operation)
            yield config


def after(config: Config, steps: Iterable[Any]) -> Config:
    for state in stepped(config, steps):
        config = state
    return config


def dangling(config: Config) -> list[str]:
    return [
        f"{table}|{key} {field}: {target}|{name}"
        for table, key, field, target, name in tables.references(config)
        if name not in config.get(target, {})
    ]


def refusal(config: Config, operations: list[dict[str, Any]]) -> Optional[str]:
    """Why `config apply-patch` would refuse a patch, by the rules in docs/fabric.md; None if it
    would not."""
    for operation in operations:
        table, *rest = operation["path"].split("/")[1:]
        op = operation["op"]
        if table == "BUFFER_POOL" or (table == "BUFFER_PROFILE" and not rest):
            return f"{table} as a whole"
        of_profile = table == "BUFFER_PROFILE" and len(rest) == 2
        if of_profile and (op != "replace" or rest[1] not in ("dynamic_th", "xoff")):
            return f"BUFFER_PROFILE {rest[1]}"
        if table == "PFC_WD" and ((not rest and op == "add") or rest == ["GLOBAL"]):
            return f"{op} of PFC_WD {rest}"
        if table not in config and rest:
            return f"no path to {operation['path']}"
    final = patched(config, operations)
    empty = [table for table, rows in final.items() if not rows]
    unbound = dangling(final)
    if set(empty) - {table for table, rows in config.items() if not rows}:
        return f"empty tables {empty}"
    return f"references {unbound}" if set(unbound) - set(dangling(config)) else None


_PROGRAMS = {
    "config": r"""
        name=$1; [ "$1 $2" != "apply-patch -d" ] || name=dry-run
        [ ! -e "$ROOT/fail/$name" ] || { cat "$ROOT/fail/$name" >&2; exit 2; }
        case $1 in
        checkpoint)
            case $2 in *-"$FULL_AT") : > "$ROOT/checkpoints/$2.json"; echo full >&2; exit 1 ;;
            esac
            cp "$ROOT/state.json" "$ROOT/checkpoints/$2.json" ;;
        rollback)
            [ -s "$ROOT/checkpoints/$2.json" ] || exit 2
            cp "$ROOT/checkpoints/$2.json" "$ROOT/state.json" ;;
        delete-checkpoint) rm "$ROOT/checkpoints/$2.json" && echo deleted ;;
        list-checkpoints)
            cd "$ROOT/checkpoints"; printf '['; comma=
            for f in *.json; do
                [ ! -e "$f" ] || printf '%s\n    "%s"' "$comma" "${f%.json}"; comma=,
            done; printf '\n]\n' ;;
        apply-patch) [ "$2" = -d ] || cp "$ROOT/next.${2##*.}.json" "$ROOT/state.json" ;;
        save) cp "$ROOT/state.json" "$ROOT/etc/sonic/config_db.json" ;;
        esac""",
    "pfcwd": 'cp "$ROOT/interval.json" "$ROOT/state.json"',
    "sonic-db-cli": ":",
    "pgrep": 'rm "$ROOT/patching" 2> /dev/null',
    "python3": f"""
        case $3 in *generic_config_updater*) cat "$ROOT/listed"; exit ;; esac
        [ "$1" != -I ] || exec {sys.executable} "$@"
        [ ! -e "$ROOT/fail/json" ]""",
    "sonic-cfggen": """
        [ ! -e "$ROOT/fail/sonic-cfggen" ] || { cat "$ROOT/fail/sonic-cfggen" >&2; exit 1; }
        cat "$ROOT/state.json" """,
    "sonic-db-dump": """
        case $4 in
        PORT*) cat "$ROOT/ports.json" ;; LAG*) echo "{}" ;; *) cat "$ROOT/lldp.json" ;; esac""",
    "systemd-run": r"""
        [ ! -e "$ROOT/fail/systemd-run" ] || { cat "$ROOT/fail/systemd-run" >&2; exit 1; }
        timer=
        for word; do
            case $word in
            --unit=*) unit=${word#--unit=} ;; --on-active=*) timer=1 ;;
            --description=*) who=${word#--description=} ;;
            esac; last=$word
        done
        [ -n "$timer" ] || exec /bin/sh -c "$last"
        [ ! -e "$ROOT/units/$unit" ] || { echo "Unit $unit was already loaded" >&2; exit 1; }
        printf '%s\n' "$who" > "$ROOT/who/$unit"
        printf '%s\n' "$last" > "$ROOT/units/$unit" """,
    "systemctl": r"""
        unit=$(printf '%s' "$*" | sed -n 's/.*\(baremetal[^ ]*\)\.[a-z]*$/\1/p')
        case "$*" in
        list-units*) cd "$ROOT/units"; for f in *; do
            [ ! -e "$f" ] || echo "$f.timer loaded active waiting $(cat "../who/$f")"; done ;;
        stop*) rm "$ROOT/units/$unit" ;;
        is-active*.timer) [ -e "$ROOT/units/$unit" ] ;;
        is-active*) [ -e "$ROOT/undoing" ] ;;
        esac""",
}


class FakeShell:
    """Runs commands in sh in a directory that represents the switch. `fail` makes a program
    fail."""

    def __init__(self, root: Path, config: Config) -> None:
        self.root = root
        self.log: list[str] = []
        self.stdin: list[str] = []
        self.said: list[str] = []
        self.reconnects = 0
        self.cut_at = ""
        """The connection is lost during a command with this text, which still runs to its end."""
        self.full_at = ""
        """The disk is full when this checkpoint (`001`) is written."""
        for name in ("bin", "fail", "units", "who", "checkpoints", "etc/sonic", "tmp"):
            (root / name).mkdir(parents=True)
        for name, text in _PROGRAMS.items():
            path = root / "bin" / name
            path.write_text(f'#!/bin/sh\necho "{name} $*" >> "$ROOT/log"\n{text}\n')
            path.chmod(0o755)
        self.state = config
        (root / "ports.json").write_text("{}")
        (root / "lldp.json").write_text("{}")
        (root / "listed").write_text("True\n")
        (root / "etc/sonic/sonic_version.yml").write_text(
            "build_version: 'simulation.1'\nasic_type: mellanox\n"
        )
        (root / "etc/sonic/config_db.json").write_text(json.dumps(config))

    @property
    def state(self) -> Config:
        found: Config = json.loads((self.root / "state.json").read_text())
        return found

    @state.setter
    def state(self, config: Config) -> None:
        (self.root / "state.json").write_text(json.dumps(config))

    @property
    def saved(self) -> Config:
        found: Config = json.loads((self.root / "etc/sonic/config_db.json").read_text())
        return found

    def links(self, ports: Iterable[str], status: str = "up") -> None:
        path = self.root / "ports.json"
        found = json.loads(path.read_text())
        for port in ports:
            value = {"oper_status": status}
            found[f"PORT_TABLE:{port}"] = {"type": "hash", "value": value}
        path.write_text(json.dumps(found))

    def fail(self, program: str, message: str = "no") -> None:
        (self.root / "fail" / program).write_text(message + "\n")

    def mend(self) -> None:
        for path in (self.root / "fail").iterdir():
            path.unlink()

    @property
    def units(self) -> list[str]:
        return sorted(path.name for path in (self.root / "units").iterdir())

    @property
    def checkpoints(self) -> list[str]:
        return sorted(path.stem for path in (self.root / "checkpoints").iterdir())

    def programs(self) -> list[str]:
        path = self.root / "log"
        return path.read_text().splitlines() if path.exists() else []

    def fire(self, unit: str) -> None:
        path = self.root / "units" / unit
        self._sh(path.read_text().replace(f"{self.root}/etc", "/etc"), "")
        path.unlink()

    def at(self, words: str, act: Callable[[], None], *, before: bool = True) -> None:
        """Act once, when a command or its input contains these words."""
        ran, acted = self.run, list[str]()

        def run(command: str, stdin: str = "", timeout_s: int = 60) -> system.Completed:
            now = words in command + stdin and not acted
            if now:
                acted.append(command)
                if before:
                    act()
            answer = ran(command, stdin, timeout_s)
            if now and not before:
                act()
            return answer

        self.run = run  # type: ignore[method-assign]

    def lose(self) -> None:
        """No command arrives from now on."""

        def lost(command: str, stdin: str = "", timeout_s: int = 60) -> system.Completed:
            raise system.SwitchError("no route to host")

        self.run = lost  # type: ignore[method-assign]
        raise system.SwitchError("the connection was lost")

    def reconnect(self) -> None:
        self.reconnects += 1

    def say(self, line: str) -> None:
        self.said.append(line)

    def run(self, command: str, stdin: str = "", timeout_s: int = 60) -> system.Completed:
        self.log.append(command)
        self.stdin.append(stdin)
        if "config apply-patch" in command and stdin:
            state = self.state
            for number, line in enumerate(stdin.splitlines(), 1):
                state = patched(state, json.loads(line))
                (self.root / f"next.{number}.json").write_text(json.dumps(state))
        interval = re.search("pfcwd interval ([0-9]+)", command)
        if interval:
            state = self.state
            row = {"POLL_INTERVAL": interval[1]}
            state.setdefault("PFC_WD", {})["GLOBAL"] = row
            (self.root / "interval.json").write_text(json.dumps(state))
        completed = self._sh(command, stdin)
        if self.cut_at and self.cut_at in command:
            raise system.SwitchError("the connection was lost")
        return completed

    def _sh(self, command: str, stdin: str) -> system.Completed:
        here = command.replace("/etc/sonic", f"{self.root}/etc/sonic")
        here = here.replace("/tmp/baremetal", f"{self.root}/tmp/baremetal")
        done = subprocess.run(
            ["/bin/sh", "-c", here],
            input=stdin,
            capture_output=True,
            text=True,
            env={
                "PATH": f"{self.root}/bin:{os.environ['PATH']}",
                "ROOT": str(self.root),
                "FULL_AT": self.full_at,
            },
            check=False,
        )
        return system.Completed(done.returncode, done.stdout, done.stderr)
