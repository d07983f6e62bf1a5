"""A server that speaks S3, in a process of its own, for tests of stores."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import fs

__all__ = ["BUCKET", "S3Server", "s3_environment", "store"]

BUCKET = "clicks"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_EC2_METADATA_DISABLED": "true",
}
PROGRAM = """
import sys, threading
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=True)
print(server.server_port, flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.read()
"""


class S3Server:
    """Use as a context manager. It has one bucket, BUCKET."""

    def __enter__(self) -> S3Server:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        self.files = fs.S3FileSystem(
            access_key="test",
            secret_key="test",
            region="us-east-1",
            endpoint_override=f"127.0.0.1:{self.port}",
            scheme="http",
            allow_bucket_creation=True,
        )
        self.files.create_dir(BUCKET)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def put(self, key: str, content: bytes) -> None:
        with self.files.open_output_stream(f"{BUCKET}/{key}", compression=None) as file:
            file.write(content)

    def put_file(self, path: Path, key: str) -> None:
        self.put(key, path.read_bytes())

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def url(self, key: str, endpoint: str = "") -> str:
        return f"s3://{BUCKET}/{key}?endpoint_override={endpoint or self.endpoint}"


@pytest.fixture(scope="session")
def store() -> Iterator[S3Server]:
    with S3Server() as made:
        yield made


@pytest.fixture(autouse=True)
def s3_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
