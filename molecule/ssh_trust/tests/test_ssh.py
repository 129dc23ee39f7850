# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The MPI user logs in without a prompt, only to the right host, and no secret leaks."""

from __future__ import annotations

import re

PRIVATE = re.compile("-----BEGIN [A-Z ]*PRIVATE KEY-----")


def as_mpi(host, nodes, command: str):
    user = nodes.of(host.backend.hostname)["cluster_mpi_user"]
    # ssh's status 255 would be mistaken for a failure of the connection to this host.
    return host.run("su -l %s -c %s || exit 1", user, command)


def test_the_launcher_reaches_every_node(launcher, nodes):
    for name in nodes.group("compute"):
        found = as_mpi(launcher, nodes, f"ssh -n -o BatchMode=yes {name} hostname")
        assert (found.rc, found.stdout.strip()) == (0, name), found.stderr


def test_neighbours_reach_each_other_over_a_rail(compute, nodes):
    names = nodes.group("compute")
    peer = names[(names.index(compute.backend.hostname) + 1) % len(names)]
    found = as_mpi(compute, nodes, f"ssh -n -o BatchMode=yes {peer}-rail0 hostname")
    assert (found.rc, found.stdout.strip()) == (0, peer), found.stderr


def test_a_host_with_another_key_is_refused(compute, nodes):
    """The same sshd under a name that its certificate does not include."""
    address = nodes.of(nodes.group("launcher")[0])["cluster_management"]["address"]
    command = f"ssh -n -o BatchMode=yes -o HostKeyAlias=stranger {address} true"
    found = as_mpi(compute, nodes, command)
    assert found.rc == 1
    assert "verification failed" in found.stderr or "No matching" in found.stderr


def test_root_is_not_let_in(compute, nodes):
    peer = next(name for name in nodes.group("compute") if name != compute.backend.hostname)
    assert as_mpi(compute, nodes, f"ssh -n -o BatchMode=yes root@{peer} true").rc == 1


def test_private_keys_belong_to_their_user_alone(node, nodes):
    user = nodes.of(node.backend.hostname)["cluster_mpi_user"]
    places = f"/etc/baremetal-mpi-roce {node.user(user).home}"
    paths = node.check_output(f"grep -lrs 'PRIVATE KEY' {places}").split()
    assert paths, "the MPI user has no key on this node"
    for path in paths:
        file = node.file(path)
        assert (file.user, file.mode) == (user, 0o600)


def test_no_key_is_told_at_any_verbosity(nodes, converge):
    output = nodes.play(converge, "--tags=ssh", "-vvvv", "--diff").output
    assert not PRIVATE.search(output)
