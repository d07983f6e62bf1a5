"""Keys of a run over several machines: one pair for every incarnation, who has to let whom in, and which PS does
already.

Keys come from `new_keys`; all else follows from the arguments. Every change has a number; a PS that has answered
`Admitted` with it, or a later one, knows of the change.
"""

from __future__ import annotations

from elastichost.plan import ProcessId
from elastichost.wire.control import AdmitMsg
from elastichost.wire.security.keys import AllowList, KeyPair, new_keys

__all__ = ["Keyring"]


class Keyring:
    """own: the supervisor's; allowed: who may come in at its gate: incarnations on other machines, and nobody else."""

    def __init__(self) -> None:
        self.own = new_keys()
        self.allowed = AllowList()
        self._keys: dict[ProcessId, str] = {}  # public ones, of incarnations that may speak
        self._since: dict[ProcessId, int] = {}
        self._known: dict[ProcessId, int] = {}  # PS -> what it has answered
        self._number = 0

    def issue(self, process: ProcessId, *, is_elsewhere: bool) -> KeyPair:
        """For an incarnation that is about to be started, on another machine or here: it may speak from now on."""
        keys = new_keys()
        self._number += 1
        self._keys[process], self._since[process] = keys.public, self._number
        if is_elsewhere:
            self.allowed.allow(keys.public, str(process))
        return keys

    def revoke(self, process: ProcessId) -> bool:
        """An incarnation that has ended. Whether it had a key."""
        self._known.pop(process, None)
        self._since.pop(process, None)
        if self._keys.pop(process, None) is None:
            return False
        self._number += 1
        self.allowed.revoke(str(process))
        return True

    def public(self, process: ProcessId) -> str:
        """ "" for an incarnation without a key."""
        return self._keys.get(process, "")

    def message(self) -> AdmitMsg:
        """What PS are to be told."""
        return AdmitMsg(self._number, tuple(sorted((key, str(process)) for process, key in self._keys.items())))

    def admitted(self, server: ProcessId, number: int) -> None:
        """A PS has answered."""
        if server in self._keys:
            self._known[server] = max(number, self._known.get(server, 0))

    def is_known_to(self, process: ProcessId, server: ProcessId) -> bool:
        """Whether this PS lets that incarnation in."""
        since = self._since.get(process)
        return process == server or (since is not None and self._known.get(server, 0) >= since)
