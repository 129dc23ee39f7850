# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""docs/examples/train_torch.py: its parts and a single process, if PyTorch is installed; real ranks
are in tests/integration/test_examples.py.
"""

from __future__ import annotations

import ctypes
import os
import random
import signal
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.jobs import END, Alone, AtStep7, load

torch = pytest.importorskip(
    "torch", reason="no PyTorch for this Python; tests/integration/test_examples.py has nodes"
)

train = load("train.py")
example = load("train_torch.py")

IMAGES, LABELS = train.make_data(3)
IMAGES, LABELS = (part[: train.SHARDS * train.SHARD] for part in (IMAGES, LABELS))


def gradients(model: Any, shards: slice) -> list[Any]:
    """Gradients of the loss of some shards."""
    images = torch.from_numpy(IMAGES.reshape(train.SHARDS, train.SHARD, -1)[shards])
    labels = torch.from_numpy(LABELS.reshape(train.SHARDS, train.SHARD)[shards])
    output = model(images.to(next(model.parameters()).dtype))
    loss = ((output - torch.nn.functional.one_hot(labels, 10)) ** 2).sum() / 2
    return list(torch.autograd.grad(loss / example.BATCH, list(model.parameters())))


@pytest.mark.parametrize("exact", [True, False])
def test_it_begins_with_the_weights_and_has_the_gradients_of_the_other_example(exact: bool) -> None:
    other = train.Model(3)
    other.forward(IMAGES[None], LABELS[None])
    wanted = [found.sum(axis=0) for _, found in other.backward()][::-1]
    model = example.Model(3, exact)
    for layer, its in zip(model.parameters(), other.layers):
        np.testing.assert_array_equal(layer.detach().numpy(), its)
    for found, its in zip(gradients(model, slice(None)), wanted):
        np.testing.assert_allclose(found.numpy(), its, rtol=1e-3, atol=1e-7)


@settings(max_examples=10)
@given(cuts=st.lists(st.integers(1, train.SHARDS - 1), max_size=5, unique=True), seed=st.integers())
def test_exact_gradients_are_the_same_however_ranks_share_the_batch(
    cuts: list[int], seed: int
) -> None:
    model = example.Model(3, exact=True)
    edges = [0, *sorted(cuts), train.SHARDS]
    ranks = [gradients(model, slice(*pair)) for pair in zip(edges, edges[1:])]
    random.Random(seed).shuffle(ranks)
    for parts, wanted in zip(zip(*ranks), gradients(model, slice(None))):
        assert torch.equal(sum(parts), wanted)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2.0**9])
def test_a_gradient_that_has_no_exact_sum_ends_the_run(value: float) -> None:
    weights = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    output = example.ExactProduct.apply(torch.ones(1, 1, 2, dtype=torch.float64), weights)
    with pytest.raises(train.Problem, match="too large or not a number"):
        (output * value).sum().backward()


def test_buckets_are_sent_while_layers_are_still_computed() -> None:
    model = example.Model(3, exact=False)
    wanted = gradients(model, slice(None))
    sent: list[np.ndarray] = []
    by_layer: list[int] = []

    class MPI(Alone):
        def Iallreduce(self, _: Any, values: Any, op: Any = None) -> Any:
            sent.append(values)
            return types.SimpleNamespace(
                Test=lambda: True, Wait=lambda: np.multiply(values, 2, out=values)
            )

    parameters = list(model.parameters())
    reducer = example.Reducer(MPI(), MPI(), parameters, 2048, "cpu")
    for parameter in reversed(parameters):
        parameter.register_hook(lambda _: by_layer.append(len(sent)))
    output = model(torch.from_numpy(IMAGES[None]))
    loss = ((output - torch.nn.functional.one_hot(torch.from_numpy(LABELS), 10)) ** 2).sum() / 2
    (loss / example.BATCH).backward()
    reducer.use()
    assert by_layer == [1, 9, 17]
    assert sum(bucket.size for bucket in sent) == sum(part.numel() for part in parameters)
    assert max(bucket.size for bucket in sent) == 512
    for parameter, its in zip(parameters, wanted):
        np.testing.assert_allclose(parameter.grad, 2 * its, rtol=1e-5, atol=1e-7)


# One process

AFTER_12_STEPS = "9b1475599383c081d46de43d79f9c34d43369ffbd0f16eefa67653ffe105aa5a"
"""Results of PyTorch 1.13 and 2.14, with mpi4py and with gloo, on 1 to 3 ranks."""


class One(Alone):
    """MPI with one rank, as queried by a library."""

    __file__ = None  # this process, which has no MPI
    THREAD_MULTIPLE = 3
    threads = 3

    def Query_thread(self) -> int:
        return self.threads


def one_process(
    monkeypatch: pytest.MonkeyPatch, *words: str, stop: Any = (), mpi: Any = None
) -> int:
    monkeypatch.setattr(sys, "argv", ["train_torch.py", *words])
    monkeypatch.setattr("socket.gethostname", lambda: "localhost")
    try:
        return int(example.train_torch(mpi or One(), example.arguments(), stop))
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


@pytest.mark.parametrize("backend", ["mpi4py", "gloo"])
def test_stopped_and_resumed_it_ends_with_the_same_weights(
    backend: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--steps=12", "--every=5", "--report=3", "--deterministic", f"--backend={backend}"]
    words.append(f"--checkpoints={tmp_path}")
    assert one_process(monkeypatch, *words, stop=AtStep7()) == 128 + signal.SIGTERM
    assert END.findall(capsys.readouterr().out)[0][0] == "7"
    newest = tmp_path / "train-000000007.checkpoint"
    os.truncate(newest, newest.stat().st_size // 2)
    assert one_process(monkeypatch, *words) == 0
    resumed = capsys.readouterr().out
    assert f"{newest} is broken" in resumed and "from step 5\n" in resumed
    assert END.findall(resumed) == [("12", "1", AFTER_12_STEPS)]
    assert one_process(monkeypatch, *words) == 0  # nothing left to do
    assert END.findall(capsys.readouterr().out) == [("12", "1", AFTER_12_STEPS)]


def test_checkpoints_of_the_other_example_are_refused_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [f"--checkpoints={tmp_path}", "--steps=1"]
    monkeypatch.setattr(sys, "argv", ["train.py", *words])
    assert train.train(Alone(), train.arguments(), ()) == 0
    with pytest.raises(train.Problem, match=r"'sums': 'float32'.* this is .*'torch float32'"):
        one_process(monkeypatch, *words)
    assert [path.name for path in tmp_path.iterdir()] == ["train-000000001.checkpoint"]


@pytest.mark.parametrize("backend", ["mpi", "nccl"])
def test_a_backend_that_torch_lacks_is_refused_before_anything_is_written(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.distributed, f"is_{backend}_available", lambda: False)
    with pytest.raises(train.Problem, match=r"^torch \d.*: --backend mpi4py"):
        one_process(monkeypatch, f"--backend={backend}", f"--checkpoints={tmp_path / 'new'}")
    assert not list(tmp_path.iterdir())


def test_the_backend_of_mpi_takes_rank_and_size_from_it_and_calls_it_from_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """gloo stands in for it: no package of PyTorch has it."""
    began, real = [], torch.distributed.init_process_group

    def begin(*words: Any, **named: Any) -> None:
        began.append((words, named))
        store = torch.distributed.HashStore()
        real("gloo", store=store, rank=0, world_size=1)

    monkeypatch.setattr(torch.distributed, "is_mpi_available", lambda: True)
    monkeypatch.setattr(torch.distributed, "init_process_group", begin)
    words = [f"--checkpoints={tmp_path}", "--backend=mpi", "--steps=12", "--deterministic"]
    mpi = One()
    mpi.threads = 2
    with pytest.raises(train.Problem, match="MPI_THREAD_MULTIPLE"):
        one_process(monkeypatch, *words, mpi=mpi)
    assert one_process(monkeypatch, *words) == 0
    assert began == [(("mpi",), {})]
    assert END.findall(capsys.readouterr().out) == [("12", "1", AFTER_12_STEPS)]


@pytest.mark.parametrize(
    ("environment", "gpu"),
    [({}, 0), ({"OMPI_COMM_WORLD_LOCAL_RANK": "5"}, 5), ({"MPI_LOCALRANKID": "10"}, 2)],
)
def test_a_rank_takes_the_gpu_of_its_number_on_the_node_before_mpi_starts(
    environment: dict[str, str], gpu: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    for name in example.LOCAL_RANK:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["train_torch.py"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    monkeypatch.setattr(torch.cuda, "set_device", calls.append)
    monkeypatch.setattr(example.train, "launch", lambda *_: calls.append("MPI") or 0)
    assert example.main() == 0
    assert calls == [gpu, "MPI"]


@pytest.mark.parametrize(("answer", "wanted"), [(1, True), (0, False), (None, False)])
def test_whether_mpi_takes_gpu_buffers_is_its_own_answer(
    answer: Any, wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = types.SimpleNamespace()
    if answer is not None:
        library.MPIX_Query_cuda_support = lambda: answer
    monkeypatch.setattr(ctypes, "CDLL", lambda path: library)
    assert example.takes_gpu_buffers(One()) is wanted
