"""Who has to let whom in, and which PS does already."""

from __future__ import annotations

from elastichost.plan import ProcessId
from elastichost.supervisor.remote.keyring import Keyring

WORKER, SECOND, SERVER = ProcessId("worker", 0, 1), ProcessId("worker", 0, 2), ProcessId("server", 1, 1)


def test_a_incarnation_is_known_to_a_server_that_has_answered_since() -> None:
    ring = Keyring()
    ring.issue(SERVER, is_elsewhere=True)
    before = ring.message()
    ring.issue(WORKER, is_elsewhere=True)
    ring.admitted(SERVER, before.number)
    assert not ring.is_known_to(WORKER, SERVER)
    ring.admitted(SERVER, ring.message().number)
    assert ring.is_known_to(WORKER, SERVER)
    ring.admitted(SERVER, before.number)  # late, of a connection that was slow
    assert ring.is_known_to(WORKER, SERVER)


def test_every_incarnation_has_a_key_of_its_own_and_none_when_it_has_ended() -> None:
    ring = Keyring()
    first, second = ring.issue(WORKER, is_elsewhere=True), ring.issue(SECOND, is_elsewhere=True)
    assert first.public != second.public
    assert ring.allowed.speaker(first.public) == "worker-0.1"
    assert ring.revoke(WORKER) and not ring.revoke(WORKER)
    assert ring.allowed.speaker(first.public) is None
    assert ring.public(WORKER) == "" and ring.public(SECOND) == second.public
    assert [name for _, name in ring.message().keys] == ["worker-0.2"]
    assert not ring.is_known_to(WORKER, SERVER)


def test_a_server_that_has_ended_knows_nobody() -> None:
    ring = Keyring()
    ring.issue(SERVER, is_elsewhere=True)
    ring.issue(WORKER, is_elsewhere=True)
    ring.admitted(SERVER, ring.message().number)
    ring.revoke(SERVER)
    assert not ring.is_known_to(WORKER, SERVER)
    ring.admitted(SERVER, 100)  # its last word
    assert not ring.is_known_to(WORKER, SERVER)


def test_a_server_reaches_itself() -> None:
    assert Keyring().is_known_to(SERVER, SERVER)


def test_the_supervisors_gate_is_for_incarnations_on_other_machines() -> None:
    ring = Keyring()
    keys = ring.issue(WORKER, is_elsewhere=False)
    assert ring.allowed.speaker(keys.public) is None, "it comes by the socket of this machine"
    assert ring.message().keys == ((keys.public, "worker-0.1"),), "PS of others let it in"
