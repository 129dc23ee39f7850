# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Physical functions only, on the recorded B300 nodes."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware import survey
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware.inventory import RAIL
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic import engine, firmware
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic.firmware import Firmwares
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic.setting import Rail
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic.sriov import (
    VirtualFunctionsProvider,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos import (
    host_settings,
    read_contract,
)

from tests.hardware.trees import build_sys
from tests.unit.fake_mlxconfig import FACTORY, FakeMlxconfig

PORT_2 = {"LINK_TYPE_P2": 1, "CNP_DSCP_P2": 0, "CNP_802P_PRIO_P2": 7, "ROCE_CC_PRIO_MASK_P2": 255}


def rails_of(root):
    ports = survey(root / "sys").of_kind(RAIL)
    return [Rail(port.netdev, port.netdev, port.driver, port.pci, port) for port in ports]


class Cards(FakeMlxconfig):
    """All rails' cards of a recorded node, and `ip` beside them."""

    def __init__(self, rails, factory=FACTORY):
        super().__init__(sorted({rail.pci[:-2] for rail in rails}), factory=factory)

    def __call__(self, argv, *, check=True, stdin=None):
        if argv[0] == "ip":
            return Result(tuple(argv), 0, "[]", "")
        return super().__call__(argv, check=check, stdin=stdin)

    def providers(self, root, **options):
        wanted = firmware.wanted_parameters(host_settings(read_contract({})))
        return [
            firmware.FirmwareProvider(Firmwares(self.name, self), wanted, root),
            VirtualFunctionsProvider(self, root=root, **options),
        ]

    def counts(self):
        return len([call for call in self.calls if call[-1] == "q"]), len(
            [call for call in self.calls if "set" in call]
        )


@pytest.mark.parametrize(
    ("name", "factory", "rails", "asked", "told"),
    [("b300-8x800g", FACTORY, 8, 8, 8), ("b300-16x400g", {**FACTORY, **PORT_2}, 16, 8, 16)],
)
def test_a_node_as_delivered_is_asked_per_card_and_told_per_rail(
    tmp_path, name, factory, rails, asked, told
):
    build_sys(name, tmp_path / "sys")
    found = rails_of(tmp_path)
    cards = Cards(found, factory)
    assert len(found) == rails

    checked = engine.converge(found, cards.providers(tmp_path), check_mode=True)
    assert checked.changed and cards.counts() == (asked, 0)
    assert len(checked.diff) == rails and len(checked.resets) > 0

    cards.calls.clear()
    outcome = engine.converge(found, cards.providers(tmp_path))
    assert cards.counts() == (asked + told, told)
    statuses = {check.status for check in outcome.checks}
    assert statuses == {"ok", "reboot"}
    assert len(outcome.resets) == sum(
        state["status"] == "needs_reset"
        for settings in outcome.settings.values()
        for state in settings.values()
    )

    cards.calls.clear()
    again = engine.converge(found, cards.providers(tmp_path))
    assert not again.changed and again.resets and cards.counts() == (asked, 0)

    cards.reset()
    cards.calls.clear()
    after = engine.converge(found, cards.providers(tmp_path))
    assert {check.status for check in after.checks} == {"ok"}
    assert (after.resets, after.changed, cards.counts()) == ([], False, (asked, 0))


def test_a_node_with_virtual_functions_shows_each_and_does_the_other_rails(tmp_path):
    build_sys("b300-vfs", tmp_path / "sys")
    rails = rails_of(tmp_path)
    cards = Cards(rails)
    outcome = engine.converge(rails, cards.providers(tmp_path))

    state = outcome.settings["rail1"]["virtual_functions"]
    assert state["status"] == "failed" and len(state["found"]) == 4
    assert state["found"][1] == "0000:2f:00.2 (rail1v1, mlx5_16, mlx5_core): idle"
    for said in (
        "3 of 4 virtual functions of 0000:2f:00.0 are in use",
        "0000:2f:00.1: rail1v0 is up",
        "0000:2f:00.3: handed to a guest or a program by vfio-pci",
        "0000:2f:00.4: mlx5_core drives it, and its interface is not here",
    ):
        assert said in state["reason"]
    assert "rail1" not in outcome.written and len(outcome.written) == 7
    assert (tmp_path / "sys/bus/pci/devices/0000:2f:00.0/sriov_numvfs").read_text() == "4\n"
    assert not any("0000:2f:00.0" in call for call in cards.calls if "set" in call)


def test_allowed_they_are_taken_away_and_a_kernel_that_does_not_is_named(tmp_path):
    """A recording has no kernel behind sriov_numvfs: what was written is read back differently."""
    build_sys("b300-vfs", tmp_path / "sys")
    rails = [rail for rail in rails_of(tmp_path) if rail.name == "rail1"]
    outcome = engine.converge(rails, Cards(rails).providers(tmp_path, remove_in_use=True))

    state = outcome.settings["rail1"]["virtual_functions"]
    assert outcome.rolled_back == ["rail1"] and state["status"] == "failed"
    assert "read back as" in state["reason"]
    assert (tmp_path / "sys/bus/pci/devices/0000:2f:00.0/sriov_numvfs").read_text() == "4\n"
