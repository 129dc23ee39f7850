# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The simulated Cumulus Linux switch rejects, asks, waits, rolls back and fails as NVUE does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from tests.bed.simulators.parts import (
    hardware,
    nvue_effective,
    nvue_revisions,
    nvue_schema,
    nvue_vendor,
    surroundings,
)
from tests.bed.simulators.process import VirtualSwitch
from tests.unit.https_server import Authority
from tests.waiting import until

PORTS = [
    {"name": "swp1", "speed_gbps": 400, "peer": "node01", "peer_interface": "rail0"},
    {
        "name": "swp2",
        "speed_gbps": 400,
        "peer": "node02",
        "peer_interface": "rail0",
        "peer_mac": "9C:63:C0:00:00:02",
    },
    {"name": "swp3", "speed_gbps": 800, "peer": "spine01", "peer_interface": "swp7"},
    {"name": "swp4", "speed_gbps": 800, "peer": "", "peer_interface": ""},
]
WAY = (
    "apply", "checking", "checked", "verifying", "verified", "readying", "ready", "reloading",
    "reloaded",
)  # fmt: skip
YES = {"ays": "ays_yes"}
LONG_S = 3600
"""Longer than any test: only an action of the test ends it."""
Make = Callable[..., "Api"]


class Api:
    """A client of NVUE."""

    def __init__(self, switch: VirtualSwitch) -> None:
        self.switch = switch
        self.client = switch.client()

    def get(self, path: str, **query: str) -> Any:
        answer = self.client.get(f"/nvue_v1{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def stage(self, patch: dict[str, Any]) -> str:
        answer = self.client.post("/nvue_v1/revision")
        assert answer.status_code == 201
        (number,) = answer.json()
        assert answer.json()[number]["state"] == "pending"
        changed = self.client.patch("/nvue_v1/", params={"rev": number}, json=patch)
        assert changed.status_code == 200, changed.text
        return str(number)

    def command(self, number: str, state: str, **more: Any) -> httpx.Response:
        return self.client.patch(f"/nvue_v1/revision/{number}", json={"state": state, **more})

    def state(self, number: str) -> str:
        return str(self.get(f"/revision/{number}")["state"])

    def reach(self, number: str, *states: str) -> list[str]:
        """Return the states that were seen on the way."""
        seen: list[str] = []

        def there() -> bool:
            state = self.state(number)
            if state not in seen[-1:]:
                seen.append(state)
            return state in states

        until(there, f"revision {number} to be {' or '.join(states)}", every=0.01)
        return seen

    def apply(self, patch: dict[str, Any], confirm: float = 0, **more: Any) -> str:
        number = self.stage(patch)
        controls = {"state-controls": {"confirm": confirm}} if confirm else {}
        answer = self.command(number, "apply", **{"auto-prompt": YES, **controls, **more})
        assert answer.json()["state"] == "apply"
        self.reach(number, "confirm" if confirm else "applied_and_saved")
        return number

    def mtu(self, rev: str = "operational", port: str = "swp1") -> Any:
        return self.get(f"/interface/{port}/link", rev=rev)["mtu"]


def mtu(value: object, port: str = "swp1") -> dict[str, Any]:
    return {"interface": {port: {"link": {"mtu": value}}}}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def make(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority
) -> Iterator[Callable[..., Api]]:
    made = []

    def one(release: str = "", asic: str = "spectrum4") -> Api:
        directory = tmp_path_factory.mktemp("nvue") / "switch"
        described = {"name": "leaf03", "system": "nvue", "asic": asic, "ports": PORTS}
        described.update(release=release, step_s=0.005)
        made.append(VirtualSwitch(directory, authority, described))
        return Api(made[-1])

    yield one
    for switch in made:
        switch.stop()


@pytest.fixture(scope="module")
def shared(make: Make) -> Api:
    """Serves tests that change nothing."""
    return make()


@pytest.fixture
def api(shared: Api) -> Iterator[Api]:
    yield shared
    shared.switch.heal()


def test_nobody_gets_in_without_the_password(api: Api) -> None:
    api.client.auth = None
    answer = api.client.get("/nvue_v1/system")
    api.client = api.switch.client()
    assert answer.status_code == 401
    assert "401 Authorization Required" in answer.text
    with api.switch.client(password="wrong") as wrong:
        assert wrong.get("/nvue_v1/system").status_code == 401


def test_a_revision_goes_through_its_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The simulation pauses at each state, because a polling client would miss some."""
    seen = []
    pauses = SimpleNamespace(sleep=lambda _seconds: seen.append(revision.state))
    monkeypatch.setattr(nvue_revisions, "time", pauses)
    revisions = nvue_revisions.Revisions(surroundings(hardware("nvue", PORTS), tmp_path))
    revision = revisions.create("applied")
    revisions.edit(revision.number, {**revision.config, **mtu(9000)})
    revisions.command(revision.number, {"state": "apply", "auto-prompt": YES})
    until(lambda: revision.state == "applied_and_saved", "the revision to be applied")
    assert tuple(seen) == WAY


REFUSED = (
    (mtu("9000"), "'9000' is not of type 'integer' - 'interface.swp1.link.mtu'"),
    (mtu(9217), "9217 is greater than the maximum of 9216 - 'interface.swp1.link.mtu'"),
    (
        {"qos": {"roce": {"enable": "enabled"}}},
        "'enabled' is not one of ['on', 'off'] - 'qos.roce.enable'",
    ),
    (
        {"qos": {"roce": {"state": "enabled"}}},
        "Additional properties are not allowed ('state' was unexpected) - 'qos.roce'",
    ),
    (
        {"qos": {"mapping": {"default-global": {"dscp": {"64": {"switch-priority": 3}}}}}},
        "Additional properties are not allowed ('64' was unexpected)"
        " - 'qos.mapping.default-global.dscp'",
    ),
    (
        {"qos": {"pfc": {"default-global": {"tx": "on"}}}},
        "'on' is not one of ['enable', 'disable'] - 'qos.pfc.default-global.tx'",
    ),
    (
        {"interface": {"swp1": {"qos": {"pfc-watchdog": "enable"}}}},
        "'enable' is not of type 'object' - 'interface.swp1.qos.pfc-watchdog'",
    ),
    (
        {"service": {"lldp": {"tx-interval": 5}}},
        "5 is less than the minimum of 10 - 'service.lldp.tx-interval'",
    ),
)


@pytest.mark.parametrize(("patch", "detail"), REFUSED)
def test_the_schema_is_kept(patch: dict[str, Any], detail: str) -> None:
    with pytest.raises(nvue_schema.Refused) as refused:
        nvue_schema.check(nvue_schema.root((5, 13)), patch)
    assert str(refused.value) == detail


def test_a_patch_against_the_schema_is_refused_and_not_taken(api: Api) -> None:
    before = api.get("/", rev="applied", filled="false")
    (number,) = api.client.post("/nvue_v1/revision").json()
    answer = api.client.patch("/nvue_v1/", params={"rev": number}, json=mtu("9000"))
    assert (answer.status_code, answer.json()["title"]) == (400, "Bad Request")
    assert api.get("/", rev=number, filled="false") == before


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nvue_v1/revision/99999", 404),
        ("GET", "/nvue_v1/?rev=99999", 404),
        ("PATCH", "/nvue_v1/?rev=99999", 404),
        ("GET", "/nvue_v1/nonsense?rev=applied", 404),
        ("GET", "/nvue_v2/system", 404),
        ("PATCH", "/nvue_v1/", 400),
        ("PATCH", "/nvue_v1/?rev=applied", 400),
        ("POST", "/nvue_v1/interface", 405),
    ],
)
def test_what_is_not_there_is_not_found(api: Api, method: str, path: str, status: int) -> None:
    answer = api.client.request(method, path, json={})
    assert answer.status_code == status
    assert answer.json()["status"] == status


def test_a_revision_that_cannot_be_told_is_refused(api: Api) -> None:
    number = api.stage(mtu(9000))
    for response in (
        {"state": "applied"},
        {"state": "confirm_yes"},
        {"state": "save"},
        {"state": "apply", "state-controls": {"confirm": "60"}},
    ):
        assert api.client.patch(f"/nvue_v1/revision/{number}", json=response).status_code == 400
    assert api.state(number) == "pending"


def test_null_unsets_and_leaves_no_shells(api: Api) -> None:
    before = api.get("/", rev="applied", filled="false")
    number = api.stage({"interface": {"swp3": {"link": {"mtu": 9000, "speed": "800G"}}}})
    at = {"rev": number}
    api.client.patch("/nvue_v1/interface/swp3/link", params=at, json={"mtu": None})
    assert api.get("/interface/swp3", rev=number, filled="false") == {"link": {"speed": "800G"}}
    api.client.patch("/nvue_v1/interface/swp3/link", params=at, json={"speed": None})
    assert api.get("/interface/swp3", rev=number, filled="false") == {}
    api.client.patch("/nvue_v1/interface", params=at, json={"swp3": None})
    assert api.get("/", rev=number, filled="false") == before


def test_filters_and_discarded_revisions(api: Api) -> None:
    number = api.stage({"interface": {"swp2": {"link": {"mtu": 8000}}}})
    assert api.get("/interface", rev=number, include="/*/link/mtu")["swp2"] == {
        "link": {"mtu": 8000}
    }
    assert api.client.delete(f"/nvue_v1/revision/{number}").status_code == 204
    assert api.client.get(f"/nvue_v1/revision/{number}").status_code == 404


def test_links_and_neighbours_are_those_of_its_description(api: Api) -> None:
    found = api.get("/interface", include="/*/lldp/neighbor,/*/link/speed,/*/link/oper-status")
    assert found["swp1"]["link"] == {"speed": "400G", "oper-status": "up"}
    assert found["swp1"]["lldp"]["neighbor"]["node01"]["port"]["name"] == "rail0"
    nic = found["swp2"]["lldp"]["neighbor"]["9c:63:c0:00:00:02"]
    assert (nic["port"]["type"], nic["chassis"]["system-name"]) == ("mac", "")
    assert found["swp4"] == {"link": {"oper-status": "down"}}
    api.switch.fault(lldp={"swp1": {"system": "node07", "port": "rail3"}})
    heard = api.get("/interface/swp1/lldp/neighbor")
    assert heard["node07"]["port"]["name"] == "rail3"


def test_roce_brings_the_vendors_settings(make: Make) -> None:
    api = make(asic="spectrum4", release="5.13")
    assert api.get("/qos/roce", rev="applied")["enable"] == "off"
    assert "pfc" not in api.get("/qos", rev="applied")
    api.apply({"qos": {"roce": {"enable": "on"}}})
    qos = api.get("/qos", rev="applied")
    assert qos["pfc"]["default-global"]["switch-priority"] == {"3": {}}
    shares = qos["egress-scheduler"]["default-global"]["traffic-class"]
    assert shares == {
        "0": {"mode": "dwrr", "bw-percent": 50},
        "3": {"mode": "dwrr", "bw-percent": 50},
        "6": {"mode": "strict"},
    }
    dscps = qos["mapping"]["default-global"]["dscp"]
    assert [dscp for dscp, to in dscps.items() if to["switch-priority"] == 3] == [
        str(dscp) for dscp in range(24, 32)
    ]
    marked = qos["congestion-control"]["default-global"]["traffic-class"]
    assert (sorted(marked), marked["3"]["min-threshold"]) == (["0", "3"], 150000)
    queue = api.get("/interface/swp1/qos/congestion-control")["traffic-class"]["3"]
    assert queue["min-threshold"] == 159744


@pytest.mark.parametrize(
    ("asic", "found"), [("spectrum4", 159744), ("spectrum3", 156672), ("Spectrum-2", 156672)]
)
def test_thresholds_are_rounded_to_what_the_chip_has(asic: str, found: int) -> None:
    assert nvue_vendor.in_steps(150000, asic) == found


def test_what_is_listed_replaces_the_list_of_the_vendor() -> None:
    response = {
        "qos": {
            "roce": {"enable": "on"},
            "pfc": {"default-global": {"switch-priority": {"4": {}}}},
            "congestion-control": {"default-global": {"traffic-class": {"4": {"probability": 5}}}},
            "egress-scheduler": {"default-global": {"traffic-class": {"4": {"bw-percent": 60}}}},
            "traffic-pool": {"roce-lossless": {"switch-priority": {"4": {}}}},
        }
    }
    qos = nvue_effective.qos(response, hardware("nvue", PORTS))
    assert qos["pfc"]["default-global"]["switch-priority"] == {"4": {}}
    assert qos["pfc"]["default-global"]["cable-length"] == 100
    marked = qos["congestion-control"]["default-global"]["traffic-class"]
    assert (list(marked), marked["4"]["probability"], marked["4"]["ecn"]) == (["4"], 5, "enabled")
    assert qos["egress-scheduler"]["default-global"]["traffic-class"] == {
        "4": {"mode": "dwrr", "bw-percent": 60}
    }
    assert qos["traffic-pool"]["roce-lossless"]["switch-priority"] == {"4": {}}


def test_a_change_is_retained_if_confirmed_and_undone_if_denied(api: Api) -> None:
    kept = api.apply(mtu(7100), confirm=LONG_S)
    assert api.mtu() == 7100 != api.mtu("startup")
    assert api.command(kept, "confirm_yes").status_code == 200
    api.reach(kept, "applied_and_saved")
    denied = api.apply(mtu(7200), confirm=LONG_S)
    api.command(denied, "confirm_no")
    api.reach(denied, "confirm_fail")
    assert api.mtu() == api.mtu("startup") == 7100
    assert api.command(denied, "confirm_yes").status_code == 400


def test_an_earlier_revision_comes_back_whole(api: Api) -> None:
    first = api.apply({"interface": {"swp3": {"link": {"mtu": 6000}, "description": "to spine"}}})
    api.apply({"interface": {"swp3": None}})
    api.command(first, "apply", **{"auto-prompt": YES})
    api.reach(first, "applied_and_saved")
    assert api.get("/interface/swp3", rev="applied", filled="false") == {
        "link": {"mtu": 6000},
        "description": "to spine",
    }


def test_one_apply_at_a_time(api: Api) -> None:
    first = api.apply(mtu(6300), confirm=LONG_S)
    second = api.stage(mtu(6400, port="swp2"))
    api.command(second, "apply", **{"auto-prompt": YES})
    # After this many requests it would have continued.
    assert {api.state(second) for _time in range(50)} == {"apply"}
    api.command(first, "confirm_yes")
    api.reach(second, "applied_and_saved")
    assert (api.mtu(), api.mtu(port="swp2")) == (6300, 6400)


def test_it_asks_before_it_lays_out_buffers_anew(api: Api) -> None:
    number = api.stage({"qos": {"traffic-pool": {"default-lossy": {"memory-percent": 90}}}})
    api.command(number, "apply")
    api.reach(number, "ays")
    api.command(number, "ays_no")
    api.reach(number, "ays_fail")
    api.command(number, "apply")
    api.reach(number, "ays")
    api.command(number, "ays_yes")
    api.reach(number, "applied_and_saved")


def test_what_was_not_saved_is_lost_in_a_reboot(make: Make) -> None:
    api = make(release="5.8")
    number = api.stage(mtu(9000))
    api.command(number, "apply")
    api.reach(number, "applied")
    pending = api.stage(mtu(8000))
    api.switch.reboot()
    api = Api(api.switch)
    assert api.mtu() == 9216
    assert api.state(pending) == "pending"
    api.command(number, "apply")
    api.reach(number, "applied")
    assert api.command("applied", "save").json()["state"] == "saved"
    unconfirmed = api.stage(mtu(7000))
    api.command(unconfirmed, "apply", **{"state-controls": {"confirm": LONG_S}})
    api.reach(unconfirmed, "confirm")
    api.switch.reboot()
    api = Api(api.switch)
    assert api.mtu() == api.mtu("startup") == 9000
    assert api.state(unconfirmed) == "inactive"


INVALID = (
    (
        {"interface": {"swp1": {"qos": {"pfc-watchdog": {"state": "enable"}}}}},
        "PFC watchdog can only be configured on a port with PFC",
    ),
    (mtu(9000, port="swp99"), "swp99 does not exist"),
    ({"interface": {"swp1": {"qos": {"pfc": {"profile": "gone"}}}}}, "gone is not configured"),
    (
        {"qos": {"traffic-pool": {"roce-lossless": {"memory-percent": 20}}}},
        "memory-percent sums to 120",
    ),
    (
        {
            "qos": {
                "egress-scheduler": {
                    "default-global": {
                        "traffic-class": {"0": {"bw-percent": 60}, "3": {"bw-percent": 58}}
                    }
                }
            }
        },
        "total of bw-percent is 118",
    ),
    (
        {"qos": {"egress-scheduler": {"mine": {"traffic-class": {"0": {"mode": "dwrr"}}}}}},
        "bw-percent is required",
    ),
    (
        {
            "qos": {
                "congestion-control": {
                    "default-global": {"traffic-class": {"3": {"min-threshold": 2000000}}}
                }
            }
        },
        "min-threshold must not be greater",
    ),
)


@pytest.mark.parametrize(("config", "reason"), INVALID)
def test_what_contradicts_itself_is_not_applied(config: dict[str, Any], reason: str) -> None:
    with pytest.raises(nvue_effective.Invalid, match=reason):
        nvue_effective.check(config, hardware("nvue", PORTS))


def test_an_invalid_configuration_says_where_and_can_be_mended(api: Api) -> None:
    before = api.mtu()
    number = api.stage({**mtu(6500), "qos": {"traffic-pool": {"mc-lossy": {"memory-percent": 99}}}})
    api.command(number, "apply", **{"auto-prompt": YES})
    api.reach(number, "invalid")
    shown = api.get(f"/revision/{number}")["transition"]
    assert shown["progress"] == "Invalid config"
    assert shown["issue"]["0"]["code"] == "config_invalid"
    assert shown["issue"]["0"]["message"].startswith("Config invalid at qos.traffic-pool: ")
    assert api.mtu() == before
    api.client.patch("/nvue_v1/qos/traffic-pool", params={"rev": number}, json={"mc-lossy": None})
    api.command(number, "apply", **{"auto-prompt": YES})
    api.reach(number, "applied_and_saved")


def test_a_full_disk_when_saving(make: Make) -> None:
    api = make(release="5.8")
    number = api.stage(mtu(9000))
    api.command(number, "apply")
    api.reach(number, "applied")
    api.switch.fault(apply="disk_full")
    answer = api.command("applied", "save")
    assert (answer.status_code, "No space left" in answer.json()["detail"]) == (500, True)
    assert (api.mtu(), api.mtu("startup")) == (9000, 9216)
