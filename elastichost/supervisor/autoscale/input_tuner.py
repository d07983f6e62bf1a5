"""The tuner of the input in a live run: lets `tuner.input` decide twice a second, and sends the knobs to the
workers."""

from __future__ import annotations

from collections.abc import Mapping

from elastichost.config.job import JobSpec
from elastichost.datasets.files import is_url
from elastichost.datasets.remote import remote_rate
from elastichost.datasets.sources.settings import cache_bytes, first_knobs, fixed_knobs
from elastichost.metrics import InputStatus
from elastichost.plan import ProcessId
from elastichost.runs.events import InputTuned, TunerFailed
from elastichost.runs.events.text import text_of
from elastichost.supervisor.autoscale.input_counter import InputCounter, stages_of
from elastichost.supervisor.components import Components
from elastichost.supervisor.context import RunContext
from elastichost.supervisor.controllers.plan_change import PlanChangeController
from elastichost.supervisor.startup.preflight import Preparation
from elastichost.tuner.input.decide import InputState, decide, holds_workers, is_tuning
from elastichost.tuner.input.facts import InputDecision, InputLook, InputTunerSettings
from elastichost.tuner.records import InputLooked, InputOpened
from elastichost.wire.control import InputKnobsMsg
from elastichost.wire.facts import Cache, InputKnobs

__all__ = ["InputTuner", "input_settings"]

EVERY_S = 0.5
WORTH_TELLING = 0.08  # share of the time in which workers wait for batches
FILE_FORMATS = ("parquet", "csv", "criteo_tsv")
KEY_BYTES = 12.0  # of a column with one id in each sample: the id and its count
SHARE_OF_FREE = 0.5  # of the memory that is left, for what is read ahead, and again for what is kept
LESS_AT_ONCE, MUCH_MORE = 0.9, 1.25  # when the bound of what is kept falls, and when it is raised


class InputTuner:
    """The knobs of all workers of a run. With `tuner.mode` "watch" or "propose" it only reports, with "off" it only
    tells new workers the knobs of the job file."""

    def __init__(
        self, run: RunContext, prepared: Preparation, components: Components, changes: PlanChangeController
    ) -> None:
        self._run, self._components, self._changes = run, components, changes
        self.settings, self.state = input_settings(run, prepared), InputState()
        self._budget_bytes = prepared.memory_bytes
        self._share = run.job.data.input.memory_share
        self._first = self.knobs = first_knobs(run.job.data.input)
        self._told: dict[ProcessId, tuple[InputKnobs, int]] = {}
        self._cache_bytes, self._most_cache_bytes = 0, cache_bytes(run.job.data.input)
        self._counter = InputCounter(run.fleet)
        self._next_s = 0.0
        self._reported: InputKnobs | None = None
        self._is_remote = remote_rate(run.job) is not None or self.settings.is_fetched
        self._is_on = run.job.tuner.mode != "off" and not run.job.emulate.enabled
        if self._is_on:
            run.recorder.write(InputOpened(self.settings))

    def most_workers(self, present: int) -> int | None:
        """The largest number of workers that the input allows; None: any number. While the source bounds the speed it
        is the present number, because connections do what further workers could do. For a source that is waited for
        it is the number of cores: more workers than cores would pay only where workers wait for input."""
        if not self.tunes_connections:
            return None
        if holds_workers(self.state):
            return max(1, present)
        return max(1, present, self.settings.cores) if self._is_remote else None

    @property
    def tunes_connections(self) -> bool:
        """Whether the number of connections follows the source."""
        return self._acts and "connections" not in self.settings.fixed

    @property
    def is_tuning(self) -> bool:
        """Whether the knobs may change at any time."""
        return self._acts and is_tuning(self.state)

    @property
    def _acts(self) -> bool:
        return self._is_on and self._run.job.tuner.mode == "act"

    def look(self, private: Mapping[int, int], now_s: float, *, is_steady: bool) -> None:
        """Tells new workers the knobs, and twice a second lets the knobs be decided. Call it every turn. private: pid
        -> private bytes, of each process of this machine."""
        if self._run.job.emulate.enabled:
            return
        self._tell()
        if now_s < self._next_s:
            return
        self._next_s = now_s + EVERY_S
        workers = self._run.fleet.working("worker")
        cached_bytes = self._components.cached_bytes()
        left = self._left_bytes(private, cached_bytes)
        cache_bytes = self._bound_cache(cached_bytes, left)
        self._run.input = self._status(cached_bytes)
        totals = self._counter.take()
        if not self._is_on or not workers:
            return
        look = InputLook(
            at_s=now_s,
            knobs=self.knobs if self._changes.is_settled else None,
            is_steady=is_steady,
            workers=len(workers),
            totals=totals,
            memory_bytes=self._memory_bytes(left, len(workers)),
            cache_bytes=cache_bytes,
        )
        try:
            self.state, decision = decide(self.state, look, self.settings)
        except Exception as error:  # noqa: BLE001 - a bug of the tuner must not end a run that trains
            self._is_on = False
            self._run.note(TunerFailed(type(error).__name__, str(error)))
            return
        self._run.recorder.write(InputLooked(look, decision))
        if decision is not None:
            self._follow(decision)

    def _follow(self, decision: InputDecision) -> None:
        is_as_ever = decision.kind == "settle" and decision.knobs == self._first and self._reported is None
        if is_as_ever and decision.wait_share < WORTH_TELLING:
            return  # most jobs: workers never wait for input
        only_watches = not self._acts
        if only_watches and self._reported == decision.knobs:
            return  # it decides the same again, because nothing changes
        self._reported = decision.knobs
        event = InputTuned(decision, only_watches=only_watches)
        with self._run.caused_by(self._run.new_cause("input")):
            self._run.note(event)
            if only_watches:
                return
            self._run.last_decision = text_of(event)
            self.knobs = decision.knobs
            self._tell()

    def _tell(self) -> None:
        """Sends the knobs to the workers that do not have them. A new worker begins with those of the job file."""
        workers = [record.process for record in self._run.fleet.working("worker")]
        self._told = {process: self._told.get(process, (self._first, 0)) for process in workers}
        wanted = (self.knobs, self._cache_bytes if self.knobs.cache == "memory" else 0)
        for process, told in self._told.items():
            if told != wanted and self._run.send(process, InputKnobsMsg(*wanted)):
                self._told[process] = wanted

    def _left_bytes(self, private: Mapping[int, int], cached_bytes: int) -> int:
        components = self._components
        used = components.arena_bytes() + components.copies_bytes() + cached_bytes + sum(private.values())
        return self._budget_bytes - used

    def _memory_bytes(self, left: int, workers: int) -> int:
        """Bytes that one worker may hold ahead: within its share of `resources.memory`, and of what is left of it."""
        held = workers * self.knobs.prefetch_bytes
        return max(0, int(min(self._share * self._budget_bytes, SHARE_OF_FREE * (held + left)))) // workers

    def _bound_cache(self, cached_bytes: int, left: int) -> int:
        """Bytes of decoded units that all workers may keep: half of what is left without them. What the workers were
        told changes only where it has to, or by much."""
        most = max(0, int(SHARE_OF_FREE * (cached_bytes + left)))
        bound = min(most, self._most_cache_bytes or most)
        if bound < self._cache_bytes:
            self._cache_bytes = int(LESS_AT_ONCE * bound)
        elif bound > MUCH_MORE * self._cache_bytes:
            self._cache_bytes = bound
        return self._cache_bytes

    def _status(self, cached_bytes: int) -> InputStatus:
        knobs = self.knobs
        stages = stages_of(self._run.fleet.working("worker"))
        return InputStatus(
            connections=knobs.connections,
            decode_threads=knobs.decode_threads,
            prefetch_batches=knobs.prefetch_batches,
            prefetch_bytes=knobs.prefetch_bytes,
            range_bytes=knobs.range_bytes,
            cache=knobs.cache,
            cached_bytes=cached_bytes,
            stages=stages,
        )


def input_settings(run: RunContext, prepared: Preparation) -> InputTunerSettings:
    """The properties of the job that its input depends on."""
    job, train = run.job, prepared.train
    is_file = job.data.format in FILE_FORMATS
    is_fetched = any(is_url(path) for path in train.files)
    return InputTunerSettings(
        cores=run.all_cores(len(prepared.cores)),
        batch_size=job.train.batch_size,
        sample_bytes=4.0 * (train.num_dense + train.num_labels) + KEY_BYTES * len(job.data.categorical),
        unit_samples=max((unit.samples for unit in train.units), default=0) if is_file else 0,
        is_fetched=is_fetched,
        fixed=fixed_knobs(job.data.input),
        caches=_caches(job, is_fetched=is_fetched) if is_file else (),
        samples=train.samples,
    )


def _caches(job: JobSpec, *, is_fetched: bool) -> tuple[Cache, ...]:
    """The caches that may be switched on: none where the job file fixes one, or where no data is read twice."""
    if job.data.input.cache != "auto" or job.train.epochs == 1 or remote_rate(job) is not None:
        return ()
    return ("disk", "memory") if is_fetched else ("memory",)
