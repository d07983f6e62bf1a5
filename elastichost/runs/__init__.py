"""The files of a run: its journal of typed events, the replay of the journal, the decisions and the result.

Modules:
    events/          every kind of line in journal.jsonl, and the sentence that a person reads for it
    journal          writes and reads journal.jsonl and leases.jsonl
    journal_replay   folds the journal of a run into the state that a resume needs
    decisions        decisions.jsonl: the inputs of the tuner's decisions
    result           result.json
    learning_curve   the mean loss of every N samples, exactly, in metrics.db
    metrics_file     opens metrics.db for reading
    facts            values that the journal and checkpoints both contain
    directory        the directory of a run, locked while a supervisor works in it
    cpu_check        whether a resume in sync mode has the same CPU features
    liveness         whether a process is alive, and whether a run trains
    follow           gives what happens in a run, once and in order
    tail             reads a text file that grows
    observer         callbacks for the caller of a run: status and events
"""
