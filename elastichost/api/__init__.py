"""The Python interface: `train`, `start`, `resume`, and the objects that they take and return.

Modules:
    sections            Data and Table: sections of the job file with errors of their own
    rows                from_iterable: rows as the data of a job
    job                 Job: the whole job as an object
    model_source        writes the source of a model that is defined in a script or a notebook cell
    launch              starts the process of the supervisor, and reads how it ended
    supervisor_process  the program of that process
    run                 Run: the results of a run on disk
    handle              RunHandle: a run that trains
    callbacks           calls the user's functions with what happens in a run, in threads of their own
    progress            shows a run while `train` waits for it
    notebook            HTML for notebooks, and an output that is updated in place
    interrupts          waits for the end of a run; an interrupt stops it
    training            train, start and resume

The supervisor is a process of its own, so a script, a thread or a notebook stays free, and nothing that the user's code
does can delay it. All that a handle or a callback learns comes from the files of the run.
"""
