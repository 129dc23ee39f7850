# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which layers --tags and --limit ask a run of the collection's playbooks for."""

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

PLAYBOOKS = Path(__file__).resolve().parents[2] / "playbooks"
SPECIAL = frozenset(["all", "always", "never", "tagged", "untagged"])
"""Tags that Ansible itself gives a meaning."""
CLOSE = 0.75
"""How near a tag to skip must be to one of the playbook for it to be a misspelt one.

Tools that skip their own in every playbook, such as Molecule, make no mistake.
"""


def of_collection(play: Any) -> bool:
    """Whether a play is in a playbook of this collection."""
    path = play.get_path()  # and the line; empty for a play of a program
    return bool(path) and Path(path).parent.resolve() == PLAYBOOKS


def tag_of(play: Any) -> str:
    """The first tag in the play's own text: an import adds those that it has, in any order."""
    tags = play.get_ds().get("tags") or [""]
    return str(tags.split(",")[0] if isinstance(tags, str) else tags[0]).strip()


def layer_of(play: Any) -> str:
    """The layer of a play of this collection; empty for another play."""
    tag = tag_of(play)
    return tag if of_collection(play) and tag not in SPECIAL else ""


def is_asked(play: Any) -> bool:
    chosen = {*play.tags, "all", "tagged"}
    return bool(chosen & set(play.only_tags)) and not chosen & set(play.skip_tags)


def left_out(play: Any, inventory: Any) -> Optional[list[str]]:
    """The hosts of a play all of whose hosts --limit excludes; None for any other play."""
    if inventory.get_hosts(play.hosts):
        return None
    hosts = inventory.get_hosts(play.hosts, ignore_limits=True, ignore_restrictions=True)
    return [host.name for host in hosts]


def misspelt(plays: Iterable[Any]) -> list[str]:
    """The faults of --tags and --skip-tags, a line each.

    Nothing where a tag may be one that can only be known when the run comes to it.
    """
    plays = list(plays)
    named = [each for each in context.CLIARGS.get("tags") or () if each not in SPECIAL]
    skipped = [each for each in context.CLIARGS.get("skip_tags") or () if each not in SPECIAL]
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
        f"{option} {tag}: nothing in this playbook has this tag, and no host was touched. "
        f"{nearest(tag, names)}"
        for option, tag in wrong
    ]


def _tasks(items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        if isinstance(item, Block):
            yield from _tasks([*item.block, *item.rescue, *item.always])
        else:
            yield item
