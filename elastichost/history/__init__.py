"""The history: records of finished jobs, with which later similar jobs choose their first plan.

Modules:
    features   the features by which jobs are compared, and the record of a finished run
    store      the SQLite file of all records, and the search for similar jobs
"""
