# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Runs on a simulated host: only differences are changed, and promises are read back."""

from __future__ import annotations

import contextlib
import json
import shutil

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import CommandError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.files import FilePlan
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails import arp
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails.converge import (
    unfinished,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails.naming import elsewhere
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails.plan import plan_rails
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.rails_host import FakeHost, rail

RAILS = [rail(0), rail(1), rail(2)]


@pytest.fixture
def host(tmp_path):
    return FakeHost(tmp_path)


@pytest.fixture
def settled(host):
    """A host on which the rails have been configured."""
    host.converge(RAILS)
    host.forget_commands()
    return host


def of(outcome, name, subject=None):
    return [
        check for check in outcome.checks if check.name == name and subject in (None, check.subject)
    ]


def statuses(outcome):
    return {check.status for check in outcome.checks}


def test_a_bare_host_gets_its_rails(host):
    outcome = host.converge(RAILS)
    assert outcome.changed
    assert host.now > 0, "read twice"
    assert statuses(outcome) == {"ok", "not_applicable"}
    assert outcome.reconfigured == ["rail0", "rail1", "rail2"]
    assert host.links["rail1"]["addresses"] == ["10.100.1.11/24"]
    assert host.links["rail1"]["mtu"] == 9000
    assert arp.read_arp("rail2", host.root) == arp.ARP_DEFAULTS


def test_the_second_run_changes_nothing_and_asks_little(settled):
    outcome = settled.converge(RAILS)
    assert not outcome.changed
    assert outcome.diff == []
    assert settled.changing_commands() == []
    asked = [command for command in settled.commands if command[0] != "ping"]
    assert len(asked) == 6, asked


def test_check_mode_shows_all_and_changes_nothing(host):
    before = {path: path.stat().st_mtime_ns for path in host.root.rglob("*")}
    outcome = host.converge(RAILS, check_mode=True)
    assert outcome.changed
    assert host.changing_commands() == []
    assert {path: path.stat().st_mtime_ns for path in host.root.rglob("*")} == before
    assert "pending" in statuses(outcome)
    assert "failed" not in statuses(outcome)
    shown = [each["after_header"] for each in outcome.diff]
    assert "rail1 (running)" in shown
    assert any(header.endswith("10-baremetal-mpi-roce-rail1.network") for header in shown)


@pytest.mark.parametrize(
    ("drift", "check"),
    [
        (lambda host: host.links["rail1"].update(mtu=1500), "rail_mtu"),
        (lambda host: host.links["rail1"].update(addresses=[]), "rail_address"),
        (lambda host: host.links["rail1"].update(up=False), "rail_link"),
        (lambda host: host.rules.pop(1), "rail_rule"),
        (lambda host: host.routes.pop(3), "rail_route"),
        (lambda host: host.loaded.pop("rail1"), "rail_config"),
    ],
)
def test_drift_is_shown_repaired_and_touches_no_other_rail(settled, drift, check):
    drift(settled)
    others = {name: settled.snapshot(name) for name in ("rail0", "rail2", "mgmt0")}
    shown = settled.converge(RAILS, check_mode=True)
    assert [each.status for each in of(shown, check, "rail1")] == ["pending"]
    outcome = settled.converge(RAILS)
    assert outcome.changed
    assert outcome.reconfigured == ["rail1"]
    assert set(settled.touched) == {"rail1"}
    assert statuses(outcome) == {"ok", "not_applicable"}
    assert {name: settled.snapshot(name) for name in others} == others
    assert not settled.converge(RAILS).changed


@pytest.mark.parametrize(
    "drift",
    [
        lambda host: host.links["rail1"]["addresses"].append("9.9.9.9/24"),
        lambda host: host.rules.append({"priority": 5, "src": "10.100.1.11", "table": "77"}),
        lambda host: host.routes.append({"dst": "default", "dev": "rail1", "metric": 50}),
        lambda host: host.routes.append({"dst": "1.0.0.0/8", "dev": "rail1", "table": "1010"}),
        lambda host: host.neighbours.append({"dst": "10.100.1.12", "dev": "rail1", "lladdr": "2"}),
        lambda host: host.routes.append({"type": "6", "dst": "10.100.1.0/24", "metric": 5}),
        lambda host: host.routes.append({"type": "6", "dst": "10.100.1.12/32", "table": "1010"}),
        lambda host: host.routes.append({"dst": "10.100.1.128/25", "dev": "mgmt0"}),
    ],
)
def test_surplus_objects_are_removed_without_a_setup(settled, drift):
    settled.routes.append({"dst": "default", "dev": "mgmt0", "gateway": "10.10.0.1"})
    settled.neighbours.append({"dst": "10.10.0.1", "dev": "mgmt0", "lladdr": "02:01"})
    drift(settled)
    shown = settled.converge(RAILS, check_mode=True)
    assert {check.subject for check in shown.checks if check.status == "pending"} == {"rail1"}
    outcome = settled.converge(RAILS)
    assert outcome.changed
    assert outcome.reconfigured == []
    assert settled.touched == []
    assert statuses(outcome) == {"ok", "not_applicable"}
    assert not settled.converge(RAILS).changed


def test_routes_that_an_operator_added_to_other_networks_stay(settled):
    settled.routes.append({"dst": "192.168.0.0/16", "dev": "rail1", "metric": 7})
    settled.routes.append({"dst": "192.168.9.0/24", "type": "6"})
    settled.routes.append({"dst": "10.0.0.0/8", "dev": "mgmt0", "gateway": "10.10.0.1"})
    assert not settled.converge(RAILS).changed


def test_arp_settings_are_repaired_without_the_network_service(settled):
    path = settled.root / "proc/sys/net/ipv4/conf/rail2/arp_ignore"
    path.write_text("0\n")
    outcome = settled.converge(RAILS)
    assert outcome.changed
    assert path.read_text() == "1\n"
    assert settled.changing_commands() == []


def test_a_former_rail_keeps_the_operators_addresses(settled):
    settled.links["rail2"]["addresses"].append("192.168.7.1/24")
    settled.converge(RAILS[:2])
    assert settled.links["rail2"]["addresses"] == ["192.168.7.1/24"]


def test_a_rail_that_stays_down_is_restored(settled):
    settled.max_mtu["rail1"] = 9000
    wanted = [rail(0, mtu=9100), rail(1, mtu=9100), rail(2)]
    before = {path: path.read_text() for path in settled.root.glob("etc/systemd/network/*rail1*")}
    outcome = settled.converge(wanted)
    assert outcome.rolled_back == ["rail1"]
    (failed,) = [check for check in outcome.checks if check.status == "failed"]
    assert (failed.name, failed.subject, failed.found) == ("rail_mtu", "rail1", 9000)
    assert "former configuration" in failed.reason
    assert {path: path.read_text() for path in before} == before
    # The other rails are not affected.
    assert settled.links["rail0"]["mtu"] == 9100
    # The wait is bounded.
    assert settled.now >= 30


def test_a_rail_that_the_service_missed_is_set_up_once_more(host):
    host.deaf.add("rail1")

    def sleep(seconds):
        host.now += seconds
        if host.now > 4:
            host.deaf.clear()

    host.sleep = sleep
    outcome = host.converge(RAILS)
    assert statuses(outcome) == {"ok", "not_applicable"} and outcome.rolled_back == []
    assert [name for name in host.touched if name == "rail1"] == ["rail1"] * 2
    assert 5 <= host.now < 10


def test_rails_that_cannot_be_read_are_left_to_the_next_run(settled):
    real = settled.run

    def run(argv, **more):
        if settled.touched and argv[:2] == ("ip", "-N"):
            raise CommandError("ip: no answer")
        return real(argv, **more)

    settled.run = run
    settled.max_mtu["rail1"] = 9000
    outcome = settled.converge([rail(0), rail(1, mtu=9100), rail(2)])
    assert outcome.errors[0] == "rails: ip: no answer" and outcome.rolled_back == []
    assert unfinished(settled.root) == ["rail1"]


def test_a_dead_cable_does_not_change_the_configuration(host):
    host.links["rail1"]["carrier"] = False
    outcome = host.converge(RAILS, wait_s=3)
    assert outcome.rolled_back == []
    (failed,) = [check for check in outcome.checks if check.status == "failed"]
    assert (failed.name, failed.subject, failed.found) == ("rail_link", "rail1", "no carrier")
    # A run cannot connect a cable.
    assert not host.converge(RAILS).changed
    assert "failed" in statuses(host.converge(RAILS, check_mode=True))


@pytest.mark.parametrize(
    ("fragments", "found", "reason"),
    [
        (None, "no answer", "ping -n -q -M do -s 8972 -c 1 -W 1 -I 10.100.1.11 10.100.1.1"),
        # EOS gives a VLAN's interface 1500 bytes, whatever its ports carry.
        (1500, "in fragments of 1500 bytes at most", "to 9000 or more"),
        (TimeoutError("no answer from it"), "no answer", "second one: no answer from it"),
    ],
)
def test_a_gateway_that_does_not_answer_whole(settled, fragments, found, reason):
    if fragments is None:
        settled.silent_gateways.add("10.100.1.1")
    else:
        settled.fragments["10.100.1.1"] = fragments
    outcome = settled.converge(RAILS)
    (failed,) = [check for check in outcome.checks if check.status == "failed"]
    assert (failed.name, failed.subject, failed.found) == ("rail_path", "rail1", found)
    assert reason in failed.reason and not outcome.changed
    # The wait is bounded.
    assert settled.now < 10


@pytest.mark.parametrize(
    "state",
    [
        "ActiveState=inactive\nUnitFileState=enabled\n",
        "ActiveState=active\nUnitFileState=disabled\n",
    ],
)
def test_the_service_runs_and_starts_at_boot(settled, state):
    settled.service = state
    shown = settled.converge(RAILS, check_mode=True)
    assert [check.status for check in of(shown, "rails_service")] == ["pending"]
    assert settled.changing_commands() == []
    outcome = settled.converge(RAILS)
    assert outcome.changed
    assert ("systemctl", "enable", "--now", "systemd-networkd.service") in settled.commands
    assert settled.touched == []
    assert not settled.converge(RAILS).changed


# Files of others


def test_a_rail_that_is_claimed_later_keeps_the_file_it_has(settled):
    theirs = settled.root / "etc/systemd/network/05-mine.network"
    theirs.write_text("[Match]\nName=rail1\n[Network]\nAddress=10.9.9.9/24\n")
    ours = theirs.with_name("10-baremetal-mpi-roce-rail1.network")
    before = ours.read_text()
    settled.converge([rail(0), rail(1, mtu=8000), rail(2)])
    assert ours.read_text() == before


def test_files_of_another_backend_of_ours_go(settled):
    stale = (
        settled.root / "etc/NetworkManager/system-connections/baremetal-mpi-roce-rail0.nmconnection"
    )
    stale.parent.mkdir(parents=True)
    stale.write_text("[connection]\n")
    theirs = stale.with_name("mgmt.nmconnection")
    theirs.write_text("[connection]\ninterface-name=mgmt0\n")
    assert settled.converge(RAILS).changed
    assert not stale.exists()
    assert theirs.exists()


# Names by PCI address


def test_an_idle_nic_is_renamed_and_configured(tmp_path):
    host = FakeHost(tmp_path, names=("rail0",))
    host.add_link("ens5f0", pci="0000:5d:00.0")
    wanted = [rail(0), rail(1, pci="0000:5d:00.0")]
    shown = host.converge(wanted, check_mode=True)
    assert [check.status for check in of(shown, "rail_name", "rail1")] == ["pending"]
    outcome = host.converge(wanted)
    assert statuses(outcome) == {"ok", "not_applicable"}
    assert host.links["rail1"]["addresses"] == ["10.100.1.11/24"]
    link_file = tmp_path / "etc/systemd/network/10-baremetal-mpi-roce-rail1.link"
    assert "Path=pci-0000:5d:00.0\n" in link_file.read_text()
    assert not host.converge(wanted).changed


def test_a_nic_in_use_waits_for_the_reboot_which_is_recorded(tmp_path):
    host = FakeHost(tmp_path, names=("rail0",))
    host.add_link("ens5f0", pci="0000:5d:00.0")
    host.links["ens5f0"]["addresses"] = ["10.50.0.1/24"]
    wanted = [rail(0), rail(1, pci="0000:5d:00.0")]
    outcome = host.converge(wanted)
    assert {check.status for check in outcome.checks if check.subject == "rail1"} == {
        "reboot",
        "ok",
    }
    # It is not changed now.
    assert host.links["ens5f0"]["addresses"] == ["10.50.0.1/24"]
    record = tmp_path / "var/lib/baremetal-mpi-roce/reboot-required.d/rails.json"
    (reason,) = json.loads(record.read_text())["reasons"]
    assert (reason["subject"], reason["running"]) == ("rail1", "ens5f0")
    # Waiting for a reboot is not a change.
    assert not host.converge(wanted).changed

    net = tmp_path / "sys/class/net"
    (net / "ens5f0").rename(net / "rail1")
    conf = tmp_path / "proc/sys/net/ipv4/conf"
    (conf / "ens5f0").rename(conf / "rail1")
    host.links["rail1"] = host.links.pop("ens5f0")
    host.reboot()
    after = host.converge(wanted)
    assert statuses(after) == {"ok", "not_applicable"}
    assert not record.exists()


def test_a_missing_nic_fails_only_its_rail(host):
    outcome = host.converge([rail(0), rail(1, pci="0000:aa:00.0", interface="railx"), rail(2)])
    (failed,) = [check for check in outcome.checks if check.status == "failed"]
    assert (failed.name, failed.subject) == ("rail_name", "railx")
    assert "0000:aa:00.0" in failed.reason
    assert not list(host.root.glob("etc/systemd/network/*railx*"))
    assert host.links["rail2"]["addresses"] == ["10.100.2.11/24"]


def test_a_replaced_machine_keeps_its_rails_at_other_addresses(tmp_path):
    """Another board with the former disk, whose link files name other addresses."""
    former, host = FakeHost(tmp_path / "former", names=()), FakeHost(tmp_path / "new", names=())
    for number, name in enumerate(("ens5", "ens6")):
        former.add_link(name, pci=f"0000:5{number}:00.0")
        host.add_link(name, pci=f"0001:9{number}:00.0")
    old, new = (
        [rail(number, pci=f"{pci}{number}:00.0") for number in (0, 1)]
        for pci in ("0000:5", "0001:9")
    )
    assert statuses(former.converge(old)) == {"ok"}
    shutil.copytree(former.root / "etc", host.root / "etc", dirs_exist_ok=True)
    links = sorted((host.root / "etc/systemd/network").glob("*rail*.link"))
    outcome = host.converge(old)
    failed = {check.subject: check for check in outcome.checks if check.name == "rail_name"}
    assert {check.status for check in failed.values()} == {"failed"}
    assert "rail0 0001:90:00.0, rail1 0001:91:00.0" in failed["rail0"].reason
    assert "Path=pci-0000:50:00.0\n" in links[0].read_text()
    assert host.links["ens5"]["addresses"] == []
    assert statuses(host.converge(new)) == {"ok"}
    assert [path.read_text().count("Path=pci-0001:9") for path in links] == [1, 1]
    assert host.links["rail0"]["addresses"] == ["10.100.0.11/24"]


@pytest.mark.parametrize(
    ("nics", "rails"),
    [
        ((0x90,), (0x50, 0x51)),
        ((0x90, 0x91, 0x92), (0x50, 0x51)),
        ((0x50, 0x91), (0x50, 0x51)),
        ((0x90, 0x91), (None, None)),
    ],
    ids=["fewer", "more", "one in its place", "named by hand"],
)
def test_other_places_are_not_guessed(nics, rails):
    by_pci = {f"0000:{pci:x}:00.0": [f"ens{pci}"] for pci in nics}
    wanted = plan_rails(
        [rail(number, pci=pci and f"0000:{pci:x}:00.0") for number, pci in enumerate(rails)]
    )
    assert elsewhere(wanted, by_pci, {}) == ""


def test_the_management_nic_is_not_a_rails_new_place():
    by_pci = {"0000:01:00.0": ["eno1"], "0000:90:00.0": ["ens1"]}
    wanted = plan_rails([rail(0, pci="0000:50:00.0")])
    assert elsewhere(wanted, by_pci, {}) == ""
    assert elsewhere(wanted, by_pci, {"eno1": "carries"}).endswith("rail0 0000:90:00.0")


# Interrupted runs and reboots


class Killed(BaseException):
    """Like kill -9: no handler of the run is executed."""


def test_a_killed_run_is_repaired_by_the_next(tmp_path):
    first = FakeHost(tmp_path / "counted")
    first.converge(RAILS)
    for stop in range(1, len(first.commands) + 1):
        host = FakeHost(tmp_path / f"killed{stop}")
        real, count = host.run, [0]

        def run(argv, real=real, count=count, stop=stop, **more):
            count[0] += 1
            if count[0] == stop:
                raise Killed
            return real(argv, **more)

        host.run = run
        with contextlib.suppress(Killed):
            host.converge(RAILS)
        host.run = real
        outcome = host.converge(RAILS)
        assert statuses(outcome) == {"ok", "not_applicable"}, stop
        assert not host.converge(RAILS).changed, stop
        assert unfinished(host.root) == []


def test_an_unwritable_file_stops_the_run(settled, monkeypatch):
    wanted = [rail(0, mtu=8000), rail(1, mtu=8000), rail(2)]
    real = FilePlan.apply

    def apply(plan):
        if "rail1" in plan.path.name:
            raise OSError(28, "No space left on device", str(plan.path))
        real(plan)

    with monkeypatch.context() as patch:
        patch.setattr(FilePlan, "apply", apply)
        outcome = settled.converge(wanted)
    assert "[Errno 28]" in outcome.errors[0]
    assert settled.links["rail0"]["mtu"] == settled.links["rail1"]["mtu"] == 9000
    assert statuses(settled.converge(wanted)) == {"ok", "not_applicable"}
    assert settled.links["rail0"]["mtu"] == settled.links["rail1"]["mtu"] == 8000


def test_arp_is_not_applicable_in_a_container(host, monkeypatch):
    (host.root / "run/systemd").mkdir(parents=True)
    (host.root / "run/systemd/container").write_text("podman\n")
    monkeypatch.setattr(arp, "arp_writable", lambda interface, root: False)
    outcome = host.converge(RAILS)
    checks = of(outcome, "rail_arp")
    assert {check.status for check in checks} == {"not_applicable"}
    assert checks[0].reason == "not applicable in a container"
    assert not host.converge(RAILS).changed


@given(st.data())
@settings(max_examples=30, suppress_health_check=list(HealthCheck))
def test_from_any_state_to_any_plan_in_one_run(tmp_path_factory, data):
    """From any state, one run reaches the plan, and the next changes nothing."""
    host = FakeHost(tmp_path_factory.mktemp("host"))

    def some_rails():
        numbers = data.draw(st.sets(st.integers(0, 2), min_size=1))
        return [
            rail(
                number,
                mtu=data.draw(st.sampled_from([1500, 8000, 9000])),
                address=f"10.100.{number}.{data.draw(st.integers(2, 4))}",
                gateway=data.draw(st.sampled_from([None, f"10.100.{number}.1"])),
            )
            for number in sorted(numbers)
        ]

    host.converge(some_rails())
    for name in data.draw(st.sets(st.sampled_from(["rail0", "rail1", "rail2"]))):
        host.links[name]["mtu"] = 1400
        host.links[name]["addresses"].append("9.9.9.9/24")
    if data.draw(st.booleans()):
        host.rules.clear()
    wanted = some_rails()
    outcome = host.converge(wanted)
    assert statuses(outcome) <= {"ok", "not_applicable"}
    host.forget_commands()
    assert not host.converge(wanted).changed
    assert host.changing_commands() == []
    assert "mgmt0" not in host.touched
    assert host.links["mgmt0"]["addresses"] == ["10.10.1.1/22"]


def test_each_rail_is_returned_as_the_kernel_has_it(settled):
    """The layer links compares these values with the ports of the leaf."""
    (settled.root / "sys/class/net/rail1/speed").write_text("400000\n")
    (settled.root / "sys/class/net/rail2/speed").write_text("-1\n")
    settled.links["rail0"]["carrier"] = False
    rails = settled.converge(RAILS, check_mode=True).rails
    keys = ("interface", "up", "carrier", "speed_gbps", "mtu")
    assert {name: tuple(each[key] for key in keys) for name, each in rails.items()} == {
        "rail0": ("rail0", True, False, None, 9000),
        "rail1": ("rail1", True, True, 400.0, 9000),
        "rail2": ("rail2", True, True, None, 9000),
    }


def test_a_claim_by_mac_is_found_before_renaming(tmp_path):
    host = FakeHost(tmp_path, names=())
    host.add_link("ens9", pci="0000:5d:00.0")
    claim = "network: {ethernets: {a: {match: {macaddress: '02:00:00:00:00:02'}}}}\n"
    (tmp_path / "etc/netplan").mkdir(parents=True)
    (tmp_path / "etc/netplan/50-cloud-init.yaml").write_text(claim)
    outcome = host.converge([rail(0, pci="0000:5d:00.0")])
    (check,) = of(outcome, "rail_claim")
    assert check.status == "failed"
    assert "50-cloud-init.yaml line 1" in check.found[0]
    assert not (tmp_path / "etc/systemd/network").exists()
