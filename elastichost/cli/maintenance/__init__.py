"""Verbs that check a host, clean it, and test elastichost on it.

Modules:
    doctor, doctor_ipc   checks whether this host can run a job
    clean                removes the leftovers of dead runs
    bench                runs a benchmark of the source tree
    chaos                runs a job under injected faults
"""
