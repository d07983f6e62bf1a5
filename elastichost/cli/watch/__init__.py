"""Verbs that look at a run.

Modules:
    read             status, events, logs
    event_list       the journal, filtered
    log              sends the values of a run to experiment loggers
    report, replay   one HTML page; recomputes the decisions of a run
    run_view         draws a run on a terminal
"""
