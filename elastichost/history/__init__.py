"""What finished jobs taught, for jobs like them.

Modules:
    features   what a job looks like to the history, and a record of it
    store      all records, in one SQLite file, and which of them are near a job
"""
