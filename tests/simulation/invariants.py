"""Checks that must hold after a history, and for every checkpoint taken in it.

L: every position counts exactly once, or is listed as quarantined. A: the rows hold every committed batch exactly
once, and nothing that was not committed (with direct access except torn batches, which are counted). D: in sync mode
the bits are those of the twin, in which no fault happens. That no bucket has two owners is checked during the history.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from elastichost.micro_batches import CREW
from elastichost.runs.facts import Quarantined
from elastichost.supervisor.ledger.checkpoint_record import RunRecord
from elastichost.supervisor.ledger.ledger import Ledger
from elastichost.supervisor.ledger.state import epoch_order
from elastichost.wire.applied import micros_left_out, read_applied
from tests.simulation.computing import line_identity
from tests.simulation.rows import all_buckets
from tests.simulation.twin import Twin, twin_of

if TYPE_CHECKING:
    from tests.simulation.histories import Stage

__all__ = ["check_cut", "check_end"]

Position = tuple[int, int, int]  # epoch, unit, position
Update = tuple[float, ...]
Rows = dict[tuple[int, int], tuple[tuple[Update, ...], bytes]]  # (table, row) -> updates, weights


def check_end(stage: Stage) -> None:
    """Checks the end of a history, when every process has stopped."""
    world, components = stage.world, stage.supervisor.components if stage.supervisor is not None else None
    if stage.result is None or components is None:
        world.violated("the run has no result")
        return
    status = stage.result[0]
    was_stopped = any(fault.kind == "stop" for fault in stage.chosen.faults)
    allowed = {
        "done",
        *(["stopped", "killed"] if was_stopped else []),
        *(["quarantined"] if stage.may_quarantine else []),
    }
    if status not in allowed:
        world.violated(f"the run ended as {status}")
    if status == "killed":
        return
    ledger, dense = components.leases.ledger, stage.dense()
    version = dense.version()
    records = _records(stage, version)
    if dense.samples_applied() != ledger.trained:
        world.violated(f"the dense vector has {dense.samples_applied()} samples, the ledger counts {ledger.trained}")
    as_kept = Ledger.from_state(ledger.settings, ledger.state())  # the step that is still open was not committed
    _check_positions(stage, as_kept, records, is_whole=status != "stopped")
    rows = {item: (tuple(row.updates), row.weights.tobytes()) for item, row in stage.book.rows.items() if row.updates}
    _check_rows(stage, rows, records, version, "at the end")
    if stage.chosen.mode == "sync":
        copy, twin = dense.state_copy(), _twin(stage)
        if status == "done" and version - 1 != len(twin.steps):
            world.violated(f"{version - 1} steps, the twin has {len(twin.steps)}")
        if version > 1:
            last = twin.steps[version - 2]
            if (copy.vector.tobytes(), copy.state.tobytes()) != (last.vector, last.state):
                world.violated("D: the dense vector is not the twin's")


def check_cut(stage: Stage, manifest: Any, blocks: dict[tuple[str, int, int], Any]) -> None:
    """Checks that ledger, dense vector and rows of a checkpoint are of one moment."""
    world, what = stage.world, f"in checkpoint {manifest.samples_trained}"
    record = msgspec.json.decode(manifest.ledger, type=RunRecord)
    version = record.dense_version
    records = _records(stage, version)
    if int(records["samples"].sum()) != record.ledger.trained:
        world.violated(f"L: {what} the ledger has {record.ledger.trained} samples, records {records['samples'].sum()}")
    assert stage.supervisor is not None and stage.supervisor.components is not None
    ledger = Ledger.from_state(stage.supervisor.components.leases.ledger.settings, record.ledger)
    _check_positions(stage, ledger, records, is_whole=False)
    missing = [bucket for bucket in all_buckets(manifest.model) if ("rows", *bucket) not in blocks]
    if missing or ("dense", 0, 0) not in blocks:
        world.violated(f"{what} the dense vector or buckets {missing} are missing")
        return
    rows: Rows = {
        (owner, row): (updates, weights)
        for (kind, owner, _), array in blocks.items()
        if kind == "rows"
        for row, weights, updates in array.tolist()
        if updates
    }
    _check_rows(stage, rows, records, version, what)
    if stage.chosen.mode == "sync" and version > 1:
        last = _twin(stage).steps[version - 2]
        if (blocks["dense", 0, 0].tobytes(), blocks["dense_state", 0, 0].tobytes()) != (last.vector, last.state):
            world.violated(f"D: {what} the dense vector is not that of step {version - 1}")


def _records(stage: Stage, version: int) -> Any:
    """Records of the commits that made versions 2 to `version`, without commits that trained nothing."""
    records = read_applied(stage.run_dir)[1:version]
    if len(records) != version - 1:
        stage.world.violated(f"L: {len(records)} records of {version - 1} commits")
    return records


# --- L ----------------------------------------------------------------------------------------------------------------


def _check_positions(stage: Stage, ledger: Ledger, records: Any, *, is_whole: bool) -> None:
    """L: each position up to now counts once, is pending, or is quarantined. is_whole: no position may be pending."""
    world, samples = stage.world, stage.samples
    counted: Counter[Position] = Counter()
    for r in records:
        first, stop = int(r["stop"]) - int(r["samples"]) - int(r["skipped"]), int(r["stop"])
        if first < 0 or stop > samples.units[int(r["unit"])]:
            world.violated(f"L: record {r} has positions that do not exist")
            return
        counted.update((int(r["epoch"]), int(r["unit"]), position) for position in range(first, stop))
    twice = [position for position, times in counted.items() if times > 1]
    if twice:
        world.violated(f"L: counted more than once: {sorted(twice)[:5]}")
    listed = set(_quarantined(ledger.quarantined))
    trained = {p for p in counted if samples.is_good(p[1], p[2])}
    if stage.chosen.mode == "sync":
        trained -= listed  # their step's record counts them as skipped
    if len(trained) != ledger.trained or trained & listed:
        world.violated(
            f"L: records have {len(trained)} samples, the ledger {ledger.trained}; trained and quarantined: "
            f"{sorted(trained & listed)[:3]}"
        )
    pending = _pending(ledger)
    everything = {
        (epoch, unit, p)
        for epoch in range(ledger.epoch + 1)
        for unit in range(len(samples.units))
        for p in range(samples.units[unit])
    }
    lost = {p for p in everything - set(counted) - listed - pending if samples.is_good(p[1], p[2])}
    if lost:
        world.violated(f"L: lost: {sorted(lost)[:5]}")
    if again := set(counted) & pending:
        world.violated(f"L: trained and still pending: {sorted(again)[:5]}")
    if is_whole and (pending or ledger.samples_accounted != ledger.samples_planned):
        world.violated(f"L: {ledger.samples_accounted} of {ledger.samples_planned} are accounted for")
    good = sum(samples.is_good(unit, p) for _, unit, p in everything - pending - listed)
    if ledger.trained != good or ledger.skipped != len(everything - pending - listed) - good:
        world.violated(
            f"L: {ledger.trained} trained and {ledger.skipped} skipped; the data has {good} good ones of "
            f"{len(everything - pending - listed)}"
        )


def _quarantined(entries: Iterable[Quarantined]) -> Iterable[Position]:
    for entry in entries:
        yield from ((entry.epoch, entry.unit, position) for position in range(entry.start, entry.stop))


def _pending(ledger: Ledger) -> set[Position]:
    """Positions that a run resumed from here would train in this epoch."""
    state = ledger.state()
    found = {(state.epoch, span.unit, p) for span in state.pending for p in range(span.start, span.stop)}
    for unit in epoch_order(ledger.settings, state.epoch)[state.next_unit :]:
        found |= {(state.epoch, unit, p) for p in range(ledger.settings.units[unit])}
    return found


# --- A and D -------------------------------------------------------------------------------------------------------


def _check_rows(stage: Stage, rows: Rows, records: Any, version: int, what: str) -> None:
    """A: rows have the updates of all committed batches, in order, and no others but those of torn batches."""
    if stage.chosen.mode == "sync":
        _check_bits(stage, rows, records, version, what)
        return
    expected: Counter[tuple[tuple[int, int], float, float, float]] = Counter()
    for r in records:
        source, batch_number = line_identity(int(r["worker"]), int(r["incarnation"])), float(r["sequence"])
        for item, count in stage.samples.items(int(r["unit"]), int(r["start"]), int(r["stop"])).items():
            expected[item, source, batch_number, float(count)] += 1
    found = Counter((item, u[0], u[1], u[2]) for item, (updates, _) in rows.items() for u in updates)
    if missing := expected - found:
        stage.world.violated(f"A: {what} committed and not applied: {sorted(missing.items())[:4]}")
    extra = found - expected
    if stage.chosen.mode == "direct":
        torn = {(source, batch_number) for _, source, batch_number, _ in extra}
        if what == "at the end" and (
            several := [source for source, n in Counter(source for source, _ in torn).items() if n > 1]
        ):
            stage.world.violated(f"A: more than one torn batch of {several}")
        committed = {(key[1], key[2]) for key in expected}
        assert stage.run is not None
        if torn & committed or (what == "at the end" and len(torn) > stage.run.torn_batches):
            stage.world.violated(f"A: {what} {sorted(torn)} are torn, the run counts {stage.run.torn_batches}")
    elif extra:
        stage.world.violated(f"A: {what} applied and not committed, or twice: {sorted(extra.items())[:4]}")
    for item, (updates, _) in rows.items():
        of_incarnation: dict[float, float] = {}
        for update in updates:
            if update[1] < of_incarnation.get(update[0], 0.0):
                stage.world.violated(f"A: {what} row {item} has batch {update[1]} of {update[0]} after a later batch")
            of_incarnation[update[0]] = update[1]


def _check_bits(stage: Stage, rows: Rows, records: Any, version: int, what: str) -> None:
    """D, and A in sync mode: steps and rows are those of the twin."""
    twin = _twin(stage)
    if version - 1 > len(twin.steps):
        stage.world.violated(f"D: {what} {version - 1} steps are committed of {len(twin.steps)}")
        return
    for r, step in zip(records, twin.steps[: version - 1], strict=True):
        mine = (int(r["worker"]), int(r["epoch"]), int(r["unit"]), int(r["start"]), int(r["stop"]), int(r["samples"]))
        if mine != (CREW, step.epoch, step.unit, step.start, step.stop, step.samples):
            stage.world.violated(f"D: {what} a step is {mine}, the twin's {step[:5]}")
            return
        if float(r["loss_sum"]) != step.loss_sum:
            stage.world.violated(
                f"D: {what} the loss of step {mine} is {float(r['loss_sum'])!r}, not {step.loss_sum!r}"
            )
            return
    expected = twin.rows_before(version)
    for item in sorted(expected.keys() | rows.keys()):
        if rows.get(item) != expected.get(item):
            mine, other = rows.get(item, ((), b""))[0], expected.get(item, ((), b""))[0]
            stage.world.violated(f"A, D: {what} row {item} is not the twin's:\n  {mine}\n  {other}")
            return


def _twin(stage: Stage) -> Twin:
    """The twin, computed once for each set of micro-batches that were left out."""
    assert stage.supervisor is not None and stage.supervisor.components is not None
    training = stage.supervisor.components.leases
    records = read_applied(stage.run_dir)
    left_out = frozenset((step, micro) for step, record in enumerate(records) for micro in micros_left_out(record))
    if left_out not in stage.twins:
        stage.twins[left_out] = twin_of(stage.samples, stage.job, training.ledger.settings, left_out)
    return stage.twins[left_out]


def bits(array: Any) -> bytes:
    return np.ascontiguousarray(array).tobytes()
