"""Which keys the supervisor's gate and the PS admit, and which PS knows a new key already."""

from __future__ import annotations

from elastichost.plan import ProcessId
from elastichost.supervisor.remote.keyring import Keyring

WORKER, SECOND, SERVER = ProcessId("worker", 0, 1), ProcessId("worker", 0, 2), ProcessId("server", 1, 1)


def test_a_server_knows_an_incarnation_when_it_has_answered_the_list_with_its_key() -> None:
    ring = Keyring()
    ring.issue(SERVER, is_elsewhere=True)
    before = ring.message()
    ring.issue(WORKER, is_elsewhere=True)
    ring.admitted(SERVER, before.number)
    assert not ring.is_known_to(WORKER, SERVER)
    ring.admitted(SERVER, ring.message().number)
    assert ring.is_known_to(WORKER, SERVER)
    ring.admitted(SERVER, before.number)  # an older answer that arrives late
    assert ring.is_known_to(WORKER, SERVER)


def test_every_incarnation_has_its_own_key_which_is_revoked_at_its_end() -> None:
    ring = Keyring()
    first, second = ring.issue(WORKER, is_elsewhere=True), ring.issue(SECOND, is_elsewhere=True)
    assert first.public != second.public
    assert ring.allowed.speaker(first.public) == "worker-0.1"
    assert ring.revoke(WORKER) and not ring.revoke(WORKER)
    assert ring.allowed.speaker(first.public) is None
    assert ring.public(WORKER) == "" and ring.public(SECOND) == second.public
    assert [name for _, name in ring.message().keys] == ["worker-0.2"]
    assert not ring.is_known_to(WORKER, SERVER)


def test_a_server_that_has_ended_knows_no_incarnation() -> None:
    ring = Keyring()
    ring.issue(SERVER, is_elsewhere=True)
    ring.issue(WORKER, is_elsewhere=True)
    ring.admitted(SERVER, ring.message().number)
    ring.revoke(SERVER)
    assert not ring.is_known_to(WORKER, SERVER)
    ring.admitted(SERVER, 100)  # an answer from before its end
    assert not ring.is_known_to(WORKER, SERVER)


def test_a_server_always_knows_itself() -> None:
    assert Keyring().is_known_to(SERVER, SERVER)


def test_the_supervisors_gate_admits_only_incarnations_on_other_hosts() -> None:
    ring = Keyring()
    keys = ring.issue(WORKER, is_elsewhere=False)
    assert ring.allowed.speaker(keys.public) is None, "a process on the supervisor's host uses its local socket"
    assert ring.message().keys == ((keys.public, "worker-0.1"),), "PS on other hosts admit it"
