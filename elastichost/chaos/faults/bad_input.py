"""The check of promise E: bad input for the command line, and garbage for the sockets of a run, must be refused."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import msgspec
import zmq
from typing_extensions import Buffer

from elastichost.chaos.schedule import unit_draw
from elastichost.chaos.verdicts import Verdict
from elastichost.checkpoint.format import checkpoint_directories, load_manifest
from elastichost.checkpoint.places import RUN_FILE
from elastichost.run_files import CHECKPOINTS_FOLDER, RESOLVED_JOB_FILE
from elastichost.wire.codec import Codec, Frame
from elastichost.wire.control import ControlMessage, DrainedMsg, FailureReportMsg

__all__ = ["InputRefusal", "check_refusals", "feed_bad_input", "garbage_messages", "send_garbage"]

LIMIT_S = 120.0
CHUNK_BYTES = 4096
# Larger checkpoints are not tried: `resume` reads every block, which takes too long.
MOST_COPIED_BYTES = 2 << 30


@dataclass(frozen=True, slots=True)
class InputRefusal:
    """The answer of the command line to a bad input, and the expected answer. words: the message must contain them."""

    case: str
    exit_code: int
    error_type: str
    message: str
    expected_codes: tuple[int, ...]
    expected_type: str
    words: tuple[str, ...]


def check_refusals(refusals: Sequence[InputRefusal], garbage: Sequence[str], sent: int) -> Verdict:
    """The verdict on promise E. garbage: violations after `sent` pieces of garbage were sent to the sockets of the
    run."""
    problems = list(garbage)
    for one in refusals:
        if one.exit_code not in one.expected_codes:
            problems.append(f"{one.case}: exit code {one.exit_code} instead of {one.expected_codes[0]}")
        if one.error_type != one.expected_type:
            problems.append(f"{one.case}: a {one.error_type or 'traceback'} instead of a {one.expected_type}")
        problems += [f"{one.case}: the message does not name {word!r}" for word in one.words if word not in one.message]
    return Verdict.of("E", f"tried {len(refusals)} bad inputs and {sent} pieces of garbage", problems)


# --- the command line -------------------------------------------------------------------------------------------------


def feed_bad_input(job: Path, run_dir: Path, environment: Mapping[str, str]) -> tuple[InputRefusal, ...]:
    """Calls the command line with each bad input. The run in `run_dir` must have ended; it is not changed. environment:
    additional variables of the commands."""
    with tempfile.TemporaryDirectory(prefix="chaos-elastichost-") as name:
        return tuple(case(environment) for case in _cases(job.resolve(), run_dir, Path(name)))


Case = Callable[[Mapping[str, str]], InputRefusal]


def _cases(job: Path, run_dir: Path, scratch: Path) -> Iterator[Case]:
    yield _Call(
        "an unknown key", ("run", str(job), "--set", "train.bacth_size=3"), (2,), "ConfigError", ("batch_size",)
    )
    yield _Call("a missing job file", ("run", "missing.toml"), (2,), "ConfigError", ("missing.toml",), scratch)
    data = scratch / "data.toml"
    data.write_text(
        '[model]\nbuild = "elastichost.models:dlrm"\n[data]\nformat = "parquet"\ntrain = "missing.parquet"\n'
        'label = "label"\ncategorical = ["c"]\n[tables.default]\ndim = 4\nrows = "dynamic"\n'
    )
    words = ("missing.parquet",)
    yield _Call("a missing data file", ("run", str(data), "--dry-run"), (3,), "DataError", words, scratch)
    kept = [
        path for path in checkpoint_directories(run_dir / CHECKPOINTS_FOLDER) if not path.name.endswith(".replaced")
    ]
    if kept and _bytes_of(kept[0]) <= MOST_COPIED_BYTES:
        for what, spoil in (("a truncated checkpoint", _truncate), ("a checkpoint with a flipped bit", _flip)):
            copy = scratch / what.replace(" ", "-")
            (copy / CHECKPOINTS_FOLDER).mkdir(parents=True)
            for file in (RESOLVED_JOB_FILE, RUN_FILE):
                shutil.copy(run_dir / file, copy)
            shutil.copytree(kept[0], copy / CHECKPOINTS_FOLDER / kept[0].name)
            spoilt = spoil(copy / CHECKPOINTS_FOLDER / kept[0].name)
            yield _Call(what, ("resume", str(copy)), (1,), "CheckpointError", (spoilt.name,), scratch)


@dataclass(frozen=True, slots=True)
class _Call:
    case: str
    words: tuple[str, ...]
    codes: tuple[int, ...]
    error_type: str
    named: tuple[str, ...]
    folder: Path | None = None

    def __call__(self, environment: Mapping[str, str]) -> InputRefusal:
        command = [sys.executable, "-m", "elastichost", *self.words, "--json"]
        try:
            done = subprocess.run(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                env={**os.environ, **_python_path(), **environment},
                timeout=LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            said = f"it was not refused within {LIMIT_S:g} s"
            return InputRefusal(self.case, 0, "", said, self.codes, self.error_type, self.named)
        error_type, message = "", done.stderr[-2000:]
        if done.stdout.strip():
            error = json.loads(done.stdout.splitlines()[-1]).get("error", {})
            error_type = error.get("type", "")
            message = " ".join([error.get("message", ""), *error.get("problems", ())])
        return InputRefusal(self.case, done.returncode, error_type, message, self.codes, self.error_type, self.named)


def _python_path() -> dict[str, str]:
    """The variable that makes a command use this package, from any directory."""
    root = str(Path(__file__).parents[3])
    return {"PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))}


def _bytes_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


def _largest(directory: Path) -> Path:
    return max(directory.glob("*.bin"), key=lambda path: path.stat().st_size)


def _truncate(directory: Path) -> Path:
    path = _largest(directory)
    os.truncate(path, path.stat().st_size // 2)
    return path


def _flip(directory: Path) -> Path:
    """Flips a bit within the largest block, because bytes between blocks have no meaning."""
    block = max(load_manifest(directory).blocks, key=lambda block: block.nbytes)
    path = directory / block.file
    with path.open("r+b") as file:
        file.seek(block.offset + block.nbytes // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 0x10]))
    return path


# --- sockets ----------------------------------------------------------------------------------------------------------


def send_garbage(sockets: Path, run_id: str, seed: int) -> int:
    """Sends garbage to every socket of a run: bytes that are not ZMTP, invalid messages, messages of other jobs, and
    messages with a wrong sender. Returns the number of pieces sent."""
    job_id, sent = int(run_id, 16), 0
    paths = sorted(path for path in sockets.iterdir() if path.is_socket())
    context = zmq.Context()
    try:
        for number, path in enumerate(paths):
            sent += _no_zmtp(path, seed + number)
            sent += _no_messages(context, path, seed + number, job_id)
    finally:
        context.destroy(linger=500)
    return sent


def _noise(seed: int, count: int) -> bytes:
    return b"".join(struct.pack("<Q", int(unit_draw(seed, place) * 2**53)) for place in range(-(-count // 8)))[:count]


def _no_zmtp(path: Path, seed: int) -> int:
    pieces = (b"", b"GET / HTTP/1.1\r\n\r\n", _noise(seed, CHUNK_BYTES), b"\xff" + bytes(8) + b"\x7f\x03")
    for piece in pieces:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(1.0)
            try:
                connection.connect(str(path))
                connection.sendall(piece)
            except OSError:
                continue  # the socket refused it, which is also right
    return len(pieces)


def _no_messages(context: zmq.Context[zmq.Socket[bytes]], path: Path, seed: int, job_id: int) -> int:
    pieces = list(garbage_messages(seed, job_id))
    client = context.socket(zmq.DEALER)
    client.setsockopt(zmq.IDENTITY, b"worker-0.1000000/garbage")
    client.setsockopt(zmq.SNDTIMEO, 1000)
    client.connect(f"ipc://{path}")
    for piece in pieces:
        client.send_multipart([_plain(part) for part in piece])
    client.close(linger=500)
    return len(pieces)


def _plain(part: Frame) -> bytes:
    return bytes(memoryview(cast(Buffer, part)))


def garbage_messages(seed: int, job_id: int) -> Iterator[Sequence[Frame]]:
    """Messages, as lists of their parts, that no process of the job may accept. One is valid, but a peer claims with it
    to be the supervisor."""
    supervisor: Codec[ControlMessage] = Codec(ControlMessage, job_id, None)
    other: Codec[ControlMessage] = Codec(ControlMessage, job_id ^ 1, None)
    good = supervisor.encode(DrainedMsg())
    header, body = _plain(good[0]), _plain(good[1])
    yield [b""]
    yield [_noise(seed, 64), _noise(seed + 1, 64)]
    yield [header]
    yield [header[:-1], body]
    yield [header, body, b"one frame too many"]
    yield [header, body[:-1] + bytes([body[-1] ^ 1])]
    yield good  # a message of the supervisor
    yield other.encode(DrainedMsg())
    yield [b"x"] * 5000
    report = FailureReportMsg(error_type="abc", message="", hint="", traceback_text="")
    for body in (
        msgspec.msgpack.encode({"type": "__reduce__", "module": "os", "name": "system"}),
        msgspec.msgpack.encode(report).replace(b"abc", b"\xa4\xff\xfe"),  # a string that is not UTF-8
        b"\x91" * 100_000,  # nested lists
    ):
        sizes = struct.pack("<IIQI", len(body), 0, 0, zlib.crc32(body))
        yield [header[: -len(sizes)] + sizes, body]
