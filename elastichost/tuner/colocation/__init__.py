"""Many jobs on one host: what each demands, how they slow each other down, which of them run together. Pure.

    facts            the values all others speak of: resources, modes, jobs, the host
    kinds            what a job is bound by, and what such jobs are taken to demand until one is measured
    speeds           how fast each of a set of jobs is beside the others; what the set is worth; the bound
    ledger           peak memory: what is charged, what is free
    candidates       which (mode, device) of a job fits
    settings         the constants of dispatching
    placement_input  what a policy decides from, and what holds for all policies
    policies         who starts now, and why the others wait:
                     complementary    the default
                     baselines        rmixer_type, fifo, random, exclusive
    corrections      what measured speeds teach of pairs of kinds
    feedback         who is shrunk, paused, evicted when jobs hurt each other, and when it comes back
    stages           that as one table

After RMixer (TPDS 2024) and the sharing of cores of DLRover-RM (PVLDB 17(12), 2024).
"""
