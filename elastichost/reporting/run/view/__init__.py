"""Renders the report of a run.

Modules:
    page                   puts the page together, from the templates in templates/run
    charts, model_charts, gpu_charts   what its charts show
    time_axis              the axis of running time that charts share, with its marks
    words                  its sentences and facts
"""
