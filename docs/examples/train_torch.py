# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Data-parallel training of train.py's classifier with PyTorch; see README.md.

mpirun -np 32 --hostfile /etc/baremetal-mpi-roce/hostfile python3 train_torch.py --backend nccl
"""

from __future__ import annotations

import argparse
import ctypes
import os
import socket
import sys
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: ranks share a node's cores
import numpy as np
import torch
import torch.distributed as dist
import train  # train.py in the same directory
from torch.nn.functional import one_hot, pad, relu
from torch.nn.utils import parameters_to_vector, vector_to_parameters

RATE, MOMENTUM = 0.125, 0.9  # a power of two: the same bits with and without fused multiply-add
BATCH = train.SHARDS * train.SHARD
# MPI provides rank and size, but the GPU must be selected before MPI starts. Launchers set one of:
LOCAL_RANK = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")


class ExactProduct(torch.autograd.Function):
    """x @ weights, added in a fixed order, with gradients that can be summed in any order.

    The gradient of each shard is rounded to a multiple of 2^-40. In 64-bit floats, sums of such
    numbers are exact up to 2^13, with any library and any number of ranks.
    """

    @staticmethod
    def forward(ctx: Any, x: Any, weights: Any) -> Any:
        ctx.save_for_backward(x, weights)
        return train.product_in_order(x, weights)

    @staticmethod
    def backward(ctx: Any, error: Any) -> Any:
        x, weights = ctx.saved_tensors
        shards: Any = train.product_in_order(x.transpose(-1, -2), error)
        if not (shards.abs() < 2.0**53 / train.FIXED_POINT / train.SHARDS).all():
            raise train.Problem("a gradient is too large or not a number: lower RATE")
        before = train.product_in_order(error, weights.t()) if ctx.needs_input_grad[0] else None
        return before, (torch.round(shards * train.FIXED_POINT) / train.FIXED_POINT).sum(0)


class Model(torch.nn.Module):
    """train.Model with the same initial weights. Input is [shard, sample, feature]."""

    def __init__(self, seed: int, exact: bool) -> None:
        super().__init__()
        kind = torch.float64 if exact else torch.float32
        layers = [torch.from_numpy(layer.copy()).to(kind) for layer in train.Model(seed).layers]
        self.layers = torch.nn.ParameterList([torch.nn.Parameter(layer) for layer in layers])
        self.product: Any = ExactProduct.apply if exact else torch.matmul

    def forward(self, x: Any) -> Any:
        for number, layer in enumerate(self.layers):
            x = self.product(pad(relu(x) if number else x, (0, 1), value=1.0), layer)
        return x


class Reducer(train.Reducer):
    """Sums gradients over all ranks with mpi4py, bucket by bucket, while others are computed."""

    def __init__(self, MPI: Any, comm: Any, parameters: list[Any], bucket: int, device: Any):
        size = sum(parameter.numel() for parameter in parameters)
        first = parameters[0]
        super().__init__(self._start, "float32", size, bucket // first.element_size() * 4)
        self.MPI, self.comm = MPI, comm
        self.sums: Any = torch.zeros(size, dtype=first.dtype, device=device)
        self.pieces, place = [], 0
        for parameter in reversed(parameters):  # in the order of the backward pass
            piece = self.sums[place : place + parameter.numel()]
            self.pieces.append((parameter, piece.view_as(parameter)))
            parameter.register_hook(lambda found, place=place: self.add(place, found[None]))
            place += parameter.numel()

    def _start(self, values: Any) -> Any:
        if values.is_cuda:
            torch.cuda.current_stream().synchronize()  # MPI does not know CUDA streams
        buffer = values if values.is_cuda else values.numpy()
        return self.comm.Iallreduce(self.MPI.IN_PLACE, buffer)

    def _encoded(self, here: slice, shards: Any) -> Any:
        return shards[0]  # add() copies it to the host if MPI sums there

    def use(self) -> None:
        """Wait for the sums and store them as gradients."""
        self._wait()
        for parameter, piece in self.pieces:
            parameter.grad = piece.to(parameter.device)


def takes_gpu_buffers(MPI: Any) -> bool:
    """Return whether MPI reports CUDA support, as Open MPI, MPICH and their derivatives do."""
    query = getattr(ctypes.CDLL(MPI.__file__), "MPIX_Query_cuda_support", None)
    return bool(query and query())


def join(MPI: Any, comm: Any, backend: str) -> None:
    """Create the process group of torch from the ranks of MPI."""
    if backend == "mpi":
        if not dist.is_mpi_available():
            text = f"torch {torch.__version__} is built without MPI"
            raise train.Problem(
                f"{text}: use --backend mpi4py, gloo or nccl, or build torch with MPI"
            )
        if MPI.Query_thread() != MPI.THREAD_MULTIPLE:  # torch calls MPI from a thread
            raise train.Problem("--backend mpi needs an MPI with MPI_THREAD_MULTIPLE")
        dist.init_process_group("mpi")
        return
    if backend == "nccl" and not (dist.is_nccl_available() and torch.cuda.is_available()):
        text = f"torch {torch.__version__} sees no GPU, or has no NCCL"
        raise train.Problem(f"{text}: use --backend mpi4py or gloo")
    # The kernel selects a free port. The host name resolves to the management address.
    place, common = None, {"world_size": comm.size, "wait_for_workers": False}
    if comm.rank == 0:
        store = dist.TCPStore(socket.gethostname(), 0, is_master=True, **common)
        place = (socket.gethostname(), store.port)
    host, port = comm.bcast(place)
    if comm.rank:
        store = dist.TCPStore(host, port, is_master=False, **common)
    dist.init_process_group(backend, store=store, rank=comm.rank, world_size=comm.size)


def add_up(bucket: Any) -> Any:
    """Sum gradients. DistributedDataParallel would also divide, and therefore round."""
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda done: done.value()[0])


def train_torch(MPI: Any, options: argparse.Namespace, stop: list[int]) -> int:
    exact, backend = options.deterministic, options.backend
    run = train.Run(MPI, options, stop, f"torch {'float64' if exact else 'float32'}")
    if backend != "mpi4py":
        join(MPI, run.comm, backend)
    aware = takes_gpu_buffers(MPI)
    gpu = backend in ("mpi4py", "nccl") or (backend == "mpi" and aware)
    device = torch.device("cuda" if gpu and torch.cuda.is_available() else "cpu")
    model: Any = Model(options.seed, exact).to(device)
    parameters = list(model.parameters())
    momentum = [torch.zeros_like(parameter) for parameter in parameters]
    optimizer = torch.optim.SGD(parameters, lr=RATE, momentum=MOMENTUM)
    for parameter, own in zip(parameters, momentum):  # created now, so that each checkpoint has it
        optimizer.state[parameter]["momentum_buffer"] = own
    parts = {"weights": parameters, "momentum": momentum}

    def arrays() -> dict[str, np.ndarray]:
        vectors = {name: parameters_to_vector(part).detach() for name, part in parts.items()}
        return {name: vector.cpu().numpy() for name, vector in vectors.items()}

    for name, array in run.resume(arrays()).items():
        vector_to_parameters(torch.from_numpy(array).to(device), parts[name])
    bucket = options.bucket_kib * 1024
    if backend == "mpi4py":
        where = device if aware else torch.device("cpu")
        reducer = Reducer(MPI, run.comm, parameters, bucket, where)
    else:
        model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=bucket / 2**20)
        model.register_comm_hook(None, lambda _, bucket: add_up(bucket))

    images, labels = train.make_data(options.seed)
    for chosen in run.batches():
        if not exact:
            chosen = chosen.reshape(1, -1)  # one product for all shards of this rank
        wanted = torch.from_numpy(labels[chosen]).to(device)
        output = model(torch.from_numpy(images[chosen]).to(device, parameters[0].dtype))
        loss = ((output - one_hot(wanted, train.LAYERS[-1])) ** 2).sum() / 2
        run.add(loss.item(), (output.argmax(-1) == wanted).sum().item())
        optimizer.zero_grad(set_to_none=True)
        (loss / BATCH).backward()
        if backend == "mpi4py":
            reducer.use()
        optimizer.step()
        run.finish(arrays)
    if backend != "mpi4py":
        dist.destroy_process_group()
    return run.end(arrays()["weights"])


def arguments() -> argparse.Namespace:
    own = train.parser(__doc__)
    own.add_argument("--deterministic", action="store_true", help="exact sums of gradients")
    own.add_argument(
        "--backend",
        choices=["mpi4py", "gloo", "nccl", "mpi"],
        default="mpi4py",
        help="sum gradients with mpi4py, or with DistributedDataParallel and this backend (mpi4py)",
    )
    return train.parsed(own)


def main() -> int:
    options = arguments()
    if torch.cuda.is_available():
        local = next((os.environ[name] for name in LOCAL_RANK if name in os.environ), "0")
        torch.cuda.set_device(int(local) % torch.cuda.device_count())
    return train.launch("train_torch.py", train_torch, options)


if __name__ == "__main__":
    sys.exit(main())
