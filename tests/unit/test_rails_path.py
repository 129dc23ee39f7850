# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The packet to a rail's gateway and its reply, over sockets of this machine."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import sys

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails import path
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails.plan import RailPlan

RAIL = RailPlan("lo", None, "127.0.0.1", 8, "127.0.0.2", 9000, (), None)


class Echo:
    """A raw socket that receives `answers` with ancillary data and records the sent packet."""

    sent = b""

    def __init__(self, answers):
        self.answers, self.options = list(answers), {}

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        pass

    def setsockopt(self, _level, name, value):
        self.options[name] = value

    def bind(self, address):
        assert address == (RAIL.address, 0)

    def settimeout(self, _seconds):
        pass

    def sendto(self, packet, address):
        assert address == (RAIL.gateway, 0)
        self.sent = packet

    def recvmsg(self, _size, _more):
        if not self.answers:
            raise TimeoutError("timed out")
        change, ancillary = self.answers.pop(0)
        return change(bytes([0x45] + [0] * 19 + [0]) + self.sent[1:]), ancillary, 0, None


def probe(monkeypatch, *answers):
    echo = Echo(answers)
    monkeypatch.setattr(path.socket, "socket", lambda *_kind: echo)
    return echo, path.largest_fragment(RAIL)


def same(answer):
    return answer


def of_another(answer):
    """An answer to someone else's packet."""
    return answer[:28] + b"\1" * 8 + answer[36:]


FRAGMENT = [(socket.IPPROTO_IP, 25, struct.pack("i", 1500))]
"""IP_RECVFRAGSIZE is 25 (linux/in.h); only fragmented packets have it."""


def test_the_packet_is_full_whole_and_valid(monkeypatch):
    echo, largest = probe(monkeypatch, (same, []))
    assert largest is None
    assert len(echo.sent) == 9000 - 20 and echo.sent[:2] == b"\x08\x00"
    # The checksum includes itself.
    assert path._checksum(echo.sent) == 0
    # IP_MTU_DISCOVER, IP_PMTUDISC_DO; IP_RECVFRAGSIZE.
    assert echo.options == {10: 2, 25: 1}


def test_the_largest_fragment_of_the_answer_to_this_packet_counts(monkeypatch):
    cut = (lambda answer: answer[:21], FRAGMENT)
    assert probe(monkeypatch, (of_another, FRAGMENT), cut, (same, []))[1] is None
    assert probe(monkeypatch, (of_another, []), (same, FRAGMENT))[1] == 1500
    with pytest.raises(TimeoutError):
        probe(monkeypatch, (of_another, FRAGMENT))


USER = () if os.geteuid() == 0 else ("--user", "--map-root-user")
NAMESPACES = ("unshare", *USER, "--net", "--mount", "--pid", "--fork")
LEAF = """
set -e
mount -t tmpfs none /run && mkdir /run/netns
ip link set lo up
ip netns add leaf
ip link add rail0 mtu 9000 type veth peer name swp1 netns leaf
ip -n leaf link set swp1 mtu 9198 up
ip -n leaf link add br0 type bridge
ip -n leaf link set swp1 master br0
ip -n leaf link set br0 mtu {mtu} up
ip -n leaf addr add 10.9.0.1/24 dev br0
ip addr add 10.9.0.11/24 dev rail0
ip link set rail0 up
ping -q -c 1 -w 20 10.9.0.1 > /dev/null
exec {python} -c "{program}"
"""
PROGRAM = """
import sys; sys.path[:0] = {paths!r}
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails import path
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails.plan import RailPlan
rail = RailPlan('rail0', None, '10.9.0.11', 24, '10.9.0.1', 9000, (), None)
print(path.largest_fragment(rail))
"""


def namespaces():
    """Return whether this user may create network namespaces."""
    if not all(map(shutil.which, ("unshare", "ip", "ping"))):
        return False
    asked = (*NAMESPACES, "ip", "link", "add", "br0", "type", "bridge")
    return subprocess.run(asked, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not namespaces(), reason="no network namespaces for this user")
@pytest.mark.parametrize(("mtu", "largest"), [(9000, "None"), (1500, "1500"), (4000, "3996")])
def test_the_kernel_reports_the_largest_fragment(mtu, largest):
    paths = [each for each in sys.path if each]
    script = LEAF.format(mtu=mtu, python=sys.executable, program=PROGRAM.format(paths=paths))
    done = subprocess.run(
        (*NAMESPACES, "sh", "-c", script), capture_output=True, text=True, timeout=60, check=False
    )
    # A fragment that is not the last has a multiple of 8 bytes behind its 20 of header.
    assert done.stdout.strip() == largest, done.stderr
