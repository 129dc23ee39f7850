#!/usr/bin/python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Bandwidth and latency of pairs of nodes over one rail, in rounds.

mpirun starts one process per node, in the order of --nodes. In a round, a node is in one pair at a
time, and all pairs measure simultaneously: latency, then bandwidth from the first node to the
second and, with --both, back.

Rounds start at fixed times, counted from the end of MPI_Init, which synchronizes ranks over the
management network (PMIx). No collective operation runs over the rail: a pair without an answer
gives up at the end of its round, and affects no other pair. Each node prints a figure when it has
it, so that the figures of a job that is stopped are kept.

Output: lines `pairs-figure ROUND SENDER RECEIVER GBITS_S LATENCY_US ERROR`, with positions in
--nodes, and `-` for a missing value.
"""

import argparse
import os
import pathlib
import socket
import statistics
import sys
import time

MARK = "pairs-figure "
WINDOW = 64
"""Maximum number of messages in flight."""
SHARE = 8
"""A window takes at most this part of the time of the bandwidth: slower rails get fewer
messages."""
PINGS, UNTIMED = 200, 20
START_S = 1.0
"""Seconds after MPI_Init at which the first round starts."""
PINGED, FORTH, BACK, BANDWIDTH = 0.3, 0.6, 0.9, 0.2
"""Shares of a round: ends of latency, of the first direction and of the second one, and the time
for which the bandwidth of a direction is measured. Nothing is sent during the rest."""
END_S = 2.0
"""Seconds for mpirun to read the last lines of a process that does not finalize MPI."""
KINDS = HELLO, PING, DATA, ANSWER = range(4)
ROUNDS_TAGGED = 4000
"""MPI guarantees tags up to 32767 (MPI 4.1, MPI_TAG_UB)."""


NO_ANSWER, TOO_SLOW = "no answer within the round", "too slow for a round"
WRONG_BYTES = "wrong bytes arrived"


class SilentError(Exception):
    """The peer did not answer within the round."""


def device_of(rail, root="/sys"):
    """RDMA device and port behind an interface, as `mlx5_3:1`; empty if there is none."""
    for port in sorted(pathlib.Path(root, "class/infiniband").glob("*/ports/*")):
        for entry in sorted((port / "gid_attrs/ndevs").glob("*")):
            try:
                name = entry.read_text(encoding="ascii").strip()
            except OSError:
                continue  # an unused GID
            if name == rail:
                return f"{port.parents[1].name}:{port.name}"
    return ""


def bind(rail, environment, queue_pairs=1, root="/sys"):
    """Restrict this process to a rail: the variables to change. The environment of the node decides
    between RDMA and TCP. With RDMA, an endpoint has several queue pairs, over which UCX splits
    messages (openucx/ucx, src/uct/ib/base/ib_iface.c, NUM_PATHS)."""
    if not pathlib.Path(root, "class/net", rail).exists():
        raise RuntimeError(f"no interface {rail}")
    device, words = rail, environment.get("UCX_TLS", "").split(",")
    if not {"tcp", "all"}.intersection(words):
        device = device_of(rail, root)
        if not device:
            raise RuntimeError(f"no RDMA device behind {rail}")
    changed = {"UCX_NET_DEVICES": device, "UCX_MAX_EAGER_RAILS": "1"}
    changed["UCX_MAX_RNDV_RAILS"] = str(queue_pairs if device != rail else 1)
    if device != rail:
        changed["UCX_IB_NUM_PATHS"] = str(queue_pairs)
    by_rank = environment.get("MPI_ROCE_RAILS_BY_RANK", "").split()
    indexes = environment.get("MPI_ROCE_GID_INDEXES_BY_RANK", "").split()
    for rails, index in zip(by_rank, indexes):
        if device in rails.split(","):
            changed["UCX_IB_GID_INDEX"] = index
    if environment.get("FI_PROVIDER") == "tcp":
        changed["FI_TCP_IFACE"] = rail
    if environment.get("OMPI_MCA_pml") == "ob1":
        changed["OMPI_MCA_btl_tcp_if_include"] = rail
    return changed


def near(rail, root="/sys"):
    """CPUs of the NUMA node of a rail's NIC that this process may use; empty if unknown."""
    try:
        path = pathlib.Path(root, "class/net", rail, "device/local_cpulist")
        text = path.read_text(encoding="ascii").strip()
        ranges = [part.split("-") for part in text.split(",") if part]
        found = {cpu for part in ranges for cpu in range(int(part[0]), int(part[-1]) + 1)}
    except (OSError, ValueError):
        return set()
    return found & os.sched_getaffinity(0)


def pairs_of(text, nodes):
    """Pairs of one round, `0-5,1-4`. Raises RuntimeError if a node is in two of them."""
    pairs = [tuple(int(end) for end in pair.split("-")) for pair in text.split(",") if pair]
    ends = [end for pair in pairs for end in pair]
    if len(ends) != len(set(ends)) or any(len(pair) != 2 for pair in pairs):
        raise RuntimeError(f"{text[:80]}: a node is in two pairs of a round")
    if any(end >= nodes for end in ends):
        raise RuntimeError(f"{text[:80]}: there are {nodes} nodes")
    return pairs


class Pair:
    """One end of a pair during one round."""

    def __init__(self, MPI, numpy, world, number, peer, first):
        self.MPI, self.numpy, self.world = MPI, numpy, world
        self.here, self.peer, self.number, self.first = world.Get_rank(), peer, number, first
        self.deadline = 0.0
        self.left = []
        """Unfinished requests, whose buffers MPI still uses."""
        self.rate = 0.0
        """Gbit/s so far."""

    def tag(self, kind, way=0):
        return (self.number % ROUNDS_TAGGED * 2 + way) * len(KINDS) + kind

    def wait(self, requests):
        test, clock, deadline = self.MPI.Request.Testall, time.monotonic, self.deadline
        while not test(requests):
            if clock() > deadline:
                self.left.append(requests)
                raise SilentError
            os.sched_yield()

    def meet(self):
        """Both ends wait for each other."""
        out, back = bytearray(1), bytearray(1)
        tag, byte = self.tag(HELLO), self.MPI.BYTE
        requests = [self.world.Irecv([back, byte], self.peer, tag)]
        requests.append(self.world.Isend([out, byte], self.peer, tag))
        self.wait(requests)

    def latency_us(self):
        """Half of the median round trip of 8 bytes."""
        byte, tag = self.MPI.BYTE, self.tag(PING)
        send = self.world.Send_init([bytearray(8), byte], self.peer, tag)
        receive = self.world.Recv_init([bytearray(8), byte], self.peer, tag)
        order = ([send], [receive]) if self.first else ([receive], [send])
        times = []
        for _each in range(PINGS + UNTIMED):
            begin = time.perf_counter()
            for requests in order:
                requests[0].Start()
                self.wait(requests)
            times.append(time.perf_counter() - begin)
        send.Free()
        receive.Free()
        return statistics.median(times[UNTIMED:]) * 1e6 / 2

    def stream(self, sending, size, seconds):
        """Send to the peer, or receive. `rate` is that of the windows of the last size.

        The first byte of each message tells the receiver how many messages the next window has:
        twice as many, in the first half of the seconds and while a window takes at most its share
        of them; 0 after the last. A delay of one window therefore does not keep windows small.
        """
        way, peer = int(sending != self.first), self.peer
        tag, answered = self.tag(DATA, way), self.tag(ANSWER, way)
        make, back = self.world.Send_init, self.world.Recv_init
        # No rank sends 255, so bytes that do not arrive are wrong ones.
        buffer = self.numpy.full(size, self.here % 251 if sending else 255, "B")
        if not sending:
            make, back = back, make
        byte, start, clock = self.MPI.BYTE, self.MPI.Prequest.Startall, time.perf_counter
        messages = [make([buffer, byte], peer, tag) for _each in range(WINDOW)]
        answer = back([bytearray(1), byte], peer, answered)
        now, last, took, windows, following = 1, 1, 0.0, 0, 0
        zero = began = clock()
        while now:
            begin = clock()
            if sending:
                doubled = took / last * 2 * now
                following = now if begin - zero < seconds else 0
                if now < WINDOW and begin - zero < seconds / 2 and doubled * SHARE <= seconds:
                    following = 2 * now
                buffer[0] = following
            start(messages[:now])
            self.wait(messages[:now])
            start([answer])
            self.wait([answer])
            end = clock()
            took, last = end - begin, now
            if sending:
                windows += 1
                self.rate = windows * now * size * 8e-9 / (end - began)
                if following > now:
                    windows, began = 0, end
            else:
                following = int(buffer[0])
            now = following
        for request in [*messages, answer]:
            request.Free()
        return sending or bool((buffer[1:] == peer % 251).all())


def measure(pair, begin, arguments):
    """Measure a pair in a round that begins at `begin`, and print what this end knows."""
    latency, length = None, arguments.round_s
    sender = [pair.number, pair.here, pair.peer]
    met = False
    try:
        pair.deadline = begin + PINGED * length
        pair.meet()
        met = True
        latency = pair.latency_us()
    except SilentError:
        if not met:
            if pair.first or arguments.both:
                say(*sender, None, None, NO_ANSWER)
            return
    ways = [pair.first, not pair.first] if arguments.both else [pair.first]
    for sending, end in zip(ways, (FORTH, BACK)):
        pair.deadline = begin + (end if arguments.both else BACK) * length
        try:
            intact = pair.stream(sending, arguments.bytes, BANDWIDTH * length)
            if not intact:
                say(pair.number, pair.peer, pair.here, None, None, WRONG_BYTES)
        except SilentError:
            pass
        if sending:
            error = "" if pair.rate else TOO_SLOW
            say(*sender, pair.rate or None, latency if pair.first else None, error)


def say(number, sender, receiver, rate, latency, error=""):
    """In a single write: mpirun prefixes each piece that it reads, even in the middle of a line."""
    figures = ["-" if value is None else f"{value:.5g}" for value in (rate, latency)]
    line = f"{MARK}{number} {sender} {receiver} {' '.join(figures)} {error}"
    sys.stdout.write(line.rstrip() + "\n")
    sys.stdout.flush()


def run(arguments):
    nodes = arguments.nodes.split(",")
    rounds = [pairs_of(text, len(nodes)) for text in arguments.rounds]
    name = socket.gethostname().split(".")[0]
    far = {nodes[second] for pairs in rounds for _first, second in pairs}
    rail = arguments.second_rail if arguments.second_rail and name in far else arguments.rail
    os.environ.update(bind(rail, os.environ, arguments.queue_pairs))
    cpus = near(rail)
    if cpus:
        os.sched_setaffinity(0, cpus)
    import numpy
    from mpi4py import MPI

    zero = time.monotonic() + START_S
    world = MPI.COMM_WORLD
    here, ranks = world.Get_rank(), world.Get_size()
    if ranks != len(nodes) or name != nodes[here]:
        expected = ",".join(nodes[here : here + 1])
        raise RuntimeError(f"{name} is rank {here} of {ranks}, expected {expected}")
    left = []
    for number, pairs in enumerate(rounds):
        begin = zero + number * arguments.round_s
        for first, second in pairs:
            if here in (first, second):
                time.sleep(max(0.0, begin - time.monotonic()))
                peer = second if here == first else first
                pair = Pair(MPI, numpy, world, number, peer, here == first)
                measure(pair, begin, arguments)
                left += pair.left
    time.sleep(max(0.0, zero + len(rounds) * arguments.round_s - time.monotonic()))
    if left:
        time.sleep(END_S)
        os._exit(3)  # MPI_Finalize would wait for the peer


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rounds", nargs="+", help="pairs of a round: 0-5,1-4")
    parser.add_argument("--rail", required=True, help="interface of the rail")
    parser.add_argument("--second-rail", default="", help="that of the second nodes, if another")
    parser.add_argument("--nodes", required=True, help="host names in the order of ranks")
    parser.add_argument("--bytes", type=int, default=1 << 20, help="of a message")
    parser.add_argument("--round-s", type=float, default=1.0)
    parser.add_argument("--queue-pairs", type=int, default=1)
    parser.add_argument("--both", action="store_true", help="measure both directions")
    arguments = parser.parse_args()
    try:
        run(arguments)
    except Exception as error:
        text = str(error) or type(error).__name__
        print(f"pairs: {socket.gethostname()}: {text}", file=sys.stderr, flush=True)
        os._exit(1)  # not sys.exit: MPI_Finalize would wait for the other ranks


if __name__ == "__main__":
    main()
