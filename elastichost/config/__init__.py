"""The job file: its sections, their limits and defaults, the rules between them, and what is said of a mistake.

Modules:
    job           JobSpec, and how TOML, environment and command line become one, and how it is written out
    base, schema, emulate, remote, supervision, tuner    sections of the job file
    tables        from [tables.*] to each table's settings
    hosts         hosts files: the other machines of a run
    rules         what may not stand beside what
    explain       from validation errors to sentences
"""
