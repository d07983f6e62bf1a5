"""Everything that is reported as saved survives a power cut. A kill cannot show a missing fsync, but the order of the
calls can."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from elastichost.checkpoint.format import MANIFEST_NAME
from elastichost.plan import ProcessId
from elastichost.runs.events import EpochStarted, LeaseGranted, RunStarted
from elastichost.runs.journal import LEASES_FILE, SYNC_EVERY_S, Journal
from tests.checkpoint.test_checkpoint_format import write_checkpoint


class Call(NamedTuple):
    """A call. what: "sync" or "rename". path: the synced file, or the new name. size: bytes of the file then."""

    what: str
    path: str
    size: int


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """The calls that make files and names durable, in order."""
    made: list[Call] = []

    def recording(sync: Callable[[int], None]) -> Callable[[int], None]:
        def synced(descriptor: int) -> None:
            sync(descriptor)
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            made.append(Call("sync", path, 0 if os.path.isdir(path) else os.fstat(descriptor).st_size))

        return synced

    rename = os.rename

    def renamed(source: str | Path, target: str | Path, **more: int) -> None:
        rename(source, target, **more)
        made.append(Call("rename", str(target), 0))

    monkeypatch.setattr(os, "fsync", recording(os.fsync))
    monkeypatch.setattr(os, "fdatasync", recording(os.fdatasync))
    monkeypatch.setattr(os, "rename", renamed)
    return made


def sizes(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in directory.iterdir()}


def test_everything_of_a_checkpoint_is_on_the_disk_before_its_name(tmp_path: Path, calls: list[Call]) -> None:
    final = write_checkpoint(tmp_path, samples=5)
    renames = [number for number, call in enumerate(calls) if call.what == "rename"]
    assert [calls[number].path for number in renames] == [str(final)]
    before, after = calls[: renames[0]], calls[renames[0] + 1 :]
    synced = {Path(call.path).name: call.size for call in before if call.size}
    assert synced == sizes(final), "every file must be synced in full, also the manifest and its digest"
    directories = [number for number, call in enumerate(before) if Path(call.path).name == ".staging-5"]
    manifest = max(number for number, call in enumerate(before) if Path(call.path).name.startswith("MANIFEST"))
    assert directories and directories[-1] > manifest, "the directory must be synced after its last file"
    assert str(final.parent) in [call.path for call in after], "the parent directory must be synced after the rename"


def test_blocks_are_on_the_disk_when_their_writer_exits(tmp_path: Path, calls: list[Call]) -> None:
    """A PS sends SnapshotWrittenMsg at that point; the manifest is written later."""
    final = write_checkpoint(tmp_path, samples=5)
    first_manifest = next(number for number, call in enumerate(calls) if Path(call.path).name == MANIFEST_NAME)
    by_writers = [Path(call.path).name for call in calls[:first_manifest]]
    assert by_writers == ["server-0.bin", ".staging-5", "server-1.bin", ".staging-5"]
    assert {call.size for call in calls[:first_manifest] if call.size} <= set(sizes(final).values())


def test_a_replaced_checkpoint_is_found_under_one_of_two_names(tmp_path: Path, calls: list[Call]) -> None:
    write_checkpoint(tmp_path, samples=5)
    calls.clear()
    final = write_checkpoint(tmp_path, samples=5)
    renames = [(number, Path(call.path).name) for number, call in enumerate(calls) if call.what == "rename"]
    assert [name for _, name in renames] == ["step-5.replaced", "step-5"]
    manifests = [number for number, call in enumerate(calls) if Path(call.path).name.startswith("MANIFEST")]
    assert len(manifests) == 2 and max(manifests) < renames[0][0], (
        "the new checkpoint must be complete before the old one is renamed"
    )
    assert calls[-1] == Call("sync", str(final.parent), 0)


def test_decisions_in_the_journal_are_on_the_disk_at_once(tmp_path: Path, calls: list[Call]) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.write(EpochStarted(1, "for people"))
    journal.sync(1e9)
    assert calls == [], "this event must not be synced"
    journal.write(RunStarted("1", "a commit point"))
    assert calls == [Call("sync", str(path), path.stat().st_size)]
    journal.close()


def test_leases_are_on_the_disk_soon(tmp_path: Path, calls: list[Call]) -> None:
    path = tmp_path / LEASES_FILE
    journal = Journal(tmp_path / "journal.jsonl")
    journal.write(RunStarted("1", "a commit point"))
    calls.clear()
    journal.write(LeaseGranted(ProcessId("worker", 0, 1), lease=1, epoch=0, unit=0, start=0, stop=4))
    size = path.stat().st_size
    journal.sync(journal._synced_s + SYNC_EVERY_S / 2)
    assert calls == []
    journal.sync(journal._synced_s + SYNC_EVERY_S)
    journal.sync(journal._synced_s + 10 * SYNC_EVERY_S)
    assert calls == [Call("sync", str(path), size)]
    journal.write(LeaseGranted(ProcessId("worker", 0, 1), lease=1, epoch=0, unit=0, start=0, stop=4))
    journal.close()
    assert calls[1:] == [Call("sync", str(path), path.stat().st_size)], (
        "the last leases must be synced when the journal is closed"
    )
