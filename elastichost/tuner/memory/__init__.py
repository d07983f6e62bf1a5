"""Memory of a job.

Modules:
    forecast                         sees before it is used up that memory will not suffice
    facts                            what is known at one moment, what is decided
    growth, horizon, prior           the law of new ids; how long rows may stay; what similar jobs taught
    peak_memory, peak_memory_facts   the peak of a job before it starts
    distinct_ids                     how many distinct ids a dataset has
"""
