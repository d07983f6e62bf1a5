"""Forecasts the memory of a job, and decides what frees memory in time.

Modules:
    forecast                         predicts when the budget will be exceeded, and chooses an action
    facts                            the input of one forecast, and the decision
    growth, horizon, prior           the growth of tables; how long rows may stay unseen; estimates from similar jobs
    peak_memory, peak_memory_facts   the peak memory of a job before it starts
    living_bytes                     the bytes of tensors that exist at the same time
    distinct_ids                     the number of distinct ids of a dataset
"""
