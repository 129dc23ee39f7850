# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A search for constants of the QoS contract outside the one file that may have them.

Two kinds of finding. A value that hardly means anything else (DSCP 26, the byte 106, 9216 bytes) is
one wherever it stands, unless it is written as a bit pattern. A common number (priority 3, path MTU
4096) is one where a name beside it says that it is meant: an assignment, an argument, a key, a
default, a comparison, or text such as `pfc 3`. Comments, docstrings and what a module says of
itself are documentation, and are left out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Optional

import yaml
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos import keys as defaults
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos.contract import (
    traffic_class_of,
)

DSCPS = (defaults.ROCE_DSCP, defaults.CNP_DSCP)
BYTES = (*(dscp << 2 for dscp in DSCPS), *(traffic_class_of(dscp) for dscp in DSCPS))
DISTINCTIVE = {
    *DSCPS,
    *BYTES,
    defaults.ECN_MINIMUM_BYTES,
    defaults.ECN_MAXIMUM_BYTES,
    defaults.FABRIC_MTU,
}

_MARK = r"dscp|tos\b|tos_|_tos|traffic_?class|tclass|\bucx_ib_tr|nccl_ib_tc"
_PRIORITY = r"prio|pfc|\bsl\b|_sl\b|802p|\becn|_ecn|lossless|\bcnp"
NAMED: tuple[tuple[str, set[int]], ...] = (
    (_MARK, {*DSCPS, *BYTES}),
    (_PRIORITY, {defaults.ROCE_PRIORITY, defaults.CNP_PRIORITY}),
    (r"(path|roce|rdma|ib)_?(path_)?mtu", {defaults.ROCE_PATH_MTU}),
    (r"fabric_?mtu|switch_?mtu", {defaults.FABRIC_MTU}),
    (r"\becn|_ecn|kmin|kmax|pmax", {defaults.ECN_PROBABILITY_PERCENT}),
    (r"bandwidth|_share", {defaults.ROCE_BANDWIDTH_PERCENT}),
    (r"detection", {defaults.WATCHDOG_DETECTION_MS}),
    (r"restoration", {defaults.WATCHDOG_RESTORATION_MS}),
    (
        r"cable",
        {defaults.CABLE_METRES_TO_NODES, defaults.CABLE_METRES_BETWEEN_SWITCHES},
    ),
)

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
NAMES = re.compile("|".join(names for names, _values in NAMED), re.I)
DOCUMENTATION = ("DOCUMENTATION", "EXAMPLES", "RETURN")
TEXT_SUFFIXES = (".yml", ".yaml", ".j2", ".sh", ".c", ".conf", ".service", ".cfg", ".json", "")


class Found(NamedTuple):
    line: int
    what: str


def search(path: Path) -> list[Found]:
    """Constants of the contract in one file."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".py" or text.startswith("#!/usr/bin/python"):
        return sorted(set(_python(text)))
    if path.suffix in TEXT_SUFFIXES:
        found = set(_lines(text))
        if path.suffix in (".yml", ".yaml"):
            found |= set(_yaml(text))
        return sorted(found)
    return []


def _yaml(text: str) -> Iterator[Found]:
    """Numbers under their keys, however many lines lie between."""
    try:
        root = yaml.compose(text, Loader=LOADER)
    except yaml.YAMLError:
        return
    yield from _yaml_node(root, ())


def _yaml_node(node: Optional[yaml.Node], keys: tuple[str, ...]) -> Iterator[Found]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _yaml_node(value, (*keys, str(key.value)))
            yield from _yaml_node(key, keys)  # a number can be a key as well: {26: 3}
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _yaml_node(item, keys)
    elif isinstance(node, yaml.ScalarNode) and re.fullmatch(r"[0-9]+", node.value):
        value, name = int(node.value), ".".join(keys[-3:])
        if value in DISTINCTIVE:
            yield Found(node.start_mark.line + 1, f"{value}")
        for names, values in NAMED:
            if value in values and re.search(names, name, re.I):
                yield Found(node.start_mark.line + 1, f"{name} {value}")


def _lines(text: str) -> Iterator[Found]:
    for number, line in enumerate(text.splitlines(), 1):
        code = re.sub(r"(^|\s)(#|//).*", "", line)
        for what in _words(code):
            yield Found(number, what)


def _words(text: str) -> Iterator[str]:
    """A value in text, near its name: `pfc 3`, `dscp: 26`, `TOS 0x6a`."""
    if not NAMES.search(text) or not re.search(r"[0-9]", text):
        return
    for names, values in NAMED:
        for value in values:
            spelt = rf"(?<![\w.:]){value}(?![\w.])|0x0*{value:x}\b"
            # A common number is meant by the name before it only if it is the next number.
            between = r".{0,30}?" if value in DISTINCTIVE else r"[^0-9\n]{0,24}?"
            near = rf"(?:{names})[a-z_]*{between}(?:{spelt})"
            if re.search(near, text, re.I):
                yield f"{value} in {text.strip()[:60]!r}"


def _python(text: str) -> Iterator[Found]:
    tree, lines = ast.parse(text), text.splitlines()
    skipped = {id(node) for part in _documentation(tree) for node in ast.walk(part)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Constant) and _is_int(node) and node.value in DISTINCTIVE:
            if lines[node.lineno - 1].encode()[node.col_offset :].startswith((b"0x", b"0b")):
                continue  # opcodes and masks; with a name of the contract they are found below
            yield Found(node.lineno, f"{node.value}")
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for what in _words(node.value):
                yield Found(node.lineno, what)
        for name, value in _named(node):
            for number in _numbers(value):
                for names, values in NAMED:
                    if number.value in values and re.search(names, name, re.I):
                        yield Found(number.lineno, f"{name} {number.value}")


def _documentation(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id in DOCUMENTATION for target in node.targets
        ):
            yield node


def _named(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Names with what they are given or compared with."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield _text(target), node.value
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
        yield _text(node.target), node.value
    elif isinstance(node, ast.keyword) and node.arg:
        yield node.arg, node.value
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values):
            if key is not None:
                yield _text(key), value
    elif isinstance(node, ast.BoolOp):
        for side in node.values:
            for other in node.values:
                if other is not side:
                    yield _text(side), other
    elif isinstance(node, ast.Compare):
        for side in (node.left, *node.comparators):
            for other in (node.left, *node.comparators):
                if other is not side:
                    yield _text(side), other
    elif isinstance(node, ast.Call):
        for argument in node.args:
            yield _text(node.func), argument
            for other in node.args:
                if isinstance(other, ast.Constant) and isinstance(other.value, str):
                    yield other.value, argument
    elif isinstance(node, ast.arguments):
        positional = [*node.posonlyargs, *node.args]
        pairs = [
            *zip(positional[len(positional) - len(node.defaults) :], node.defaults),
            *zip(node.kwonlyargs, node.kw_defaults),
        ]
        for argument, default in pairs:
            if default is not None:
                yield argument.arg, default
    elif isinstance(node, ast.FunctionDef):
        for statement in node.body:
            if isinstance(statement, ast.Return) and statement.value is not None:
                yield node.name, statement.value


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return ast.unparse(node) if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) else ""


def _numbers(node: ast.AST) -> Iterator[ast.Constant]:
    """The value itself, or what a tuple, list, set or operation of constants holds.

    Numbers deeper down, in a call or comprehension, belong to names of their own.
    """
    if isinstance(node, ast.Constant) and _is_int(node):
        yield node
    elif isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        for item in node.elts:
            yield from _numbers(item)
    elif isinstance(node, ast.Dict):
        for item in (*node.keys, *node.values):
            if item is not None:
                yield from _numbers(item)
    elif isinstance(node, ast.BinOp) and not isinstance(node.op, ast.BitAnd):
        yield from _numbers(node.left)
        yield from _numbers(node.right)
    elif isinstance(node, ast.BoolOp):
        for item in node.values:
            yield from _numbers(item)
    elif isinstance(node, ast.IfExp):
        yield from _numbers(node.body)
        yield from _numbers(node.orelse)


def _is_int(node: ast.Constant) -> bool:
    return isinstance(node.value, int) and not isinstance(node.value, bool)
