"""Loss on rails, and connections back to the probing host."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import Check
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh import paths

PING = "ping -n -q -M do -s 8972 -I rail3"
FIRST = f"{PING} -c 1 -w 3"
BURSTS = [f"{PING} -A -c 200 -w 10", f"{PING} -i 0.01 -c 200 -W 3"]
"""The second one without -w, with which ping sends until 200 return: on a link that loses none and
takes 20 ms, iputils 20221126 says then: 203 packets transmitted, 200 received."""


class Network:
    """Loss of each burst by target; None if the target does not answer."""

    def __init__(self, **lost: Optional[Iterable[int]]) -> None:
        self.lost = {name: None if each is None else list(each) for name, each in lost.items()}
        self.asked: list[str] = []

    def __call__(
        self, argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None
    ) -> Result:
        *words, target = argv
        self.asked.append(" ".join(argv))
        left = self.lost[target]
        if left is None:
            return Result(tuple(argv), 1, "1 packets transmitted, 0 received, 100% packet loss", "")
        if " ".join(words) == FIRST:
            return Result(tuple(argv), 0, "1 packets transmitted, 1 received", "")
        assert " ".join(words) in BURSTS
        answer = f"200 packets transmitted, {200 - left.pop(0)} received, x% packet loss, time 1ms"
        return Result(tuple(argv), 0, answer, "")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "sys/class/net/rail3").mkdir(parents=True)
    (tmp_path / "sys/class/net/rail3/mtu").write_text("9000\n")
    return tmp_path


def carried(network: Network, root: Path, witness: str = "third") -> tuple[str, str]:
    return paths.carried(network, "rail3", "peer", witness, root)


def test_a_good_rail_takes_one_burst(root: Path) -> None:
    network = Network(peer=[0])
    assert carried(network, root) == ("", "")
    assert network.asked == [f"{FIRST} peer", f"{BURSTS[0]} peer"]


@pytest.mark.parametrize(
    ("lost", "why"),
    [([9, 0], ""), ([1, 1], ""), ([2, 2], ""), ([3, 2], "1.2% of"), ([8, 12], "5.0% of")],
)
def test_brief_losses_are_tolerated(lost: list[int], why: str, root: Path) -> None:
    network = Network(peer=lost)
    found = carried(network, root, witness="")
    assert found == (why and f"{why} full packets lost", why and "either")
    assert network.asked[1:] == [f"{burst} peer" for burst in BURSTS]


@pytest.mark.parametrize(
    ("third", "end"),
    [([0], "target"), ([3, 0], "target"), ([2, 2], "target"), ([8, 12], "here"), (None, "either")],
)
def test_a_third_node_locates_the_loss(third: Optional[list[int]], end: str, root: Path) -> None:
    network = Network(peer=[8, 12], third=third)
    assert carried(network, root) == ("5.0% of full packets lost", end)
    assert network.asked[4:] == [f"{BURSTS[1]} third"] * len(third or [])


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("0 packets transmitted, 0 received", 1.0),
        ("200 packets transmitted, 198 received", None),
        ("200 packets transmitted, 197 received", 0.015),
    ],
)
def test_the_threshold_of_loss(said: str, found: Optional[float]) -> None:
    run = lambda argv, check: Result(tuple(argv), 1, f"{said}, x% packet loss", "")  # noqa: E731
    assert paths.lost(run, ["ping"], "peer") == found
    assert paths.MAX_LOSS == 0.01, "no test distinguishes 4 and 5 of 400 packets"


def test_unparsable_output_of_ping_is_an_error(root: Path) -> None:
    def run(argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None) -> Result:
        return Result(tuple(argv), 0 if "1" in argv[:-1] and "-i" not in argv else 2, "", "no\nbuf")

    assert paths.carried(run, "rail3", "peer", root=root) == (f"{BURSTS[0]} peer: buf", "")


def test_a_dead_rail_is_not_loss(root: Path) -> None:
    why, lossy = carried(Network(peer=None), root)
    assert (lossy, why[: len(FIRST)]) == ("", FIRST)
    assert "missing" in carried(Network(), root / "missing")[0]


# Connections back


def call(listener: paths.Listener, networks: Sequence[str], shell: str = "sh") -> str:
    """Run a command as sshd does on the other host."""
    command = "uname -n " + listener.call(networks)
    return subprocess.run([shell, "-c", command], check=True, text=True, capture_output=True).stdout


def test_a_host_connects_back_over_every_network() -> None:
    own = {"management": "127.0.0.1", "rail0": "127.0.0.2"}
    with paths.Listener(own) as listener:
        answer = call(listener, ["management", "rail0", "rail7"])
        assert listener.heard(answer, own) == {"management": 0, "rail0": 0}
        assert answer.split()[-1] == os.uname().nodename, "the name is still the last word"
        assert listener.call(["rail7"]) == ""
    refused = call(listener, ["management"])
    assert listener.heard(refused, own) == {"management": errno.ECONNREFUSED, "rail0": None}


def test_the_program_suits_every_login_shell() -> None:
    """In csh quotes end with the line, and ! is special within quotes."""
    assert not set("!\n'") & set(paths.CALL)


def test_reported_errnos_are_parsed() -> None:
    listener = paths.Listener({"management": "10.0.0.1"})
    said = "Welcome\nmpi-back 10.0.0.9 0\nmpi-back 10.0.0.1 0x0\nmpi-back 10.0.0.1 99999\n"
    assert listener.heard(said, ["management"]) == {"management": None}


def judged(code: Optional[int], *, check_mode: bool = False) -> Check:
    firewall = {"management": ("firewalld, zone public", "open it")}
    (check,) = paths.back("launcher01", "node02", {"management": code}, firewall, check_mode)
    return check


@pytest.mark.parametrize(
    ("code", "found", "at", "step"),
    [
        (errno.EHOSTUNREACH, "EHOSTUNREACH: No route to host", "", "open it"),
        (errno.ECONNREFUSED, "ECONNREFUSED: Connection refused", "", "open it"),
        (errno.ETIMEDOUT, "ETIMEDOUT: no answer within 4 s", "", "open it"),
        (errno.EINVAL, "EINVAL: Invalid argument", "node02", "ip route get"),
        (None, "not tried", "", ""),
    ],
)
def test_the_refusing_host_is_named(code: Optional[int], found: str, at: str, step: str) -> None:
    check = judged(code)
    assert (check.name, check.status) == ("tcp_reachable", "failed")
    assert (check.subject, check.found) == ("node02 -> launcher01 management", found)
    assert (check.at, step in check.by_hand) == (at, True)
    assert ("firewalld, zone public" in check.reason) == (step == "open it")
    assert judged(code, check_mode=True).status == "pending"


def test_a_connection_is_ok() -> None:
    assert (judged(0).status, judged(0).by_hand) == ("ok", "")
