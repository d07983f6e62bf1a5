"""The history: records of jobs, from which similar jobs take their first plan. A job is in it from the first decision
of its tuner on.

Modules:
    features   the features by which jobs are compared, and the record of a run
    store      the SQLite file of all records, and the search for similar jobs
"""
