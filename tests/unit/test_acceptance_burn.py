# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The comparison of GPUs of all nodes."""

from __future__ import annotations

import random
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance import burn
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.answers import AnswerError
from hypothesis import given

from tests.unit.hostile import spoilt

RIGHT, WRONG = "a" * 64, "b" * 64


def row(index: int = 0, sha256: str = RIGHT, **figures: float) -> dict[str, Any]:
    noise = random.Random(index).gauss
    load = {"sm_mhz": 1900 + noise(0, 10), "watts": 1000 + noise(0, 15), "celsius": 60 + index}
    return {
        **{"index": index, "pci": f"0000:{index + 1}b:00.0", "serial": f"1650{index}"},
        "product": "NVIDIA B300",
        "precisions": {"bf16": {"sha256": sha256, "tflops": figures.pop("tflops", 2000.0 + index)}},
        "copies": {"host_to_device": figures.pop("copy", 55.0 + index / 10)},
        "load": {**load, **figures},
    }


def loaded(**changed: dict[str, Any]) -> list[burn.Loaded]:
    """Eight GPUs on each of four nodes; `node02_3` changes the fourth GPU of node02."""
    return [
        one
        for host in ("node01", "node02", "node03", "node04")
        for index in range(8)
        for one in burn.read(host, {"gpus": [row(index, **changed.get(f"{host}_{index}", {}))]})
    ]


def found(*args: Any, **kwargs: Any) -> list[tuple[str, str, str]]:
    return [
        (host, check.name, check.subject.split()[-1])
        for host, check in burn.compare(loaded(*args, **kwargs))
    ]


def test_healthy_gpus_have_no_finding() -> None:
    assert found() == []


def test_another_product_is_corruption_and_names_the_serial() -> None:
    ((host, check),) = burn.compare(loaded(node02_3={"sha256": WRONG}))
    assert (host, check.name, check.status) == ("node02", "burn_products", "failed")
    assert "serial 16503" in check.subject and "0000:4b:00.0" in check.subject


def test_two_gpus_that_differ_are_both_suspect() -> None:
    pair = [*burn.read("node01", {"gpus": [row()]})]
    pair += burn.read("node02", {"gpus": [row(sha256=WRONG)]})
    assert [host for host, _check in burn.compare(pair)] == ["node01", "node02"]


@pytest.mark.parametrize(
    ("change", "figure"),
    [
        ({"tflops": 1700.0}, "bf16"),
        ({"copy": 27.0}, "host_to_device"),
        ({"sm_mhz": 1200}, "sm_mhz"),
        ({"watts": 700}, "watts"),
        ({"celsius": 92}, "celsius"),
    ],
)
def test_an_outlier_is_named(change: dict[str, Any], figure: str) -> None:
    assert found(node03_5=change) == [("node03", "burn_outlier", figure)]


@pytest.mark.parametrize("change", [{"tflops": 2100.0}, {"celsius": 40}, {"watts": 1200}])
def test_a_better_figure_is_no_outlier(change: dict[str, Any]) -> None:
    assert found(node03_5=change) == []


def test_gpus_of_other_products_are_not_compared() -> None:
    other = [{**row(index), "product": "NVIDIA H100"} for index in range(4)]
    for one in other:
        one["precisions"]["bf16"]["tflops"] = 600.0
    assert list(burn.compare([*loaded(), *burn.read("old01", {"gpus": other})])) == []


def test_lines_name_the_lowest_and_the_highest() -> None:
    lines = burn.lines(loaded(node03_5={"tflops": 1700.0}))
    assert lines[0] == "burn: 32 GPUs on 4 nodes"
    assert "1700" in lines[1] and "lowest: node03 GPU 5" in lines[1]


@given(spoilt({"gpus": [row(), row(1)]}))
def test_a_hostile_answer_is_refused_or_harmless(answer: Any) -> None:
    try:
        read = burn.read("node01", answer)
    except AnswerError:
        return
    for _host, check in burn.compare(read):
        assert check.line().isprintable()
    assert all(line.isprintable() for line in burn.lines(read))
