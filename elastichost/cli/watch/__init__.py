"""Verbs that look at a run.

Modules:
    read             status, events, logs
    event_list       the journal, filtered
    report, replay   one HTML page; recomputes the decisions of a run
    run_view         draws a run on a terminal
    tail             reads a text file that grows
"""
