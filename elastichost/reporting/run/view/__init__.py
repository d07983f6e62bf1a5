"""Renders the report of a run.

Modules:
    page                   puts the page together, from the templates in templates/run
    charts, model_charts   what its charts show
    words                  its sentences and facts
"""
