"""Loss on rails, and connections back to the host that looks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh import paths

PING = "ping -n -q -M do -s 8972 -I rail3"
FIRST = f"{PING} -c 1 -w 3"
BURST = f"{PING} -i 0.002 -c 200 -W 1 -w 3"


class Network:
    """By target what each burst loses, in turn; None where nothing answers."""

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
        assert " ".join(words) == BURST
        answer = f"200 packets transmitted, {200 - left.pop(0)} received, x% packet loss, time 1ms"
        return Result(tuple(argv), 0, answer, "")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "sys/class/net/rail3").mkdir(parents=True)
    (tmp_path / "sys/class/net/rail3/mtu").write_text("9000\n")
    return tmp_path


def carried(network: Network, root: Path, witness: str = "third") -> paths.Carried:
    return paths.carried(network, "rail3", "peer", witness, root)


def test_a_rail_that_carries_all_costs_one_burst(root: Path) -> None:
    network = Network(peer=[0])
    assert carried(network, root) == paths.Carried()
    assert network.asked == [f"{FIRST} peer", f"{BURST} peer"]


@pytest.mark.parametrize("lost", [[9, 0], [1, 1]])
def test_a_hiccup_of_a_busy_host_is_no_loss(lost: list[int], root: Path) -> None:
    assert carried(Network(peer=lost), root) == paths.Carried()


@pytest.mark.parametrize(
    ("third", "side"),
    [([0], "target"), ([3, 0], "target"), ([8, 12], "here"), (None, "")],
)
def test_a_third_node_tells_which_end_loses(
    third: Optional[list[int]], side: str, root: Path
) -> None:
    found = carried(Network(peer=[8, 12], third=third), root)
    assert found == paths.Carried("5.0% of full packets lost", side, lossy=True)


def test_without_a_third_node_both_ends_are_named(root: Path) -> None:
    found = carried(Network(peer=[2, 1]), root, witness="")
    assert found == paths.Carried("0.8% of full packets lost", lossy=True)
    text = paths.ends(found.side, "rail3", "node01", "node02")
    assert "rail3 on node01 and node02" in text


def test_no_packet_at_all_is_not_loss(root: Path) -> None:
    found = carried(Network(peer=None), root)
    assert (found.lossy, found.why[: len(FIRST)]) == (False, FIRST)
    assert "missing" in carried(Network(), root / "missing").why
