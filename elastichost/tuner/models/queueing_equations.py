"""The equations of the `elastichost` model: the time of an iteration as a function of the configuration. Pure.

Symbols (times in seconds per iteration of one worker):

    w, p        workers, PS
    cw, cp      cores of each worker, of each PS
    m           samples that one worker computes in an iteration; in sync mode the batch / w
    s           load share of the busiest PS, 0 to 1
    H           cores of a shared host; 0: each process has its own cores
    bytes       bytes of an iteration between a worker and all PS, both directions; bandwidth in bytes/s
    a0, a1      computing: seconds per iteration, core-seconds per sample; useful_cores: cores that a worker can use
    r           reader: seconds per sample
    request_s, u   core-seconds of a PS per request, and of all PS per sample
    q, z        share of S that overlaps with computing; part of the overlapping share that is sequential

Equations:

    C = a0 + a1 m / min(cw, useful_cores)                   computing; with a separate reader pipeline max(C, r m)
    hot = request_s + u m s                                 core-seconds of the busiest PS for one iteration of a worker
    wire = bytes s / bandwidth                              time on the link of the busiest PS, both directions. Where
                                                            the hosts are known, bytes are those that leave a host, and
                                                            s is the share of the busiest link (`link_traffic`)
    S = hot + wire + latency                                round trip to the busiest PS without queues
    L = max(C, q z S) + (1 - q) S                           the worker's own time. Pulls and pushes may overlap each
                                                            other, so only the part z of the overlap is sequential
    T = max(L, w hot / cp, w wire / 2)                      async: worker, cores of the PS, one direction of its link
    T = C + S + max(b (w - cp) hot / cp, (w - 1) wire / 2)  sync: all workers send at once, the last one waits for all
          + step_s                                          others (b: part of that wait); each PS ends the step once

    samples/s = w m / T

Maxima are smooth: (sum of x^g)^(1/g) with a fitted sharpness g.

- Where workers wait for each other (sync, bounded), C is multiplied by 1 + k (w^x - 1) / x. This is the growth of the
  largest of w values (generalised extreme value distribution: x < 0 for short tails, x > 0 for rare stragglers).
- On a shared host computing is multiplied by 1 + mu n, where n threads run and share the memory.
- On a shared host all PS together use few cores, so the part `packed` of their work is sequential for any number of PS.
- On a shared host T is multiplied by load^(1 + o), load = max(1, w E / (T H)): required cores / existing cores. E:
  CPU-seconds of an iteration. The sharpness `sharing` of this maximum is fitted too, because processes share a core
  before all cores are busy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.tuner.facts import ConfigurationArray, Workload
from elastichost.tuner.models.link_traffic import link_traffic
from elastichost.tuner.models.posynomial import Quantity, Tape, largest

__all__ = ["LOGITS", "Columns", "ParameterBelief", "Predicted", "natural", "parameter_beliefs", "predicted"]

Floats = npt.NDArray[np.float64]

CORNER = 6.0  # sharpness of maxima that do not model waiting
SHARPNESS = (1.0, 10.0)
CHAIN = (0.3, 1.0)
TAIL = (-0.4, 0.8)
SHARING = (1.0, 8.0)
PACKED = (0.0, 1.0)
LOGITS: Mapping[str, tuple[float, float]] = {  # parameters that are held by their logit, with their bounds
    "overlap": (0.0, 1.0),
    "chain": CHAIN,
    "sharpness": SHARPNESS,
    "straggler_tail": TAIL,
    "sharing": SHARING,
    "packed": PACKED,
}


class ParameterBelief(msgspec.Struct, frozen=True):
    """The prior of one parameter: mean and standard deviation of its logarithm or logit."""

    name: str
    mean: float
    sd: float


def parameter_beliefs(
    workload: Workload, scale_s: float, *, reads: bool, is_guess: bool
) -> tuple[ParameterBelief, ...]:
    """Returns the parameters of a job with default guesses. Times are guessed as shares of an iteration of `scale_s`
    seconds, with errors of a factor of 50 (wider if is_guess: scale_s itself is a guess). reads: the job has a reader
    pipeline whose time is measured."""
    wide = 4.0 if is_guess else 2.0
    per_sample = math.log(scale_s / workload.batch_size)
    found = [
        ParameterBelief("serial_s", math.log(0.1 * scale_s), wide),  # a0
        ParameterBelief("sample_s", math.log(0.5) + per_sample, wide),  # a1
        ParameterBelief("useful_cores", math.log(12.0), 1.0),
        ParameterBelief("server_sample_s", math.log(0.1) + per_sample, wide),  # u
        ParameterBelief("request_s", math.log(0.003 * scale_s), wide),
        ParameterBelief("latency_s", math.log(0.02 * scale_s), wide),
        ParameterBelief("sharpness", 1.0, 1.0),  # g about 7.6
    ]
    if workload.mode == "sync":
        found.append(ParameterBelief("burst", -0.3, 0.5))  # b
        found.append(ParameterBelief("step_s", math.log(0.003 * scale_s), wide))
    else:
        found += [ParameterBelief("overlap", 1.0, 1.5), ParameterBelief("chain", 0.0, 1.0)]  # q, z
    if workload.mode != "async":
        found += [
            ParameterBelief("stragglers", math.log(0.1), 1.0),
            ParameterBelief("straggler_tail", 0.0, 1.0),
        ]  # k, x
    if reads:
        found.append(ParameterBelief("reader_sample_s", math.log(0.1) + per_sample, wide))  # r
    if workload.bandwidth_bytes_per_s > 0:
        known = workload.row_bytes > 0 or workload.dense_bytes > 0
        unknown = math.log(0.1 * scale_s * workload.bandwidth_bytes_per_s / workload.batch_size)
        # a row that a batch contains twice is moved once, so somewhat less than all rows are moved
        found.append(ParameterBelief("moved_share", math.log(0.7) if known else unknown, 0.7 if known else wide))
        found.append(ParameterBelief("link_speed", 0.0, 0.2))
    if workload.host_cores > 0:
        found += [
            ParameterBelief("memory_contention", math.log(0.03), 1.5),  # mu
            ParameterBelief("oversubscription", math.log(0.15), 0.7),  # o: 0.1 to 0.25 in seven recorded jobs
            ParameterBelief("cpu_ratio", math.log(0.9), 0.25),
            ParameterBelief("thread_loss", math.log(0.1), 1.5),
            ParameterBelief("sharing", 0.0, 1.0),  # sharpness of the load
            ParameterBelief("packed", _packed(workload.host_cores), 1.5),
        ]
    return tuple(found)


def _packed(cores: int) -> float:
    """Logit of the default guess of `packed`: all PS together use about two cores of the host."""
    share = min(0.7, max(0.05, 2.0 / cores))
    return math.log(share / (1.0 - share))


def natural(name: str, held: float) -> float:
    """Converts the logarithm or logit of the parameter `name` to its value."""
    if name not in LOGITS:
        return math.exp(min(held, 700.0))
    low, high = LOGITS[name]
    return low + (high - low) / (1.0 + math.exp(-max(-700.0, min(700.0, held))))


class Columns:
    """The inputs of the equations for n configurations, as logarithms; float64 [n] each."""

    __slots__ = ("logs", "rows", "workload")

    def __init__(self, configurations: ConfigurationArray, shares: Floats, workload: Workload) -> None:
        """configurations: float64 [n, 4]. shares: float64 [n], load share of the busiest PS."""
        workers, servers, worker_cores, server_cores = configurations.T
        batch = workload.batch_size / (workers if workload.mode == "sync" else np.ones_like(workers))
        moved = 2.0 * (workload.row_bytes * batch + workload.dense_bytes)
        if workload.row_bytes == 0 and workload.dense_bytes == 0:
            moved = batch
        through = on_trip = shares
        if workload.host_capacity:
            each_way = link_traffic(
                configurations, workload.host_capacity, workload.row_bytes * batch, workload.dense_bytes
            )
            moved, through, on_trip = 2.0 * each_way.moved_bytes, each_way.link_share, np.ones_like(shares)
        values = {
            "w": workers,
            "p": servers,
            "cw": worker_cores,
            "m": batch,
            "s": shares,
            "bytes": moved,
            "1-1/cw": 1.0 - 1.0 / worker_cores,
            "w/cp": workers / server_cores,
            "wire of trip": on_trip,
            "link/2": through / 2.0,
        }
        if workload.mode == "sync":
            values |= {"others/cp": np.maximum(0.0, workers - server_cores) / server_cores, "others": workers - 1.0}
        self.logs = {name: np.log(np.maximum(column, 1e-300)) for name, column in values.items()}
        self.rows, self.workload = len(configurations), workload


class Predicted(NamedTuple):
    """The predicted quantities of n configurations; None: the job does not have this part. Times are seconds per
    iteration of one worker; in sync mode `server_cpu_s` is that of a whole step."""

    samples_per_s: Quantity
    compute_s: Quantity
    reader_s: Quantity | None
    exchange_s: Quantity
    server_cpu_s: Quantity
    cpu_s: Quantity | None
    bytes_moved: Quantity | None
    hot_s: Quantity  # core-seconds of the busiest PS
    wire_s: Quantity | None  # of the bytes on one link, both directions


def predicted(
    tape: Tape, leaves: Mapping[str, Quantity], columns: Columns, fixed_sharpness: float | None = None
) -> Predicted:
    """Evaluates the equations of the module docstring. leaves: the parameters of `parameter_beliefs`. fixed_sharpness:
    g, if it is not one of the leaves."""
    return _Equations(tape, leaves, columns, fixed_sharpness).all()


class _Equations:
    """The equations of the module docstring for one tape, one set of parameters and n configurations."""

    def __init__(
        self, tape: Tape, leaves: Mapping[str, Quantity], columns: Columns, fixed_sharpness: float | None
    ) -> None:
        self.tape, self.leaves, self.workload = tape, leaves, columns.workload
        self.columns = {name: Quantity.known(tape, log) for name, log in columns.logs.items()}
        self.one, self.corner = tape.constant(1.0), tape.constant(CORNER)
        if fixed_sharpness is None:
            self.sharpness = tape.between(leaves["sharpness"], *SHARPNESS)
        else:
            self.sharpness = tape.constant(fixed_sharpness)

    def largest(self, *terms: Quantity) -> Quantity:
        return largest(terms, self.sharpness) if len(terms) > 1 else terms[0]

    def all(self) -> Predicted:
        leaves, columns = self.leaves, self.columns
        is_sync = self.workload.mode == "sync"
        server = leaves["server_sample_s"] * columns["m"]
        server_cpu = leaves["request_s"] * columns["p"] + server
        reader = leaves["reader_sample_s"] * columns["m"] if "reader_sample_s" in leaves else None
        compute, worker_cpu = self.computing()
        hot = leaves["request_s"] + server * columns["s"]
        hot = self.in_line(hot, server_cpu)
        moved, wire = self.moving()
        trip = hot + leaves["latency_s"] if wire is None else hot + leaves["latency_s"] + wire * columns["wire of trip"]
        busy = self.uneven(compute)
        if reader is not None:
            busy = self.largest(busy, reader)
        if is_sync:
            waiting = self.burst(hot, wire)
            seconds, exchange = busy + trip + waiting, trip + waiting * self.tape.constant(0.5)
            finishing = leaves["step_s"] * columns["p"]
            seconds = seconds + self.in_line(leaves["step_s"], finishing)
            server_cpu = server_cpu + finishing / columns["w"]
        else:
            seconds, exchange = self.overlapping(busy, trip, hot, wire), trip
        cpu = None
        if worker_cpu is not None:
            cpu = worker_cpu + server_cpu
            if reader is not None:
                cpu = cpu + leaves["cpu_ratio"] * reader
            seconds, slower, more = self.oversubscribed(seconds, cpu)
            compute, cpu = compute * slower, cpu * more
        return Predicted(
            samples_per_s=columns["w"] * columns["m"] / seconds,
            compute_s=compute,
            reader_s=reader,
            exchange_s=exchange,
            server_cpu_s=server_cpu * columns["w"] if is_sync else server_cpu,
            cpu_s=cpu,
            bytes_moved=moved,
            hot_s=hot,
            wire_s=wire,
        )

    def computing(self) -> tuple[Quantity, Quantity | None]:
        """Returns C, and on a shared host the CPU-seconds of computing, including spinning threads:

            n = min(cw, useful_cores)
            C = a0 + a1 m (1 / n + loss (1 - 1 / cw))
            CPU = cpu_ratio (a0 + a1 m (1 + loss (1 - 1 / cw) n))

        loss: `thread_loss`; one thread loses nothing, and with loss > 1 two threads are slower than one, as measured
        where other processes use the cores. Both C and CPU are multiplied by 1 + mu min(w CPU / C, H), because memory
        accesses of all running threads slow each other down.
        """
        leaves, one = self.leaves, self.one
        work = leaves["sample_s"] * self.columns["m"]
        per_core = largest([one / self.columns["cw"], one / leaves["useful_cores"]], self.corner)
        compute = leaves["serial_s"] + work * per_core
        if self.workload.host_cores == 0:
            return compute, None
        lost = work * leaves["thread_loss"] * self.columns["1-1/cw"]
        compute = compute + lost
        cpu = leaves["cpu_ratio"] * (leaves["serial_s"] + work + lost / per_core)
        host = self.tape.constant(1.0 / self.workload.host_cores)
        running = one / largest([compute / (cpu * self.columns["w"]), host], self.corner)
        contended = one + leaves["memory_contention"] * running
        return compute * contended, cpu * contended

    def in_line(self, each: Quantity, together: Quantity) -> Quantity:
        """Core-seconds that an iteration waits for at the PS. each: work of the busiest PS; together: work of all PS.
        On a shared host it is (1 - packed) each + packed together."""
        if "packed" not in self.leaves:
            return each
        packed, apart = self.tape.share(self.leaves["packed"])
        return apart * each + packed * together

    def moving(self) -> tuple[Quantity | None, Quantity | None]:
        """Bytes of an iteration of one worker, and the seconds that they take on one link, both directions."""
        if "moved_share" not in self.leaves:
            return None, None
        moved = self.leaves["moved_share"] * self.columns["bytes"]
        bandwidth = self.tape.constant(self.workload.bandwidth_bytes_per_s)
        return moved, moved / (bandwidth * self.leaves["link_speed"])

    def uneven(self, compute: Quantity) -> Quantity:
        """The computing time of the slowest of w workers: C (1 + k (w^x - 1) / x)."""
        if "stragglers" not in self.leaves:
            return compute
        grown = _grown(self.tape, self.leaves["straggler_tail"], self.columns["w"].log)
        return compute * (self.one + self.leaves["stragglers"] * grown)

    def overlapping(self, busy: Quantity, trip: Quantity, hot: Quantity, wire: Quantity | None) -> Quantity:
        """T in async and bounded mode: max(max(C, q z S) + (1 - q) S, w hot / cp, w wire / 2)."""
        beside, alone = self.tape.share(self.leaves["overlap"])
        chain = self.tape.between(self.leaves["chain"], *CHAIN)
        own = self.largest(busy, beside * chain * trip) + alone * trip
        if wire is None:
            return self.largest(own, hot * self.columns["w/cp"])
        return self.largest(own, hot * self.columns["w/cp"], wire * self.columns["link/2"] * self.columns["w"])

    def burst(self, hot: Quantity, wire: Quantity | None) -> Quantity:
        """Seconds that the last of w workers waits for the others in sync mode: max(b (w - cp) hot / cp,
        (w - 1) wire / 2). Pulls queue, and gradients then arrive spread over time; so a worker waits only for one of
        the two: for the part b of hot, and for one direction of the wire."""
        at_server = hot * self.columns["others/cp"] * self.leaves["burst"]
        if wire is None:
            return at_server
        return self.largest(at_server, wire * self.columns["link/2"] * self.columns["others"])

    def oversubscribed(self, seconds: Quantity, cpu: Quantity) -> tuple[Quantity, Quantity, Quantity]:
        """Returns T load^(1 + o), the factor load^(1 + o) of computing time, and the factor load^o of CPU time, with
        load = max(1, w E / (T H))."""
        demand = cpu * self.columns["w"] / (seconds * self.tape.constant(self.workload.host_cores))
        load = largest([self.one, demand], self.tape.between(self.leaves["sharing"], *SHARING))
        exponent = self.leaves["oversubscription"]
        o = float(np.exp(exponent.log))
        more = self.tape.node(load.log * o, ((load, o), (exponent, load.log * o)))
        slower = load * more
        return seconds * slower, slower, more


def _grown(tape: Tape, logit: Quantity, log_workers: Floats | np.float64) -> Quantity:
    """(w^x - 1) / x, which is log w for x = 0. Its derivative d / d x is (w^x log w - (w^x - 1) / x) / x."""
    low, high = TAIL
    share = 1.0 / (1.0 + math.exp(-float(logit.log)))
    x = low + (high - low) * share
    if abs(x) < 1e-5:
        grown, slope = log_workers, 0.5 * log_workers**2
    else:
        grown = np.expm1(x * log_workers) / x
        slope = (np.exp(x * log_workers) * log_workers - grown) / x
    safe = np.maximum(grown, 1e-300)
    weight = slope / safe * (high - low) * share * (1.0 - share)
    return tape.node(np.log(safe), ((logit, np.where(grown > 0.0, weight, 0.0)),))
