# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Virtual switches without nodes: they boot, retain the saved configuration, and are removed."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import waiting
from tests.bed.instances import STATE, describe, output, traces
from tests.nodes import Nodes

pytestmark = pytest.mark.nodes

CLUSTER = "vnswitch"
MODEL = """\
plugin: baremetal.mpi_roce.cluster
name: vnswitch
management: {subnet: 172.30.233.0/24, interface: mgmt0}
nodes: {count: 1, name: "node{:02d}", management_first: 172.30.233.11, slots: 2}
gpus: {count: 3}
rails: {count: 3, speed_gbps: 10, mtu: 9000}
addresses: {plan: subnet_per_rail, pool: 10.149.0.0/16, prefix: 24, first_host: 11}
leaves:
  count: 3
  management_first: 172.30.233.101
  ports: 8
  system: [sonic, nvue, eos]
  asic: [spectrum4, spectrum4, tomahawk5]
launcher: {name: launcher01, management: 172.30.233.10}
"""
SONIC, NVUE, EOS = "leaf01", "leaf02", "leaf03"
ADDRESSES = {NVUE: "https://172.30.233.102:8765/nvue_v1/system", EOS: "https://172.30.233.103/"}


def inside(switch: str, script: str) -> str:
    """Return the output of a shell in the container. Raises if the shell fails."""
    return output("podman", "exec", f"{CLUSTER}.{switch}", "sh", "-ec", script).strip()


def log(switch: str) -> list[str]:
    return inside(switch, "cat /var/log/virtual-switch.log").splitlines()


def identity(switch: str) -> str:
    return output("podman", "inspect", "--format", "{{.Id}}", f"{CLUSTER}.{switch}")


@pytest.fixture(scope="module")
def switches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    nodes = describe(tmp_path_factory.mktemp("switches") / "inventory", MODEL)
    variables = nodes.inventory / "group_vars/all.yml"
    chosen = "virtual_nodes_names: \"{{ groups['leaf'] }}\"\n"
    variables.write_text(variables.read_text() + chosen)
    nodes.state(present=False)
    before = traces(CLUSTER)
    nodes.state(present=True)
    yield nodes
    nodes.state(present=False)
    assert traces(CLUSTER) == before


def test_a_second_run_changes_nothing(switches: Nodes) -> None:
    before = {name: log(name) for name in (SONIC, NVUE, EOS)}
    assert switches.state(present=True).total("changed") == 0
    assert {name: log(name) for name in before} == before


def test_people_log_in_and_are_told_what_it_is(switches: Nodes) -> None:
    for name in (SONIC, NVUE, EOS):
        host = switches.on(name)
        assert "simulation" in host.check_output("cat /etc/motd")
        assert host.check_output("systemctl is-system-running") == "running"


def test_sonic_commands_need_root(switches: Nodes) -> None:
    assert switches.on(SONIC, sudo=False).run("/usr/local/bin/config save -y").rc == 1
    version = switches.on(SONIC).check_output("cat /etc/sonic/sonic_version.yml")
    assert "build_version: 'simulation" in version


@pytest.mark.parametrize("name", [NVUE, EOS])
def test_certificates_hold_and_a_password_is_asked_for(switches: Nodes, name: str) -> None:
    trusted = ssl.create_default_context(cafile=str(STATE / CLUSTER / "switch-ca.pem"))
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(ADDRESSES[name], context=trusted, timeout=10)
    assert refused.value.code == 401
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(ADDRESSES[name], timeout=10)


def mtu(switches: Nodes) -> Any:
    config = switches.on(SONIC).check_output("/usr/local/bin/sonic-cfggen -d --print-data")
    return json.loads(config)["PORT"]["Ethernet0"]["mtu"]


def test_only_the_saved_configuration_survives_a_reboot(switches: Nodes) -> None:
    set_mtu = "sonic-db-cli CONFIG_DB HSET 'PORT|Ethernet0' mtu"
    inside(SONIC, f"{set_mtu} 9000 && config save -y && {set_mtu} 8000")
    assert mtu(switches) == "8000"
    output("podman", "restart", "--time", "0", f"{CLUSTER}.{SONIC}")
    assert switches.state(present=True).total("changed") == 0
    assert mtu(switches) == "9000"
    assert log(SONIC)[-1].split()[1] == "boot"


def test_a_cut_expires(switches: Nodes) -> None:
    patch = '[{"op": "replace", "path": "/PORT/Ethernet0/mtu", "value": "9100"}]'
    inside(
        SONIC,
        f'virtual-switch-fault \'{{"apply": "cut", "seconds": 3}}\'; echo \'{patch}\' >/tmp/patch; '
        "config apply-patch /tmp/patch; virtual-switch-fault clear; "
        "ip link show mgmt0 | grep -q DOWN",
    )
    waiting.until(lambda: ",UP" in inside(SONIC, "ip link show mgmt0"), "mgmt0 up again", 10)
    assert mtu(switches) == "9100"


def test_a_lost_certificate_recreates_only_its_switch(switches: Nodes) -> None:
    before = {name: identity(name) for name in (SONIC, NVUE, EOS)}
    (STATE / CLUSTER / "switches" / NVUE / "certificate.pem").unlink()
    switches.state(present=True)
    after = {name: identity(name) for name in before}
    assert {name for name in before if after[name] != before[name]} == {NVUE}
    test_certificates_hold_and_a_password_is_asked_for(switches, NVUE)
    assert switches.state(present=True).total("changed") == 0


def test_a_deselected_switch_is_removed(switches: Nodes) -> None:
    variables = Path(switches.inventory) / "group_vars/all.yml"
    text = variables.read_text()
    variables.write_text(text + f"virtual_nodes_names: [{SONIC}]\n")
    try:
        switches.state(present=True)
        names = output("podman", "ps", "--format", "{{.Names}}").split()
        assert [name for name in names if name.startswith(f"{CLUSTER}.")] == [f"{CLUSTER}.{SONIC}"]
    finally:
        variables.write_text(text)
