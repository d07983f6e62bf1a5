"""Writes all measurements of the tuner's benchmarks to one page.

page            runs parts, keeps their output, writes docs/tuner.md; `python -m benchmarks.tuner.results`
plots           the charts of the page
row             one row of the table of aims, and its verdict
rows            the rows of all parts
simulated_rows  the rows of the simulated clusters
"""
