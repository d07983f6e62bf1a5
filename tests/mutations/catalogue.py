"""The faults: what is replaced where, and which tests must fail then."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MUTATIONS", "Mutation"]


@dataclass(frozen=True)
class Mutation:
    """`old` occurs in the file once. `tests`: what pytest is given; `histories`: simulated ones are looked through, of
    this mode, until one fails. Either is enough."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = ()
    histories: str = ""


SESSION, SERVICE, STEPS, LOOP = "ps/session.py", "ps/service.py", "ps/step_service.py", "ps/loop.py"
APPLIER, STAGING, UNDO, DENSE = "ps/applier.py", "arena/staging.py", "arena/undo.py", "arena/dense.py"
KILLS = ("tests/ps/test_applier.py",)
DURABILITY = ("tests/checkpoint/test_durability.py",)

MUTATIONS: tuple[Mutation, ...] = (
    # --- once -------------------------------------------------------------------------------------------------
    Mutation(
        "a push that was applied is staged again",
        SERVICE,
        "if self._applier.knows(worker, life, message.sequence, epoch):",
        "if False:",
        histories="async",
    ),
    Mutation(
        "an applied stamp is not known",
        APPLIER,
        "        if stamp <= self._undo.applied(worker):\n            return True\n",
        "",
        KILLS,
        "async",
    ),
    Mutation(
        "a commit that comes twice is committed twice",
        SERVICE,
        "duplicate = message.sequence <= before.sequence",
        "duplicate = False",
        histories="async",
    ),
    Mutation(
        "a micro-batch that comes twice is added twice",
        "ps/step_board.py",
        "if len(self._micros) < message.micros:",
        "if len(self._micros) < message.micros - 1:",
        ("tests/ps/test_step_board.py",),
        "sync",
    ),
    Mutation(
        "a micro-batch of a step that is over is staged",
        APPLIER,
        "if step <= self._over or self._left_out",
        "if self._left_out",
        KILLS,
        "sync",
    ),
    Mutation(
        "what a successor finds applied is applied again",
        APPLIER,
        "            if self._staged.stamp(stager) <= self._undo.applied(stager):\n"
        "                self._staged.drop(stager)\n",
        "            pass\n",
        KILLS,
    ),
    # --- fences and epochs ------------------------------------------------------------------------------------------
    Mutation(
        "a fenced life may go on",
        SESSION,
        "if sender.life <= self._fenced.get(sender.index, 0):",
        "if False:",
        ("tests/ps/test_session.py",),
        "async",
    ),
    Mutation(
        "rows and pulls of an older shard map are served",
        SESSION,
        "if shard_map_epoch is not None and shard_map_epoch != self.shard_map_epoch:",
        "if False:",
        ("tests/ps/test_session.py",),
        "async",
    ),
    Mutation(
        "a batch staged under an older shard map is committed",
        SERVICE,
        "if 0 < message.shard_map_epoch < self._session.shard_map_epoch:",
        "if False:",
        histories="async",
    ),
    Mutation(
        "a micro-batch staged under an older shard map counts",
        STEPS,
        " or (message.step == step and not self._is_current(message.shard_map_epoch))",
        "",
        ("tests/ps/test_step_service.py",),
        "sync",
    ),
    Mutation(
        "a new shard map does not open the step again",
        "worker/crew.py",
        "        self._queue.reopen()\n",
        "",
        histories="sync",
    ),
    Mutation(
        "the dense owner does not say what counts",
        "supervisor/handover.py",
        "            self._committed = committed\n",
        "            self._committed = ()\n",
        ("tests/supervisor/test_handover.py",),
        "async",
    ),
    Mutation(
        "who gives buckets up keeps what is not committed",
        LOOP,
        "self._applier.settle(worker, life, committed, is_over=True)",
        "self._applier.settle(worker, life, committed)",
        histories="async",
    ),
    # --- applied ------------------------------------------------------------------------------------------------------
    Mutation(
        "a PS pulls rows for a step before it has applied the one before",
        SERVICE,
        "            self._applier.settle_steps(message.step - 1)\n",
        "",
        histories="sync",
    ),
    Mutation(
        "rows of the last step are not in the checkpoint",
        LOOP,
        "                self._applier.settle_steps(step)\n",
        "",
        histories="sync",
    ),
    Mutation(
        "owners do not hear of a commit",
        "worker/exchange.py",
        "self._unconfirmed.update({server: sequence for server in self._servers if server != but})",
        "pass",
        ("tests/worker/test_exchange.py",),
        "async",
    ),
    Mutation(
        "what a dead worker has staged is not settled",
        "supervisor/training.py",
        "            self._settle_rows(process)\n",
        "            pass\n",
        histories="async",
    ),
    Mutation(
        "half an application is not taken back",
        APPLIER,
        "            self._lines.put_back(old.rows, old.bounds, old.lines, old.states)\n",
        "",
        KILLS,
    ),
    Mutation(
        "rows change before their old lines are said to be there",
        UNDO,
        "        announce(self._words, _ACTIVE, 1)\n",
        "        pass\n",
        KILLS,
    ),
    Mutation(
        "a finished application is not noted",
        UNDO,
        "            self._note_stamps()\n            return None\n",
        "            return None\n",
        KILLS,
    ),
    Mutation(
        "a push that was applied stays",
        APPLIER,
        "        self._staged.drop(push.stager)\n\n    def _change",
        "\n    def _change",
        KILLS,
        "async",
    ),
    Mutation(
        "micro-batches are added in the order in which they came",
        "ps/step_board.py",
        "for micro in sorted(self._micros)]",
        "for micro in self._micros]",
        ("tests/ps/test_step_board.py",),
        "sync",
    ),
    Mutation(
        "rows of a micro-batch that is left out are applied",
        "worker/crew.py",
        "            self._channel.leave_out(directory, task)\n",
        "            pass\n",
        histories="sync",
    ),
    Mutation(
        "the idle half of the dense vector is the live one",
        DENSE,
        "return sequence, self._halves[(sequence - 1) & 1], self._halves[sequence & 1]",
        "return sequence, self._halves[(sequence - 1) & 1], self._halves[(sequence - 1) & 1]",
        ("tests/arena/test_arena_dense.py",),
    ),
    # --- positions ----------------------------------------------------------------------------------------------------
    Mutation(
        "progress that comes twice counts twice",
        "supervisor/ledger.py",
        "stop <= held.applied_stop",
        "False",
        ("tests/supervisor/test_ledger.py",),
    ),
    Mutation(
        "what a dead worker has not trained is lost",
        "supervisor/ledger.py",
        "        self._returned.extendleft(reversed(rests))\n",
        "",
        ("tests/supervisor/test_ledger.py",),
        "async",
    ),
    Mutation(
        "steps that were committed are granted again",
        "worker/step_queue.py",
        "range(max(self.step, grant.first_step), self._stop(grant))",
        "range(grant.first_step, self._stop(grant))",
        ("tests/worker/test_step_queue.py",),
        "sync",
    ),
    Mutation(
        "micro-batches of another are computed too, its own are not",
        "worker/step_queue.py",
        "== (self.worker,)",
        "!= (self.worker,)",
        ("tests/worker/test_step_queue.py",),
    ),
    # --- access by place ------------------------------------------------------------------------------------------
    Mutation(
        "buckets are copied while workers change them in place",
        "supervisor/migration.py",
        "self._served_epoch, self._mapping = epoch, set(workers)",
        "self._served_epoch, self._mapping = epoch, set()",
        ("tests/supervisor/test_migration.py",),
    ),
    Mutation(
        "a map counts as left behind that batches were prepared by",
        "worker/exchange.py",
        "reached = present if is_idle else self._trained",
        "reached = present",
        ("tests/worker/test_exchange.py",),
    ),
    Mutation(
        "rows change in place before the batch before is committed",
        "worker/commit.py",
        "            self._settle_commits()\n        finally:",
        "            pass\n        finally:",
        ("tests/worker/test_commit.py",),
    ),
    Mutation(
        "parameters change between forward and backward",
        "worker/commit.py",
        "if not self._keeps_model:",
        "if True:",
        ("tests/worker/test_commit.py",),
    ),
    # --- checkpoints ----------------------------------------------------------------------------------------------
    Mutation(
        "copies are taken while workers train",
        "supervisor/cut.py",
        '        if self._waiting:\n            return ()\n        self._move("all paused")',
        '        self._move("all paused")',
        ("tests/supervisor/test_cut.py",),
        "async",
    ),
    Mutation("a manifest is not synced", "checkpoint/files.py", "        os.fsync(file.fileno())\n", "", DURABILITY),
    Mutation(
        "names in the checkpoint are not synced",
        "checkpoint/manifest.py",
        "        sync_directory(staging)\n",
        "",
        DURABILITY,
    ),
    Mutation(
        "the name of the checkpoint is not synced",
        "checkpoint/manifest.py",
        "        sync_directory(final.parent)\n        if",
        "        if",
        DURABILITY,
    ),
    Mutation(
        "blocks are not synced", "checkpoint/blocks.py", "            os.fsync(self._file.fileno())\n", "", DURABILITY
    ),
    Mutation(
        "commit points of the journal are not synced",
        "supervisor/journal.py",
        "        os.fdatasync(self._descriptor)\n",
        "",
        DURABILITY,
    ),
    Mutation(
        "a journal line that must last is forgotten",
        "supervisor/journal.py",
        "self._unsynced = self._unsynced or durable or now",
        "self._unsynced = self._unsynced or now",
        DURABILITY,
    ),
)
