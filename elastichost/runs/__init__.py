"""A run on disk: its journal of typed events, what a resume reads back from it, its decisions and its result.

Modules:
    events/          every kind of line in journal.jsonl, and the sentence that a person reads for it
    journal          writes and reads journal.jsonl and leases.jsonl
    journal_replay   what the journal of a run tells the supervisor that resumes it
    decisions        decisions.jsonl: what the tuner's decisions were made from
    result           result.json
    facts            what the journal and a checkpoint both carry of a run
    directory        the directory of a run, locked while a supervisor works in it
    cpu_check        whether a resume in sync mode has the same processor features
    observer         what a caller of `run` is told while it trains
"""
