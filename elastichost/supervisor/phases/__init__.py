"""The two phases of a run: the model is described, then the job trains. The event loop calls the present phase.

Modules:
    description     the probe builds the user's model and describes it
    training        from the first process that trains to the end of the last one
    stop_request    why a run is asked to stop
    arena_watch     checks that the files of the arena still exist
    disk_watch      handles disks that are full
    agenda_input    the snapshot of a training run for `core.agenda`
"""
