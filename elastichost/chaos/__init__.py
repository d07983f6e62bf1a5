"""Fault injection (`elastichost chaos`): runs a job, kills and stops its processes by a seeded schedule, and then
checks every promise from the files that the run left.

Modules:
    driver        the main loop: starts the job, injects the faults, checks the promises
    schedule      the kinds and times of the faults, drawn from the seed; pure
    target        the run under faults, and its resumptions
    faults/       faults of processes and messages, and bad input
    tails         readers of the journal and of the log of applied batches while these grow
    scene         the processes of the run, folded from its journal; pure
    facts         the facts that the checks need, read from the files of the run
    invariants    checks of the promises L, A, O and T from these facts; pure
    hand_overs    check of promise B: a hand-over does not change a bucket
    twin          check of promise D: a small part of the job in sync mode, with and without faults
    goodput       throughput under faults, as a share of the undisturbed throughput; pure
    verdicts      the result of a check
"""
