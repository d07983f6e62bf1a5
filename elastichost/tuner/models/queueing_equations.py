"""The form of the `elastichost` model: what a second of training is made of, as equations of a configuration. Pure.

Symbols: w workers, p PS, cw and cp cores of each, m samples that one worker computes in an iteration (sync: m / w), s
load share of the busiest PS, H cores of a shared host (0: processes have cores of their own).

    C = a0 + a1 m / min(cw, useful_cores)                   computing; with a reader as its own pipeline max(C, r m)
    hot = request_s + u m s                                 core-seconds of the busiest PS for one iteration of a worker
    wire = bytes s / bandwidth                              of its link, both directions; where hosts are known, all
                                                            bytes that leave one, and s what of them goes through the
                                                            busiest link (`link_traffic`)
    S = hot + wire + latency                                the way to the busiest PS and back, nobody else there
    L = max(C, q z S) + (1 - q) S                           q: share of S that goes on beside computing; what overlaps
                                                            may overlap itself (pulls and pushes): z of it is in line
    T = max(L, w hot / cp, w wire / 2)                      async: the worker, the PS' cores, one direction of its link
    T = C + S + max(b (w - cp) hot / cp, (w - 1) wire / 2)  sync: all ask at once, the last one waits for all others;
          + step_s                                          and each PS finishes the step once, for all workers

and samples/s = w m / T. Maxima are smooth: (sum of x^g)^(1/g). Where some wait for others (sync, bounded) C grows by
1 + k (w^x - 1) / x, the growth of the largest of w values (generalised extreme values: x < 0 for short tails, 0 < x for
rare stragglers). On a shared host computing is slower by 1 + mu n where n threads run and share the memory, PS have few
cores together, so that `packed` of their work is in line however many they are, and T grows by load^(1 + o),
load = max(1, w E / (T H)) the cores wanted over those there are, E the CPU-seconds of an iteration. That maximum's
sharpness, `sharing`, is fitted: processes meet on a core before all cores are busy.
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

CORNER = 6.0  # sharpness of maxima that have nothing to do with waiting
SHARPNESS = (1.0, 10.0)
CHAIN = (0.3, 1.0)
TAIL = (-0.4, 0.8)
SHARING = (1.0, 8.0)
PACKED = (0.0, 1.0)
LOGITS: Mapping[str, tuple[float, float]] = {  # parameters held by their logit, within these bounds
    "overlap": (0.0, 1.0),
    "chain": CHAIN,
    "sharpness": SHARPNESS,
    "straggler_tail": TAIL,
    "sharing": SHARING,
    "packed": PACKED,
}


class ParameterBelief(msgspec.Struct, frozen=True):
    """Of one parameter before anything is measured: mean and standard deviation of its logarithm, or logit."""

    name: str
    mean: float
    sd: float


def parameter_beliefs(
    workload: Workload, scale_s: float, *, reads: bool, is_guess: bool
) -> tuple[ParameterBelief, ...]:
    """The parameters of such a job. Times are guessed as shares of an iteration of `scale_s`; wide enough for a factor
    of 50 either way, and wider when the scale itself is a guess. reads: input is a pipeline that takes time."""
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
        # rows that a batch names twice move once: somewhat less than all of them
        found.append(ParameterBelief("moved_share", math.log(0.7) if known else unknown, 0.7 if known else wide))
        found.append(ParameterBelief("link_speed", 0.0, 0.2))
    if workload.host_cores > 0:
        found += [
            ParameterBelief("memory_contention", math.log(0.03), 1.5),  # mu
            ParameterBelief("oversubscription", math.log(0.15), 0.7),  # o: 0.1 to 0.25 in seven recorded jobs
            ParameterBelief("cpu_ratio", math.log(0.9), 0.25),
            ParameterBelief("thread_loss", math.log(0.1), 1.5),
            ParameterBelief("sharing", 0.0, 1.0),  # g of load
            ParameterBelief("packed", _packed(workload.host_cores), 1.5),
        ]
    return tuple(found)


def _packed(cores: int) -> float:
    """Logit of a guess: PS have a core or two of a host's."""
    share = min(0.7, max(0.05, 2.0 / cores))
    return math.log(share / (1.0 - share))


def natural(name: str, held: float) -> float:
    """The value of a parameter that is held by its logarithm or logit."""
    if name not in LOGITS:
        return math.exp(min(held, 700.0))
    low, high = LOGITS[name]
    return low + (high - low) / (1.0 + math.exp(-max(-700.0, min(700.0, held))))


class Columns:
    """What the equations take from n configurations, by logarithm; float64 [n]."""

    __slots__ = ("logs", "rows", "workload")

    def __init__(self, configurations: ConfigurationArray, shares: Floats, workload: Workload) -> None:
        """configurations: float64 [n, 4]; shares: float64 [n] load share of the busiest PS."""
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
    """Of the same n configurations; None: not a part of this job. Seconds of an iteration of one worker, but
    `server_cpu_s`, which in sync mode is of a whole step."""

    samples_per_s: Quantity
    compute_s: Quantity
    reader_s: Quantity | None
    exchange_s: Quantity
    server_cpu_s: Quantity
    cpu_s: Quantity | None
    bytes_moved: Quantity | None


def predicted(
    tape: Tape, leaves: Mapping[str, Quantity], columns: Columns, fixed_sharpness: float | None = None
) -> Predicted:
    """The equations above. leaves: the parameters of `parameter_beliefs`; fixed_sharpness: g, where it is not among
    them."""
    return _Equations(tape, leaves, columns, fixed_sharpness).all()


class _Equations:
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
        )

    def computing(self) -> tuple[Quantity, Quantity | None]:
        """C, and on a shared host its CPU-seconds, threads that wait for each other included:

        n = min(cw, useful_cores); C = a0 + a1 m (1 / n + loss (1 - 1 / cw)); CPU = a0 + a1 m (1 + loss (1 - 1 / cw) n).
        One thread loses nothing, and with loss > 1 two are slower than one, as they are where others use the cores too.
        Both grow by 1 + mu min(w CPU / C, H): of all that runs at once, how much more memory time each has.
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
        """What the busiest PS has to do; on a shared host a part of all PS' work is done in turn."""
        if "packed" not in self.leaves:
            return each
        packed, apart = self.tape.share(self.leaves["packed"])
        return apart * each + packed * together

    def moving(self) -> tuple[Quantity | None, Quantity | None]:
        """Bytes of an iteration of one worker, and the seconds they would take on one link, there and back."""
        if "moved_share" not in self.leaves:
            return None, None
        moved = self.leaves["moved_share"] * self.columns["bytes"]
        bandwidth = self.tape.constant(self.workload.bandwidth_bytes_per_s)
        return moved, moved / (bandwidth * self.leaves["link_speed"])

    def uneven(self, compute: Quantity) -> Quantity:
        """The slowest of w workers: C (1 + k (w^x - 1) / x)."""
        if "stragglers" not in self.leaves:
            return compute
        grown = _grown(self.tape, self.leaves["straggler_tail"], self.columns["w"].log)
        return compute * (self.one + self.leaves["stragglers"] * grown)

    def overlapping(self, busy: Quantity, trip: Quantity, hot: Quantity, wire: Quantity | None) -> Quantity:
        """T in async and bounded mode."""
        beside, alone = self.tape.share(self.leaves["overlap"])
        chain = self.tape.between(self.leaves["chain"], *CHAIN)
        own = self.largest(busy, beside * chain * trip) + alone * trip
        if wire is None:
            return self.largest(own, hot * self.columns["w/cp"])
        return self.largest(own, hot * self.columns["w/cp"], wire * self.columns["link/2"] * self.columns["w"])

    def burst(self, hot: Quantity, wire: Quantity | None) -> Quantity:
        """What the last of w workers waits for the others. Pulls come one after the other and so do the computed
        gradients, so it waits for one of both only: `burst` of hot, and one direction of the wire."""
        at_server = hot * self.columns["others/cp"] * self.leaves["burst"]
        if wire is None:
            return at_server
        return self.largest(at_server, wire * self.columns["link/2"] * self.columns["others"])

    def oversubscribed(self, seconds: Quantity, cpu: Quantity) -> tuple[Quantity, Quantity, Quantity]:
        """T load^(1 + o), and the factors by which computing and its CPU time grow: load^(1 + o), load^o."""
        demand = cpu * self.columns["w"] / (seconds * self.tape.constant(self.workload.host_cores))
        load = largest([self.one, demand], self.tape.between(self.leaves["sharing"], *SHARING))
        exponent = self.leaves["oversubscription"]
        o = float(np.exp(exponent.log))
        more = self.tape.node(load.log * o, ((load, o), (exponent, load.log * o)))
        slower = load * more
        return seconds * slower, slower, more


def _grown(tape: Tape, logit: Quantity, log_workers: Floats | np.float64) -> Quantity:
    """(w^x - 1) / x, log w for x = 0; d / d x = (w^x log w - (w^x - 1) / x) / x."""
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
