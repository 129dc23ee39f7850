# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Lossless buffers of SONiC switches: values of any vendor, checks of chip and release."""

from __future__ import annotations

import re
from dataclasses import replace
from fnmatch import fnmatch

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.asics import (
    ASICS,
    Asic,
    Headroom,
    WantedError,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.sonic import reading, switch
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.system import SwitchError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.headroom_rows import Row, rows
from tests.unit.sonic_switch import broadcom, new_switch, present, small
from tests.unit.test_fabric_sonic import NAME, PROFILE, changed, converged, plan

ROOM = Headroom(480000, 38912, 400000)
LOSSY = "egress_lossy_profile"


class TestRows:
    """Headroom as other vendors publish it."""

    @settings(max_examples=150, deadline=None)
    @given(rows(), st.booleans())
    def test_every_published_shape_becomes_the_profile_that_buffermgrd_would_make(
        self, row: Row, of_model: bool
    ) -> None:
        config = broadcom(2)
        config["BUFFER_POOL"]["ingress_lossless_pool"]["mode"] = row.mode
        room = Headroom(row.size, row.xon, row.xoff, row.threshold, row.offset)
        chip = Asic("tomahawk5", values={(800, 50): room} if of_model else {})
        lookup = {} if of_model else reading.lookup_of(f"# speed cable\n{row.line}\n")
        final = converged(config, replace(small(), asic=chip), asic_type="broadcom", lookup=lookup)
        assert final["BUFFER_PROFILE"][PROFILE] == row.profile
        assert final["BUFFER_PG"]["Ethernet0|3"] == {"profile": PROFILE}

    def plan(self, room: Headroom, *others: Headroom, mode: str = "dynamic") -> dict[str, str]:
        """The profile of a row of the model, where the platform has others at that speed."""
        config = broadcom(2)
        config["BUFFER_POOL"]["ingress_lossless_pool"]["mode"] = mode
        intent = replace(small(), asic=Asic("tomahawk5", values={(800, 50): room}))
        lookup = {(800, 100 + place): other for place, other in enumerate(others)}
        final = converged(config, intent, asic_type="broadcom", lookup=lookup)
        return final["BUFFER_PROFILE"][PROFILE]

    def test_missing_columns_come_from_the_platform(self) -> None:
        room, other = Headroom(18796, 0, 835406), Headroom(18796, 0, 700000, -2, 3556)
        assert self.plan(room).items() >= {"dynamic_th": "0"}.items()
        assert "xon_offset" not in self.plan(room)
        found = self.plan(room, other, other)
        assert (found["dynamic_th"], found["xon_offset"]) == ("-2", "3556")
        found = self.plan(room, other, Headroom(18796, 0, 700000, -3, 9))
        assert found["dynamic_th"] == "0" and "xon_offset" not in found

    def test_a_threshold_in_the_wrong_unit_is_refused(self) -> None:
        with pytest.raises(SwitchError, match="has mode static"):
            self.plan(Headroom(18796, 0, 835406), mode="static")
        assert self.plan(Headroom(0, 0, 835406, 82880), mode="static")["static_th"] == "82880"

    def test_the_platforms_row_comes_before_the_formula(self) -> None:
        lean = Headroom(38912, 38912, 132096, 0)
        config = new_switch(2, model="traditional")
        config["BUFFER_POOL"]["ingress_lossless_pool"]["xoff"] = "4194304"
        profile = converged(config, lookup={(800, 50): lean})["BUFFER_PROFILE"][PROFILE]
        assert (profile["size"], profile["xoff"]) == ("38912", "132096")

    def test_the_platforms_row_is_reported_for_the_cable_that_is_set(self) -> None:
        lookup = {(800, 50): Headroom(0, 0, 132096), (800, 5): Headroom(0, 0, 95232)}
        config = new_switch(2, model="traditional")
        config["BUFFER_POOL"]["ingress_lossless_pool"]["xoff"] = "4194304"
        before, after = (
            switch.DRIVER.report(small(), present(state, lookup=lookup)).ports[0]
            for state in (config, converged(config, lookup=lookup))
        )
        assert before.platform_headroom_bytes == 95232
        assert after.platform_headroom_bytes == after.headroom_bytes == 132096

    def test_a_row_with_less_than_the_cable_holds_is_refused(self) -> None:
        for room in (50504, 50505):
            chip = Asic("tomahawk5", values={(800, 50): Headroom(18796, 0, room)})
            intent = replace(small(), asic=chip)
            if room < 50505:
                with pytest.raises(SwitchError, match="which hold 50505 bytes"):
                    plan(broadcom(2), intent, asic_type="broadcom")
            else:
                assert plan(broadcom(2), intent, asic_type="broadcom")

    def test_a_row_of_the_switch_with_less_than_the_model_is_refused(self) -> None:
        """The switch would bind it again after each change."""
        chip = Asic("tomahawk5", values={(800, 50): Headroom(200000, 0, 200000)})
        intent = replace(small(), asic=chip)
        for own, taken in ((200001, True), (200000, True), (199999, False)):
            lookup = {(800, 50): Headroom(own, 0, own)}
            if taken:
                assert plan(broadcom(2), intent, asic_type="broadcom", lookup=lookup)
            else:
                with pytest.raises(SwitchError, match=r"200000 bytes .* buffer model, 199999"):
                    plan(broadcom(2), intent, asic_type="broadcom", lookup=lookup)

    def test_a_port_of_eight_lanes_has_a_profile_of_its_own(self) -> None:
        config, here = new_switch(2), small()
        ports = tuple(replace(port, speed_gbps=400) for port in here.ports)
        config["PORT"]["Ethernet8"]["lanes"] = "8,9,10,11"
        profiles = converged(config, replace(here, ports=ports))
        assert profiles["BUFFER_PG"]["Ethernet0|3"]["profile"] == f"{NAME}_400G_50M_8L"
        assert profiles["BUFFER_PG"]["Ethernet8|3"]["profile"] == f"{NAME}_400G_50M"
        found = profiles["BUFFER_PROFILE"]
        assert (found[f"{NAME}_400G_50M_8L"]["xon"], found[f"{NAME}_400G_50M"]["xon"]) == (
            *("38912", "19456"),
        )

    @pytest.mark.parametrize("lanes", ["", None])
    def test_a_port_has_no_fewer_lanes_than_its_speed_needs(self, lanes: str | None) -> None:
        """Otherwise one such row would halve XON for every port of its kind."""
        config = changed(new_switch(2), "PORT|Ethernet0 lanes", lanes)
        assert converged(config)["BUFFER_PROFILE"][PROFILE]["xon"] == "38912"


class TestChips:
    @pytest.mark.parametrize(
        ("platform", "chip"),
        [
            # sonic-net/sonic-buildimage 086b03bd, platform/mellanox/asic_table.j2
            ("x86_64-mlnx_lssn2700-r0", "spectrum"),
            ("x86_64-mlnx_msn2700a1-r0", "spectrum"),
            ("x86_64-nvidia_sn2201-r0", "spectrum"),
            ("x86_64-mlnx_msn3700c-r0", "spectrum2"),
            ("x86_64-mlnx_msn4410-r0", "spectrum3"),
            ("x86_64-nvidia_sn4280_simx-r0", "spectrum3"),
            ("x86_64-nvidia_sn5400-r0", "spectrum4"),
            ("x86_64-nvidia_sn5610n-r0", "spectrum4"),
            ("x86_64-nvidia_sn5640-r0", "spectrum5"),
            ("x86_64-nvidia_sn6600_ld-r0", "spectrum6"),
            ("x86_64-nvidia_sn6810_ld_simx-r0", "spectrum6"),
        ],
    )
    def test_a_platform_tells_its_chip(self, platform: str, chip: str) -> None:
        config = changed(new_switch(2), "DEVICE_METADATA|localhost platform", platform)
        for name in ("spectrum", *(f"spectrum{number}" for number in range(2, 7))):
            intent = replace(small(), asic=Asic(name, values={(800, 50): ROOM}))
            if name == chip:
                assert plan(config, intent)
            else:
                with pytest.raises(SwitchError, match=f"has the chip {chip}.* the model says"):
                    plan(config, intent)

    def test_chips_of_unknown_platforms_are_told_apart_by_family(self) -> None:
        config = changed(new_switch(2), "DEVICE_METADATA|localhost platform", "x86_64-new_sn7-r0")
        assert plan(config)
        intent = replace(small(), asic=Asic("tomahawk5", values={(800, 50): ROOM}))
        with pytest.raises(SwitchError, match=r"family mellanox, .* toma"):
            plan(config, intent)
        assert plan(config, replace(intent, asic=Asic("mine", values={(800, 50): ROOM})))

    def test_the_delay_of_a_gearbox_is_not_computed(self) -> None:
        here, chip = small(), ASICS["spectrum2"]
        here = replace(here, ports=tuple(replace(port, speed_gbps=100) for port in here.ports))
        for model, known in (("3700", True), ("3800", False)):
            platform = f"x86_64-mlnx_msn{model}-r0"
            config = changed(new_switch(2), "DEVICE_METADATA|localhost platform", platform)
            if known:
                assert plan(config, replace(here, asic=chip))
            else:
                with pytest.raises(WantedError):
                    plan(config, replace(here, asic=chip))

    @pytest.mark.parametrize("family", ["marvell-teralynx", "cisco-8000", "barefoot", "clounix"])
    def test_a_chip_of_any_other_family_is_not_the_models(self, family: str) -> None:
        """Names of platform/ in sonic-buildimage 086b03bd."""
        config = changed(new_switch(2), "DEVICE_METADATA|localhost platform", "x86_64-new_sn7-r0")
        for name in ("spectrum4", "tomahawk5"):
            intent = replace(small(), asic=Asic(name, values={(800, 50): ROOM}))
            with pytest.raises(SwitchError, match=f"of the family {family}.* the model says"):
                plan(config, intent, asic_type=family)
            assert plan(config, intent, asic_type="vs")
        mine = replace(small(), asic=Asic("mine", values={(800, 50): ROOM}))
        assert plan(config, mine, asic_type=family)

    @pytest.mark.parametrize(
        ("version", "taken"),
        [
            ("SONiC-OS-202505.0-1a2b3c4d", False),
            ("20241110.12", False),
            ("202411.877-aa11", False),
            ("SONiC-OS-202511.3", True),
            ("20260510.1", True),
            ("master.1024-5b3e87fb9", True),
            ("internal.137461-2025052", True),
            # A commit is not a date.
            ("SONiC.master.1034567-201911b3c", True),
            ("SONiC-OS-20250510", False),
            ("SONiC.azure_cisco_202405c.32342-dirty-20260110.093012", False),
            ("SONiC.Edgecore-SONiC_20260310_063104_ec202311_172", False),
            ("SONiC.Edgecore-SONiC_20260310_063104_ec202511_172", True),
            ("1", True),
        ],
    )
    def test_a_release_is_refused_by_its_name(self, version: str, taken: bool) -> None:
        if taken:
            assert plan(new_switch(2), version=version)
        else:
            with pytest.raises(SwitchError, match="Install 202511"):
                plan(new_switch(2), version=version)

    def test_a_switch_without_lossless_buffers_is_told_where_to_find_some(self) -> None:
        config = new_switch(2)
        del config["BUFFER_POOL"]["ingress_lossless_pool"]
        for platform, shown in (("x86_64-nokia-r0", "x86_64-nokia-r0"), ("a;reboot", "PLATFORM")):
            config["DEVICE_METADATA"]["localhost"]["platform"] = platform
            with pytest.raises(SwitchError) as caught:
                plan(config)
            folder = f"/usr/share/sonic/device/{shown}"
            (pattern,) = re.findall(r"grep -l ingress_lossless_pool (\S+)`", str(caught.value))
            # Where sonic-buildimage 086b03bd has it: of nearly all, of Marvell's dbmvtx9180_64osfp
            # and 33 more, and of Arista-7260CX3-Q64.
            for name in ("buffers_defaults_t1.j2", "buffers.json.j2", "buffers_pool_sizes_t0.j2"):
                assert fnmatch(f"{folder}/SKU/{name}", pattern)


class TestWayOut:
    def test_a_lossy_pool_for_the_roce_queue_is_refused(self) -> None:
        drifted = changed(new_switch(2), "BUFFER_QUEUE|Ethernet8|3", {"profile": LOSSY})
        del drifted["BUFFER_QUEUE"]["Ethernet8|3-4"]
        with pytest.raises(SwitchError) as caught:
            plan(drifted)
        assert "BUFFER_QUEUE|Ethernet8|3 serves queue 3" in str(caught.value)
        folder = "/usr/share/sonic/device/x86_64-nvidia_sn5600-r0"
        assert f"`grep -l egress_lossless_profile {folder}/*/buffers" in str(caught.value)
        assert plan(drifted, small({"roce": {"priority": 4}}))
