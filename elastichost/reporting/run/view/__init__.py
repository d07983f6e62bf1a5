"""Renders the report of a run as a page.

Modules:
    page                     the whole page
    tables                   its tables
    figures, model_figures   its figures
    words                    its sentences and facts
"""
