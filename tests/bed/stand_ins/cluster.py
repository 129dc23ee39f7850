# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The nodes with stand-ins, which all tests share."""

from __future__ import annotations

from tests.bed.stand_ins.build import BUILT, made
from tests.bed.stand_ins.inventory import write
from tests.nodes import Cluster, Nodes


class StandIns(Cluster):
    """Nodes that imitate B300 nodes. They converge as Lustre clients."""

    playbook = "molecule/lustre_client/converge.yml"

    def fresh(self) -> Nodes:
        if self._state != "fresh":
            write(self.nodes.inventory, made(), "stand-ins", 238)
            super().fresh()
            self.nodes.play("tests/bed/stand_ins/prepare.yml")
        return self.nodes


STAND_INS = StandIns(BUILT / "inventory")
