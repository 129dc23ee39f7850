# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""docs/examples/train.py: its parts without MPI, and a single process; real ranks are in
tests/integration/test_examples.py.
"""

from __future__ import annotations

import errno
import os
import random
import signal
import sys
import types
from pathlib import Path
from typing import Any, Optional

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.jobs import END, Alone, AtStep7, load

train = load("train.py")


def full(_: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


# Sums of gradients


def into(sent: list[np.ndarray]) -> Any:
    """Starts a sum that has completed when it is waited for."""

    def start(values: np.ndarray) -> Any:
        sent.append(values)
        return types.SimpleNamespace(Test=lambda: False, Wait=lambda: None)

    return start


class Ranks:
    """Sums over ranks that are reducers in this process, in a random order."""

    def __init__(self, ranks: int, kind: str, size: int, bucket: int, draw: random.Random) -> None:
        self.draw = draw
        self.sent: list[list[np.ndarray]] = [[] for _ in range(ranks)]
        self.reducers = [train.Reducer(into(sent), kind, size, bucket) for sent in self.sent]

    def sums(self, gradients: np.ndarray) -> list[np.ndarray]:
        """The result of each rank for gradients by shard."""
        shards = np.array_split(gradients, len(self.reducers))
        size = gradients.shape[1]
        half = size // 2
        for reducer, mine in zip(self.reducers, shards):
            reducer.add(0, mine[:, :half])
            reducer.add(half, mine[:, half:])
        for reducer in self.reducers:
            if reducer.sent < size:
                reducer._send(size)  # finish() would, and wait for other ranks
        for buckets in zip(*self.sent):
            total = np.zeros_like(buckets[0])
            for bucket in self.draw.sample(buckets, len(buckets)):
                total += bucket
            for bucket in buckets:
                bucket[:] = total
        for sent in self.sent:
            sent.clear()
        return [reducer.finish() for reducer in self.reducers]


@given(
    ranks=st.integers(1, train.SHARDS),
    bucket=st.integers(1, 400),
    seed=st.integers(0, 2**32),
    exponents=st.tuples(st.integers(-12, 3), st.integers(-12, 3)),
)
def test_deterministic_sums_depend_on_no_number_of_ranks_and_no_order(
    ranks: int, bucket: int, seed: int, exponents: tuple[int, int]
) -> None:
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.integers(min(exponents), max(exponents) + 1, (train.SHARDS, 40))
    gradients = (rng.standard_normal((train.SHARDS, 40)) * scale).astype(np.float32)
    [wanted] = Ranks(1, "int64", 40, 8, random.Random(0)).sums(gradients)
    for found in Ranks(ranks, "int64", 40, bucket, random.Random(seed)).sums(gradients):
        assert found.tobytes() == wanted.tobytes()
    exact = gradients.astype(np.float64).sum(axis=0)
    np.testing.assert_allclose(wanted, exact, rtol=1e-6, atol=train.SHARDS / train.FIXED_POINT)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2.0**18])
def test_a_gradient_that_fixed_point_cannot_hold_ends_the_run(value: float) -> None:
    gradients = np.full((train.SHARDS, 2), value, np.float32)
    with pytest.raises(train.Problem, match="too large or not a number"):
        Ranks(1, "int64", 2, 8, random.Random(0)).sums(gradients)


def test_what_rounding_to_16_bits_loses_is_sent_later() -> None:
    ranks = Ranks(2, "float16", 4, 8, random.Random(0))
    gradients = np.array([[1.0, 1e-9, -3e-5, 0.1], [1.0001, 2e-9, 7e-6, 0.2]], np.float32)
    total = sum(ranks.sums(gradients)[0].astype(np.float64) for _ in range(100))
    owed = sum(reducer.owed.astype(np.float64) for reducer in ranks.reducers)
    exact = 100 * gradients.astype(np.float64).sum(axis=0)
    assert abs(total - exact).max() > 1e-7, "nothing was rounded"
    # The sum over ranks is rounded as well, by half a last place of 16 bits each time.
    np.testing.assert_allclose(total + owed, exact, rtol=5e-4)


def test_buckets_are_sent_while_layers_are_still_computed() -> None:
    model = train.Model(seed=1)
    sent: list[np.ndarray] = []
    reducer = train.Reducer(into(sent), "float32", model.weights.size, 2048)
    model.forward(np.ones((1, 8, 64), np.float32), np.zeros((1, 8), np.int64))
    by_layer = []
    for place, gradient in model.backward():
        reducer.add(place, gradient)
        by_layer.append(len(sent))
    assert by_layer == [1, 9, 17]
    reducer.finish()
    sizes = [bucket.size for bucket in sent]
    assert sum(sizes) == model.weights.size and max(sizes) == 512


# The model


@pytest.mark.parametrize("product", [np.matmul, train.product_in_order])
def test_gradients_are_those_of_the_loss(product: Any) -> None:
    images, labels = train.make_data(3)
    images, labels = images[:16].reshape(2, 8, 64), labels[:16].reshape(2, 8)
    model = train.Model(3, product)
    model.layers = [layer.astype(np.float64) for layer in model.layers]
    model.forward(images, labels)
    gradients = [found.sum(axis=0) for _, found in model.backward()][::-1]
    rng = np.random.default_rng(0)
    for layer, gradient in zip(model.layers, gradients):
        direction = 1e-6 * rng.standard_normal(layer.shape)
        layer += direction
        more = model.forward(images, labels)[0]
        layer -= 2 * direction
        less = model.forward(images, labels)[0]
        layer += direction
        wanted = (more - less) / 2 / (train.SHARDS * train.SHARD)
        assert float((gradient * direction).sum()) == pytest.approx(wanted, rel=1e-4)


# Checkpoints

ARRAYS = {"weights": np.arange(50, dtype=np.float32), "owed": np.zeros(0, np.float32)}


def data(step: int) -> bytes:
    state = np.random.default_rng(step).bit_generator.state
    return bytes(train.pack({"step": step, "rng": state}, ARRAYS))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@given(where=st.integers(0, len(data(1)) - 1), bit=st.integers(0, 7), cut=st.booleans())
def test_a_checkpoint_that_is_cut_or_changed_is_refused(where: int, bit: int, cut: bool) -> None:
    whole = data(1)
    changed = whole[:where] + bytes([whole[where] ^ 1 << bit]) + whole[where + 1 :]
    with pytest.raises(ValueError, match="differ"):
        train.unpack(whole[:where] if cut else changed)


def test_the_last_two_are_kept_and_a_broken_one_is_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in (5, 90, 100):
        train.save(tmp_path, step, data(step))
    kept = ["train-000000090.checkpoint", "train-000000100.checkpoint"]
    assert names(tmp_path) == kept
    newest = tmp_path / kept[1]
    os.truncate(newest, newest.stat().st_size // 2)
    found = train.newest(tmp_path)
    assert found and found[0]["step"] == 90
    assert f"{newest} is broken" in capsys.readouterr().out
    train.save(tmp_path, 95, data(95))  # lower than the damaged one's number, and retained
    assert names(tmp_path) == [kept[0], "train-000000095.checkpoint", f"{kept[1]}.broken"]
    train.prepare(str(tmp_path), 10, restart=True)
    assert train.newest(tmp_path) is None and len(names(tmp_path)) == 3


def test_a_write_that_fails_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train.save(tmp_path, 1, data(1))
    monkeypatch.setattr(os, "fsync", full)
    for step in (1, 2):
        with pytest.raises(OSError, match="No space left"):
            train.save(tmp_path, step, data(step + 1))
    assert names(tmp_path) == ["train-000000001.checkpoint"]
    assert train.newest(tmp_path)[0]["step"] == 1


def test_a_directory_that_cannot_be_written_is_refused_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    for name, reason in (
        (None, "CLUSTER_CHECKPOINT_DIR"),
        ("absent/folder", "No such file"),
        ("file", "File exists"),
    ):
        with pytest.raises(train.Problem, match=reason):
            train.prepare(name and str(tmp_path / name), 10, restart=False)

    def read_only(*_: Any) -> Any:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patch:
        patch.setattr(train, "open", read_only, raising=False)
        with pytest.raises(train.Problem, match=f"written to {tmp_path}: Read-only file system"):
            train.prepare(str(tmp_path), 10, restart=False)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(train.Problem, match="No space left on device; 30 bytes"):
        train.prepare(str(tmp_path), 10, restart=True)
    assert names(tmp_path) == ["file"]
    monkeypatch.undo()
    (tmp_path / ".train-000000002.checkpoint.partial").touch()
    assert train.prepare(str(tmp_path), 10, restart=False) == tmp_path
    assert names(tmp_path) == ["file"], "what a killed run left is removed"


# One process


def one_process(
    monkeypatch: pytest.MonkeyPatch, *words: str, stop: Any = (), mpi: Optional[Alone] = None
) -> int:
    monkeypatch.setattr(sys, "argv", ["train.py", *words])
    return int(train.train(mpi or Alone(), train.arguments(), stop))


AFTER_12_STEPS = "256eb4385617c3af35334f74fa6e3a9833f39e4ee5e543dc23ae57605f181fba"
"""Results of numpy 1.21 and 2.4, with and without AVX-512: nodes of one job may differ in these."""


@pytest.mark.parametrize("mode", [["--deterministic"], ["--compress=fp16"], []])
def test_stopped_and_resumed_it_ends_with_the_same_weights(
    mode: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--steps=12", "--every=5", "--report=3", *mode]
    assert one_process(monkeypatch, *words, f"--checkpoints={tmp_path / 'a'}") == 0
    [(step, _, whole)] = END.findall(capsys.readouterr().out)
    assert step == "12"
    if "--deterministic" in mode:
        assert whole == AFTER_12_STEPS

    words.append(f"--checkpoints={tmp_path / 'b'}")
    assert one_process(monkeypatch, *words, stop=AtStep7()) == 128 + signal.SIGTERM
    assert END.findall(capsys.readouterr().out)[0][0] == "7"
    assert one_process(monkeypatch, *words) == 0
    resumed = capsys.readouterr().out
    assert "from step 7\n" in resumed and END.findall(resumed) == [("12", "1", whole)]
    assert one_process(monkeypatch, *words) == 0  # nothing left to do
    assert END.findall(capsys.readouterr().out) == [("12", "1", whole)]
    with pytest.raises(train.Problem, match="'seed': 2"):
        one_process(monkeypatch, *words, "--seed=2")
    assert one_process(monkeypatch, *words, "--seed=2", "--restart") == 0


def test_a_disk_that_fills_up_loses_no_older_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"--checkpoints={tmp_path}", "--every=2"]
    assert one_process(monkeypatch, *words, "--steps=2") == 0
    writes, real = [], os.fsync

    def fills_up(descriptor: int) -> None:
        writes.append(descriptor)
        (real if len(writes) <= 2 else full)(descriptor)  # those of the write test

    monkeypatch.setattr(os, "fsync", fills_up)
    with pytest.raises(train.Problem, match=r"no checkpoint of step 6: .*No space left.* step 2$"):
        one_process(monkeypatch, *words, "--steps=6")
    assert "no checkpoint of step 4" in capsys.readouterr().out, "training went on"
    assert names(tmp_path) == ["train-000000002.checkpoint"]


def test_other_weights_on_a_rank_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mpi = Alone()
    mpi.digests = [("b", "n1"), ("a", "n1"), ("a", "n2"), ("c", "n2")]
    with pytest.raises(train.Problem, match="step 1: weights differ on rank 0 on n1, 3 on n2"):
        one_process(monkeypatch, f"--checkpoints={tmp_path}", "--steps=1", mpi=mpi)
    assert names(tmp_path) == []


@pytest.mark.parametrize("words", [["--steps=0"], ["--deterministic", "--compress=fp16"]])
def test_options_that_make_no_sense_are_refused(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit):
        one_process(monkeypatch, *words)
