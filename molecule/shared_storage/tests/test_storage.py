# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Shared storage in containers of both families: everything except the mount itself."""

from __future__ import annotations

import pytest

POINT = "/mnt/checkpoints"
SERVER = "node01"
MOUNT, AUTOMOUNT = "mnt-checkpoints.mount", "mnt-checkpoints.automount"
EL = ("node03", "node04")


def serves(host) -> bool:
    return host.backend.get_hostname() == SERVER


def test_units_are_ours_and_one_of_them_starts_at_boot(node):
    """On clients the automount point, which needs no server; on the server its bind mount."""
    file = node.file(f"/etc/systemd/system/{MOUNT}")
    assert (file.user, file.group, file.mode) == ("root", "root", 0o644)
    assert file.content_string.splitlines()[0].startswith("# Managed by Ansible")
    assert node.file(f"/etc/systemd/system/{AUTOMOUNT}").exists != serves(node)
    assert node.service(MOUNT if serves(node) else AUTOMOUNT).is_enabled
    if not serves(node):
        assert node.check_output(f"systemctl is-enabled {MOUNT} || true") != "enabled"


def test_systemd_takes_the_units_as_they_are_written(node, nodes):
    address = nodes.of(SERVER)["ansible_host"]
    shown = node.check_output(f"systemctl show -p What -p Where -p Type {MOUNT}").splitlines()
    source = "/srv/checkpoints" if serves(node) else f"{address}:/srv/checkpoints"
    assert f"Where={POINT}" in shown and f"What={source}" in shown


def test_fstab_has_no_entry_of_it(node):
    assert POINT not in node.check_output("cat /etc/fstab 2>/dev/null || true")


def test_nothing_is_mounted_in_a_container(node):
    assert POINT not in node.check_output("cat /proc/self/mountinfo")


def test_packages_of_clients(node):
    if not serves(node):
        name = "nfs-utils" if node.backend.get_hostname() in EL else "nfs-common"
        assert node.package(name).is_installed


def test_the_server_has_its_directory_for_the_mpi_user_alone(nodes):
    directory = nodes.on(SERVER).file("/srv/checkpoints")
    assert directory.is_directory and (directory.uid, directory.mode) == (2000, 0o770)


def test_the_file_of_exports_has_the_nodes_alone(nodes):
    """The server itself has a bind mount. In a container no kernel exports it."""
    text = nodes.on(SERVER).file("/etc/exports.d/baremetal-mpi-roce.exports").content_string
    lines = [line.split() for line in text.splitlines() if line.startswith("/")]
    assert {path for path, _client in lines} == {"/srv/checkpoints"}
    clients = {client.partition("(")[0] for _path, client in lines}
    for name in nodes.group("compute"):
        assert (nodes.of(name)["ansible_host"] in clients) == (name != SERVER)


def test_the_server_of_a_container_is_not_applicable(nodes, converge):
    checks = {check["name"]: check for check in nodes.play(converge).checks("storage", SERVER)}
    for name in ("nfs_exports", "nfs_service", "nfs_threads", "nfs_listens"):
        assert checks[name]["status"] == "not_applicable"
        assert "container (podman)" in checks[name]["reason"]
    assert not nodes.on(SERVER).package("nfs-kernel-server").is_installed


def test_mounts_are_reported_as_not_applicable_with_the_reason(nodes, converge):
    report = nodes.play(converge).report
    for host in report["layers"]["storage"]["hosts"].values():
        checks = {check["name"]: check for check in host["checks"] if check["subject"] == POINT}
        for name in ("storage_mount", "storage_options"):
            assert checks[name]["status"] == "not_applicable"
            assert "container (podman)" in checks[name]["reason"]


@pytest.fixture
def entry(nodes):
    host = nodes.on("node02")
    host.check_output(f"echo 'nas:/x {POINT} nfs defaults 0 0' >> /etc/fstab")
    yield host
    host.check_output("sed -i '\\,^nas:/x,d' /etc/fstab")


def test_an_entry_of_fstab_is_refused_with_its_line(nodes, converge, entry):
    run = nodes.play(converge, "--limit=node02", expect=2)
    assert f"nas:/x {POINT} nfs defaults 0 0" in run.output and "Remove the line" in run.output
    assert run.total("changed") == 0


def test_what_is_taken_away_leaves_nothing_and_comes_back(nodes, converge, tmp_path):
    """A change on one host; the others keep their unit."""
    without = nodes.changed(tmp_path, lambda model: model.update(filesystems=[]))
    gone = f'--extra-vars={{"shared_storage_absent": ["{POINT}"]}}'
    run = without.play("playbooks/storage.yml", "--limit=node03", gone)
    assert run.hosts_with("changed") == {"node03"}
    left = nodes.on("node03").check_output("find /etc/systemd/system -name '*checkpoints*'")
    assert left == ""
    again = nodes.play(converge, "--limit=node03")
    assert again.hosts_with("changed") == {"node03"}
