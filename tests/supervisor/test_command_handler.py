"""What a run is lent: sizes that its own tuner proposed, and sizes that it did not; and machines that cannot join."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import msgspec
import pytest

from elastichost.errors import ArenaFullError, ElastichostError, PreflightError
from elastichost.plan import Plan, ProcessSpec
from elastichost.runs.events import HostJoinAbandoned, MemoryBudgetLent, PlanOrigin, ProposalGranted
from elastichost.supervisor.command_handler import CommandHandler
from elastichost.supervisor.controllers.plan import SizedPlan
from elastichost.supervisor.core.fleet import Fleet
from elastichost.tuner.cluster.proposals import Proposal
from elastichost.tuner.facts import Configuration
from elastichost.tuner.placement.resize import resized_plan
from elastichost.tuner.policy.decision import Kind
from elastichost.wire.commands import (
    AcceptedMsg,
    CommandClient,
    CommandServer,
    LendMsg,
    ReachedMsg,
    RefusedMsg,
    Reply,
    ScaleMsg,
)
from tests.supervisor.noted import Noted

TRAIN = SimpleNamespace(mode="async", precision="float32")
GRANT = LendMsg(workers=1, servers=2, worker_cores=1, is_proposal=True)


class Scene:
    """A run of one worker and one PS on two cores, and its real command socket. followed: plans, with their origin."""

    def __init__(self, folder: Path, mode: str = "propose") -> None:
        self.noted, self.followed = Noted(), list[tuple[Plan, PlanOrigin]]()
        self.commands = CommandServer(f"ipc://{folder}/commands")
        specs = (ProcessSpec("worker", 0, (0,), 1), ProcessSpec("server", 0, (0,), 1))
        self.run: Any = SimpleNamespace(
            job=SimpleNamespace(
                tuner=SimpleNamespace(mode=mode), resources=SimpleNamespace(model_memory="host"), train=TRAIN
            ),
            plan=Plan(specs, "direct", "a test"),
            fleet=Fleet(),
            commands=self.commands,
            proposal=None,
            **self.noted.attributes,
        )
        self.plans = SimpleNamespace(cores=(0, 1), gpus=(), is_asked=False, resized=self._resized)
        changes: Any = SimpleNamespace(plans=self.plans, why_closed="", is_under_way=False, number=0, apply=self._apply)
        self.changes = changes
        self.lent: list[int] = []
        components: Any = SimpleNamespace(memory=SimpleNamespace(lend=self.lent.append))
        self.run.all_cores = lambda cores: cores
        self.handler = CommandHandler(self.run, components, changes)

    def _resized(self, size: ScaleMsg, reason: str) -> SizedPlan:
        facts = {"workers": size.workers, "servers": size.servers, "worker_cores": size.worker_cores}
        return SizedPlan(resized_plan(self.run.plan, reason, **facts), ())  # type: ignore[arg-type]

    def _apply(self, plan: Plan, now_s: float, origin: PlanOrigin = "") -> None:
        self.changes.number += 1
        self.run.plan = plan
        self.followed.append((plan, origin))

    def proposes(self, kind: Kind = "try", present: Configuration | None = None) -> None:
        self.run.proposal = Proposal(present or Configuration(1, 1), Configuration(1, 2), kind, "it may be faster")

    def sends(self, message: LendMsg | ScaleMsg) -> Reply:
        """Returns the first reply to a message."""
        client = CommandClient(self.commands.address)
        client.send(message)
        self.commands.wait(5.0)
        self.handler.turn(1.0)
        reply = client.receive(5.0)
        client.close()
        assert reply is not None
        return reply


@pytest.fixture
def scene(tmp_path: Path) -> Any:
    made = Scene(tmp_path)
    yield made
    made.commands.close()


@pytest.mark.parametrize(("kind", "origin"), [("try", "trial"), ("move", "")])
def test_a_granted_proposal_is_carried_out(scene: Scene, kind: Kind, origin: PlanOrigin) -> None:
    before = scene.run.plan
    scene.proposes(kind)
    assert isinstance(scene.sends(GRANT), AcceptedMsg)
    ((plan, found),) = scene.followed
    assert (len(plan.servers), found) == (2, origin), "a resumed run does not begin with a plan that was only a trial"
    assert plan.reason == "the dispatcher granted what the tuner proposed: it may be faster"
    assert scene.noted.events == [ProposalGranted(Configuration(1, 2))]
    assert scene.run.proposal is None
    assert scene.handler.take_granted() == (before, plan)
    assert scene.handler.take_granted() is None
    assert not scene.plans.is_asked, "the tuner goes on"


def test_memory_that_is_lent_leaves_the_plan_and_the_proposal_as_they_are(scene: Scene) -> None:
    """Also while a change is under way: a plan that cannot be reached is taken back only if it is the newest."""
    scene.proposes()
    scene.changes.is_under_way = True
    before = scene.run.plan
    assert isinstance(scene.sends(LendMsg(memory_bytes=7)), ReachedMsg)
    assert scene.lent == [7] and scene.noted.events == [MemoryBudgetLent(7)]
    assert scene.run.plan is before and scene.followed == [] and scene.run.proposal is not None


def test_a_grant_that_arrives_twice_is_carried_out_once(scene: Scene) -> None:
    scene.proposes()
    assert isinstance(scene.sends(GRANT), AcceptedMsg)
    assert isinstance(scene.sends(GRANT), RefusedMsg)
    assert len(scene.followed) == 1


@pytest.mark.parametrize("why", ["nothing is proposed", "another size is proposed", "another plan runs"])
def test_a_stale_grant_is_refused_and_changes_nothing(scene: Scene, why: str) -> None:
    if why == "another size is proposed":
        scene.proposes()
    elif why == "another plan runs":
        scene.proposes(present=Configuration(2, 1))
    stale = msgspec.structs.replace(GRANT, servers=3) if why == "another size is proposed" else GRANT
    refused = scene.sends(msgspec.structs.replace(stale, cores=(1,)))
    assert isinstance(refused, RefusedMsg) and "does not propose this size any more" in refused.message
    assert scene.followed == [] and scene.plans.cores == (0, 1)


@pytest.mark.parametrize("lent", [LendMsg(cores=(1,)), LendMsg(workers=2)])
def test_other_cores_or_another_size_close_the_proposal(scene: Scene, lent: LendMsg) -> None:
    scene.proposes()
    scene.sends(lent)
    assert scene.run.proposal is None
    assert isinstance(scene.sends(GRANT), RefusedMsg)
    assert scene.handler.take_granted() is None
    assert not scene.plans.is_asked, "the tuner of a run under the dispatcher goes on"


def test_a_run_that_is_not_under_the_dispatcher_keeps_the_size_that_it_is_lent(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "act")
    scene.sends(LendMsg(workers=2))
    assert scene.plans.is_asked and scene.followed[0][1] == "scale"
    scene.commands.close()


@pytest.mark.parametrize("message", [ScaleMsg(workers=2), LendMsg(workers=2)])
@pytest.mark.parametrize("gpus", [1, 2])
def test_a_model_in_memory_of_a_gpu_has_one_worker(scene: Scene, message: LendMsg | ScaleMsg, gpus: int) -> None:
    scene.run.job.resources.model_memory = "gpu"
    scene.plans.gpus = tuple(range(gpus))
    reply = scene.sends(message)
    assert isinstance(reply, RefusedMsg)
    assert reply.message == "workers=2 is out of range (1 to 1)"
    assert scene.followed == []
    scene.run.job.resources.model_memory = "host"
    assert not isinstance(scene.sends(message), RefusedMsg)


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (ArenaFullError("the headers need 9 bytes", hint="make room"), "make room"),
        (PreflightError("host c: its agent is gone"), "check the hosts with `elastichost doctor`"),
    ],
)
def test_machines_that_cannot_be_admitted_are_refused_and_the_run_trains_on(
    scene: Scene, error: ElastichostError, hint: str
) -> None:
    def admit() -> NoReturn:
        raise error

    dismissed: list[bool] = []
    joining: Any = SimpleNamespace(
        turn=lambda now_s: True, reasons=(), admit=admit, dismiss=lambda: dismissed.append(True)
    )
    client = CommandClient(scene.commands.address)
    client.send(ScaleMsg())  # any command: it tells the peer
    scene.commands.wait(5.0)
    received = scene.commands.receive()
    assert received is not None
    scene.handler._joining, scene.handler._join_peer = joining, received[0]
    before = scene.run.plan
    assert not scene.handler.turn(1.0)
    reply = client.receive(5.0)
    client.close()
    assert reply == RefusedMsg(f"no machine joins: {error.message}", hint)
    assert dismissed == [True] and scene.handler._joining is None
    assert scene.noted.events == [HostJoinAbandoned(error.message)]
    assert scene.run.plan is before and scene.followed == [] and not scene.handler.turn(2.0)
