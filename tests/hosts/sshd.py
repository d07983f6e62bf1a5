"""A small sshd for tests: `python -m tests.hosts.sshd ADDRESS PORT HOST_KEY AUTHORIZED_KEYS`.

It accepts any user name, but only with a key, and runs each command with a shell, as OpenSSH does. When it listens, it
prints its port.
"""

from __future__ import annotations

import asyncio
import os
import sys

import asyncssh


class _Connection(asyncssh.SSHServer):
    def begin_auth(self, username: str) -> bool:
        return True


async def _copy(source: asyncio.StreamReader, target: asyncssh.SSHWriter[bytes]) -> None:
    while data := await source.read(1 << 16):
        target.write(data)
        await target.drain()


async def _serve_command(process: asyncssh.SSHServerProcess[bytes]) -> None:
    peer, own = process.get_extra_info("peername"), process.get_extra_info("sockname")
    environment = {**os.environ, "SSH_CONNECTION": f"{peer[0]} {peer[1]} {own[0]} {own[1]}"}
    child = await asyncio.create_subprocess_shell(
        process.command or "false",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    assert child.stdin is not None and child.stdout is not None and child.stderr is not None
    try:
        await process.redirect(stdin=child.stdin, send_eof=True)
        # Both outputs are complete before the exit code is sent: the last lines may be the reason of an error.
        await asyncio.gather(_copy(child.stdout, process.stdout), _copy(child.stderr, process.stderr))
        process.exit(await child.wait())
    except (OSError, asyncssh.Error):
        pass  # the connection is gone
    finally:
        child.stdin.close()  # the child sees the end of the connection as the end of its input


async def _serve(address: str, port: int, host_key: str, authorized_keys: str) -> None:
    server = await asyncssh.create_server(
        _Connection,
        address,
        port,
        server_host_keys=[host_key],
        authorized_client_keys=authorized_keys,
        process_factory=_serve_command,
        encoding=None,
        keepalive_interval=2,
        keepalive_count_max=3,
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]))
