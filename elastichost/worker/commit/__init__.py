"""The commit of a batch.

Modules:
    committer   the dense exchange of a worker, and with it the commit
"""
