# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Groups of the inventory for ClusterShell (`clush -g rack_r01`), as a separate source.

Format of groups.d/*.yaml: clustershell.readthedocs.io, "YAML group files"; a source's name must
differ from every other one's. Groups without a source are those of `default` in groups.conf, which
packages set to `local`, with examples."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from .core.checks import Check, compare, not_applicable
from .core.files import HEADER, FilePlan
from .core.part import Node, Plan, Verdict
from .slurm.hostlist import compress

SOURCE = "baremetal"
DIRECTORY = "etc/clustershell"
FILE = f"{DIRECTORY}/groups.d/{SOURCE}.yaml"
CONFIGURATION = f"{DIRECTORY}/groups.conf"
PACKAGED = "local"
"""The default source of packages."""
EXAMPLES = re.compile(r"[\w-]+:( ?example[\d\[\],-]+)+")
"""A line of the packages' groups.d/local.cfg."""
DEFAULT = re.compile(r"^(?P<key>default[ \t]*[:=][ \t]*)(?P<source>\S+)[ \t]*$", re.M)
GROUPS = re.compile(r"compute|launcher|storage|(?:rack|unit|kind)_.+")


def members(
    directory: Sequence[Mapping[str, Any]], groups: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """Hosts by group, in the order of the directory, which has no switches. `groups` are those of
    the inventory."""
    names = [str(host["name"]) for host in directory]
    found = {"all": names}
    for group in sorted(filter(GROUPS.fullmatch, groups)):
        inside = set(groups[group])
        found[group] = [name for name in names if name in inside]
    return {group: hosts for group, hosts in found.items() if hosts}


def render(found: Mapping[str, Sequence[str]]) -> str:
    """The file, without a header; strings of JSON are YAML."""
    lines = [f"  {json.dumps(group)}: {json.dumps(compress(found[group]))}" for group in found]
    return "\n".join([f"{SOURCE}:", *lines, ""])


@dataclass(frozen=True)
class Groups:
    found: Mapping[str, Sequence[str]]
    wanted: Optional[bool]
    """None: if ClusterShell is installed."""

    def _wanted(self, node: Node) -> bool:
        return node.path(DIRECTORY).is_dir() if self.wanted is None else self.wanted

    def plan(self, node: Node) -> Plan:
        files: list[FilePlan] = []
        if self._wanted(node):
            files.append(node.file(FILE, render(self.found)))
        elif HEADER in (node.read(FILE) or ""):
            files.append(node.file(FILE, None))
        return Plan([*files, *self._default(node)])

    def _default(self, node: Node) -> list[FilePlan]:
        """The default source becomes this one only in place of the packages' examples."""
        text = node.read(CONFIGURATION) or ""
        before = default_of(text)
        if self._wanted(node):
            after = SOURCE if before == PACKAGED and only_examples(node) else before
        else:
            after = PACKAGED if before == SOURCE else before
        if after == before:
            return []
        return [node.edited(CONFIGURATION, DEFAULT.sub(rf"\g<key>{after}", text, count=1))]

    def verify(self, node: Node) -> Verdict:
        if not self._wanted(node):
            return Verdict()
        hosts, subject = self.found.get("all", []), f"/{FILE}"
        if not node.path(DIRECTORY).is_dir() and node.check_mode:
            return Verdict()
        if not node.path(CONFIGURATION).is_file():
            reason = "ClusterShell is not installed: os_baseline_extra_packages: [clustershell]"
            return Verdict([not_applicable("clush_groups", len(hosts), reason, subject=subject)])
        return Verdict([self._read_back(node, hosts, subject), self._default_check(node)])

    def _read_back(self, node: Node, hosts: Sequence[str], subject: str) -> Check:
        """The hosts of all groups as ClusterShell reads them."""
        argv = ["nodeset", "-e", "-S", r"\n", f"@{SOURCE}:all"]
        answer = node.look(argv, check=False)
        seen = sorted(answer.stdout.split())
        reason = "" if answer.rc == 0 else (answer.stderr.strip() or f"exit status {answer.rc}")
        wanted, found = f"{len(hosts)} hosts", f"{len(seen)} hosts"
        if seen != sorted(hosts) and wanted == found:
            found = "other hosts"
        mode = node.check_mode
        return compare(
            "clush_groups", wanted, found, subject=subject, check_mode=mode, reason=reason
        )

    def _default_check(self, node: Node) -> Check:
        source = default_of(node.read(CONFIGURATION) or "")
        if source in (SOURCE, PACKAGED) and (source == SOURCE or only_examples(node)):
            return compare("clush_default", SOURCE, source, check_mode=node.check_mode)
        reason = f"the site's groups are the default: clush -g {SOURCE}:rack_r01, or -s {SOURCE}"
        return not_applicable("clush_default", SOURCE, reason, subject=source)


def default_of(text: str) -> str:
    """The default source in groups.conf; empty without one."""
    match = DEFAULT.search(text)
    return match["source"] if match else ""


def only_examples(node: Node) -> bool:
    """Whether the packages' source has no groups of the site."""
    texts = [node.read(f"{DIRECTORY}/{name}") or "" for name in ("groups", "groups.d/local.cfg")]
    lines = [line.strip() for text in texts for line in text.splitlines()]
    used = [line for line in lines if line and not line.startswith("#")]
    return all(map(EXAMPLES.fullmatch, used))
