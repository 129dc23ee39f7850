#!/usr/bin/env python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Plan the QoS of every switch type in SONiC on top of the QoS and buffers of its vendor.

    ./test --bench sonic_types SONIC_BUILDIMAGE

The argument is a checkout of sonic-net/sonic-buildimage. Templates in device/ and
files/build_templates/ are rendered as by sonic-cfggen (`config qos reload`, type LeafRouter). The
contract has a cable length of the platform's table. No plan may crash, and a second plan must be
empty. Exits with 1 otherwise.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

import jinja2

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "collections"), str(ROOT)]

from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric import asics  # noqa: E402
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.sonic import (  # noqa: E402
    SYSTEM,
    buffers,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.sonic.reading import (  # noqa: E402
    DYNAMIC,
    Present,
    lookup_of,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.system import (  # noqa: E402
    PortIntent,
    SwitchError,
    SwitchIntent,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos import (  # noqa: E402
    fabric_intent,
    read_contract,
)

from tests.unit.sonic_switch import after  # noqa: E402

PORTS = 4
METRES = 40
"""Cable length for platforms without a table."""
VENDORS = {"mellanox": "mellanox", "barefoot": "barefoot", "marvell": "marvell"}
"""asic_type by folder. All others are treated as Broadcom; few templates depend on it."""


class Unrendered(Exception):
    """A type that needs files outside its folder, such as templates of other packages."""


def text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def ports_of(sku: Path) -> dict[str, dict[str, str]]:
    """Return PORT as portconfig.py does."""
    wiring = json.loads(text_of(sku.parent / "platform.json") or "{}").get("interfaces", {})
    ports: dict[str, dict[str, str]] = {}
    for name, row in json.loads(text_of(sku / "hwsku.json") or "{}").get("interfaces", {}).items():
        for number, speed in re.findall(r"(\d+)x(\d+)G", row.get("default_brkout_mode", "")):
            lanes = wiring.get(name, {}).get("lanes", "").split(",")
            width = len(lanes) // int(number)
            for part in range(int(number)):
                port = int(re.sub(r"\D", "", name)) + part * width
                port_lanes = ",".join(lanes[part * width : (part + 1) * width])
                ports[f"Ethernet{port}"] = {"lanes": port_lanes, "speed": f"{speed}000"}
    columns = ["name", "lanes", "alias", "index", "speed"]
    for line in () if ports else text_of(sku / "port_config.ini").splitlines():
        words = line.lstrip("# ").split()
        if line.startswith("#"):
            columns = words if words[:1] == ["name"] else columns
        elif len(words) >= 2:
            row = dict(zip(columns, words))
            ports[row.pop("name")] = row
    return {name: {"admin_status": "up", **row} for name, row in ports.items()}


def rendered(templates: Path, sku: Path, data: dict[str, Any], *names: str) -> dict[str, Any]:
    paths = [str(templates), str(sku)]
    loader = jinja2.FileSystemLoader(paths, followlinks=True)
    env = jinja2.Environment(loader=loader, trim_blocks=True)
    env.filters["sort_by_port_index"] = lambda value: (
        value and value.sort(key=lambda name: int(re.sub(r"\D", "", name) or 0))
    )
    env.globals["template_exists"] = lambda name: any(Path(p, name).exists() for p in paths)
    config: dict[str, Any] = {}
    for name in names:
        try:
            config.update(json.loads(env.get_template(name).render(data)))
        except (jinja2.TemplateError, ValueError, TypeError, LookupError) as error:
            raise Unrendered(f"{name}: {type(error).__name__}") from None
    return config


def plain(value: Any) -> str:
    """Return the name in a reference of older templates, `[BUFFER_POOL|name]`."""
    return re.sub(r"\[[A-Z_]+\|([^\]]+)\]", r"\1", str(value))


def switch(templates: Path, sku: Path, dynamic: bool) -> Present:
    ports, vendor = ports_of(sku), VENDORS.get(sku.parents[1].name, "broadcom")
    if not ports:
        raise Unrendered("no ports")
    metadata = {
        **{"hostname": "leaf01", "type": "LeafRouter", "hwsku": sku.name},
        **{"platform": sku.parent.name, "buffer_model": "dynamic" if dynamic else "traditional"},
    }
    data = {"PORT": ports, "DEVICE_METADATA": {"localhost": metadata}, "asic_type": vendor}
    names = ("qos.json.j2", "buffers_dynamic.json.j2" if dynamic else "buffers.json.j2")
    config = rendered(templates, sku, data, *names)
    tables = {
        table: {
            key: {field: plain(value) for field, value in row.items()}
            for key, row in rows.items()
            if isinstance(row, dict)
        }
        for table, rows in {**config, "PORT": ports}.items()
    }
    tables["DEVICE_METADATA"] = {"localhost": metadata}
    rows = {} if dynamic else lookup_of(text_of(sku / "pg_profile_lookup.ini"))
    return Present(tables, version="20260510.1", asic_type=vendor, lookup=rows)


def intent_of(present: Present) -> SwitchIntent:
    speeds = Counter(int(row.get("speed", "0")) // 1000 for row in present.config["PORT"].values())
    speed = speeds.most_common(1)[0][0]
    if speed not in asics.ETHERNET_GBPS:
        raise Unrendered(f"speed {speed}")
    lengths = sorted(metres for its, metres in present.lookup if its == speed)
    length = lengths[len(lengths) // 2] if lengths else METRES
    names = [
        name
        for name, row in present.config["PORT"].items()
        if int(row.get("speed", "0")) // 1000 == speed
    ]
    chip = buffers.chip_of(present.metadata["platform"]) or "chip"
    return SwitchIntent(
        "leaf01",
        "sonic",
        asics.asic_named(chip, {}) or asics.Asic(chip),
        fabric_intent(
            read_contract({"cable_metres": {"to_nodes": length, "between_switches": length}})
        ),
        tuple(
            PortIntent(name, "host", speed, length, f"node{at}", "rail0")
            for at, name in enumerate(names[:PORTS])
        ),
    )


def refusal(present: Present, intent: SwitchIntent) -> Optional[str]:
    """Return the reason for a refusal, or None if the plan succeeds and a second one is empty."""
    wanted = SYSTEM.driver.wanted(intent)
    try:
        steps = SYSTEM.driver.difference(intent, wanted, present).steps
    except (asics.WantedError, SwitchError) as error:
        return str(error)
    done = replace(present, config=after(present.config, steps))
    assert not SYSTEM.driver.difference(intent, wanted, done), "the second plan is not empty"
    return None


def types(device: Path) -> Iterator[tuple[Path, bool]]:
    for template in sorted(device.glob("*/*/*/qos.json.j2")):
        for name in ("buffers.json.j2", "buffers_dynamic.json.j2"):
            if (template.parent / name).exists():
                yield template.parent, name != "buffers.json.j2"


def main(folder: Path) -> int:
    results, reasons = Counter[str](), Counter[str]()
    for sku, dynamic in types(folder / "device"):
        name = f"{sku.parent.name}/{sku.name} {DYNAMIC if dynamic else 'traditional'}"
        try:
            present = switch(folder / "files/build_templates", sku, dynamic)
            refused = refusal(present, intent_of(present))
        except Unrendered as error:
            results["left_out"] += 1
            reasons[f"left out: {error}"] += 1
        except Exception as error:
            results["crashed"] += 1
            print(f"{name}: CRASHED, {type(error).__name__}: {error}")
        else:
            results["planned" if refused is None else "refused"] += 1
            if refused is not None:
                reasons[re.sub(r"\S*\d\S*", "N", refused)[:70]] += 1
    for text, number in reasons.most_common():
        print(f"  {number:4} {text}")
    for result in ("planned", "refused", "left_out", "crashed"):
        print(f"sonic_types_{result}: {results[result]} types")
    return int(bool(results["crashed"]) or not results["planned"])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1])))
