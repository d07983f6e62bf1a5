"""A report as a page.

Modules:
    page                     the whole page
    tables                   its tables
    figures, model_figures   its drawings
    words                    figures and facts as words
"""
