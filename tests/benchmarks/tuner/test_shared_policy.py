"""One policy: the simulator's adapter has no number of its own, calls the functions of live runs, and decides what a
live run decided on the same views."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from benchmarks.simulator.cluster.jobs import DEFAULT_LIMITS
from benchmarks.simulator.cluster.views import ClusterView, HostView, JobFacts, JobView, MemorySample, ServerLoads
from benchmarks.simulator.policies import elastichost_memory, elastichost_policy
from benchmarks.simulator.policies.elastichost_policy import ElastichostPolicy, PolicyParts
from benchmarks.tuner.shared_policy import is_policy_shared, shared_functions
from elastichost.dispatcher.core.demands import Examined, HostPower, Known, MemoryOfSize
from elastichost.dispatcher.core.entries import JobEntry
from elastichost.dispatcher.core.interference_control import job_view
from elastichost.history.features import JobFeatures
from elastichost.metrics import PlanStatus, ProposedPlan, RunStatus
from elastichost.runs.decisions import read_records
from elastichost.tuner.cluster import facts as cluster
from elastichost.tuner.cluster.decide import decide
from elastichost.tuner.cluster.proposals import Proposal, next_proposal
from elastichost.tuner.colocation.facts import HostCapacity, PlacedJob, Placement
from elastichost.tuner.colocation.ledger import HostLedger
from elastichost.tuner.facts import Configuration, Observation
from elastichost.tuner.policy.decision import TunerSettings, TunerState
from elastichost.tuner.policy.policy import absorb, advance
from elastichost.tuner.records import TunerLooked, TunerOpened
from tests.dispatcher.jobs import request, seen

ADAPTERS = [Path(module.__file__ or "") for module in (elastichost_policy, elastichost_memory)]
TRACES = sorted((Path(__file__).parents[2] / "traces").glob("*.jsonl"))
NEUTRAL = {0, 1, -1}  # nothing, one, the last


@pytest.mark.parametrize("path", ADAPTERS, ids=lambda path: path.stem)
def test_the_adapter_of_the_simulator_has_no_thresholds(path: Path) -> None:
    numbers = [
        node.value
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool)
    ]
    assert set(numbers) <= NEUTRAL


@pytest.mark.parametrize("purpose", shared_functions())
def test_the_simulator_calls_the_function_of_a_live_run(purpose: str) -> None:
    live, simulated = shared_functions()[purpose]
    assert live is simulated


def test_the_policy_is_shared() -> None:
    assert is_policy_shared()


class Recorded(ElastichostPolicy):
    """The adapter with the settings of a recorded run, and the state that the run's tuner had."""

    def __init__(self, recorded: TunerSettings) -> None:
        super().__init__(PolicyParts(warm_start=False, health=False, hot_servers=False))
        self._recorded = recorded

    def settings(self, *_: object, **__: object) -> TunerSettings:  # type: ignore[override]
        return self._recorded

    def become(self, job: JobView, state: TunerState) -> None:
        """Takes the state over, before the last block of the job."""
        own = self._jobs.setdefault(0, self._begun(job, DEFAULT_LIMITS))
        own.tuner, own.blocks, own.proposal = state, len(job.observations) - 1, None

    def state(self) -> tuple[TunerState, Proposal | None]:
        return self._jobs[0].tuner, self._jobs[0].proposal

    def seen(self, job: JobView) -> cluster.JobView:
        """The job as the adapter shows it to `decide`."""
        return self._seen(job, DEFAULT_LIMITS)


class History(msgspec.Struct, frozen=True):
    observations: Sequence[Observation]

    @property
    def memory(self) -> Sequence[MemorySample]:
        return [MemorySample(one.at_s, 1.0 + number, 1e9) for number, one in enumerate(self.observations)]

    @property
    def slowest(self) -> Sequence[float]:
        return [1.0] * len(self.observations)

    @property
    def loads(self) -> Sequence[ServerLoads]:
        return ()


def view_of(settings: TunerSettings, blocks: Sequence[Observation], left: int, now_s: float) -> ClusterView:
    running = blocks[-1].configuration
    facts = JobFacts(
        job=0,
        features=JobFeatures("recorded"),
        workload=settings.workload,
        request=running,
        requested_memory_bytes=10**10,
        share_cores=64,
        worker_bytes=10**8,
        server_bytes=10**8,
        arrived_s=0.0,
    )
    job = JobView(facts, History(tuple(blocks)), running, 10**10, 0.0, now_s, float(left), False, 0, 0)
    return ClusterView(now_s, "tick", (job,), (), (HostView(64, 2**40, 64, 2**40),), DEFAULT_LIMITS)


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_recorded_views_give_the_decisions_of_the_live_run(path: Path) -> None:
    """Every complete block of a recorded run goes to the policy as the run called it, and through the adapter."""
    records = list(read_records(path))
    settings = next(record.settings for record in records if isinstance(record, TunerOpened))
    adapter, state, blocks, compared, decided = Recorded(settings), TunerState(), list[Observation](), 0, 0
    for record in records:
        if not isinstance(record, TunerLooked):
            continue
        profiled, block, _ = absorb(state, record.look, settings)
        before = msgspec.structs.replace(state, profile=profiled.profile, moving_s=profiled.moving_s)
        state, decision = advance(state, record.look, record.samples_left, settings)
        if block is None or record.look.configuration != block.configuration:
            continue
        blocks.append(block)
        view = view_of(settings, blocks, record.samples_left, record.look.at_s)
        adapter.become(view.jobs[0], before)
        adapter.observe(view, record.look.at_s)
        found, proposal = adapter.state()
        assert found == state
        assert proposal == next_proposal(None, decision, block.configuration)
        assert_equal_grants(adapter.seen(view.jobs[0]), entry_of(block.configuration, proposal, record.samples_left))
        compared, decided = compared + 1, decided + (decision is not None)
    assert compared >= 2 and decided >= 1


# --- grants -----------------------------------------------------------------------------------------------------------


def entry_of(running: Configuration, proposal: Proposal | None, left: int) -> JobEntry:
    """The dispatcher's entry of a job whose run reports this plan and this proposal in its status file."""
    size, host = PlanStatus(running.workers, running.servers, running.worker_cores), 10**12
    one = JobEntry(request("a"), 0.0, state="running", known=Known(1e-3, 1.1e-3, seconds=30.0))
    workers = max(2, running.workers)
    one.examined = Examined("a", left, 1, workers, "a", (MemoryOfSize(1, 1),), running.servers, running.worker_cores)
    demand = one.demand(HostPower(1000, 1e12))
    mode = next(at for at, mode in enumerate(demand.modes) if mode.workers == running.workers)
    one.placed = PlacedJob(demand, Placement(mode), host)
    proposed = None
    if proposal is not None:
        wanted = proposal.wanted
        plan = PlanStatus(wanted.workers, wanted.servers, wanted.worker_cores)
        proposed = ProposedPlan(size, plan, proposal.kind, proposal.reason)
    observation = seen("a", trained=0)
    assert observation.status is not None
    written = msgspec.json.encode(msgspec.structs.replace(observation.status, plan=size, proposal=proposed))
    one.seen = msgspec.structs.replace(observation, status=msgspec.json.decode(written, type=RunStatus))
    return one


def assert_equal_grants(simulated: cluster.JobView, entry: JobEntry) -> None:
    """`decide` grants the same, whether it gets the proposal as the simulator's adapter or as the dispatcher shows it,
    for the options of both."""
    live = job_view(entry, 1000, HostLedger(HostCapacity(1000, 10**12)), 1)
    assert simulated.current is not None and live.current is not None
    assert (live.proposal is None) == (simulated.proposal is None)
    for options, current in ((simulated.options, simulated.current), (live.options, live.current)):
        both = [
            msgspec.structs.replace(view, job="a", options=options, current=current, busy_cores=None, samples_left=1e6)
            for view in (simulated, live)
        ]
        own = [decide(cluster.ClusterView(jobs=(view,), cores=options[current].cores)) for view in both]
        assert own[0] == own[1]
        fits = simulated.proposal is not None and simulated.proposal.cores <= options[current].cores
        assert own[0][0].is_proposal == (fits and own[0][0].option == current)
