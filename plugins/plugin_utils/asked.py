# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Layers that --tags and --limit select in the collection's playbooks."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Optional

from ansible import context
from ansible.playbook.block import Block
from ansible.playbook.role_include import IncludeRole
from ansible.playbook.task_include import TaskInclude

from ..module_utils.core.text import nearest
from .layers import HOSTS, LOOK

PLAYBOOKS = Path(__file__).resolve().parents[2] / "playbooks"
SPECIAL = frozenset(["all", "always", "never", "tagged", "untagged"])
"""Tags that have a special meaning in Ansible."""
CLOSE = 0.75
"""Minimum similarity at which an unknown tag in --skip-tags counts as misspelt.

Tools such as Molecule skip their own tags in every playbook.
"""


def of_collection(play: Any) -> bool:
    """Whether a play is in a playbook of this collection."""
    path = play.get_path()  # with a line number; empty for a play created by a program
    return bool(path) and Path(path).parent.resolve() == PLAYBOOKS


def tag_of(play: Any) -> str:
    """The first tag in the text of the play; imports add further tags in arbitrary order."""
    tags = play.get_ds().get("tags") or [""]
    return str(tags.split(",")[0] if isinstance(tags, str) else tags[0]).strip()


def layer_of(play: Any) -> str:
    """The layer of one of this collection's plays; empty for other plays."""
    tag = tag_of(play)
    return tag if of_collection(play) and tag not in SPECIAL else ""


def is_asked(play: Any) -> bool:
    chosen = {*play.tags, "all", "tagged"}
    return bool(chosen & set(play.only_tags)) and not chosen & set(play.skip_tags)


def left_out(play: Any, inventory: Any) -> Optional[list[str]]:
    """The hosts of a play if --limit excludes all of them; otherwise None."""
    tag = layer_of(play)
    pattern = HOSTS[tag] if tag in LOOK else play.hosts  # also if the look found them unchanged
    if inventory.get_hosts(pattern):
        return None
    hosts = inventory.get_hosts(pattern, ignore_limits=True, ignore_restrictions=True)
    return [host.name for host in hosts]


def misspelt(plays: Iterable[Any]) -> list[str]:
    """Errors in --tags and --skip-tags, one line each.

    Empty if some tags are only known at run time.
    """
    plays = list(plays)
    named = [item for item in context.CLIARGS.get("tags") or () if item not in SPECIAL]
    skipped = [item for item in context.CLIARGS.get("skip_tags") or () if item not in SPECIAL]
    if not (named or skipped) or not any(map(of_collection, plays)):
        return []
    known: dict[str, None] = {}
    for play in plays:
        known.update(dict.fromkeys(map(str, play.tags)))
        own = of_collection(play)
        for task in _tasks(play.compile()):
            known.update(dict.fromkeys(map(str, task.tags)))
            if isinstance(task, (TaskInclude, IncludeRole)) and not own:
                return []
    if any("{" in tag for tag in known):
        return []
    names = [tag for tag in known if tag not in SPECIAL]
    wrong = [("--tags", tag) for tag in named if tag not in known]
    for tag in skipped:
        if tag not in known and difflib.get_close_matches(tag, names, n=1, cutoff=CLOSE):
            wrong.append(("--skip-tags", tag))
    return [
        f"{option} {tag}: no task of this playbook has this tag; no host was changed. "
        f"{nearest(tag, names)}"
        for option, tag in wrong
    ]


def _tasks(items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        if isinstance(item, Block):
            yield from _tasks([*item.block, *item.rescue, *item.always])
        else:
            yield item
