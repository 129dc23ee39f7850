#!/usr/bin/env python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write docs/cluster-model.md from the schema that validates models.

The program has no options. A unit test compares the page with its output.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "cluster-model.md"

if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "collections"))

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
[inventories/b300/cluster.yml](../inventories/b300/cluster.yml).

    ansible-inventory -i inventories/NAME --graph        # hosts and groups
    ansible-inventory -i inventories/NAME --host node01  # variables of a node

The smallest model:

```yaml
{smallest}```

Values of a single node belong under `nodes.overrides`; role variables in `host_vars/` next to the
model, or under `vars`. Nodes added at the end change no address, port or name of others. List
removed nodes under `nodes.absent`, which reserves their addresses and ports.

An invalid model is rejected with all errors before any host is contacted (keys and types first,
then rules):

    {refused}

## Keys

**Bold** keys are required. Host names consist of a to z, 0 to 9 and inner hyphens, at most 63
characters.
"""

TAIL = """
## Rejected models

In addition to unknown keys, wrong types and values out of range:

- an empty cluster; a second model in the same inventory, such as a copy;
- duplicate names, addresses or PCI addresses; a host named like a group, a rail (`node01-rail0`)
  or `localhost`;
- loopback, link-local, multicast or reserved networks;
- a management address outside its subnet; rails that overlap the management subnet;
- a pool or subnet with too few addresses;
- a rail without a leaf; more nodes than leaf ports; more uplinks than spine ports;
- lists without one entry per rail, plane, GPU or switch;
- an unknown chip, or one without ports of that speed; SONiC ports with unknown lanes;
- a storage link to a missing or used port;
- drained nodes and overrides of unknown nodes;
- an invalid [QoS contract](qos-contract.md), or one that the rails' MTU does not allow;
- an invalid or incompatible [software set](software-set.md);
- a file system with an invalid source or one at an address that its server cannot have, mounted
  over a system directory or another file system, with options that have a key, for missing groups,
  or served by a host that `source` does not name;
- variables for a missing group, or with a name that the model sets.

Warnings: a pool of public addresses; all nodes drained; files in `host_vars` and `group_vars` for
unknown hosts and groups (by the first play of `site.yml`).

## Ports of leaves and spines

`cluster_ports` of a leaf or spine is a list of groups of ports that differ only in their peer:

| | |
|---|---|
| `kind` | `host` (to a node), `storage` (to a storage host), `uplink` (to a spine), `downlink` |
| `peer_interface` | interface at the other end of every cable |
| `peers` | port -> peer |
| `speed_gbps`, `mtu` | as at the other end; for storage hosts `rails.mtu` |
| `rail`, `plane` | of the ports to nodes; otherwise null |
| `prefix`, `address` | with `subnet_per_rail`: the shared gateway |
| `addresses` | with `point_to_point`: port -> address |

## Systems and port names

Port names follow the system: with `system: [sonic, nvue, eos]` the first ports are `Ethernet0`,
`swp1` and `Ethernet1/1`. `port`, `port_start` and `port_step` override them.

SONiC numbers lanes: ports of eight lanes are `Ethernet0`, `Ethernet8`, ... The lanes follow from
the chip (`spectrum4`: 8 with 64 ports, 4 with up to 128; `spectrum6` with 128 ports of 800G: 4), or
are eight for other chips at 800G; otherwise `port_step` is required. The layer `fabric` rejects a
switch with ports between the computed ones.

[Headroom](qos-contract.md#headroom) is computed for `spectrum` to `spectrum6`. A SONiC switch with
another chip may have a table of its vendor. Otherwise write the vendor's values:

```yaml
asics:
  tomahawk5:
    headroom:
      - {speed_gbps: 800, cable_metres: 50, size_bytes: ..., xon_bytes: ..., xoff_bytes: ...,
         threshold: ..., xon_offset_bytes: ...}
```

A storage host may use any free leaf port (nodes use the first ones, spines the last):

```yaml
storage:
  - name: storage01
    management: 10.0.0.21
    links:
      - {leaf: leaf01, port: Ethernet64, interface: ens1f0np0, speed_gbps: 400}
```

## Shared file systems

```yaml
filesystems:
  - name: checkpoints
    type: nfs
    source: storage01:/srv/checkpoints
    mount: /mnt/checkpoints
    purpose: checkpoints
    serve: {host: storage01}     # omit for a server outside this cluster
  - name: scratch
    type: lustre
    source: 10.0.0.31@o2ib,10.0.1.31@o2ib1:10.0.0.32@o2ib:/scratch
    mount: /mnt/scratch
    purpose: scratch
    hosts: [compute]
```

- Mount points and served directories consist of letters, digits, `.`, `_` and `-`. They must not
  overlap system directories, other mount points or served directories; the server may mount a file
  system at its served directory. Other directories in `/usr/local` and `/opt` are allowed.
- The owner and mode of a served directory are changed: use `/srv/checkpoints`, not `/srv`.
- `source` of a served file system begins with a name or address of its host: management, a rail
  (`node01-rail0`), or one of a storage host's `links`.
- With `transport: rdma`, `hosts` must not include the launcher, which has no rails.
- Mounts from one server with the same version (4.1, 4.2) share a connection; a second transport
  needs another version.
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


SHARED_KEYS = 3
"""Minimum number of shared keys for a section to refer to an earlier one."""

REFUSED = SMALLEST.replace("nodes: {count", "nodes: {cuont").replace(
    "speed_gbps: 800", "speed_gbps: 800, mtu: 90000"
)


def page() -> str:
    sections = list(_sections(schema.MODEL))
    head = HEAD.format(smallest=SMALLEST, refused=_refused().replace("\n", "\n    "))
    tables = (_section(section, sections[:index]) for index, section in enumerate(sections))
    return head + "".join(tables) + TAIL


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
    lines = [f"\n### {section.name}\n\n{section.help}\n"]
    rows = {key.name: _row(key) for key in section.keys}
    for other in earlier:
        same = [key.name for key in other.keys if rows.get(key.name) == _row(key)]
        if len(same) >= SHARED_KEYS:
            names = ", ".join(f"`{name}`" for name in same)
            anchor = other.name.replace(".", "")
            lines.append(f"As in [{other.name}](#{anchor}): {names}.\n")
            rows = {name: row for name, row in rows.items() if name not in same}
            break
    if rows:
        lines += ["| key | type | default | |", "|---|---|---|---|", *rows.values()]
    return "\n".join(lines).rstrip() + "\n"


def _row(key: kinds.Key) -> str:
    name = f"**`{key.name}`**" if key.required else f"`{key.name}`"
    kind = key.kind.describe().replace(schema.HOST_NAME.wanted, "host name")
    return f"| {name} | {kind} | {_default(key)} | {key.help} |"


def _default(key: kinds.Key) -> str:
    if key.default_text:
        return key.default_text
    below = kinds.section_in(key.kind)
    if key.required or key.default is None or below is not None:
        return ""
    return f"`{_shown(key.default)}`"


def _shown(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
