# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which combinations are known to be wrong, which are doubtful, and which nobody knows.

A rule looks at a set and at what is known of a node, and says what it found, or nothing. What a
rule cannot judge is a finding of its own (`unknown`): nothing passes because nobody looked.
"""

from __future__ import annotations

from .judgement import REFUSED, STATUSES, UNKNOWN, WARNED, Judgement, Node
from .software_set import SoftwareSet
from .version_rules import RULES

NOWHERE = Node()


def judge(software: SoftwareSet, node: Node = NOWHERE) -> list[Judgement]:
    """Everything that is to be said of the set on such a node, what is refused first."""
    judgements = []
    for rule in RULES:
        found = rule.holds(software, node)
        if found:
            judgements.append(
                Judgement(
                    rule.name,
                    rule.status,
                    tuple(rule.key.split(".")),
                    found,
                    rule.reason,
                    rule.remedy,
                    rule.source,
                )
            )
    return sorted(judgements, key=lambda judgement: STATUSES.index(judgement.status))


__all__ = ["REFUSED", "STATUSES", "UNKNOWN", "WARNED", "Judgement", "Node", "judge"]
