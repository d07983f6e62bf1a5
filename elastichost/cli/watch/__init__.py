"""Verbs that look at a run.

Modules:
    read             status, events, logs
    event_list       the journal, filtered
    report, replay   one HTML page; the decisions made again
    run_view         what a run looks like on a terminal
    tail             a text file that grows
"""
