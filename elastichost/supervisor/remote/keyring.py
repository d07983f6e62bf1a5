"""The keys of a run on several machines: a key pair for every incarnation, and which PS admits it already.

Keys come from `new_keys`; everything else follows from the arguments. Every change of the keys has a number. A PS that
has answered with this number or a later one (`AdmittedMsg`) knows the change.
"""

from __future__ import annotations

from elastichost.plan import ProcessId
from elastichost.wire.control import AdmitMsg
from elastichost.wire.security.keys import AllowList, KeyPair, new_keys

__all__ = ["Keyring"]


class Keyring:
    """The keys of all incarnations of a run. own: the supervisor's. allowed: the keys that the supervisor's gate
    admits, which are those of incarnations on other machines."""

    def __init__(self) -> None:
        self.own = new_keys()
        self.allowed = AllowList()
        self._keys: dict[ProcessId, str] = {}  # public keys of incarnations that may connect
        self._since: dict[ProcessId, int] = {}  # incarnation -> number of the change that added its key
        self._known: dict[ProcessId, int] = {}  # PS -> the number that it has answered
        self._number = 0

    def issue(self, process: ProcessId, *, is_elsewhere: bool) -> KeyPair:
        """Makes the keys of an incarnation that is about to be started. is_elsewhere: it is on another machine, and the
        supervisor's gate admits its key from now on."""
        keys = new_keys()
        self._number += 1
        self._keys[process], self._since[process] = keys.public, self._number
        if is_elsewhere:
            self.allowed.allow(keys.public, str(process))
        return keys

    def revoke(self, process: ProcessId) -> bool:
        """Revokes the key of an incarnation that has ended. Returns whether it had one."""
        self._known.pop(process, None)
        self._since.pop(process, None)
        if self._keys.pop(process, None) is None:
            return False
        self._number += 1
        self.allowed.revoke(str(process))
        return True

    def public(self, process: ProcessId) -> str:
        """The public key of an incarnation; "" if it has none."""
        return self._keys.get(process, "")

    def message(self) -> AdmitMsg:
        """The list of admitted keys for the PS, with the number of the last change."""
        return AdmitMsg(self._number, tuple(sorted((key, str(process)) for process, key in self._keys.items())))

    def admitted(self, server: ProcessId, number: int) -> None:
        """Records the number that a PS has answered."""
        if server in self._keys:
            self._known[server] = max(number, self._known.get(server, 0))

    def is_known_to(self, process: ProcessId, server: ProcessId) -> bool:
        """Whether the PS admits the incarnation `process`."""
        since = self._since.get(process)
        return process == server or (since is not None and self._known.get(server, 0) >= since)
