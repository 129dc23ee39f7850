# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A Lustre client on nodes of both families: packages, LNet, units. Its kernel is a stand-in.

Containers cannot mount Lustre. Where a mount is needed, the stand-in's mount.lustre adds one to its
simulated kernel, where the servers are listed.
"""

from __future__ import annotations

import json

import pytest

VERSION = "2.15.7"
POINT, LNET = "/mnt/lustre", "/etc/lnet.conf"
SOURCE = "10.9.0.1@o2ib:10.9.0.2@o2ib:/lustre"
NETWORKS = {"o2ib": [f"rail{number}" for number in range(8)], "tcp1": ["mgmt0"]}
MODPROBE = "/etc/modprobe.d/baremetal-mpi-roce-lustre.conf"
DROP_IN = "/etc/systemd/system/lnet.service.d/baremetal-mpi-roce.conf"
EL, PREBUILT = ("node03", "node04"), ("node02", "node04")


def named(host):
    return host.backend.get_hostname()


def packages(host):
    """Return the installed packages of the client, with their versions."""
    prebuilt = named(host) in PREBUILT
    if named(host) in EL:
        modules = "kmod-lustre-client" if prebuilt else "lustre-client-dkms"
        return dict.fromkeys((modules, "lustre-client"), f"{VERSION}-1.el9")
    release = host.check_output("cat /var/lib/lustre-stand-in/root/proc/sys/kernel/osrelease")
    modules = f"lustre-client-modules-{release if prebuilt else 'dkms'}"
    return dict.fromkeys((modules, "lustre-client-utils"), f"{VERSION}-1")


def stand_in(host, **values):
    """Return the stand-in's state, after changing some of it."""
    words = " ".join(f"{key}='{json.dumps(value)}'" for key, value in values.items())
    return json.loads(host.check_output(f"lustre-stand-in {words}"))


def checks(run, name, host):
    """Return the checks by subject."""
    return {
        check["subject"]: check for check in run.checks("storage", host) if check["name"] == name
    }


@pytest.fixture(scope="module")
def again(nodes, converge):
    """Run the layer once more on all nodes."""
    return nodes.play(converge)


def test_packages_are_of_the_release_and_stay_there(compute):
    wanted = packages(compute)
    for name, version in wanted.items():
        package = compute.package(name)
        found = f"{package.version}-{package.release}" if named(compute) in EL else package.version
        assert found == version
    if named(compute) in EL:
        locked = compute.check_output("dnf -q versionlock list")
        assert all(f"{name}-0:{version}." in locked for name, version in wanted.items())
        return
    held = compute.check_output("apt-mark showhold").split()
    pins = compute.file("/etc/apt/preferences.d/00-baremetal-mpi-roce-storage.pref").content_string
    for name, version in wanted.items():
        assert name in held
        assert f"Package: {name}\nPin: version {version}\nPin-Priority: 1001\n" in pins


def test_lnet_is_set_up_over_the_rails_and_starts_after_them(compute):
    text = compute.file(LNET).content_string
    assert text.count("- interfaces:") == 9 and text.count("peer_credits: 32") == 8
    assert "    - net type: tcp1\n      local NI(s):\n        - interfaces:\n" in text
    assert compute.file(MODPROBE).content_string.splitlines()[1:] == [
        "options ksocklnd skip_mr_route_setup=1",
        "options lnet lnet_peer_discovery_disabled=0 lnet_transaction_timeout=100",
    ]
    after = compute.check_output("systemctl show -p After --value lnet.service").split()
    assert "baremetal-mpi-roce-rails.service" in after and compute.file(DROP_IN).exists
    service = compute.service("lnet")
    assert service.is_enabled and service.is_running
    assert stand_in(compute)["nets"] == NETWORKS


def test_units_mount_it_at_its_first_use_after_lnet(compute):
    unit = compute.file("/etc/systemd/system/mnt-lustre.mount").content_string
    for line in (f"What={SOURCE}", f"Where={POINT}", "Type=lustre"):
        assert f"{line}\n" in unit
    assert "Options=noatime,nosuid,nodev,user_xattr,lazystatfs,flock\n" in unit
    after = compute.check_output("systemctl show -p After --value mnt-lustre.mount").split()
    assert "lnet.service" in after
    assert compute.service("mnt-lustre.automount").is_enabled


def test_what_a_container_cannot_mount_is_not_applicable(again, nodes):
    for host in nodes.group("compute"):
        for name in ("storage_mount", "storage_options"):
            check = checks(again, name, host)[POINT]
            assert check["status"] == "not_applicable"
            assert "container (podman)" in check["reason"]
        assert checks(again, "lustre_targets", host)[POINT]["status"] == "not_applicable"
        networks = checks(again, "lustre_lnet_network", host)
        assert {net: check["found"] for net, check in networks.items()} == NETWORKS


def test_what_is_simulated_is_named(again, nodes):
    (line,) = [line for line in again.output.splitlines() if line.startswith("SIMULATED:")]
    assert "/var/lib/lustre-stand-in/root" in line
    assert all(host in line for host in nodes.group("compute"))


def test_a_change_by_hand_is_shown_and_repaired_there_alone(nodes, converge):
    host, words = nodes.on("node03"), "--limit=node03:node04"
    host.check_output(f"sed -i 's/rail7/rail6/' {LNET} && systemctl restart lnet")
    shown = nodes.play(converge, "--check", "--diff", words)
    assert shown.hosts_with("changed") == {"node03"}
    assert "-              0: rail6\n+              0: rail7\n" in shown.output
    check = checks(shown, "lustre_lnet_network", "node03")["o2ib"]
    assert (check["status"], check["wanted"]) == ("pending", NETWORKS["o2ib"])
    assert nodes.play(converge, words).hosts_with("changed") == {"node03"}
    assert stand_in(host)["nets"] == NETWORKS


def test_a_key_that_is_not_the_named_one_is_refused_first(nodes, converge):
    repository = {"url": "file:///srv/x", "key": "keys/lustre.asc", "key_sha256": "0" * 64}
    given = {"packages": {"method": "dkms", "version": "2.15.8", "repository": repository}}
    words = json.dumps({"shared_storage_lustre": given})
    run = nodes.play(converge, "--limit=node01", f"--extra-vars={words}", expect=2)
    assert "nothing was changed" in run.output and f"not {'0' * 64}" in run.output
    assert run.total("changed") == 0


@pytest.fixture(scope="module")
def mounted(nodes):
    """node02, where the stand-in has it mounted."""
    host = nodes.on("node02")
    before = stand_in(host)["targets"]
    host.check_output(f"mount.lustre -o noatime,flock {SOURCE} {POINT}")
    yield host
    stand_in(host, mounts={}, silent=[], hang=[], targets=before)
    host.check_output(": >/var/lib/lustre-stand-in/root/proc/self/mountinfo")


@pytest.fixture
def faulty(nodes, converge, mounted):
    """Run the layer with a fault in the stand-in's state, which is removed afterwards."""
    before = stand_in(mounted)

    def play(**values):
        stand_in(mounted, **values)
        return nodes.play(converge, "--limit=node02", expect=2)

    yield play
    stand_in(mounted, **{key: before[key] for key in ("silent", "hang", "targets")})


def test_targets_of_what_is_mounted_are_connected(nodes, converge, mounted):
    run = nodes.play(converge, "--limit=node02")
    assert checks(run, "lustre_targets", "node02")[POINT]["status"] == "ok"
    assert run.total("changed") == 0


def test_servers_that_are_silent_are_named(faulty):
    run = faulty(silent=["10.9.0.1@o2ib", "10.9.0.2@o2ib"])
    (check,) = checks(run, "lustre_mgs", "node02").values()
    assert check["status"] == "failed" and "failed to ping 10.9.0.2@o2ib" in check["reason"]


def test_a_target_without_connection_is_named(faulty, mounted):
    targets = stand_in(mounted)["targets"]
    targets["lustre"]["OST0001"]["state"] = "DISCONN"
    check = checks(faulty(targets=targets), "lustre_targets", "node02")[POINT]
    assert check["status"] == "failed" and check["found"][0].startswith("lustre-OST0001 DISCONN")


def test_servers_that_do_not_answer_are_given_up(faulty):
    (check,) = checks(faulty(hang=["lnetctl ping"]), "lustre_mgs", "node02").values()
    assert check["status"] == "failed" and "no answer within 5 s" in check["reason"]


def test_a_host_that_leaves_is_named_and_comes_back(nodes, converge):
    host, limit = nodes.on("node04"), "--limit=node04"
    left = nodes.play(converge, limit, '--extra-vars={"lustre_filesystems": []}', expect=2)
    assert left.total("changed") == 0
    check = checks(left, "storage_leftover", "node04")[POINT]
    assert check["status"] == "failed" and f'["{POINT}"]' in check["reason"]

    gone = {"lustre_filesystems": [], "shared_storage_absent": [POINT]}
    run = nodes.play(converge, limit, f"--extra-vars={json.dumps(gone)}")
    assert run.hosts_with("changed") == {"node04"}
    assert not host.file("/etc/systemd/system/mnt-lustre.mount").exists
    assert (
        host.service("lnet").is_enabled and stand_in(host)["nets"] == NETWORKS
    )  # the setting is not removed

    assert nodes.play(converge, limit).hosts_with("changed") == {"node04"}
    assert nodes.play(converge, limit).total("changed") == 0
