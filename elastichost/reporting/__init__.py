"""`elastichost report`: one file that tells what a run did and what the tuner knew.

Modules:
    run/      the report of a run
    host/     the report of a host with many jobs
    render/   HTML and SVG, which both are made of
"""
