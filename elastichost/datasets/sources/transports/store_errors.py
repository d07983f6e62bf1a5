"""Which errors of a store may pass, and what a user can do about the others. Pure.

pyarrow raises OSError for nearly all errors of a store; the code of the store is in its text only (seen with pyarrow 25
and servers that have each of these troubles). What is not known here is tried again until the patience of the job ends.
"""

from __future__ import annotations

import re

from elastichost.datasets.sources.transports.addressed_file import SourceError
from elastichost.errors import DataError

__all__ = ["missing", "not_permitted", "typed"]

# The words of S3 ("AWS Error ACCESS_DENIED", "HTTP status 403"), Google's ("PERMISSION_DENIED") and Azure's clients.
_FORBIDDEN = re.compile(
    r"\b(ACCESS_DENIED|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH|INVALID_CLIENT_TOKEN_ID|UNRECOGNIZED_CLIENT"
    r"|MISSING_AUTHENTICATION_TOKEN|EXPIRED_TOKEN|INVALID_SIGNATURE|PERMISSION_DENIED|UNAUTHENTICATED"
    r"|AuthorizationPermissionMismatch|AuthenticationFailed|NoAuthenticationInformation|AuthorizationFailure"
    r"|HTTP status 40[13])\b"
)
_NO_BUCKET = re.compile(r"\b(NO_SUCH_BUCKET|ContainerNotFound|FilesystemNotFound)\b|Bucket '[^']*' not found")
_ELSEWHERE = re.compile(r"\b(PERMANENT_REDIRECT|HTTP status 30[1278])\b")
_CERTIFICATE = re.compile(r"curlCode: (60|77)\b")
_TOO_SLOW = re.compile(r"curlCode: 28\b|\b(DEADLINE_EXCEEDED|timed out)\b")
_REFUSED = re.compile(
    r"\b(SLOW_DOWN|SERVICE_UNAVAILABLE|INTERNAL_FAILURE|THROTTLING|RESOURCE_EXHAUSTED|UNAVAILABLE|REQUEST_TIMEOUT"
    r"|HTTP status (408|425|429|5\d\d))\b"
)


def typed(url: str, error: Exception) -> DataError | SourceError:
    """The error of a request for this address as one that passes (SourceError) or does not (DataError)."""
    text = _one_line(str(error)) or type(error).__name__
    if isinstance(error, PermissionError) or _FORBIDDEN.search(text):
        return not_permitted(url, text)
    if _NO_BUCKET.search(text):
        return DataError(
            f"{url}: there is no such bucket or container", hint="check its name, and the account or endpoint"
        )
    if _ELSEWHERE.search(text):
        return DataError(f"{url}: the bucket is in another region ({text})", hint="add ?region=NAME to the address")
    if _CERTIFICATE.search(text):
        return DataError(
            f"{url}: the certificate of the server is not trusted",
            hint="add ?tls_ca_file_path=FILE to the address, or have the endpoint's certificate signed",
        )
    if isinstance(error, TimeoutError) or _TOO_SLOW.search(text):
        return SourceError("stalled", text)
    return SourceError("refused" if _REFUSED.search(text) else "reset", text)


def not_permitted(url: str, text: str) -> DataError:
    """The error of a file that may not be read."""
    return DataError(
        f"{url}: the store does not let this user read it ({text})",
        hint="check the credentials (for S3: AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, on each "
        "host) and that they may read and list the bucket",
    )


def missing(url: str, place: str, *, has_place: bool) -> DataError:
    """The error of a file that is not there. place: its bucket; has_place: whether that is there."""
    if not has_place:
        return DataError(f"{url}: there is no bucket {place!r}", hint="check its name, and the account or endpoint")
    return DataError(f"{url}: no such file in the store", hint="check data.train and data.test in the job file")


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]
