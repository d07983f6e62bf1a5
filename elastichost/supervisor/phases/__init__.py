"""What a run does in its turns, one phase after the other.

Modules:
    description     the probe builds the user's model and says what it consists of
    training        from the first process that trains to the last one that ends
    stop_request    why a run is to stop
    arena_watch     whether the files of the arena are still there
    disk_watch      disks that are full
    agenda_input    a training run as the agenda (`core.agenda`) sees it
"""
