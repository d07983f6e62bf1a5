"""Fault injection for everyone: a job is run, its processes are killed and stopped by a seeded schedule, and afterwards
every promise is checked from the files the run left.

Modules:
    driver        the loop: starts the job, does the faults, checks the promises
    schedule      what happens when; pure
    target        the run, and its resumptions
    faults/       what is done to processes and messages, and garbage
    tails         the journal and the log of applied batches, read while they grow
    scene         what the journal says of the processes; pure
    facts         what a run left in its files
    invariants    the promises, checked from these facts; pure
    hand_overs    whether buckets arrived as they were sent
    twin          a part of the job in sync mode, undisturbed and under faults: the same bits
    goodput       samples a second under faults, against calm stretches; pure
    verdicts      a promise, whether it held, and its figures
"""
