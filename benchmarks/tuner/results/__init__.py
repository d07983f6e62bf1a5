"""Writes all measurements of the tuner's benchmarks to one page.

page   runs parts, keeps their output, writes docs/tuner.md; `python -m benchmarks.tuner.results`
plots  the charts of the page
rows   the table of aims and measurements
"""
