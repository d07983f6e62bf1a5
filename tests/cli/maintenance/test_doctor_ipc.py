"""Whether systemd removes files of /dev/shm at logout, read from real configuration files."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastichost.cli.maintenance.doctor import _logout
from elastichost.cli.maintenance.doctor_ipc import LogindFacts, logind_facts, removes_files

SHM = Path("/dev/shm")
AT_RISK = LogindFacts(is_running=True, user_id=1000, user="ann", removes="", lingers=False)


def test_arenas_removed_at_logout() -> None:
    assert removes_files(AT_RISK, SHM), "the default of systemd is yes"
    assert removes_files(AT_RISK, SHM / "mine")
    for harmless in (
        LogindFacts(False, 1000, "ann", "yes", False),
        LogindFacts(True, 999, "daemon", "yes", False),
        LogindFacts(True, 1000, "ann", "no", False),
        LogindFacts(True, 1000, "ann", "yes", True),
    ):
        assert not removes_files(harmless, SHM), harmless
    assert not removes_files(AT_RISK, Path("/scratch/arenas"))


@pytest.mark.parametrize(
    ("files", "setting"),
    [
        ({}, ""),
        ({"etc/systemd/logind.conf": "[Login]\n#RemoveIPC=no\n"}, ""),
        (
            {
                "etc/systemd/logind.conf": "[Login]\nRemoveIPC = no\n",
                "usr/lib/systemd/logind.conf": "[Login]\nRemoveIPC=yes",
            },
            "no",
        ),
        ({"usr/lib/systemd/logind.conf": "[Login]\nRemoveIPC=yes"}, "yes"),
        (
            {
                "etc/systemd/logind.conf": "[Login]\nRemoveIPC=no\nKillUserProcesses=no",
                "etc/systemd/logind.conf.d/50-site.conf": "; by the site\n[Login]\nRemoveIPC=yes\n",
                "run/systemd/logind.conf.d/10-early.conf": "[Login]\nRemoveIPC=no\n",
            },
            "yes",
        ),
        (
            {
                "etc/systemd/logind.conf.d/50-site.conf": "[Login]\nRemoveIPC=no\n",
                "usr/lib/systemd/logind.conf.d/50-site.conf": "[Login]\nRemoveIPC=yes\n",
            },
            "no",
        ),
        ({"etc/systemd/logind.conf": "no section\n"}, ""),
    ],
)
def test_the_setting_of_highest_priority_counts(tmp_path: Path, files: dict[str, str], setting: str) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert logind_facts(tmp_path, 1000).removes == setting


def test_systemd_and_lingering_are_seen(tmp_path: Path) -> None:
    assert not logind_facts(tmp_path, 4242).is_running
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    (tmp_path / "var/lib/systemd/linger").mkdir(parents=True)
    (tmp_path / "var/lib/systemd/linger/4242").touch()
    facts = logind_facts(tmp_path, 4242)
    assert facts.is_running and facts.lingers
    assert not logind_facts(tmp_path, 4243).lingers


def test_doctor_warns_with_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ELASTICHOST_ARENA_DIR", raising=False)
    monkeypatch.setattr("elastichost.cli.maintenance.doctor.logind_facts", lambda: AT_RISK)
    check = _logout()
    assert check.verdict == "warning"
    assert check.repair.startswith("loginctl enable-linger ann ")
    monkeypatch.setattr(
        "elastichost.cli.maintenance.doctor.logind_facts", lambda: LogindFacts(True, 1000, "ann", "no", lingers=False)
    )
    assert _logout().verdict == "ok"
