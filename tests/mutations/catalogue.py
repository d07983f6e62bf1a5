"""The catalogue of faults: the text that each replaces in a file, and the tests that must fail then."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MUTATIONS", "Mutation"]


@dataclass(frozen=True)
class Mutation:
    """One fault. old: occurs in the file once. tests: arguments of pytest. histories: mode of simulated histories,
    which are run until one fails. One of the two is enough."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = ()
    histories: str = ""


SESSION, SERVICE, STEPS, LOOP = "ps/session.py", "ps/service.py", "ps/sync/step_service.py", "ps/loop.py"
APPLIER, STAGING, UNDO, DENSE = (
    "ps/applier.py",
    "arena/recovery/staging.py",
    "arena/recovery/undo.py",
    "arena/dense/store.py",
)
INDEX, HOST, SOCKETS, STORE = "arena/index/table.py", "arena/host.py", "wire/sockets.py", "ps/rows/store.py"
WEB = "web/access.py"
SPOOL, SPOOL_TESTS = "datasets/spool/spool_file.py", ("tests/datasets/spool/test_spool_file.py",)
KILLS = ("tests/ps/test_applier.py",)
DURABILITY = ("tests/checkpoint/test_durability.py",)

MUTATIONS: tuple[Mutation, ...] = (
    # --- applied and counted once -------------------------------------------------------------------------------
    Mutation(
        "a push that was applied is staged again",
        SERVICE,
        "if self._applier.knows(worker, incarnation, message.sequence, epoch):",
        "if False:",
        histories="async",
    ),
    Mutation(
        "an applied stamp is not recognised",
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
        "ps/sync/step_board.py",
        "if len(self._micros) < message.micros:",
        "if len(self._micros) < message.micros - 1:",
        ("tests/ps/sync/test_step_board.py",),
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
        "a successor applies a push again that was applied before the kill",
        APPLIER,
        "            if self._staged.stamp(stager) <= self._undo.applied(stager):\n"
        "                self._staged.drop(stager)\n",
        "            pass\n",
        KILLS,
    ),
    # --- fences and epochs ------------------------------------------------------------------------------------------
    Mutation(
        "a fenced incarnation is not refused",
        SESSION,
        "if sender.incarnation <= self._fenced.get(sender.index, 0):",
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
        ("tests/ps/sync/test_step_service.py",),
        "sync",
    ),
    Mutation(
        "a new shard map does not open the step again",
        "worker/sync/sync_worker.py",
        "        self._queue.reopen()\n",
        "",
        histories="sync",
    ),
    Mutation(
        "a hand-over loses what the dense owner has committed",
        "supervisor/core/handover.py",
        "            self._committed = committed\n",
        "            self._committed = ()\n",
        ("tests/supervisor/core/test_handover.py",),
        "async",
    ),
    Mutation(
        "a PS that releases buckets keeps pushes that are not committed",
        LOOP,
        "self._applier.settle(worker, incarnation, committed, is_over=True)",
        "self._applier.settle(worker, incarnation, committed)",
        histories="async",
    ),
    # --- applied ------------------------------------------------------------------------------------------------------
    Mutation(
        "a PS serves rows for a step before it has applied the one before",
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
        "owners of rows are not told of a commit",
        "worker/channels/exchange.py",
        "self._unconfirmed.update({server: sequence for server in self._servers if server != but})",
        "pass",
        ("tests/worker/channels/test_exchange.py",),
        "async",
    ),
    Mutation(
        "pushes that a dead worker has staged are not settled",
        "supervisor/controllers/leases.py",
        "            self._settle_rows(process)\n",
        "            pass\n",
        histories="async",
    ),
    Mutation(
        "a push that was half applied is not undone",
        APPLIER,
        "            self._lines.put_back(old.rows, old.bounds, old.lines, old.states)\n",
        "",
        KILLS,
    ),
    Mutation(
        "rows change before their old lines are announced",
        UNDO,
        "        announce(self._words, _ACTIVE, 1)\n",
        "        pass\n",
        KILLS,
    ),
    Mutation(
        "a finished application is not recorded",
        UNDO,
        "            self._note_stamps()\n            return None\n",
        "            return None\n",
        KILLS,
    ),
    Mutation(
        "a push that was applied stays staged",
        APPLIER,
        "        self._staged.drop(push.stager)\n\n    def _change",
        "\n    def _change",
        KILLS,
        "async",
    ),
    Mutation(
        "micro-batches are added in the order in which they came",
        "ps/sync/step_board.py",
        "for micro in sorted(self._micros)]",
        "for micro in self._micros]",
        ("tests/ps/sync/test_step_board.py",),
        "sync",
    ),
    Mutation(
        "rows of a micro-batch that is left out are applied",
        "worker/sync/sync_worker.py",
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
        "supervisor/ledger/ledger.py",
        "stop <= held.applied_stop",
        "False",
        ("tests/supervisor/ledger/test_ledger.py",),
    ),
    Mutation(
        "positions that a dead worker has not trained are lost",
        "supervisor/ledger/ledger.py",
        "        self._returned.extendleft(reversed(rests))\n",
        "",
        ("tests/supervisor/ledger/test_ledger.py",),
        "async",
    ),
    Mutation(
        "steps that were committed are granted again",
        "worker/sync/step_queue.py",
        "range(max(self.step, grant.first_step), self._stop(grant))",
        "range(grant.first_step, self._stop(grant))",
        ("tests/worker/sync/test_step_queue.py",),
        "sync",
    ),
    Mutation(
        "a worker computes the micro-batches of others instead of its own",
        "worker/sync/step_queue.py",
        "== (self.worker,)",
        "!= (self.worker,)",
        ("tests/worker/sync/test_step_queue.py",),
    ),
    # --- direct access --------------------------------------------------------------------------------------------
    Mutation(
        "rows change in place without a record of the batch",
        "worker/commit/direct_commit.py",
        "        self._watermarks.note_begun(self._process.index, self._process.incarnation, self.next_sequence)\n",
        "",
        ("tests/worker/commit/test_direct_commit.py",),
        "direct",
    ),
    Mutation(
        "a batch that is released is not in the mailbox",
        "worker/commit/direct_commit.py",
        "        mailbox.post(self._process.incarnation, push.sequence, msgspec.msgpack.encode(push))\n",
        "",
        ("tests/worker/commit/test_direct_commit.py",),
        "direct",
    ),
    # --- access by place ------------------------------------------------------------------------------------------
    Mutation(
        "buckets are copied while workers change them in place",
        "supervisor/core/migration.py",
        "self._served_epoch, self._mapping = epoch, set(workers)",
        "self._served_epoch, self._mapping = epoch, set()",
        ("tests/supervisor/core/test_migration.py",),
    ),
    Mutation(
        "a shard map counts as no longer used although prepared batches use it",
        "worker/channels/exchange.py",
        "reached = present if is_idle else self._trained",
        "reached = present",
        ("tests/worker/channels/test_exchange.py",),
    ),
    Mutation(
        "rows change in place before the batch before is committed",
        "worker/commit/mixed_commit.py",
        "        self._settle_commits()\n",
        "",
        ("tests/worker/commit/test_mixed_commit.py",),
    ),
    Mutation(
        "parameters change between forward and backward",
        "worker/commit/dense_transport.py",
        "        self._note(envelope)\n\n\nclass GradientFrames",
        "        self._note(envelope)\n        self._load()\n\n\nclass GradientFrames",
        ("tests/worker/commit/test_mixed_commit.py",),
    ),
    # --- checkpoints ----------------------------------------------------------------------------------------------
    Mutation(
        "copies are taken while workers train",
        "supervisor/core/checkpoint_cut.py",
        '        if self._waiting:\n            return ()\n        self._move("all paused")',
        '        self._move("all paused")',
        ("tests/supervisor/core/test_checkpoint_cut.py",),
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
        "runs/journal.py",
        "                os.fdatasync(descriptor)\n",
        "                pass\n",
        DURABILITY,
    ),
    Mutation(
        "a journal line that must be durable is not synced",
        "runs/journal.py",
        'self._unsynced = self._unsynced or event.durability != "later"',
        'self._unsynced = self._unsynced or event.durability == "at_once"',
        ("tests/runs/test_journal.py", *DURABILITY),
    ),
    # --- order and grace --------------------------------------------------------------------------------------------
    Mutation(
        "a gap: a batch is committed before the one before it",
        SERVICE,
        "if message.sequence != before.sequence + 1:",
        "if False:",
        ("tests/ps/test_service.py::test_a_batch_is_not_committed_before_the_one_before_it",),
    ),
    Mutation(
        "a fence: a released batch is lost with the worker's messages",
        LOOP,
        "            self._service.commit_posted(worker, incarnation)\n",
        "            pass\n",
        ("tests/ps/test_loop.py::test_batches_that_a_dead_worker_released_are_committed_when_it_is_fenced",),
    ),
    Mutation(
        "a fence: a released batch that is committed already is committed again",
        SERVICE,
        "if message.sequence == self._dense.applied(worker, incarnation).sequence + 1:",
        "if message.sequence:",
        ("tests/ps/test_service.py::test_released_batches_are_committed_in_order_and_without_gaps",),
    ),
    Mutation(
        "a new dense owner keeps records of batches that were never committed",
        LOOP,
        "(self._dense.version())\n            self._apply_own_commits()\n",
        "(1 << 40)\n            self._apply_own_commits()\n",
        ("tests/ps/test_loop.py::test_a_new_dense_owner_cuts_off_records_of_batches_that_were_never_committed",),
    ),
    Mutation(
        "grace is shorter than the time for which a worker may use rows",
        "ps/rows/eviction.py",
        "GRACE_BATCHES = 8\n",
        "GRACE_BATCHES = 6\n",
        ("tests/ps/rows/test_eviction.py::test_grace_outlasts_all_batches_that_a_worker_can_have_looked_up",),
    ),
    # --- shared memory without locks --------------------------------------------------------------------------------
    Mutation(
        "a reader of an index looks at its generation once",
        INDEX,
        "        if load_acquire(control, header + GENERATION) != word:\n            continue\n",
        "",
        ("tests/arena/test_arena_index.py::test_a_slow_reader_looks_again_when_the_generation_has_changed",),
    ),
    Mutation(
        "a reader of an index does not compare the tag",
        INDEX,
        "if value <= 0 or value & ~ROW_MASK != tag_of(mixed):",
        "if value <= 0:",
        ("tests/arena/test_arena_index.py::test_a_value_of_another_key_is_a_miss",),
    ),
    Mutation(
        "a staged push keeps its stamp while the next is written over it",
        STAGING,
        "        announce(slot.words, _STAMP, 0)\n        slot.reserve",
        "        slot.reserve",
        ("tests/arena/recovery/test_staging.py",),
    ),
    Mutation(
        "a staged push has its stamp before it is complete",
        STAGING,
        "        announce(slot.words, _STAMP, 0)\n        slot.reserve",
        "        announce(slot.words, _STAMP, stamp)\n        slot.reserve",
        ("tests/arena/recovery/test_staging.py",),
    ),
    Mutation(
        "old lines that may be needed are overwritten",
        UNDO,
        "        if words[_ACTIVE]:\n            raise ArenaError(",
        "        if False:\n            raise ArenaError(",
        ("tests/arena/recovery/test_undo.py",),
    ),
    Mutation(
        "a mailbox keeps its sequence while the next message is written over the one before",
        "arena/dense/mailbox.py",
        "        announce(self._words, _SEQUENCE, 0)  # a worker",
        "        pass  # a worker",
        ("tests/arena/dense/test_mailbox.py",),
    ),
    Mutation(
        "a reader takes the sequence of one incarnation for another's",
        "arena/watermarks.py",
        "before == incarnation == load_word(own, _INCARNATION) else 0",
        "before == incarnation else 0",
        ("tests/arena/test_watermarks.py",),
    ),
    Mutation(
        "a reader of the applied record does not notice that its half was overwritten",
        "arena/dense/store.py",
        "            record = self._record(self._halves[sequence & 1], worker, incarnation)\n"
        "            if load_word(self._words, _STARTED) < sequence + 2:",
        "            record = self._record(self._halves[sequence & 1], worker, incarnation)\n            if True:",
        ("tests/arena/test_arena_dense.py",),
    ),
    # --- refusals ---------------------------------------------------------------------------------------------------
    Mutation(
        "row gradients that are not finite are staged",
        SERVICE,
        "        gradients = float32_frame(frames, 1, self._store.lines.floats(bounds))\n"
        "        require_finite(gradients, str(sender))\n",
        "        gradients = float32_frame(frames, 1, self._store.lines.floats(bounds))\n",
        ("tests/ps/test_service.py::test_row_gradients_that_are_not_finite_are_refused",),
    ),
    Mutation(
        "row gradients of a micro-batch that are not finite are staged",
        SERVICE,
        "        require_finite(gradients, str(sender))\n        if not len(rows)",
        "        if not len(rows)",
        ("tests/ps/test_service.py::test_row_gradients_of_a_micro_batch_that_are_not_finite_are_refused",),
    ),
    Mutation(
        "dense gradients that are not finite are committed",
        SERVICE,
        "            require_finite(vector[: self._model.dense.parameters], str(sender))\n",
        "",
        ("tests/ps/test_service.py::test_dense_gradients_must_be_finite_and_buffers_need_not_be",),
    ),
    Mutation(
        "the dense gradient of a micro-batch that is not finite counts",
        STEPS,
        "        require_finite(vector[: self._parameters], str(sender))\n",
        "",
        ("tests/ps/test_service.py::test_a_dense_gradient_of_a_micro_batch_that_is_not_finite_is_refused",),
    ),
    Mutation(
        "a message of any size is read: sockets of one machine",
        SOCKETS,
        "    socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)\n",
        "",
        ("tests/wire/test_sockets.py::test_a_peer_that_announces_too_large_a_message_is_disconnected",),
    ),
    Mutation(
        "a message of any size is read: gates",
        "wire/security/tcp_router.py",
        "        self.socket.setsockopt(zmq.MAXMSGSIZE, PART_BYTES + CURVE_BYTES)\n",
        "",
        ("tests/wire/security/test_tcp_router.py::test_a_part_longer_than_allowed_is_not_read_to_its_end",),
    ),
    Mutation(
        "a message of any size is read: commands",
        "wire/commands.py",
        "    socket.setsockopt(zmq.MAXMSGSIZE, MAX_COMMAND_BYTES)\n",
        "",
        ("tests/wire/test_commands.py::test_a_peer_that_sends_an_oversize_command_is_disconnected",),
    ),
    Mutation(
        "an answer through a gate is lost when ZeroMQ takes read messages for unread",
        SOCKETS,
        "                _note_what_was_read(socket)\n",
        "",
        ("tests/wire/security/test_tcp_router.py::test_a_peer_that_has_read_every_answer_gets_the_next_one",),
    ),
    Mutation(
        "a machine without keys: a worker connects without encryption",
        SOCKETS,
        "if self.keys is None or not server.key:",
        "if False:",
        ("tests/wire/test_sockets.py::test_a_caller_without_a_key_cannot_connect_to_another_machine",),
    ),
    Mutation(
        "rows are copied into a bucket that a PS owns",
        STORE,
        '            raise ProtocolError(f"bucket {bucket} of table {table} is owned by this process: no rows',
        '            str(f"bucket {bucket} of table {table} is owned by this process: no rows',
        ("tests/ps/rows/test_store.py::test_an_owned_bucket_is_neither_copied_into_nor_forgotten",),
    ),
    Mutation(
        "a bucket that a PS owns is forgotten",
        STORE,
        '            raise ProtocolError(f"bucket {bucket} of table {table} is owned by this process: it is',
        '            str(f"bucket {bucket} of table {table} is owned by this process: it is',
        ("tests/ps/rows/test_store.py::test_an_owned_bucket_is_neither_copied_into_nor_forgotten",),
    ),
    Mutation(
        "progress with fewer samples than before is counted",
        "supervisor/ledger/ledger.py",
        "if samples < held.samples or skipped < held.skipped:",
        "if False:",
        ("tests/supervisor/ledger/test_ledger.py::test_progress_with_smaller_counts_than_before_is_refused",),
    ),
    # --- late messages ----------------------------------------------------------------------------------------------
    Mutation(
        "late: a push of a step that is over counts for the one under way",
        STEPS,
        "        if message.step < step:\n            return [acknowledged]\n",
        "",
        ("tests/ps/sync/test_step_service.py",),
    ),
    Mutation(
        "late: rows of a step that is over are served for computing it again",
        SERVICE,
        "if message.create and self._applier.step_is_over(message.step):",
        "if False:",
        ("tests/ps/test_service.py::test_no_worker_computes_with_rows_of_a_later_step",),
    ),
    Mutation(
        "late: a pause for an older checkpoint counts for the present one",
        "supervisor/core/checkpoint_cut.py",
        "if cut != self.number or self.state != CutState.PAUSING:",
        "if False:",
        ("tests/supervisor/core/test_checkpoint_cut.py::test_a_pause_for_an_older_cut_does_not_count_for_this_one",),
    ),
    Mutation(
        "late: an older membership is accepted",
        SESSION,
        "if epoch <= self.membership_epoch:",
        "if False:",
        ("tests/ps/test_session.py::test_an_older_membership_that_comes_late_changes_nothing",),
    ),
    Mutation(
        "late: an older shard map is adopted",
        LOOP,
        "if update.epoch <= self._session.shard_map_epoch:",
        "if False:",
        ("tests/ps/test_loop.py::test_an_older_shard_map_that_comes_late_changes_nothing",),
    ),
    Mutation(
        "late: a PS that does not own the dense vector reports what a dead worker has committed",
        LOOP,
        "        if not self._service.is_dense_owner:\n            return\n",
        "",
        ("tests/ps/test_loop.py::test_only_the_dense_owner_answers_for_a_dead_worker",),
    ),
    # --- the data of a run ------------------------------------------------------------------------------------------
    Mutation(
        "a resume with other data continues from the arena",
        "supervisor/startup/arena_takeover.py",
        "if known.lineage.data != settings.data:",
        "if False:",
        ("tests/supervisor/startup/test_arena_takeover.py::test_other_data_does_not_fit",),
    ),
    # --- owners of directories --------------------------------------------------------------------------------------
    Mutation(
        "an owner: arenas of other users are found",
        HOST,
        "if facts.st_uid != os.geteuid() or facts.st_mode & 0o022:",
        "if facts.st_mode & 0o022:",
        ("tests/arena/test_arena_host.py::test_directories_of_another_user_are_neither_found_nor_removed",),
    ),
    Mutation(
        "an owner: arenas of other users are removed",
        HOST,
        "if path.stat().st_uid != os.geteuid():",
        "if False:",
        ("tests/arena/test_arena_host.py::test_directories_of_another_user_are_neither_found_nor_removed",),
    ),
    Mutation(
        "an owner: a process that has ended becomes one",
        "arena/owner.py",
        "    if ticks is None:\n        raise ArenaError(",
        "    if False:\n        raise ArenaError(",
        ("tests/arena/test_arena_host.py::test_a_process_that_has_ended_cannot_become_an_owner",),
    ),
    Mutation(
        "an owner: the guardian of a directory removes it although it has another owner",
        HOST,
        "if is_same(read_owner(path), owner):",
        "if read_owner(path):",
        ("tests/arena/test_arena_host.py::test_a_directory_with_a_new_owner_is_not_removed_for_the_old_one",),
    ),
    Mutation(
        "an owner: the lock of a removed directory holds the new one of that name",
        HOST,
        "if not os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(descriptor)):",
        "if False:",
        ("tests/arena/test_arena_host.py::test_a_new_directory_with_the_same_name_is_not_held_for_the_old_one",),
    ),
    Mutation(
        "an owner: directories of other programs are found",
        HOST,
        "if entry.name.startswith(_PREFIX) and entry.is_dir(follow_symlinks=False):",
        "if entry.is_dir(follow_symlinks=False):",
        ("tests/arena/test_arena_host.py::test_directories_of_other_programs_are_left_alone",),
    ),
    # --- who is answered, and what a reader of a run gets -------------------------------------------------------
    Mutation(
        "a page that makes its own name point to this machine is answered",
        WEB,
        'if headers.get("host", "").lower() not in hosts:',
        "if False:",
        ("tests/web/test_access.py",),
    ),
    Mutation(
        "a page of another origin is answered",
        WEB,
        'if origin and origin not in {f"http://{host}" for host in hosts}:',
        "if False:",
        ("tests/web/test_access.py",),
    ),
    Mutation(
        "a page of another site that sends no origin is answered",
        WEB,
        'if headers.get("sec-fetch-site", "none").lower() not in ("none", "same-origin"):',
        "if False:",
        ("tests/web/test_access.py",),
    ),
    Mutation(
        "a request without the token is answered",
        WEB,
        "if not any(hmac.compare_digest(given.encode(), token.encode()) for given in _tokens(target, headers)):",
        "if False:",
        ("tests/web/test_access.py",),
    ),
    Mutation(
        "a logger that fails loses the values",
        "loggers/delivery.py",
        'self.problem = f"{type(error).__name__}: {error}"',
        'self.problem, self._waiting = f"{type(error).__name__}: {error}", []',
        ("tests/loggers/test_delivery.py",),
    ),
    Mutation(
        "a logger's position is kept before the values have arrived",
        "loggers/delivery.py",
        "        position = self._follower.position\n        try:\n",
        "        position = self._follower.position\n"
        "        write_atomically(self._path, msgspec.json.encode(DeliveryProgress(position, self._progress.key)))\n"
        "        try:\n",
        ("tests/loggers/test_delivery.py",),
    ),
    Mutation(
        "the curve takes a record whose commit may still fail",
        "runs/learning_curve.py",
        "self._follow(range(present.start, present.stop - 1), unix_s)",
        "self._follow(present, unix_s)",
        ("tests/runs/test_learning_curve.py",),
    ),
    Mutation(
        "the curve keeps the points of batches that a roll-back has lost",
        "runs/learning_curve.py",
        'self._connection.execute("DELETE FROM curve WHERE batches > ?", (last,))',
        "pass",
        ("tests/runs/test_learning_curve.py",),
    ),
    Mutation(
        "a commit without the loss of its batch",
        "worker/commit/lease_commit.py",
        "            loss_sum=batch.loss_sum,\n",
        "",
        ("tests/worker/commit/test_direct_commit.py",),
    ),
    Mutation(
        "a CUDA build of fbgemm beside a CPU build of torch is found by a worker only",
        "host/torch_packages.py",
        "if torch is not None and CPU_MARK in torch and cuda is not None:",
        "if False:",
        ("tests/host/test_torch_packages.py",),
    ),
    # --- runs of a notebook -------------------------------------------------------------------------------------
    Mutation(
        "a process that the kernel forked keeps the run alive",
        "api/supervisor_process.py",
        "select.select([connection.fileno(), parent], [], [])",
        "select.select([connection.fileno()], [], [])",
        ("tests/examples/test_kernel.py::test_a_process_that_the_kernel_forked_keeps_no_run_alive",),
    ),
    Mutation(
        "an interrupt while a run begins leaves nobody with its handle",
        "api/interrupts.py",
        "signal.signal(signal.SIGINT, lambda _, frame: held.append(frame))",
        "pass",
        ("tests/api/test_interrupts.py",),
    ),
    Mutation(
        "a value of a derived class is written as it is shown",
        "api/model_source.py",
        "if type(value) in _CONSTANTS:",
        "if isinstance(value, _CONSTANTS):",
        ("tests/api/test_model_source.py",),
    ),
    Mutation(
        "a notebook shows texts of the user as HTML",
        "api/notebook.py",
        'return f"<pre>{html.escape(text)}</pre>" if text else ""',
        'return f"<pre>{text}</pre>" if text else ""',
        ("tests/api/test_job.py",),
    ),
    # --- searches ------------------------------------------------------------------------------------------------
    Mutation(
        "a trial whose job the dispatcher has is submitted again after a kill",
        "search/trials.py",
        "entry.state = next_trial_state(entry.state, TrialEvent.SUBMIT)\n            entry.is_waiting",
        "continue\n            entry.is_waiting",
        ("tests/search/test_trials.py", "tests/search/test_kills.py"),
    ),
    Mutation(
        "a trial that Optuna was told of is trained again after a kill",
        "search/trial_feed.py",
        "if trial.is_told:",
        "if False:",
        ("tests/search/test_kills.py",),
    ),
    Mutation(
        "a resumed search repeats its random values",
        "search/study.py",
        "np.random.SeedSequence([self._seed, number])",
        "np.random.SeedSequence([self._seed])",
        ("tests/search/test_study.py",),
    ),
    Mutation(
        "a value that the job file does not allow is found by the trial",
        "search/settings.py",
        "for text in parameter.extremes():",
        "for text in ():",
        ("tests/search/test_settings.py",),
    ),
    # --- proposals of the tuners of single jobs ------------------------------------------------------------------
    Mutation(
        "a run carries out a grant that it does not propose any more",
        "supervisor/command_handler.py",
        "if refused is None and command.is_proposal and not self._proposes(command):",
        "if False:",
        ("tests/supervisor/test_command_handler.py",),
    ),
    Mutation(
        "the dispatcher grants a proposal that was made for another size",
        "dispatcher/core/entries.py",
        "if told.present != PlanStatus(mode.workers, mode.servers, mode.worker_cores):",
        "if False:",
        ("tests/dispatcher/core/test_interference_control.py",),
    ),
    Mutation(
        "a granted plan whose new process fails is not taken back",
        "supervisor/autoscale/tuner_loop.py",
        "self._change = begun(before, after, self._run.fleet, now_s)",
        "pass",
        ("tests/supervisor/autoscale/test_tuner_loop.py",),
    ),
    Mutation(
        "jobs that may not change keep more cores than there are",
        "tuner/cluster/decide.py",
        "if sum(_current(job).cores for job in view.jobs if job.job in fixed) > view.cores:",
        "if False:",
        ("tests/tuner/cluster/test_decide.py",),
    ),
    # --- rows from Python -----------------------------------------------------------------------------------------
    Mutation(
        "a spool of other rows is used",
        SPOOL,
        "if kept == identity.encode() else None",
        "",
        SPOOL_TESTS,
    ),
    Mutation(
        "two processes write the same spool",
        SPOOL,
        "            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "            pass\n",
        SPOOL_TESTS,
    ),
    Mutation(
        "rows are written under their own name at once",
        SPOOL,
        'with _owned(path.with_name(f".{path.name}.partial")) as',
        "with _owned(path) as",
        SPOOL_TESTS,
    ),
    Mutation(
        "a text becomes an integer",
        "datasets/spool/column_fit.py",
        "if not _is_of_kind(plain_type(column.type), expected):",
        "if False:",
        ("tests/datasets/spool/test_column_fit.py",),
    ),
    # --- sources -------------------------------------------------------------------------------------------------
    Mutation(
        "a unit of a file that changed in the store is trained",
        "datasets/sources/connections.py",
        "if not fetch.left and fetch.needs_check:",
        "if False:",
        ("tests/datasets/sources/test_connections.py",),
    ),
    Mutation(
        "a worker that starts while its source is gone is killed as late",
        "supervisor/core/fleet.py",
        "if record.state == State.CONNECTED and beat.state == WAITS_FOR_SOURCE:",
        "if False:",
        ("tests/supervisor/core/test_fleet.py",),
    ),
    Mutation(
        "an address with a password is shown in events",
        "datasets/sources/transports/addresses.py",
        'if at and (":" in user or scheme.lower() in ("s3", "s3a")):',
        "if False:",
        ("tests/datasets/sources/transports/test_addresses.py",),
    ),
    Mutation(
        "calls of a library that blocks are begun without bound",
        "datasets/sources/transports/patient_calls.py",
        "if not self._places.acquire(timeout=self._limit_s):",
        "if False:",
        ("tests/datasets/sources/transports/test_patient_calls.py",),
    ),
)
