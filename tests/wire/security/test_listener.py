"""Many connections to a gate neither use up the descriptors of the process nor keep admitted processes out."""

from __future__ import annotations

import contextlib
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LIMIT, CROWD = 4096, 3000
# A process with few descriptors. It prints the address of its gate, then the result after many clients have connected
# and left.
PROGRAM = f"""
import json, os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (512, {LIMIT}))
from elastichost.plan import ProcessId
from elastichost.wire.control import DrainedMsg
from elastichost.wire.security.keys import AllowList, Gate, Pass, gate_at, new_keys
from elastichost.wire.sockets import ControlClient, ControlServer

keys, of_friend, friend = new_keys(), new_keys(), ProcessId("worker", 0, 1)
allowed = AllowList({{of_friend.public: str(friend)}})
server = ControlServer("ipc://" + sys.argv[1], 7, Gate(gate_at("127.0.0.1"), keys, allowed))
client = ControlClient(server.outer_address, 7, friend, Pass(of_friend, keys.public))

def hear():
    client.send(DrainedMsg())
    while (envelope := server.receive()) is None:
        server.poll(0.02)
    assert envelope.sender == friend

hear()
before, most, was_shut = len(os.listdir("/proc/self/fd")), 0, False
print(server.outer_address, flush=True)
while not (was_shut and not server._outer._door.is_shut and most > before + 5 > len(os.listdir("/proc/self/fd"))):
    server.receive()
    server.poll(0.02)
    most = max(most, len(os.listdir("/proc/self/fd")))
    if server._outer._door.is_shut and not was_shut:
        was_shut = True
        hear()  # the connected client is still served: it could not reconnect now
        assert server._outer._door.is_shut
print(json.dumps(most), flush=True)
for _ in sys.stdin:
    server.receive()
"""


def test_many_silent_connections_do_not_use_up_the_descriptors(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < LIMIT:
        pytest.skip(f"a process may have {hard} descriptors here: too few for this test")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, LIMIT), hard))
    server_process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "c")],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server_process.stdin is not None and server_process.stdout is not None
    crowd: list[socket.socket] = []
    try:
        port = int(server_process.stdout.readline().rpartition(":")[2])
        for _ in range(CROWD):
            guest = socket.socket()
            guest.setblocking(False)
            guest.connect_ex(("127.0.0.1", port))
            crowd.append(guest)
            with contextlib.suppress(OSError):  # a client that is not connected yet cannot send
                guest.send(b"\xff")
        assert LIMIT // 2 < int(server_process.stdout.readline()) < LIMIT, (
            "some connections were accepted, then closed without a handshake"
        )
    finally:
        for guest in crowd:
            guest.close()
        server_process.stdin.close()
        server_process.wait()
        server_process.stdout.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
