#!/usr/bin/python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Allreduce over every rank: verify every result exactly, measure it, and report the path of the
data.

mpirun starts one process per rank. Rank 0 prints one JSON object per line on standard output, and
no other output goes there. Errors of any rank go to standard error, with rank and host.

Inputs are chosen so that every partial result is exact in its type, in any order of reduction. Each
rank can therefore compute the complete result without MPI and compare bytes (`verify`). The
collection evaluates the report in plugins/module_utils/mpi/allreduce/verdict.py.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import pathlib
import re
import signal
import socket
import struct
import sys
import time

MARK = "allreduce-record "
"""Prefix of each line of the report; login scripts may print other lines."""
RETRIES = (
    "out_of_sequence",
    "packet_seq_err",
    "implied_nak_seq_err",
    "local_ack_timeout_err",
    "rx_icrc_encapsulated",
)
"""Counters in hw_counters (the kernel's ABI/stable/sysfs-class-infiniband) of lost, late and
damaged packets. Counters of receivers that are not ready do not concern the rail."""
TOTAL_RETRANS, DATA_SEGS_OUT, DSACK_DUPS, TCP_INFO_LENGTH = 100, 156, 216, 224
"""Offsets in struct tcp_info (linux/tcp.h), 32 bits each."""
WRONG_SHOWN = 3
"""Wrong results that a rank reports in full; the rest are counted."""

OPERATIONS = ("SUM", "MAX", "MIN", "PROD")
TYPES = ("float32", "float64", "int32", "int64", "complex128")
EXACT_INTEGERS = {"float32": 24, "float64": 53, "int32": 31, "int64": 63, "complex128": 53}
"""Bits in which every integer is exact: mantissa of a float, range of an integer."""


def combinations():
    """Every (type, operation, placement) in a fixed order; MAX is undefined for complex numbers."""
    return [
        (kind, operation, placement)
        for placement in ("out_of_place", "in_place")
        for kind in TYPES
        for operation in OPERATIONS
        if kind != "complex128" or operation == "SUM"
    ]


def period(kind, ranks):
    """Period of input values: odd, so that an offset of a power of two does not go unnoticed."""
    limit = (1 << EXACT_INTEGERS[kind]) // max(ranks, 1) - 1
    odd = min(997, limit)
    return max(3, odd - 1 + odd % 2)


@functools.cache
def inputs_by_phase(numpy, kind, operation, ranks, of_rank):
    """Contribution of rank `of_rank` to each element of a period, as Python integers."""
    phase = numpy.arange(period(kind, ranks), dtype=numpy.int64)
    if operation == "PROD":
        # Twenty ranks contribute at most a factor of two, the others a sign: exact in every type.
        if of_rank < 20:
            return numpy.where((phase + of_rank) % 2 == 0, 2, 1)
        return numpy.where((phase + of_rank) % 3 == 0, -1, 1)
    return (phase + 131 * (of_rank + 1)) % len(phase)


@functools.cache
def expected_by_phase(numpy, kind, operation, ranks):
    """Expected result of each element of a period, computed from every rank's input without MPI."""
    names = {"SUM": "add", "MAX": "maximum", "MIN": "minimum", "PROD": "multiply"}
    combine = getattr(numpy, names[operation])
    total = inputs_by_phase(numpy, kind, operation, ranks, 0)
    for rank in range(1, ranks):
        term = inputs_by_phase.__wrapped__(numpy, kind, operation, ranks, rank)
        total = combine(total, term)
    return total


def spread(numpy, by_phase, kind, count):
    """A buffer of `count` elements of `kind`, repeating the values of one period."""
    values = by_phase.astype(kind)
    if kind == "complex128":
        values = values - 1j * by_phase[::-1]
    places = (numpy.arange(count, dtype=numpy.int64) * 7) % len(by_phase)
    return values[places]


def verify(numpy, found, wanted):
    """None if both buffers are equal byte by byte, else (number of wrong elements, first index,
    wanted, found)."""
    width = wanted.dtype.itemsize
    left = numpy.ascontiguousarray(found).view(numpy.uint8).reshape(-1, width)
    right = numpy.ascontiguousarray(wanted).view(numpy.uint8).reshape(-1, width)
    if left.shape != right.shape:
        return (max(len(left), len(right)), 0, f"{len(right)} elements", f"{len(left)} elements")
    wrong = numpy.flatnonzero((left != right).any(axis=1))
    if len(wrong) == 0:
        return None
    first = int(wrong[0])
    return (len(wrong), first, str(wanted[first]), str(found[first]))


def counted(root="/sys"):
    """Traffic counters of this node.

    `counters`: bytes of every interface except loopback, as [sent, received]. `rdma`: for each
    RDMA device and port, its interface and its own counters. These are bytes on a NIC, whose RoCE
    frames bypass the interface's counters, and packets with Soft-RoCE, whose packets the interface
    counts as well; then the interface's packets are included.
    """
    return {"counters": interface_counters(root), "rdma": rdma_counters(root)}


def growth(now, before):
    """Difference of two values of `counted`, without keys that either lacks."""
    if isinstance(now, dict):
        return {key: growth(value, before[key]) for key, value in now.items() if key in before}
    if isinstance(now, list):
        return [left - right for left, right in zip(now, before)]
    return now


def interface_counters(root="/sys", what="bytes"):
    """[sent, received] of every interface except loopback."""
    counters = {}
    for interface in sorted(pathlib.Path(root, "class/net").iterdir()):
        statistics = interface / "statistics"
        try:
            if interface.name != "lo":
                ways = [number(statistics / f"{way}_{what}") for way in ("tx", "rx")]
                counters[interface.name] = ways
        except OSError:
            continue  # no statistics, or the interface is gone
    return counters


def rdma_counters(root="/sys"):
    """Counters of each RDMA port: words of four bytes, or packets with Soft-RoCE."""
    counters = {}
    packets = interface_counters(root, "packets")
    for port in sorted(pathlib.Path(root, "class/infiniband").glob("*/ports/*")):
        name = interface_behind(port)
        entry = {"interface": name}
        try:
            words = [number(port / f"counters/port_{way}_data") for way in ("xmit", "rcv")]
            entry.update(bytes=[4 * count for count in words], retries=retries(port))
        except OSError:
            try:
                names = ("sent_pkts", "rcvd_pkts")
                entry["packets"] = [number(port / "hw_counters" / name) for name in names]
            except OSError:
                continue  # the port has no counters
            if name in packets:
                entry["interface_packets"] = packets[name]
        counters[f"{port.parents[1].name}:{port.name}"] = entry
    return counters


def resent(descriptors="/proc/self/fd"):
    """Retransmissions of this process's TCP connections, by own and peer's address: [lost segments,
    segments with data]. A segment that the peer received twice (DSACK) was late, not lost."""
    found = {}
    for entry in list(pathlib.Path(descriptors).iterdir()):
        try:
            with socket.socket(fileno=os.dup(int(entry.name))) as one:
                if one.family != socket.AF_INET or one.type != socket.SOCK_STREAM:
                    continue
                ends = f"{one.getsockname()[0]} {one.getpeername()[0]}"
                info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_LENGTH)
        except (OSError, ValueError):
            continue  # not a socket, a listening one, or closed
        if len(info) < TCP_INFO_LENGTH:
            continue  # before Linux 5.0
        again, sent, late = (
            struct.unpack_from("=I", info, place)[0]
            for place in (TOTAL_RETRANS, DATA_SEGS_OUT, DSACK_DUPS)
        )
        counted = found.setdefault(ends, [0, 0])
        counted[0] += max(0, again - late)
        counted[1] += sent
    return found


def by_end(everyone):
    """Retransmissions between each interface and all others, by host: the one that loses packets
    has the largest share, in either direction. Connections inside a host are excluded."""
    places = {}
    for one in everyone:
        places.update({address: (one["host"], name) for name, address in one["addresses"].items()})
    found = {}
    for one in everyone:
        for pair, counted in one["resent"].items():
            ends = [places.get(address) for address in pair.split()]
            if None in ends or ends[0][0] == ends[1][0]:
                continue
            for host, name in ends:
                entry = found.setdefault(host, {}).setdefault(name, [0, 0])
                entry[0] += counted[0]
                entry[1] += counted[1]
    return found


def addresses():
    """IPv4 address of each interface."""
    import fcntl

    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        for _index, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(one, 0x8915, request)  # SIOCGIFADDR
            except OSError:
                continue  # it has no address
            found[name] = socket.inet_ntoa(answer[20:24])
    found.pop("lo", None)
    return found


def retries(port):
    """[packets sent, and each counter of RETRIES] of an RDMA port; 0 for a missing counter."""
    found = []
    for name in ("counters/port_xmit_packets", *(f"hw_counters/{name}" for name in RETRIES)):
        try:
            found.append(number(port / name))
        except (OSError, ValueError):
            found.append(0)
    return found


def interface_behind(port):
    """Interface of an RDMA port, from its GIDs; unused GIDs return an error."""
    for entry in sorted((port / "gid_attrs/ndevs").glob("*"), key=lambda path: int(path.name)):
        try:
            return entry.read_text(encoding="ascii").strip()
        except OSError:
            continue
    return ""


def number(path):
    return int(path.read_text(encoding="ascii"))


def topology(root="/"):
    """CPUs of the node by NUMA node, CPUs that mpirun's daemon may use, and the NUMA node of each
    GPU in PCI order and of each interface, as far as the kernel knows them."""
    top = pathlib.Path(root)

    def numa(device):
        try:
            return max(-1, number(device / "numa_node"))
        except (OSError, ValueError):
            return -1

    try:
        status = (top / f"proc/{os.getppid()}/status").read_text("utf-8", "replace")
        allowed = re.search(r"^Cpus_allowed_list:\s*(\S+)", status, re.MULTILINE)[1]
    except OSError:  # a daemon of another user, which /proc hides
        allowed = (top / "sys/devices/system/cpu/online").read_text(encoding="ascii").strip()
    gpus = sorted(path.name for path in (top / "proc/driver/nvidia/gpus").glob("*"))
    return {
        "numa": {
            path.parent.name[len("node") :]: path.read_text(encoding="ascii").strip()
            for path in sorted((top / "sys/devices/system/node").glob("node[0-9]*/cpulist"))
        },
        "allowed": allowed,
        "gpus": [numa(top / "sys/bus/pci/devices" / name) for name in gpus],
        "interfaces": {
            path.parent.name: numa(path) for path in (top / "sys/class/net").glob("*/device")
        },
        "container": (top / "run/systemd/container").exists(),
    }


def cpus():
    """CPUs of this rank in the kernel's list format: `0-13,112-125`."""
    ranges = []
    for cpu in sorted(os.sched_getaffinity(0)):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(f"{a}-{b}" if a < b else str(a) for a, b in ranges)


def lanes(log):
    """UCX's report of the lanes of its endpoints, without duplicate lines."""
    lines = (line for line in log.splitlines() if re.search(r"INFO.*(ep_cfg\[|cfg#).*\(", line))
    return list(dict.fromkeys(line.split("INFO", 1)[1].strip() for line in lines))


UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def length(text):
    """Parse a size of UCX's tables: `8246`, `256K`, `inf`."""
    if text == "inf":
        return float("inf")
    return int(text.rstrip("KMG")) * UNITS.get(text[-1], 1)


def protocols(log, size):
    """How UCX transfers `size` bytes of GPU memory between nodes, from its tables (UCX_PROTO_INFO):
    operation, description and devices without duplicates. The heading of a table names the endpoint
    (`inter-node cfg#2`) and the operation, in one row or in two."""
    found = []
    between, operation = False, ""
    for line in log.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        span = re.fullmatch(r"(\d+[KMG]?)(?:\.\.(\d+[KMG]?|inf))?", cells[0]) if cells else None
        if span is None:
            if "cfg#" in "".join(cells):
                between = "inter-node" in cells[0]
            if len(cells) in (1, 2):
                operation = cells[-1]
        elif between and "cuda" in operation and len(cells) == 3:
            row = [operation, *cells[1:]]
            if length(span[1]) <= size <= length(span[2] or span[1]) and row not in found:
                found.append(row)
    return found


class HostMemory:
    put = get = staticmethod(lambda array: array)


class GpuMemory:
    """Buffers on the GPU of this rank. Uses the CUDA driver only, so no package is required."""

    def __init__(self, numpy, number):
        import ctypes

        self.numpy, self.ctypes = numpy, ctypes
        # GPU k is the k-th on the PCI bus, as in nvidia-smi and in the model.
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        self.cuda = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuInit", ctypes.c_uint(0))
        self.call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(number))
        # The context that UCX and NCCL use as well.
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name, *arguments):
        code = getattr(self.cuda, name)(*arguments)
        if code:
            raise RuntimeError(f"{name} failed with CUDA error {code}")

    def put(self, array):
        address = self.ctypes.c_uint64()
        size = self.ctypes.c_size_t(array.nbytes)
        self.call("cuMemAlloc_v2", self.ctypes.byref(address), size)
        buffer = GpuBuffer(self, address, array)
        self.call("cuMemcpyHtoD_v2", address, self.ctypes.c_void_p(array.ctypes.data), size)
        return buffer

    def get(self, buffer):
        array = self.numpy.empty(buffer.shape, buffer.dtype)
        size = self.ctypes.c_size_t(array.nbytes)
        target = self.ctypes.c_void_p(array.ctypes.data)
        self.call("cuMemcpyDtoH_v2", target, buffer.address, size)
        return array


class GpuBuffer:
    """Array interface of CUDA, version 3, which mpi4py accepts."""

    def __init__(self, memory, address, like):
        self.memory, self.address = memory, address
        self.shape, self.dtype, self.nbytes = like.shape, like.dtype, like.nbytes
        self.__cuda_array_interface__ = {
            "shape": like.shape,
            "typestr": like.dtype.str,
            "data": (address.value, False),
            "strides": None,
            "version": 3,
        }

    def __del__(self):
        self.memory.cuda.cuMemFree_v2(self.address)


class UcxLog:
    """UCX writes its log to an unnamed file in memory, which needs no clean-up."""

    def __init__(self, tables=False):
        self.handle = os.memfd_create("ucx-log", 0)
        os.environ["UCX_LOG_LEVEL"] = "info"
        if tables:
            os.environ["UCX_PROTO_INFO"] = "y"
        os.environ["UCX_LOG_FILE"] = f"/proc/self/fd/{self.handle}"

    def text(self):
        import ctypes

        ctypes.CDLL(None).fflush(None)
        size = os.fstat(self.handle).st_size
        return os.pread(self.handle, size, 0).decode("utf-8", "replace")


class Report:
    """Standard output of rank 0. The standard output of the other ranks is closed."""

    def __init__(self):
        self.stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def write(self, kind, **values):
        self.stream.write(MARK + json.dumps({"kind": kind, **values}) + "\n")
        self.stream.flush()


LOCAL_RANK = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")


def variable(*names):
    """The first variable that is set, of Open MPI, Intel MPI or Slurm."""
    return next((os.environ[name] for name in names if name in os.environ), "?")


def host_name():
    return socket.gethostname()


def run(spec, report, ucx_log):
    import numpy

    memory = HostMemory()
    if spec.get("gpu"):  # before MPI starts, which checks for a GPU context
        memory = GpuMemory(numpy, int(variable(*LOCAL_RANK)))
    import mpi4py
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    rank, ranks, host = world.Get_rank(), world.Get_size(), host_name()
    local = world.Split_type(MPI.COMM_TYPE_SHARED)
    # One rank of each node: each must send, over its own rail, with any algorithm.
    alike = world.Split(local.Get_rank(), rank)
    operations = {name: getattr(MPI, name) for name in OPERATIONS}

    def show(kind, **values):
        if rank == 0:
            report.write(kind, **values)

    library = MPI.Get_library_version().split(",")[0].strip()
    versions = {"library": library, "mpi4py": mpi4py.__version__, "numpy": numpy.__version__}
    show("start", ranks=ranks, **versions)
    wrong_here = []
    wrong_count = 0
    volume = 0

    def check(found, wanted, **where):
        nonlocal wrong_count
        problem = verify(numpy, found, wanted)
        if problem is None:
            return
        wrong_count += 1
        if len(wrong_here) < WRONG_SHOWN:
            what = dict(zip(("elements", "first", "wanted", "found"), problem))
            wrong_here.append({**where, **what, "rank": rank, "host": host})

    def exact(kind, operation, placement, count, among=world):
        """Run one allreduce and compare it byte by byte. The send buffer must be unchanged."""
        size, place = among.Get_size(), among.Get_rank()
        mine = spread(numpy, inputs_by_phase(numpy, kind, operation, size, place), kind, count)
        wanted = spread(numpy, expected_by_phase(numpy, kind, operation, size), kind, count)
        where = {"type": kind, "operation": operation, "placement": placement}
        where["bytes"] = int(mine.nbytes)
        sent = memory.put(mine)
        if placement == "in_place":
            among.Allreduce(MPI.IN_PLACE, sent, operations[operation])
            check(memory.get(sent), wanted, **where)
        else:
            before = mine.copy()
            result = memory.put(numpy.full_like(mine, 77))
            among.Allreduce(sent, result, operations[operation])
            check(memory.get(result), wanted, **where)
            check(memory.get(sent), before, **{**where, "placement": "send_buffer"})
        return int(mine.nbytes)

    def pass_on(count, among):
        """Send the buffer of each rank to the next one: UCX transfers GPU memory here, whereas MPI
        may stage the buffers of an allreduce through the host."""
        size, place = among.Get_size(), among.Get_rank()

        def buffer(of_rank):
            by_phase = inputs_by_phase(numpy, "float32", "SUM", size, of_rank)
            return spread(numpy, by_phase, "float32", count)

        result = memory.put(numpy.zeros(count, "float32"))
        source = (place - 1) % size
        among.Sendrecv(memory.put(buffer(place)), (place + 1) % size, recvbuf=result, source=source)
        where = {"type": "float32", "operation": "SENDRECV", "placement": "out_of_place"}
        check(memory.get(result), buffer(source), bytes=4 * count, **where)

    # Connect first, so that counters and times below do not include connection setup.
    exact("float32", "SUM", "out_of_place", 1)
    exact("float32", "SUM", "in_place", max(1, max(spec["sizes"], default=4) // 4))
    world.Barrier()
    before = counted() if local.Get_rank() == 0 else None
    world.Barrier()
    began = time.perf_counter()

    every = combinations()
    place = 0
    for size in spec["sizes"]:
        tested = []
        for _unused in range(min(spec["combinations"] or len(every), len(every))):
            kind, operation, placement = every[place % len(every)]
            place += 1
            count = max(1, size // numpy.dtype(kind).itemsize)
            if placement == "in_place" and count > 8:
                count -= 1  # an odd count: segments of different lengths
            volume += exact(kind, operation, placement, count)
            tested.append([kind, operation, placement])

        count = max(1, size // 4)
        iterations = spec["iterations"] if size <= spec["large"] else spec["iterations_large"]
        by_phase = inputs_by_phase(numpy, "float32", "SUM", ranks, rank)
        mine = spread(numpy, by_phase, "float32", count)
        sent, result = memory.put(mine), memory.put(numpy.empty_like(mine))
        for _unused in range(spec["warmup"]):
            world.Allreduce(sent, result, MPI.SUM)
        times = numpy.empty(iterations)
        world.Barrier()
        for number in range(iterations):
            begin = time.perf_counter()
            world.Allreduce(sent, result, MPI.SUM)
            times[number] = time.perf_counter() - begin
        world.Barrier()  # otherwise the checks of fast ranks slow down the last iteration of others
        volume += int(mine.nbytes) * (iterations + spec["warmup"])
        wanted = spread(numpy, expected_by_phase(numpy, "float32", "SUM", ranks), "float32", count)
        where = {"type": "float32", "operation": "SUM", "placement": "timed"}
        check(memory.get(result), wanted, bytes=int(mine.nbytes), **where)
        # An allreduce is complete when its last rank has the result.
        world.Allreduce(MPI.IN_PLACE, times, MPI.MAX)
        times_us = [round(float(value) * 1e6, 2) for value in times]
        show("size", bytes=int(mine.nbytes), times_us=times_us, tested=tested)

    world.Barrier()
    window_s = time.perf_counter() - began
    moved = rails = None
    if before is not None:
        after = counted()
        moved = growth(after, before)
    largest = max(spec["sizes"], default=4)
    if spec.get("gpu"):
        pass_on(largest // 4, alike)
    if spec["rail_bytes"]:
        world.Barrier()
        exact("float32", "SUM", "out_of_place", spec["rail_bytes"] // 4, alike)
        world.Barrier()
        if before is not None:
            rails = growth(counted(), after)
    mine = {
        "host": host,
        "devices": os.environ.get("UCX_NET_DEVICES", ""),
        "lanes": lanes(ucx_log.text()),
        "protocols": protocols(ucx_log.text(), largest) if spec.get("gpu") else [],
        "counted": moved,
        "rails": rails,
        "resent": resent(),
        "addresses": addresses() if local.Get_rank() == 0 else {},
        "cpus": cpus(),  # now, because an MPI may bind ranks when it starts
        "topology": topology() if local.Get_rank() == 0 else None,
        "wrong": wrong_here,
        "wrong_count": wrong_count,
    }
    everyone = world.gather(mine)
    if rank == 0:
        summarise(everyone, volume, window_s, report)
    world.Barrier()


def summarise(everyone, volume, window_s, report):
    """Group the reports of ranks by host and line, so that the report grows with the number of
    nodes."""
    hosts = {}
    texts = {}
    ways = {}
    again = by_end(everyone)
    for rank, one in enumerate(everyone):
        nothing = {"ranks": [], "devices": [], "cpus": [], "counters": {}, "rdma": {}}
        entry = hosts.setdefault(one["host"], nothing)
        entry["ranks"].append(rank)
        entry["devices"].append(one["devices"])
        entry["cpus"].append(one["cpus"])
        if one["topology"] is not None:
            entry["topology"] = one["topology"]
        if one["counted"] is not None:
            entry.update(one["counted"])
        if one["rails"] is not None:
            report.write("rails", name=one["host"], **one["rails"])
        for text in one["lanes"]:
            texts.setdefault(text, []).append(rank)
        for row in one["protocols"]:
            ways.setdefault(tuple(row), []).append(rank)
        for problem in one["wrong"]:
            report.write("wrong", **problem)
    for name, entry in hosts.items():
        report.write("host", name=name, resent=again.get(name, {}), **entry)
    for text, ranks in texts.items():
        report.write("lane", text=text, ranks=ranks)
    for (operation, how, over), ranks in ways.items():
        report.write("protocol", operation=operation, how=how, over=over, ranks=ranks)
    report.write(
        "end",
        volume_bytes=volume,
        window_s=round(window_s, 3),
        wrong_results=sum(one["wrong_count"] for one in everyone),
        silent_ranks=[rank for rank, one in enumerate(everyone) if not one["lanes"]],
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run-id", required=True, help="by which this run's processes are known")
    parser.add_argument("--spec", required=True, type=json.loads, help="what to do, as JSON")
    arguments = parser.parse_args()
    # The default action of SIGALRM terminates the process anywhere, also inside MPI.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(int(arguments.spec["time_limit_s"]))
    report = Report()
    try:
        run(arguments.spec, report, UcxLog(tables=bool(arguments.spec.get("gpu"))))
    except Exception as error:
        rank = variable("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
        text = str(error) or type(error).__name__
        print(f"allreduce: rank {rank} on {host_name()}: {text}", file=sys.stderr, flush=True)
        os._exit(1)  # not sys.exit: MPI_Finalize would wait for the other ranks


if __name__ == "__main__":
    main()
