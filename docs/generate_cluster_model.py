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

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.schema import kinds  # noqa: E402
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import (  # noqa: E402
    ModelError,
    compile_model,
    read,
    schema,
)

HEAD = """\
<!-- Written by docs/generate_cluster_model.py from the schema. Edit that, and run it. -->
# Cluster model

One file, `inventories/NAME/cluster.yml`, describes a cluster. The inventory plugin
`baremetal.mpi_roce.cluster` compiles it to hosts, groups and variables
([architecture.md](architecture.md) has those). Look at
[inventories/b300/cluster.yml](../inventories/b300/cluster.yml) first: it is a page and commented.

    ansible-inventory -i inventories/NAME --graph        # hosts and groups
    ansible-inventory -i inventories/NAME --host node01  # what a node will get

The smallest model there is:

```yaml
{smallest}```

What differs on one machine goes into `host_vars/` beside the model, or under `vars`. Adding nodes
at the end changes no address, port or name of the others; a node that goes is named under
`nodes.absent`, which keeps its place free.

A model that cannot be built is refused before any host is touched. Every reason is told at once,
with its line, the key, the value and the way out:

    {refused}

## Keys

**Bold** keys are required.
"""

TAIL = """
## What cannot be built

Besides unknown keys, wrong types and values out of range, a model is refused for:

- an empty cluster;
- a name, address or PCI address that is there twice; a host named like a group;
- a management address outside its subnet; rails that overlap the management subnet;
- a pool or subnet with too few addresses;
- a rail without a leaf; more nodes than leaf ports; more uplinks than spine ports;
- lists that do not have one entry per rail, plane, GPU or switch;
- a chip that nobody knows, or that has no port of that speed; SONiC ports whose lanes nobody knows;
- a storage link to a port that is not there or not free;
- drained nodes and overrides that name no node;
- a QoS contract that cannot be kept, or that the rails' MTU does not allow
  ([qos-contract.md](qos-contract.md));
- a software set with keys that need or exclude each other, or with versions that are known not to
  go together ([software-set.md](software-set.md));
- a file system with a source that none can have, over a directory of the system or over another
  one, with options that a key says, for groups that are not there, or served by a host that
  `source` does not name; one that would be exported to others than the hosts of the cluster;
- variables for a group that is not there, or with a name that the model itself sets.

## Ports of leaves and spines

`cluster_ports` of a leaf or spine is a list of groups of ports that differ in their peer alone:

| | |
|---|---|
| `kind` | `host` (to a node), `storage` (to a storage host), `uplink` (to a spine), `downlink` |
| `peer_interface` | the interface at the other end of every cable of the group |
| `peers` | port to peer |
| `speed_gbps`, `mtu` | as on the other end; towards a storage host `rails.mtu` |
| `rail`, `plane` | which one the ports carry; null on the others |
| `prefix`, `address` | with `subnet_per_rail`, the gateway that the ports share |
| `addresses` | with `point_to_point`, port to its own address |

Written by hand, `rail` of a group of kind `host` has to be there; what a group cannot be is
refused by host and key, with everything else that is wrong in the inventory, before any host is
touched.

## Systems and port names

A port is called what the switch's own system calls it. With `system: [sonic, nvue, eos]` the first
port of each leaf is `Ethernet0`, `swp1` and `Ethernet1/1`, in `cluster_ports`, in the rails'
`leaf_port` and as `peer_interface` at the other end of a link. `port`, `port_start` and `port_step`
come before that, for all leaves or all spines.

SONiC counts lanes: with eight of them, ports are `Ethernet0`, `Ethernet8`, ... How many a port has
follows from `asic` and `ports` (`spectrum4` with 64 ports: 8, with 128: 4), or from 800G, which has
eight; where neither is known, `port_step` has to be written.

The headroom of ports is computed for `spectrum4`. Other chips take it from `asics`:

```yaml
asics:
  tomahawk5:
    headroom:
      - {speed_gbps: 800, cable_metres: 50, size_bytes: ..., xon_bytes: ..., xoff_bytes: ...}
```

A storage host's cables are said with their port on the leaf, which may be any that is free: nodes
have the first ports, spines the last.

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
    lustre: {stripe_count: -1, stripe_size_mib: 16}
```

Mount points and served directories are written in letters, digits, `.`, `_` and `-`: units,
exports and /proc all write these as they are. Nothing is mounted over the system (`/`, `/etc`,
`/usr`, `/var`, `/tmp`, ... and what is in them; a directory of your own in `/usr/local` or `/opt`
may be), nor over another file system or a directory that is served. Only a file system's own
directory may have the path that it is mounted at. A directory that is served is one of its own, as
it gets the owner and mode of its file system: not `/srv`, but `/srv/checkpoints`.

`source` of a file system that a host of the cluster serves begins with a name or address that the
cluster has of it: its name, its management address, or a rail (`node01-rail0`). A storage host may
have addresses besides, on the cables that `links` names; one that is of another host is refused.
With `transport: rdma` the launcher, which has no rails, is not in `hosts`.

An option that a key says (`vers`, `proto`, `port`, `nconnect`, `flock`) is not written under
`options`, nor is one beside its contrary (`ro`, `rw`). `soft` is refused: it gives a job an error,
or loses what it wrote, when the server is slow for a while. All others are passed on as they are
written: with an unknown one the mount fails, and the message of the node's mount program is
reported. There is no key for clients of an export, nor one that lets their root be root.
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
