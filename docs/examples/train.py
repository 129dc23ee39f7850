# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Data-parallel training of a small classifier with mpi4py and numpy; see README.md.

mpirun -np 32 --hostfile /etc/baremetal-mpi-roce/hostfile python3 train.py --deterministic
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import io
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Optional

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy: ranks share a node's cores
import numpy as np

LAYERS = (64, 64, 64, 10)  # from 8x8 pixels to ten classes
SAMPLES = 8192
SHARDS, SHARD = 32, 8  # shards per batch, samples per shard
RATE, MOMENTUM = np.float32(0.1), np.float32(0.9)
RETAINED = 2  # checkpoints
FIXED_POINT = 2.0**40  # steps per 1.0
STOPPED = 128 + signal.SIGTERM
State = tuple[dict[str, Any], dict[str, np.ndarray]]  # values and arrays of a checkpoint


class Problem(Exception):
    """An error that ends the run, with a message for the operator."""


def make_data(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return images and labels: ten patterns, each shifted by up to one pixel, with noise."""
    rng = np.random.default_rng(seed)
    patterns = (rng.random((LAYERS[-1], 8, 8)) < 0.4).astype(np.float32)
    labels = (rng.random(SAMPLES) * LAYERS[-1]).astype(np.int64)
    moves = (rng.random((2, SAMPLES, 1)) * 3).astype(np.int64) - 1
    rows, columns = (np.arange(8) + moves) % 8
    images = patterns[labels[:, None, None], rows[:, :, None], columns[:, None, :]]
    # 64-bit: numpy 1.22 changed the sequence of 32-bit random numbers.
    images += (rng.random(images.shape) * 1.5 - 1.15).astype(np.float32)
    return images.reshape(SAMPLES, LAYERS[0]), labels


def product_in_order(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return a @ b, added in a fixed order: bit-identical on every CPU and with every BLAS."""
    total = a[..., :1] * b[..., :1, :]
    for k in range(1, a.shape[-1]):
        total += a[..., k : k + 1] * b[..., k : k + 1, :]
    return total


def with_ones(x: np.ndarray) -> np.ndarray:
    """Append a constant input for the last row of a layer's weights, the bias."""
    return np.concatenate([x, np.ones_like(x[..., :1])], axis=-1)


class Model:
    """Layers with ReLU between them; arrays are [shard, sample, feature]. Loss: half the square."""

    def __init__(self, seed: int, product: Callable[..., np.ndarray] = np.matmul) -> None:
        self.product = product
        shapes = [(inputs + 1, outputs) for inputs, outputs in zip(LAYERS, LAYERS[1:])]
        sizes = [rows * columns for rows, columns in shapes]
        # One vector, the last layer first: the gradients finished so far are one contiguous slice.
        self.places = [sum(sizes[number + 1 :]) for number in range(len(sizes))]
        self.weights = np.zeros(sum(sizes), np.float32)
        pieces = [slice(place, place + size) for place, size in zip(self.places, sizes)]
        self.layers = [self.weights[piece].reshape(s) for piece, s in zip(pieces, shapes)]
        rng = np.random.default_rng([seed, 1])
        for layer in self.layers:
            layer[:-1] = (2 * rng.random(layer[:-1].shape) - 1) * np.sqrt(6 / layer.shape[0])

    def forward(self, images: np.ndarray, labels: np.ndarray) -> tuple[float, int]:
        """Return the sum of losses and the number of correct answers; `backward` uses the rest."""
        self.inputs = [with_ones(images)]
        for layer in self.layers[:-1]:
            self.inputs.append(with_ones(np.maximum(self.product(self.inputs[-1], layer), 0)))
        output = self.product(self.inputs[-1], self.layers[-1])
        self.error = output - np.eye(LAYERS[-1], dtype=np.float32)[labels]
        right = (output.argmax(axis=-1) == labels).sum()
        return float((self.error**2).sum() / 2), int(right)

    def backward(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (offset in the vector, gradient by shard) of each layer once it is computed."""
        error = self.error / np.float32(SHARDS * SHARD)
        for number in reversed(range(len(self.layers))):
            inputs, layer = self.inputs[number], self.layers[number]
            yield self.places[number], self.product(inputs.swapaxes(-1, -2), error)
            if number:
                error = self.product(error, layer[:-1].T) * (inputs[..., :-1] > 0)


class Reducer:
    """Sums gradients over all ranks, one bucket at a time, while others are still computed.

    Sums of floats depend on their order, and therefore on the number of ranks. Sums of integers do
    not: `int64` rounds the gradient of each shard to a multiple of 2^-40. A shard has the same
    gradient on any rank, and all later sums are exact. `float16` halves the traffic; a rank adds
    its rounding errors to its next gradient (error feedback).
    """

    def __init__(self, start: Callable[[np.ndarray], Any], kind: str, size: int, bucket: int):
        self.start = start  # starts a sum over all ranks in place and returns its request
        self.sums = np.zeros(size, kind)
        self.owed = np.zeros(size if kind == "float16" else 0, np.float32)
        self.bucket = max(1, bucket // self.sums.itemsize)
        self.sent, self.requests = 0, []  # type: int, list[Any]

    def add(self, place: int, shards: np.ndarray) -> None:
        """Add the gradients of a layer; layers arrive in the order of their offsets."""
        shards = shards.reshape(len(shards), -1)
        here = slice(place, place + shards.shape[1])
        self.sums[here] = self._encoded(here, shards)
        while here.stop - self.sent >= self.bucket:
            self._send(self.sent + self.bucket)
        for request in self.requests:
            request.Test()  # without a progress thread, MPI moves data only when called

    def _encoded(self, here: slice, shards: np.ndarray) -> np.ndarray:
        if self.sums.dtype == np.int64:
            if not (np.abs(shards) < 2.0**62 / FIXED_POINT / SHARDS).all():
                raise Problem("a gradient is too large or not a number: lower RATE")
            return np.rint(shards * FIXED_POINT).astype(np.int64).sum(axis=0)
        total = shards.sum(axis=0)
        if self.sums.dtype == np.float16:
            total += self.owed[here]
            self.owed[here] = total - total.astype(np.float16)
        return total

    def _send(self, end: int) -> None:
        self.requests.append(self.start(self.sums[self.sent : end]))
        self.sent = end

    def _wait(self) -> None:
        if self.sent < len(self.sums):
            self._send(len(self.sums))
        for request in self.requests:
            request.Wait()
        self.sent, self.requests = 0, []

    def finish(self) -> np.ndarray:
        """Wait for all sums and return them."""
        self._wait()
        scale = FIXED_POINT if self.sums.dtype == np.int64 else 1
        return (self.sums / scale).astype(np.float32)


def pack(values: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
    """Return a checkpoint: one line with the checksum of the rest, then a .npz file."""
    body = io.BytesIO()
    np.savez(body, values=np.frombuffer(json.dumps(values).encode(), np.uint8), **arrays)
    checksum = hashlib.sha256(body.getvalue()).hexdigest()
    return checksum.encode() + b"\n" + body.getvalue()


def unpack(data: bytes) -> State:
    checksum, _, body = data.partition(b"\n")
    if checksum != hashlib.sha256(body).hexdigest().encode():
        raise ValueError(f"checksum and content ({len(data)} bytes) differ")
    with np.load(io.BytesIO(body)) as found:
        arrays = {name: found[name] for name in found.files}
    return json.loads(arrays.pop("values").tobytes()), arrays


def write(path: Path, data: bytes) -> None:
    """Write a file atomically, even if power is lost."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        with open(partial, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder, newest first."""
    return sorted(folder.glob("train-*.checkpoint"), reverse=True)


def save(folder: Path, step: int, data: bytes) -> None:
    write(folder / f"train-{step:09d}.checkpoint", data)
    for old in checkpoints(folder)[RETAINED:]:
        old.unlink()


def newest(folder: Path) -> Optional[State]:
    """Return the newest intact checkpoint. Broken ones are renamed."""
    for path in checkpoints(folder):
        try:
            return unpack(path.read_bytes())
        except ValueError as error:
            print(f"{path} is broken: {error}; the one before it is next", flush=True)
            path.rename(f"{path}.broken")
    return None


def prepare(name: Optional[str], size: int, restart: bool) -> Path:
    """Return the directory of checkpoints after writing a test file of their total size."""
    if not name:
        raise Problem("no directory for checkpoints: --checkpoints or CLUSTER_CHECKPOINT_DIR")
    folder = Path(name)
    try:
        folder.mkdir(exist_ok=True)  # without parents, to detect a file system that is not mounted
        for left in folder.glob(".train-*.partial"):  # left by a run that was killed
            left.unlink()
        test = folder / "train-test"
        size *= RETAINED + 1 - min(RETAINED, len(checkpoints(folder)))
        write(test, b"\1" * size)
        test.unlink()
    except OSError as error:
        reason = f"{error.strerror}; {size} bytes of free space are required"
        raise Problem(f"no checkpoints can be written to {folder}: {reason}") from error
    for path in checkpoints(folder) if restart else []:
        path.rename(f"{path}.old")
    return folder


def differing(digests: list[tuple[str, str]]) -> list[str]:
    """Return the ranks whose digest is not the most frequent; takes (digest, host) by rank."""
    usual = collections.Counter(digest for digest, _ in digests).most_common(1)[0][0]
    return [f"{rank} on {host}" for rank, (own, host) in enumerate(digests) if own != usual]


class Run:
    """Common to all ranks and programs: resume, agree on each step, save, finish."""

    def __init__(self, MPI: Any, options: argparse.Namespace, stop: list[int], sums: str) -> None:
        self.comm = MPI.COMM_WORLD.Dup()  # separate from the messages of other libraries
        self.in_place = MPI.IN_PLACE
        self.options, self.stop = options, stop
        self.what = {"seed": options.seed, "sums": sums}
        self.what |= {"layers": list(LAYERS), "batch": [SHARDS, SHARD]}
        self.rng = np.random.default_rng([options.seed, 2])  # the same on all ranks
        self.step = self.saved = self.counted = 0
        self.stopped = False
        self.folder: Optional[Path] = None

    def resume(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the arrays of the newest checkpoint, or `arrays` if there is none."""
        state, ranks = None, self.comm.size
        if self.comm.rank == 0:
            if ranks > SHARDS:
                text = f"{ranks} ranks share {SHARDS} shards of a batch"
                raise Problem(f"{text}: start {SHARDS} or less")
            size = len(self._packed(arrays))
            self.folder = prepare(self.options.checkpoints, size, self.options.restart)
            state = newest(self.folder)
            if state and state[0]["run"] != self.what:
                text = f"{self.folder} has checkpoints of {state[0]['run']}, this is {self.what}"
                raise Problem(f"{text}: --restart, or another directory")
        state = self.comm.bcast(state)
        if state:
            values, arrays = state
            self.step = self.saved = values["step"]
            self.rng.bit_generator.state = values["rng"]
        if self.comm.rank == 0:
            size = arrays["weights"].size
            print(f"{ranks} ranks, {size} weights, from step {self.step}", flush=True)
        return arrays

    def _packed(self, arrays: dict[str, np.ndarray]) -> bytes:
        values = {"step": self.step, "rng": self.rng.bit_generator.state, "run": self.what}
        return pack(values, arrays)

    def batches(self) -> Iterator[np.ndarray]:
        """Yield the samples of this rank for each step, as [shard, sample]."""
        mine = np.array_split(np.arange(SHARDS), self.comm.size)[self.comm.rank]
        self.began = time.monotonic()
        while self.step < self.options.steps and not self.stopped:
            yield (self.rng.random((SHARDS, SHARD)) * SAMPLES).astype(np.int64)[mine]

    def add(self, loss: float, right: int) -> None:
        """Start summing loss, correct answers and stop signals of this step."""
        self.status = np.array([loss, right, len(self.stop)], np.float64)
        self.agreed = self.comm.Iallreduce(self.in_place, self.status)

    def finish(self, arrays: Callable[[], dict[str, np.ndarray]]) -> None:
        """Finish the step, and save the result of `arrays` at a checkpoint."""
        self.agreed.Wait()
        self.step, self.counted = self.step + 1, self.counted + SHARDS * SHARD
        self.stopped = self.status[2] > 0  # the same on every rank
        loss, right = self.status[:2] / (SHARDS * SHARD)
        last = self.stopped or self.step == self.options.steps
        if not np.isfinite(loss):
            self._give_up(f"the loss of step {self.step} is {loss}: lower RATE")
        if self.comm.rank == 0 and (last or self.step % self.options.report == 0):
            speed = f"{self.counted / (time.monotonic() - self.began):.0f} samples/s"
            print(f"step {self.step} loss {loss:.5f} right {right:.1%} {speed}", flush=True)
            self.began, self.counted = time.monotonic(), 0
        if last or self.step % self.options.every == 0:
            self._save(arrays(), last)

    def _save(self, arrays: dict[str, np.ndarray], last: bool) -> None:
        digest = hashlib.sha256(arrays["weights"].tobytes()).hexdigest()
        wrong = differing(self.comm.allgather((digest, socket.gethostname())))
        if wrong:
            self._give_up(f"step {self.step}: weights differ on rank {', '.join(wrong)}")
        try:
            if self.folder:
                save(self.folder, self.step, self._packed(arrays))
                self.saved = self.step
        except OSError as error:
            text = f"no checkpoint of step {self.step}: {error}"
            text += f"; the last is of step {self.saved or '-'}"
            if last:
                raise Problem(text) from error
            print(text, flush=True)

    def _give_up(self, reason: str) -> None:
        """Raise an error that all ranks detect at the same step. Only rank 0 prints it."""
        if self.comm.rank:
            self.comm.Barrier()
        raise Problem(reason)

    def end(self, weights: np.ndarray) -> int:
        digest = hashlib.sha256(weights.tobytes()).hexdigest()
        if self.comm.rank == 0:
            text = f"step {self.step}, same weights on {self.comm.size} ranks, sha256 {digest}"
            print(f"{'stopped by a signal' if self.stopped else 'done'}: {text}", flush=True)
        return STOPPED if self.stopped else 0


def train(MPI: Any, options: argparse.Namespace, stop: list[int]) -> int:
    kind = "int64" if options.deterministic else "float16" if options.compress else "float32"
    run = Run(MPI, options, stop, kind)

    def add_halves(inputs: Any, sums: Any, _: Any) -> None:
        np.frombuffer(sums, np.float16)[:] += np.frombuffer(inputs, np.float16)

    # MPI has no sum of 16-bit floats: they are sent as integers, and numpy adds them.
    operation = MPI.Op.Create(add_halves, commute=True) if options.compress else MPI.SUM

    def start(values: np.ndarray) -> Any:
        values = values.view(np.uint16) if options.compress else values
        return run.comm.Iallreduce(MPI.IN_PLACE, values, op=operation)

    model = Model(options.seed, product_in_order if options.deterministic else np.matmul)
    velocity = np.zeros_like(model.weights)
    reducer = Reducer(start, kind, model.weights.size, options.bucket_kib * 1024)
    images, labels = make_data(options.seed)

    def arrays() -> dict[str, np.ndarray]:
        owed = np.zeros_like(reducer.owed)
        run.comm.Reduce(reducer.owed, owed)
        return {"weights": model.weights, "velocity": velocity, "owed": owed}

    found = run.resume(arrays())
    model.weights[:], velocity[:] = found["weights"], found["velocity"]
    reducer.owed[:] = found["owed"] if run.comm.rank == 0 else 0  # the sum over all ranks
    for chosen in run.batches():
        if not options.deterministic:
            chosen = chosen.reshape(1, -1)  # one product for all shards of this rank
        run.add(*model.forward(images[chosen], labels[chosen]))
        for place, gradients in model.backward():
            reducer.add(place, gradients)
        velocity *= MOMENTUM
        velocity -= RATE * reducer.finish()
        model.weights += velocity
        run.finish(arrays)
    return run.end(model.weights)


def parser(description: str) -> argparse.ArgumentParser:
    """Return a parser with the options that the examples share."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    for name, value, text in (
        ("--steps", 400, "steps of the whole run"),
        ("--seed", 1, "seed of data, weights and batches"),
        ("--report", 20, "print a line every N steps"),
        ("--every", 50, "write a checkpoint every N steps"),
        ("--bucket-kib", 8, "size of a bucket of gradients in KiB"),
    ):
        parser.add_argument(name, type=int, default=value, metavar="N", help=f"{text} ({value})")
    parser.add_argument("--restart", action="store_true", help="rename checkpoints to *.old")
    default = os.environ.get("CLUSTER_CHECKPOINT_DIR")
    parser.add_argument("--checkpoints", metavar="DIR", default=default, help=f"({default})")
    return parser


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    options = parser.parse_args()
    if min(options.steps, options.report, options.every, options.bucket_kib) < 1:
        parser.error("--steps, --report, --every and --bucket-kib must be at least 1")
    return options


def arguments() -> argparse.Namespace:
    own = parser(__doc__)
    either = own.add_mutually_exclusive_group()
    either.add_argument("--deterministic", action="store_true", help="exact sums of gradients")
    either.add_argument("--compress", choices=["fp16"], help="send gradients as 16-bit floats")
    return parsed(own)


def launch(name: str, program: Callable[..., int], options: argparse.Namespace) -> int:
    """Run a rank of the program and return its exit status."""
    from mpi4py import MPI  # not at the top: tests import this file without MPI

    stop: list[int] = []
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda received, _: stop.append(received))
    try:
        return program(MPI, options, stop)
    except Exception as error:
        text = str(error) if isinstance(error, Problem) else traceback.format_exc()
        where = f"rank {MPI.COMM_WORLD.rank} on {socket.gethostname()}"
        sys.stderr.write(f"{name}: {where}: {text}\n")  # unbuffered: mpirun exits soon
        MPI.COMM_WORLD.Abort(1)
        return 1


def main() -> int:
    return launch("train.py", train, arguments())


if __name__ == "__main__":
    sys.exit(main())
