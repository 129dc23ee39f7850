# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The nodes with stand-ins that tests share, beside those of tests/nodes.py."""

from __future__ import annotations

from tests.bed.stand_ins.build import BUILT, made
from tests.bed.stand_ins.inventory import write
from tests.nodes import Cluster, Nodes


class StandIns(Cluster):
    """They play B300 nodes, and converge as Lustre clients."""

    playbook = "molecule/lustre_client/converge.yml"

    def fresh(self) -> Nodes:
        if self._state != "fresh":
            write(self.nodes.inventory, made(), "stand-ins", 238)
            super().fresh()
            self.nodes.play("tests/bed/stand_ins/prepare.yml")
        return self.nodes


STAND_INS = StandIns(BUILT / "inventory")
