"""What a client of S3 is made with: the endpoint, the region, and limits of time after which this run, not the client,
decides what is done about a server that does not answer.

A client of AWS retries by itself, for minutes. Here it makes one attempt: `patience` retries, tells it, and gives up.
A request without a byte for `stall_s` ends (libcurl's low speed limit of 1 byte/s, in whole seconds).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from elastichost.datasets.sources.transports.addresses import StoreAddress
from elastichost.errors import DataError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

__all__ = ["open_s3", "s3_options"]

TEXTS = frozenset({"endpoint_override", "scheme", "region", "tls_ca_file_path"})
FLAGS = frozenset({"force_virtual_addressing", "anonymous"})
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


def s3_options(address: StoreAddress, environ: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of pyarrow's S3FileSystem that address and environment name. Without a region and an endpoint it
    has no "region": the bucket's is to be asked for. Raises DataError for an unknown option."""
    options: dict[str, Any] = {}
    for name, value in address.options:
        if name in FLAGS:
            options[name] = value.lower() in ("", "1", "true", "yes")
        elif name in TEXTS:
            options[name] = value
        else:
            known = ", ".join(sorted(TEXTS | FLAGS))
            raise DataError(f"{address.root}: unknown option {name!r}", hint=f"the options of S3 are {known}")
    endpoint = options.get("endpoint_override") or next((environ[one] for one in ENDPOINTS if environ.get(one)), "")
    if endpoint:
        parts = urlsplit(endpoint if "://" in endpoint else f"{options.get('scheme', 'https')}://{endpoint}")
        options |= {"endpoint_override": f"{parts.netloc}{parts.path.rstrip('/')}", "scheme": parts.scheme}
        options.setdefault("region", environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or "us-east-1")
    return options


def open_s3(address: StoreAddress, environ: Mapping[str, str], stall_s: float) -> FileSystem:
    """A client for the bucket of this address. Raises DataError, and OSError when the region cannot be found."""
    from pyarrow import fs

    options = s3_options(address, environ)
    if "region" not in options:
        options["region"] = fs.resolve_s3_region(address.authority)
    return fs.S3FileSystem(
        **options,
        connect_timeout=max(1.0, stall_s),
        request_timeout=float(math.ceil(stall_s)),
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=1),
    )
