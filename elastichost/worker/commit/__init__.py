"""The commit of a batch.

Modules:
    committer   the dense exchange of a worker, and with it the commit
    exchange    what was sent and not yet confirmed; sans-IO
    channel     connections to the parameter servers that survive their death
"""
