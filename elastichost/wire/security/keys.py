"""CURVE keys of processes, and who may come in where other machines can knock.

Within one machine no keys are needed: sockets are files in a directory that only its user can enter. A socket on a
network has a *gate* beside that: an address of one named interface, where CURVE is spoken and nothing else, and a list
of the public keys that may come in, each for one process. A client that knows the server's key is not let in by that
alone. Keys are made by the supervisor, travel over the standard input of ssh, and are in no argv, environment or file.
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
# Whoever does not shake hands within this is sent away: what waits at the door costs a descriptor.
HANDSHAKE_MS = 3000


class KeyPair(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Both in Z85, 40 characters. The secret is shown by no `repr`."""

    public: str
    secret: str

    def __repr__(self) -> str:
        return f"KeyPair(public={self.public!r})"


class Pass(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a client shows: its own keys; and the public key that the server has to have."""

    keys: KeyPair
    server: str


def new_keys() -> KeyPair:
    """From the kernel's randomness."""
    public, secret = zmq.curve_keypair()
    return KeyPair(public.decode("ascii"), secret.decode("ascii"))


class AllowList:
    """Public keys that may come in, and for whom each speaks. A thread of the library asks while its owner changes it:
    the list is replaced as a whole."""

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        self._names = dict(names or {})

    def replace(self, names: Mapping[str, str]) -> None:
        """names: public key -> process (`worker-0.1`). Who is not among them any more is heard no more."""
        self._names = dict(names)

    def allow(self, key: str, name: str) -> None:
        self._names = {**self._names, key: name}

    def revoke(self, name: str) -> None:
        """All keys of one process."""
        self._names = {key: other for key, other in self._names.items() if other != name}

    def speaker(self, key: str) -> str | None:
        """For whom the holder of this key speaks; None: for nobody."""
        return self._names.get(key)

    def is_allowed(self, name: str) -> bool:
        """Whether that process has a key."""
        return name in self._names.values()

    def callback(self, domain: str, key: bytes) -> bool:
        """As `zmq.auth` asks, at each handshake."""
        return domain == DOMAIN and key.decode("ascii", "replace") in self._names


@dataclass(frozen=True, slots=True)
class Gate:
    """Where other machines reach a socket. address: of one interface, as `gate_at` names it, or with a port."""

    address: str
    keys: KeyPair
    allowed: AllowList


def gate_at(address: str) -> str:
    """Any free port of an address, as a gate is named."""
    return f"tcp://[{address}]:*" if ":" in address else f"tcp://{address}:*"


def is_version_6(address: str) -> bool:
    """Whether `tcp://[::1]:5000` is an address of IPv6."""
    return address.startswith("tcp://[")


def guard(gate: Gate, socket: zmq.Socket[bytes], context: zmq.Context[zmq.Socket[bytes]]) -> ThreadAuthenticator:
    """Before the socket is bound there. `stop` what is returned before the context ends."""
    from zmq.auth.thread import ThreadAuthenticator  # asyncio comes with it: only where there is a gate

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
    """Before the socket is connected."""
    socket.setsockopt(zmq.CURVE_SERVERKEY, shown.server.encode())
    socket.setsockopt(zmq.CURVE_PUBLICKEY, shown.keys.public.encode())
    socket.setsockopt(zmq.CURVE_SECRETKEY, shown.keys.secret.encode())
