"""CURVE keys of processes, and the list of processes that a gate admits.

Within one machine no keys are needed: sockets are files in a directory that only its user can enter. A socket that
other machines reach also has a *gate*: an address of one named interface that accepts only the CURVE protocol, and a
list of the admitted public keys, each of which belongs to one process. The server's public key alone does not admit a
client. The supervisor makes all keys and sends them over the standard input of ssh, so no key is in argv, in the
environment or in a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import zmq

if TYPE_CHECKING:
    from zmq.auth.thread import ThreadAuthenticator

__all__ = [
    "AllowList",
    "Gate",
    "KeyPair",
    "Pass",
    "gate_at",
    "guard",
    "is_version_6",
    "new_keys",
    "present",
]

DOMAIN = "elastichost"
# A connection without a complete handshake after this time is closed, because it costs a descriptor.
HANDSHAKE_MS = 3000


class KeyPair(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A CURVE key pair, each key in Z85 (40 characters). `repr` does not show the secret key."""

    public: str
    secret: str

    def __repr__(self) -> str:
        return f"KeyPair(public={self.public!r})"


class Pass(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys for a connection to a gate. keys: the client's own. server: the public key that the server must have."""

    keys: KeyPair
    server: str


def new_keys() -> KeyPair:
    """Makes a key pair from the kernel's random numbers."""
    public, secret = zmq.curve_keypair()
    return KeyPair(public.decode("ascii"), secret.decode("ascii"))


class AllowList:
    """The public keys that a gate admits, each with the name of its process. A thread of the ZeroMQ library reads the
    list while its owner changes it, so each change replaces the list as a whole."""

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        self._names = dict(names or {})

    def replace(self, names: Mapping[str, str]) -> None:
        """Replaces the list. names: public key -> process (`worker-0.1`). Messages of processes that are not in the new
        list are refused from now on."""
        self._names = dict(names)

    def allow(self, key: str, name: str) -> None:
        self._names = {**self._names, key: name}

    def revoke(self, name: str) -> None:
        """Removes all keys of one process."""
        self._names = {key: other for key, other in self._names.items() if other != name}

    def speaker(self, key: str) -> str | None:
        """The process that this key belongs to; None if the key is not admitted."""
        return self._names.get(key)

    def is_allowed(self, name: str) -> bool:
        """Whether the process has an admitted key."""
        return name in self._names.values()

    def callback(self, domain: str, key: bytes) -> bool:
        """Whether a key is admitted. `zmq.auth` calls this at each handshake."""
        return domain == DOMAIN and key.decode("ascii", "replace") in self._names


@dataclass(frozen=True, slots=True)
class Gate:
    """The address and the keys at which other machines reach a socket. address: of one interface, as `gate_at` gives
    it, or with a port."""

    address: str
    keys: KeyPair
    allowed: AllowList


def gate_at(address: str) -> str:
    """The address of a gate at any free port of an IP address."""
    return f"tcp://[{address}]:*" if ":" in address else f"tcp://{address}:*"


def is_version_6(address: str) -> bool:
    """Whether an address such as `tcp://[::1]:5000` is an IPv6 address."""
    return address.startswith("tcp://[")


def guard(gate: Gate, socket: zmq.Socket[bytes], context: zmq.Context[zmq.Socket[bytes]]) -> ThreadAuthenticator:
    """Makes a socket require CURVE with an admitted key. Call it before the socket is bound to the gate, and `stop` the
    returned authenticator before the context ends."""
    from zmq.auth.thread import ThreadAuthenticator  # it imports asyncio, so it is imported only if there is a gate

    authenticator = ThreadAuthenticator(context)
    authenticator.start()
    authenticator.configure_curve_callback(DOMAIN, gate.allowed)
    socket.setsockopt(zmq.CURVE_SERVER, 1)
    socket.setsockopt(zmq.CURVE_PUBLICKEY, gate.keys.public.encode())
    socket.setsockopt(zmq.CURVE_SECRETKEY, gate.keys.secret.encode())
    socket.setsockopt_string(zmq.ZAP_DOMAIN, DOMAIN)
    socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
    return authenticator


def present(shown: Pass, socket: zmq.Socket[bytes]) -> None:
    """Sets the keys of a client's socket. Call it before the socket is connected."""
    socket.setsockopt(zmq.CURVE_SERVERKEY, shown.server.encode())
    socket.setsockopt(zmq.CURVE_PUBLICKEY, shown.keys.public.encode())
    socket.setsockopt(zmq.CURVE_SECRETKEY, shown.keys.secret.encode())
