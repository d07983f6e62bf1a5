"""Fault injection for everyone: a job is run, its processes are killed and stopped by a seeded schedule, and afterwards
every promise is checked from the files the run left.

What decides and judges is pure: `schedule` (what happens when), `scene` (what the journal says of the processes),
`invariants`, `goodput`, `faults.message_faults`. They do: `driver` (the loop), `target` (the run), `faults/` (of
processes and messages, and garbage).
"""
