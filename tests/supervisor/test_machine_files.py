"""The check that another machine has the data files of a job."""

from __future__ import annotations

from elastichost.supervisor.remote.hosts import file_problems


def test_every_file_that_is_missing_or_has_another_size_is_reported() -> None:
    here = {"/data/a": 10, "/data/b": 20, "/data/c": 30}
    assert file_problems("second", here, (10, 20, 30)) == []
    assert file_problems("second", here, (10, -1, 1234567)) == [
        "second: /data/b does not exist there, or cannot be read",
        "second: /data/c has 1,234,567 bytes there, but 30 on this machine",
    ]
