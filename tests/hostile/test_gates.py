"""Hostile peers at every gate (listening socket) of a run on two hosts change nothing, and occupy no memory.

All cases attack one run in sync mode. Its model must equal, bit by bit, the model of a run that is not attacked.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import stat
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil
import pytest
import zmq

from benchmarks.hostile import attackers
from benchmarks.hostile.attackers import CURVE_GREETING, Target, connect, greeting, is_let_in, knock_and_go, wait_closed
from benchmarks.hostile.leaky_supervisor import ENDED, INSIDERS
from elastichost.arena.host import arena_root
from elastichost.plan import ProcessId
from elastichost.runs.events import (
    BatchTorn,
    HostLost,
    ProcessLost,
    ProcessReported,
    ProcessStartFailed,
    SamplesQuarantined,
)
from elastichost.wire.codec import Codec, Frame
from elastichost.wire.control import ControlMessage, FencedMsg, HeartbeatMsg, HelloMsg, LeaseProgressMsg, StopMsg
from elastichost.wire.data import (
    BucketFetchMsg,
    ClockAdvancedMsg,
    DataMessage,
    DenseFetchMsg,
    DensePushedMsg,
    DensePushMsg,
    PullMsg,
    PushMsg,
    RetryMsg,
    RowsCommittedMsg,
    StepAskMsg,
)
from elastichost.wire.facts import AppliedBatch, StepSample
from elastichost.wire.security.keys import KeyPair, Pass, new_keys
from elastichost.wire.security.tcp_router import PART_BYTES
from elastichost.wire.sockets import DataClient, wait_readable
from tests.hostile.victims import Attacked, alone, outcome_of, over_two_machines
from tests.system.test_run import ROOT, folder_of

pytestmark = [pytest.mark.system, pytest.mark.thorough, pytest.mark.timeout(200)]

PATIENCE_S = 30.0
TABLES = 4
WORKER, SERVER = INSIDERS
LOCAL, ELSEWHERE = ProcessId("worker", 0, 1), ProcessId("worker", 1, 1)  # workers that run, by their host
HANDSHAKE_S = 3.0


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    """The attacked run. At the end its losses and its model are those of a run that is not attacked, no process was
    lost, and there is no warning."""
    with pytest.MonkeyPatch.context() as patch, folder_of(tmp_path_factory.mktemp("hostile"), patch) as folder:
        patch.setenv("PYTHONPATH", str(ROOT))
        run, beside = over_two_machines(folder / "attacked"), alone(folder / "alone")
        expected = outcome_of(beside)
        victims = Attacked(run)
        yield victims
        victims.go_on()
        assert outcome_of(run) == expected, "the same losses, and the same model"
        for kind in (ProcessLost, ProcessStartFailed, ProcessReported, HostLost, BatchTorn, SamplesQuarantined):
            assert run.events(kind) == []
        assert [line.event for line in run.lines() if line.event.category == "warning"] == []
        assert run.result()["processes"]["restarts"] == 0


@pytest.fixture(autouse=True)
def unharmed(attacked: Attacked) -> Iterator[None]:
    """Checks after each case that the run goes on, and that memory and descriptors are free again."""
    before = attacked.begin()
    yield
    attacked.settle(before)


# --- peers without an accepted key ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "beginning",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        os.urandom(4096),
        bytes(4096),
        greeting(b"NULL"),
        greeting(b"PLAIN"),
        CURVE_GREETING + b"\x06" + (1 << 30).to_bytes(8, "big"),  # a command of 1 GiB
        CURVE_GREETING + b"\x06" + (1 << 63).to_bytes(8, "big"),
        CURVE_GREETING + b"\x04\xc8\x05HELLO" + bytes(194),
    ],
    ids=["http", "noise", "zeros", "null", "plain", "1 GiB", "8 EiB", "hello of zeros"],
)
def test_a_connection_that_begins_without_a_valid_handshake_is_closed(attacked: Attacked, beginning: bytes) -> None:
    guests = [connect(gate) for gate in attacked.gates.values() for _ in range(20)]
    for guest in guests:
        with contextlib.suppress(OSError):  # the gate may close the connection during this call
            guest.sendall(beginning)
    assert wait_closed(guests, HANDSHAKE_S + PATIENCE_S) == 0
    for guest in guests:
        guest.close()


def test_a_handshake_that_stops_is_cut_off_and_its_bytes_are_not_kept(attacked: Attacked) -> None:
    """Many connections at once stop after one byte, half a greeting, a greeting, or a command of the largest allowed
    size without its last byte."""
    almost = CURVE_GREETING + b"\x06" + PART_BYTES.to_bytes(8, "big") + bytes(PART_BYTES - 1)
    guests = []
    for beginning in (b"\xff", b"\xff" + bytes(8) + b"\x7f\x03", CURVE_GREETING, almost):
        for gate in attacked.gates.values():
            for _ in range(50):
                guests.append(connect(gate))
                guests[-1].sendall(beginning)
    assert wait_closed(guests, HANDSHAKE_S + PATIENCE_S) == 0
    for guest in guests:
        guest.close()


def test_a_command_of_a_gigabyte_is_not_read(attacked: Attacked) -> None:
    """The peer sends the command before it has shown a key."""
    for gate in attacked.gates.values():
        with connect(gate) as guest, pytest.raises(OSError, match=r"reset|[Bb]roken"):
            guest.sendall(CURVE_GREETING + b"\x06" + (1 << 30).to_bytes(8, "big") + bytes(256 << 20))


def keys_not_accepted(attacked: Attacked, gate: Target) -> dict[str, Pass | None]:
    """Keys that the gate must refuse, by description."""
    return {
        "no key": None,
        "a key that is not listed": Pass(new_keys(), gate.key),
        "the key of another server": Pass(attacked.keys[str(WORKER)], new_keys().public),
        "an incarnation that is over": Pass(attacked.keys[str(ENDED)], gate.key),
        "the server's own public key": Pass(KeyPair(gate.key, new_keys().secret), gate.key),
    }


@pytest.mark.parametrize("key", ["no key", "a key that is not listed", "the key of another server"])
def test_a_peer_without_an_accepted_key_is_refused(attacked: Attacked, key: str) -> None:
    for gate in attacked.gates.values():
        assert not is_let_in(gate, "worker-0.1", keys_not_accepted(attacked, gate)[key])


@pytest.mark.parametrize("key", ["an incarnation that is over", "the server's own public key"])
def test_a_key_that_is_no_longer_valid_or_of_the_server_is_refused(attacked: Attacked, key: str) -> None:
    for gate in attacked.gates.values():
        assert not is_let_in(gate, str(ENDED), keys_not_accepted(attacked, gate)[key])


def test_the_supervisors_gate_refuses_the_key_of_a_process_on_its_own_host(attacked: Attacked) -> None:
    gate = attacked.gates["supervisor"]
    parents = {name: psutil.Process(attacked.run.pid(name)).ppid() for name in ("worker-0", "worker-1")}
    assert parents["worker-0"] == attacked.run.process.pid != parents["worker-1"]
    assert not is_let_in(gate, str(LOCAL), attacked.shown(str(LOCAL), gate))
    assert is_let_in(gate, str(WORKER), attacked.shown(str(WORKER), gate)), (
        "a key of a process on another host is accepted"
    )


def test_ten_thousand_connections_that_close_at_once_do_no_harm(attacked: Attacked) -> None:
    for gate in attacked.gates.values():
        knock_and_go(gate, 10_000)


def test_a_process_can_connect_while_a_thousand_strangers_stay_connected(attacked: Attacked) -> None:
    guests = [connect(gate) for gate in attacked.gates.values() for _ in range(340)]
    for number, guest in enumerate(guests):
        if number % 2:
            guest.sendall(CURVE_GREETING)
    for gate in attacked.servers.values():
        with client(attacked, gate, WORKER, "late") as newcomer:
            assert isinstance(ask(newcomer, DenseFetchMsg(request=1)), DensePushedMsg | RetryMsg)
    for guest in guests:
        guest.close()


# --- peers with an accepted key that misbehave, at a PS ---------------------------------------------------------------


@contextlib.contextmanager
def client(attacked: Attacked, gate: Target, incarnation: ProcessId, channel: str) -> Iterator[DataClient]:
    """A client with the accepted key of an incarnation."""
    made = attacked.insider(gate, incarnation, f"{channel}{time.monotonic_ns()}")
    try:
        yield made
    finally:
        made.close()


def ask(peer: DataClient, message: DataMessage, frames: Sequence[Frame] = ()) -> DataMessage:
    """Returns the answer to a request. Fails when another message is answered."""
    peer.send(message, frames)
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        if (envelope := peer.receive()) is not None:
            assert envelope.message.request == message.request, "a message that must be dropped was answered"
            return envelope.message
        wait_readable(peer.sockets, 0.1)
    raise AssertionError(f"no answer to {message}")


def assert_serves(peer: DataClient) -> int:
    """Asserts that the PS answers a harmless request. Returns the epoch of its shard map."""
    answer = ask(
        peer, PullMsg(request=1 << 40, shard_map_epoch=1 << 40, create=False, weights=True, counts=(0,) * TABLES)
    )
    assert isinstance(answer, RetryMsg) and not answer.final and "shard map epoch" in answer.reason
    return answer.shard_map_epoch


def commit(epoch: int, **facts: Any) -> DensePushMsg:
    """A commit of a micro-batch."""
    micro = {"start": 0, "stop": 32, "samples": 32, "skipped": 0, "step": 1 << 39, "micro": 0, "micros": 4}
    fixed = {"request": 1, "sequence": 1, "mailbox": -1, "lease_id": 1, "epoch": 0, "unit": 0, "want_parameters": True}
    return DensePushMsg(**{**fixed, **micro, "shard_map_epoch": epoch, **facts})


def pull(epoch: int, **facts: Any) -> PullMsg:
    """A pull of one row."""
    fixed = {"request": 1, "shard_map_epoch": epoch, "create": False, "weights": True, "counts": (1, 0, 0, 0)}
    return PullMsg(**{**fixed, **facts})


def push(epoch: int, **facts: Any) -> PushMsg:
    """A push for one row."""
    fixed = {"request": 1, "sequence": 1, "shard_map_epoch": epoch, "counts": (1, 0, 0, 0), "step": 1}
    return PushMsg(**{**fixed, **facts})


ONE_KEY, ONE_LINE = np.ones(1, np.int64), np.ones(8, np.float32)
NAN = np.full(8, np.nan, np.float32)
Made = Callable[[int], DataMessage]
# description: (message, sender, frames, whether the answer is final: the sender must not repeat the message)
MISBEHAVIOUR: dict[str, tuple[Made, ProcessId, tuple[Frame, ...], bool]] = {
    "a PS commits": (commit, SERVER, (), True),
    "a PS pulls": (pull, SERVER, (ONE_KEY,), True),
    "a worker copies a bucket": (lambda _: BucketFetchMsg(1, 0, 0, "open"), WORKER, (), True),
    "a worker answers as a PS": (lambda _: DensePushedMsg(1, 1, 1, 1), WORKER, (), True),
    "a bucket that does not exist": (lambda _: BucketFetchMsg(1, 1 << 20, 0, "rows", 0, 10), SERVER, (), True),
    "frames are missing": (pull, WORKER, (), True),
    "a frame is too short": (pull, WORKER, (b"1234567",), True),
    "a frame is too long": (pull, WORKER, (bytes(PART_BYTES * 20),), True),
    "too few counts": (lambda e: pull(e, counts=(1,)), WORKER, (ONE_KEY,), True),
    "huge counts": (lambda e: pull(e, counts=((1 << 32) - 1,) * TABLES), WORKER, (ONE_KEY,), True),
    "a map of the future": (lambda e: pull(e + 5), WORKER, (ONE_KEY,), False),
    "a map of the past": (lambda e: push(e - 1), WORKER, (ONE_KEY, ONE_LINE), False),
    "gradients that are not numbers": (push, WORKER, (ONE_KEY, NAN), True),
    "a push of no step": (lambda e: push(e, step=0), WORKER, (ONE_KEY, ONE_LINE), True),
    "more samples than positions": (lambda e: commit(e, samples=33), WORKER, (), True),
    "more samples than a batch": (lambda e: commit(e, stop=4096, samples=4096), WORKER, (), True),
    "a mailbox": (lambda e: commit(e, mailbox=0), WORKER, (), True),
    "more micro-batches than there are": (lambda e: commit(e, micros=128), WORKER, (), True),
    "a step of the future": (commit, WORKER, (), False),
    "an epoch of the future": (lambda e: StepAskMsg(1, 1, e + 1), WORKER, (), False),
}


@pytest.mark.parametrize("what", MISBEHAVIOUR)
def test_a_ps_refuses_an_invalid_request_and_serves_on(attacked: Attacked, what: str) -> None:
    make, incarnation, frames, is_final = MISBEHAVIOUR[what]
    for name, gate in attacked.servers.items():
        with client(attacked, gate, incarnation, "bad") as peer, client(attacked, gate, WORKER, "good") as good:
            epoch = assert_serves(good)
            answer = ask(peer, make(epoch), frames)
            assert isinstance(answer, RetryMsg), (name, answer)
            # A PS that does not own the dense vector refuses requests for it before it checks them.
            assert answer.final == is_final or "own the dense vector" in answer.reason, (name, answer)
            assert assert_serves(good) == epoch


def test_a_pull_and_a_push_for_a_step_that_has_not_begun_are_refused(attacked: Attacked) -> None:
    """The dense owner knows the step, whatever step a worker claims."""
    gate = attacked.gates["server-0"]
    with client(attacked, gate, WORKER, "bad") as peer:
        epoch = assert_serves(peer)
        for message in (pull(epoch, step=1 << 39, create=True), push(epoch, step=1 << 39)):
            answer = ask(peer, message, (ONE_KEY, ONE_LINE))
            assert isinstance(answer, RetryMsg) and "has not begun" in answer.reason


def test_a_replayed_push_or_commit_is_not_applied_again(attacked: Attacked) -> None:
    """The attacker has the key of a worker that runs. It sends a commit and a push of a step that is over, and reports
    batches that do not exist."""
    for name, gate in attacked.servers.items():
        with client(attacked, gate, LOCAL, "replay") as peer:
            epoch = assert_serves(peer)
            for _ in range(3):
                answer = ask(peer, push(epoch), (ONE_KEY, ONE_LINE))
                assert not isinstance(answer, RetryMsg), "a push of a step that is over is acknowledged"
                ask(peer, RowsCommittedMsg(request=1, sequence=1 << 39))
                again = ask(peer, commit(epoch, step=1))
                assert (isinstance(again, DensePushedMsg) and again.duplicate) or name != "server-0"
                ask(peer, ClockAdvancedMsg(1, -1, 0))


def parts_of(job_id: int, sender: ProcessId | None, message: DataMessage) -> list[bytes]:
    """The parts of a message as they go over the wire."""
    codec: Codec[DataMessage] = Codec(DataMessage, job_id, sender)
    return [bytes(memoryview(part)) for part in codec.encode(message)]  # type: ignore[arg-type]


def nonsense(job_id: int) -> Iterator[list[bytes]]:
    """Messages that are not valid messages of worker-30.1 in this job."""
    header, body = parts_of(job_id, WORKER, DenseFetchMsg(request=1))
    yield parts_of(job_id ^ 1, WORKER, DenseFetchMsg(request=1))
    yield parts_of(job_id, None, DenseFetchMsg(request=1))  # as the supervisor
    yield parts_of(job_id, LOCAL, DenseFetchMsg(request=1))
    yield parts_of(job_id, ProcessId("worker", 30, 2), DenseFetchMsg(request=1))  # another incarnation
    yield [b""]
    yield [header]
    yield [header[:-1], body]
    yield [b"XXXX" + header[4:], body]
    yield [header, body, b"a frame too many"]
    yield [header, body[:-1]]
    yield [os.urandom(48), os.urandom(4096)]
    yield [b""] * 6000
    yield [bytes(PART_BYTES)] * 3  # the message ends within a frame
    bodies = (
        pickle.dumps(_Trap()),
        msgspec.msgpack.encode({"type": "DenseFetchMsg", "request": 1, "more": 1}),
        msgspec.msgpack.encode({"type": "PullMsg"}),
        msgspec.msgpack.encode({"type": "DenseFetchMsg", "request": -1}),
        msgspec.msgpack.encode({"type": "DenseFetchMsg", "request": float("nan")}),
        b"\xc1",
        b"\x91" * 60_000,
        b"\xdd\xff\xff\xff\xff",  # a list of 4 billion entries, of which none follows
        b"",
    )
    for bad in bodies:
        start = len(header) - 20
        sizes = len(bad).to_bytes(4, "little") + bytes(12) + zlib.crc32(bad).to_bytes(4, "little")
        yield [header[:start] + sizes, bad]


class _Trap:
    """A process that unpickles it ends."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (99,)


def test_an_invalid_message_is_dropped(attacked: Attacked) -> None:
    for name, gate in attacked.servers.items():
        with attackers.stranger(gate, f"{WORKER}/nonsense", attacked.shown(str(WORKER), gate)) as dealer:
            dealer.connect(gate.address)
            sent = 0
            for parts in nonsense(attacked.job_id):
                dealer.send_multipart(parts)
                sent += 1
            dealer.send_multipart(parts_of(attacked.job_id, WORKER, DenseFetchMsg(request=77)))
            assert dealer.poll(int(PATIENCE_S * 1000)), name
            answers = [dealer.recv_multipart()]
            while dealer.poll(0):
                answers.append(dealer.recv_multipart())
            assert len(answers) == 1 and sent > 20, "only the last message is valid"
    assert "refused a message: " in attacked.log_of("server-0")


@pytest.mark.parametrize("name", ["worker-0.1/pull1", "worker-1.1/step1", "server-1.1/move1", "supervisor", ""])
def test_a_key_is_valid_for_its_own_incarnation_only(attacked: Attacked, name: str) -> None:
    for gate in attacked.servers.values():
        with attackers.stranger(gate, name, attacked.shown(str(WORKER), gate)) as dealer:
            dealer.connect(gate.address)
            for _ in range(3):
                dealer.send_multipart(parts_of(attacked.job_id, LOCAL, DenseFetchMsg(request=1)))
            with client(attacked, gate, WORKER, "good") as good:
                assert_serves(good)
                assert_serves(good)
            assert not dealer.poll(0)


def test_a_part_that_is_too_long_ends_the_connection(attacked: Attacked) -> None:
    for gate in attacked.servers.values():
        with attackers.stranger(gate, f"{WORKER}/long", attacked.shown(str(WORKER), gate)) as dealer:
            monitor = dealer.get_monitor_socket(zmq.Event.DISCONNECTED)
            dealer.connect(gate.address)
            dealer.send_multipart([bytes(64 << 20)])
            assert monitor.poll(int(PATIENCE_S * 1000)), "the PS must close the connection"
            dealer.disable_monitor()
            monitor.close()


def test_a_ps_keeps_few_answers_for_a_peer_that_reads_none(attacked: Attacked) -> None:
    for gate in attacked.servers.values():
        with attackers.stranger(gate, f"{WORKER}/deaf", attacked.shown(str(WORKER), gate)) as dealer:
            dealer.setsockopt(zmq.RCVHWM, 1)
            dealer.connect(gate.address)
            parts = parts_of(attacked.job_id, WORKER, DenseFetchMsg(request=1))
            for _ in range(20_000):
                dealer.send_multipart(parts)
            with client(attacked, gate, WORKER, "good") as good:
                assert_serves(good)


def test_large_invalid_messages_are_not_kept(attacked: Attacked) -> None:
    """200 MB for each PS, in parts of an allowed size."""
    for gate in attacked.servers.values():
        with client(attacked, gate, WORKER, "large") as peer:
            epoch = assert_serves(peer)
            for _ in range(20):
                answer = ask(peer, pull(epoch), (bytes(10 << 20),))
                assert isinstance(answer, RetryMsg) and answer.final


# --- peers with an accepted key that misbehave, at the supervisor -----------------------------------------------------


def control_parts(attacked: Attacked, sender: ProcessId, message: ControlMessage) -> list[bytes]:
    """The parts of a control message as they go over the wire."""
    codec: Codec[ControlMessage] = Codec(ControlMessage, attacked.job_id, sender)
    return [bytes(memoryview(part)) for part in codec.encode(message)]  # type: ignore[arg-type]


LEASED = LeaseProgressMsg(lease_id=1, stop=1 << 40, samples=1 << 40, skipped=0)
FENCED = FencedMsg(worker=0, incarnation=1, applied=AppliedBatch(1, 1, 1 << 30, 1 << 30, 0))


@pytest.mark.parametrize(
    "message",
    [FENCED, LEASED, StopMsg(), HelloMsg("worker", 1, 1, 1), HeartbeatMsg(1 << 60, StepSample())],
    ids=lambda message: type(message).__name__,
)
def test_a_second_connection_in_the_name_of_a_process_is_refused(attacked: Attacked, message: ControlMessage) -> None:
    """The attacker even has the key of the process; the first connection keeps the name."""
    gate, before = attacked.gates["supervisor"], len(attacked.refused())
    incarnation = str(ELSEWHERE)
    with attackers.stranger(gate, incarnation, attacked.shown(incarnation, gate)) as dealer:
        dealer.connect(gate.address)
        dealer.send_multipart(control_parts(attacked, ELSEWHERE, message))
        attacked.run.wait_until(lambda: len(attacked.refused()) > before)
        assert "is connected already" in attacked.refused()[-1]


def test_messages_of_an_incarnation_without_a_process_are_refused(attacked: Attacked) -> None:
    """The key is accepted, but no process has it. It sends messages in its own name and in that of a PS."""
    gate = attacked.gates["supervisor"]
    with attackers.stranger(gate, str(WORKER), attacked.shown(str(WORKER), gate)) as dealer:
        dealer.connect(gate.address)
        for message in (HelloMsg("worker", 30, 1, 1), LEASED, FENCED, StopMsg()):
            dealer.send_multipart(control_parts(attacked, WORKER, message))
        dealer.send_multipart(control_parts(attacked, ProcessId("server", 0, 1), FENCED))
        attacked.wait_refused("in the name of server-0.1")


def test_a_flood_of_invalid_messages_does_not_fill_the_journal(attacked: Attacked) -> None:
    gate, before = attacked.gates["supervisor"], len(attacked.refused())
    with attackers.stranger(gate, str(WORKER), attacked.shown(str(WORKER), gate)) as dealer:
        dealer.connect(gate.address)
        for number in range(50_000):
            dealer.send_multipart([b"x" * 48, number.to_bytes(8, "little")])
        # The run must make progress after the flood.
        deadline_s = time.monotonic() + PATIENCE_S
        trained = attacked.facts()["samples_trained"]
        attacked.run.wait_until(lambda: attacked.facts()["samples_trained"] > trained)
        assert time.monotonic() < deadline_s
    assert len(attacked.refused()) - before < 100


# --- the sockets of one host ------------------------------------------------------------------------------------------


def test_no_other_user_of_the_host_can_reach_a_socket_or_a_row(attacked: Attacked) -> None:
    """libzmq creates sockets to which all users may write, so the permissions of the directory protect them."""
    sockets = [Path(path) for path in Path(os.environ["XDG_RUNTIME_DIR"]).rglob("*") if path.is_socket()]
    assert len(sockets) >= 4, "sockets of the supervisor, of its commands, and of a PS on each host"
    homes = {path.parent for path in sockets} | set(arena_root().iterdir())
    for home in homes:
        facts = home.stat()
        assert (stat.S_IMODE(facts.st_mode), facts.st_uid) == (0o700, os.geteuid()), home


def test_all_processes_are_still_the_first_incarnations(attacked: Attacked) -> None:
    incarnations = {f"{one['role']}-{one['index']}.{one['incarnation']}" for one in attacked.facts()["processes"]}
    assert {"worker-0.1", "worker-1.1", "server-0.1", "server-1.1"} <= incarnations
