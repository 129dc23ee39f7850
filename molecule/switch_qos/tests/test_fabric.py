# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Each switch has the contract in its own words, in force and saved."""

from __future__ import annotations

import re

from tests.fabric import switch

NAME = "BAREMETAL_MPI_ROCE"


def test_sonic_has_rows_of_its_own_and_its_ports_refer_to_them(nodes):
    running, saved = switch(nodes, "leaf01").state()
    for found in (running, saved):
        assert found["DSCP_TO_TC_MAP"][NAME]["26"] == "3"
        assert found["DSCP_TO_TC_MAP"][NAME]["48"] == "6"
        for port in ("Ethernet0", "Ethernet504"):
            assert found["PORT_QOS_MAP"][port]["dscp_to_tc_map"] == NAME
            assert found["PORT_QOS_MAP"][port]["pfc_enable"] == "3"
            assert found["PORT"][port]["mtu"] == "9198"
        assert found["QUEUE"]["Ethernet0|3"]["wred_profile"] == NAME


def test_nvue_has_the_lossless_profile_and_the_map(nodes):
    for found in switch(nodes, "leaf02").state():
        assert found["qos"]["roce"]["mode"] == "lossless"
        table = found["qos"]["mapping"]["default-global"]["dscp"]
        assert [table[dscp]["switch-priority"] for dscp in ("26", "48")] == [3, 6]
        assert list(found["qos"]["pfc"]["default-global"]["switch-priority"]) == ["3"]
        assert found["interface"]["swp1"]["link"]["mtu"] == 9198


def test_eos_has_its_profile_on_the_ports_of_the_model(nodes):
    for lines in switch(nodes, "leaf03").state():
        text = "\n".join(lines)
        assert f"qos profile {NAME}" in text
        for port in ("Ethernet1/1", "Ethernet64/1"):
            (block,) = re.findall(rf"^interface {port}\n((?: .*\n)+)", text + "\n", re.MULTILINE)
            assert f"service-profile {NAME}" in block and "mtu 9198" in block
        assert "priority-flow-control priority 3 no-drop" in text
