"""All that the tuner's benchmarks measured, on one page.

page   runs parts, keeps what they print, makes docs/tuner.md; `python -m benchmarks.tuner.results`
plots  its pictures
rows   the aims beside what was measured
"""
