#!/usr/bin/python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Latency and bandwidth of MPI by mpi4py, as defined by the OSU micro-benchmarks.

mpirun starts one process per rank. Definitions (OSU 7.4, c/mpi/pt2pt/standard and
c/mpi/collective/blocking): messages of 1, 2, 4, ... bytes; bandwidth over a window of 64 messages,
answered by one byte; MB/s are 10^6 bytes per second; the latency of a collective is the mean over
all ranks, which wait for each other between calls. Allreduce uses MPI_FLOAT.

A window consists of persistent requests, which one call starts: with 64 calls of Isend the figures
would include the interpreter.

The output has OSU's format, a table for each benchmark and pair, with the pair on a separate line.
Other ranks sleep meanwhile.
"""

import argparse
import functools
import os
import socket
import sys
import time

TITLES = {
    "latency": ("Latency", "Latency (us)"),
    "bw": ("Bandwidth", "Bandwidth (MB/s)"),
    "bibw": ("Bi-Directional Bandwidth", "Bandwidth (MB/s)"),
    "allreduce": ("Allreduce Latency", "Avg Latency(us)"),
    "alltoall": ("All-to-All Personalized Exchange Latency", "Avg Latency(us)"),
}
COLLECTIVES = ("allreduce", "alltoall")
LOOPS = {"latency": (10000, 100, 1000, 10), "bw": (100, 10, 20, 2), "bibw": (100, 10, 20, 2)}
"""Timed and untimed iterations of small messages, and of large ones."""
COLLECTIVE_LOOPS = (1000, 100, 100, 10)
LARGE = 8192
"""Bytes above which messages are large."""
WINDOW = 64
MEMORY = 512 << 20
"""Maximum buffer size of a rank: larger messages of alltoall are omitted."""
NAP_S = 0.002


def sizes(smallest, largest, ranks=1):
    """1, 2, 4, ... bytes within the limits."""
    found = [1 << bit for bit in range(largest.bit_length())]
    return [size for size in found if size >= smallest and size * ranks <= MEMORY]


def loops(benchmark, size, given):
    """Timed and untimed iterations of a size."""
    counts = LOOPS.get(benchmark, COLLECTIVE_LOOPS)[2 * (size > LARGE) :][:2]
    return (given, max(1, given // 10)) if given else counts


# Loops. Each returns this rank's seconds for `count` iterations after `skip` untimed ones. Work
# that is common to all iterations is done before the loop, because Python's time counts in the
# figures.


def latency(MPI, pair, out, back, count, skip):
    send, receive, first = pair.Send, pair.Recv, pair.Get_rank() == 0
    for number in range(count + skip):
        if number == skip:
            begin = MPI.Wtime()
        if first:
            send(out, 1, 1)
            receive(back, 1, 1)
        else:
            receive(back, 0, 1)
            send(out, 0, 1)
    return MPI.Wtime() - begin


def bw(MPI, pair, out, back, count, skip):
    first, peer = pair.Get_rank() == 0, 1 - pair.Get_rank()
    make, message, answer = pair.Recv_init, back, pair.Send
    if first:
        make, message, answer = pair.Send_init, out, pair.Recv
    requests = [make(message, peer, 100) for _each in range(WINDOW)]
    start_all, wait_all, one = MPI.Prequest.Startall, MPI.Request.Waitall, [bytearray(1), MPI.BYTE]
    for number in range(count + skip):
        if number == skip:
            begin = MPI.Wtime()
        start_all(requests)
        wait_all(requests)
        answer(one, peer, 101)
    return ended(MPI, begin, requests)


def bibw(MPI, pair, out, back, count, skip):
    here, peer, window = pair.Get_rank(), 1 - pair.Get_rank(), range(WINDOW)
    received = [pair.Recv_init(back, peer, 101 - here) for _each in window]
    sent = [pair.Send_init(out, peer, 100 + here) for _each in window]
    start_all, wait_all = MPI.Prequest.Startall, MPI.Request.Waitall
    for number in range(count + skip):
        if number == skip:
            begin = MPI.Wtime()
        start_all(received)
        start_all(sent)
        wait_all(sent)
        wait_all(received)
    return ended(MPI, begin, received + sent)


def ended(MPI, begin, requests):
    seconds = MPI.Wtime() - begin
    for request in requests:
        request.Free()
    return seconds


def collective(name, MPI, world, out, back, count, skip):
    total, clock, together, call = 0.0, MPI.Wtime, world.Barrier, getattr(world, name)
    for number in range(count + skip):
        begin = clock()
        call(out, back)
        end = clock()
        together()
        if number >= skip:
            total += end - begin
    return total


def messages(MPI, numpy, benchmark, among, size):
    """Send buffer and receive buffer of a rank, and the expected result."""
    here, ranks = among.Get_rank(), among.Get_size()
    if benchmark == "allreduce":
        out, back = numpy.ones(size // 4, "f"), numpy.zeros(size // 4, "f")
        return [out, MPI.FLOAT], [back, MPI.FLOAT], numpy.full_like(out, ranks)
    many = ranks if benchmark == "alltoall" else 1
    out, back = numpy.full(size * many, here % 251, "B"), numpy.full(size * many, 255, "B")
    if many > 1:
        return [out, MPI.BYTE], [back, MPI.BYTE], numpy.repeat(numpy.arange(ranks) % 251, size)
    wanted = back.copy() if benchmark == "bw" and here == 0 else numpy.full_like(back, 1 - here)
    return [out, MPI.BYTE], [back, MPI.BYTE], wanted


def figure(benchmark, size, seconds, count):
    """Microseconds of a message or collective, or MB/s."""
    if benchmark not in ("bw", "bibw"):
        return seconds * 1e6 / count / (2 if benchmark == "latency" else 1)
    return size / 1e6 * count * WINDOW * (2 if benchmark == "bibw" else 1) / seconds


def measure(MPI, numpy, benchmark, among, size, iterations):
    """Figure of one size: of the first rank, or the mean over all ranks of a collective."""
    out, back, wanted = messages(MPI, numpy, benchmark, among, size)
    count, skip = loops(benchmark, size, iterations)
    among.Barrier()
    seconds = RUN[benchmark](MPI, among, out, back, count, skip)
    if not (back[0] == wanted).all():
        raise RuntimeError(f"{benchmark} of {size} bytes: wrong bytes arrived")
    found = figure(benchmark, size, seconds, count)
    return among.allreduce(found) / among.Get_size() if benchmark in COLLECTIVES else found


RUN = {
    **{each.__name__: each for each in (latency, bw, bibw)},
    **{name: functools.partial(collective, name.capitalize()) for name in COLLECTIVES},
}


def say(line):
    """In a single write: mpirun prefixes each piece that it reads, even in the middle of a line."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def wait(request):
    """Sleep until a nonblocking barrier completes: ranks that wait in MPI occupy their cores."""
    while not request.Test():
        time.sleep(NAP_S)


def ranks_by_place(world):
    """Rank by `node01:0`, the name of its host and its local rank."""
    host = socket.gethostname().split(".")[0]
    hosts, found = {}, {}
    for rank, name in enumerate(world.allgather(host)):
        found[f"{name}:{hosts.setdefault(name, 0)}"] = rank
        hosts[name] += 1
    return found


def run(arguments):
    import numpy
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    here = world.Get_rank()
    places = ranks_by_place(world)
    pairs = [pair.split(",") for pair in arguments.pairs]
    unknown = sorted({place for pair in pairs for place in pair} - set(places))
    if unknown:
        raise RuntimeError(f"no rank at {unknown[0]}; there are {' '.join(sorted(places))}")

    def sweep(benchmark, among, where):
        title, column = TITLES[benchmark]
        first = among.Get_rank() == 0
        if first:
            say("")
            say(f"# OSU MPI {title} Test by mpi4py")
            say(f"# {where}")
            say(f"{'# Size':<10}{column:>20}")
        smallest = max(arguments.min_bytes, 4 if benchmark == "allreduce" else 1)
        parts = among.Get_size() if benchmark == "alltoall" else 1
        for size in sizes(smallest, arguments.max_bytes, parts):
            found = measure(MPI, numpy, benchmark, among, size, arguments.iterations)
            if first:
                say(f"{size:<10}{found:>20.2f}")

    for benchmark in arguments.benchmarks:
        if benchmark in COLLECTIVES:
            sweep(benchmark, world, f"Ranks: {world.Get_size()}")
            continue
        for pair in pairs:
            ranks = [places[place] for place in pair]
            if here in ranks:
                between = world.Create_group(world.Get_group().Incl(ranks))
                sweep(benchmark, between, f"Pair: {' - '.join(pair)}")
                between.Free()
            wait(world.Ibarrier())
    wait(world.Ibarrier())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("benchmarks", nargs="+", choices=list(TITLES))
    parser.add_argument("--pairs", nargs="*", default=[], help="node01:0,node02:0: rank 0 of each")
    parser.add_argument("--min-bytes", type=int, default=1)
    parser.add_argument("--max-bytes", type=int, default=1 << 22)
    parser.add_argument("--iterations", type=int, default=0, help="of each size; 0 for OSU's")
    arguments = parser.parse_args()
    try:
        run(arguments)
    except Exception as error:
        text = str(error) or type(error).__name__
        print(f"sweep: {socket.gethostname()}: {text}", file=sys.stderr, flush=True)
        os._exit(1)  # not sys.exit: MPI_Finalize would wait for the other ranks


if __name__ == "__main__":
    main()
