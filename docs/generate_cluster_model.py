#!/usr/bin/env python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write docs/cluster-model.md and docs/cluster.schema.json from the schema that validates models.

The program has no options. A unit test compares the files with its output.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "cluster-model.md"
JSON_SCHEMA = ROOT / "docs" / "cluster.schema.json"

if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "collections"))

from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.asics import (  # noqa: E402
    ASICS,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import (  # noqa: E402
    ModelError,
    compile_model,
    read,
    schema,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.schema import kinds  # noqa: E402

HEAD = """\
<!-- Written by docs/generate_cluster_model.py from the schema. Edit that, and run it. -->
# Cluster model

The inventory plugin `baremetal.mpi_roce.cluster` compiles `inventories/NAME/cluster.yml` to hosts,
groups and variables ([architecture.md](architecture.md)). Commented example:
[inventories/b300/cluster.yml](../inventories/b300/cluster.yml). Published designs, with their
sources: [inventories/examples](../inventories/examples).

The smallest model:

```yaml
{smallest}```

Editors with a YAML language server complete and check the keys if the first line names
[cluster.schema.json](cluster.schema.json), as in the example. On a terminal:
`ansible-doc -t inventory baremetal.mpi_roce.cluster`.

Values of a single node belong under `nodes.overrides`; role variables in `host_vars/` next to the
model, or under `vars`. Nodes added at the end change no address, port or name of others; removed
ones belong under `nodes.absent`, which reserves their addresses and ports.
[Compare a changed model](operations.md#changes-of-the-model) before a run.

Only values under `vars` may be templates. Write numbers without leading zeros: YAML reads `026` as
22. Secrets belong in `group_vars/`, encrypted with ansible-vault, not in the model. Kubespray uses
the variable `cluster_name` for its DNS domain; give it an inventory without a model.

An invalid model is rejected with all errors before any host is contacted (keys and types first,
then rules):

    {refused}

## Keys

**Bold** keys are required. Host names consist of a to z, 0 to 9 and inner hyphens, at most 63
characters; other names of a to z, 0 to 9, - and _, those of racks also of capitals and dots. Names
of interfaces have at most 15 characters, checksums 64 digits 0 to 9, a to f; URLs are of https,
http or file, without user or password.
"""

TAIL = """
## Planes, units and tiers

A leaf has links to every spine that shares the attributes in `spines.divided_by`:

| `divided_by` | connects |
|---|---|
| `[]` | all: one fabric |
| `[plane]` | each plane to a separate block of spines; the default with a leaf per plane |
| `[unit]` | each scalable unit (`leaves.sets_per_unit`) to its spines, below `super_spines` |
| `[group]` | the leaves of a set, in order, to `groups` blocks: with few uplinks, many spines |

Switches are dealt in equal blocks, by unit, then plane, then group. Units, leaf sets and nodes that
are added at the end move no cable and no address. Before adding spines, set
`leaves.uplink_ports`, and `leaves.nodes_per_set` if there are several sets. To add spines to every
block, list `name` and `management_first` of all, block by block. Another `links_per_leaf`,
`divided_by` or `groups` moves cables of spines. Pods that grow separately need the
full form:

```yaml
switches:
  pod1: {tier: leaf, count: 8, ports: 64, management_first: 10.0.32.1, nodes: 32, pool: 10.1.0.0/16}
  pod2: {tier: leaf, count: 8, ports: 64, management_first: 10.0.33.1, nodes: 16, pool: 10.2.0.0/16}
  spine: {tier: spine, count: 4, ports: 64, management_first: 10.0.40.1}
links:
  - {from: [pod1, pod2], to: spine, count: 4}
```

## Kinds of nodes, and launchers

```yaml
kinds:
  h100: {rails: {speed_gbps: 400}}                        # as gpus and rails, but slower
  cpu: {gpus: {count: 0}, rails: {count: 2}, slots: 64}   # on rails 0 and 1
  service: {gpus: {count: 0}, rails: {count: 0}}          # no rails
nodes:
  - {count: 16, management_first: 10.0.1.1}
  - {count: 4, start: 17, management_first: 10.0.1.17, kind: h100}
  - {count: 2, name: "cpu{:02d}", management_first: 10.0.2.1, kind: cpu, position: 32}
  - {count: 2, name: "svc{:02d}", management_first: 10.0.3.1, kind: service, position: 1000}
launchers:
  - {name: login01, management: 10.0.0.10}
  - {name: login02, management: 10.0.0.11}
```

Without `position`, nodes added to a block would move those of the blocks below.

Kinds may differ in [`software`](#software), except MPI and repositories; write what differs:

```yaml
kinds:
  h100: {software: {driver: {gpu: H100, version: 570.211.01}, cuda: "12.8"}}
```

Nodes without rails need no ports: their `position` may be past those of the leaves. No RoCE
transport connects them to the others, so the hostfile and the smoke test leave them out. With
`slots`, [jobs](jobs.md) on them (`mpi_job_kind`) use TCP on the management network.

## Systems and port names

| system | first ports | `port`, `port_start`, `port_step` |
|---|---|---|
| none | `Ethernet0`, `Ethernet1` | `Ethernet{}`, 0, 1 |
| `sonic` | `Ethernet0`, `Ethernet8` | `Ethernet{}`, 0, the lanes of a port |
| `nvue` | `swp1`, `swp2` | `swp{}`, 1, 1 |
| `eos` | `Ethernet1/1`, `Ethernet2/1` | `Ethernet{}/1`, 1, 1 |

Name ports by purpose if they are broken out, have several speeds, or if uplinks come first:

```yaml
leaves:
  ports: {uplinks: "Ethernet[0-248/8]", nodes: "Ethernet[256-508/4]"}       # 32 of 800G, 64 of 400G
  # ports: {nodes: "swp[1-32]s[0-1]", uplinks: "swp[33-63]", storage: "swp64"}
  # ports: {nodes: ["Ethernet[1-30]/[1,5]", "Ethernet40/1"], uplinks: "Ethernet[33-36]/1"}
```

The lanes of SONiC follow from the chip (`spectrum4`: 8 with up to 64 ports, 4 with 128; `spectrum6`
at 800G: 4), or are eight for other chips at 800G; otherwise write `port_step` or the names. Names
that the system or the chip cannot have are rejected.

CHIPS.

[Headroom](qos-contract.md#headroom) is computed for `spectrum` to `spectrum6`. A SONiC switch with
another chip may have a table of its vendor. Otherwise write the vendor's values under
[`asics`](#asics).

A storage host may use any free leaf port (nodes use the first ones, spines the last).

## Management and other networks

Management subnets per rack, BMCs, and a storage network on an LACP bond:

```yaml
management: {subnet: [10.0.1.0/24, 10.0.2.0/24], bmc_subnet: 10.9.0.0/24}
nodes:
  count: 4
  management_first: 10.0.1.11
  bmc_first: 10.9.0.11
  networks: {storage: 10.60.0.11}
networks:
  - name: storage
    subnet: 10.60.0.0/24
    interface: bond0
    members: [ens1f0np0, ens1f1np1]
    speed_gbps: 400
```

Hosts must route between management subnets.

## Shared file systems

Examples: [NFS](shared-storage.md), [VAST](shared-storage.md#vast), [Lustre](lustre.md#settings). A
file system of another type:

```yaml
filesystems:
  - name: data
    type: wekafs
    managed: false               # others install its client and mount it
    source: backend01/data
    mount: /mnt/data
    purpose: datasets
```

- Mount points and served directories must not overlap each other or system directories; the server
  may mount a file system at its served directory. `/usr/local/...` and `/opt/...` are allowed.
- The owner and mode of a served directory are changed: use `/srv/checkpoints`, not `/srv`.
- `source` of a served file system begins with a name or address of its host: management, a rail
  (`node01-rail0`), or one of a storage host's `links`.
- An external server must not have an address or name of a node or switch. File systems served by
  two hosts have different addresses.
- With `transport: rdma`, `hosts` must not include the launcher, which has no rails.
- Options with a key (`vers`, `proto`, `port`, `nconnect`, `flock`) and `soft` (data loss if the
  server is slow) are rejected. Others are passed to mount.
"""

SMALLEST = """\
plugin: baremetal.mpi_roce.cluster
name: small
management: {subnet: 10.0.0.0/24}
nodes: {count: 2, management_first: 10.0.0.11}
gpus: {count: 8}
rails: {count: 8, speed_gbps: 800}
addresses: {pool: 10.1.0.0/16}
leaves: {count: 8, ports: 64, management_first: 10.0.0.101}
launcher: {name: launcher01, management: 10.0.0.10}
"""


SHORT = {
    schema.HOST_NAME.wanted: "host name",
    "a name of a to z, 0 to 9, - and _": "name",
    "a chip's name (a to z, 0 to 9, - and _)": "chip",
    "a rack name (letters, digits, -, _ and dots)": "rack",
    "an interface name of at most 15 characters": "interface",
    "a SHA-256 checksum (64 digits 0 to 9, a to f)": "SHA-256 checksum",
    "list of a port name or range": "list of port names and ranges",
    "a description of letters, digits, spaces and .,:;/()+_-": "text",
    "a URL (https, http, file)": "URL",
    " without user or password": "",
}
"""Kinds whose details are above the tables."""

Row = tuple[str, str, str, str]

KIND = "kinds."
"""Start of the names of sections whose keys are those of another section."""

SHARED_WORDS = 18
"""Minimum length of shared rows for a section to refer to an earlier one."""

REFUSED = SMALLEST.replace("nodes: {count", "nodes: {cuont").replace(
    "speed_gbps: 800", "speed_gbps: 800, mtu: 90000"
)


def page() -> str:
    every = {section.name: section for section in _sections(schema.MODEL)}
    sections = [section for name, section in every.items() if not name.startswith(KIND)]
    head = HEAD.format(smallest=SMALLEST, refused=_refused().replace("\n", "\n    "))
    tables = (_section(section, sections[:index]) for index, section in enumerate(sections))
    return head + "".join(tables) + TAIL.replace("CHIPS", _chips())


def _chips() -> str:
    names = ", ".join(f"`{name}`" for name, chip in ASICS.items() if chip.lanes)
    return textwrap.fill(f"Chips with known lanes: {names}", 100)


def _refused() -> str:
    try:
        compile_model(read("inventories/small/cluster.yml", REFUSED))
    except ModelError as error:
        return str(error)
    raise AssertionError("the bad example compiles")


def _sections(section: kinds.Section) -> Iterator[kinds.Section]:
    """Yield the section and all sections below it, in the order of the model."""
    yield section
    for key in section.keys:
        below = kinds.section_in(key.kind)
        if below is not None:
            yield from _sections(below)


def _section(section: kinds.Section, earlier: list[kinds.Section]) -> str:
    """Return the table of a section, without rows of an earlier section."""
    purpose = textwrap.fill(section.help, 100, break_long_words=False, break_on_hyphens=False)
    lines = [f"\n### {section.name}\n\n{purpose}\n"]
    rows = {key.name: _row(key) for key in section.keys}
    for other in earlier:
        same = [key.name for key in other.keys if rows.get(key.name) == _row(key)]
        if sum(len(" ".join(rows[name]).split()) for name in same) < SHARED_WORDS:
            continue
        without = [key.name for key in other.keys if key.name not in same]
        anchor = other.name.replace(".", "")
        rows = {name: row for name, row in rows.items() if name not in same}
        if len(without) < len(same):
            but = f", except {_names(without)}" if without else ""
            lines.append(f"Keys of [{other.name}](#{anchor}){but}.\n")
        else:
            lines.append(f"As in [{other.name}](#{anchor}): {_names(same)}.\n")
    if rows:
        lines += _table([("key", "type", "default", ""), *rows.values()])
    return "\n".join(lines).rstrip() + "\n"


def _names(keys: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in keys)


def _row(key: kinds.Key) -> Row:
    name, below = f"`{key.name}`", kinds.section_in(key.kind)
    if below is not None and below.name.startswith(KIND):
        differing = _names(inner.name for inner in below.keys)
        return f"`{key.name}`", "section or null", "", f"{below.help} Keys: {differing}."
    if below is not None:
        name = f"[{name}](#{below.name.replace('.', '')})"
    name = f"**{name}**" if key.required else name
    kind = key.kind.describe()
    for long, short in SHORT.items():
        kind = kind.replace(long, short)
    kind = re.sub(r"\b(list of (?:section|host name))\b", r"\1s", kind)
    return name, kind, _default(key), key.help


def _table(rows: list[Row]) -> list[str]:
    """A Markdown table without its empty columns."""
    columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
    head, *body = (f"| {' | '.join(row)} |" for row in zip(*columns, strict=True))
    return [head, "|" + "---|" * len(columns), *body]


def _default(key: kinds.Key) -> str:
    if key.default_text:
        return key.default_text
    below = kinds.section_in(key.kind)
    if key.required or below is not None or key.default in (None, "", [], {}):
        return ""
    return f"`{_shown(key.default)}`"


def _shown(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value)


def json_schema() -> str:
    """The keys for editors. Keys at the top that begin with x- are a place for anchors. With kinds
    of nodes, the top level needs no rails."""
    model = schema.MODEL.json()
    model["required"].remove("rails")
    rails = {key: model["properties"]["rails"][key] for key in ("type", "description")}
    rails["required"] = model["properties"]["rails"].pop("required")
    found = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": f"Cluster model of {schema.PLUGIN.rpartition('.')[0]}",
        **model,
        "patternProperties": {"^x-": {}},
        "if": {"not": {"required": ["kinds"]}},
        "then": {"required": ["rails"], "properties": {"rails": rails}},
    }
    return json.dumps(found, indent=1) + "\n"


if __name__ == "__main__":
    for path, content in ((PAGE, page()), (JSON_SCHEMA, json_schema())):
        path.write_text(content, encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
