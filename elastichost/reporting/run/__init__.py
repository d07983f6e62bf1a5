"""The report of a run.

Modules:
    assemble                         reads a run directory into a report
    facts                            values of the report
    sources, measurements, sessions  reads the files and puts their times on one axis
    curve, trained                   reads the learning curve; tells what was trained
    story, memory, knowledge, heat   computes plans, faults, memory actions, the tuner's model and the load
    view/                            renders the report
"""
