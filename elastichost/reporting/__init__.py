"""`elastichost report`: reads the files of a run or a host and renders them as one HTML file.

Modules:
    run/      the report of a run and its tuner
    host/     the report of a host with many jobs
    render/   HTML and SVG for both reports
"""
