"""`resources.memory`: measured, granted, foreseen, and what is done when it will not suffice.

Modules:
    monitor          looks many times a second, and lets `tuner.memory` decide
    gauge            what the arena of a host takes
    process_memory   private memory of processes
    grants           shares what is left among parameter servers
    memory_shares    how it is shared; pure
    actions          performs what was decided, and measures the effect
    exhaustion       what becomes of a job when no memory is left
    lookups          how many ids found no row
"""
