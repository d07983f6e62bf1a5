"""The stores that the threads of a process have opened: one client for each bucket and its options."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from typing import Protocol

from elastichost.datasets.sources.transports.addressed_file import SourceError
from elastichost.datasets.sources.transports.addresses import StoreAddress
from elastichost.datasets.sources.transports.arrow_store import ArrowStore
from elastichost.datasets.sources.transports.fsspec_store import FsspecStore
from elastichost.datasets.sources.transports.s3_options import open_s3
from elastichost.datasets.sources.transports.store_errors import typed
from elastichost.errors import DataError

__all__ = ["OpenStore", "OpenStores"]

S3 = ("s3", "s3a")
OF_ARROW = ("gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")
GOOGLE = ("gs", "gcs")


class OpenStore(Protocol):
    """A bucket, or a server. Its methods raise what its library raises."""

    @property
    def ends_by_itself(self) -> bool:
        """Whether a call ends when no byte arrives for `stall_s`."""
        ...

    def stat(self, key: str) -> tuple[int, int]:
        """(size in bytes, version or 0), as the store says now."""
        ...

    def read(self, key: str, start: int, stop: int) -> bytes:
        """The bytes; fewer where the file is shorter."""
        ...

    def has_root(self) -> bool:
        """Whether the bucket is there."""
        ...

    def keys(self, folder: str, *, is_deep: bool) -> Iterator[str]:
        """The files below a folder; is_deep: and below its folders."""
        ...


class OpenStores:
    """Usable by several threads. stall_s: time without a byte after which a request fails."""

    def __init__(self, stall_s: float, environ: Mapping[str, str] = os.environ) -> None:
        self.stall_s, self._environ = stall_s, environ
        self._lock = threading.Lock()
        self._open: dict[str, OpenStore] = {}

    def of(self, address: StoreAddress) -> OpenStore:
        """The store of this address. Raises DataError when there is no library for it or an option is wrong,
        SourceError when it cannot be reached now."""
        with self._lock:
            found = self._open.get(address.root)
        if found is None:
            made = self._made(address)
            with self._lock:
                found = self._open.setdefault(address.root, made)
        return found

    def _made(self, address: StoreAddress) -> OpenStore:
        try:
            if address.scheme in S3:
                return ArrowStore(open_s3(address, self._environ, self.stall_s), address.authority, ends_by_itself=True)
            if address.scheme in OF_ARROW:
                return self._of_arrow(address)
            return _of_fsspec(address)
        except (DataError, SourceError):
            raise
        except ImportError as error:
            raise DataError(
                f"{address.root}: the library that reads {address.scheme}:// is not installed ({error})",
                hint=f"install the package that fsspec names for {address.scheme}, on each host",
            ) from error
        except ValueError as error:
            raise DataError(f"{address.root}: not an address of a store ({error})", hint=SCHEMES_HINT) from error
        except OSError as error:
            if "libjvm" in str(error) or "libhdfs" in str(error):
                raise DataError(
                    f"{address.root}: HDFS needs Java and Hadoop's client library, which are not found here",
                    hint="install both, and set JAVA_HOME, HADOOP_HOME and CLASSPATH as pyarrow documents it",
                ) from error
            raise typed(address.root, error) from error

    def _of_arrow(self, address: StoreAddress) -> OpenStore:
        from pyarrow import fs

        options = dict(address.options)
        if address.scheme in GOOGLE:  # its client retries by itself; here `patience` does
            options.setdefault("retry_limit_seconds", f"{self.stall_s:g}")
        root = StoreAddress(address.scheme, address.authority, "", tuple(options.items()))
        files, base = fs.FileSystem.from_uri(root.root)
        return ArrowStore(files, base, ends_by_itself=False)


SCHEMES_HINT = "s3://, gs://, abfs:// and hdfs:// are read, and what fsspec has an installed package for"


def _of_fsspec(address: StoreAddress) -> OpenStore:
    import fsspec

    if address.scheme not in fsspec.available_protocols():
        raise DataError(
            f"{address.root}: is a URL, but nothing here reads {address.scheme}://",
            hint=f"{SCHEMES_HINT}; or download the file, and give its path",
        )
    files, base = fsspec.core.url_to_fs(
        f"{address.scheme}://{address.authority}", use_listings_cache=False, **dict(address.options)
    )
    return FsspecStore(files, base)
