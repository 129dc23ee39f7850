#!/usr/bin/env python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write docs/cluster-model.md from the schema that validates models: run it, it has no options.

A unit test fails while the page is not what this writes.
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

`inventories/NAME/cluster.yml` describes a cluster. The inventory plugin
`baremetal.mpi_roce.cluster` compiles it to hosts, groups and variables
([architecture.md](architecture.md)). Commented example:
[inventories/b300/cluster.yml](../inventories/b300/cluster.yml).

    ansible-inventory -i inventories/NAME --graph        # hosts and groups
    ansible-inventory -i inventories/NAME --host node01  # variables of a node

The smallest model:

```yaml
{smallest}```

What differs on one node goes under `nodes.overrides`; variables of roles go into `host_vars/`
beside the model, or under `vars`. Nodes added at the end change no address, port or name of others;
a removed node is named under `nodes.absent`, which keeps its place free.

An invalid model is refused before any host is touched, with all errors at once (wrong keys and
types first, then what the rules find):

    {refused}

## Keys

**Bold** keys are required.
"""

TAIL = """
## Refused models

Besides unknown keys, wrong types and values out of range:

- an empty cluster; a second model in the same inventory, such as a copy beside the first;
- duplicate names, addresses or PCI addresses; a host named like a group, a rail (`node01-rail0`)
  or `localhost`;
- networks of loopback, link-local, multicast or reserved addresses;
- a management address outside its subnet; rails that overlap the management subnet;
- a pool or subnet with too few addresses;
- a rail without a leaf; more nodes than leaf ports; more uplinks than spine ports;
- lists without one entry per rail, plane, GPU or switch;
- an unknown chip, or one without ports of that speed; SONiC ports with unknown lanes;
- a storage link to a missing or used port;
- drained nodes and overrides of unknown nodes;
- an invalid [QoS contract](qos-contract.md), or one that the rails' MTU does not allow;
- an invalid or incompatible [software set](software-set.md);
- a file system with an invalid source, from an address that its server cannot have (a gateway,
  another host's, a network without a link of the server), over a system directory or another file
  system, with options that have a key, for missing groups, served by a host that `source` does not
  name, or exported to others than the cluster's hosts;
- variables for a missing group, or with a name that the model itself sets.

Warnings: a pool of public addresses; all nodes drained; files in `host_vars` and `group_vars` for
unknown hosts and groups (by the first play of `site.yml`).

## Ports of leaves and spines

`cluster_ports` of a leaf or spine is a list of groups of ports that differ only in their peer:

| | |
|---|---|
| `kind` | `host` (to a node), `storage` (to a storage host), `uplink` (to a spine), `downlink` |
| `peer_interface` | the interface at the other end of every cable of the group |
| `peers` | port to peer |
| `speed_gbps`, `mtu` | as on the other end; towards a storage host `rails.mtu` |
| `rail`, `plane` | which one the ports carry; null on the others |
| `prefix`, `address` | with `subnet_per_rail`, the gateway that the ports share |
| `addresses` | with `point_to_point`, port to its own address |

## Systems and port names

Ports have the names of the switch's system: with `system: [sonic, nvue, eos]` the first ports are
`Ethernet0`, `swp1` and `Ethernet1/1`, in `cluster_ports`, `leaf_port` and `peer_interface`.
`port`, `port_start` and `port_step` override them.

SONiC counts lanes: with eight, ports are `Ethernet0`, `Ethernet8`, ... A port of a known chip has
as many lanes as fit (`spectrum4` with 64 ports: 8, with 65 to 128: 4; `spectrum6` with 128 ports of
800G: 4), of another one eight at 800G; otherwise `port_step` is required. The layer `fabric`
refuses a switch with ports between those that the model computed.

[Headroom](qos-contract.md#headroom) is computed for `spectrum` to `spectrum6`. A SONiC switch of
another chip may have it in its own table. Otherwise the vendor's rows are needed:

```yaml
asics:
  tomahawk5:
    headroom:
      - {speed_gbps: 800, cable_metres: 50, size_bytes: ..., xon_bytes: ..., xoff_bytes: ...,
         threshold: ..., xon_offset_bytes: ...}
```

A storage host's cable may use any free leaf port (nodes have the first, spines the last):

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
    serve: {host: storage01}     # left out where the server is not of this cluster
  - name: scratch
    type: lustre
    source: 10.0.0.31@o2ib,10.0.1.31@o2ib1:10.0.0.32@o2ib:/scratch
    mount: /mnt/scratch
    purpose: scratch
    hosts: [compute]
```

- Mount points and served directories consist of letters, digits, `.`, `_` and `-`. They must not
  be system directories (`/`, `/etc`, `/usr`, `/var`, `/tmp`, ... and below; own directories in
  `/usr/local` or `/opt` may be), other file systems or served directories, except that a file
  system may be mounted at the path of its own served directory.
- A served directory is the file system's own (it gets its owner and mode): `/srv/checkpoints`,
  not `/srv`.
- `source` of a served file system begins with a name or an address of its host: management, a rail
  (`node01-rail0`), or one of a storage host's `links`.
- With `transport: rdma`, `hosts` must not include the launcher (no rails).
- Mounts of one server by one version (4.1, 4.2) share a connection: for another transport write
  another version, or `storage_options` fails.
- Options with a key (`vers`, `proto`, `port`, `nconnect`, `flock`) and `soft` (data loss on a slow
  server) are refused. All others are passed on: an unknown one fails the mount, and the mount
  program's message is reported. An export has no keys for clients or for root access.
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


REFUSED = SMALLEST.replace("nodes: {count", "nodes: {cuont").replace(
    "speed_gbps: 800", "speed_gbps: 800, mtu: 90000"
)


def page() -> str:
    sections = list(_sections(schema.MODEL))
    head = HEAD.format(smallest=SMALLEST, refused=_refused().replace("\n", "\n    "))
    return head + "".join(map(_section, sections)) + TAIL


def _refused() -> str:
    try:
        compile_model(read("inventories/small/cluster.yml", REFUSED))
    except ModelError as error:
        return str(error)
    raise AssertionError("the bad example compiles")


def _sections(section: kinds.Section) -> Iterator[kinds.Section]:
    """The section and those below it, each once, in the order of the model."""
    yield section
    for key in section.keys:
        below = kinds.section_in(key.kind)
        if below is not None:
            yield from _sections(below)


def _section(section: kinds.Section) -> str:
    lines = [
        f"\n### {section.name}\n\n{section.help}\n",
        "| key | type | default | |",
        "|---|---|---|---|",
    ]
    for key in section.keys:
        name = f"**`{key.name}`**" if key.required else f"`{key.name}`"
        lines.append(f"| {name} | {key.kind.describe()} | {_default(key)} | {key.help} |")
    return "\n".join(lines) + "\n"


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
