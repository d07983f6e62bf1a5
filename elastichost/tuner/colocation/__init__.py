"""Decides which jobs run together on one host, from their demands and their mutual slow-down. Pure.

    facts            the common values: resources, modes, jobs, the host
    kinds            classes of jobs by their bottleneck, and the demands assumed for them before a measurement
    speeds           the speed of each job of a set beside the others; the worth of a set; the bound
    ledger           peak memory: charged bytes and free bytes
    candidates       which (mode, device) of a job fits
    settings         the constants of dispatching
    placement_input  the input of a policy, and the rules of all policies
    policies         which jobs start now, and why the others wait:
                     complementary    the default
                     baselines        rmixer_type, fifo, random, exclusive
    corrections      learns corrections of predicted speeds for pairs of kinds
    feedback         shrinks, pauses or evicts jobs that slow others or exceed memory, and reverses that later
    stages           the transition table of feedback

After RMixer (TPDS 2024) and the sharing of cores of DLRover-RM (PVLDB 17(12), 2024).
"""
