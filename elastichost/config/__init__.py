"""The job file: its sections, their limits and defaults, the rules between them, and the messages for mistakes.

Modules:
    job           JobSpec: read from TOML, environment and command line, and written as TOML
    sections/     the sections of the job file
    base          the class that all sections derive from
    values        what one setting accepts: types with their validators
    tables        from [tables.*] to the settings of each table
    hosts         hosts files: the other machines of a run
    resume        which settings may change when a run is resumed
    rules         checks of settings against each other
    metric_names  the names in evaluate.metrics
    metric_rules  checks of them
    explain       from validation errors to messages
"""
