"""What stands before the training data of a job, so that its source can have faults.

Files of one folder are served by a web server of our own. Before a server that is there already (a web server, or a
store that speaks S3) comes a proxy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from elastichost.chaos.faults.source_process import SourceProcess
from elastichost.chaos.faults.source_proxy import SourceProxy
from elastichost.chaos.faults.source_server import SourceServer
from elastichost.config.job import JobSpec
from elastichost.datasets.files import expand_patterns, is_url
from elastichost.datasets.sources.transports.addresses import is_store, parsed
from elastichost.datasets.sources.transports.s3_options import s3_options
from elastichost.errors import ConfigError

__all__ = ["FaultySource"]

OTHER = "choose other faults with --fault, or another job"


class FaultySource:
    """process: stands before the data; a context manager. Raises ConfigError when nothing can stand there."""

    def __init__(self, spec: JobSpec, environ: Mapping[str, str]) -> None:
        self._spec, self._environ = spec, environ
        self._is_remote = all(map(is_url, spec.data.train)) and bool(spec.data.train)
        self.process: SourceProcess = self._proxy() if self._is_remote else self._server()

    def settings(self) -> tuple[str, ...]:
        """The settings with which workers read through the process, which must run."""
        data = self._spec.data
        if not self._is_remote:
            assert isinstance(self.process, SourceServer)
            urls = [self.process.url(Path(file).name) for file in expand_patterns(data.train)[0]]
            return (f"data.train={json.dumps(urls)}",)
        splits = (("train", data.train), ("test", data.test))
        return tuple(f"data.{name}={json.dumps([self._moved(one) for one in urls])}" for name, urls in splits if urls)

    def _server(self) -> SourceServer:
        files, missing = expand_patterns(self._spec.data.train)
        folders = {Path(file).parent for file in files}
        if self._spec.data.format != "parquet" or missing or len(folders) != 1:
            raise ConfigError("faults of the source need training data in Parquet files of one folder", hint=OTHER)
        return SourceServer(folders.pop())

    def _proxy(self) -> SourceProxy:
        endpoints = {self._endpoint(url) for url in self._spec.data.train}
        host, _, port = next(iter(endpoints)).rpartition(":")
        if len(endpoints) != 1 or not host:
            raise ConfigError(
                "faults of the source need training data at one server, which is reached over http, not https",
                hint=f"for a store name its address with AWS_ENDPOINT_URL=http://HOST:PORT; or {OTHER}",
            )
        return SourceProxy(host, int(port))

    def _endpoint(self, url: str) -> str:
        """Host and port of the server; "": it is not reached over plain http."""
        if not is_store(url):
            parts = urlsplit(url)
            return f"{parts.hostname}:{parts.port or 80}" if parts.scheme == "http" else ""
        address = parsed(url)
        if address.scheme not in ("s3", "s3a"):
            return ""
        options = s3_options(address, self._environ)
        if "endpoint_override" not in options or options["scheme"] != "http":
            return ""
        parts = urlsplit(f"http://{options['endpoint_override']}")
        return f"{parts.hostname}:{parts.port or 80}"

    def _moved(self, url: str) -> str:
        """The address by which the file is reached through the proxy; of another server: the same."""
        assert isinstance(self.process, SourceProxy)
        if not is_url(url) or self._endpoint(url) != self._endpoint(self._spec.data.train[0]):
            return url
        if not is_store(url):
            return urlunsplit(urlsplit(url)._replace(netloc=f"127.0.0.1:{self.process.port}"))
        address = parsed(url)
        others = tuple((name, value) for name, value in address.options if name not in ("endpoint_override", "scheme"))
        through = replace(address, options=(*others, ("endpoint_override", self.process.endpoint)))
        return through.url(address.key)
