"""The sections of the job file: each class is a section, each attribute a key with its limits, default and description.

Modules:
    schema        job, model, tables, train, evaluate, resources, checkpoint
    data          [data]: files, columns, formats
    input         [data.input]: how a worker reads ahead
    remote        [data.remote]: the rate of a remote store
    emulate       [emulate]: processes that wait instead of computing
    loggers       [logging]: experiment loggers
    schedule      [train.schedule]: the learning rates while the job trains
    supervision   [supervision]: restarts, hangs, liveness
    tuner         [tuner]
"""
