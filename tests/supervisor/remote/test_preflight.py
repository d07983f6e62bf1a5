"""Checks of what a host reports about itself."""

from __future__ import annotations

import msgspec
import pytest

from elastichost.config.hosts import HostSection
from elastichost.host.cpu_features import CpuFeatures
from elastichost.resources import HostInventory
from elastichost.supervisor.remote.messages import WelcomeMsg
from elastichost.supervisor.remote.preflight import Own, failures_of, findings_of, interface_of, repair_of

HOST = HostSection(address="anna@big")
OWN = {"python": "3.11.7", "torch": "2.13.0", "elastichost": "0.1"}
CPU = CpuFeatures("AuthenticAMD", "znver4", ("avx2", "avx512f", "fma"), ())
GOOD = WelcomeMsg("big", OWN, HostInventory((0, 1), 8 << 30), "/dev/shm", 4 << 30, 1000.0, "10.0.0.2", "10.0.0.1", CPU)


def verdicts(welcome: WelcomeMsg) -> dict[str, str]:
    """The verdict of each check."""
    return {one.name: one.verdict for one in findings_of(HOST, welcome, Own(OWN, CPU), 1000.0)}


def test_another_cpu_is_an_error_in_sync_mode_and_otherwise_a_warning() -> None:
    older = msgspec.structs.replace(CPU, name="znver3", features=("avx2", "fma"), settings=("MKL_CBWR=AVX2",))
    welcome = msgspec.structs.replace(GOOD, cpu=older)
    for needs_same_cpu, verdict in ((True, "failed"), (False, "warning")):
        own = Own(OWN, CPU, needs_same_cpu)
        (found,) = [one for one in findings_of(HOST, welcome, own, 1000.0) if one.name == "CPU"]
        assert found.verdict == verdict and "train.any_cpu" in found.repair
        assert all(word in found.found for word in ("znver3", "without the features avx512f", "MKL_CBWR=AVX2"))
        assert len(failures_of(HOST, welcome, own, 1000.0)) == needs_same_cpu
    assert failures_of(HOST, GOOD, Own(OWN, CPU, True), 1000.0) == []


def test_a_host_without_bfloat16_units_is_refused_by_a_job_that_computes_in_it() -> None:
    (found,) = failures_of(HOST, GOOD, Own(OWN, CPU, needs_bfloat16=True), 1000.0)
    assert "bfloat16: the CPU (znver4) has neither AMX nor AVX512-BF16" in found
    able = msgspec.structs.replace(CPU, features=("avx512bf16",))
    assert failures_of(HOST, msgspec.structs.replace(GOOD, cpu=able), Own(OWN, able, needs_bfloat16=True), 1000.0) == []


def test_a_good_host_passes_every_check() -> None:
    assert set(verdicts(GOOD).values()) == {"ok"}


@pytest.mark.parametrize(
    ("name", "verdict", "change"),
    [
        ("versions", "failed", {"versions": {**OWN, "torch": "2.12.0"}}),
        ("versions", "failed", {"versions": {"python": "3.11.7", "elastichost": "0.1"}}),
        ("shared memory", "warning", {"arena_free_bytes": 1 << 20}),
        ("clock", "warning", {"time_s": 1003.0}),
        ("clock", "warning", {"time_s": 990.0}),
    ],
)
def test_a_problem_changes_the_verdict_of_one_check_only(name: str, verdict: str, change: dict[str, object]) -> None:
    found = verdicts(msgspec.structs.replace(GOOD, **change))
    assert {other: one for other, one in found.items() if one != "ok"} == {name: verdict}


def test_ps_listen_at_the_address_of_the_ssh_connection_unless_the_hosts_file_has_another() -> None:
    assert interface_of(HOST, GOOD) == "10.0.0.2"
    assert interface_of(HostSection(address="a", interface="192.168.0.2"), GOOD) == "192.168.0.2"


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        ("Host key verification failed.", "run `ssh anna@big` once"),
        ("anna@big: Permission denied (publickey).", "run `ssh-copy-id anna@big`"),
        ("ssh: Could not resolve hostname big", "check the name: `ssh anna@big` must work"),
        ("/usr/bin/python3: No module named 'elastichost'", "install elastichost on the host"),
        ("another error", "make sure that `ssh anna@big` works without a prompt"),
    ],
)
def test_an_error_of_ssh_comes_with_a_hint(error: str, hint: str) -> None:
    assert hint in repair_of(error, HOST)
