"""The report of a host with many jobs.

Modules:
    assemble              reads the directory into a report
    facts                 values of the report
    sources, timeline     reads the files
    story, course         computes the history of each job and of the host
    page, charts, words   renders the report, from the templates in templates/host
"""
