"""The report of a run.

Modules:
    assemble                           reads a run directory
    facts                              values of the report
    sources, measurements, sessions    what is read
    story, memory, knowledge, heat     what it tells
    view/                              how it is shown
"""
