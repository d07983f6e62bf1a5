"""A folder of results: one file for each run of an arm, so that a long benchmark can be interrupted and continued."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from benchmarks.colocate.recorded import ArmRun, Campaign, Cold, Sweep

__all__ = ["Keep"]

One = TypeVar("One")


class Keep:
    """The files of the folder: campaign.json (settings of all runs), arms/MIX.ARM.ROUND.json, sweep.json, cold.json."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def campaign(self) -> Campaign | None:
        """The settings of the runs in this folder; None for a new folder. Raises ValueError if they cannot be read."""
        path = self.folder / "campaign.json"
        return _read(path, Campaign) if path.exists() else None

    def begin(self, campaign: Campaign) -> None:
        """Records the settings. Raises ValueError if the folder holds runs of other jobs or of another machine."""
        before = self.campaign()
        if before is None:
            (self.folder / "arms").mkdir(parents=True, exist_ok=True)
            _write(self.folder / "campaign.json", campaign)
            return
        if (before.size, before.jobs, before.gpu) != (campaign.size, campaign.jobs, campaign.gpu):
            on_gpu = " on a GPU" if before.gpu else ""
            raise ValueError(
                f"{self.folder} holds {before.size} runs of {before.jobs} jobs{on_gpu}: use another folder"
            )
        if (before.machine.cpu, before.machine.cores) != (campaign.machine.cpu, campaign.machine.cores):
            raise ValueError(f"{self.folder} holds runs of another machine ({before.machine.cpu}): use another folder")

    def run(self, mix: str, arm: str, number: int) -> ArmRun | None:
        """A kept run; None if it is missing, or if it failed and must run again."""
        path = self._arm(mix, arm, number)
        found = _read(path, ArmRun) if path.exists() else None
        return found if found is not None and not found.failure else None

    def add(self, run: ArmRun) -> None:
        _write(self._arm(run.mix, run.arm, run.round), run)

    def _arm(self, mix: str, arm: str, number: int) -> Path:
        return self.folder / "arms" / f"{mix}.{arm}.{number}.json"

    def runs(self) -> tuple[ArmRun, ...]:
        """All kept runs, including failed ones. Raises ValueError for a file that cannot be read."""
        return tuple(_read(path, ArmRun) for path in sorted((self.folder / "arms").glob("*.json")))

    def sweeps(self) -> dict[str, Sweep]:
        """The sweeps by shape."""
        return {one.shape: one for one in self._list("sweep.json", Sweep)}

    def add_sweeps(self, sweeps: Iterable[Sweep]) -> None:
        kept = self.sweeps() | {one.shape: one for one in sweeps}
        _write(self.folder / "sweep.json", list(kept.values()))

    def colds(self) -> dict[str, Cold]:
        """The cold starts by kind."""
        return {one.kind: one for one in self._list("cold.json", Cold)}

    def add_cold(self, cold: Cold) -> None:
        _write(self.folder / "cold.json", list((self.colds() | {cold.kind: cold}).values()))

    def _list(self, name: str, kind: type[One]) -> list[One]:
        path = self.folder / name
        return _read(path, list[kind]) if path.exists() else []  # type: ignore[valid-type]


def _read(path: Path, kind: type[One]) -> One:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error


def _write(path: Path, value: object) -> None:
    """Writes a file atomically."""
    partial = path.with_suffix(".partial")
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")
    partial.replace(path)
