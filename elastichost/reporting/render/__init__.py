"""What the pages have in common: charts as data, rows of bars, colours, and the templates.

Modules:
    pages               renders templates and whole documents
    chart, chart_table  a chart as data for the script of the page, and in words
    bars                rows of bars
    smoothed            curves with fewer points
    palette, text       colours; texts without invisible characters
"""
