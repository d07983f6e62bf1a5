"""Input and output values of the tuner of the input. Pure values."""

from __future__ import annotations

from typing import Literal

import msgspec

from elastichost.wire.facts import Cache, InputKnobs

__all__ = ["InputDecision", "InputLook", "InputTotals", "InputTunerSettings"]


class InputTunerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The properties of a job that its input depends on.

    fixed: knobs that the job file fixes, by name. cores: of all workers. batch_size: samples of a batch. sample_bytes:
    bytes of the arrays of a sample. unit_samples: samples of the largest unit; 0: data is not decoded by units.
    is_fetched: the bytes of a unit are requested as a whole, before it is decoded. window_s: shortest time of a
    measurement. min_gain: gain in speed for which knobs are changed. caches: those that may be switched on. samples: of
    all training data."""

    cores: int
    batch_size: int
    sample_bytes: float
    unit_samples: int = 0
    is_fetched: bool = False
    fixed: dict[str, int] = {}
    window_s: float = 1.5
    min_gain: float = 0.04
    caches: tuple[Cache, ...] = ()
    samples: int = 0


QUANTILES = ("request_p50_s", "request_p90_s", "request_p99_s")


class InputTotals(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sums over all workers since the sample before. Times are seconds of threads or connections.

    request_p50_s, request_p90_s, request_p99_s: quantiles of the time of a request, the largest over all workers.
    unit_bytes: what the largest unit is charged with when it is decoded ahead; 0: no unit was decoded yet."""

    samples: int = 0
    seconds: float = 0.0  # of workers: two workers have two in a second
    training_cpu_s: float = 0.0
    source_cpu_s: float = 0.0
    source_s: float = 0.0
    first_byte_s: float = 0.0
    source_bytes: int = 0
    requests: int = 0
    decode_cpu_s: float = 0.0
    decode_other_s: float = 0.0
    prepare_cpu_s: float = 0.0
    prepare_other_s: float = 0.0
    empty_s: float = 0.0  # workers waited for a batch
    request_p50_s: float = 0.0
    request_p90_s: float = 0.0
    request_p99_s: float = 0.0
    unit_bytes: int = 0

    def __add__(self, other: InputTotals) -> InputTotals:
        """Both at the same time, of other workers."""
        pairs = [(name, getattr(self, name), getattr(other, name)) for name in self.__struct_fields__]
        largest = (*QUANTILES, "unit_bytes")
        return InputTotals(**{name: max(a, b) if name in largest else a + b for name, a, b in pairs})

    def then(self, later: InputTotals) -> InputTotals:
        """Both, one after the other. Quantiles are the later ones, which are of more requests: the largest of all would
        be those of a moment in which few had been answered."""
        source = later if later.request_p50_s > 0 else self
        return msgspec.structs.replace(self + later, **{name: getattr(source, name) for name in QUANTILES})

    @property
    def wait_share(self) -> float:
        """Share of the workers' time in which they waited for a batch, 0 to 1."""
        return min(1.0, self.empty_s / self.seconds) if self.seconds > 0 else 0.0


class InputLook(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The input of a run at one time.

    knobs: those that all workers have; None while they differ or workers change. is_steady: the run only trains.
    totals: since the look before. memory_bytes: bytes that one worker may hold ahead. cache_bytes: bytes of decoded
    units that all workers together may keep in memory."""

    at_s: float
    knobs: InputKnobs | None
    is_steady: bool
    workers: int
    totals: InputTotals
    memory_bytes: int
    cache_bytes: int = 0


Kind = Literal["tune", "probe", "return", "shrink", "settle", "measure", "cache"]


class InputDecision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A decision about the input.

    kind: "tune": to the knobs that the model predicts to be best; "probe": some connections more, because the model
    predicts no gain and workers still wait for the source; "return": to the knobs before, because the last change was
    none for the better; "shrink": less memory; "settle": nothing changes; "measure": the source became slower,
    so the input is measured and tuned anew; "cache": what is read is kept from now on, because workers wait although
    other knobs were tried. samples_per_s: measured with the knobs
    before. expected: predicted for `knobs`; 0.0: no prediction. wait_share: of the workers, waiting for batches.
    limit: what bounds the predicted speed."""

    kind: Kind
    knobs: InputKnobs
    samples_per_s: float = 0.0
    expected: float = 0.0
    wait_share: float = 0.0
    limit: str = ""
