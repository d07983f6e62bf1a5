"""The comparison of runs.

Modules:
    assemble       compares the reports of runs
    facts          values of the comparison
    page, charts   renders the comparison, from the templates in templates/compare
"""
