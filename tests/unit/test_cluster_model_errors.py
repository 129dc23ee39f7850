# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# ruff: noqa: E501  (messages stand here as the operator sees them, in one line)
"""Every way to get a model wrong, and the exact words that tell what, where and the way out."""

from __future__ import annotations

import contextlib
import copy
import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.cluster_model import (
    ModelError,
    compile_model,
    load,
    read,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.schema.findings import SHOWN
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.small_model import MODEL as BASE
from tests.unit.small_model import refused

ROOT = Path(__file__).resolve().parents[2]


class Case(NamedTuple):
    """`new` in place of `old` in BASE ("<all>": of all) is refused with these lines."""

    name: str
    old: str
    new: str
    lines: list[str]


CASES = (
    Case(
        "unknown key",
        "ports: 64",
        "prots: 64",
        [
            "line 8: leaves.prots: unknown key. Did you mean 'ports'? Known here: count, name, management_first, ports, system, asic, port, port_start, port_step, rail_to_leaf, nodes_per_set.",
            "line 8: leaves.ports: is missing. Add it: integer 1..4096, ports.",
        ],
    ),
    Case(
        "unknown section",
        "launcher:",
        "luncher:",
        [
            "line 1: launcher: is missing. Add it: a section with name, management.",
            "line 9: luncher: unknown key. Did you mean 'launcher'? Known here: plugin, name, domain, mpi, management, nodes, gpus, rails, addresses, leaves, spines, asics, roce_qos, software, launcher, storage, filesystems, vars.",
        ],
    ),
    Case(
        "unknown key like no other",
        "name: small",
        "name: small\nqqq: 1",
        [
            "line 3: qqq: unknown key. Known here: plugin, name, domain, mpi, management, nodes, gpus, rails, addresses, leaves, spines, asics, roce_qos, software, launcher, storage, filesystems, vars.",
        ],
    ),
    Case(
        "missing section",
        "gpus: {count: 2}\nrails: {count: 2, speed_gbps: 800}\n",
        "gpus: {count: 2}\n",
        [
            "line 1: rails: is missing. Add it: a section with count, speed_gbps.",
        ],
    ),
    Case(
        "null section",
        "{count: 2, speed_gbps: 800}",
        "",
        [
            "line 6: rails: an empty value is not a mapping. Write keys below it.",
        ],
    ),
    Case(
        "list section",
        "{count: 2, speed_gbps: 800}",
        "[1]",
        [
            "line 6: rails: a list is not a mapping. Write keys below it.",
        ],
    ),
    Case(
        "wrong type int",
        "count: 2, management",
        "count: four, management",
        [
            "line 4: nodes.count: 'four' is not a whole number. Write one from 0 to 100000.",
        ],
    ),
    Case(
        "quoted int",
        "count: 2, management",
        'count: "2", management',
        [
            "line 4: nodes.count: '2' is text, not a number. Write 2 without quotes.",
        ],
    ),
    Case(
        "bool int",
        "count: 2, management",
        "count: yes, management",
        [
            "line 4: nodes.count: true is not a whole number. Write one from 0 to 100000.",
        ],
    ),
    Case(
        "float",
        "count: 2, management",
        "count: 2.5, management",
        [
            "line 4: nodes.count: 2.5 is not a whole number. Write one from 0 to 100000.",
        ],
    ),
    Case(
        "empty",
        "count: 2, management",
        "count: 0, management",
        [
            "line 4: nodes: the cluster is empty: it has no node. Give it at least one.",
        ],
    ),
    Case(
        "negative count",
        "count: 2, management",
        "count: -1, management",
        [
            "line 4: nodes.count: -1 is out of range. Write one from 0 to 100000.",
        ],
    ),
    Case(
        "counted and listed",
        "nodes: {",
        "nodes: {list: [], ",
        [
            "line 4: nodes: nodes are either counted or listed, and both are here. Write one of count and list.",
        ],
    ),
    Case(
        "neither counted nor listed",
        "{count: 2, management_first",
        "{management_first",
        [
            "line 4: nodes: nodes are either counted or listed, and neither is here. Write one of count and list.",
        ],
    ),
    Case(
        "empty list",
        "{count: 2, ",
        "{list: [], ",
        [
            "line 4: nodes: the cluster is empty: it has no node. Give it at least one.",
        ],
    ),
    Case(
        "all absent",
        "{count: 2, ",
        "{count: 2, absent: [node01, node02], ",
        [
            "line 4: nodes.absent: the cluster is empty: every node is absent. Keep at least one.",
        ],
    ),
    Case(
        "MTU too large",
        "speed_gbps: 800",
        "speed_gbps: 800, mtu: 65536",
        [
            "line 6: rails.mtu: 65536 is out of range. Write one from 1280 to 9978 (bytes, layer 3).",
        ],
    ),
    Case(
        "MTU too small",
        "speed_gbps: 800",
        "speed_gbps: 800, mtu: 576",
        [
            "line 6: rails.mtu: 576 is out of range. Write one from 1280 to 9978 (bytes, layer 3).",
        ],
    ),
    Case(
        "speed",
        "speed_gbps: 800",
        "speed_gbps: 800000",
        [
            "line 6: rails.speed_gbps: 800000 is out of range. Write one from 1 to 3200 (Gb/s).",
        ],
    ),
    Case(
        "subnet hostbits",
        "10.0.0.0/24",
        "10.0.0.1/24",
        [
            "line 3: management.subnet: '10.0.0.1/24' is an address inside a network. Write 10.0.0.0/24.",
        ],
    ),
    Case(
        "subnet noprefix",
        "10.0.0.0/24",
        "10.0.0.0",
        [
            "line 3: management.subnet: '10.0.0.0' is a network without a prefix length. Write one, as in 10.0.0.0/24.",
        ],
    ),
    Case(
        "subnet v6",
        "10.0.0.0/24",
        "fd00::/64",
        [
            "line 3: management.subnet: 'fd00::/64' is an IPv6 network, and this model has IPv4 only. Write one such as 10.0.0.0/24.",
        ],
    ),
    Case(
        "subnet bad",
        "10.0.0.0/24",
        "10.0.0/24",
        [
            "line 3: management.subnet: '10.0.0/24' is not an IPv4 network. Write one such as 10.0.0.0/24.",
        ],
    ),
    Case(
        "address bad",
        "management: 10.0.0.10",
        "management: 10.0.0.300",
        [
            "line 9: launcher.management: '10.0.0.300' is not an IPv4 address. Write one such as 10.0.0.10.",
        ],
    ),
    Case(
        "address number",
        "management: 10.0.0.10",
        "management: 10",
        [
            "line 9: launcher.management: '10' is not an IPv4 address. Write one such as 10.0.0.10.",
        ],
    ),
    Case(
        "overlap",
        "10.1.0.0/16",
        "10.0.0.0/16",
        [
            "line 7: addresses.pool: 10.0.0.0/16 overlaps the management subnet 10.0.0.0/24. Give rails and management networks of their own.",
        ],
    ),
    Case(
        "pool exhausted",
        "10.1.0.0/16",
        "10.1.0.0/24",
        [
            "line 7: addresses.pool: 2 subnets of /24 are needed (2 for each of 1 set of leaves), the pool 10.1.0.0/24 holds 1. Take a larger pool, or another prefix.",
        ],
    ),
    Case(
        "subnet exhausted",
        "pool: 10.1.0.0/16",
        "pool: 10.1.0.0/16, prefix: 30",
        [
            "line 7: addresses.pool: 2 nodes need an address in each subnet, a /30 has room for 1 from place 2 on. Take a larger pool, or another prefix.",
        ],
    ),
    Case(
        "subnet larger",
        "10.1.0.0/16}",
        "10.1.0.0/26}",
        [
            "line 7: addresses.pool: one /24 subnet is larger than the pool 10.1.0.0/26. Take a larger pool, or another prefix.",
        ],
    ),
    Case(
        "point-to-point pool exhausted",
        "pool: 10.1.0.0/16",
        "plan: point_to_point, pool: 10.1.0.0/30",
        [
            "line 7: addresses.pool: 4 links of /31 are needed (2 nodes, 2 each), the pool 10.1.0.0/30 holds 2. Take a larger pool.",
        ],
    ),
    Case(
        "misspelt choice",
        "pool: 10.1.0.0/16",
        "plan: point_to_piont, pool: 10.1.0.0/30",
        [
            "line 7: addresses.plan: 'point_to_piont' is not a choice. Did you mean 'point_to_point'? Known here: subnet_per_rail, point_to_point.",
        ],
    ),
    Case(
        "mgmt outside",
        "10.0.0.11",
        "10.0.1.11",
        [
            "line 4: nodes.management_first: 10.0.1.11 (node01) and 1 more are no host address of the management subnet 10.0.0.0/24. Choose others, or a larger management.subnet.",
        ],
    ),
    Case(
        "mgmt runs out",
        "{count: 2, management_first: 10.0.0.11",
        "{count: 60, management_first: 10.0.0.200",
        [
            "line 4: nodes.management_first: 10.0.0.255 (node56) and 4 more are no host address of the management subnet 10.0.0.0/24. Choose others, or a larger management.subnet.",
        ],
    ),
    Case(
        "mgmt broadcast",
        "management: 10.0.0.10",
        "management: 10.0.0.255",
        [
            "line 9: launcher.management: 10.0.0.255 (launcher01) is no host address of the management subnet 10.0.0.0/24. Choose others, or a larger management.subnet.",
        ],
    ),
    Case(
        "mgmt dup",
        "management: 10.0.0.10",
        "management: 10.0.0.12",
        [
            "line 4: nodes.management_first: 10.0.0.12 (node02): taken by launcher01. Give each host a management address of its own.",
        ],
    ),
    Case(
        "mgmt dup ranges",
        "count: 2, management_first: 10.0.0.11",
        "count: 40, management_first: 10.0.0.90",
        [
            "line 8: leaves.management_first: 10.0.0.101 (leaf01) and 1 more: taken by node12, node13. Give each host a management address of its own.",
        ],
    ),
    Case(
        "mgmt missing",
        "{count: 2, management_first: 10.0.0.11}",
        "{count: 2}",
        [
            "line 4: nodes.management_first: node01 and 1 more have no management address. Give the first node's here, or each its own management.",
        ],
    ),
    Case(
        "name dup",
        "name: launcher01",
        "name: node02",
        [
            "line 9: launcher.name: the name 'node02' is taken by nodes.name (line 4). Rename one of them.",
        ],
    ),
    Case(
        "name dup listed",
        "{count: 2, management_first",
        "{list: [{name: a}, {name: a}], management_first",
        [
            "line 4: nodes.list[1]: the name 'a' is taken by nodes.list[0] (line 4). Rename one of them.",
        ],
    ),
    Case(
        "name group",
        "name: launcher01",
        "name: launcher",
        [
            "line 9: launcher.name: 'launcher' is also the name of a group, and Ansible cannot tell them apart. Name the host launcher01, for example.",
        ],
    ),
    Case(
        "name bad",
        "name: launcher01",
        "name: Launcher_1",
        [
            "line 9: launcher.name: 'Launcher_1' is not a host name (a to z, 0 to 9 and inner hyphens, at most 63 characters). Write one such as node01.",
        ],
    ),
    Case(
        "name pattern bad host",
        "{count: 2, ",
        '{count: 2, name: "node_{}", ',
        [
            "line 4: nodes.name: 'node_1' is not a host name (a to z, 0 to 9 and inner hyphens, at most 63 characters). Change the pattern.",
        ],
    ),
    Case(
        "pattern none",
        "{count: 2, ",
        "{count: 2, name: node, ",
        [
            "line 4: nodes.name: 'node' is no pattern: it needs {} exactly once. Write one such as node{:02d}.",
        ],
    ),
    Case(
        "pattern field",
        "{count: 2, ",
        '{count: 2, name: "node{n}", ',
        [
            "line 4: nodes.name: 'node{n}' is no pattern: it has {n}, known are {}. Write one such as node{:02d}.",
        ],
    ),
    Case(
        "pattern spec",
        "{count: 2, ",
        '{count: 2, name: "node{:s}", ',
        [
            "line 4: nodes.name: 'node{:s}' is no pattern: {:s} is no format of a number. Write one such as node{:02d}.",
        ],
    ),
    Case(
        "pattern open",
        "{count: 2, ",
        '{count: 2, name: "node{", ',
        [
            "line 4: nodes.name: 'node{' is no pattern: Single '{' encountered in format string. Write one such as node{:02d}.",
        ],
    ),
    Case(
        "pattern brace",
        "{count: 2, ",
        '{count: 2, name: "node{{ x }}{}", ',
        [
            "line 4: nodes.name: 'node{{ x }}{}' is no pattern: it has a blank or a brace in its text. Write one such as node{:02d}.",
        ],
    ),
    Case(
        "rail without leaf",
        "leaves: {count: 2",
        "leaves: {count: 1",
        [
            "line 8: leaves.count: rail 1 has no leaf: 1 leaf for 2 rails. Have 2 leaves, or let rails share them by leaves.rail_to_leaf.",
        ],
    ),
    Case(
        "leaves are no whole sets",
        "leaves: {count: 2",
        "leaves: {count: 3",
        [
            "line 8: leaves.count: 3 leaves are no whole number of sets of 2, so that rails of the last set have no leaf. Have a multiple of 2.",
        ],
    ),
    Case(
        "rail_to_leaf short",
        "ports: 64",
        "ports: 64, rail_to_leaf: [0]",
        [
            "line 8: leaves.rail_to_leaf: rail 1 has no leaf: 1 number for 2 rails. Write 2 numbers, one per rail and plane.",
        ],
    ),
    Case(
        "map long",
        "ports: 64",
        "ports: 64, rail_to_leaf: [0, 1, 1]",
        [
            "line 8: leaves.rail_to_leaf: 3 numbers for 2 rails. Write 2 numbers, one per rail and plane.",
        ],
    ),
    Case(
        "map gap",
        "ports: 64",
        "ports: 64, rail_to_leaf: [0, 2]",
        [
            "line 8: leaves.rail_to_leaf: leaf 1 of the set has no rail. Use every number from 0 to 2.",
        ],
    ),
    Case(
        "more nodes than leaf ports",
        "ports: 64",
        "ports: 1",
        [
            "line 8: leaves.count: 2 nodes, but the leaves have ports for 1 (1 set for 1 each). Have 4 leaves, leaves with more ports, or fewer nodes.",
        ],
    ),
    Case(
        "per set",
        "ports: 64",
        "ports: 64, nodes_per_set: 65",
        [
            "line 8: leaves.nodes_per_set: 65 nodes do not fit on leaves with 64 ports, 0 of them uplinks, at 1 port for each node. Write at most 64, or have more ports.",
        ],
    ),
    Case(
        "uplinks eat",
        "launcher:",
        "spines: {count: 64, ports: 64, management_first: 10.0.0.200}\nlauncher:",
        [
            "line 8: leaves.ports: 64 ports leave none for a node beside 64 uplinks. Have more ports, or fewer links to spines.",
            "line 9: spines.management_first: 10.0.0.255 (spine56) and 8 more are no host address of the management subnet 10.0.0.0/24. Choose others, or a larger management.subnet.",
        ],
    ),
    Case(
        "spine ports",
        "launcher:",
        "spines: {count: 2, ports: 1, management_first: 10.0.0.200}\nlauncher:",
        [
            "line 9: spines.ports: 2 leaves with 1 link each need 2 ports on every spine, it has 1. Have more ports, or fewer links_per_leaf.",
        ],
    ),
    Case(
        "names count",
        "ports: 64",
        "ports: 64, name: [tor-a]",
        [
            "line 8: leaves.name: 1 name for 2 leaves. Write as many names as there are switches.",
        ],
    ),
    Case(
        "leaf name dup",
        "ports: 64",
        "ports: 64, name: [tor-a, tor-a]",
        [
            "line 8: leaves.name[1]: the name 'tor-a' is taken by leaves.name[0] (line 8). Rename one of them.",
        ],
    ),
    Case(
        "pci len",
        "speed_gbps: 800",
        'speed_gbps: 800, pci: ["0000:11:00.0"]',
        [
            "line 6: rails.pci: 1 entry for 2 rails. Write 2.",
        ],
    ),
    Case(
        "pci dup",
        "speed_gbps: 800",
        "speed_gbps: 800, pci: [0000:11:00.0, 0000:11:00.0]",
        [
            "line 6: rails.pci[1]: the PCI address 0000:11:00.0 of rail 1 is also that of rail 0. Give each device its own.",
        ],
    ),
    Case(
        "pci dup gpu",
        "gpus: {count: 2}\nrails: {count: 2, speed_gbps: 800",
        "gpus: {count: 2, pci: [0000:14:00.0, 0000:2f:00.0]}\nrails: {count: 2, speed_gbps: 800, pci: [0000:11:00.0, 0000:2f:00.0]",
        [
            "line 5: gpus.pci[1]: the PCI address 0000:2f:00.0 of GPU 1 is also that of rail 1. Give each device its own.",
        ],
    ),
    Case(
        "pci short",
        "speed_gbps: 800",
        "speed_gbps: 800, pci: [11:00.0, 2f:00.0]",
        [
            "line 6: rails.pci[0]: '11:00.0' has no domain. Write 0000:11:00.0.",
            "line 6: rails.pci[1]: '2f:00.0' has no domain. Write 0000:2f:00.0.",
        ],
    ),
    Case(
        "pci bad",
        "speed_gbps: 800",
        "speed_gbps: 800, pci: [mlx5_0, 0000:2f:00.0]",
        [
            "line 6: rails.pci[0]: 'mlx5_0' is no PCI address. Write a PCI address such as 0000:11:00.0 (domain:bus:device.function).",
        ],
    ),
    Case(
        "pci planes",
        "speed_gbps: 800",
        "speed_gbps: 800, planes: 2, pci: [0000:11:00.0, 0000:2f:00.0]",
        [
            "line 6: rails.pci[0]: 1 PCI address for 2 planes of rail 0. Write 2 as a list.",
            "line 6: rails.pci[1]: 1 PCI address for 2 planes of rail 1. Write 2 as a list.",
            "line 8: leaves.count: rail 1 plane 0 has no leaf: 2 leaves for 4 planes. Have 4 leaves, or let rails share them by leaves.rail_to_leaf.",
        ],
    ),
    Case(
        "pci node",
        "{count: 2, ",
        "{count: 2, overrides: {node02: {pci: [0000:11:00.0, 0000:11:00.0]}}, ",
        [
            "line 4: nodes.overrides.node02.pci[1]: the PCI address 0000:11:00.0 of rail 1 is also that of rail 0. Give each device its own.",
        ],
    ),
    Case(
        "gpu pci len",
        "gpus: {count: 2}",
        "gpus: {count: 2, pci: [0000:14:00.0]}",
        [
            "line 5: gpus.pci: 1 entry for 2 GPUs. Write 2.",
        ],
    ),
    Case(
        "gpu numa len",
        "gpus: {count: 2}",
        "gpus: {count: 2, numa: [0]}",
        [
            "line 5: gpus.numa: 1 value for 2 GPUs. Write 2 values.",
        ],
    ),
    Case(
        "rail gpu",
        "speed_gbps: 800",
        "speed_gbps: 800, gpu: [0, 2]",
        [
            "line 6: rails.gpu[1]: there is no GPU 2: a node has 2. Count GPUs from 0, or write null.",
        ],
    ),
    Case(
        "rail gpu len",
        "speed_gbps: 800",
        "speed_gbps: 800, gpu: [0]",
        [
            "line 6: rails.gpu: 1 value for 2 rails. Write 2 values.",
        ],
    ),
    Case(
        "planes iface",
        "speed_gbps: 800",
        'speed_gbps: 800, planes: 2, interface: "r{rail}"',
        [
            "line 6: rails.interface: 'r{rail}' gives the planes of a rail the same name. Put {plane} into it.",
            "line 8: leaves.count: rail 1 plane 0 has no leaf: 2 leaves for 4 planes. Have 4 leaves, or let rails share them by leaves.rail_to_leaf.",
        ],
    ),
    Case(
        "iface long",
        "speed_gbps: 800",
        'speed_gbps: 800, interface: "verylongname{rail:04d}"',
        [
            "line 6: rails.interface: 'verylongname0001' is not an interface name of at most 15 characters. Change the pattern.",
        ],
    ),
    Case(
        "iface slash",
        "speed_gbps: 800",
        'speed_gbps: 800, interface: "a/{rail}"',
        [
            "line 6: rails.interface: 'a/1' is not an interface name of at most 15 characters. Change the pattern.",
        ],
    ),
    Case(
        "iface pattern",
        "speed_gbps: 800",
        'speed_gbps: 800, interface: "rail{}"',
        [
            "line 6: rails.interface: 'rail{}' is no pattern: it has {}, known are {rail}, {plane}. Write one such as rail{rail}.",
        ],
    ),
    Case(
        "no slots",
        "gpus: {count: 2}\n",
        "",
        [
            "line 4: nodes.slots: nodes without GPUs have no MPI slots. Say how many slots a node has, or describe gpus.",
        ],
    ),
    Case(
        "drained",
        "{count: 2, ",
        "{count: 2, drained: [node3], ",
        [
            "line 4: nodes.drained[0]: there is no node 'node3'. Did you mean 'node02'? Known here: node01, node02.",
        ],
    ),
    Case(
        "override",
        "{count: 2, ",
        "{count: 2, overrides: {node3: {}}, ",
        [
            "line 4: nodes.overrides.node3: there is no node 'node3'. Did you mean 'node02'? Known here: node01, node02.",
        ],
    ),
    Case(
        "vars name",
        "launcher:",
        "vars: {all: {a-b: 1}}\nlauncher:",
        [
            "line 9: vars.all.a-b: is no name of a variable. Write letters, digits and underscores.",
        ],
    ),
    Case(
        "vars contract",
        "launcher:",
        "vars: {compute: {cluster_slots: 1}}\nlauncher:",
        [
            "line 9: vars.compute.cluster_slots: is set by the model itself. Change the key of the model it comes from, or override it in host_vars/.",
        ],
    ),
    Case(
        "vars group",
        "launcher:",
        "vars: {computes: {x: 1}}\nlauncher:",
        [
            "line 9: vars.computes: there is no group 'computes'. Did you mean 'compute'? Known here: all, compute, launcher, storage, leaf, spine, rack_r01.",
        ],
    ),
    Case(
        "dup key",
        "name: small",
        "name: small\nname: large",
        [
            "line 3: name: is written twice, first in line 2. Keep one of them.",
        ],
    ),
    Case(
        "tag",
        "name: small",
        "name: !vault small",
        [
            "line 2: name: the tag !vault is not understood in a model. Put secrets and templates into group_vars/ or host_vars/ beside the model.",
        ],
    ),
    Case(
        "nonscalar key",
        "name: small",
        "name: small\n[1]: 2",
        [
            "line 3: a key is not a plain word. Write a name there.",
        ],
    ),
    Case(
        "syntax",
        "name: small",
        "name: [small",
        [
            "line 3: not YAML: while parsing a flow sequence did not find expected ',' or ']'. Correct the syntax there.",
        ],
    ),
    Case(
        "tab",
        "name: small",
        "\tname: small",
        [
            "line 2: not YAML: while scanning a plain scalar found a tab character that violates indentation. Correct the syntax there.",
        ],
    ),
    Case(
        "two docs",
        "name: small",
        "name: small\n---\na: 1",
        [
            "line 3: not YAML: expected a single document in the stream but found another document. Correct the syntax there.",
        ],
    ),
    Case(
        "self alias",
        "name: small",
        "name: small\nvars: &a {all: *a}",
        [
            "line 3: vars.all: an alias contains itself. Write the value out.",
        ],
    ),
    Case(
        "scalar doc",
        "<all>",
        "hello",
        [
            "line 1: 'hello' is not a mapping. Write keys below it.",
        ],
    ),
    Case(
        "empty doc",
        "<all>",
        "# nothing\n",
        [
            "the file is empty. Describe a cluster in it.",
        ],
    ),
    Case(
        "storage map",
        "launcher:",
        "storage: {name: s}\nlauncher:",
        [
            "line 9: storage: a mapping is not a list. Write a list of a section with name, management.",
        ],
    ),
    Case(
        "storage dup",
        "launcher:",
        "storage: [{name: s1, management: 10.0.0.20}, {name: s1, management: 10.0.0.20}]\nlauncher:",
        [
            "line 9: storage[1].name: the name 's1' is taken by storage[0].name (line 9). Rename one of them.",
            "line 9: storage[1].management: 10.0.0.20 (s1): taken by s1. Give each host a management address of its own.",
        ],
    ),
    Case(
        "uid",
        "name: small",
        "name: small\nmpi: {uid: 0}",
        [
            "line 3: mpi.uid: 0 is out of range. Write one from 1000 to 60000.",
        ],
    ),
    Case(
        "user",
        "name: small",
        'name: small\nmpi: {user: "Mr X"}',
        [
            "line 3: mpi.user: 'Mr X' is not a Linux user name. Write one such as mpi.",
        ],
    ),
    *(
        Case(
            f"system account {user}",
            "name: small",
            f"name: small\nmpi: {{user: {user}}}",
            [
                f"line 3: mpi.user: '{user}' is an account of the system, and MPI jobs need an unprivileged one of their own. Write one such as mpi.",
            ],
        )
        for user in ("root", "nobody", "systemd-network", "_chrony")
    ),
    Case(
        "management on a rail",
        "{subnet: 10.0.0.0/24}",
        "{subnet: 10.0.0.0/24, interface: rail1}",
        [
            "line 3: management.interface: 'rail1' is also the interface of rail 1. Name another one, or change rails.interface.",
        ],
    ),
    Case(
        "management on a rail by pattern",
        "<all>",
        BASE.replace("/24}", "/24, interface: mgmt0}").replace(
            "gbps: 800", 'gbps: 800, interface: "mgmt{rail}"'
        ),
        [
            "line 3: management.interface: 'mgmt0' is also the interface of rail 0. Name another one, or change rails.interface.",
        ],
    ),
    Case(
        "aliases of aliases",
        "<all>",
        "a0: &a0 [x, x]\n"
        + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)),
        [
            "aliases repeat more than 200000 values. Write out what the aliases stand for, at most one inside another.",
        ],
    ),
    Case(
        "domain",
        "name: small",
        "name: small\ndomain: .example",
        [
            "line 3: domain: '.example' is not a DNS domain. Write one such as example.net.",
        ],
    ),
    Case(
        "cluster",
        "name: small",
        'name: "../etc"',
        [
            "line 2: name: '../etc' is not a name of a to z, 0 to 9, - and _. Write one such as b300.",
        ],
    ),
    Case(
        "plugin",
        "baremetal.mpi_roce.cluster",
        "baremetal.mpi_roce.clusters",
        [
            "line 1: plugin: 'baremetal.mpi_roce.clusters' is not a choice. Did you mean 'baremetal.mpi_roce.cluster'? Known here: baremetal.mpi_roce.cluster.",
        ],
    ),
    Case(
        "rack",
        "{count: 2, ",
        '{count: 2, overrides: {node02: {rack: "a b"}}, ',
        [
            "line 4: nodes.overrides.node02.rack: 'a b' is not a rack name (letters, digits, -, _ and dots). Write one such as r01.",
        ],
    ),
    Case(
        "first_host",
        "pool: 10.1.0.0/16",
        "pool: 10.1.0.0/16, first_host: 1",
        [
            "line 7: addresses.first_host: 1 is out of range. Write one from 2 to 65535.",
        ],
    ),
    Case(
        "many",
        "count: 2, management_first: 10.0.0.11",
        "cuont: 2, management_first: 10.0.0",
        [
            "line 4: nodes.cuont: unknown key. Did you mean 'count'? Known here: count, list, name, start, management_first, slots, rack, nodes_per_rack, drained, absent, overrides.",
            "line 4: nodes.management_first: '10.0.0' is not an IPv4 address. Write one such as 10.0.0.10.",
        ],
    ),
)


def test_the_base_compiles() -> None:
    assert compile_model(read("cluster.yml", BASE)).name == "small"


def test_an_alias_saves_writing() -> None:
    text = BASE.replace("launcher01, ", "launcher01, vars: &v {a: 1}, ")
    text += "storage: [{name: s1, management: 10.0.0.20, vars: *v}]\n"
    assert compile_model(read("cluster.yml", text)).storage[0].vars == {"a": 1}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_refused_in_these_words(case: Case) -> None:
    assert case.old == "<all>" or BASE.count(case.old) >= 1
    text = case.new if case.old == "<all>" else BASE.replace(case.old, case.new, 1)
    assert refused(text) == case.lines


def test_all_findings_are_told_at_once_in_the_order_of_the_file() -> None:
    text = (
        BASE.replace("10.0.0.0/24", "10.0.0.0/33")
        .replace("count: 2, management", "cuont: 2, management")
        .replace("speed_gbps: 800", "speed_gbps: 0, mtu: 1")
        .replace("ports: 64", "ports: many")
        .replace("name: launcher01", "name: launcher")
    )
    assert refused(text) == [
        "line 3: management.subnet: '10.0.0.0/33' is not an IPv4 network. Write one such as 10.0.0.0/24.",
        "line 4: nodes.cuont: unknown key. Did you mean 'count'? Known here: count, list, name, start, management_first, slots, rack, nodes_per_rack, drained, absent, overrides.",
        "line 6: rails.speed_gbps: 0 is out of range. Write one from 1 to 3200 (Gb/s).",
        "line 6: rails.mtu: 1 is out of range. Write one from 1280 to 9978 (bytes, layer 3).",
        "line 8: leaves.ports: 'many' is not a whole number. Write one from 1 to 4096 (ports).",
        "line 9: launcher.name: 'launcher' is also the name of a group, and Ansible cannot tell them apart. Name the host launcher01, for example.",
    ]


def test_the_message_names_the_file_and_counts() -> None:
    with pytest.raises(ModelError) as refusal:
        compile_model(read("inventories/x/cluster.yml", BASE.replace("800", "0")))
    assert str(refusal.value) == (
        "inventories/x/cluster.yml: this cluster model has 1 error:\n"
        "  line 6: rails.speed_gbps: 0 is out of range. Write one from 1 to 3200 (Gb/s)."
    )


def test_very_many_findings_are_counted_and_not_all_shown() -> None:
    listed = "\n".join(f"    - {{name: Bad_{number}}}" for number in range(SHOWN + 7))
    text = BASE.replace(
        "nodes: {count: 2, management_first: 10.0.0.11}",
        f"nodes:\n  management_first: 10.0.0.11\n  list:\n{listed}",
    )
    with pytest.raises(ModelError) as refusal:
        compile_model(read("cluster.yml", text))
    lines = str(refusal.value).splitlines()
    assert len(refusal.value.findings) == SHOWN + 7
    assert len(lines) == 1 + SHOWN + 1
    assert lines[-1] == "  ... and 7 more."


def test_a_pattern_that_fails_for_every_node_is_told_once() -> None:
    text = BASE.replace("count: 2, management", 'count: 100, name: "node{}", management')
    text = text.replace("ports: 64", 'ports: 256, name: "node{}"')
    assert [line for line in refused(text) if "the name" in line] == [
        "line 8: leaves.name: the name 'node1' is taken by nodes.name (line 4). Rename one of them."
    ]


FULL = yaml.safe_load((ROOT / "inventories/b300/cluster.yml").read_text(encoding="utf-8"))
FULL["nodes"]["overrides"] = {"node02": {"rack": "a", "slots": 3, "vars": {"x": 1}}}
FULL["nodes"]["absent"] = ["node04"]
FULL["vars"] = {"all": {"x": 1}}


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a structure."""
    items: list[tuple[Any, Any]] = []
    if isinstance(data, dict):
        items = list(data.items())
    elif isinstance(data, list):
        items = list(enumerate(data))
    return [path] + [place for key, item in items for place in places(item, (*path, key))]


anything = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-5, 5000),
        st.floats(allow_nan=False),
        st.text("ab0.:/{}-_ ", max_size=8),
        st.sampled_from(["node01", "10.0.0.0/8", "10.10.1.1", "point_to_point", "leaf{}", "0"]),
        st.dates(),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text("ab", max_size=2), inner, max_size=3)
    ),
    max_leaves=5,
)


@settings(max_examples=150)
@given(st.lists(st.tuples(st.sampled_from(places(FULL)[1:]), anything), min_size=1, max_size=3))
def test_whatever_stands_anywhere_is_compiled_or_refused(
    changes: list[tuple[tuple[Any, ...], Any]],
) -> None:
    data = copy.deepcopy(FULL)
    for path, value in changes:
        inner = data
        try:
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = value
        except (TypeError, KeyError, IndexError):
            continue  # an earlier change has taken the place away
    with contextlib.suppress(ModelError):
        compile_model(read("cluster.yml", yaml.safe_dump(data)))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    path = str(tmp_path / "cluster.yml")
    with pytest.raises(ModelError) as refusal:
        load(path)
    assert str(refusal.value) == (
        f"{path}: this cluster model has 1 error:\n"
        "  cannot be read: No such file or directory. Check the path and its permissions."
    )


def test_a_directory_in_place_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be read: Is a directory"):
        load(str(tmp_path))


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yml"
    path.write_text(BASE)
    path.chmod(0)
    with pytest.raises(ModelError, match="cannot be read: Permission denied"):
        load(str(path))


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yml"
    path.write_bytes(b"name: \xff\xfe")
    with pytest.raises(ModelError, match="is not UTF-8 text"):
        load(str(path))
