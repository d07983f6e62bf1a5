"""Enforces `resources.memory`: measures and grants memory, forecasts it, and acts before the budget is exceeded.

Modules:
    monitor          measures and grants many times a second, and lets `tuner.memory` decide once a second
    gauge            measures the arena of one host
    process_memory   private memory of processes
    grants           grants the parameter servers of one host what is left of its budget
    memory_shares    divides what is left among them; pure
    actions          performs decisions, and measures their effects
    exhaustion       leaves new ids without a row, or ends the job, when no memory is left
    lookups          counts lookups of ids that have no row
"""
