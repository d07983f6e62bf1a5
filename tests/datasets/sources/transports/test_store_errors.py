"""Which errors of stores may pass. The texts are those of pyarrow's clients."""

from __future__ import annotations

import pytest

from elastichost.datasets.sources.transports.addressed_file import SourceError
from elastichost.datasets.sources.transports.store_errors import missing, typed
from elastichost.errors import DataError

HEAD = "When reading information for key 'a' in bucket 'b': AWS Error"


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        ("AWS Error NETWORK_CONNECTION during GetObject operation: curlCode: 28, Timeout was reached", "stalled"),
        ("AWS Error NETWORK_CONNECTION during GetObject operation: curlCode: 7, Could not connect", "reset"),
        (f"{HEAD} UNKNOWN (HTTP status 503) during HeadObject operation: No response body.", "refused"),
        ("AWS Error SLOW_DOWN during GetObject operation: Please reduce your request rate.", "refused"),
        ("google::cloud::Status(UNAVAILABLE: retry policy exhausted)", "refused"),
        ("an error that nobody has seen", "reset"),
    ],
)
def test_a_trouble_of_server_or_network_may_pass(text: str, trouble: str) -> None:
    found = typed("s3://b/a", OSError(text))
    assert isinstance(found, SourceError) and found.trouble == trouble


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(f"{HEAD} ACCESS_DENIED during HeadObject operation"), "does not let this user read"),
        (OSError(f"{HEAD} UNKNOWN (HTTP status 403) during HeadObject operation"), "does not let this user read"),
        (PermissionError("no"), "does not let this user read"),
        (OSError("AWS Error NO_SUCH_BUCKET during ListObjectsV2 operation: it is not there"), "no such bucket"),
        (OSError(f"{HEAD} UNKNOWN (HTTP status 301) during HeadObject operation"), "another region"),
        (OSError("AWS Error NETWORK_CONNECTION: curlCode: 60, SSL peer certificate was not OK"), "certificate"),
    ],
)
def test_what_only_the_user_can_change_does_not_pass(error: Exception, words: str) -> None:
    found = typed("s3://b/a", error)
    assert isinstance(found, DataError)
    assert words in found.message and found.hint


def test_a_missing_file_is_told_from_a_missing_bucket() -> None:
    assert "no such file" in missing("s3://b/a", "b", has_place=True).message
    assert "no bucket 'b'" in missing("s3://b/a", "b", has_place=False).message
