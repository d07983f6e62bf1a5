"""The job file: its sections, their limits and defaults, the rules between them, and the messages for mistakes.

Modules:
    job           JobSpec: read from TOML, environment and command line, and written as TOML
    base, schema, data, emulate, remote, supervision, tuner    the sections of the job file
    values        what one setting accepts: types with their validators
    tables        from [tables.*] to the settings of each table
    hosts         hosts files: the other machines of a run
    rules         checks of settings against each other
    explain       from validation errors to messages
"""
