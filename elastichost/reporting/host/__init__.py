"""The report of a host with many jobs.

Modules:
    assemble                           reads the directory
    facts                              values of the report
    sources, timeline, story, course   what is read, and what it tells
    page, tables, figures, words       how it is shown
"""
