"""`elastichost report` and the page of `elastichost top --web`: reads the files of runs or a host and renders them.

Modules:
    run/      the report of a run and its tuner
    host/     the report of a host with many jobs
    compare/  the comparison of runs
    render/   charts as data, and the templates of all pages

The folder `templates` has the HTML of the pages (Jinja), `static` their style, their script and uPlot.
"""
