"""Crash points: every point that the code calls is in the list, and the code calls every point of the list."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from elastichost.errors import ConfigError
from elastichost.wire.crash import POINTS, VARIABLE, parse_setting

ROOT = Path(__file__).parent.parent.parent
NAMES = {point.name for point in POINTS}
PASSER = """
import sys
from elastichost.wire.crash import arm, crash_point
arm(sys.argv[1], int(sys.argv[2]))
for name in sys.argv[3:]:
    crash_point(name)
"""


def test_called_points_are_listed_and_listed_points_are_called() -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "elastichost").rglob("*.py"))
    calls = re.findall(r"\bcrash_point\(([^)]*)\)", source)
    names = [call.strip("\"'") for call in calls if call != "name: str"]
    assert set(names) == NAMES
    assert len(POINTS) == len(NAMES)


def test_points_have_a_meaning_and_the_role_of_their_process() -> None:
    for point in POINTS:
        assert point.role in ("worker", "reader", "ps", "supervisor")
        assert point.meaning
        assert point.meaning[0].islower() and not point.meaning.endswith(".")


def test_settings_are_points_and_counts() -> None:
    assert parse_setting("") == {}
    assert parse_setting("ps.data.before_apply:40,worker.batch.begin") == {
        "ps.data.before_apply": 40,
        "worker.batch.begin": 1,
    }


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("ps.data.before_aply", 'did you mean "ps.data.before_apply"'),
        ("nonsense:3", "unknown crash point 'nonsense'"),
        ("worker.batch.begin:0", "from 1 on, not '0'"),
        ("worker.batch.begin:x", "from 1 on, not 'x'"),
    ],
)
def test_wrong_settings_are_refused_with_the_near_spelling(setting: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_setting(setting)
    assert words in str(caught.value)
    assert "worker.batch.begin" in str(caught.value)


def passed(setting: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs PASSER with this setting. arguments: a role, an incarnation, and the points that the process passes."""
    environment = {**os.environ, VARIABLE: setting}
    command = [sys.executable, "-c", PASSER, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_a_process_dies_at_its_point_when_the_count_is_reached() -> None:
    begin = "worker.batch.begin"
    assert passed(f"{begin}:2", "worker", "1", begin, begin).returncode == -signal.SIGKILL
    assert passed(f"{begin}:2", "worker", "1", begin).returncode == 0
    assert passed(f"{begin}:2", "worker", "2", begin, begin).returncode == 0, "a later incarnation recovers"
    assert passed(f"{begin}:2", "ps", "1", begin, begin).returncode == 0, "another role"


def test_an_unknown_point_raises_where_something_is_armed() -> None:
    done = passed("worker.batch.begin:9", "worker", "1", "worker.batch.never")
    assert done.returncode == 1
    assert "add it to elastichost.wire.crash.POINTS" in done.stderr
