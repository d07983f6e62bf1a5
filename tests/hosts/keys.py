"""Keys of a test's hosts and of its user, and the options that make ssh use only these keys."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 30.0


@dataclass(frozen=True, slots=True)
class SshKeys:
    """A folder with the files of one test: the hosts' key, the user's key, and known_hosts."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> SshKeys:
        folder.mkdir(mode=0o700)
        for name in ("host", "user"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(folder / name)], check=True
            )
        (folder / "known_hosts").touch()
        return cls(folder)

    def know(self, address: str, port: int) -> None:
        """Adds a host to known_hosts, as a first login does."""
        key = (self.folder / "host.pub").read_text().split()
        name = address if port == 22 else f"[{address}]:{port}"
        with (self.folder / "known_hosts").open("a") as file:
            file.write(f"{name} {key[0]} {key[1]}\n")

    def options(self, port: int) -> list[str]:
        """Options for ssh: no key and no setting of the user that runs the tests is used."""
        files = [f"UserKnownHostsFile={self.folder}/known_hosts", f"IdentityFile={self.folder}/user"]
        settings = ["IdentitiesOnly=yes", "IdentityAgent=none", "GlobalKnownHostsFile=/dev/null", *files]
        return ["-F", "/dev/null", "-p", str(port), *(part for one in settings for part in ("-o", one))]

    def start_sshd(self, address: str, port: int = 0, prefix: Sequence[str] = ()) -> tuple[subprocess.Popen[str], int]:
        """Starts an sshd. Returns (process, port). prefix: words in front of its command, as `ip netns exec NAME`."""
        arguments = [address, str(port), str(self.folder / "host"), str(self.folder / "user.pub")]
        process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "tests.hosts.sshd", *arguments],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, "the sshd ended before it listened"
        return process, int(line)
