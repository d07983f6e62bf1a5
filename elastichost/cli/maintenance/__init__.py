"""Verbs that check and clean.

Modules:
    doctor, doctor_ipc   can this host run a job?
    clean                removes what dead runs left
    bench                benchmarks of the source tree
    chaos                a job under faults
"""
